//! Memory of bodies that no tier is charged for, and the queue of loads and bodies that wait for
//! it.
//!
//! Loads and new bodies are admitted in the order of arrival. Growing bodies have a queue of their
//! own, and leave an eighth of the memory to new ones: a small body need not wait for a large one.
//! When growing bodies have used up the memory, *one* of them may exceed the bound, so that one
//! always completes and frees its memory. The total is therefore bounded by `bytes_max`, one
//! largest object that exceeds it, one that had to leave memory for a smaller one, and a window for
//! each body that is not kept.

mod admission;
pub(crate) mod unsettled;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use crate::entry::body::segments::Idle;
use crate::runtime::clock::Clock;
use crate::runtime::sync::Mutex;
use unsettled::UnsettledBodies;

/// Charge of a load from its start until its body begins: two packets of a body with overhead. More
/// would let the site of a stalled origin use up the memory of all others.
const LOAD_ROOM: u64 = 16 << 10;

/// Divisor of the memory that is reserved for new loads and bodies.
const BEGINNERS_SHARE: u64 = 8;

/// Maximum length of a queue. More are refused at once, because they would wait in vain.
const WAITING_MAX: usize = 1_024;

/// Memory of bodies in flight.
pub(crate) struct InFlight {
    pub(crate) clock: Arc<dyn Clock>,
    bytes_max: u64,
    state: Mutex<State>,
    pub(crate) unsettled: UnsettledBodies,
    pub(crate) idle: Arc<Idle>,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    /// Bytes of complete bodies that wait for their readers only.
    unsettled: u64,
    /// `true` while one body exceeds the bound.
    overdrawn: bool,
    growing: VecDeque<Place>,
    beginning: VecDeque<Place>,
    /// Grants that are not collected yet.
    granted: SmallVec<[(u64, Grant); 4]>,
    /// Number of the newest place in a queue.
    newest: u64,
    counts: Counts,
}

/// Counts of admissions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Loads and bodies that wait now.
    pub(crate) waiting: usize,
    /// Loads that have waited.
    pub(crate) waits: u64,
    /// Loads that were refused.
    pub(crate) refusals: u64,
}

/// Place in a queue.
#[derive(Debug)]
struct Place {
    number: u64,
    bytes: u64,
    waker: Option<Waker>,
}

/// Granted memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    /// Bytes within the bound.
    Within(u64),
    /// Bytes, and the right to exceed the bound.
    Beyond(u64),
}

/// Request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A load that has not started.
    Load,
    /// A body with this many first bytes.
    First(u64),
    /// A growing body.
    More(u64),
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

type Wakers = SmallVec<[Waker; 4]>;

impl InFlight {
    pub(crate) fn new(bytes_max: u64, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (state, unsettled) = (Mutex::default(), UnsettledBodies::default());
        let idle = Idle::new(bytes_max);
        Arc::new(Self { clock, bytes_max, state, unsettled, idle })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Maximum number of bytes.
    pub(crate) const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.state.lock();
        Counts { waiting: state.growing.len() + state.beginning.len(), ..state.counts }
    }

    /// Returns `true` if no memory is free, or a load or body waits for it.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = self.state.lock();
        state.is_awaited() || state.bytes >= self.bytes_max.max(1)
    }

    /// Counts a refused load.
    pub(crate) fn refuse(&self) {
        self.state.lock().counts.refusals += 1;
    }

    /// Adds a request to its queue, even if memory is free.
    pub(crate) fn queue(self: &Arc<Self>, want: Want) -> Result<Waiting, TooMany> {
        let mut state = self.state.lock();
        state.newest += 1;
        let number = state.newest;
        let (queue, bytes) = match want {
            Want::Load => (&mut state.beginning, LOAD_ROOM),
            Want::First(bytes) => (&mut state.beginning, bytes),
            Want::More(bytes) => (&mut state.growing, bytes),
        };
        if queue.len() >= WAITING_MAX {
            return Err(TooMany);
        }
        queue.push_back(Place { number, bytes, waker: None });
        let woken = self.grant(&mut state);
        let waits = want == Want::Load && !state.is_granted(number);
        state.counts.waits += u64::from(waits);
        drop(state);
        self.idle.trim();
        wake(woken);
        Ok(Waiting { in_flight: self.clone(), number, waits })
    }

    /// Charges bytes that are in memory already, even beyond the bound.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Charged {
        let in_flight = self.clone();
        let mut charged = Charged { in_flight, bytes: 0, beyond: false, unsettled: false };
        charged.set(bytes);
        charged
    }

    fn release(&self, bytes: u64, beyond: bool) {
        let mut state = self.state.lock();
        state.bytes -= bytes;
        state.overdrawn &= !beyond;
        let woken = self.grant(&mut state);
        drop(state);
        self.idle.trim();
        wake(woken);
    }

    /// Grants memory to those who wait, and leaves the rest to idle segments. The caller must trim
    /// those after it has released the lock.
    fn grant(&self, state: &mut State) -> Wakers {
        let woken = state.grant(self.bytes_max);
        self.limit_idle(state);
        woken
    }

    fn limit_idle(&self, state: &State) {
        self.idle.limit(self.bytes_max.saturating_sub(state.bytes));
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl State {
    fn is_awaited(&self) -> bool {
        !self.growing.is_empty() || !self.beginning.is_empty()
    }

    /// Grants memory in the order of each queue.
    fn grant(&mut self, bytes_max: u64) -> Wakers {
        let mut woken = Wakers::new();
        while let Some(place) = self.beginning.front()
            && self.has_room(place.bytes, bytes_max)
        {
            let (grant, place) = (Grant::Within(place.bytes), self.beginning.pop_front());
            self.take(place, grant, &mut woken);
        }
        let growth_max = bytes_max - bytes_max / BEGINNERS_SHARE;
        while let Some(place) = self.growing.front() {
            let grant = match place.bytes {
                bytes if self.has_room(bytes, growth_max) => Grant::Within(bytes),
                // Their readers end by themselves, or are left behind.
                bytes if !self.overdrawn && self.unsettled + bytes <= bytes_max => {
                    Grant::Beyond(bytes)
                }
                _ => return woken,
            };
            let place = self.growing.pop_front();
            self.take(place, grant, &mut woken);
        }
        woken
    }

    /// One load or body may always continue, however small the bound is.
    fn has_room(&self, bytes: u64, bytes_max: u64) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= bytes_max
    }

    fn take(&mut self, place: Option<Place>, grant: Grant, woken: &mut Wakers) {
        let Some(place) = place else { return };
        self.bytes += grant.bytes();
        self.overdrawn |= grant.is_beyond();
        self.granted.push((place.number, grant));
        woken.extend(place.waker);
    }

    fn is_granted(&self, number: u64) -> bool {
        self.granted.iter().any(|(granted, _)| *granted == number)
    }

    fn collect(&mut self, number: u64) -> Option<Grant> {
        let index = self.granted.iter().position(|(granted, _)| *granted == number)?;
        Some(self.granted.swap_remove(index).1)
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        let mut places = self.growing.iter_mut().chain(&mut self.beginning);
        places.find(|place| place.number == number)
    }
}

impl Grant {
    const fn bytes(self) -> u64 {
        match self {
            Self::Within(bytes) | Self::Beyond(bytes) => bytes,
        }
    }

    const fn is_beyond(self) -> bool {
        matches!(self, Self::Beyond(_))
    }
}

/// Place in a queue; resolves to the charge. Dropping it returns both.
#[derive(Debug)]
pub(crate) struct Waiting {
    in_flight: Arc<InFlight>,
    number: u64,
    waits: bool,
}

impl Waiting {
    /// Returns `true` if memory was not free at once.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }

    fn collect(&self) -> Option<Charged> {
        let grant = self.in_flight.state.lock().collect(self.number)?;
        let (bytes, beyond) = (grant.bytes(), grant.is_beyond());
        let in_flight = self.in_flight.clone();
        Some(Charged { in_flight, bytes, beyond, unsettled: false })
    }
}

impl Future for Waiting {
    type Output = Charged;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Charged> {
        if let Some(charged) = self.collect() {
            return Poll::Ready(charged);
        }
        let mut state = self.in_flight.state.lock();
        if let Some(place) = state.place(self.number) {
            place.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        // The grant came in between.
        self.collect().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A grant that was not collected is returned.
        drop(self.collect());
        let mut state = self.in_flight.state.lock();
        let number = self.number;
        state.growing.retain(|place| place.number != number);
        state.beginning.retain(|place| place.number != number);
        // Later requests in the queue may fit now.
        let woken = self.in_flight.grant(&mut state);
        drop(state);
        self.in_flight.idle.trim();
        wake(woken);
    }
}

/// Charged bytes; dropping it releases them.
#[derive(Debug)]
pub(crate) struct Charged {
    in_flight: Arc<InFlight>,
    bytes: u64,
    /// `true` if it may exceed the bound.
    beyond: bool,
    /// `true` if it is for a body that waits for its readers only.
    unsettled: bool,
}

impl Charged {
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn is_beyond(&self) -> bool {
        self.beyond
    }

    pub(crate) const fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// Changes the charge, even beyond the bound.
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            let mut state = self.in_flight.state.lock();
            state.bytes += bytes - self.bytes;
            self.in_flight.limit_idle(&state);
            drop(state);
            self.in_flight.idle.trim();
        } else if bytes < self.bytes {
            self.in_flight.release(self.bytes - bytes, false);
        }
        self.bytes = bytes;
    }

    /// Marks the charge as one for a body that waits for its readers only.
    pub(crate) fn unsettle(mut self) -> Self {
        self.stay_within();
        self.in_flight.state.lock().unsettled += self.bytes;
        self.unsettled = true;
        self
    }

    /// Adds another charge.
    pub(crate) fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.beyond |= std::mem::take(&mut other.beyond);
    }

    /// Returns the right to exceed the bound, so that another body may.
    pub(crate) fn stay_within(&mut self) {
        if std::mem::take(&mut self.beyond) {
            self.in_flight.release(0, true);
        }
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        if self.unsettled {
            self.in_flight.state.lock().unsettled -= self.bytes;
        }
        if self.bytes > 0 || self.beyond {
            self.in_flight.release(self.bytes, self.beyond);
        }
    }
}

fn wake(wakers: Wakers) {
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests;
