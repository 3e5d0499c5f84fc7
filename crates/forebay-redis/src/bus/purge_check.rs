//! Purge state of entries, when they are read and when they are stored.

use forebay_core::frame::Decoded;
use futures_util::{StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{KeyRef, Meta, PurgeState, TagSet};
use forebay_engine::Stored;
use redis::{Cmd, Value};

use crate::bus::entry::Entry;
use crate::bus::{RULES_MAX, SharedNames, foreign};
use crate::connection::endpoint::Endpoint;
use crate::connection::link::{Link, RawValue, millis};
use crate::connection::scripts::{self, Call};
use crate::counts::count;
use crate::entry::envelope::{Annotations, OpenedValue, Undecodable};
use crate::error::Error;
use crate::purges::generation::{BusId, Generation, Label, PrefixRule, Scope, reaches};
use crate::state::Inner;
use crate::state::progress::{BusPosition, FetchedGenerations};
use crate::state::sharing::Sharing;

/// Maximum number of bus entries that are checked per store. If there are more, the entry is not
/// stored.
const SINCE_MAX: u64 = 512;

/// Additional TTL of generations over that of their entries, in percent, so that not every store
/// extends it.
const KEPT_MORE: u32 = 1;

/// An entry to be stored.
pub(crate) struct StoreCheck<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) meta: &'a Meta,
    /// Bus position at the start of the load.
    pub(crate) position: BusPosition,
    pub(crate) ttl: Duration,
    /// True if a purge of its key would have withdrawn its permission.
    pub(crate) is_leased: bool,
}

/// Reply of the generations script.
pub(crate) struct GenerationsReply {
    last: BusId,
    generations: Vec<Option<Generation>>,
    rules: Vec<PrefixRule>,
    /// Bus entries since the start of the load; `None` if some are missing or they were not
    /// requested.
    since: Option<Vec<Entry>>,
}

impl GenerationsReply {
    fn read(value: Value, count: usize) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let [Value::BulkString(last), Value::Array(generations), rules, since] = &parts[..] else {
            return None;
        };
        let since = match since {
            Value::Nil => None,
            entries => Some(Entry::read_all(entries).ok()?),
        };
        Some(Self {
            last: BusId::read(last)?,
            generations: generations.iter().map(Generation::read).collect(),
            rules: PrefixRule::read_all(rules)?,
            since,
        })
        .filter(|reply| reply.generations.len() == count)
    }

    /// Returns the purge state of an entry.
    fn standing(&self, label: &Label, key: KeyRef<'_>) -> PurgeState {
        label.standing(&self.generations).max(PrefixRule::standing(
            &self.rules,
            key,
            label.load_position,
        ))
    }
}

/// Query of the site's generations, pipelined with a read if they are unknown. It follows the read,
/// so that a purge in between is seen.
pub(crate) struct PipelinedCheck {
    epoch: u64,
    pub(crate) command: Cmd,
}

/// Names for the generations script.
struct GenerationNames {
    shared: SharedNames,
    generations: Vec<String>,
}

impl GenerationNames {
    fn of(namespace: &str, scopes: &[Scope<'_>]) -> Self {
        let generations = scopes.iter().map(|scope| scope.name(namespace)).collect();
        Self { shared: SharedNames::of(namespace), generations }
    }
}

impl Inner {
    /// Reads a value, with a [`PipelinedCheck`] if needed.
    pub(crate) async fn read_in(
        &self,
        endpoint: &Arc<Endpoint>,
        name: &str,
        key: KeyRef<'_>,
        bytes_max: u64,
    ) -> Result<(Option<RawValue>, Option<GenerationsReply>), Error> {
        let pipelined = self.pipelined_check(endpoint, key);
        let command = pipelined.as_ref().map(|pipelined| &pipelined.command);
        let (found, reply) = endpoint.read(name, bytes_max, command).await?;
        Ok((found, self.apply_reply(endpoint, key, pipelined, reply)))
    }

    /// Returns the query to pipeline with a read, if any.
    pub(crate) fn pipelined_check(
        &self,
        endpoint: &Arc<Endpoint>,
        key: KeyRef<'_>,
    ) -> Option<PipelinedCheck> {
        let progress = &self.sharing.as_ref()?.bus.progress;
        if progress.knows_site(endpoint, key) {
            return None;
        }
        let names = GenerationNames::of(&self.namespace, &Scope::of_site(key));
        let command = self.generations_call(&names, None).by_digest();
        Some(PipelinedCheck { epoch: progress.epoch(), command })
    }

    /// Applies the reply to a pipelined query; `None` if the server has not cached the script.
    pub(crate) fn apply_reply(
        &self,
        endpoint: &Arc<Endpoint>,
        key: KeyRef<'_>,
        pipelined: Option<PipelinedCheck>,
        reply: Option<Value>,
    ) -> Option<GenerationsReply> {
        let (progress, pipelined) = (&self.sharing.as_ref()?.bus.progress, pipelined?);
        let scopes = Scope::of_site(key);
        let reply = GenerationsReply::read(reply?, scopes.len())?;
        let GenerationsReply { last, generations, .. } = &reply;
        let fetched =
            FetchedGenerations { scopes: &scopes, generations, last: *last, kept_until: 0 };
        progress.learn(endpoint, pipelined.epoch, &fetched);
        Some(reply)
    }

    /// Returns the decoded entry with its purge state, and counts a hit or a miss.
    pub(crate) async fn check_and_count(
        &self,
        endpoint: &Arc<Endpoint>,
        opened: Result<OpenedValue, Undecodable>,
        key: KeyRef<'_>,
        reply: Option<GenerationsReply>,
    ) -> Option<Stored> {
        match opened {
            Ok(opened) => {
                let stored = self.check_purges(endpoint, opened, key, reply).await;
                let is_gone = stored.vetted == Some(PurgeState::Removed);
                count(if is_gone { &self.counters.misses } else { &self.counters.hits });
                Some(stored)
            }
            Err(why) => {
                self.counters.undecodable(why);
                None
            }
        }
    }

    /// Returns the entry with its purge state. For an entry without tags the pipelined reply is
    /// sufficient.
    pub(crate) async fn check_purges(
        &self,
        endpoint: &Arc<Endpoint>,
        opened: OpenedValue,
        key: KeyRef<'_>,
        reply: Option<GenerationsReply>,
    ) -> Stored {
        let Some(sharing) = &self.sharing else { return stored(opened) };
        let tags = opened.entry.meta.tags();
        let tag_count = tags.iter().count();
        let standing = match Label::read(&opened.annotations.label, tag_count) {
            // The writer did not share purges.
            None => PurgeState::Removed,
            Some(label) => {
                let pending = endpoint.pending_purges.standing(key, tags);
                let pending =
                    pending.max(endpoint.tombstones.standing(key, tags, label.load_position));
                let known = match reply.filter(|_| tag_count == 0) {
                    Some(reply) => reply.standing(&label, key),
                    None => self.standing(sharing, endpoint, &label, key, tags).await,
                };
                pending.max(known)
            }
        };
        // Without a listener, this instance does not publish its purges.
        let is_complete = sharing.bus.has_listener() || standing == PurgeState::Removed;
        Stored { vetted: is_complete.then_some(standing), ..stored(opened) }
    }

    async fn standing(
        &self,
        sharing: &Arc<Sharing>,
        endpoint: &Arc<Endpoint>,
        label: &Label,
        key: KeyRef<'_>,
        tags: &TagSet,
    ) -> PurgeState {
        let progress = &sharing.bus.progress;
        if let Some(standing) = progress.standing(endpoint, label, key, tags) {
            return standing;
        }
        // The entry first, its generations second, so that a purge in between is seen.
        let epoch = progress.epoch();
        let scopes: Vec<Scope<'_>> = Scope::of(key, tags).collect();
        let Ok(reply) = self.fetch_generations(endpoint, &scopes, None).await else {
            return PurgeState::Removed;
        };
        let GenerationsReply { last, generations, .. } = &reply;
        let fetched =
            FetchedGenerations { scopes: &scopes, generations, last: *last, kept_until: 0 };
        progress.learn(endpoint, epoch, &fetched);
        reply.standing(label, key)
    }

    /// Returns the label for storing an entry; `None` if a purge after the start of its load
    /// reaches it, or may have.
    pub(crate) async fn label(
        &self,
        endpoint: &Arc<Endpoint>,
        check: &StoreCheck<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let Some(sharing) = &self.sharing else { return Ok(Some(Bytes::new())) };
        let StoreCheck { key, meta, position, .. } = *check;
        let progress = &sharing.bus.progress;
        // The server may lack purges that this instance knows.
        if endpoint.tombstones.standing(key, meta.tags(), position.id) != PurgeState::Valid {
            return Ok(None);
        }
        let now = millis(self.clock.exact());
        let until = now.saturating_add(millis(check.ttl));
        let known = progress.generations(position, key, meta.tags(), until);
        if let Some(generations) = known.filter(|_| check.is_leased) {
            return Ok(Some(Label::written(position.id, &generations)));
        }
        let epoch = progress.epoch();
        if epoch != position.epoch {
            return Ok(None);
        }
        let scopes: Vec<Scope<'_>> = Scope::of(key, meta.tags()).collect();
        let longer = check.ttl + check.ttl * KEPT_MORE / 100;
        let reply = self.fetch_generations(endpoint, &scopes, Some((position.id, longer))).await?;
        let kept_until = now.saturating_add(millis(longer));
        let GenerationsReply { last, generations, rules: _, since } = &reply;
        let fetched = FetchedGenerations { scopes: &scopes, generations, last: *last, kept_until };
        progress.learn(endpoint, epoch, &fetched);
        let Some(since) = since else { return Ok(None) };
        let is_purged = |entry: &Entry| {
            // An unknown message may be a purge of the entry.
            entry.what().is_none_or(|what| reaches(what, key, meta.tags()))
                && !entry.keeps_version(meta.version())
        };
        let generations: Option<Vec<Generation>> = generations.iter().copied().collect();
        let is_sound = !since.iter().any(is_purged);
        Ok(generations
            .filter(|_| is_sound)
            .map(|generations| Label::written(position.id, &generations)))
    }

    /// Queries generations. For a store it also returns the bus entries since the start of the
    /// load, and creates missing generations.
    async fn fetch_generations(
        &self,
        endpoint: &Arc<Endpoint>,
        scopes: &[Scope<'_>],
        fill: Option<(BusId, Duration)>,
    ) -> Result<GenerationsReply, Error> {
        let names = GenerationNames::of(&self.namespace, scopes);
        let call = self.generations_call(&names, fill);
        let count = scopes.len();
        let run = |link: Arc<Link>| async move {
            let reply = link.run(&call).await?;
            GenerationsReply::read(reply, count).ok_or_else(foreign)
        };
        let wait_max = if fill.is_some() { endpoint.write_timeout } else { endpoint.read_timeout };
        endpoint.run(wait_max, run).await
    }

    fn generations_call<'a>(
        &self,
        names: &'a GenerationNames,
        fill: Option<(BusId, Duration)>,
    ) -> Call<'a> {
        let GenerationNames { shared, generations } = names;
        let generations = generations.iter().map(|name| &**name);
        let keys = [&*shared.bus, &*shared.rules].into_iter().chain(generations);
        let (position, ttl) = match fill {
            None => (String::new(), Duration::ZERO),
            Some((position, ttl)) => (position.to_string(), ttl),
        };
        let random = self.sharing.as_ref().map_or(0, |sharing| sharing.random());
        let call = scripts::GENERATIONS.call(keys).arg(position).arg(format!("{random:016x}"));
        call.number(millis(ttl).max(1)).number(RULES_MAX * 2).number(SINCE_MAX)
    }
}

pub(crate) fn stored(opened: OpenedValue) -> Stored {
    let OpenedValue { entry: Decoded { meta, head, body }, annotations } = opened;
    // An empty body has no pieces.
    let pieces = (!body.is_empty()).then_some(Ok(body));
    let Annotations { stamp, token, .. } = annotations;
    let softened = meta.vary().is_none() && token != 0;
    let stored = Stored::new(meta, head, stream::iter(pieces).boxed());
    Stored { stamp, softened, family_token: token, ..stored }
}
