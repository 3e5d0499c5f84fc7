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
    /// Source of the answer, for the report.
    pub via: &'static str,
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

    /// Returns the first read that returned an older version than a read that had ended before it
    /// began, with the newer version.
    ///
    /// A version counts from `delay` after the acknowledgment of its purge; `delay` is the time that
    /// a message of the bus takes. Before that both versions may be read, in any order: loads
    /// overlap, and the origin of one may read the new version before that of another reads the old
    /// one. Versions whose purge was revoked are ignored.
    #[must_use]
    pub fn went_back(&self, reads: &[Read], delay: Duration) -> Option<(u64, Read)> {
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
            let purged = self.floor(later.began, delay);
            let promises = self.promises.lock();
            let is_undone = || promises.broken.range(later.version + 1..=newest).next().is_some();
            (newest.min(purged) > later.version && !is_undone()).then_some((newest, *later))
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
        Read { began: at(began), ended: at(began + 1), version, binds: true, via: "" }
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
        let (newest, later) = truth.went_back(&back, at(0)).expect("it went back");
        assert_eq!((newest, later.version), (3, 2));
        let overlap = [read(1, 1), read(5, 3), read(6, 2)];
        assert!(truth.went_back(&overlap, at(0)).is_none(), "none had ended before");
        assert_eq!(truth.lose_behind(20), 1);
        assert!(truth.went_back(&back, at(0)).is_none(), "it was lost");
        let truth = promised(&[(1, 1), (2, 2), (3, 3)]);
        let alone = [Read { binds: false, ..read(5, 3) }, read(8, 2)];
        assert!(truth.went_back(&alone, at(0)).is_none());
        let further = [read(1, 2), read(5, 1)];
        assert!(truth.went_back(&further, at(0)).is_some(), "what was lost came later");
        truth.no_promise(2);
        assert!(truth.went_back(&further, at(0)).is_none());
    }

    #[test]
    fn a_version_counts_from_when_its_purge_has_reached_all() {
        let truth = promised(&[(1, 1), (2, 2), (3, 20)]);
        let ahead = |began, version| [read(5, 3), read(began, version)];
        for (began, version, is_back) in
            [(10, 2, false), (25, 2, false), (26, 2, true), (10, 1, true), (30, 3, false)]
        {
            let back = truth.went_back(&ahead(began, version), at(5));
            assert_eq!(back.is_some(), is_back, "{began} {version}");
        }
    }
}
