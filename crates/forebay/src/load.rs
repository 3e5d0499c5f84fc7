//! A caller's closure as the engine's load.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Lifetime, Meta, Presence, TagSet, Validator};
use forebay_engine::{
    Company, Entry, Head, Load, LoadError, Loaded, Passed, Select, Source, ThreadDice, TierErrors,
};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::answer::{Answer, Outcome, Prior};
use crate::codec::{CodecError, plain_length};
use crate::error::load_error;
use crate::lifetimes::{EntryKind, LifetimeOverrides};
use crate::load_cycles::{CurrentLoad, LoadId, scope_load};
use crate::shared::Shared;
use crate::stats::count;

/// What is said when as many loads wait as may.
const FULL: &str = "all loads that this cache allows are under way";

/// What one call says about all that it stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreOptions {
    pub(crate) overrides: LifetimeOverrides,
    pub(crate) tags: Vec<Box<str>>,
}

/// One load of one key.
pub(crate) struct ClosureLoad<V, F> {
    pub(crate) shared: Arc<Shared<V>>,
    pub(crate) key: Arc<str>,
    pub(crate) labels: Arc<StoreOptions>,
    /// Taken when the load departs. The engine lets each load depart once.
    pub(crate) run: Arc<Mutex<Option<F>>>,
}

impl<V, F> Clone for ClosureLoad<V, F> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            key: self.key.clone(),
            labels: self.labels.clone(),
            run: self.run.clone(),
        }
    }
}

/// Typed values have no variants.
impl<V: Send + Sync, F: Send> Select for ClosureLoad<V, F> {
    fn field(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl<V, F, Fut, A, E> Load for ClosureLoad<V, F>
where
    V: Send + Sync + 'static,
    F: FnOnce(Prior<V>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<A, E>> + Send + 'static,
    A: Into<Answer<V>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    async fn load(&self, prior: Option<Arc<Entry>>, _: Company) -> Result<Loaded, LoadError> {
        let run = self.run.lock().take().ok_or_else(|| load_error("the load had departed"))?;
        let told = Prior::of(prior.as_deref(), self.shared.engine.clock().now());
        let loads = [self.shared.load_id(&self.key)].into();
        let answering = async { run(told).await.map(Into::into).map_err(load_error) };
        let answer = self.shared.run_load(loads, answering).await?;
        self.shared.loaded((&self.key, &self.labels), answer, prior.as_deref())
    }

    fn memory_ttl(&self) -> Option<Duration> {
        self.shared.memory_ttl
    }

    fn tier_errors(&self) -> TierErrors {
        self.shared.tier_errors
    }

    fn revive(&self, head: Bytes) -> Option<Head> {
        self.shared.revived(&self.key, head)
    }

    fn written(&self, head: &Head) -> Option<Bytes> {
        self.shared.written(head)
    }
}

/// A look into all tiers, for a call that wants nothing loaded.
pub(crate) struct LookupOnly<V> {
    pub(crate) shared: Arc<Shared<V>>,
    pub(crate) key: Arc<str>,
}

impl<V> Clone for LookupOnly<V> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), key: self.key.clone() }
    }
}

impl<V: Send + Sync> Select for LookupOnly<V> {
    fn field(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl<V: Send + Sync + 'static> Load for LookupOnly<V> {
    async fn load(&self, _: Option<Arc<Entry>>, _: Company) -> Result<Loaded, LoadError> {
        Err(LoadError::NotCached)
    }

    fn only_looks(&self) -> bool {
        true
    }

    fn memory_ttl(&self) -> Option<Duration> {
        self.shared.memory_ttl
    }

    fn tier_errors(&self) -> TierErrors {
        self.shared.tier_errors
    }

    fn revive(&self, head: Bytes) -> Option<Head> {
        self.shared.revived(&self.key, head)
    }

    fn written(&self, head: &Head) -> Option<Bytes> {
        self.shared.written(head)
    }
}

/// What is put, and never asked for.
pub(crate) struct PutLoad<V>(pub(crate) Arc<Shared<V>>);

impl<V> Clone for PutLoad<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: Send + Sync> Select for PutLoad<V> {
    fn field(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl<V: Send + Sync + 'static> Load for PutLoad<V> {
    async fn load(&self, _: Option<Arc<Entry>>, _: Company) -> Result<Loaded, LoadError> {
        Err(LoadError::NotCached)
    }

    fn memory_ttl(&self) -> Option<Duration> {
        self.0.memory_ttl
    }

    fn written(&self, head: &Head) -> Option<Bytes> {
        self.0.written(head)
    }
}

impl<V: Send + Sync + 'static> Shared<V> {
    /// Carries out one load: in its turn, within its time, and knowing what it is.
    pub(crate) async fn run_load<T>(
        &self,
        loads: Arc<[LoadId]>,
        load: impl Future<Output = Result<T, LoadError>>,
    ) -> Result<T, LoadError> {
        let mut permits = Vec::with_capacity(self.semaphores.len());
        for places in &self.semaphores {
            let turn = timeout(self.load_timeout, places.clone().acquire_owned()).await;
            permits.push(turn.ok().and_then(Result::ok).ok_or(LoadError::Overloaded(FULL))?);
        }
        let current = CurrentLoad { loads, permits: Arc::new(Mutex::new(permits)) };
        let loading = timeout(self.load_timeout, scope_load(current, load));
        loading.await.unwrap_or(Err(LoadError::TimedOut(self.load_timeout)))
    }

    /// An answer in the engine's words.
    pub(crate) fn loaded(
        &self,
        (key, labels): (&str, &StoreOptions),
        answer: Answer<V>,
        prior: Option<&Entry>,
    ) -> Result<Loaded, LoadError> {
        let Answer { outcome, overrides, tags, validator, cost } = answer;
        let said =
            StoreOptions { overrides: overrides.or(labels.overrides), tags: labels.both(tags) };
        let facts = LoadFacts { validator, cost: cost.unwrap_or_default() };
        match outcome {
            Outcome::Value(value) => {
                let meta = self.meta(self.kind(&value, prior), &said, facts);
                let head = self.head(key, value).map_err(load_error)?;
                Ok(Loaded::Entry { meta, head, source: Source::Whole(Bytes::new()) })
            }
            Outcome::Absent => {
                let meta = self.meta(EntryKind::Absent, &said, facts);
                let head = self.absent_head();
                Ok(Loaded::Entry { meta, head, source: Source::Whole(Bytes::new()) })
            }
            Outcome::Unchanged => {
                let prior = prior.ok_or_else(|| load_error("unchanged, but nothing is stored"))?;
                Ok(Loaded::Unchanged { meta: self.renewed(prior, &said, facts), head: None })
            }
            Outcome::Pass(value, remember) => {
                // It reaches no tier, so it need not be written.
                let head = value.map_or_else(Head::default, |value| self.view((key, value), 0));
                let source = Source::Whole(Bytes::new());
                Ok(Loaded::Pass(Passed { head, source, remember }))
            }
        }
    }

    /// What an unchanged entry is from now on: what the answer leaves open stays as it was.
    fn renewed(&self, prior: &Entry, said: &StoreOptions, facts: LoadFacts) -> Meta {
        let same = EntryKind::Unchanged(prior.meta.lifetime().fresh);
        let kind = if is_absent(prior) { EntryKind::Absent } else { same };
        let states_validator = facts.validator.is_some();
        let mut meta = self.meta(kind, said, facts);
        if !states_validator {
            meta.set_validator(prior.meta.validator().cloned());
        }
        if said.tags.is_empty() {
            meta.set_tags(prior.meta.tags().clone());
        }
        meta
    }

    /// Whether a value is the one that was there before, where that matters.
    fn kind(&self, value: &Arc<V>, prior: Option<&Entry>) -> EntryKind {
        let same = |prior: &Entry| {
            let before = prior.head.shared_view::<V>()?;
            self.value_eq?(value, &before)
                .then_some(EntryKind::Unchanged(prior.meta.lifetime().fresh))
        };
        prior.and_then(same).unwrap_or(EntryKind::Value)
    }

    pub(crate) fn meta(&self, kind: EntryKind, said: &StoreOptions, facts: LoadFacts) -> Meta {
        let clock = self.engine.clock();
        let now = (kind, clock.wall());
        let lifetime: Lifetime = self.lifetimes.resolve(now, said.overrides, &mut ThreadDice);
        let mut meta = Meta::new(clock.now(), lifetime);
        meta.set_tags(TagSet::new(said.tags.iter().map(|tag| &**tag)));
        let validator = |tag| Validator { tag: Some(tag), modified: None };
        meta.set_validator(facts.validator.map(validator));
        meta.set_load_cost(facts.cost);
        if kind == EntryKind::Absent && self.separate_absent {
            meta.presence = Presence::Absent;
        }
        meta
    }

    /// The head of a value: the value itself for its ready-made form, which is all that memory
    /// keeps; and, on its way there, what lower tiers keep of it.
    pub(crate) fn head(&self, key: &str, value: Arc<V>) -> Result<Head, CodecError> {
        Ok(match &self.codec {
            Some(codec) => {
                let bytes = codec.encode(&value)?;
                self.view((key, value), plain_length(&bytes)).written_as(bytes)
            }
            None => self.view((key, value), 0),
        })
    }

    /// Without a weigher a value counts as what is written of it before that is compressed, where
    /// anything is: what it owns is about that much, if it owns anything.
    fn view(&self, (key, value): (&str, Arc<V>), plain: usize) -> Head {
        let owned = if std::mem::needs_drop::<V>() { plain } else { 0 };
        let own = size_of::<V>() + owned;
        let weight = self.weigher.as_ref().map_or(own, |weigh| weigh(key, &value));
        let head = Head::of_form(value, weight);
        if self.bounded_by_entries { head.counted() } else { head }
    }

    /// The head of what comes from a lower tier. What cannot be read is not there.
    pub(crate) fn revived(&self, key: &str, bytes: Bytes) -> Option<Head> {
        if bytes.is_empty() {
            return Some(self.absent_head());
        }
        match self.codec.as_ref()?.decode(&bytes) {
            Ok(value) => {
                let head = self.view((key, Arc::new(value)), plain_length(&bytes));
                Some(head.written_as(bytes))
            }
            Err(_) => {
                count(&self.counts.decode_failures);
                None
            }
        }
    }

    /// The bytes of a head that memory has kept without them.
    pub(crate) fn written(&self, head: &Head) -> Option<Bytes> {
        self.codec.as_ref()?.encode(head.view::<V>()?).ok()
    }

    /// The head of what is known to be absent: nothing at all.
    pub(crate) fn absent_head(&self) -> Head {
        if self.bounded_by_entries { Head::default().counted() } else { Head::default() }
    }
}

/// What an answer may know beside its value.
#[derive(Debug, Default)]
pub(crate) struct LoadFacts {
    pub(crate) validator: Option<Bytes>,
    pub(crate) cost: Duration,
}

impl StoreOptions {
    fn both(&self, tags: Vec<Box<str>>) -> Vec<Box<str>> {
        self.tags.iter().cloned().chain(tags).collect()
    }
}

pub(crate) fn is_absent(entry: &Entry) -> bool {
    !entry.head.has_view()
}
