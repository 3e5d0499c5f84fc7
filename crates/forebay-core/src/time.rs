//! Points in time: monotonic timestamps and wall-clock dates.

use std::time::Duration;

/// Point on this machine's monotonic clock, in whole milliseconds from the clock's start. Negative
/// before that start: an entry may be older than the process.
///
/// Timestamps are never compared between machines and never converted to dates, so a step of the
/// wall clock neither expires an entry nor makes a stale one fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Smallest timestamp, earlier than any other.
    pub const MIN: Self = Self(i64::MIN);

    /// Returns the point `millis` milliseconds after the clock's start.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds from the clock's start to this point.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the time from `earlier` to this point, or zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.millis_since(earlier))
    }

    /// Returns milliseconds since `earlier`, or zero if `earlier` is later.
    #[inline]
    pub(crate) const fn millis_since(self, earlier: Self) -> u64 {
        let millis = self.0.saturating_sub(earlier.0);
        if millis < 0 { 0 } else { millis.unsigned_abs() }
    }

    /// Returns this point plus `span`, saturating at the largest timestamp.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// Returns this point minus `span`, saturating at the smallest timestamp.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }
}

/// Wall-clock date, in whole seconds since 1970 (UTC). Used for values that machines exchange, such
/// as the `Date` and `Expires` of a message. Also used for the time that an entry was on disk
/// across restarts. Lifetimes use [`Timestamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(u64);

impl WallTime {
    /// Returns the date `secs` seconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs)
    }

    /// Returns the seconds from 1970-01-01T00:00:00Z to this date.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this date, or zero if `earlier` is later.
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
