//! Bodies outside of memory that are still being read.
//!
//! They are charged to the bodies in flight. A client that does not read must not use up the memory
//! of others: while loads or bodies wait for memory, bodies are dropped whose readers have stopped.
//! Their readers get an error.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::Timestamp;

use super::InFlight;
use crate::runtime::sync::Mutex;

/// Time without a read after which a body may be dropped while others wait for memory: a reader
/// moves with each segment, so that is a connection of less than 128 KiB/s.
const STILL_MAX: Duration = Duration::from_secs(2);

/// Total time after which a body may be dropped while others wait for memory: a client that reads
/// one piece per second must not keep a body forever.
const SLOW_MAX: Duration = Duration::from_secs(10);

/// Length of the list from which on dropped bodies are removed from it first.
const LISTED_MIN: usize = 64;

/// Body that is in no slot of memory, but may have readers.
pub(crate) trait Unsettled: Send + Sync {
    /// Number of times that a reader has moved.
    fn moves(&self) -> u64;

    /// Time of the last move, if known.
    fn moved_at(&self) -> Option<Timestamp>;

    /// Returns `true` while the body is kept although no slot of memory holds it.
    fn is_unsettled(&self) -> bool;

    /// Drops the body if no slot of memory holds it and all holders except the caller only read it.
    /// Other holders may still store or serve it.
    fn let_go(self: Arc<Self>) -> bool;
}

#[derive(Default)]
pub(crate) struct UnsettledBodies {
    bodies: Mutex<Vec<UnsettledBody>>,
}

struct UnsettledBody {
    body: Weak<dyn Unsettled>,
    /// State at the first check. `None` before it.
    seen: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Timestamp,
    moves: u64,
    still_since: Timestamp,
}

impl UnsettledBodies {
    pub(crate) fn note(&self, body: Weak<dyn Unsettled>) {
        let mut bodies = self.bodies.lock();
        // A full list is pruned before it grows, so it is never longer than twice the number of
        // live bodies.
        if bodies.len() >= LISTED_MIN && bodies.len() == bodies.capacity() {
            bodies.retain(|unsettled| unsettled.body.strong_count() > 0);
        }
        bodies.push(UnsettledBody { body, seen: None });
    }
}

impl InFlight {
    /// Drops bodies whose readers have stopped, in the order in which they left memory, until
    /// memory is free. Returns the number of dropped bodies.
    pub(crate) fn make_room(&self, now: Timestamp) -> usize {
        let mut gone = 0;
        for body in self.standing_still(now) {
            if !self.is_crowded() {
                break;
            }
            gone += usize::from(body.let_go());
        }
        gone
    }

    fn standing_still(&self, now: Timestamp) -> Vec<Arc<dyn Unsettled>> {
        let mut still = Vec::new();
        self.unsettled.bodies.lock().retain_mut(|unsettled| {
            let Some(body) = unsettled.body.upgrade() else { return false };
            let stays = body.is_unsettled();
            if stays && unsettled.stands_still(body.moves(), body.moved_at(), now) {
                still.push(body);
            }
            stays
        });
        still
    }
}

impl UnsettledBody {
    fn stands_still(&mut self, moves: u64, moved_at: Option<Timestamp>, now: Timestamp) -> bool {
        let still_since = moved_at.unwrap_or(now);
        let seen = self.seen.get_or_insert(Seen { first: now, moves, still_since });
        if seen.moves != moves {
            (seen.moves, seen.still_since) = (moves, now);
        }
        now.since(seen.still_since) >= STILL_MAX || now.since(seen.first) >= SLOW_MAX
    }
}
