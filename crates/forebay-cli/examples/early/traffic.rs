//! Who asks for what, and when: drawn from a seed, so that both caches are asked alike.

use std::time::Duration;

/// Requests in a second, on average.
pub(crate) const RATE: f64 = 860.0;

/// The middle of the keys that are asked for, and how far they stray from it.
const MIDDLE: f64 = 50.0;
const SPREAD: f64 = 2.0;

/// How many keys there are, from 0. Thirteen times the spread from the middle, nobody asks.
pub(crate) const KEYS: usize = 77;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// When it comes, from the start.
    pub(crate) at: Duration,
    /// What it asks for.
    pub(crate) key: usize,
}

/// The requests that a seed gives, for ever.
#[derive(Debug)]
pub(crate) struct Traffic {
    dice: Dice,
    at: f64,
}

impl Traffic {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self { dice: Dice(seed), at: 0.0 }
    }
}

impl Iterator for Traffic {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.at += -self.dice.unit().ln() / RATE;
        let key = (MIDDLE + SPREAD * self.dice.normal()).round().clamp(0.0, (KEYS - 1) as f64);
        #[expect(clippy::cast_possible_truncation, reason = "it lies between 0 and KEYS")]
        #[expect(clippy::cast_sign_loss, reason = "it lies between 0 and KEYS")]
        let key = key as usize;
        Some(Arrival { at: Duration::from_secs_f64(self.at), key })
    }
}

/// SplitMix64: every seed gives a good sequence, also one after another.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Of the standard normal distribution, as Box and Muller draw it.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}
