//! What the purges of all instances have made of an entry, when it is read and when it is stored.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{KeyRef, Meta, Standing, TagSet};
use forebay_engine::Stored;
use redis::{Cmd, Value};

use crate::bus::entry::Entry;
use crate::bus::place::{Fetched, Place};
use crate::bus::{RULES_MAX, SharedNames, foreign};
use crate::counts::count;
use crate::endpoint::Endpoint;
use crate::envelope::{Opened, Undecodable};
use crate::era::{BusId, Era, Label, Rule, Scope, reaches};
use crate::link::{Found, Link, millis};
use crate::scripts::{self, Call};
use crate::sharing::Sharing;
use crate::tier::{Inner, stored};
use crate::trouble::Trouble;

/// How many entries of the bus are looked at for one fill. If there are more, it is not stored.
const SINCE_MAX: u64 = 512;

/// By how much longer than an entry its eras are kept, in percent: so not each fill has to say so.
const KEPT_MORE: u32 = 1;

/// An entry that is to be stored.
pub(crate) struct Storing<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) meta: &'a Meta,
    /// Where the bus stood when its load departed.
    pub(crate) place: Place,
    pub(crate) kept: Duration,
    /// Whether a purge of its key has withdrawn the right to store it anyway.
    pub(crate) is_leased: bool,
}

/// What Redis has said of eras.
pub(crate) struct Answer {
    last: BusId,
    eras: Vec<Option<Era>>,
    rules: Vec<Rule>,
    /// Nothing if some entries are missing, or were not asked for.
    since: Option<Vec<Entry>>,
}

impl Answer {
    fn read(value: Value, count: usize) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let [Value::BulkString(last), Value::Array(eras), rules, since] = &parts[..] else {
            return None;
        };
        let since = match since {
            Value::Nil => None,
            entries => Some(Entry::read_all(entries).ok()?),
        };
        Some(Self {
            last: BusId::read(last)?,
            eras: eras.iter().map(Era::read).collect(),
            rules: Rule::read_all(rules)?,
            since,
        })
        .filter(|answer| answer.eras.len() == count)
    }

    /// What it makes of an entry whose eras were asked.
    fn standing(&self, label: &Label, key: KeyRef<'_>) -> Standing {
        label.standing(&self.eras).max(Rule::standing(&self.rules, key, label.departed))
    }
}

/// What is asked behind a reading, in the same exchange: the eras that an entry has whatever its
/// tags are, where they are not known here. The entry first, its eras second.
pub(crate) struct Behind {
    epoch: u64,
    pub(crate) command: Cmd,
}

/// The names of what is asked for eras.
struct EraNames {
    shared: SharedNames,
    eras: Vec<String>,
}

impl EraNames {
    fn of(namespace: &str, scopes: &[Scope<'_>]) -> Self {
        let eras = scopes.iter().map(|scope| scope.name(namespace)).collect();
        Self { shared: SharedNames::of(namespace), eras }
    }
}

impl Inner {
    /// What stands in an endpoint, and what was said [`Behind`] it.
    pub(crate) async fn read_in(
        &self,
        endpoint: &Arc<Endpoint>,
        (name, key): (&str, KeyRef<'_>),
        bytes_max: u64,
    ) -> Result<(Option<Found>, Option<Answer>), Trouble> {
        let behind = self.behind(endpoint, key);
        let command = behind.as_ref().map(|behind| &behind.command);
        let (found, answer) = endpoint.read((name, bytes_max), command).await?;
        Ok((found, self.learned(endpoint, (key, behind), answer)))
    }

    /// What is to be asked behind the reading of a key, if anything.
    pub(crate) fn behind(&self, endpoint: &Arc<Endpoint>, key: KeyRef<'_>) -> Option<Behind> {
        let standpoint = &self.sharing.as_ref()?.bus.standpoint;
        if standpoint.knows_site(endpoint, key) {
            return None;
        }
        let names = EraNames::of(&self.namespace, &Scope::of_site(key));
        let command = self.eras_call(&names, None).short();
        Some(Behind { epoch: standpoint.epoch(), command })
    }

    /// What was answered to it. A server that has not seen the script tells nothing.
    pub(crate) fn learned(
        &self,
        endpoint: &Arc<Endpoint>,
        (key, behind): (KeyRef<'_>, Option<Behind>),
        answer: Option<Value>,
    ) -> Option<Answer> {
        let (standpoint, behind) = (&self.sharing.as_ref()?.bus.standpoint, behind?);
        let scopes = Scope::of_site(key);
        let answer = Answer::read(answer?, scopes.len())?;
        let Answer { last, eras, .. } = &answer;
        let fetched = Fetched { scopes: &scopes, eras, last: *last, kept_until: 0 };
        standpoint.learn(endpoint, behind.epoch, &fetched);
        Some(answer)
    }

    /// What was read, if it is an entry; counted as what it is.
    pub(crate) async fn counted(
        &self,
        endpoint: &Arc<Endpoint>,
        opened: Result<Opened, Undecodable>,
        asked: (KeyRef<'_>, Option<Answer>),
    ) -> Option<Stored> {
        match opened {
            Ok(opened) => {
                let stored = self.vetted(endpoint, opened, asked).await;
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

    /// What was read, and what the purges have made of it. What was answered behind it is all that
    /// there is to ask of an entry without tags.
    pub(crate) async fn vetted(
        &self,
        endpoint: &Arc<Endpoint>,
        opened: Opened,
        (key, answer): (KeyRef<'_>, Option<Answer>),
    ) -> Stored {
        let Some(sharing) = &self.sharing else { return stored(opened) };
        let tags = opened.entry.meta.tags();
        let tag_count = tags.iter().count();
        let standing = match Label::read(&opened.marking.label, tag_count) {
            // Whoever has stored it keeps no count of purges.
            None => Standing::Gone,
            Some(label) => {
                let owed = endpoint.purges.standing(key, tags);
                let owed = owed.max(endpoint.tombstones.standing((key, tags), label.departed));
                let told = match answer.filter(|_| tag_count == 0) {
                    Some(answer) => answer.standing(&label, key),
                    None => self.standing(sharing, endpoint, (&label, key, tags)).await,
                };
                owed.max(told)
            }
        };
        // Without an engine that publishes its purges, these here are not all there are.
        let is_told = sharing.bus.has_listener() || standing == Standing::Gone;
        Stored { vetted: is_told.then_some(standing), ..stored(opened) }
    }

    async fn standing(
        &self,
        sharing: &Arc<Sharing>,
        endpoint: &Arc<Endpoint>,
        (label, key, tags): (&Label, KeyRef<'_>, &TagSet),
    ) -> Standing {
        let standpoint = &sharing.bus.standpoint;
        if let Some(standing) = standpoint.standing(endpoint, label, (key, tags)) {
            return standing;
        }
        // The entry first, its eras second: a purge in between is seen.
        let epoch = standpoint.epoch();
        let scopes: Vec<Scope<'_>> = Scope::of(key, tags).collect();
        let Ok(answer) = self.ask_eras(endpoint, &scopes, None).await else {
            return Standing::Gone;
        };
        let Answer { last, eras, .. } = &answer;
        let fetched = Fetched { scopes: &scopes, eras, last: *last, kept_until: 0 };
        standpoint.learn(endpoint, epoch, &fetched);
        answer.standing(label, key)
    }

    /// The label to store an entry with. Nothing if it must not be stored: something that reaches
    /// it was purged since its departure, or may have been.
    pub(crate) async fn label(
        &self,
        endpoint: &Arc<Endpoint>,
        storing: &Storing<'_>,
    ) -> Result<Option<Bytes>, Trouble> {
        let Some(sharing) = &self.sharing else { return Ok(Some(Bytes::new())) };
        let Storing { key, meta, place, .. } = *storing;
        let standpoint = &sharing.bus.standpoint;
        // The server may have forgotten what this instance knows.
        if endpoint.tombstones.standing((key, meta.tags()), place.id) != Standing::Good {
            return Ok(None);
        }
        let now = millis(self.clock.exact());
        let until = now.saturating_add(millis(storing.kept));
        let known = standpoint.eras(place, (key, meta.tags()), until);
        if let Some(eras) = known.filter(|_| storing.is_leased) {
            return Ok(Some(Label::written(place.id, &eras)));
        }
        let epoch = standpoint.epoch();
        if epoch != place.epoch {
            return Ok(None);
        }
        let scopes: Vec<Scope<'_>> = Scope::of(key, meta.tags()).collect();
        let longer = storing.kept + storing.kept * KEPT_MORE / 100;
        let answer = self.ask_eras(endpoint, &scopes, Some((place.id, longer))).await?;
        let kept_until = now.saturating_add(millis(longer));
        let Answer { last, eras, rules: _, since } = &answer;
        let fetched = Fetched { scopes: &scopes, eras, last: *last, kept_until };
        standpoint.learn(endpoint, epoch, &fetched);
        let Some(since) = since else { return Ok(None) };
        let is_purged = |entry: &Entry| {
            // What is not understood may be a purge of it.
            entry.what().is_none_or(|what| reaches(what, key, meta.tags()))
                && !entry.spares(meta.version())
        };
        let eras: Option<Vec<Era>> = eras.iter().copied().collect();
        let is_sound = !since.iter().any(is_purged);
        Ok(eras.filter(|_| is_sound).map(|eras| Label::written(place.id, &eras)))
    }

    /// Asks for eras; for a fill also what the bus has told of since its departure, and makes those
    /// that are absent.
    async fn ask_eras(
        &self,
        endpoint: &Arc<Endpoint>,
        scopes: &[Scope<'_>],
        fill: Option<(BusId, Duration)>,
    ) -> Result<Answer, Trouble> {
        let names = EraNames::of(&self.namespace, scopes);
        let call = self.eras_call(&names, fill);
        let count = scopes.len();
        let run = |link: Arc<Link>| async move {
            let answer = link.run(&call).await?;
            Answer::read(answer, count).ok_or_else(foreign)
        };
        let patience = if fill.is_some() { endpoint.write_timeout } else { endpoint.read_timeout };
        endpoint.run(patience, run).await
    }

    fn eras_call<'a>(&self, names: &'a EraNames, fill: Option<(BusId, Duration)>) -> Call<'a> {
        let EraNames { shared, eras } = names;
        let eras = eras.iter().map(|name| &**name);
        let keys = [&*shared.bus, &*shared.rules].into_iter().chain(eras);
        let (place, kept) = match fill {
            None => (String::new(), Duration::ZERO),
            Some((place, kept)) => (place.to_string(), kept),
        };
        let random = self.sharing.as_ref().map_or(0, |sharing| sharing.random());
        let call = scripts::ERAS.on(keys).arg(place).arg(format!("{random:016x}"));
        call.number(millis(kept).max(1)).number(RULES_MAX * 2).number(SINCE_MAX)
    }
}
