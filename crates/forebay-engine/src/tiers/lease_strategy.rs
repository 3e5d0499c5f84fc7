//! What is to be expected of a look into a tier that is shared.
//!
//! Who looks there for a flight that may load has two ways. A plain read is the cheapest question
//! there is, but where nothing stands, the lease is one more exchange. Asking for what stands
//! there *or* the lease is one exchange in any case; where something stands, it costs the server
//! several times what a plain read does. So the first is for tiers that mostly have what they are
//! asked for, and are near; the second is for all others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tier::Stored;
use crate::tiers::lease::Lease;

/// Of so many looks, as many as a word has bits, it is remembered what they brought.
const LOOKS: u32 = u64::BITS;

/// Of how many looks the time is smoothed over.
const SMOOTHED: u64 = 4;

/// A tier that takes this part of its time for one exchange is too far away for two.
const FAR: u32 = 4;

/// What reading a record is called.
pub(crate) const OPEN: &str = "open";

/// What asking for a lease is called.
pub(crate) const LEASE: &str = "lease";

/// What a look can bring, and how the look for it is called.
pub(crate) trait Looked {
    const OP: &'static str;

    /// Whether something stood there.
    fn has_found(&self) -> bool;
}

/// One that reads a record.
impl Looked for Option<Stored> {
    const OP: &'static str = OPEN;

    fn has_found(&self) -> bool {
        self.is_some()
    }
}

/// One that asks for the lease of what is not there, too.
impl Looked for Lease {
    const OP: &'static str = LEASE;

    fn has_found(&self) -> bool {
        matches!(self, Self::Filled(_))
    }
}

/// The last looks. Some are lost where several end at once: each is one of many.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    /// A bit for each, the last one lowest: whether something stood there.
    found: AtomicU64,
    /// How long they took, smoothed, in microseconds.
    took: AtomicU64,
}

impl Outlook {
    /// Whether to ask for the lease in the same exchange, of a tier that may take so long.
    pub(crate) fn is_for_leases(&self, budget: Duration) -> bool {
        let found = self.found.load(Ordering::Relaxed).count_ones();
        found * 2 < LOOKS || Duration::from_micros(self.took.load(Ordering::Relaxed)) * FAR > budget
    }

    /// What a look has brought.
    pub(crate) fn note(&self, found: bool) {
        let before = self.found.load(Ordering::Relaxed);
        self.found.store(before << 1 | u64::from(found), Ordering::Relaxed);
    }

    /// What it took, whatever it has brought.
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
