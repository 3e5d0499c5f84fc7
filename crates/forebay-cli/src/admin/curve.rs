//! Hit ratio of memory if it had another size: models of the memory tier, fed with a share of the keys.
//!
//! The models have ½, 1, 2 and 4 times the size. Their difference to the model of the present size is
//! added to the measured hit ratio, so that an error of all models cancels out.

use std::time::Duration;

use forebay_engine::MemoryModel;
use forebay_http::KeySample;

/// Sizes of the models, as multiples of the present size.
pub(super) const FACTORS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// Place of the model of the present size.
const PRESENT: usize = 1;

/// Samples after which the models are filled, and their hits count.
const FILLING: u64 = 32_768;

/// Samples after which estimates are shown.
const SHOWN: u64 = 100_000;

/// Samples that count at the same time. Above it, all counts are halved, so that old ones fade.
const COUNTED_MAX: u64 = 1_000_000;

/// Entries in the model of the present size above which a smaller share of the keys is sampled.
const ENTRIES_MAX: u64 = 16_384;

/// Samples in a second above which a smaller share of the keys is sampled: they take a hundredth of a
/// core.
const PER_SECOND_MAX: usize = 20_000;

/// Lookups in memory since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lookups {
    pub(super) hits: u64,
    pub(super) all: u64,
}

impl Lookups {
    fn since(self, before: Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(before.hits),
            all: self.all.saturating_sub(before.all),
        }
    }
}

/// Present size of memory, the share of the keys that are sampled, and its entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampled {
    pub(super) size: u64,
    pub(super) share: f64,
    pub(super) entries: u64,
}

/// Models, and what they have counted.
pub(super) struct Curve {
    /// Absent before the first sample, and after a change of the share.
    models: Option<[MemoryModel; FACTORS.len()]>,
    hits: [u64; FACTORS.len()],
    samples: u64,
    /// Samples that count, and the lookups in memory meanwhile.
    counted: u64,
    measured: Lookups,
    last: Lookups,
    /// Mean length of bodies of known length.
    mean: f64,
}

impl Curve {
    pub(super) const fn new() -> Self {
        Self {
            models: None,
            hits: [0; FACTORS.len()],
            samples: 0,
            counted: 0,
            measured: Lookups { hits: 0, all: 0 },
            last: Lookups { hits: 0, all: 0 },
            mean: 0.0,
        }
    }

    /// Adds the samples of a second, and the lookups in memory up to now. Returns true if a smaller
    /// share of the keys must be sampled from now on; then the models begin again.
    pub(super) fn add(
        &mut self,
        samples: &[KeySample],
        now: Duration,
        lookups: Lookups,
        sampled: Sampled,
    ) -> bool {
        let is_counted = self.samples >= FILLING;
        let passed = lookups.since(self.last);
        self.last = lookups;
        if is_counted {
            self.measured.hits += passed.hits;
            self.measured.all += passed.all;
            self.counted += samples.len() as u64;
        }
        let models = self.models.get_or_insert_with(|| {
            FACTORS
                .map(|factor| MemoryModel::new(whole(sampled.size as f64 * sampled.share * factor)))
        });
        for sample in samples {
            let body = sample.body.unwrap_or_else(|| whole(self.mean));
            self.mean += (body as f64 - self.mean) / 1_024.0;
            for (model, hits) in models.iter_mut().zip(&mut self.hits) {
                let is_hit = model.request(sample.key, body, now, Some(sample.lifetime));
                *hits += u64::from(is_hit && is_counted);
            }
        }
        self.samples += samples.len() as u64;
        if self.counted > COUNTED_MAX {
            self.halve();
        }
        let entries = sampled.entries as f64 * sampled.share;
        let is_too_much = entries > ENTRIES_MAX as f64 || samples.len() > PER_SECOND_MAX;
        if is_too_much {
            *self = Self { last: self.last, mean: self.mean, ..Self::new() };
        }
        is_too_much
    }

    fn halve(&mut self) {
        let Lookups { hits, all } = &mut self.measured;
        let counts = self.hits.iter_mut().chain([&mut self.counted, hits, all]);
        counts.for_each(|count| *count /= 2);
    }

    /// Returns the estimated share of lookups that are hits, for each of the [`FACTORS`]. `None` before
    /// there are enough samples.
    pub(super) fn predicted(&self, share: f64) -> Option<[f64; FACTORS.len()]> {
        if self.samples < SHOWN || self.measured.all == 0 {
            return None;
        }
        let all = self.measured.all as f64;
        let present = self.hits[PRESENT] as f64;
        let hits = |of: u64| self.measured.hits as f64 + (of as f64 - present) / share;
        Some(self.hits.map(|of| (hits(of) / all).clamp(0.0, 1.0)))
    }

    /// Returns the number of samples that are missing for an estimate.
    pub(super) const fn missing(&self) -> u64 {
        SHOWN.saturating_sub(self.samples)
    }
}

/// Returns the whole part of a number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a cast saturates, and estimates have no use of fractions"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 128 << 20;
    const SHARE: f64 = 0.25;
    const REQUESTS: usize = 700_000;

    /// Largest error of an estimate.
    const ERROR_MAX: f64 = 0.02;

    /// Numbers of keys with a Zipf distribution.
    fn zipf(keys: usize, exponent: f64, seed: u64) -> impl FnMut() -> u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sum = 0.0;
        let weights: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        move || {
            let drawn = random.f64() * sum;
            weights.partition_point(|weight| *weight < drawn) as u64
        }
    }

    /// Traces of key numbers: popular keys; the same with scans; popularity that shifts.
    fn traces() -> [(&'static str, Vec<u64>); 3] {
        let mut popular = zipf(60_000, 0.9, 1);
        let plain = (0..REQUESTS).map(|_| popular()).collect();
        let mut popular = zipf(60_000, 0.9, 2);
        let mut scanned = 0;
        let scans = (0..REQUESTS).map(|number| {
            if number / 20_000 % 5 == 4 {
                scanned = (scanned + 1) % 200_000;
                1_000_000 + scanned
            } else {
                popular()
            }
        });
        let scans = scans.collect();
        let mut popular = zipf(40_000, 0.8, 3);
        let shifting = (0..REQUESTS).map(|number| popular() + (number as u64 / 40_000) * 500);
        [("popular keys", plain), ("scans", scans), ("shifting popularity", shifting.collect())]
    }

    /// Mixes the bits of a key number (SplitMix64).
    fn mix(number: u64) -> u64 {
        let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    /// Hit ratio of memory of a size, without what comes before the estimates count.
    fn exact(trace: &[u64], size: u64, lifetime: Duration) -> f64 {
        let mut model = MemoryModel::new(size);
        let mut hits = 0;
        let first = trace.len() / 4;
        for (number, key) in trace.iter().enumerate() {
            let (now, body) = (Duration::from_millis(number as u64), 2_000 + mix(*key) % 8_000);
            let is_hit = model.request(mix(*key), body, now, Some(lifetime));
            hits += usize::from(is_hit && number >= first);
        }
        hits as f64 / (trace.len() - first) as f64
    }

    /// Estimates from a share of the keys, beside the lookups of memory of the present size.
    fn estimated(trace: &[u64], lifetime: Duration) -> [f64; FACTORS.len()] {
        let (mut curve, mut memory) = (Curve::new(), MemoryModel::new(SIZE));
        let mut lookups = Lookups::default();
        let sampled = Sampled { size: SIZE, share: SHARE, entries: 0 };
        for (second, requests) in trace.chunks(1_000).enumerate() {
            let mut samples = Vec::new();
            let now = Duration::from_secs(second as u64);
            for key in requests {
                let (key, body) = (mix(*key), 2_000 + mix(*key) % 8_000);
                lookups.all += 1;
                lookups.hits += u64::from(memory.request(key, body, now, Some(lifetime)));
                if (key as f64) < SHARE * u64::MAX as f64 {
                    samples.push(KeySample { key, body: Some(body), lifetime });
                }
            }
            assert!(!curve.add(&samples, now, lookups, sampled));
        }
        curve.predicted(SHARE).expect("enough samples")
    }

    /// On three traces, the estimates are at most two points off.
    #[test]
    fn the_hit_ratio_of_other_sizes_is_estimated() {
        for ((name, trace), lifetime) in traces().into_iter().zip([36_000, 120, 36_000]) {
            let lifetime = Duration::from_secs(lifetime);
            let estimates = estimated(&trace, lifetime);
            for (factor, estimate) in FACTORS.into_iter().zip(estimates) {
                let exact = exact(&trace, whole(SIZE as f64 * factor), lifetime);
                let error = (estimate - exact).abs();
                assert!(error <= ERROR_MAX, "{name}, x{factor}: {estimate:.4}, not {exact:.4}");
            }
        }
    }

    #[test]
    fn too_many_entries_or_samples_begin_with_a_smaller_share() {
        let mut curve = Curve::new();
        let sample = KeySample { key: 1, body: None, lifetime: Duration::from_secs(1) };
        let few = Sampled { size: SIZE, share: SHARE, entries: 1_000 };
        let add = |curve: &mut Curve, count: usize, sampled| {
            curve.add(&vec![sample; count], Duration::ZERO, Lookups::default(), sampled)
        };
        assert!(!add(&mut curve, 10, few));
        assert_eq!((curve.missing(), curve.predicted(SHARE)), (SHOWN - 10, None));
        assert!(add(&mut curve, PER_SECOND_MAX + 1, few));
        assert_eq!(curve.missing(), SHOWN, "the models begin again");
        assert!(add(&mut curve, 1, Sampled { entries: 100_000, ..few }));
    }
}
