//! What has happened, in numbers, and how the tier is.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Timestamp;

/// For how long nothing is written after a write has failed: a full disk is asked once a second,
/// and not once a request.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a disk tier has done and refused since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries that can be read now.
    pub entries: u64,
    /// Bytes of all files now.
    pub bytes: u64,
    /// Lookups that found an entry.
    pub hits: u64,
    /// Lookups of what is not there: without a call of the file system, or past what is damaged.
    pub misses: u64,
    /// Entries that were written and became visible.
    pub stored: u64,
    /// Entries not stored, since too much was waiting to be written or writing has just failed.
    pub refused: u64,
    /// Entries not stored, since writing them failed.
    pub failed: u64,
    /// Removals that were carried out.
    pub removed: u64,
    /// Records or bodies that were not what they should be: damaged, cut off, gone.
    pub damaged: u64,
    /// Stretches of a segment that could not be read when it was opened.
    pub holes: u64,
    /// Segments given up, since removals that concern them are lost.
    pub discarded_segments: u64,
    /// Files in the directory that are none of ours. They are left alone.
    pub foreign: u64,
    /// Segments that made room.
    pub evicted: u64,
    /// Entries that went with them.
    pub evicted_entries: u64,
    /// Entries written once more when their segment made room, since they had been hit.
    pub reinserted: u64,
    /// Purges by prefix that became purges of their whole sites, since there were too many.
    pub widened: u64,
    /// Calls of the file system that failed.
    pub io_errors: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// The same, counting.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn read(&self, entries: u64) -> Counts {
                Counts { entries, $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters!(
    bytes,
    hits,
    misses,
    stored,
    refused,
    failed,
    removed,
    damaged,
    holes,
    discarded_segments,
    foreign,
    evicted,
    evicted_entries,
    reinserted,
    widened,
    io_errors
);

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How a disk tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It reads and writes.
    Healthy,
    /// There is no room on the disk; what is stored is read.
    Full,
    /// It may not be written to; what is stored is read.
    ReadOnly,
    /// The last write failed for another reason.
    Failing,
    /// It has stopped; nothing is read or written any more.
    Stopped,
}

/// The condition, and what follows from it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    condition: AtomicU8,
    retry_at: AtomicI64,
}

const CONDITIONS: [Condition; 5] = [
    Condition::Healthy,
    Condition::Full,
    Condition::ReadOnly,
    Condition::Failing,
    Condition::Stopped,
];

impl Health {
    pub(crate) fn condition(&self) -> Condition {
        CONDITIONS[usize::from(self.condition.load(Ordering::Relaxed)) % CONDITIONS.len()]
    }

    /// Whether an entry may be written now.
    pub(crate) fn may_write(&self, now: Timestamp) -> bool {
        match self.condition() {
            Condition::Healthy => true,
            Condition::Stopped => false,
            _ => now.as_millis() >= self.retry_at.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn wrote(&self) {
        self.condition.store(Condition::Healthy as u8, Ordering::Relaxed);
    }

    pub(crate) fn failed_to_write(&self, error: &io::Error, now: Timestamp) {
        let condition = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Condition::Full,
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => Condition::ReadOnly,
            _ => Condition::Failing,
        };
        self.retry_at.store(now.plus(RETRY_AFTER).as_millis(), Ordering::Relaxed);
        self.condition.store(condition as u8, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.condition.store(Condition::Stopped as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_one_write_a_second_is_tried() {
        let (health, at) = (Health::default(), Timestamp::from_millis);
        assert!(health.may_write(at(0)));
        health.failed_to_write(&ErrorKind::StorageFull.into(), at(100));
        assert_eq!(health.condition(), Condition::Full);
        assert!(!health.may_write(at(1_099)) && health.may_write(at(1_100)));
        health.wrote();
        assert_eq!((health.condition(), health.may_write(at(100))), (Condition::Healthy, true));
        health.stop();
        assert!(!health.may_write(at(i64::MAX)));
    }
}
