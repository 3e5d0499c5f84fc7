//! State of a streaming body, and the pieces that may leave its window.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;

use crate::entry::body::draft::Draft;
use crate::entry::body::long::{Long, LongReader};
use crate::entry::body::parts::PartsReader;
use crate::entry::body::piece::BrokenBody;
use crate::entry::body::whole::Whole;
use crate::entry::in_flight::Charged;
use crate::runtime::wakers::Wakers;

/// Size of the window of a body that is too large to keep: enough for a reader that is a round trip
/// behind.
const WINDOW_MAX: u64 = 1 << 20;

/// Size of the window while memory for bodies in flight is used up.
pub(super) const WINDOW_MIN: u64 = 64 << 10;

/// Overhead of a piece: an origin that sends single bytes is charged for the memory that they
/// occupy.
pub(super) const PIECE_OVERHEAD: u64 = 96;

#[derive(Debug)]
pub(super) struct State {
    pub(super) pieces: VecDeque<Piece>,
    pub(super) written: u64,
    /// Size of the pieces with overhead.
    pub(super) held: u64,
    /// Charge for the pieces, or for memory granted in advance.
    pub(super) charged: Charged,
    /// Memory granted in advance.
    pub(super) granted: u64,
    /// Number of pieces that are segments.
    pub(super) firm: usize,
    pub(super) windowed: bool,
    /// Part that can be read in a lower tier.
    pub(super) draft: Option<Draft>,
    /// Complete body, after its end.
    pub(super) whole: Option<LongReader>,
    pub(super) end: Option<Result<(), BrokenBody>>,
    /// Offset of each reader, indexed by its number.
    pub(super) readers: Vec<Place>,
    /// Number of readers created so far.
    pub(super) arrivals: u64,
    /// Number of promised readers, for which byte 0 is kept.
    pub(super) promised: usize,
    pub(super) waiting: Wakers,
    pub(super) writer: Option<Waker>,
}

/// State of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Unused number.
    Free,
    /// Offset of the next byte, and the number of its creation, because indices are reused.
    At { offset: u64, arrival: u64 },
    /// The reader has stopped for too long, and the window has moved on.
    Left,
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn cost(&self) -> u64 {
        cost(&self.bytes)
    }
}

const fn cost(bytes: &Bytes) -> u64 {
    bytes.len() as u64 + PIECE_OVERHEAD
}

impl State {
    pub(super) const fn new(charged: Charged) -> Self {
        Self {
            pieces: VecDeque::new(),
            written: 0,
            held: 0,
            charged,
            granted: 0,
            firm: 0,
            windowed: false,
            draft: None,
            whole: None,
            end: None,
            readers: Vec::new(),
            arrivals: 0,
            promised: 0,
            waiting: Wakers::new(),
            writer: None,
        }
    }

    pub(super) fn add(&mut self, bytes: Bytes) {
        let piece = Piece { start: self.written, bytes };
        self.written = piece.end();
        self.held += piece.cost();
        self.pieces.push_back(piece);
    }

    /// Keeps only a window from now on.
    pub(super) fn pass_on(&mut self) {
        self.windowed = true;
        self.granted = 0;
        self.charged.stay_within();
        self.trim();
        self.recharge();
    }

    /// Charges the pieces, or the memory granted in advance if it is more.
    pub(super) fn recharge(&mut self) {
        self.charged.set(self.held.max(self.granted));
    }

    /// Drops pieces that every reader has read. Without a reader nothing is dropped. With a draft,
    /// pieces are dropped that the tier has written, if no reader is at them or the window is too
    /// small for them.
    pub(super) fn trim(&mut self) {
        while let Some(front) = self.pieces.front()
            && self.may_go(front)
        {
            self.held -= front.cost();
            self.pieces.pop_front();
        }
        self.recharge();
    }

    /// Completes the body. It is charged to its holders: to the tier that stores it, or to the
    /// bodies in flight until all readers have read it.
    pub(super) fn become_whole(&mut self, mut segments: Vec<Bytes>) -> Whole {
        self.pieces.clear();
        (self.held, self.granted) = (0, 0);
        self.charged.stay_within();
        if segments.len() <= 1 {
            let bytes = segments.pop().unwrap_or_default();
            if !bytes.is_empty() {
                self.pieces.push_back(Piece { start: 0, bytes: bytes.clone() });
            }
            self.recharge();
            return Whole::One(bytes);
        }
        let in_flight = self.charged.in_flight().clone();
        let mut charged = std::mem::replace(&mut self.charged, in_flight.charge(0));
        charged.set(self.written);
        let long = Long::new(segments, Some(charged.unsettle()), Some(in_flight.clock.clone()));
        in_flight.unsettled.note(Arc::<Long>::downgrade(&long));
        self.whole = Some(LongReader::new(long.clone(), 0..self.written));
        Whole::Long(long)
    }

    pub(super) fn has_window(&self) -> bool {
        if self.end.is_some() {
            return self.held == 0;
        }
        let drafted = self.draft.as_ref().filter(|draft| draft.grows());
        // Bytes that a tier buffers stop no reader.
        let ahead = drafted.map_or(self.held, |draft| self.written.saturating_sub(draft.taken()));
        ahead < self.window_max()
    }

    fn window_max(&self) -> u64 {
        if self.charged.in_flight().is_crowded() { WINDOW_MIN } else { WINDOW_MAX }
    }

    /// Returns `true` while a lower tier is written and returns the written part.
    pub(super) fn is_drafted(&self) -> bool {
        self.draft.as_ref().is_some_and(Draft::grows)
    }

    /// Returns the number of bytes from the first on that can be read in a lower tier.
    fn below(&self) -> u64 {
        self.draft.as_ref().map_or(0, Draft::written)
    }

    fn may_go(&self, piece: &Piece) -> bool {
        if !self.is_drafted() {
            return self.is_awaited() && !self.is_needed(piece.end());
        }
        let is_read_here = |place: &Place| {
            matches!(place, Place::At { offset, .. }
                if (piece.start..piece.end()).contains(offset))
        };
        let reaches = self.below() >= piece.end();
        reaches && (self.held > self.window_max() || !self.readers.iter().any(is_read_here))
    }

    /// Drops all pieces if the body has no reader.
    pub(super) fn drop_unread(&mut self) {
        if !self.is_awaited() {
            self.pieces.clear();
            self.held = 0;
            self.recharge();
        }
    }

    /// Returns `true` if a reader exists or is promised.
    pub(super) fn is_awaited(&self) -> bool {
        self.promised > 0 || self.readers.iter().any(|place| matches!(place, Place::At { .. }))
    }

    /// Returns `true` if a reader has not read up to `end`. Readers wake in the order of their
    /// numbers, so the last one is the likeliest to be behind.
    fn is_needed(&self, end: u64) -> bool {
        let is_before = |place: &Place| matches!(place, Place::At { offset, .. } if *offset < end);
        let is_wanted = self.promised > 0 || self.readers.iter().rev().any(is_before);
        is_wanted && self.below() < end
    }

    pub(super) fn read_at(
        &mut self,
        name: usize,
        offset: u64,
        arrival: u64,
    ) -> Result<Bytes, BrokenBody> {
        if let Some(whole) = &self.whole {
            let bytes = whole.read_at(offset)?;
            self.readers[name] = Place::At { offset: offset + bytes.len() as u64, arrival };
            return Ok(bytes);
        }
        let index = self.pieces.partition_point(|piece| piece.end() <= offset);
        let piece = self.pieces.get(index).filter(|piece| piece.start <= offset);
        let Some(piece) = piece else { return Err(BrokenBody::FellBehind) };
        let skip = usize::try_from(offset - piece.start).unwrap_or(usize::MAX);
        let bytes = piece.bytes.slice(skip.min(piece.bytes.len())..);
        self.readers[name] = Place::At { offset: offset + bytes.len() as u64, arrival };
        // Only a reader of the first piece can have been the slowest.
        if self.windowed && index == 0 {
            self.trim();
        }
        Ok(bytes)
    }

    /// Returns `true` if the next bytes of a reader are no longer in memory.
    pub(super) fn is_lost(&self, name: usize) -> bool {
        match self.readers.get(name) {
            Some(Place::Left) => true,
            Some(Place::At { offset, .. }) => {
                *offset < self.written && self.whole.as_ref().is_some_and(LongReader::is_dropped)
            }
            Some(Place::Free) | None => false,
        }
    }

    pub(super) fn starts_at_zero(&self) -> bool {
        if self.whole.is_some() {
            return true;
        }
        self.starts_at() <= self.below()
    }

    /// Returns the offset of the window.
    fn starts_at(&self) -> u64 {
        self.pieces.front().map_or(self.written, |front| front.start)
    }

    /// Creates a reader of the lower tier for bytes that have left the window.
    pub(super) fn behind(&self, offset: u64) -> Option<PartsReader> {
        let is_here = self.whole.is_some() || offset >= self.starts_at();
        self.draft.as_ref().filter(|_| !is_here)?.reader(offset)
    }
}
