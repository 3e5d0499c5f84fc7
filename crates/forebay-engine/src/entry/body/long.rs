//! Complete body that is larger than one segment.
//!
//! It is kept in segments, each an allocation of its own, which are read one at a time. A
//! connection holds only a small part of it, and the rest can be dropped while it is being read:
//! see [`unsettled`](crate::entry::in_flight::unsettled).

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use forebay_core::Timestamp;

use super::piece::BrokenBody;
use super::segments::{Idle, SEGMENT, SEGMENT_OVERHEAD, cut, join};
use crate::entry::in_flight::unsettled::Unsettled;
use crate::entry::in_flight::{Charged, InFlight};
use crate::runtime::clock::Clock;
use crate::runtime::sync::Mutex;

/// Complete body in segments.
pub(crate) struct Long {
    length: u64,
    /// Number of reads.
    moves: AtomicU64,
    /// Time of the last read, if there is a clock.
    moved_at: AtomicI64,
    clock: Option<Arc<dyn Clock>>,
    /// Number of readers among the holders. Readers can be notified that it was dropped.
    readers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Segments, all but the last of one size; empty after they were dropped.
    segments: Box<[Bytes]>,
    /// Number of slots of memory that hold the body, and are charged for it.
    slots: usize,
    /// Charge while no slot holds it.
    charged: Option<Charged>,
}

impl Long {
    /// Creates a body from segments of the right size, their charge, and a clock for the time of
    /// reads.
    pub(super) fn new(
        segments: Vec<Bytes>,
        charged: Option<Charged>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Arc<Self> {
        let length = segments.iter().map(|segment| segment.len() as u64).sum();
        let (moves, readers) = (AtomicU64::new(0), AtomicUsize::new(0));
        let segments = segments.into_boxed_slice();
        let state = Mutex::new(State { segments, slots: 0, charged });
        let moved_at = AtomicI64::new(clock.as_ref().map_or(0, |clock| clock.now().as_millis()));
        Arc::new(Self { length, moves, moved_at, clock, readers, state })
    }

    /// Copies `bytes`, so that no segment keeps all of them.
    pub(super) fn of(bytes: Bytes) -> Arc<Self> {
        let (mut segments, rest) = cut(&[bytes], &Idle::new(0));
        segments.push(join(&rest));
        segments.retain(|segment| !segment.is_empty());
        Self::new(segments, None, None)
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Size in memory, in bytes.
    pub(super) const fn size(&self) -> u64 {
        self.length + self.length.div_ceil(SEGMENT as u64) * SEGMENT_OVERHEAD
    }

    /// Returns `true` if the bytes were dropped, so that no reader can continue.
    pub(super) fn is_dropped(&self) -> bool {
        self.state.lock().segments.is_empty()
    }

    fn move_on(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
        if let Some(clock) = &self.clock {
            self.moved_at.store(clock.now().as_millis(), Ordering::Relaxed);
        }
    }

    /// Adds a slot of memory, which is charged from now on, and returns the previous charge.
    pub(super) fn settle(&self) -> Option<Charged> {
        let mut state = self.state.lock();
        state.slots += 1;
        state.charged.take()
    }

    /// Removes a slot of memory. After the last one the body is charged to the bodies in flight, if
    /// it is still held.
    pub(super) fn unsettle(self: &Arc<Self>, in_flight: &Arc<InFlight>, shared: bool) {
        let charged = shared.then(|| in_flight.charge(self.size()).unsettle());
        let mut state = self.state.lock();
        state.slots = state.slots.saturating_sub(1);
        if state.slots > 0 || state.segments.is_empty() {
            return;
        }
        let Some(charged) = charged else { return };
        state.charged = Some(charged);
        drop(state);
        in_flight.unsettled.note(Arc::<Self>::downgrade(self));
    }

    /// Returns the bytes from `at` on, up to the end of a segment. `None` if the body was dropped.
    fn at(&self, at: u64) -> Option<Bytes> {
        let (index, skip) = (at / SEGMENT as u64, at % SEGMENT as u64);
        let state = self.state.lock();
        let segment = state.segments.get(usize::try_from(index).ok()?)?;
        Some(segment.slice(usize::try_from(skip).ok()?.min(segment.len())..))
    }
}

impl Unsettled for Long {
    fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    fn moved_at(&self) -> Option<Timestamp> {
        let moved_at = || Timestamp::from_millis(self.moved_at.load(Ordering::Relaxed));
        self.clock.is_some().then(moved_at)
    }

    fn is_unsettled(&self) -> bool {
        let state = self.state.lock();
        state.slots == 0 && !state.segments.is_empty()
    }

    fn let_go(self: Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let readers = self.readers.load(Ordering::Acquire);
        let is_gone = state.segments.is_empty();
        // The caller's reference is not counted.
        if is_gone || state.slots > 0 || Arc::strong_count(&self) != readers + 1 {
            return false;
        }
        let gone = (std::mem::take(&mut state.segments), state.charged.take());
        drop(state);
        drop(gone);
        true
    }
}

impl fmt::Debug for Long {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Long({} bytes)", self.length)
    }
}

/// Reader of a complete body of several segments in memory. Its pieces need no wait.
#[derive(Debug)]
pub struct LongReader {
    long: Arc<Long>,
    part: Range<u64>,
}

impl LongReader {
    pub(super) fn new(long: Arc<Long>, part: Range<u64>) -> Self {
        long.readers.fetch_add(1, Ordering::AcqRel);
        // A new reader has not stopped.
        long.move_on();
        let part = part.start..part.end.min(long.length);
        Self { long, part }
    }

    /// Returns the number of bytes that are not read yet.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.part.end.saturating_sub(self.part.start)
    }

    /// Returns the next piece, of one segment at most; `None` at the end. It fails if the body was
    /// dropped because its reader was slow.
    pub fn next_piece(&mut self) -> Option<Result<Bytes, BrokenBody>> {
        let piece = self.next_piece_again()?;
        self.long.move_on();
        Some(piece)
    }

    /// Like [`next_piece`](Self::next_piece), but the reader counts as stopped: for bytes that it
    /// read before, and moved back by because its client does not take them.
    pub fn next_piece_again(&mut self) -> Option<Result<Bytes, BrokenBody>> {
        let left = self.left();
        if left == 0 {
            return None;
        }
        let piece = self.long.at(self.part.start).ok_or(BrokenBody::FellBehind);
        Some(piece.map(|mut piece| {
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            self.part.start += piece.len() as u64;
            piece
        }))
    }

    /// Moves back by `bytes` that were read.
    pub fn unread(&mut self, bytes: u64) {
        self.part.start = self.part.start.saturating_sub(bytes);
    }

    /// Returns the body, for as long as something else holds it.
    pub(super) fn downgrade(&self) -> Weak<Long> {
        Arc::downgrade(&self.long)
    }

    /// Returns `true` if the bytes of the body were dropped.
    pub(super) fn is_dropped(&self) -> bool {
        self.long.is_dropped()
    }

    /// Returns the bytes from `at` on, for one of several readers that share this.
    pub(super) fn read_at(&self, at: u64) -> Result<Bytes, BrokenBody> {
        let piece = self.long.at(at).ok_or(BrokenBody::FellBehind)?;
        self.long.move_on();
        Ok(piece)
    }
}

impl Drop for LongReader {
    fn drop(&mut self) {
        self.long.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_is_read_again_is_no_move_of_the_reader() {
        let long = Long::of(Bytes::from(vec![0; 2 * SEGMENT]));
        let mut reader = LongReader::new(long.clone(), 0..long.length());
        let first = reader.next_piece().unwrap().unwrap();
        let moves = long.moves();
        reader.unread(first.len() as u64);
        assert_eq!(reader.next_piece_again().unwrap().unwrap(), first);
        assert_eq!((long.moves(), reader.left()), (moves, SEGMENT as u64));
        assert!(reader.next_piece().unwrap().is_ok());
        assert_eq!((long.moves(), reader.next_piece().is_none()), (moves + 1, true));
    }
}
