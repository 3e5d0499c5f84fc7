//! Lifetimes that end at an hour of the day.

use std::time::Duration;

use forebay_core::{Dice, WallTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// By how much what ends at one moment is spread after it, unless told otherwise: long enough that
/// midnight is no stampede, and short enough that nobody reads yesterday's values at breakfast.
const SPREAD: Duration = Duration::from_secs(30);

/// When values end that are good until an hour of the day, for all of them together: prices until
/// midnight, a timetable until the next full hour.
///
/// ```
/// use std::time::Duration;
/// use forebay::{Cache, Schedule, Memory};
///
/// const HOUR: Duration = Duration::from_secs(3_600);
///
/// # fn main() -> Result<(), forebay::BuildError> {
/// // Until three in the morning, where it is two hours later than in Greenwich; reloaded within
/// // the five minutes after that.
/// let nightly = Schedule::daily(3 * HOUR).east_of_utc(2 * HOUR).spread(HOUR / 12);
/// let prices: Cache<u64> =
///     Cache::builder("prices").memory(Memory::entries(1_000)).expires_at(nightly).build()?;
/// # Ok(())
/// # }
/// ```
///
/// A change between summer and winter is the caller's to make: an offset is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Schedule {
    every: Duration,
    /// How long after a full multiple of `every` since 1970 (UTC).
    at: Duration,
    spread: Duration,
}

impl Schedule {
    /// Each day at this time after midnight, in UTC.
    pub const fn daily(after_midnight: Duration) -> Self {
        Self { every: DAY, at: after_midnight, spread: SPREAD }
    }

    /// Each full multiple of this since midnight, in UTC: with an hour, at each full hour. Whole
    /// seconds, and at least one.
    pub const fn every(span: Duration) -> Self {
        Self { every: span, at: Duration::ZERO, spread: SPREAD }
    }

    /// The same by a clock that is so much ahead of UTC.
    pub const fn east_of_utc(self, offset: Duration) -> Self {
        self.earlier(offset)
    }

    /// The same by a clock that is so much behind UTC.
    pub const fn west_of_utc(mut self, offset: Duration) -> Self {
        self.at = self.at.saturating_add(offset);
        self
    }

    /// Spreads the ends over this long after the moment; half a minute unless told otherwise.
    pub const fn spread(mut self, span: Duration) -> Self {
        self.spread = span;
        self
    }

    const fn earlier(mut self, by: Duration) -> Self {
        // A day more than can be taken off, so that nothing falls below zero.
        let periods = (by.as_secs() / self.period()).saturating_add(1);
        let up = self.at.as_secs().saturating_add(periods.saturating_mul(self.period()));
        self.at = Duration::from_secs(up.saturating_sub(by.as_secs()));
        self
    }

    const fn period(&self) -> u64 {
        let secs = self.every.as_secs();
        if secs == 0 { 1 } else { secs }
    }

    /// What is left until it comes next, and a part of the spread that chance chooses. Never
    /// nothing: at the moment itself the next one counts.
    pub(crate) fn left(&self, now: WallTime, dice: &mut impl Dice) -> Duration {
        let period = self.period();
        let at = self.at.as_secs() % period;
        let moment = now.as_secs() % period;
        let since = if moment >= at { moment - at } else { period - (at - moment) };
        // Dice never fall on nothing, and may fall on all.
        let later = self.spread.as_secs_f64() * (1.0 - dice.unit());
        let later = Duration::try_from_secs_f64(later).unwrap_or(Duration::MAX);
        Duration::from_secs(period - since).saturating_add(later)
    }

    /// Why it cannot be.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        if self.every < Duration::from_secs(1) || self.every.subsec_nanos() != 0 {
            return Some("`expires_at` comes every so many whole seconds, at least one");
        }
        (self.spread >= self.every).then_some("`expires_at` is spread beyond its next time")
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

    fn left(schedule: Schedule, after_midnight: Duration) -> Duration {
        let now = WallTime::from_secs(NEW_YEAR + after_midnight.as_secs());
        schedule.left(now, &mut Always(1.0))
    }

    #[test]
    fn a_value_ends_at_the_next_time_and_never_at_once() {
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
            assert_eq!(left(schedule, now), expected, "{schedule:?} at {now:?}");
        }
    }

    #[test]
    fn ends_are_spread_after_the_moment() {
        let midnight = Schedule::daily(Duration::ZERO).spread(HOUR);
        let now = WallTime::from_secs(NEW_YEAR);
        assert_eq!(midnight.left(now, &mut Always(1.0)), 24 * HOUR);
        assert_eq!(midnight.left(now, &mut Always(0.5)), 24 * HOUR + HOUR / 2);
        assert!(midnight.left(now, &mut Always(1e-9)) < 25 * HOUR);
    }

    #[test]
    fn what_cannot_be_is_named() {
        assert!(Schedule::every(Duration::from_millis(1_500)).flaw().is_some());
        assert!(Schedule::every(Duration::ZERO).flaw().is_some());
        assert!(Schedule::every(HOUR).spread(HOUR).flaw().is_some());
        assert_eq!(Schedule::every(HOUR).flaw(), None);
        assert!(left(Schedule::every(Duration::ZERO), HOUR) > Duration::ZERO, "nor a panic");
        let longest = Duration::MAX;
        for odd in [Schedule::every(longest), Schedule::every(Duration::ZERO)] {
            let odd = odd.spread(longest);
            for odd in [odd, odd.east_of_utc(longest), odd.west_of_utc(longest)] {
                assert!(odd.left(WallTime::from_secs(u64::MAX), &mut Always(1e-9)) > HOUR);
            }
        }
    }
}
