//! Durations in four bytes: a cache holds millions of entries with four durations each.

use std::time::Duration;

use super::{Lifetime, Stale};

/// Flag for a value in seconds; without it the value is in milliseconds, up to 24 days.
const SECONDS: u32 = 1 << 31;

/// Duration in whole milliseconds, rounded up; from 24 days on in whole seconds, rounded down; at
/// most 68 years.
///
/// Ages are whole milliseconds, so rounding up does not change a comparison: an age is less than a
/// duration exactly if it is less than the next whole millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Span(u32);

impl Span {
    pub(crate) fn of(span: Duration) -> Self {
        let millis = span.as_nanos().div_ceil(1_000_000);
        match u32::try_from(millis) {
            Ok(millis) if millis & SECONDS == 0 => Self(millis),
            _ => Self(u32::try_from(span.as_secs()).unwrap_or(u32::MAX).min(!SECONDS) | SECONDS),
        }
    }

    #[inline]
    pub(crate) const fn millis(self) -> u64 {
        let count = (self.0 & !SECONDS) as u64;
        if self.0 & SECONDS == 0 { count } else { count * 1_000 }
    }

    pub(crate) const fn duration(self) -> Duration {
        Duration::from_millis(self.millis())
    }
}

/// Packed form of a [`Lifetime`]. The part that a plain hit reads is last, beside `born` of the
/// metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PackedLifetime {
    pub(crate) stale_while_revalidate: Span,
    pub(crate) stale_if_error: Span,
    pub(crate) stale: Stale,
    pub(crate) fresh: Span,
}

impl From<Lifetime> for PackedLifetime {
    fn from(lifetime: Lifetime) -> Self {
        Self {
            fresh: Span::of(lifetime.fresh),
            stale_while_revalidate: Span::of(lifetime.stale_while_revalidate),
            stale_if_error: Span::of(lifetime.stale_if_error),
            stale: lifetime.stale,
        }
    }
}

impl From<PackedLifetime> for Lifetime {
    fn from(packed: PackedLifetime) -> Self {
        Self {
            fresh: packed.fresh.duration(),
            stale_while_revalidate: packed.stale_while_revalidate.duration(),
            stale_if_error: packed.stale_if_error.duration(),
            stale: packed.stale,
        }
    }
}

/// Duration of a load in microseconds, up to about an hour. A measured duration is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Cost(u32);

impl Cost {
    pub(crate) fn of(span: Duration) -> Self {
        let least = u32::from(!span.is_zero());
        let micros = span.saturating_add(Duration::from_nanos(500)).as_micros();
        Self(u32::try_from(micros).unwrap_or(u32::MAX).max(least))
    }

    pub(crate) const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_millisecond_and_long_ones_second_precision() {
        let (days, years) = (Duration::from_hours(24), Duration::from_hours(24 * 365));
        let longest = Duration::from_secs((1 << 31) - 1);
        let rows = [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_nanos(1), Duration::from_millis(1)),
            (Duration::from_micros(2_001), Duration::from_millis(3)),
            (Duration::from_millis(86_399_999), Duration::from_millis(86_399_999)),
            (Duration::from_millis((1 << 31) - 1), Duration::from_millis((1 << 31) - 1)),
            (25 * days + Duration::from_millis(999), 25 * days),
            (years, years),
            (longest, longest),
            (Duration::from_secs(1 << 31), longest),
            (Duration::MAX, longest),
        ];
        for (span, kept) in rows {
            assert_eq!(Span::of(span).duration(), kept, "{span:?}");
            assert_eq!(Span::of(kept), Span::of(span), "{span:?}");
        }
    }

    #[test]
    fn load_costs_have_microsecond_precision_and_never_become_zero() {
        let rows = [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_nanos(200_400), 200),
            (Duration::from_nanos(200_500), 201),
            (Duration::MAX, u32::MAX),
        ];
        for (cost, micros) in rows {
            assert_eq!(Cost::of(cost).duration(), Duration::from_micros(micros.into()), "{cost:?}");
        }
    }
}
