//! What the guard turned away, counted by the limit that was hit.

use std::sync::atomic::{AtomicU64, Ordering};

use super::client_timeouts::Lapse;
use super::framing::Refusal;

/// Counters of all guarded connections; shared behind an `Arc` and read by the metrics.
#[derive(Debug, Default)]
pub struct FrontCounters {
    refused: [AtomicU64; Refusal::ALL.len()],
    lapsed: [AtomicU64; Lapse::ALL.len()],
    crowded: AtomicU64,
    idle_tunnels: AtomicU64,
    lost_interims: AtomicU64,
    answers: AtomicU64,
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

    /// How many connections were turned away since there were as many as there may be.
    pub fn crowded(&self) -> u64 {
        self.crowded.load(Ordering::Relaxed)
    }

    /// How many tunnels were cut because nothing moved in them.
    pub fn idle_tunnels(&self) -> u64 {
        self.idle_tunnels.load(Ordering::Relaxed)
    }

    /// How many interim responses were left out since their client had as many as it may, or did
    /// not take them.
    pub fn lost_interims(&self) -> u64 {
        self.lost_interims.load(Ordering::Relaxed)
    }

    /// Every limit by its label, and how often it was hit; the list is the same at all times.
    pub fn limits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let refused = Refusal::ALL.into_iter().map(|why| (why.label(), self.refused(why)));
        let lapsed = Lapse::ALL.into_iter().map(|lapse| (lapse.label(), self.lapsed(lapse)));
        let others = [
            ("connections", self.crowded()),
            ("idle-tunnel", self.idle_tunnels()),
            ("interims", self.lost_interims()),
        ];
        refused.chain(lapsed).chain(others)
    }

    /// A number for one more answer that refuses something; no other has it.
    pub(crate) fn next_answer(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn count_refusal(&self, why: Refusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_lapse(&self, lapse: Lapse) {
        self.lapsed[lapse as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_crowded(&self) {
        self.crowded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_lost_interim(&self) {
        self.lost_interims.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_idle_tunnel(&self) {
        self.idle_tunnels.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_counter_and_a_label_of_its_own() {
        let counters = FrontCounters::default();
        assert!(counters.limits().all(|(_, count)| count == 0));
        let mut labels: Vec<_> = counters.limits().map(|(label, _)| label).collect();
        let known = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), known);

        for why in Refusal::ALL {
            counters.count_refusal(why);
            assert_eq!(counters.refused(why), 1, "{why:?}");
        }
        for lapse in Lapse::ALL {
            counters.count_lapse(lapse);
            assert_eq!(counters.lapsed(lapse), 1, "{lapse:?}");
        }
        counters.count_crowded();
        counters.count_idle_tunnel();
        counters.count_lost_interim();
        assert!(counters.limits().all(|(_, count)| count == 1));
        assert_ne!(counters.next_answer(), counters.next_answer());
    }
}
