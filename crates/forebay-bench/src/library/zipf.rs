//! Request distribution: ranks by Zipf's law with an exponent of 1, equal in every run.

use fastrand::Rng;

/// Endless iterator of ranks, from 0.
pub(crate) fn zipf(keys: usize, seed: u64) -> impl Iterator<Item = usize> {
    let mut random = Rng::with_seed(seed);
    let mut sum = 0.0;
    let below = (1..=keys).map(|rank| {
        sum += 1.0 / rank as f64;
        sum
    });
    let below: Vec<f64> = below.collect();
    std::iter::repeat_with(move || {
        let drawn = random.f64() * below[keys - 1];
        below.partition_point(|edge| *edge < drawn)
    })
}
