//! What the purges of all instances have made of an entry, when it is read and when it is stored.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{KeyRef, Meta, Standing, TagSet};
use forebay_engine::Stored;
use redis::{Cmd, Value};

use crate::bus::entry::Entry;
use crate::bus::progress::{BusPosition, FetchedGenerations};
use crate::bus::{RULES_MAX, SharedNames, foreign};
use crate::counts::count;
use crate::endpoint::Endpoint;
use crate::envelope::{OpenedValue, Undecodable};
use crate::error::Error;
use crate::generation::{BusId, Generation, Label, PrefixRule, Scope, reaches};
use crate::link::{Link, RawValue, millis};
use crate::scripts::{self, Call};
use crate::sharing::Sharing;
use crate::tier::{Inner, stored};

/// How many entries of the bus are looked at for one fill. If there are more, it is not stored.
const SINCE_MAX: u64 = 512;

/// By how much longer than an entry its generations are ttl, in percent: so not each fill has to say so.
const KEPT_MORE: u32 = 1;

/// An entry that is to be stored.
pub(crate) struct StoreCheck<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) meta: &'a Meta,
    /// Where the bus stood when its load departed.
    pub(crate) position: BusPosition,
    pub(crate) ttl: Duration,
    /// Whether a purge of its key has withdrawn the right to store it anyway.
    pub(crate) is_leased: bool,
}

/// What Redis has said of generations.
pub(crate) struct GenerationsReply {
    last: BusId,
    generations: Vec<Option<Generation>>,
    rules: Vec<PrefixRule>,
    /// Nothing if some entries are missing, or were not asked for.
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

    /// What it makes of an entry whose generations were asked.
    fn standing(&self, label: &Label, key: KeyRef<'_>) -> Standing {
        label.standing(&self.generations).max(PrefixRule::standing(
            &self.rules,
            key,
            label.departed,
        ))
    }
}

/// What is asked pipelined a reading, in the same exchange: the generations that an entry has whatever its
/// tags are, where they are not known here. The entry first, its generations second.
pub(crate) struct PipelinedCheck {
    epoch: u64,
    pub(crate) command: Cmd,
}

/// The names of what is asked for generations.
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
    /// What stands in an endpoint, and what was said [`PipelinedCheck`] it.
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

    /// What is to be asked pipelined the reading of a key, if anything.
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

    /// What was answered to it. A server that has not seen the script tells nothing.
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

    /// What was read, if it is an entry; counted as what it is.
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
                let is_gone = stored.vetted == Some(Standing::Gone);
                count(if is_gone { &self.counters.misses } else { &self.counters.hits });
                Some(stored)
            }
            Err(why) => {
                self.counters.undecodable(why);
                None
            }
        }
    }

    /// What was read, and what the purges have made of it. What was answered pipelined it is all that
    /// there is to ask of an entry without tags.
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
        let standing = match Label::read(&opened.info.label, tag_count) {
            // Whoever has stored it keeps no count of purges.
            None => Standing::Gone,
            Some(label) => {
                let pending = endpoint.pending_purges.standing(key, tags);
                let pending = pending.max(endpoint.tombstones.standing(key, tags, label.departed));
                let known = match reply.filter(|_| tag_count == 0) {
                    Some(reply) => reply.standing(&label, key),
                    None => self.standing(sharing, endpoint, &label, key, tags).await,
                };
                pending.max(known)
            }
        };
        // Without an engine that publishes its purges, these here are not all there are.
        let is_complete = sharing.bus.has_listener() || standing == Standing::Gone;
        Stored { vetted: is_complete.then_some(standing), ..stored(opened) }
    }

    async fn standing(
        &self,
        sharing: &Arc<Sharing>,
        endpoint: &Arc<Endpoint>,
        label: &Label,
        key: KeyRef<'_>,
        tags: &TagSet,
    ) -> Standing {
        let progress = &sharing.bus.progress;
        if let Some(standing) = progress.standing(endpoint, label, key, tags) {
            return standing;
        }
        // The entry first, its generations second: a purge in between is seen.
        let epoch = progress.epoch();
        let scopes: Vec<Scope<'_>> = Scope::of(key, tags).collect();
        let Ok(reply) = self.fetch_generations(endpoint, &scopes, None).await else {
            return Standing::Gone;
        };
        let GenerationsReply { last, generations, .. } = &reply;
        let fetched =
            FetchedGenerations { scopes: &scopes, generations, last: *last, kept_until: 0 };
        progress.learn(endpoint, epoch, &fetched);
        reply.standing(label, key)
    }

    /// The label to store an entry with. Nothing if it must not be stored: something that reaches
    /// it was purged since its departure, or may have been.
    pub(crate) async fn label(
        &self,
        endpoint: &Arc<Endpoint>,
        check: &StoreCheck<'_>,
    ) -> Result<Option<Bytes>, Error> {
        let Some(sharing) = &self.sharing else { return Ok(Some(Bytes::new())) };
        let StoreCheck { key, meta, position, .. } = *check;
        let progress = &sharing.bus.progress;
        // The server may have forgotten what this instance knows.
        if endpoint.tombstones.standing(key, meta.tags(), position.id) != Standing::Good {
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
            // What is not understood may be a purge of it.
            entry.what().is_none_or(|what| reaches(what, key, meta.tags()))
                && !entry.keeps_version(meta.version())
        };
        let generations: Option<Vec<Generation>> = generations.iter().copied().collect();
        let is_sound = !since.iter().any(is_purged);
        Ok(generations
            .filter(|_| is_sound)
            .map(|generations| Label::written(position.id, &generations)))
    }

    /// Asks for generations; for a fill also what the bus has known of since its departure, and makes those
    /// that are absent.
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
