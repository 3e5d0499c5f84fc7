//! Histogram of durations that is written without a lock.

use std::fmt;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

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

/// Duration and its bucket, which several histograms may share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    bucket: usize,
    nanos: u64,
}

impl From<Duration> for Observed {
    fn from(took: Duration) -> Self {
        let seconds = took.as_secs().saturating_mul(1_000_000_000);
        let nanos = seconds.saturating_add(took.subsec_nanos().into());
        Self { bucket: NANOS.partition_point(|bound| *bound < nanos), nanos }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], nanos: AtomicU64::new(0) }
    }
}

impl Latency {
    /// Adds a duration.
    pub(super) fn observe(&self, took: Observed) {
        self.buckets[took.bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(took.nanos, Ordering::Relaxed);
    }
}

/// Histogram of durations as a member of a metric family. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedLatency(Arc<Latency>);

impl SharedLatency {
    /// Adds a duration.
    pub(super) fn observe(&self, took: Duration) {
        self.0.observe(took.into());
    }

    /// Returns the current values.
    pub(super) fn sum(&self) -> LatencySum {
        let mut sum = LatencySum::default();
        sum.add(&self.0);
        sum
    }
}

impl TypedMetric for SharedLatency {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for SharedLatency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let sum = self.sum();
        let (seconds, count, buckets) = (sum.seconds(), sum.count(), sum.exported());
        encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Range of durations that contains a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyBucket(NonZeroU8);

impl LatencyBucket {
    fn of(bucket: usize) -> Option<Self> {
        Some(Self(NonZeroU8::new(u8::try_from(bucket + 1).ok()?)?))
    }

    /// Returns a duration that differs by at most 15 % from each duration in the bucket; of the
    /// last bucket, its lower bound, and of the first, its upper bound.
    #[must_use]
    pub fn duration(self) -> Duration {
        let bucket = usize::from(self.0.get()) - 1;
        let bound = |at: usize| Duration::from_nanos(NANOS[at.min(BOUNDS - 1)]);
        let (lower, upper) = (bound(bucket.saturating_sub(1)), bound(bucket));
        Duration::from_secs_f64((lower.as_secs_f64() * upper.as_secs_f64()).sqrt())
    }
}

/// Sum of several histograms at one time.
#[derive(Clone, Debug)]
pub struct LatencySum {
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

    /// Adds the values of another sum.
    pub fn merge(&mut self, other: &Self) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += bucket;
        }
        self.nanos = self.nanos.wrapping_add(other.nanos);
    }

    /// Returns the values that were added since `earlier`, a sum of the same histograms.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let buckets =
            std::array::from_fn(|at| self.buckets[at].saturating_sub(earlier.buckets[at]));
        Self { buckets, nanos: self.nanos.wrapping_sub(earlier.nanos) }
    }

    /// Returns the bucket that contains the duration which `percent` % of the durations do not
    /// exceed; `None` without durations.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<LatencyBucket> {
        let rank = (self.count() * percent).div_ceil(100).max(1);
        let mut counted = 0;
        let bucket = self.buckets.iter().position(|count| {
            counted += count;
            counted >= rank
        });
        LatencyBucket::of(bucket?)
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
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
        durations.iter().for_each(|took| latency.observe((*took).into()));
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
    fn a_percentile_is_within_15_percent_of_the_duration() {
        let (mut all, mut first) = (LatencySum::default(), LatencySum::default());
        assert_eq!(all.percentile(50), None);
        let latency = Latency::default();
        // 100 durations that grow by 15 % each, from 10 microseconds to about 10 seconds.
        let durations: Vec<f64> = (0..100).map(|step| 1e-5 * 1.15_f64.powi(step)).collect();
        for (place, took) in durations.iter().enumerate() {
            latency.observe(Duration::from_secs_f64(*took).into());
            if place == 49 {
                first.add(&latency);
            }
        }
        all.add(&latency);
        for (percent, sum, place) in
            [(1, &all, 0), (50, &all, 49), (99, &all, 98), (100, &first, 49)]
        {
            let found = sum.percentile(percent).unwrap().duration().as_secs_f64();
            let ratio = found / durations[place];
            assert!((0.85..=1.16).contains(&ratio), "{percent}: {ratio}");
        }
        let later = all.since(&first);
        assert_eq!(later.count(), 50);
        let least = later.percentile(1).unwrap().duration().as_secs_f64();
        assert!((0.85..=1.16).contains(&(least / durations[50])));
        first.merge(&later);
        assert_eq!(first.percentile(75), all.percentile(75));
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
