//! Where this instance stands on the bus, what it knows by that, and since when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Standing, TagSet, Timestamp};
use forebay_engine::bus::{Bookmark, Notice};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::bookmark::SavedPosition;
use crate::endpoint::Endpoint;
use crate::generation::{self, BusId, Generation, KnownGenerations, Label, PrefixRule, Scope};

/// How many samples are remembered of which it is known where the bus read_position.
const SAMPLES_MAX: usize = 2_048;

/// How far apart they are at least.
const SAMPLES_GAP: Duration = Duration::from_millis(10);

/// By how much the coarse clock may lag.
const CLOCK_LAG: Duration = Duration::from_millis(20);

/// Where the bus read_position for this instance, and in which epoch: after a gap, or on another server,
/// places cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BusPosition {
    pub(crate) epoch: u64,
    pub(crate) id: BusId,
}

#[derive(Default)]
pub(crate) struct BusProgress(Mutex<State>);

#[derive(Default)]
struct State {
    endpoint: Option<Arc<Endpoint>>,
    epoch: u64,
    /// The last entry that was applied.
    applied: Option<BusId>,
    /// Where an earlier process has saved it, until it is known whether that can be gone on from.
    saved: Option<SavedPosition>,
    /// Up to where the listener was told last that it was told everything.
    announced: Option<SavedPosition>,
    /// How far the bus has come at least: read or not, whatever departs now has seen it.
    end: BusId,
    /// When it was last certain that nothing was missing.
    current: Option<Instant>,
    /// A place that the bus has reached, and when that was asked.
    ahead: Option<(BusId, Instant)>,
    is_connected: bool,
    replication: String,
    known: KnownGenerations,
    rules: Option<Vec<PrefixRule>>,
    samples: VecDeque<(Timestamp, BusId)>,
    instances: usize,
}

/// What a check has brought.
pub(crate) struct BusCheck {
    /// When it was asked.
    pub(crate) asked: Instant,
    /// Up to where it had read then.
    pub(crate) read_position: Option<BusPosition>,
    pub(crate) last: BusId,
    pub(crate) replication: String,
    pub(crate) instances: usize,
    /// All rules, if they were asked for.
    pub(crate) rules: Option<Vec<PrefixRule>>,
}

/// Eras as Redis had them when the bus read_position there.
pub(crate) struct FetchedGenerations<'a> {
    pub(crate) scopes: &'a [Scope<'a>],
    pub(crate) generations: &'a [Option<Generation>],
    pub(crate) last: BusId,
    /// Until when Redis keeps them at least, in milliseconds of the exact clock.
    pub(crate) kept_until: u64,
}

impl BusProgress {
    /// Where this instance stands, if it has read_position anywhere yet.
    pub(crate) fn position(&self, endpoint: &Arc<Endpoint>) -> Option<BusPosition> {
        let state = self.0.lock();
        let applied = state.applied.filter(|_| state.is_on(endpoint))?;
        Some(BusPosition { epoch: state.epoch, id: applied.max(state.end) })
    }

    /// The bus has come there.
    pub(crate) fn reached(&self, endpoint: &Arc<Endpoint>, id: BusId) {
        let mut state = self.0.lock();
        if state.is_on(endpoint) {
            state.end = state.end.max(id);
        }
    }

    /// Where it read_position at a time.
    pub(crate) fn position_at(
        &self,
        endpoint: &Arc<Endpoint>,
        at: Timestamp,
    ) -> Option<BusPosition> {
        let state = self.0.lock();
        if !state.is_on(endpoint) {
            return None;
        }
        let before = |sample: &&(Timestamp, BusId)| sample.0.plus(CLOCK_LAG) <= at;
        let (_, id) = state.samples.iter().rev().find(before)?;
        Some(BusPosition { epoch: state.epoch, id: *id })
    }

    /// Up to where it has read.
    pub(crate) fn read_position(&self, endpoint: &Arc<Endpoint>) -> Option<BusPosition> {
        let state = self.0.lock();
        let id = state.applied.filter(|_| state.is_on(endpoint))?;
        Some(BusPosition { epoch: state.epoch, id })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// Where to read on, and on which server.
    pub(crate) fn next(&self) -> Option<(Arc<Endpoint>, BusId)> {
        let state = self.0.lock();
        Some((state.endpoint.clone()?, state.applied?))
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.0.lock().is_connected
    }

    /// How long ago it was last certain that nothing was missed; nothing if it never was.
    pub(crate) fn lag(&self) -> Option<Duration> {
        self.0.lock().current.map(|current| current.elapsed())
    }

    pub(crate) fn instances(&self) -> usize {
        self.0.lock().instances
    }

    /// Whether the reader is behind what a check has seen, and since when.
    pub(crate) fn behind_since(&self) -> Option<Instant> {
        self.0.lock().ahead.map(|(_, asked)| asked)
    }

    /// When the bus_silence_max in what is held here ends.
    pub(crate) fn connected_until(&self, bus_silence_max: Duration) -> Option<Instant> {
        let state = self.0.lock();
        state.current.filter(|_| state.is_connected).map(|current| current + bus_silence_max)
    }

    pub(crate) fn wants_rules(&self) -> bool {
        self.0.lock().rules.is_none()
    }

    /// Another server from now on, or none.
    pub(crate) fn switch_to(&self, endpoint: Option<&Arc<Endpoint>>) {
        let mut state = self.0.lock();
        let is_same = match (endpoint, &state.endpoint) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            // The one that was used may come back, and its bus with it.
            (None, _) => true,
            (Some(_), None) => false,
        };
        if !is_same {
            state.endpoint = endpoint.cloned();
            state.applied = None;
            state.end = BusId::default();
            state.replication = String::new();
            state.ahead = None;
        }
    }

    /// Begins where an earlier process has saved it, if nothing is missing since.
    pub(crate) fn resume_from(&self, saved: SavedPosition) {
        let mut state = self.0.lock();
        state.saved = Some(saved);
        // It may have been asked already where the bus ends, for nobody.
        state.applied = None;
        state.end = BusId::default();
        state.ahead = None;
        state.is_connected = false;
    }

    /// Whether it has been told where to begin, and has not begun.
    pub(crate) fn has_pending_resume(&self) -> bool {
        self.0.lock().saved.is_some()
    }

    /// Up to where everything has been told, if that is news.
    pub(crate) fn bookmark(&self, namespace: &str) -> Option<Bookmark> {
        let mut state = self.0.lock();
        let id = state.applied.filter(|_| state.is_connected)?;
        let saved = SavedPosition { replication: state.replication.clone(), id };
        if !saved.is_provable() || state.announced.as_ref() == Some(&saved) {
            return None;
        }
        let written = saved.written(namespace);
        state.announced = Some(saved);
        written
    }

    /// What the listener is to be told after a check.
    pub(crate) fn apply_check(&self, check: BusCheck, now: Timestamp) -> Vec<Notice> {
        let mut state = self.0.lock();
        let BusCheck { asked, read_position, last, replication, instances, rules } = check;
        state.instances = instances;
        let mut notices = Vec::new();
        let is_other = state.replication != replication && !state.replication.is_empty();
        state.replication = replication;
        // What was read since it was asked is not missing there.
        let is_behind = read_position.is_some_and(|read_position| {
            read_position.epoch == state.epoch && last < read_position.id
        });
        match state.applied {
            None => notices.extend(state.begin(last, now)),
            Some(_) if is_behind => notices.push(state.gap(last, now)),
            Some(applied) if is_other => notices.push(state.gap(applied, now)),
            Some(_) => {}
        }
        if state.applied.is_some_and(|applied| applied <= last) && rules.is_some() {
            state.rules = rules;
        }
        if let Some(applied) = state.applied
            && state.samples.back().is_none_or(|(_, id)| *id != applied)
        {
            state.remember(now, applied);
        }
        if state.applied.is_some_and(|applied| applied >= last) {
            notices.extend(state.mark_current(asked));
        } else if state.ahead.is_none() {
            state.ahead = Some((last, asked));
        }
        notices
    }

    /// An entry was read. `follows_previous` if it follows the one that was read before. It is applied
    /// by `apply` before it counts.
    pub(crate) fn read(
        &self,
        id: BusId,
        follows_previous: bool,
        now: Timestamp,
        apply: impl FnOnce(&mut KnownGenerations),
    ) -> Option<Notice> {
        let mut state = self.0.lock();
        let gap = (!follows_previous).then(|| state.gap(id, now));
        state.applied = Some(id);
        apply(&mut state.known);
        state.remember(now, id);
        gap
    }

    pub(crate) fn add_rule(&self, rule: PrefixRule) {
        if let Some(rules) = &mut self.0.lock().rules {
            rules.retain(|its| its.what != rule.what || its.reach != rule.reach);
            rules.push(rule);
        }
    }

    /// All that was to be read has been, up to the last entry.
    pub(crate) fn caught_up(&self) -> Option<Notice> {
        let mut state = self.0.lock();
        let (last, asked) = state.ahead?;
        if state.applied? < last {
            return None;
        }
        state.mark_current(asked)
    }

    /// Nothing was heard for too long.
    pub(crate) fn mark_lost(&self) -> Option<Notice> {
        let mut state = self.0.lock();
        std::mem::replace(&mut state.is_connected, false).then_some(Notice::Lost)
    }

    /// What is known here makes of an entry. Nothing if it has to be asked: something is not known,
    /// or the entry may be newer than what is.
    pub(crate) fn standing(
        &self,
        endpoint: &Arc<Endpoint>,
        label: &Label,
        key: KeyRef<'_>,
        tags: &TagSet,
    ) -> Option<Standing> {
        let state = self.0.lock();
        let rules = state.rules.as_ref().filter(|_| state.is_connected && state.is_on(endpoint))?;
        let by_rule = PrefixRule::standing(rules, key, label.departed);
        let mut worst = Standing::Good;
        for (scope, (hard, soft)) in Scope::of(key, tags).zip(&label.tokens) {
            worst = worst.max(generation::standing(*hard, *soft, Some(state.known.get(scope)?)));
        }
        // A token that is not known here can be of a purge that was not heard of yet.
        (worst == Standing::Good || by_rule == Standing::Gone).then_some(worst.max(by_rule))
    }

    /// Whether what all entries of its site have in common is known here.
    pub(crate) fn knows_site(&self, endpoint: &Arc<Endpoint>, key: KeyRef<'_>) -> bool {
        let state = self.0.lock();
        let is_usable = state.is_connected && state.is_on(endpoint) && state.rules.is_some();
        is_usable && Scope::of_site(key).into_iter().all(|scope| state.known.get(scope).is_some())
    }

    /// The generations that an entry may be stored in, if all are known, Redis keeps them until then, and
    /// nothing was purged since its departure.
    pub(crate) fn generations(
        &self,
        position: BusPosition,
        key: KeyRef<'_>,
        tags: &TagSet,
        until: u64,
    ) -> Option<Vec<Generation>> {
        let state = self.0.lock();
        let rules = state.rules.as_ref().filter(|_| state.is_connected)?;
        let are_old = rules.iter().all(|rule| rule.id <= position.id || !rule.what.is_about(key));
        let known = |scope| state.known.kept(scope, until);
        let generations: Option<Vec<Generation>> = Scope::of(key, tags).map(known).collect();
        let is_sound = are_old && state.epoch == position.epoch;
        generations.filter(|generations| {
            is_sound && generations.iter().all(|generation| generation.newest() <= position.id)
        })
    }

    /// Notes what Redis has said, unless more has been heard by now.
    pub(crate) fn learn(
        &self,
        endpoint: &Arc<Endpoint>,
        epoch: u64,
        fetched: &FetchedGenerations<'_>,
    ) {
        let mut state = self.0.lock();
        let is_newest = state.applied.is_some_and(|applied| applied <= fetched.last);
        if !is_newest || state.epoch != epoch || !state.is_on(endpoint) {
            return;
        }
        for (scope, generation) in fetched.scopes.iter().zip(fetched.generations) {
            if let Some(generation) = generation {
                state.known.put(*scope, *generation, fetched.kept_until);
            }
        }
    }

    /// Changes what is known: for a purge of our own.
    pub(crate) fn update_known(&self, change: impl FnOnce(&mut KnownGenerations)) {
        change(&mut self.0.lock().known);
    }
}

impl State {
    fn is_on(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoint.as_ref().is_some_and(|own| Arc::ptr_eq(own, endpoint))
    }

    /// Where an earlier process has saved it, or from the end on: what came before is not known
    /// then.
    fn begin(&mut self, last: BusId, now: Timestamp) -> Option<Notice> {
        let is_before = |saved: &SavedPosition| {
            saved.is_provable() && saved.replication == self.replication && saved.id <= last
        };
        match self.saved.take().filter(is_before) {
            Some(saved) => {
                self.restart_at(saved.id, now);
                None
            }
            None => Some(self.gap(last, now)),
        }
    }

    fn gap(&mut self, applied: BusId, now: Timestamp) -> Notice {
        self.restart_at(applied, now);
        Notice::Gap
    }

    fn restart_at(&mut self, applied: BusId, now: Timestamp) {
        self.epoch += 1;
        self.applied = Some(applied);
        self.end = BusId::default();
        self.ahead = None;
        self.known = KnownGenerations::default();
        self.rules = None;
        self.samples.clear();
        self.remember(now, applied);
    }

    fn remember(&mut self, now: Timestamp, id: BusId) {
        // Where two are close together, a third takes the place of the second.
        let before = self.samples.iter().rev().nth(1).copied();
        if let (Some(before), Some(last)) = (before, self.samples.back_mut())
            && before.0.plus(SAMPLES_GAP) > last.0
        {
            *last = (now, id);
            return;
        }
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, id));
    }

    fn mark_current(&mut self, asked: Instant) -> Option<Notice> {
        self.ahead = None;
        self.current = Some(asked);
        let was_connected = std::mem::replace(&mut self.is_connected, true);
        (!was_connected).then_some(Notice::Heard)
    }
}
