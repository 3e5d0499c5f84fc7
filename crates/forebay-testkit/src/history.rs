//! What is true of one key, what was promised of it, and whether reads keep to that.
//!
//! A truth is a number that grows. Whoever changes it purges what was stored of it, and once that
//! is acknowledged, it is a promise: who begins to read later is given nothing older.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

/// What is true of one key.
#[derive(Debug, Default)]
pub struct Truth {
    version: AtomicU64,
    /// Who changes it. Two writers at a time would leave the order of what they write open.
    pub turn: Turn<()>,
    promises: Mutex<Promises>,
}

/// Which versions everybody was told of.
#[derive(Debug, Default)]
struct Promises {
    /// In their order.
    kept: Vec<Promise>,
    /// What nobody could be told of, or what a failover has lost: it may be undone.
    broken: BTreeSet<u64>,
}

/// Since when those before a version were known to be purged, by which entry of the log.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The first that may be read.
    pub version: u64,
    /// When it was acknowledged, by the clock of whoever checks.
    pub at: Duration,
    /// Its place in the log of purges, where there is one.
    pub id: u64,
}

/// One read, as the checker has to know it.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// By the clock of whoever checks.
    pub began: Duration,
    /// By the same.
    pub ended: Duration,
    /// What it was given.
    pub version: u64,
    /// Whether those who come later are to be given nothing older. Not if it was for its caller
    /// alone, which says nothing of what is stored; nor if something was put in its place
    /// meanwhile, which may be the older of the two: only a version could tell.
    pub binds: bool,
    /// Source of the answer, for the report.
    pub via: &'static str,
}

impl Truth {
    /// What is true now.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// The next version, which is true from now on.
    pub fn change(&self) -> u64 {
        self.version.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Everybody was told. Promises come in the order of their versions.
    pub fn promise(&self, promise: Promise) {
        self.promises.lock().kept.push(promise);
    }

    /// Nobody knows who was told of this version.
    pub fn no_promise(&self, version: u64) {
        self.promises.lock().broken.insert(version);
    }

    /// Everything behind this entry of the log is lost. How many promises that has broken.
    pub fn lose_behind(&self, id: u64) -> usize {
        let mut promises = self.promises.lock();
        let (kept, lost) = promises.kept.iter().partition(|promise| promise.id <= id);
        promises.kept = kept;
        let lost: Vec<Promise> = lost;
        promises.broken.extend(lost.iter().map(|promise| promise.version));
        lost.len()
    }

    /// Nothing older than this may be read by who begins at `when`, where instances may be behind
    /// by `bound`.
    #[must_use]
    pub fn floor(&self, when: Duration, bound: Duration) -> u64 {
        let promises = self.promises.lock();
        let settled = promises.kept.partition_point(|promise| promise.at + bound < when);
        settled.checked_sub(1).map_or(0, |last| promises.kept[last].version)
    }

    /// Returns the first read that was given an older version than a read that had ended before it
    /// began, with the version of that one.
    ///
    /// A version counts from when its purge was acknowledged and `delay` has passed, the time that
    /// a message of the bus takes. Before, both may be read, in any order: loads overlap, and the
    /// origin of one may have read the new version before that of another has read the old one.
    /// Versions whose purge was undone count for nothing.
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
    fn what_was_promised_holds_after_the_bound() {
        let truth = promised(&[(1, 10), (2, 20)]);
        for (when, floor) in [(12, 0), (15, 0), (16, 1), (25, 1), (26, 2)] {
            assert_eq!(truth.floor(at(when), at(5)), floor, "{when}");
        }
        assert_eq!(truth.lose_behind(10), 1);
        assert_eq!(truth.floor(at(26), at(5)), 1);
    }

    #[test]
    fn who_goes_back_is_found_unless_it_was_undone() {
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
