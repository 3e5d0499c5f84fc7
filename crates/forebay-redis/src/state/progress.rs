//! Bus position of this instance, and the purge generations known up to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, PurgeState, TagSet, Timestamp};
use forebay_engine::bus::{Bookmark, Notice};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::bookmark::SavedPosition;
use crate::connection::endpoint::Endpoint;
use crate::purges::generation::{
    self, BusId, Generation, KnownGenerations, Label, PrefixRule, Scope,
};

/// Maximum number of samples of past bus positions.
const SAMPLES_MAX: usize = 2_048;

/// Minimum time between two samples.
const SAMPLES_GAP: Duration = Duration::from_millis(10);

/// Maximum lag of the coarse clock.
const CLOCK_LAG: Duration = Duration::from_millis(20);

/// Position on the bus within one epoch. Positions of different epochs cannot be compared: a gap or
/// another server starts a new one.
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
    /// Position saved by an earlier process, until it is known whether reading can resume there.
    saved: Option<SavedPosition>,
    /// Last position reported to the listener.
    announced: Option<SavedPosition>,
    /// Highest known end of the bus. Loads that start now are newer than it, whether it was read
    /// or not.
    end: BusId,
    /// Time of the last proof that nothing was missed.
    current: Option<Instant>,
    /// End of the bus that the reader has not reached, and the time of the query.
    ahead: Option<(BusId, Instant)>,
    is_connected: bool,
    replication: String,
    known: KnownGenerations,
    rules: Option<Vec<PrefixRule>>,
    samples: VecDeque<(Timestamp, BusId)>,
    instances: usize,
}

/// Result of a bus check.
pub(crate) struct BusCheck {
    /// Time of the query.
    pub(crate) asked: Instant,
    /// Position of the reader at the time of the query.
    pub(crate) read_position: Option<BusPosition>,
    pub(crate) last: BusId,
    pub(crate) replication: String,
    pub(crate) instances: usize,
    /// All prefix rules, if requested.
    pub(crate) rules: Option<Vec<PrefixRule>>,
}

/// Generations that Redis returned, with the end of the bus at that time.
pub(crate) struct FetchedGenerations<'a> {
    pub(crate) scopes: &'a [Scope<'a>],
    pub(crate) generations: &'a [Option<Generation>],
    pub(crate) last: BusId,
    /// Earliest expiry of the generations in Redis, in milliseconds of the exact clock.
    pub(crate) kept_until: u64,
}

impl BusProgress {
    /// Returns the current position on this endpoint, if known.
    pub(crate) fn position(&self, endpoint: &Arc<Endpoint>) -> Option<BusPosition> {
        let state = self.0.lock();
        let applied = state.applied.filter(|_| state.is_on(endpoint))?;
        Some(BusPosition { epoch: state.epoch, id: applied.max(state.end) })
    }

    /// Records that the bus has reached this entry.
    pub(crate) fn reached(&self, endpoint: &Arc<Endpoint>, id: BusId) {
        let mut state = self.0.lock();
        if state.is_on(endpoint) {
            state.end = state.end.max(id);
        }
    }

    /// Returns the position at a past time.
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

    /// Returns the position up to which entries were applied.
    pub(crate) fn read_position(&self, endpoint: &Arc<Endpoint>) -> Option<BusPosition> {
        let state = self.0.lock();
        let id = state.applied.filter(|_| state.is_on(endpoint))?;
        Some(BusPosition { epoch: state.epoch, id })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// Returns the endpoint and the position for the next read.
    pub(crate) fn next(&self) -> Option<(Arc<Endpoint>, BusId)> {
        let state = self.0.lock();
        Some((state.endpoint.clone()?, state.applied?))
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.0.lock().is_connected
    }

    /// Returns the time since the last proof that nothing was missed; `None` if there was none.
    pub(crate) fn lag(&self) -> Option<Duration> {
        self.0.lock().current.map(|current| current.elapsed())
    }

    pub(crate) fn instances(&self) -> usize {
        self.0.lock().instances
    }

    /// Returns since when the reader has been behind the last check, if it is.
    pub(crate) fn behind_since(&self) -> Option<Instant> {
        self.0.lock().ahead.map(|(_, asked)| asked)
    }

    /// Returns the time at which the bus counts as lost without a new proof.
    pub(crate) fn connected_until(&self, bus_silence_max: Duration) -> Option<Instant> {
        let state = self.0.lock();
        state.current.filter(|_| state.is_connected).map(|current| current + bus_silence_max)
    }

    pub(crate) fn wants_rules(&self) -> bool {
        self.0.lock().rules.is_none()
    }

    /// Switches to another endpoint, or none.
    pub(crate) fn switch_to(&self, endpoint: Option<&Arc<Endpoint>>) {
        let mut state = self.0.lock();
        let is_same = match (endpoint, &state.endpoint) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            // The endpoint may come back with its bus, so its position is kept.
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

    /// Sets the position at which to resume, if nothing is missing since.
    pub(crate) fn resume_from(&self, saved: SavedPosition) {
        let mut state = self.0.lock();
        state.saved = Some(saved);
        // The end of the bus may have been queried before there was a listener.
        state.applied = None;
        state.end = BusId::default();
        state.ahead = None;
        state.is_connected = false;
    }

    /// Returns whether a saved position has not been applied yet.
    pub(crate) fn has_pending_resume(&self) -> bool {
        self.0.lock().saved.is_some()
    }

    /// Returns a bookmark of the current position, if it changed since the last one.
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

    /// Applies a check and returns the notices for the listener.
    pub(crate) fn apply_check(&self, check: BusCheck, now: Timestamp) -> Vec<Notice> {
        let mut state = self.0.lock();
        let BusCheck { asked, read_position, last, replication, instances, rules } = check;
        state.instances = instances;
        let mut notices = Vec::new();
        let is_other = state.replication != replication && !state.replication.is_empty();
        state.replication = replication;
        // Entries read after the query may be newer than its result.
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

    /// Records an entry that was read. `follows_previous` is false if a gap precedes it. `apply`
    /// updates the known generations before the entry counts as applied.
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

    /// Reports the connection once all entries up to the last check have been applied.
    pub(crate) fn caught_up(&self) -> Option<Notice> {
        let mut state = self.0.lock();
        let (last, asked) = state.ahead?;
        if state.applied? < last {
            return None;
        }
        state.mark_current(asked)
    }

    /// Marks the bus as lost because of silence.
    pub(crate) fn mark_lost(&self) -> Option<Notice> {
        let mut state = self.0.lock();
        std::mem::replace(&mut state.is_connected, false).then_some(Notice::Disconnected)
    }

    /// Returns the purge state of an entry from the known generations. `None` if Redis must be
    /// asked: a generation is unknown, or the entry may be newer than it.
    pub(crate) fn standing(
        &self,
        endpoint: &Arc<Endpoint>,
        label: &Label,
        key: KeyRef<'_>,
        tags: &TagSet,
    ) -> Option<PurgeState> {
        let state = self.0.lock();
        let rules = state.rules.as_ref().filter(|_| state.is_connected && state.is_on(endpoint))?;
        let by_rule = PrefixRule::standing(rules, key, label.load_position);
        let mut worst = PurgeState::Valid;
        for (scope, (hard, soft)) in Scope::of(key, tags).zip(&label.tokens) {
            worst = worst.max(generation::standing(*hard, *soft, Some(state.known.get(scope)?)));
        }
        // An unknown token can belong to a purge that has not been received yet.
        (worst == PurgeState::Valid || by_rule == PurgeState::Removed).then_some(worst.max(by_rule))
    }

    /// Returns whether the generations and rules of the key's site are known.
    pub(crate) fn knows_site(&self, endpoint: &Arc<Endpoint>, key: KeyRef<'_>) -> bool {
        let state = self.0.lock();
        let is_usable = state.is_connected && state.is_on(endpoint) && state.rules.is_some();
        is_usable && Scope::of_site(key).into_iter().all(|scope| state.known.get(scope).is_some())
    }

    /// Returns the generations for storing an entry, if all are known, do not expire before
    /// `until`, and no purge of them followed the start of its load.
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

    /// Records generations from Redis, unless newer entries were applied meanwhile.
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

    /// Updates the known generations after a purge by this instance.
    pub(crate) fn update_known(&self, change: impl FnOnce(&mut KnownGenerations)) {
        change(&mut self.0.lock().known);
    }
}

impl State {
    fn is_on(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoint.as_ref().is_some_and(|own| Arc::ptr_eq(own, endpoint))
    }

    /// Starts at the saved position if nothing is missing since, otherwise at the end with a gap.
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
        // If two samples are closer than the minimum gap, a third replaces the second.
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
        (!was_connected).then_some(Notice::Connected)
    }
}
