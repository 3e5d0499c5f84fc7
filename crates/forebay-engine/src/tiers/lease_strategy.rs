//! Strategy of lookups in a shared tier: a plain read, or a request for the record or its lease.
//!
//! A flight that may load has two ways to look in the shared tier. A plain read costs the server
//! least, but if there is no record, the lease needs another exchange. A request for the record
//! *or* the lease is always one exchange, but if there is a record, it costs the server several
//! times as much. So a near tier with a high hit ratio is read plainly, and every other tier is
//! asked for both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tier::Stored;
use crate::tiers::lease::Lease;

/// Number of lookups whose results are remembered: as many as a word has bits.
const LOOKS: u32 = u64::BITS;

/// Number of lookups over which the duration is smoothed.
const SMOOTHED: u64 = 4;

/// Fraction of its time limit above which a tier is too slow for two exchanges.
const FAR: u32 = 4;

/// Name of the operation that reads a record.
pub(crate) const OPEN: &str = "open";

/// Name of the operation that requests a lease.
pub(crate) const LEASE: &str = "lease";

/// Result of a lookup, and the name of its operation.
pub(crate) trait Looked {
    const OP: &'static str;

    /// Returns `true` if there was a record.
    fn has_found(&self) -> bool;
}

/// Result of a plain read.
impl Looked for Option<Stored> {
    const OP: &'static str = OPEN;

    fn has_found(&self) -> bool {
        self.is_some()
    }
}

/// Result of a request for the record or the lease.
impl Looked for Lease {
    const OP: &'static str = LEASE;

    fn has_found(&self) -> bool {
        matches!(self, Self::Filled(_))
    }
}

/// Recent lookups. Concurrent updates may be lost: each is one of many.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    /// One bit per lookup, the latest lowest: `1` if there was a record.
    found: AtomicU64,
    /// Smoothed duration, in microseconds.
    took: AtomicU64,
}

impl Outlook {
    /// Returns `true` if a lookup in a tier with this time limit should request the lease, too.
    pub(crate) fn is_for_leases(&self, budget: Duration) -> bool {
        let found = self.found.load(Ordering::Relaxed).count_ones();
        found * 2 < LOOKS || Duration::from_micros(self.took.load(Ordering::Relaxed)) * FAR > budget
    }

    /// Notes the result of a lookup.
    pub(crate) fn note(&self, found: bool) {
        let before = self.found.load(Ordering::Relaxed);
        self.found.store(before << 1 | u64::from(found), Ordering::Relaxed);
    }

    /// Notes the duration of a lookup.
    pub(crate) fn note_time(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX / SMOOTHED);
        let before = self.took.load(Ordering::Relaxed);
        let smoothed = before - before / SMOOTHED + took / SMOOTHED;
        self.took.store(smoothed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_millis(50);

    #[test]
    fn a_tier_that_has_what_it_is_asked_for_is_read_plainly() {
        let outlook = Outlook::default();
        assert!(outlook.is_for_leases(BUDGET), "nothing is known yet");
        (1..LOOKS / 2).for_each(|_| outlook.note(true));
        assert!(outlook.is_for_leases(BUDGET));
        outlook.note(true);
        assert!(!outlook.is_for_leases(BUDGET), "half of the looks have found something");
        (0..LOOKS / 2).for_each(|_| outlook.note(false));
        assert!(!outlook.is_for_leases(BUDGET));
        outlook.note(false);
        assert!(outlook.is_for_leases(BUDGET));
    }

    #[test]
    fn a_tier_that_is_far_away_is_asked_once_whatever_it_has() {
        let outlook = Outlook::default();
        (0..LOOKS).for_each(|_| outlook.note(true));
        (0..20).for_each(|_| outlook.note_time(BUDGET / 5));
        assert!(!outlook.is_for_leases(BUDGET));
        (0..20).for_each(|_| outlook.note_time(BUDGET / 3));
        assert!(outlook.is_for_leases(BUDGET));
        assert!(!outlook.is_for_leases(BUDGET * 2));
        outlook.note_time(Duration::MAX);
        assert!(outlook.is_for_leases(Duration::from_secs(3_600)), "and it does not overflow");
        (0..200).for_each(|_| outlook.note_time(Duration::ZERO));
        assert!(!outlook.is_for_leases(BUDGET));
    }
}
