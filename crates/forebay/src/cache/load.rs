//! The loads that the engine runs: a caller's closure, a lookup in tiers only, and a put.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Lifetime, Meta, Presence, TagSet, Validator};
use forebay_engine::{
    Audience, Content, Entry, Head, HeadCodec, Load, LoadError, LoadOptions, LoadSource, Loaded,
    Passed, Select, ThreadDice,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::answer::{Answer, AnswerKind, Prior};
use crate::cache::load_cycles::{CurrentLoad, LoadId, scope_load};
use crate::cache::shared::Shared;
use crate::codec::{CodecError, plain_length};
use crate::error::load_error;
use crate::lifetimes::{EntryKind, LifetimeOverrides};
use crate::stats::count;

/// Explanation of [`LoadError::Overloaded`].
const NO_PERMIT: &str =
    "no permit of `loads_max` or of the load limiter became free within `load_timeout`";

/// Lifetimes and tags for the entries that one call stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreOptions {
    pub(crate) overrides: LifetimeOverrides,
    pub(crate) tags: Vec<Box<str>>,
}

/// A caller's closure with its types erased. Every load of a `Cache<V>` has one type, so the engine's
/// code for loads is compiled once for each `V` and not for each call.
pub(crate) type Loader<V> =
    Box<dyn FnOnce(Prior<V>) -> BoxFuture<'static, Result<Answer<V>, LoadError>> + Send>;

/// Erases the types of a caller's closure.
pub(crate) fn loader<V, F, Fut, A, E>(load: F) -> Loader<V>
where
    F: FnOnce(Prior<V>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<A, E>> + Send + 'static,
    A: Into<Answer<V>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    Box::new(|prior| {
        let loading = load(prior);
        Box::pin(loading.map(|loaded| loaded.map(Into::into).map_err(load_error)))
    })
}

/// One load of one key by a caller's closure.
pub(crate) struct ClosureLoad<V> {
    pub(crate) shared: Arc<Shared<V>>,
    pub(crate) key: Arc<str>,
    pub(crate) store_options: Arc<StoreOptions>,
    /// Taken when the load starts. The engine starts each load once.
    pub(crate) loader: Arc<Mutex<Option<Loader<V>>>>,
}

impl<V> Clone for ClosureLoad<V> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            key: self.key.clone(),
            store_options: self.store_options.clone(),
            loader: self.loader.clone(),
        }
    }
}

/// Typed values have no variants.
impl<V: Send + Sync> Select for ClosureLoad<V> {
    fn field(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl<V: Send + Sync + 'static> Load for ClosureLoad<V> {
    async fn load(&self, prior: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        let started = || load_error("internal error: one load was started twice");
        let loader = self.loader.lock().take().ok_or_else(started)?;
        let input = Prior::of(prior.as_deref(), self.shared.engine.clock().now());
        let loads = [self.shared.load_id(&self.key)].into();
        // Inside of the future, so that a panic before the loader's first await is caught too.
        let loading = async { loader(input).await };
        let answer = self.shared.run_load(loads, loading).await?;
        self.shared.to_loaded(&self.key, &self.store_options, answer, prior.as_deref())
    }

    fn options(&self) -> LoadOptions {
        self.shared.load_options()
    }
}

impl<V: Send + Sync + 'static> HeadCodec for ClosureLoad<V> {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        self.shared.decode_head(&self.key, bytes)
    }

    fn encode_head(&self, head: &Head) -> Option<Bytes> {
        self.shared.encode_head(head)
    }
}

/// A lookup in all tiers for a call that loads nothing.
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

impl<V: Send + Sync + 'static> HeadCodec for LookupOnly<V> {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        self.shared.decode_head(&self.key, bytes)
    }

    fn encode_head(&self, head: &Head) -> Option<Bytes> {
        self.shared.encode_head(head)
    }
}

impl<V: Send + Sync + 'static> Load for LookupOnly<V> {
    async fn load(&self, _: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        Err(LoadError::NotCached)
    }

    fn options(&self) -> LoadOptions {
        LoadOptions { source: LoadSource::LowerTiers, ..self.shared.load_options() }
    }
}

/// A value that is stored without a load.
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

impl<V: Send + Sync + 'static> HeadCodec for PutLoad<V> {
    fn encode_head(&self, head: &Head) -> Option<Bytes> {
        self.0.encode_head(head)
    }
}

impl<V: Send + Sync + 'static> Load for PutLoad<V> {
    async fn load(&self, _: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        Err(LoadError::NotCached)
    }

    fn options(&self) -> LoadOptions {
        self.0.load_options()
    }
}

impl<V: Send + Sync + 'static> Shared<V> {
    /// Returns the options of all loads of the cache.
    pub(crate) fn load_options(&self) -> LoadOptions {
        let Self { memory_ttl, tier_errors, .. } = *self;
        LoadOptions { memory_ttl, tier_errors, ..LoadOptions::default() }
    }

    /// Runs one load with permits of all limits, within `load_timeout`, as the current load of its
    /// task.
    pub(crate) async fn run_load<T>(
        &self,
        loads: Arc<[LoadId]>,
        load: impl Future<Output = Result<T, LoadError>>,
    ) -> Result<T, LoadError> {
        let mut permits = Vec::with_capacity(self.semaphores.len());
        for semaphore in &self.semaphores {
            let permit = timeout(self.load_timeout, semaphore.clone().acquire_owned()).await;
            let permit = permit.ok().and_then(Result::ok);
            permits.push(permit.ok_or(LoadError::Overloaded(NO_PERMIT))?);
        }
        let current = CurrentLoad { loads, permits: Arc::new(Mutex::new(permits)) };
        let loading = timeout(self.load_timeout, scope_load(current, load));
        loading.await.unwrap_or(Err(LoadError::TimedOut(self.load_timeout)))
    }

    /// Converts an answer to the engine's result of a load.
    pub(crate) fn to_loaded(
        &self,
        key: &str,
        options: &StoreOptions,
        answer: Answer<V>,
        prior: Option<&Entry>,
    ) -> Result<Loaded, LoadError> {
        let Answer { outcome, overrides, tags, validator, cost } = answer;
        let tags = options.tags_with(tags);
        let options = StoreOptions { overrides: overrides.or(options.overrides), tags };
        let facts = LoadFacts { validator, cost: cost.unwrap_or_default() };
        match outcome {
            AnswerKind::Value(value) => {
                let meta = self.meta(self.kind(&value, prior), &options, facts);
                let head = self.head(key, value).map_err(load_error)?;
                Ok(Loaded::Entry { meta, head, content: Content::Whole(Bytes::new()) })
            }
            AnswerKind::Absent => {
                let meta = self.meta(EntryKind::Absent, &options, facts);
                let head = self.absent_head();
                Ok(Loaded::Entry { meta, head, content: Content::Whole(Bytes::new()) })
            }
            AnswerKind::Unchanged => {
                const NO_PRIOR: &str =
                    "the loader answered `Answer::unchanged`, but no value is stored";
                let prior = prior.ok_or_else(|| load_error(NO_PRIOR))?;
                Ok(Loaded::Unchanged {
                    meta: self.renewed_meta(prior, &options, facts),
                    head: None,
                })
            }
            AnswerKind::Pass(value, remember) => {
                // A passed value reaches no tier, so it needs no encoding.
                let head =
                    value.map_or_else(Head::default, |value| self.decoded_head(key, value, 0));
                let content = Content::Whole(Bytes::new());
                Ok(Loaded::Pass(Passed { head, content, remember }))
            }
        }
    }

    /// Returns the metadata of an entry that a load found unchanged: it keeps its validator and its
    /// tags unless the answer names others.
    fn renewed_meta(&self, prior: &Entry, options: &StoreOptions, facts: LoadFacts) -> Meta {
        let unchanged = EntryKind::Unchanged(prior.meta.lifetime().fresh);
        let kind = if is_absent(prior) { EntryKind::Absent } else { unchanged };
        let has_validator = facts.validator.is_some();
        let mut meta = self.meta(kind, options, facts);
        if !has_validator {
            meta.set_validator(prior.meta.validator().cloned());
        }
        if options.tags.is_empty() {
            meta.set_tags(prior.meta.tags().clone());
        }
        meta
    }

    /// Compares a value with the previous one, if lifetimes are adaptive.
    fn kind(&self, value: &Arc<V>, prior: Option<&Entry>) -> EntryKind {
        let unchanged = |prior: &Entry| {
            let before = prior.head.shared_view::<V>()?;
            self.value_eq?(value, &before)
                .then_some(EntryKind::Unchanged(prior.meta.lifetime().fresh))
        };
        prior.and_then(unchanged).unwrap_or(EntryKind::Value)
    }

    /// Builds the metadata of an entry that is stored now.
    pub(crate) fn meta(&self, kind: EntryKind, options: &StoreOptions, facts: LoadFacts) -> Meta {
        let clock = self.engine.clock();
        let lifetime: Lifetime =
            self.lifetimes.resolve(kind, clock.wall(), options.overrides, &mut ThreadDice);
        let mut meta = Meta::new(clock.now(), lifetime);
        meta.set_tags(TagSet::new(options.tags.iter().map(|tag| &**tag)));
        let validator = |tag| Validator { tag: Some(tag), modified: None };
        meta.set_validator(facts.validator.map(validator));
        meta.set_load_cost(facts.cost);
        if kind == EntryKind::Absent && self.separate_absent {
            meta.presence = Presence::Absent;
        }
        meta
    }

    /// Returns the head of a value: the decoded value, which memory keeps, and with a codec also
    /// the encoded bytes, which lower tiers keep.
    pub(crate) fn head(&self, key: &str, value: Arc<V>) -> Result<Head, CodecError> {
        Ok(match &self.codec {
            Some(codec) => {
                let bytes = codec.encode(&value)?;
                self.decoded_head(key, value, plain_length(&bytes)).written_as(bytes)
            }
            None => self.decoded_head(key, value, 0),
        })
    }

    /// Returns a head with the decoded value only. Without a weigher, the memory that the value
    /// owns is estimated by `encoded_length`, its length in bytes before compression.
    fn decoded_head(&self, key: &str, value: Arc<V>, encoded_length: usize) -> Head {
        let owned = if std::mem::needs_drop::<V>() { encoded_length } else { 0 };
        let estimate = size_of::<V>() + owned;
        let weight = self.weigher.as_ref().map_or(estimate, |weigher| weigher(key, &value));
        let head = Head::of_form(value, weight);
        if self.bounded_by_entries { head.counted() } else { head }
    }

    /// Decodes the head of an entry of a lower tier. Returns `None`, and counts a decode failure, if
    /// the bytes are not a value of this cache.
    pub(crate) fn decode_head(&self, key: &str, bytes: Bytes) -> Option<Head> {
        if bytes.is_empty() {
            return Some(self.absent_head());
        }
        match self.codec.as_ref()?.decode(&bytes) {
            Ok(value) => {
                let head = self.decoded_head(key, Arc::new(value), plain_length(&bytes));
                Some(head.written_as(bytes))
            }
            Err(_) => {
                count(&self.counts.decode_failures);
                None
            }
        }
    }

    /// Encodes the value of a head that memory keeps in decoded form only.
    pub(crate) fn encode_head(&self, head: &Head) -> Option<Bytes> {
        self.codec.as_ref()?.encode(head.view::<V>()?).ok()
    }

    /// Returns the empty head of an absent value.
    pub(crate) fn absent_head(&self) -> Head {
        if self.bounded_by_entries { Head::default().counted() } else { Head::default() }
    }
}

/// Validator and cost of one load.
#[derive(Debug, Default)]
pub(crate) struct LoadFacts {
    pub(crate) validator: Option<Bytes>,
    pub(crate) cost: Duration,
}

impl StoreOptions {
    fn tags_with(&self, tags: Vec<Box<str>>) -> Vec<Box<str>> {
        self.tags.iter().cloned().chain(tags).collect()
    }
}

pub(crate) fn is_absent(entry: &Entry) -> bool {
    !entry.head.has_view()
}
