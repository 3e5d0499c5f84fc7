//! Histogram of durations that is written without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of bucket bounds.
const BOUNDS: usize = 72;

/// Number of buckets; the last one has no bound.
const BUCKETS: usize = BOUNDS + 1;

/// Bucket bounds in nanoseconds: ten per decade, from 5 microseconds to 60 seconds.
const NANOS: [u64; BOUNDS] = bounds();

/// Steps of a decade, in tenths.
const STEPS: [u64; 10] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];

/// Smallest bound, in nanoseconds.
const LEAST: u64 = 5_000;

/// Largest bound, in nanoseconds.
const MOST: u64 = 60_000_000_000;

/// Number of the bounds that the metrics export: 1, 2 and 5 of each decade, and the largest.
const EXPORTED: usize = 22;

const fn bounds() -> [u64; BOUNDS] {
    let (mut bounds, mut at) = ([0; BOUNDS], 0);
    let mut decade = LEAST / 5;
    while decade < MOST {
        let mut step = 0;
        while step < STEPS.len() {
            let bound = decade * STEPS[step] / 10;
            if bound >= LEAST && bound <= MOST {
                bounds[at] = bound;
                at += 1;
            }
            step += 1;
        }
        decade *= 10;
    }
    assert!(at == BOUNDS, "the number of bounds");
    bounds
}

/// Durations by bucket, and their sum. The buckets are relaxed counters.
#[derive(Debug)]
pub(super) struct Latency {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], nanos: AtomicU64::new(0) }
    }
}

impl Latency {
    /// Adds a duration.
    pub(super) fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = NANOS.partition_point(|bound| *bound < nanos);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// Sum of several histograms at one time.
#[derive(Clone, Debug)]
pub(super) struct LatencySum {
    buckets: [u64; BUCKETS],
    nanos: u64,
}

impl Default for LatencySum {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], nanos: 0 }
    }
}

impl LatencySum {
    /// Adds the values of a histogram.
    pub(super) fn add(&mut self, latency: &Latency) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&latency.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        self.nanos = self.nanos.wrapping_add(latency.nanos.load(Ordering::Relaxed));
    }

    /// Returns the number of durations.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the durations in seconds.
    pub(super) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanos).as_secs_f64()
    }

    /// Returns the exported buckets: upper bound in seconds and number of durations, not
    /// cumulative.
    pub(super) fn exported(&self) -> [(f64, u64); EXPORTED + 1] {
        let mut exported = [(f64::INFINITY, 0); EXPORTED + 1];
        let (mut at, mut sum) = (0, 0);
        for (bound, count) in NANOS.iter().zip(&self.buckets) {
            sum += count;
            if is_exported(*bound) {
                exported[at] = (seconds(*bound), sum);
                (at, sum) = (at + 1, 0);
            }
        }
        exported[EXPORTED].1 = self.buckets[BOUNDS];
        exported
    }
}

/// Bounds below a second are whole microseconds, so the quotient is the decimal that is printed.
fn seconds(nanos: u64) -> f64 {
    let micros = u32::try_from(nanos / 1_000).unwrap_or(u32::MAX);
    f64::from(micros) / 1e6
}

const fn is_exported(bound: u64) -> bool {
    let mut first = bound;
    while first >= 10 {
        first /= 10;
    }
    let is_step = matches!(first, 1 | 2 | 5) && is_round(bound) && bound != 50_000_000_000;
    is_step || bound == MOST
}

/// Returns `true` if only the first digit is not 0.
const fn is_round(bound: u64) -> bool {
    let mut rest = bound;
    while rest >= 10 {
        if !rest.is_multiple_of(10) {
            return false;
        }
        rest /= 10;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exported(durations: &[Duration]) -> Vec<(f64, u64)> {
        let latency = Latency::default();
        durations.iter().for_each(|took| latency.observe(*took));
        let mut sum = LatencySum::default();
        sum.add(&latency);
        assert_eq!(sum.count(), durations.len() as u64);
        let exported = sum.exported();
        assert_eq!(exported.iter().map(|(_, count)| count).sum::<u64>(), sum.count());
        exported.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn exported_bounds_are_one_two_and_five_of_each_decade() {
        let bounds: Vec<_> = LatencySum::default().exported().iter().map(|(b, _)| *b).collect();
        let expected = [
            5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2,
            0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0,
        ];
        assert_eq!(bounds[..EXPORTED], expected);
        assert!(bounds[EXPORTED].is_infinite());
        assert!(NANOS.is_sorted());
    }

    #[test]
    fn a_duration_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let nanos = Duration::from_nanos;
        assert_eq!(exported(&[nanos(0), nanos(5_000)]), [(5e-6, 2)]);
        assert_eq!(exported(&[nanos(5_001), nanos(10_000)]), [(1e-5, 2)]);
        assert_eq!(exported(&[nanos(10_001)]), [(2e-5, 1)]);
        assert_eq!(exported(&[Duration::from_secs(60)]), [(60.0, 1)]);
        assert_eq!(exported(&[nanos(60_000_000_001)]), [(f64::INFINITY, 1)]);
    }
}
