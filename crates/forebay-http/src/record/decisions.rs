//! Last decisions about loads, for `explain`.
//!
//! The ring is written when a load gets the head of its response or fails, never by a hit. Of the direct
//! passes of a key, it has at most one a second, with and without credentials each.

use std::time::Duration;

use forebay_core::{KeyRef, Timestamp, Why};
use forebay_semantics::Unstorable;
use forebay_semantics::advice::LINE_MAX;
use parking_lot::Mutex;
use twox_hash::XxHash3_64;

/// Maximum number of decisions that are kept.
const DECISIONS_MAX: usize = 16_384;

/// Number of parts of the ring. A key belongs to one part, so that few loads share a lock, and a
/// report reads one part.
const SHARDS: usize = 16;

/// Maximum number of decisions about one key in a report.
pub(crate) const REPORTED_MAX: usize = 16;

/// Maximum size of a decision in bytes.
const SIZE_MAX: usize = 192;

const _: () = assert!(size_of::<Decision>() <= SIZE_MAX);

/// Result of a load, as far as the response head tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    /// The response may be stored.
    Stored,
    /// The origin confirmed the stored response.
    Confirmed,
    /// The response is for one client only.
    Passed,
    /// The origin answered with an error status.
    Failed,
    /// The load got no response. The line has the error.
    Unanswered,
}

impl Decided {
    /// Returns the code in reports.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Confirmed => "confirmed",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unanswered => "unanswered",
        }
    }
}

/// Set of reasons against storing a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objections(u32);

// One bit per reason.
const _: () = assert!(Unstorable::ALL.len() <= u32::BITS as usize);

impl Objections {
    /// Creates the set of these reasons.
    pub(crate) fn of(reasons: impl IntoIterator<Item = Unstorable>) -> Self {
        let places = reasons.into_iter().filter_map(place);
        Self(places.fold(0, |set, place| set | (1 << place)))
    }

    /// Returns the reasons in the order of their declaration.
    pub(crate) fn iter(self) -> impl Iterator<Item = Unstorable> {
        let has = move |place: usize| self.0 & (1 << place) != 0;
        Unstorable::ALL.into_iter().filter(move |reason| place(*reason).is_some_and(has))
    }
}

fn place(reason: Unstorable) -> Option<usize> {
    Unstorable::ALL.iter().position(|known| *known == reason)
}

/// Text of at most [`LINE_MAX`] bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    length: u8,
    bytes: [u8; LINE_MAX],
}

impl Line {
    /// Creates the line from the beginning of a text.
    pub(crate) fn of(text: &str) -> Self {
        let text = &text.as_bytes()[..text.floor_char_boundary(LINE_MAX)];
        let mut bytes = [0; LINE_MAX];
        bytes[..text.len()].copy_from_slice(text);
        Self { length: u8::try_from(text.len()).unwrap_or_default(), bytes }
    }

    /// Returns the text.
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

/// Decision about one load.
#[derive(Clone, Copy)]
pub(crate) struct Decision {
    /// Hash of the key; see [`hash`].
    pub(crate) key: u64,
    /// Time of the decision.
    pub(crate) at: Timestamp,
    /// Time from the start of the load.
    pub(crate) took: Duration,
    /// Length of the body, if the response states it.
    pub(crate) length: Option<u32>,
    /// Status code of the origin; 0 if it did not answer.
    pub(crate) status: u16,
    pub(crate) objections: Objections,
    /// Reason that decided.
    pub(crate) first: Option<Unstorable>,
    pub(crate) decided: Decided,
    /// Reason why memory did not answer.
    pub(crate) why: Why,
    /// True if the body was larger than memory stores.
    pub(crate) is_outgrown: bool,
    /// Field that decided, or the error.
    pub(crate) line: Line,
}

/// Part of the ring.
#[derive(Default)]
struct Shard {
    slots: Vec<Decision>,
    /// Slot that is written next.
    next: usize,
}

/// Ring of the last decisions. Its memory grows with the first loads, to at most 3 MiB.
pub(crate) struct Decisions {
    shards: [Mutex<Shard>; SHARDS],
}

impl std::fmt::Debug for Decisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decisions").finish_non_exhaustive()
    }
}

impl Default for Decisions {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

/// Returns the hash of a key by which its decisions are found.
pub(crate) fn hash(key: KeyRef<'_>) -> u64 {
    XxHash3_64::oneshot(key.bytes())
}

impl Decisions {
    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[usize::try_from(key % SHARDS as u64).unwrap_or_default()]
    }

    /// Adds a decision in place of the oldest one.
    pub(crate) fn add(&self, decision: Decision) {
        let mut shard = self.shard(decision.key).lock();
        let next = shard.next;
        match shard.slots.get_mut(next) {
            Some(slot) => *slot = decision,
            None => shard.slots.push(decision),
        }
        shard.next = (next + 1) % (DECISIONS_MAX / SHARDS);
    }

    /// Records that the body of the last load of a key was larger than memory stores.
    pub(crate) fn outgrew(&self, key: KeyRef<'_>) {
        let key = hash(key);
        let mut shard = self.shard(key).lock();
        let next = shard.next;
        let (newer, older) = shard.slots.split_at_mut(next);
        let mut newest_first = newer.iter_mut().rev().chain(older.iter_mut().rev());
        if let Some(last) = newest_first.find(|decision| decision.key == key) {
            last.is_outgrown = true;
        }
    }

    /// Returns the last decisions about a key, the newest first.
    pub(crate) fn of(&self, key: KeyRef<'_>) -> Vec<Decision> {
        let key = hash(key);
        let shard = self.shard(key).lock();
        let (newer, older) = shard.slots.split_at(shard.next.min(shard.slots.len()));
        let newest_first = newer.iter().rev().chain(older.iter().rev());
        newest_first.filter(|decision| decision.key == key).take(REPORTED_MAX).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    fn decision(key: KeyRef<'_>, status: u16) -> Decision {
        Decision {
            key: hash(key),
            at: Timestamp::default(),
            took: Duration::ZERO,
            length: None,
            status,
            objections: Objections::default(),
            first: None,
            decided: Decided::Stored,
            why: Why::UriMiss,
            is_outgrown: false,
            line: Line::of("Cache-Control: max-age=60"),
        }
    }

    #[test]
    fn the_ring_keeps_the_last_decisions_about_a_key() {
        let ring = Decisions::default();
        let key = KeyBuf::new("site").part(b"/a").clone();
        let key = key.borrowed();
        assert!(ring.of(key).is_empty());
        ring.outgrew(key);
        for status in 0..100 {
            ring.add(decision(key, status));
        }
        let statuses: Vec<u16> = ring.of(key).iter().map(|it| it.status).collect();
        assert_eq!(statuses, (84..100).rev().collect::<Vec<_>>());
        ring.outgrew(key);
        assert!(ring.of(key)[0].is_outgrown && !ring.of(key)[1].is_outgrown);
        for number in 0..2 * DECISIONS_MAX as u64 {
            ring.add(Decision { key: number, ..decision(key, 0) });
        }
        assert!(ring.of(key).is_empty(), "newer decisions have replaced them");
        let kept: usize = ring.shards.iter().map(|shard| shard.lock().slots.len()).sum();
        assert_eq!(kept, DECISIONS_MAX);
    }

    #[test]
    fn a_set_of_objections_has_all_of_them() {
        let all = Objections::of(Unstorable::ALL);
        assert_eq!(all.iter().collect::<Vec<_>>(), Unstorable::ALL);
        let some = Objections::of([Unstorable::SetCookie, Unstorable::Private]);
        assert_eq!(some.iter().collect::<Vec<_>>(), [Unstorable::Private, Unstorable::SetCookie]);
    }

    #[test]
    fn a_line_is_cut_at_a_character() {
        assert_eq!(Line::of("short").as_str(), "short");
        let long = "é".repeat(LINE_MAX);
        assert_eq!(Line::of(&long).as_str().len(), LINE_MAX);
        assert_eq!(Line::of(&format!("a{long}")).as_str().len(), LINE_MAX - 1);
    }
}
