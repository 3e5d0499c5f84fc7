//! Clock and random numbers: the only place in the engine that reads the time or generates random
//! numbers.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::time::Duration;

use forebay_core::judge::Dice;
use forebay_core::{Timestamp, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// Source of time for the engine and its front ends. Tests replace it by a stepped clock.
pub trait Clock: Send + Sync + 'static {
    /// Returns the monotonic time, coarse: it may lag by up to 10 ms.
    fn now(&self) -> Timestamp;

    /// Returns the wall-clock time, coarse like [`now`](Self::now), for dates that machines exchange.
    fn wall(&self) -> WallTime;

    /// Returns the monotonic time since a fixed moment, exact to the microsecond, to measure
    /// durations.
    fn exact(&self) -> Duration;
}

/// Clocks of the operating system.
///
/// `now` and `wall` read the kernel's coarse clocks: about 5 ns and no wake-up, while a ticking thread
/// would wake an idle process a thousand times a second. These clocks move once per scheduler tick, 1 to
/// 10 ms; lifetimes and dates are whole seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        coarse_now()
    }

    fn wall(&self) -> WallTime {
        coarse_wall()
    }

    fn exact(&self) -> Duration {
        let spec = clock_gettime(ClockId::Monotonic);
        let [seconds, nanos] = [spec.tv_sec, spec.tv_nsec].map(i64::cast_unsigned);
        Duration::from_secs(seconds) + Duration::from_nanos(nanos)
    }
}

#[cfg(target_os = "linux")]
fn coarse_now() -> Timestamp {
    let spec = clock_gettime(ClockId::MonotonicCoarse);
    Timestamp::from_millis(spec.tv_sec.saturating_mul(1_000) + spec.tv_nsec / 1_000_000)
}

#[cfg(target_os = "linux")]
fn coarse_wall() -> WallTime {
    let spec = clock_gettime(ClockId::RealtimeCoarse);
    WallTime::from_secs(u64::try_from(spec.tv_sec).unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
fn coarse_wall() -> WallTime {
    let spec = clock_gettime(ClockId::Realtime);
    WallTime::from_secs(u64::try_from(spec.tv_sec).unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
fn coarse_now() -> Timestamp {
    let spec = clock_gettime(ClockId::Monotonic);
    Timestamp::from_millis(spec.tv_sec.saturating_mul(1_000) + spec.tv_nsec / 1_000_000)
}

/// Random numbers of one thread: an xorshift generator, seeded per thread from the process's random
/// state. Early refresh needs spread, not secrecy.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadDice;

thread_local! {
    static STATE: Cell<u64> = Cell::new(random_seed());
}

impl ThreadDice {
    /// Seeds the generator of this thread, so that tests are reproducible.
    pub fn seed(seed: u64) {
        // The generator spreads a small seed over few bits at first, and never leaves zero.
        STATE.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    }
}

impl Dice for ThreadDice {
    fn unit(&mut self) -> f64 {
        let drawn = STATE.with(|state| {
            let mut x = state.get();
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            state.set(x);
            x
        });
        // 53 bits give every step of a double in (0, 1]; zero is excluded for the logarithm.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let unit = ((drawn >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        unit
    }
}

/// Returns 128 unpredictable bits: from a keyed hash whose keys the system generated.
#[must_use]
pub fn unforeseeable() -> u128 {
    let half = || u128::from(std::hash::RandomState::new().hash_one(std::thread::current().id()));
    (half() << 64) | half()
}

/// Returns a number that differs between threads and processes.
pub(crate) fn random_seed() -> u64 {
    let seed = ahash::RandomState::new().hash_one(std::thread::current().id());
    // A generator of this kind never leaves zero.
    seed | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_stay_in_their_interval_and_spread() {
        let throws: Vec<f64> = (0..10_000).map(|_| ThreadDice.unit()).collect();
        assert!(throws.iter().all(|throw| *throw > 0.0 && *throw <= 1.0));
        let mean = throws.iter().sum::<f64>() / 10_000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }

    #[test]
    fn seeded_dice_fall_the_same_way_again() {
        let throws = |seed| {
            ThreadDice::seed(seed);
            (0..100).map(|_| ThreadDice.unit()).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
    }

    #[test]
    fn the_coarse_clock_goes_forward_with_the_exact_one() {
        let clock = SystemClock;
        let (coarse, exact) = (clock.now(), clock.exact());
        while clock.exact() - exact < Duration::from_millis(40) {
            std::hint::spin_loop();
        }
        let passed = clock.now().since(coarse);
        assert!(passed >= Duration::from_millis(20), "{passed:?}");
    }
}
