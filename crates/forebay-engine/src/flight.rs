//! Flights: the one load in progress for a key.
//!
//! Whoever boards first leads and gets the *seat*, the right to land the flight; everybody else
//! follows. The seat lives in the task that loads, not in the caller. A seat that is dropped
//! without a landing wakes its followers, and the first of them to board again leads the next
//! flight: nobody waits for a leader that is gone.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use forebay_core::{Key, KeyRef, Position};
use smallvec::SmallVec;

use crate::entry::Entry;
use crate::load::LoadError;
use crate::sync::Mutex;
use crate::wakers::{Ticket, Wakers, wake_all};

/// The board is split so that unrelated keys rarely meet at one lock.
const SHARDS: usize = 64;

/// What the followers of a flight are told, as soon as the head of the answer is known.
#[derive(Clone, Debug)]
pub(crate) enum Landed {
    /// An answer that may be shared with all who select as the leader did.
    Shared(Arc<Entry>, Selection),
    /// An answer that may not be shared.
    Private,
    /// An error of the origin, in words meant for the leader alone.
    Broken,
    /// No answer.
    Failed(LoadError),
    /// The leader is gone; the next one may lead.
    Abandoned,
}

/// What the leader's selecting fields were, as a key; nothing if the answer has no variants.
pub(crate) type Selection = Option<Key>;

/// The board: every flight in progress, by primary key. Bounded by the loads in progress.
#[derive(Debug)]
pub(crate) struct Flights {
    shards: Box<[Shard]>,
    hasher: ahash::RandomState,
    departures: AtomicU64,
}

type Shard = Mutex<HashMap<Key, SmallVec<[Arc<Flight>; 1]>, ahash::RandomState>>;

/// One load in progress.
#[derive(Debug)]
pub(crate) struct Flight {
    /// What all variants share.
    primary: Key,
    /// What it is boarded by: the primary key as long as no variants are known.
    key: Key,
    /// A flight alone is on the board for purges to see, not to be boarded.
    alone: bool,
    /// Its place in the order of departures.
    number: u64,
    /// Where the log of purges stood at departure.
    pub(crate) position: Position,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    landed: Option<Landed>,
    /// Purged while under way: what it brings is for those aboard, and is not stored.
    cut: bool,
    followers: Wakers,
}

/// What came of an attempt to board.
#[derive(Debug)]
pub(crate) enum Boarding {
    Lead(Seat),
    Follow(Follower),
}

impl Flights {
    pub(crate) fn new() -> Arc<Self> {
        let hasher = ahash::RandomState::new();
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::with_hasher(hasher.clone())));
        Arc::new(Self { shards: shards.collect(), hasher, departures: AtomicU64::new(0) })
    }

    fn shard(&self, primary: KeyRef<'_>) -> &Shard {
        let hash = self.hasher.hash_one(primary.bytes());
        // The map inside a shard uses the low bits; the choice of the shard takes others.
        &self.shards[usize::try_from(hash >> 40).unwrap_or(0) % SHARDS]
    }

    /// The number of the flight that departed last. A flight with a higher number departed later
    /// than this call.
    pub(crate) fn newest(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// How many flights are in progress.
    pub(crate) fn count(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().values().map(SmallVec::len).sum::<usize>())
            .sum()
    }

    /// Boards the flight of `key`, or leads a new one. `position` is asked for under the lock of
    /// the board: a purge that comes later finds the flight here.
    pub(crate) fn board(
        self: &Arc<Self>,
        primary: KeyRef<'_>,
        key: KeyRef<'_>,
        position: impl FnOnce() -> Position,
    ) -> Boarding {
        let mut shard = self.shard(primary).lock();
        let flights = shard.get(primary.bytes());
        let flying = flights
            .and_then(|flights| flights.iter().find(|f| !f.alone && f.key.borrowed() == key));
        if let Some(flight) = flying {
            return Boarding::Follow(Follower { flight: flight.clone(), ticket: None });
        }
        Boarding::Lead(self.depart(&mut shard, (primary, key, false), position()))
    }

    /// Puts a load on the board that nobody may follow, so that a purge finds it.
    pub(crate) fn alone(
        self: &Arc<Self>,
        primary: KeyRef<'_>,
        key: KeyRef<'_>,
        position: impl FnOnce() -> Position,
    ) -> Seat {
        let mut shard = self.shard(primary).lock();
        self.depart(&mut shard, (primary, key, true), position())
    }

    fn depart(
        self: &Arc<Self>,
        shard: &mut HashMap<Key, SmallVec<[Arc<Flight>; 1]>, ahash::RandomState>,
        (primary, key, alone): (KeyRef<'_>, KeyRef<'_>, bool),
        position: Position,
    ) -> Seat {
        let number = self.departures.fetch_add(1, Ordering::AcqRel) + 1;
        let primary = primary.to_key();
        let key = if key == primary.borrowed() { primary.clone() } else { key.to_key() };
        let state = Mutex::default();
        let flight =
            Arc::new(Flight { primary: primary.clone(), key, alone, number, position, state });
        shard.entry(primary).or_default().push(flight.clone());
        Seat { flights: self.clone(), flight }
    }

    /// Takes the flights of a primary key off the board: those aboard are answered, nothing they
    /// bring is stored, and who comes now leads a new one.
    pub(crate) fn cut(&self, primary: KeyRef<'_>) {
        let flights = self.shard(primary).lock().remove(primary.bytes());
        for flight in flights.into_iter().flatten() {
            flight.state.lock().cut = true;
        }
    }

    fn take_off(&self, flight: &Arc<Flight>) {
        let mut shard = self.shard(flight.primary.borrowed()).lock();
        let Some(flights) = shard.get_mut(flight.primary.borrowed().bytes()) else { return };
        flights.retain(|other| !Arc::ptr_eq(other, flight));
        if flights.is_empty() {
            shard.remove(flight.primary.borrowed().bytes());
        }
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
            state.landed = Some(landed);
        }
        let woken = state.followers.take();
        drop(state);
        wake_all(woken);
    }

    /// Takes the flight off the board though it goes on: its body is no longer kept from the
    /// first byte, so nobody may follow any more.
    pub(crate) fn close_boarding(&self) {
        self.flights.take_off(&self.flight);
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

    /// Whether it departed after the moment when `newest` was the newest flight.
    pub(crate) fn departed_after(&self, newest: u64) -> bool {
        self.number > newest
    }

    /// Runs `store` unless the flight was cut. A purge waits for it or is seen by it:
    ///
    /// 1. the purge cuts the flight under this lock, then removes what is stored;
    /// 2. a store that came first is removed by the purge, one that comes later is refused.
    pub(crate) fn unless_cut<T>(&self, store: impl FnOnce() -> T) -> Option<T> {
        let state = self.state.lock();
        if state.cut { None } else { Some(store()) }
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
            return Poll::Ready(landed.clone());
        }
        state.followers.register(&mut this.ticket, cx.waker());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
