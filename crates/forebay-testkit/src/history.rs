//! Checker of one key's reads against acknowledged purges.
//!
//! The truth is a version number that grows. A writer increments it and purges the key. Once the
//! purge is acknowledged, reads that begin later must not return an older version.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

/// True version of one key, and the promises made about it.
#[derive(Debug, Default)]
pub struct Truth {
    version: AtomicU64,
    /// Lock of the writers; concurrent writers would make the order of versions ambiguous.
    pub turn: Turn<()>,
    promises: Mutex<Promises>,
}

/// Acknowledged and revoked purges of one key.
#[derive(Debug, Default)]
struct Promises {
    /// Acknowledged purges, by version.
    kept: Vec<Promise>,
    /// Versions whose purge was not acknowledged, or was lost in a failover.
    broken: BTreeSet<u64>,
}

/// Acknowledged purge of the versions before `version`.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// First version that later reads may return.
    pub version: u64,
    /// Time of the acknowledgement, by the checker's clock.
    pub at: Duration,
    /// Position in the log of purges, if there is one.
    pub id: u64,
}

/// One read, as the checker needs it.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Begin, by the checker's clock.
    pub began: Duration,
    /// End, by the checker's clock.
    pub ended: Duration,
    /// Version that the read returned.
    pub version: u64,
    /// True if later reads must not return an older version. False if the response was for this
    /// client alone, because it was not stored; also if an entry was replaced during the read,
    /// because only a version could tell which one is newer.
    pub binds: bool,
}

impl Truth {
    /// Current version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Increments the version and returns the new one.
    pub fn change(&self) -> u64 {
        self.version.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Records an acknowledged purge. Purges must be recorded in the order of their versions.
    pub fn promise(&self, promise: Promise) {
        self.promises.lock().kept.push(promise);
    }

    /// Records a purge of `version` that was not acknowledged.
    pub fn no_promise(&self, version: u64) {
        self.promises.lock().broken.insert(version);
    }

    /// Revokes the purges after a log position; returns their number.
    pub fn lose_behind(&self, id: u64) -> usize {
        let mut promises = self.promises.lock();
        let (kept, lost) = promises.kept.iter().partition(|promise| promise.id <= id);
        promises.kept = kept;
        let lost: Vec<Promise> = lost;
        promises.broken.extend(lost.iter().map(|promise| promise.version));
        lost.len()
    }

    /// Oldest version that a read beginning at `when` may return, where instances may lag by
    /// `bound`.
    #[must_use]
    pub fn floor(&self, when: Duration, bound: Duration) -> u64 {
        let promises = self.promises.lock();
        let settled = promises.kept.partition_point(|promise| promise.at + bound < when);
        settled.checked_sub(1).map_or(0, |last| promises.kept[last].version)
    }

    /// First read that returned an older version than a read that had ended before it began, unless
    /// a purge in between was revoked. Returns the newer version and the violating read.
    #[must_use]
    pub fn went_back(&self, reads: &[Read]) -> Option<(u64, Read)> {
        let promises = self.promises.lock();
        let mut ended: Vec<&Read> = reads.iter().filter(|read| read.binds).collect();
        ended.sort_unstable_by_key(|read| read.ended);
        let newest: Vec<u64> = ended
            .iter()
            .scan(0, |newest, read| {
                *newest = read.version.max(*newest);
                Some(*newest)
            })
            .collect();
        let violation = |later: &Read| {
            let before = ended.partition_point(|read| read.ended < later.began);
            let newest = newest[before.checked_sub(1)?];
            let is_undone = || promises.broken.range(later.version + 1..=newest).next().is_some();
            (newest > later.version && !is_undone()).then_some((newest, *later))
        };
        reads.iter().find_map(violation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn promised(versions: &[(u64, u64)]) -> Truth {
        let truth = Truth::default();
        for (version, millis) in versions {
            truth.promise(Promise { version: *version, at: at(*millis), id: *version * 10 });
        }
        truth
    }

    fn read(began: u64, version: u64) -> Read {
        Read { began: at(began), ended: at(began + 1), version, binds: true }
    }

    #[test]
    fn acknowledged_purges_bind_reads_after_the_bound() {
        let truth = promised(&[(1, 10), (2, 20)]);
        for (when, floor) in [(12, 0), (15, 0), (16, 1), (25, 1), (26, 2)] {
            assert_eq!(truth.floor(at(when), at(5)), floor, "{when}");
        }
        assert_eq!(truth.lose_behind(10), 1);
        assert_eq!(truth.floor(at(26), at(5)), 1);
    }

    #[test]
    fn a_read_of_an_older_version_is_found_unless_the_purge_was_revoked() {
        let back = [read(1, 1), read(5, 3), read(8, 2)];
        let truth = promised(&[(1, 1), (2, 2), (3, 3)]);
        let (newest, later) = truth.went_back(&back).expect("it went back");
        assert_eq!((newest, later.version), (3, 2));
        let overlap = [read(1, 1), read(5, 3), read(6, 2)];
        assert!(truth.went_back(&overlap).is_none(), "none had ended before");
        assert_eq!(truth.lose_behind(20), 1);
        assert!(truth.went_back(&back).is_none(), "it was lost");
        let alone = [Read { binds: false, ..read(5, 3) }, read(8, 2)];
        assert!(promised(&[]).went_back(&alone).is_none());
        let further = [read(1, 2), read(5, 1)];
        assert!(truth.went_back(&further).is_some(), "what was lost came later");
        truth.no_promise(2);
        assert!(truth.went_back(&further).is_none());
    }
}
