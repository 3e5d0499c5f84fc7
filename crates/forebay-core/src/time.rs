//! Points in time as the rest of the cache is told them.

use std::time::Duration;

/// A point on this machine's monotonic clock, in whole milliseconds from a start that the clock
/// chose. Negative for what happened before that start: an entry may be older than the process.
///
/// Never compared between machines, and never turned into a date: a step of the wall clock can
/// neither revive nor kill an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Before everything.
    pub const MIN: Self = Self(i64::MIN);

    /// The point `millis` milliseconds after the clock's start.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the clock's start.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.millis_since(earlier))
    }

    /// The same in milliseconds.
    #[inline]
    pub(crate) const fn millis_since(self, earlier: Self) -> u64 {
        let millis = self.0.saturating_sub(earlier.0);
        if millis < 0 { 0 } else { millis.unsigned_abs() }
    }

    /// This point moved forward; it stops at the end of time instead of wrapping.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// This point moved back; it stops at the beginning of time instead of wrapping.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }
}

/// A date, in whole seconds since 1970 (UTC). Only for what machines must agree on: the `Date`
/// and `Expires` of a message. Lifetimes run on [`Timestamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(u64);

impl WallTime {
    /// The date `secs` seconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs)
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0
    }

    /// How much later this date is than `earlier`; zero if it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_never_go_below_zero_and_sums_never_wrap() {
        let early = Timestamp::from_millis(-500);
        let late = Timestamp::from_millis(1_500);
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.plus(Duration::MAX).as_millis(), i64::MAX);
        assert_eq!(early.minus(Duration::from_millis(500)).as_millis(), -1_000);
        assert_eq!(WallTime::from_secs(3).since(WallTime::from_secs(5)), Duration::ZERO);
    }
}
