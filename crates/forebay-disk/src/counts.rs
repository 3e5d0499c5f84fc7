//! Counters and health of a disk tier.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Timestamp;

/// Pause after a failed write, so that a full disk is tried once a second and not once per request.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Counters of a disk tier since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of entries that can be read now. Entries that a purge of a tag, prefix, site or
    /// everything has invalidated count until they are looked up or evicted.
    pub entries: u64,
    /// Total size of all files of the tier in bytes, now.
    pub bytes: u64,
    /// Lookups that found an entry.
    pub hits: u64,
    /// Lookups that found no entry, a damaged one, or a purged one.
    pub misses: u64,
    /// Entries that were written and published.
    pub stored: u64,
    /// Operations refused: entries, removals, purges and bus positions because the write queue was
    /// full or closed, and entries in the second after a failed write.
    pub refused: u64,
    /// Entries whose record could not be written. An entry with a body above 1 MiB of which a piece
    /// could not be written does not count.
    pub failed: u64,
    /// Removals of single keys that have been completed, also of keys without an entry.
    pub removed: u64,
    /// Records and separate body files found damaged, truncated or missing.
    pub damaged: u64,
    /// Parts of segment files that were unreadable when the directory was opened.
    pub holes: u64,
    /// Segments discarded when the directory was opened, because removals that concern them may be
    /// lost.
    pub discarded_segments: u64,
    /// Files in the directory at its opening that do not belong to the tier. They are left
    /// unchanged.
    pub foreign: u64,
    /// Segment files evicted to make space.
    pub evicted: u64,
    /// Entries evicted with their segment files.
    pub evicted_entries: u64,
    /// Entries written again when their segment was evicted, because they had been hit.
    pub reinserted: u64,
    /// Prefix purges that were widened to their whole site, because more than 64 were recorded.
    /// Those of earlier processes count when they are read at the opening.
    pub widened: u64,
    /// File system calls that failed. Writes of several entries in one call count once.
    pub io_errors: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// Atomic counters behind [`Counts`].
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

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Health of a disk tier: the result of its last write, or that it has stopped. Failed reads do not
/// change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The last write succeeded, or none was tried yet.
    Healthy,
    /// The last write failed, because the disk or the quota is full. Entries are written again
    /// after one second at the earliest; stored entries are read.
    Full,
    /// The last write failed, because the directory is read-only or access was denied. Entries are
    /// written again after one second at the earliest; stored entries are read.
    ReadOnly,
    /// The last write failed for a reason other than a full disk or a read-only directory. Entries
    /// are written again after one second at the earliest; stored entries are read.
    Failing,
    /// The tier was closed, or its writing thread has panicked: it neither reads nor writes.
    Stopped,
}

/// Current health, and the time of the next write attempt.
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

    /// True if an entry may be written now.
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
