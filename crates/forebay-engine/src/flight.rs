//! Loads in progress: the table of flights, their leaders and followers, and the [`Load`] trait.
//!
//! The first caller of a key leads a flight: it gets the [`LeaderGuard`], the right to announce the
//! result. All other callers follow. The guard belongs to the task that loads, not to the caller. A
//! guard that is dropped without a result wakes the followers, and the first of them to call again
//! leads the next flight, so that no caller waits for a leader that has gone away.
//!
//! This folder uses `tiers` (in the [`Load`] trait), `entry` and `runtime`; it never sees memory, the
//! purge log, or the steps of a load.
//!
//! [`Load`]: load::Load

pub(crate) mod batch;
pub(crate) mod load;
pub(crate) mod pass_markers;
mod purging;
pub(crate) mod recent_failures;
pub(crate) mod source;
pub(crate) mod waiting;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_core::{Key, KeyRef, Position};
use smallvec::SmallVec;

use crate::entry::Entry;
use crate::entry::body::Flow;
use crate::runtime::sync::Mutex;
use crate::runtime::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::runtime::wakers::{Ticket, Wakers, wake_all};
use load::{Audience, LoadError};
use purging::KeyUnderPurge;

/// Number of shards of the table, so that unrelated keys rarely share a lock. Under a scheduler that
/// may switch tasks at each lock there are few.
const SHARDS: usize = if cfg!(all(test, feature = "interleavings")) { 2 } else { 64 };

/// Maximum number of followers of one flight. Each holds a request open, and all of them are woken
/// at once.
const FOLLOWERS_MAX: usize = 16_384;

/// Result of a flight for its followers, known as soon as the head of the answer is.
#[derive(Clone, Debug)]
pub(crate) enum FlightResult {
    /// Answer for all callers with the leader's selecting fields.
    Shared(Arc<Entry>, Selection),
    /// Answer that may not be shared.
    Private,
    /// Error response of the origin, for the leader alone. Followers get this error instead, if the
    /// leader had no credentials.
    OriginError(Option<LoadError>),
    Failed(LoadError),
    /// The leader has gone away, or the first byte of the body has left the window. The next caller
    /// may lead.
    Abandoned,
}

/// Selecting fields of the leader, as a key. `None` if the answer has no variants.
pub(crate) type Selection = Option<Key>;

/// Table of all flights by primary key, bounded by the loads in progress.
///
/// Joining, storing and purging under one primary key exclude each other: each happens with the
/// shard of the key locked.
#[derive(Debug)]
pub(crate) struct Flights {
    shards: Box<[Mutex<Shard>]>,
    hasher: ahash::RandomState,
    numbers: AtomicU64,
}

#[derive(Debug)]
struct Shard {
    flights: HashMap<Key, SmallVec<[Arc<Flight>; 1]>, ahash::RandomState>,
    /// Keys that are being purged from lower tiers.
    purging: HashMap<Key, KeyUnderPurge, ahash::RandomState>,
}

/// One load in progress.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Key that all variants share.
    primary: Key,
    /// Key that callers join by: the primary key as long as no variants are known.
    key: Key,
    /// Key of the answer's variant, which callers that know of the variants join by. Accessed with
    /// the shard locked.
    selection: OnceLock<Key>,
    /// Callers that the load is for. A flight for one caller is in the table for purges only.
    pub(crate) audience: Audience,
    /// Allows searching lower tiers. Denied while they are purged of the key.
    pub(crate) may_search_tiers: bool,
    /// Start of the flight, by the exact clock.
    pub(crate) started: Duration,
    /// Number of followers. Grows with the shard locked.
    followers: AtomicUsize,
    /// Number in the order of starts, from 1.
    pub(crate) number: u64,
    /// Position of the purge log at the start.
    pub(crate) position: Position,
    /// `true` after a purge: the result is for the callers of this flight, and is not stored.
    /// Accessed with the shard locked.
    purged: AtomicBool,
    /// `true` if no caller may follow any more, although the flight continues. Read with the shard
    /// locked.
    closed: AtomicBool,
    /// `true` while the flight waits for another instance.
    waits_for_instance: AtomicBool,
    /// `true` once the lease is released.
    released: AtomicBool,
    /// Locked while lower tiers commit the answer, so that a purge can wait for that.
    pub(crate) committing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    result: Option<FlightResult>,
    followers: Wakers,
}

/// Request to join a flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinRequest<'a> {
    /// Key that all variants share.
    pub(crate) primary: KeyRef<'a>,
    /// Key of the flight.
    pub(crate) key: KeyRef<'a>,
    /// Flight whose result this caller could not use, although it may be in the table. Neither it
    /// nor an earlier one is joined.
    pub(crate) passed_over: Option<&'a Arc<Flight>>,
    /// Time by the exact clock.
    pub(crate) now: Duration,
}

impl JoinRequest<'_> {
    fn accepts(&self, flight: &Flight) -> bool {
        let passed_over =
            |passed: &Arc<Flight>| passed.key == flight.key && flight.number <= passed.number;
        flight.audience == Audience::Shared
            && !flight.closed.load(Ordering::Relaxed)
            && flight.is_joined_by(self.key)
            && !self.passed_over.is_some_and(passed_over)
    }
}

/// Role of a caller that has joined a flight.
#[derive(Debug)]
pub(crate) enum Role {
    Lead(LeaderGuard),
    Follow(Follower),
    /// The flight has its maximum number of followers.
    Full,
}

impl Flights {
    pub(crate) fn new() -> Arc<Self> {
        let hasher = crate::runtime::sync::hasher();
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(&hasher)));
        Arc::new(Self { shards: shards.collect(), hasher, numbers: AtomicU64::new(0) })
    }

    fn shard(&self, primary: KeyRef<'_>) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(primary.bytes());
        // The map inside a shard uses the low bits; the choice of the shard uses others.
        &self.shards[usize::try_from(hash >> 40).unwrap_or(0) % SHARDS]
    }

    /// Returns the number of the latest start, of a flight or of a load. A higher number means a
    /// start after this call.
    pub(crate) fn newest(&self) -> u64 {
        self.numbers.load(Ordering::Acquire)
    }

    /// Returns the next number in the order of starts. A flight gets one when it starts, and another
    /// when its load starts: in between it may have searched tiers and waited for an instance.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Number of flights in progress.
    pub(crate) fn count(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().flights.values().map(SmallVec::len).sum::<usize>())
            .sum()
    }

    /// Joins the newest flight that the caller may follow, or starts a new one. `position` is read
    /// with the shard locked: a later purge finds the flight in the table.
    pub(crate) fn join(
        self: &Arc<Self>,
        request: JoinRequest<'_>,
        position: impl FnOnce() -> Position,
    ) -> Role {
        let primary = request.primary;
        let mut shard = self.shard(primary).lock();
        let flights = shard.flights.get(primary.bytes()).map_or(&[][..], SmallVec::as_slice);
        if let Some(flight) = flights.iter().rev().find(|flight| request.accepts(flight)) {
            return flight.follow().map_or(Role::Full, Role::Follow);
        }
        Role::Lead(self.start(&mut shard, request, Audience::Shared, position()))
    }

    /// Returns the flight that a caller would follow, without following it.
    pub(crate) fn peek(&self, request: JoinRequest<'_>) -> Option<Arc<Flight>> {
        let shard = self.shard(request.primary).lock();
        let flights = shard.flights.get(request.primary.bytes())?;
        flights.iter().rev().find(|flight| request.accepts(flight)).cloned()
    }

    /// Starts a flight that no caller may follow, so that a purge finds it.
    pub(crate) fn lead_alone(
        self: &Arc<Self>,
        request: JoinRequest<'_>,
        position: impl FnOnce() -> Position,
    ) -> LeaderGuard {
        let mut shard = self.shard(request.primary).lock();
        self.start(&mut shard, request, Audience::Single, position())
    }

    fn start(
        self: &Arc<Self>,
        shard: &mut Shard,
        request: JoinRequest<'_>,
        audience: Audience,
        position: Position,
    ) -> LeaderGuard {
        let JoinRequest { primary, key, now: started, .. } = request;
        let number = self.next_number();
        let primary = primary.to_key();
        let key = if key == primary.borrowed() { primary.clone() } else { key.to_key() };
        let flight = Arc::new(Flight {
            primary: primary.clone(),
            key,
            selection: OnceLock::new(),
            audience,
            started,
            followers: AtomicUsize::new(0),
            number,
            position,
            may_search_tiers: !shard.purging.contains_key(primary.borrowed().bytes()),
            purged: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waits_for_instance: AtomicBool::new(false),
            released: AtomicBool::new(false),
            committing: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        });
        shard.flights.entry(primary).or_default().push(flight.clone());
        LeaderGuard { flights: self.clone(), flight }
    }

    /// Removes the flights of a primary key from the table and then runs `remove`: their callers are
    /// answered, their results are not stored, and the next caller leads a new flight.
    ///
    /// All of it happens with the shard locked. Otherwise a caller could start a flight in between,
    /// find the entry that is about to be removed, and announce it to callers after the purge.
    pub(crate) fn purge<T>(&self, primary: KeyRef<'_>, remove: impl FnOnce() -> T) -> T {
        let mut shard = self.shard(primary).lock();
        shard.purge(primary);
        remove()
    }

    /// Runs `condition`, and if it holds, removes the flights of a primary key from the table as
    /// [`purge`](Self::purge) does, in one step. Returns the condition.
    pub(crate) fn purge_if(&self, primary: KeyRef<'_>, condition: impl FnOnce() -> bool) -> bool {
        let mut shard = self.shard(primary).lock();
        let holds = condition();
        if holds {
            shard.purge(primary);
        }
        holds
    }

    /// Runs `replace` while no flight of this primary key is joined, stored or purged.
    pub(crate) fn locked<T>(&self, primary: KeyRef<'_>, replace: impl FnOnce() -> T) -> T {
        let _shard = self.shard(primary).lock();
        replace()
    }

    /// Removes all flights for which `affects` holds from the table, as [`purge`](Self::purge) does.
    /// Stored entries are compared with such a purge when they are read.
    pub(crate) fn purge_where(&self, affects: impl Fn(&Flight) -> bool) {
        for shard in &self.shards {
            shard.lock().flights.retain(|_, flights| {
                flights.retain(|flight| {
                    let is_affected = affects(flight);
                    if is_affected {
                        flight.set_purged();
                    }
                    !is_affected
                });
                !flights.is_empty()
            });
        }
    }

    fn remove(&self, flight: &Arc<Flight>) {
        let mut shard = self.shard(flight.primary.borrowed()).lock();
        let primary = flight.primary.borrowed().bytes();
        let Some(flights) = shard.flights.get_mut(primary) else { return };
        flights.retain(|other| !Arc::ptr_eq(other, flight));
        if flights.is_empty() {
            shard.flights.remove(primary);
        }
    }
}

impl Shard {
    fn new(hasher: &ahash::RandomState) -> Self {
        let (flights, purging) = (hasher.clone(), hasher.clone());
        Self { flights: HashMap::with_hasher(flights), purging: HashMap::with_hasher(purging) }
    }

    fn purge(&mut self, primary: KeyRef<'_>) -> SmallVec<[Arc<Flight>; 1]> {
        let flights = self.flights.remove(primary.bytes()).unwrap_or_default();
        flights.iter().for_each(|flight| flight.set_purged());
        flights
    }
}

/// Right to announce the result of a flight. Dropping it ends the flight, unless a result that
/// cannot be shared, or a purge, has ended it before.
#[derive(Debug)]
pub(crate) struct LeaderGuard {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
}

impl LeaderGuard {
    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Announces the result to the followers. Only the first result counts.
    pub(crate) fn announce(&self, result: FlightResult) {
        // A flight without a shared result is removed from the table before its followers run:
        // otherwise one of them would join it again.
        if !matches!(result, FlightResult::Shared(..)) {
            self.flights.remove(&self.flight);
        }
        let mut state = self.flight.state.lock();
        if state.result.is_none() {
            // The body must not stream past followers that have yet to wake.
            if let FlightResult::Shared(entry, _) = &result
                && let Some(flow) = entry.body.flow()
            {
                flow.promise(state.followers.count());
            }
            state.result = Some(result);
        }
        let woken = state.followers.take();
        drop(state);
        wake_all(woken);
    }

    /// Lets callers join the flight by the variant of its answer, too. Callers that learn of the
    /// variants while the first one is streaming would lead another flight for it.
    pub(crate) fn set_selection(&self, selection: Key) {
        let _shard = self.flights.shard(self.flight.primary.borrowed()).lock();
        // An answer has one variant; a second call would set the same key.
        let _ = self.flight.selection.set(selection);
    }

    /// Lets no caller follow any more, although the flight continues: its body has lost its first
    /// byte, or only lower tiers are still written. Purges still find the flight.
    pub(crate) fn close(&self) {
        let _shard = self.flights.shard(self.flight.primary.borrowed()).lock();
        self.flight.close();
    }

    /// Returns `true` if a purge has affected the flight.
    pub(crate) fn is_purged(&self) -> bool {
        let _shard = self.flights.shard(self.flight.primary.borrowed()).lock();
        self.flight.purged.load(Ordering::Relaxed)
    }

    /// Runs `store` with the shard locked, unless a purge has affected the flight. A later purge
    /// removes the stored entry.
    pub(crate) fn unless_purged<T>(&self, store: impl FnOnce() -> T) -> Option<T> {
        let _shard = self.flights.shard(self.flight.primary.borrowed()).lock();
        (!self.flight.purged.load(Ordering::Relaxed)).then(store)
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        let is_shared = |result: &FlightResult| matches!(result, FlightResult::Shared(..));
        let is_shared = self.flight.state.lock().result.as_ref().map(is_shared);
        match is_shared {
            None => self.announce(FlightResult::Abandoned),
            Some(true) => self.flights.remove(&self.flight),
            // The result has removed the flight and woken its followers.
            Some(false) => {}
        }
    }
}

impl Flight {
    pub(crate) fn primary(&self) -> &Key {
        &self.primary
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn set_waits_for_instance(&self, waits: bool) {
        self.waits_for_instance.store(waits, Ordering::Relaxed);
    }

    pub(crate) fn waits_for_instance(&self) -> bool {
        self.waits_for_instance.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::Relaxed) > 0
    }

    /// Takes the duty to release the lease. Returns `true` the first time.
    pub(crate) fn take_release(&self) -> bool {
        !self.released.swap(true, Ordering::Relaxed)
    }

    /// Number of followers.
    pub(crate) fn followers(&self) -> usize {
        self.followers.load(Ordering::Relaxed)
    }

    fn is_joined_by(&self, key: KeyRef<'_>) -> bool {
        let selection = self.selection.get().map(Key::borrowed);
        self.key.borrowed() == key || selection == Some(key)
    }

    fn set_purged(&self) {
        self.purged.store(true, Ordering::Relaxed);
    }

    fn follow(self: &Arc<Self>) -> Option<Follower> {
        let free = |count: usize| (count < FOLLOWERS_MAX).then_some(count + 1);
        self.followers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).ok()?;
        Some(Follower { flight: self.clone(), ticket: None })
    }
}

/// Caller that waits for the result of a flight.
#[derive(Debug)]
pub(crate) struct Follower {
    flight: Arc<Flight>,
    ticket: Option<Ticket>,
}

impl Follower {
    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }
}

impl Future for Follower {
    type Output = FlightResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FlightResult> {
        let this = &mut *self;
        let mut state = this.flight.state.lock();
        if let Some(result) = &state.result {
            // A follower that waited has a reader of the body reserved.
            return Poll::Ready(result.for_follower(this.ticket.take().is_some()));
        }
        state.followers.register(&mut this.ticket, cx.waker());
        Poll::Pending
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.flight.followers.fetch_sub(1, Ordering::Relaxed);
        let Some(ticket) = self.ticket else { return };
        let mut state = self.flight.state.lock();
        let promised = match &state.result {
            None => {
                state.followers.leave(ticket);
                None
            }
            Some(FlightResult::Shared(entry, _)) => Some(entry.clone()),
            Some(_) => None,
        };
        drop(state);
        promised.iter().filter_map(|entry| entry.body.flow()).for_each(Flow::forgo);
    }
}

impl FlightResult {
    /// Returns the result for one follower, with a reader of its body.
    fn for_follower(&self, promised: bool) -> Self {
        let Self::Shared(entry, selection) = self else { return self.clone() };
        let entry = entry.for_reader(promised);
        entry.map_or(Self::Abandoned, |entry| Self::Shared(entry, selection.clone()))
    }
}

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;
