//! Request distribution: ranks by Zipf's law with an exponent of 1, equal in every run.

/// An endless row of ranks, from 0.
pub(crate) struct Zipf {
    below: Vec<f64>,
    state: u64,
}

impl Zipf {
    pub(crate) fn new(keys: usize, seed: u64) -> Self {
        let mut sum = 0.0;
        let below = (1..=keys).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self { below: below.collect(), state: seed | 1 }
    }

    /// An even spread over 64 bits: a xorshift generator.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

impl Iterator for Zipf {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let all = *self.below.last()?;
        let drawn = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64 * all;
        let rank = self.below.partition_point(|edge| *edge < drawn);
        Some(rank.min(self.below.len() - 1))
    }
}
