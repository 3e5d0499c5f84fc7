//! Lifetimes that end at fixed times of the day.

use std::time::Duration;

use forebay_core::{Dice, WallTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Default spread of expiries after their common time: long enough that midnight causes no
/// stampede, short enough that few readers notice the delay.
const DEFAULT_SPREAD: Duration = Duration::from_secs(30);

/// Times of day at which values become stale: prices at midnight, a timetable at each full hour.
///
/// ```
/// use std::time::Duration;
/// use forebay::{Cache, Memory, Schedule};
///
/// const HOUR: Duration = Duration::from_secs(3_600);
///
/// # fn main() -> Result<(), forebay::BuildError> {
/// // Until 03:00 at UTC+2. The values expire at random moments of the five minutes after that.
/// let nightly = Schedule::daily(3 * HOUR).east_of_utc(2 * HOUR).spread(HOUR / 12);
/// let prices: Cache<u64> =
///     Cache::builder("prices").memory(Memory::entries(1_000)).expires_at(nightly).build()?;
/// # Ok(())
/// # }
/// ```
///
/// The offset from UTC is constant. A service that follows daylight saving time sets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Schedule {
    every: Duration,
    /// Offset of the times from the multiples of `every` since 1970-01-01 00:00 UTC.
    at: Duration,
    spread: Duration,
}

impl Schedule {
    /// Creates a schedule with one time per day, this long after midnight UTC, in whole seconds.
    pub const fn daily(after_midnight: Duration) -> Self {
        Self { every: DAY, at: after_midnight, spread: DEFAULT_SPREAD }
    }

    /// Creates a schedule with each multiple of `span` since 1970-01-01 00:00 UTC, such as each
    /// full hour. `span` must be a whole number of seconds, at least one. A `span` of up to 30
    /// seconds also needs a [`spread`](Self::spread) that is shorter than `span`.
    pub const fn every(span: Duration) -> Self {
        Self { every: span, at: Duration::ZERO, spread: DEFAULT_SPREAD }
    }

    /// Moves the times of the schedule to a time zone that is `offset` ahead of UTC: they come that
    /// much earlier, in whole seconds.
    pub const fn east_of_utc(self, offset: Duration) -> Self {
        self.earlier(offset)
    }

    /// Moves the times of the schedule to a time zone that is `offset` behind UTC: they come that
    /// much later, in whole seconds.
    pub const fn west_of_utc(mut self, offset: Duration) -> Self {
        self.at = self.at.saturating_add(offset);
        self
    }

    /// Sets the interval after each time of the schedule within which values expire, each at a
    /// random moment, so that they are not all loaded at once. Default: 30 seconds. It must be
    /// shorter than the interval between two times of the schedule.
    pub const fn spread(mut self, span: Duration) -> Self {
        self.spread = span;
        self
    }

    const fn earlier(mut self, by: Duration) -> Self {
        // One period more than `by`, so that the subtraction cannot underflow.
        let periods = (by.as_secs() / self.period()).saturating_add(1);
        let up = self.at.as_secs().saturating_add(periods.saturating_mul(self.period()));
        self.at = Duration::from_secs(up.saturating_sub(by.as_secs()));
        self
    }

    const fn period(&self) -> u64 {
        let secs = self.every.as_secs();
        if secs == 0 { 1 } else { secs }
    }

    /// Returns the time from `now` to the next expiry, with a random part of the spread. It is never
    /// zero: at one of the times, the next one counts.
    pub(crate) fn time_left(&self, now: WallTime, dice: &mut impl Dice) -> Duration {
        let period = self.period();
        let at = self.at.as_secs() % period;
        let moment = now.as_secs() % period;
        let since = if moment >= at { moment - at } else { period - (at - moment) };
        // `unit` is in (0, 1].
        let later = self.spread.as_secs_f64() * (1.0 - dice.unit());
        let later = Duration::try_from_secs_f64(later).unwrap_or(Duration::MAX);
        Duration::from_secs(period - since).saturating_add(later)
    }

    /// Returns the error message if the schedule is invalid.
    pub(crate) fn invalid(&self) -> Option<&'static str> {
        if self.every < Duration::from_secs(1) || self.every.subsec_nanos() != 0 {
            return Some(
                "`expires_at` needs an interval of a whole number of seconds, at least one",
            );
        }
        (self.spread >= self.every)
            .then_some("`expires_at` repeats within its `spread`: make the `spread` shorter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Always(f64);

    impl Dice for Always {
        fn unit(&mut self) -> f64 {
            self.0
        }
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    /// 1 January 2026, 00:00:00 UTC.
    const NEW_YEAR: u64 = 1_767_225_600;

    fn time_left(schedule: Schedule, after_midnight: Duration) -> Duration {
        let now = WallTime::from_secs(NEW_YEAR + after_midnight.as_secs());
        schedule.time_left(now, &mut Always(1.0))
    }

    #[test]
    fn time_left_leads_to_the_next_time_and_is_never_zero() {
        let midnight = Schedule::daily(Duration::ZERO);
        let three = Schedule::daily(3 * HOUR);
        let second = Duration::from_secs(1);
        let rows = [
            (midnight, Duration::ZERO, 24 * HOUR),
            (midnight, second, 24 * HOUR - second),
            (midnight, 24 * HOUR - second, second),
            (three, Duration::ZERO, 3 * HOUR),
            (three, 3 * HOUR, 24 * HOUR),
            (three.east_of_utc(2 * HOUR), Duration::ZERO, HOUR),
            (three.east_of_utc(5 * HOUR), Duration::ZERO, 22 * HOUR),
            (three.west_of_utc(5 * HOUR), Duration::ZERO, 8 * HOUR),
            (three.west_of_utc(22 * HOUR), Duration::ZERO, HOUR),
            (Schedule::every(HOUR), HOUR / 4, HOUR * 3 / 4),
            (Schedule::every(HOUR / 4), HOUR / 4 + second, HOUR / 4 - second),
        ];
        for (schedule, now, expected) in rows {
            assert_eq!(time_left(schedule, now), expected, "{schedule:?} at {now:?}");
        }
    }

    #[test]
    fn expiries_are_spread_after_the_time() {
        let midnight = Schedule::daily(Duration::ZERO).spread(HOUR);
        let now = WallTime::from_secs(NEW_YEAR);
        assert_eq!(midnight.time_left(now, &mut Always(1.0)), 24 * HOUR);
        assert_eq!(midnight.time_left(now, &mut Always(0.5)), 24 * HOUR + HOUR / 2);
        assert!(midnight.time_left(now, &mut Always(1e-9)) < 25 * HOUR);
    }

    #[test]
    fn invalid_schedules_have_a_message_and_do_not_panic() {
        assert!(Schedule::every(Duration::from_millis(1_500)).invalid().is_some());
        assert!(Schedule::every(Duration::ZERO).invalid().is_some());
        assert!(Schedule::every(HOUR).spread(HOUR).invalid().is_some());
        assert_eq!(Schedule::every(HOUR).invalid(), None);
        assert!(time_left(Schedule::every(Duration::ZERO), HOUR) > Duration::ZERO);
        let longest = Duration::MAX;
        for odd in [Schedule::every(longest), Schedule::every(Duration::ZERO)] {
            let odd = odd.spread(longest);
            for odd in [odd, odd.east_of_utc(longest), odd.west_of_utc(longest)] {
                assert!(odd.time_left(WallTime::from_secs(u64::MAX), &mut Always(1e-9)) > HOUR);
            }
        }
    }
}
