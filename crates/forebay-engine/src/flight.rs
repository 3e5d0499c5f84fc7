//! Flights: the one load in progress for a key.
//!
//! Whoever boards first leads and gets the *seat*, the right to land the flight; everybody else
//! follows. The seat lives in the task that loads, not in the caller. A seat that is dropped
//! without a landing wakes its followers, and the first of them to board again leads the next
//! flight: nobody waits for a leader that is gone.

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
use crate::flight::load::{Company, LoadError};
use crate::runtime::sync::Mutex;
use crate::runtime::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::runtime::wakers::{Ticket, Wakers, wake_all};

pub(crate) mod load;
pub(crate) mod pass_markers;
mod purging;
pub(crate) mod recent_failures;
pub(crate) mod via;

use purging::UnderPurge;

/// The board is split so that unrelated keys rarely meet at one lock. A scheduler that
/// may switch at each lock does better with few.
const SHARDS: usize = if cfg!(all(test, feature = "interleavings")) { 2 } else { 64 };

/// How many may wait for one flight. Each holds a request open, and all of them are woken at once.
const FOLLOWERS_MAX: usize = 16_384;

/// What the followers of a flight are told, as soon as the head of the answer is known.
#[derive(Clone, Debug)]
pub(crate) enum Landed {
    /// An answer that may be shared with all who select as the leader did.
    Shared(Arc<Entry>, Selection),
    /// An answer that may not be shared.
    Private,
    /// An error of the origin, in words meant for the leader alone.
    /// Followers are told the error instead, if the leader was nobody in particular.
    Broken(Option<LoadError>),
    /// No answer.
    Failed(LoadError),
    /// The leader is gone, or the first byte of its body is; the next one may lead.
    Abandoned,
}

/// What the leader's selecting fields were, as a key; nothing if the answer has no variants.
pub(crate) type Selection = Option<Key>;

/// The board: every flight in progress, by primary key. Bounded by the loads in progress.
///
/// Boarding, storing and purging under one primary key exclude each other: all three happen under
/// the lock of its shard.
#[derive(Debug)]
pub(crate) struct Flights {
    shards: Box<[Mutex<Shard>]>,
    hasher: ahash::RandomState,
    departures: AtomicU64,
}

#[derive(Debug)]
struct Shard {
    flights: HashMap<Key, SmallVec<[Arc<Flight>; 1]>, ahash::RandomState>,
    /// Keys that are being purged from lower tiers just now.
    purging: HashMap<Key, UnderPurge, ahash::RandomState>,
}

/// One load in progress.
#[derive(Debug)]
pub(crate) struct Flight {
    /// What all variants share.
    primary: Key,
    /// What it is boarded by: the primary key as long as no variants are known.
    key: Key,
    /// What its answer turned out to select. Who knows of the variants by now boards it by this.
    /// Written and read under the lock of the shard.
    selection: OnceLock<Key>,
    /// Whom its load is for. A flight for one is on the board for purges to see, not to be boarded.
    pub(crate) company: Company,
    /// Whether it may look for its key in lower tiers: not while they are being purged of it.
    pub(crate) walks: bool,
    /// When it was first boarded, by the exact clock.
    pub(crate) boarded: Duration,
    /// How many follow. Grows under the lock of the shard.
    followers: AtomicUsize,
    /// Its place in the order of departures, from 1, when it was first boarded.
    pub(crate) number: u64,
    /// Where the log of purges stood at departure.
    pub(crate) position: Position,
    /// Purged while under way: what it brings is for those aboard, and is not stored. Written and
    /// read under the lock of the shard.
    cut: AtomicBool,
    /// Nobody may follow any more, though it goes on. Under the same lock.
    closed: AtomicBool,
    /// Whether it waits for another instance just now.
    waits_elsewhere: AtomicBool,
    /// Whether its lease was given back.
    gave_back: AtomicBool,
    /// Held while lower tiers commit what it brings, so that a purge can wait for that.
    pub(crate) committing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    landed: Option<Landed>,
    followers: Wakers,
}

/// Who wants to board, and what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boarder<'a> {
    /// What all variants share.
    pub(crate) primary: KeyRef<'a>,
    /// What is boarded.
    pub(crate) key: KeyRef<'a>,
    /// A flight that did not bring what this one wants, though it may still be on the board:
    /// neither it nor one before it will do.
    pub(crate) passed_over: Option<&'a Arc<Flight>>,
    /// The time, by the exact clock.
    pub(crate) now: Duration,
}

impl Boarder<'_> {
    fn takes(&self, flight: &Flight) -> bool {
        let passed_over =
            |passed: &Arc<Flight>| passed.key == flight.key && flight.number <= passed.number;
        flight.company == Company::Shared
            && !flight.closed.load(Ordering::Relaxed)
            && flight.is_boarded_by(self.key)
            && !self.passed_over.is_some_and(passed_over)
    }
}

/// What came of an attempt to board.
#[derive(Debug)]
pub(crate) enum Boarding {
    Lead(Seat),
    Follow(Follower),
    /// As many follow as may.
    Full,
}

impl Flights {
    pub(crate) fn new() -> Arc<Self> {
        let hasher = crate::runtime::sync::hasher();
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(&hasher)));
        Arc::new(Self { shards: shards.collect(), hasher, departures: AtomicU64::new(0) })
    }

    fn shard(&self, primary: KeyRef<'_>) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(primary.bytes());
        // The map inside a shard uses the low bits; the choice of the shard takes others.
        &self.shards[usize::try_from(hash >> 40).unwrap_or(0) % SHARDS]
    }

    /// The place of what departed last, flight or load. What has a higher one departed later than
    /// this call.
    pub(crate) fn newest(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// Takes the next place in the order of departures. A flight has one when it is boarded, and
    /// another when its load departs: in between it may have looked and waited for long.
    pub(crate) fn next_departure(&self) -> u64 {
        self.departures.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// How many flights are in progress.
    pub(crate) fn count(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().flights.values().map(SmallVec::len).sum::<usize>())
            .sum()
    }

    /// Boards the newest flight that will do, or leads a new one. `position` is asked for under
    /// the lock of the board: a purge that comes later finds the flight here.
    pub(crate) fn board(
        self: &Arc<Self>,
        boarder: Boarder<'_>,
        position: impl FnOnce() -> Position,
    ) -> Boarding {
        let primary = boarder.primary;
        let mut shard = self.shard(primary).lock();
        let flights = shard.flights.get(primary.bytes()).map_or(&[][..], SmallVec::as_slice);
        if let Some(flight) = flights.iter().rev().find(|flight| boarder.takes(flight)) {
            return flight.follow().map_or(Boarding::Full, Boarding::Follow);
        }
        Boarding::Lead(self.depart(&mut shard, (boarder, Company::Shared), position()))
    }

    /// Puts a load on the board that nobody may follow, so that a purge finds it.
    pub(crate) fn alone(
        self: &Arc<Self>,
        boarder: Boarder<'_>,
        position: impl FnOnce() -> Position,
    ) -> Seat {
        let mut shard = self.shard(boarder.primary).lock();
        self.depart(&mut shard, (boarder, Company::Alone), position())
    }

    fn depart(
        self: &Arc<Self>,
        shard: &mut Shard,
        (boarder, company): (Boarder<'_>, Company),
        position: Position,
    ) -> Seat {
        let Boarder { primary, key, now: boarded, .. } = boarder;
        let number = self.next_departure();
        let primary = primary.to_key();
        let key = if key == primary.borrowed() { primary.clone() } else { key.to_key() };
        let flight = Arc::new(Flight {
            primary: primary.clone(),
            key,
            selection: OnceLock::new(),
            company,
            boarded,
            followers: AtomicUsize::new(0),
            number,
            position,
            walks: !shard.purging.contains_key(primary.borrowed().bytes()),
            cut: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waits_elsewhere: AtomicBool::new(false),
            gave_back: AtomicBool::new(false),
            committing: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        });
        shard.flights.entry(primary).or_default().push(flight.clone());
        Seat { flights: self.clone(), flight }
    }

    /// Takes the flights of a primary key off the board and then runs `remove`: those aboard are
    /// answered, nothing they bring is stored, and who comes now leads a new one.
    ///
    /// All of it under the lock, or somebody could board in between, find what is about to be
    /// removed, and land it for those who come after the purge.
    pub(crate) fn cut<T>(&self, primary: KeyRef<'_>, remove: impl FnOnce() -> T) -> T {
        let mut shard = self.shard(primary).lock();
        shard.cut(primary);
        remove()
    }

    /// The same, if `is_so` holds, in one step with it. Whether it did.
    pub(crate) fn cut_if(&self, primary: KeyRef<'_>, is_so: impl FnOnce() -> bool) -> bool {
        let mut shard = self.shard(primary).lock();
        let holds = is_so();
        if holds {
            shard.cut(primary);
        }
        holds
    }

    /// Runs `replace` while nothing under this primary key is boarded, stored or purged.
    pub(crate) fn excluding<T>(&self, primary: KeyRef<'_>, replace: impl FnOnce() -> T) -> T {
        let _shard = self.shard(primary).lock();
        replace()
    }

    /// What [`cut`](Self::cut) does, to all flights for which `reached` holds, wherever they are.
    /// What is stored knows by itself whether a purge of this kind has reached it.
    pub(crate) fn cut_where(&self, reached: impl Fn(&Flight) -> bool) {
        for shard in &self.shards {
            shard.lock().flights.retain(|_, flights| {
                flights.retain(|flight| {
                    let reached = reached(flight);
                    if reached {
                        flight.cut();
                    }
                    !reached
                });
                !flights.is_empty()
            });
        }
    }

    fn take_off(&self, flight: &Arc<Flight>) {
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

    fn cut(&mut self, primary: KeyRef<'_>) -> SmallVec<[Arc<Flight>; 1]> {
        let flights = self.flights.remove(primary.bytes()).unwrap_or_default();
        flights.iter().for_each(|flight| flight.cut());
        flights
    }
}

/// The right to land a flight. Dropping it takes the flight off the board.
#[derive(Debug)]
pub(crate) struct Seat {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
}

impl Seat {
    pub(crate) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Tells the followers what came. Only the first landing counts.
    pub(crate) fn land(&self, landed: Landed) {
        // What nobody may share must not be boarded either: the board is cleared before the
        // followers run, or one of them would board the same flight again.
        if !matches!(landed, Landed::Shared(..)) {
            self.flights.take_off(&self.flight);
        }
        let mut state = self.flight.state.lock();
        if state.landed.is_none() {
            // The followers have yet to wake, and the body must not flow past them meanwhile.
            if let Landed::Shared(entry, _) = &landed
                && let Some(flow) = entry.body.flow()
            {
                flow.promise(state.followers.count());
            }
            state.landed = Some(landed);
        }
        let woken = state.followers.take();
        drop(state);
        wake_all(woken);
    }

    /// From here on the flight can be boarded by what its answer selects, too: those who learn of
    /// the variants while the first of them is on its way would lead another for the same.
    pub(crate) fn select(&self, selection: Key) {
        let _shard = self.flights.shard(self.flight.primary.borrowed()).lock();
        // What a flight brings is selected once; a second time would be no other.
        let _ = self.flight.selection.set(selection);
    }

    /// Nobody may follow any more, though the flight goes on: its body is no longer kept from the
    /// first byte, or it is only lower tiers that are still written. Purges still find it.
    pub(crate) fn close_boarding(&self) {
        let _shard = self.flights.shard(self.flight.primary.borrowed()).lock();
        self.flight.closed.store(true, Ordering::Relaxed);
    }

    /// Whether a purge has cut the flight by now.
    pub(crate) fn is_cut(&self) -> bool {
        let _shard = self.flights.shard(self.flight.primary.borrowed()).lock();
        self.flight.cut.load(Ordering::Relaxed)
    }

    /// Runs `store` unless the flight was cut, under the lock of the board. A purge that comes
    /// later removes what is stored; after one that came first, nothing is.
    pub(crate) fn unless_cut<T>(&self, store: impl FnOnce() -> T) -> Option<T> {
        let _shard = self.flights.shard(self.flight.primary.borrowed()).lock();
        (!self.flight.cut.load(Ordering::Relaxed)).then(store)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.land(Landed::Abandoned);
        self.flights.take_off(&self.flight);
    }
}

impl Flight {
    pub(crate) fn primary(&self) -> &Key {
        &self.primary
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn wait_elsewhere(&self, waits: bool) {
        self.waits_elsewhere.store(waits, Ordering::Relaxed);
    }

    pub(crate) fn waits_elsewhere(&self) -> bool {
        self.waits_elsewhere.load(Ordering::Relaxed)
    }

    /// Whether its lease has still to be given back. It has not, from here on.
    pub(crate) fn give_back(&self) -> bool {
        !self.gave_back.swap(true, Ordering::Relaxed)
    }

    fn is_boarded_by(&self, key: KeyRef<'_>) -> bool {
        let selection = self.selection.get().map(Key::borrowed);
        self.key.borrowed() == key || selection == Some(key)
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    fn follow(self: &Arc<Self>) -> Option<Follower> {
        let room = |count: usize| (count < FOLLOWERS_MAX).then_some(count + 1);
        self.followers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Follower { flight: self.clone(), ticket: None })
    }
}

/// One who waits for a flight to land.
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
    type Output = Landed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Landed> {
        let this = &mut *self;
        let mut state = this.flight.state.lock();
        if let Some(landed) = &state.landed {
            // Who waited when it landed was promised a place in the body.
            return Poll::Ready(landed.told(this.ticket.take().is_some()));
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
        let promised = match &state.landed {
            None => {
                state.followers.leave(ticket);
                None
            }
            Some(Landed::Shared(entry, _)) => Some(entry.clone()),
            Some(_) => None,
        };
        drop(state);
        promised.iter().filter_map(|entry| entry.body.flow()).for_each(Flow::forgo);
    }
}

impl Landed {
    /// What one follower is told.
    fn told(&self, promised: bool) -> Self {
        let Self::Shared(entry, selection) = self else { return self.clone() };
        let entry = entry.boarded(promised);
        entry.map_or(Self::Abandoned, |entry| Self::Shared(entry, selection.clone()))
    }
}

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;
