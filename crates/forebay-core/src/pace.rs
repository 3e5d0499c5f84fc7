//! Schedules: back-off after failures, jitter of lifetimes, and the moving average of load costs.

use std::time::Duration;

/// Back-off after the second consecutive failure: longer than a refused connection takes, shorter
/// than a user notices.
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);

/// Maximum back-off, so that a recovery is noticed within a second.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// Jitter of a lifetime, as a fraction of it, in both directions: entries that were loaded together
/// should not expire together.
const JITTER: f64 = 0.05;

/// Inverse weight of the newest measurement in the average load cost: one slow load among many
/// should not cause much earlier refreshes of the key.
const COST_DIVISOR: u32 = 4;

/// Returns the back-off after `failures` consecutive failed loads: zero after the first, 100 ms
/// after the second, then doubled by each further failure up to 1 s. It is zero after the first
/// because one reset connection should fail one request, not those that follow. `chance`, a random
/// number in (0, 1], shortens it by up to one half, so that keys that failed together are not
/// retried together.
#[must_use]
pub fn back_off(failures: u32, chance: f64) -> Duration {
    // Ten doublings are far beyond the bound.
    let Some(doublings) = failures.checked_sub(2).map(|more| more.min(10)) else {
        return Duration::ZERO;
    };
    let whole = (BACK_OFF_FIRST * 2_u32.pow(doublings)).min(BACK_OFF_MAX);
    whole.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
}

/// Returns a lifetime with jitter of up to 5 % in both directions. `chance`, a random number from 0
/// to 1, selects the jitter. Only for lifetimes that the cache chose itself: a lifetime stated by
/// an origin is never extended, and so gets no jitter.
#[must_use]
pub fn spread(lifetime: Duration, chance: f64) -> Duration {
    let by = (chance.clamp(0.0, 1.0) * 2.0 - 1.0) * JITTER;
    let seconds = lifetime.as_secs_f64() * (1.0 + by);
    Duration::try_from_secs_f64(seconds).unwrap_or(lifetime)
}

/// Returns the moving average of the load cost after a load that took `measured`, which counts a
/// quarter; `known` is the average so far, zero if there is none.
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
    fn each_failure_after_the_first_doubles_the_back_off_up_to_a_second() {
        let rows = [(0, 0), (1, 0), (2, 100), (3, 200), (4, 400), (5, 800), (6, 1_000)];
        let rows = rows.into_iter().chain([(u32::MAX, 1_000)]);
        for (failures, expected) in rows {
            assert_eq!(back_off(failures, 0.0), millis(expected), "{failures} failures");
            assert_eq!(back_off(failures, 1.0), millis(expected) / 2, "{failures} failures");
        }
    }

    #[test]
    fn lifetimes_get_jitter_of_5_percent() {
        assert_eq!(spread(millis(1_000), 0.0), millis(950));
        assert_eq!(spread(millis(1_000), 0.5), millis(1_000));
        assert_eq!(spread(millis(1_000), 1.0), millis(1_050));
        assert_eq!(spread(Duration::MAX, 1.0), Duration::MAX);
        assert_eq!(spread(Duration::ZERO, 1.0), Duration::ZERO);
    }

    #[test]
    fn one_slow_load_changes_the_average_by_a_quarter_of_the_difference() {
        assert_eq!(smoothed(Duration::ZERO, millis(90)), millis(90));
        assert_eq!(smoothed(millis(100), millis(500)), millis(200));
        assert_eq!(smoothed(Duration::from_micros(80), Duration::from_micros(40)).as_micros(), 70);
    }
}
