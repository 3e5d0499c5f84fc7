//! What a flow holds, and which of it may go.

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

/// What stays of a body that is too large to keep: enough for a reader to be a round trip behind.
const WINDOW_MAX: u64 = 1 << 20;

/// The same while all bodies in flight hold as much as they may.
pub(super) const WINDOW_MIN: u64 = 64 << 10;

/// What a piece costs beside its bytes: an origin that sends byte by byte is charged for what it
/// makes us hold.
pub(super) const PIECE_OVERHEAD: u64 = 96;

#[derive(Debug)]
pub(super) struct State {
    pub(super) pieces: VecDeque<Piece>,
    pub(super) written: u64,
    /// What the pieces cost.
    pub(super) held: u64,
    /// What is charged for them: as much as they cost, or the room that was granted already.
    pub(super) charged: Charged,
    /// What of that was granted ahead.
    pub(super) granted: u64,
    /// How many of the pieces are segments.
    pub(super) firm: usize,
    pub(super) windowed: bool,
    /// What of it can be read in a lower tier.
    pub(super) draft: Option<Draft>,
    /// All of it, once it has come whole.
    pub(super) whole: Option<LongReader>,
    pub(super) end: Option<Result<(), BrokenBody>>,
    /// Where each reader stands; its index is the reader's name.
    pub(super) readers: Vec<Place>,
    /// How many readers have come so far.
    pub(super) arrivals: u64,
    /// How many readers are still to come for whom byte 0 is kept.
    pub(super) promised: usize,
    pub(super) waiting: Wakers,
    pub(super) writer: Option<Waker>,
}

/// Where a reader stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nobody has this name.
    Free,
    /// The next byte it will read; and which arrival it was, since the names of those who have
    /// gone are given to others.
    At { offset: u64, arrival: u64 },
    /// It stood still for too long, and the window has moved on without it.
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

    /// Only a window stays from now on.
    pub(super) fn pass_on(&mut self) {
        self.windowed = true;
        self.granted = 0;
        self.charged.stay_within();
        self.trim();
        self.recharge();
    }

    /// Charges what is held, or what was granted ahead if that is more.
    pub(super) fn recharge(&mut self) {
        self.charged.set(self.held.max(self.granted));
    }

    /// Lets go of what lies behind every reader. As long as there is no reader, nothing goes. Of
    /// what a tier writes, that goes which it has written and for which the window is too small.
    pub(super) fn trim(&mut self) {
        while let Some(front) = self.pieces.front()
            && self.may_go(front)
        {
            self.held -= front.cost();
            self.pieces.pop_front();
        }
        self.recharge();
    }

    /// From here on the body is held by those who have it, and charged to them: to the tier that
    /// takes it, or to the bodies in flight until everybody has read it.
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
        let long = Long::new(segments, (Some(charged.unsettle()), Some(in_flight.clock.clone())));
        in_flight.unsettled.note(Arc::<Long>::downgrade(&long));
        self.whole = Some(LongReader::new(long.clone(), 0..self.written));
        Whole::Long(long)
    }

    pub(super) fn has_window(&self) -> bool {
        if self.end.is_some() {
            return self.held == 0;
        }
        let drafted = self.draft.as_ref().filter(|draft| draft.grows());
        // What a tier holds back of what it has taken holds nobody up.
        let ahead = drafted.map_or(self.held, |draft| self.written.saturating_sub(draft.taken()));
        ahead < self.window_max()
    }

    fn window_max(&self) -> u64 {
        if self.charged.in_flight().is_crowded() { WINDOW_MIN } else { WINDOW_MAX }
    }

    /// Whether a lower tier is being written, and read by those who are behind.
    pub(super) fn is_drafted(&self) -> bool {
        self.draft.as_ref().is_some_and(Draft::grows)
    }

    /// How many bytes from the first on can be read in a lower tier.
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

    /// Lets go of what nobody is going to read, though some hold on to the flow.
    pub(super) fn drop_unread(&mut self) {
        if !self.is_awaited() {
            self.pieces.clear();
            self.held = 0;
            self.recharge();
        }
    }

    /// Whether anybody reads, or is still to come.
    pub(super) fn is_awaited(&self) -> bool {
        self.promised > 0 || self.readers.iter().any(|place| matches!(place, Place::At { .. }))
    }

    /// Whether anybody has not read up to `end` yet. Readers wake in the order of their names, so
    /// the last one is the likeliest to be behind.
    fn is_needed(&self, end: u64) -> bool {
        let is_before = |place: &Place| matches!(place, Place::At { offset, .. } if *offset < end);
        let is_wanted = self.promised > 0 || self.readers.iter().rev().any(is_before);
        is_wanted && self.below() < end
    }

    pub(super) fn read_at(
        &mut self,
        name: usize,
        (offset, arrival): (u64, u64),
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
        // Only who reads at the front can have been the slowest.
        if self.windowed && index == 0 {
            self.trim();
        }
        Ok(bytes)
    }

    pub(super) fn starts_at_zero(&self) -> bool {
        if self.whole.is_some() {
            return true;
        }
        self.starts_at() <= self.below()
    }

    /// The first byte in the window.
    fn starts_at(&self) -> u64 {
        self.pieces.front().map_or(self.written, |front| front.start)
    }

    /// A reader in a lower tier, for one for whom the window begins too late.
    pub(super) fn behind(&self, offset: u64) -> Option<PartsReader> {
        let is_here = self.whole.is_some() || offset >= self.starts_at();
        self.draft.as_ref().filter(|_| !is_here)?.reader(offset)
    }
}
