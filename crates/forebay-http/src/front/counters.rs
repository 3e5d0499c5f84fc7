//! What the guard turned away, counted by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use super::framing::Refusal;
use super::patience::Lapse;

/// Counters of all guarded connections; shared behind an `Arc` and read by the metrics.
#[derive(Debug, Default)]
pub struct FrontCounters {
    refused: [AtomicU64; Refusal::ALL.len()],
    lapsed: [AtomicU64; Lapse::ALL.len()],
}

impl FrontCounters {
    /// How many connections were refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }

    /// How many connections ended because the peer let this time pass.
    pub fn lapsed(&self, lapse: Lapse) -> u64 {
        self.lapsed[lapse as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count_refusal(&self, why: Refusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_lapse(&self, lapse: Lapse) {
        self.lapsed[lapse as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_counter_and_a_label_of_its_own() {
        let counters = FrontCounters::default();
        for (times, why) in (1..).zip(Refusal::ALL) {
            (0..times).for_each(|_| counters.count_refusal(why));
        }
        for (times, lapse) in (1..).zip(Lapse::ALL) {
            (0..times).for_each(|_| counters.count_lapse(lapse));
        }
        for (times, why) in (1..).zip(Refusal::ALL) {
            assert_eq!(counters.refused(why), times, "{why:?}");
        }
        for (times, lapse) in (1..).zip(Lapse::ALL) {
            assert_eq!(counters.lapsed(lapse), times, "{lapse:?}");
        }
        let mut labels: Vec<_> = Refusal::ALL.iter().map(|why| why.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Refusal::ALL.len());
    }
}
