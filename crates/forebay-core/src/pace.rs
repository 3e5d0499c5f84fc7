//! Schedules: how long to hold back after failures, how lifetimes are spread, and how what a load
//! costs is learned.

use std::time::Duration;

/// What is waited after a second failure in a row: longer than a connection takes to be refused,
/// shorter than anybody would notice.
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);

/// What is waited at most, so that recovery is noticed within a second.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// A lifetime is spread by this part of itself, up and down: entries that were loaded together
/// should not expire together.
const JITTER: f64 = 0.05;

/// The weight of the newest measurement of what a load costs, as a divisor: one slow load among
/// many should not make a key be refreshed much earlier.
const COST_DIVISOR: u32 = 4;

/// How long nothing is loaded after so many failures in a row. The first costs nothing: a
/// connection that was reset once should fail one request, not all of the next moment. `chance` in
/// (0, 1] takes up to half of it away, so that many keys that failed together do not come back
/// together.
#[must_use]
pub fn back_off(failures: u32, chance: f64) -> Duration {
    // Ten doublings are far beyond the bound.
    let Some(doublings) = failures.checked_sub(2).map(|more| more.min(10)) else {
        return Duration::ZERO;
    };
    let whole = (BACK_OFF_FIRST * 2_u32.pow(doublings)).min(BACK_OFF_MAX);
    whole.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
}

/// A lifetime that nobody but this cache has chosen, spread by up to 5 % either way. What an
/// origin states is never made longer, and so is not spread at all.
#[must_use]
pub fn spread(lifetime: Duration, chance: f64) -> Duration {
    let by = (chance.clamp(0.0, 1.0) * 2.0 - 1.0) * JITTER;
    let seconds = lifetime.as_secs_f64() * (1.0 + by);
    Duration::try_from_secs_f64(seconds).unwrap_or(lifetime)
}

/// What a load costs, after one that took `measured` where it was `known` before; nothing is known
/// at zero.
#[must_use]
pub fn smoothed(known: Duration, measured: Duration) -> Duration {
    if known.is_zero() {
        return measured;
    }
    known - known / COST_DIVISOR + measured / COST_DIVISOR
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn each_failure_after_the_first_doubles_the_wait_up_to_a_second() {
        let rows = [(0, 0), (1, 0), (2, 100), (3, 200), (4, 400), (5, 800), (6, 1_000)];
        let rows = rows.into_iter().chain([(u32::MAX, 1_000)]);
        for (failures, expected) in rows {
            assert_eq!(back_off(failures, 0.0), millis(expected), "{failures} failures");
            assert_eq!(back_off(failures, 1.0), millis(expected) / 2, "{failures} failures");
        }
    }

    #[test]
    fn lifetimes_are_spread_by_a_twentieth() {
        assert_eq!(spread(millis(1_000), 0.0), millis(950));
        assert_eq!(spread(millis(1_000), 0.5), millis(1_000));
        assert_eq!(spread(millis(1_000), 1.0), millis(1_050));
        assert_eq!(spread(Duration::MAX, 1.0), Duration::MAX);
        assert_eq!(spread(Duration::ZERO, 1.0), Duration::ZERO);
    }

    #[test]
    fn one_slow_load_moves_what_is_known_by_a_quarter() {
        assert_eq!(smoothed(Duration::ZERO, millis(90)), millis(90));
        assert_eq!(smoothed(millis(100), millis(500)), millis(200));
        assert_eq!(smoothed(Duration::from_micros(80), Duration::from_micros(40)).as_micros(), 70);
    }
}
