//! Freshness lifetimes and stale windows of the entries that a cache stores.
//!
//! `schedule.rs` has lifetimes that end at a time of day. This folder uses no other.

pub(crate) mod schedule;

use std::time::Duration;

use forebay_core::{Dice, Lifetime, Stale, WallTime, pace};

use crate::lifetimes::schedule::Schedule;

/// Lifetimes of a cache, for entries whose answer or call overrides nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    /// `None`: values stay fresh until they are removed or evicted.
    pub(crate) ttl: Option<Duration>,
    pub(crate) negative_ttl: Option<Duration>,
    pub(crate) expires_at: Option<Schedule>,
    /// Upper limit of a lifetime that doubles with each unchanged load.
    pub(crate) adaptive_max: Option<Duration>,
    pub(crate) sliding: Option<Sliding>,
    pub(crate) stale_while_revalidate: Duration,
    pub(crate) stale_if_error: Duration,
    pub(crate) jitter: bool,
}

/// Sliding lifetime: values stay fresh while they are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sliding {
    /// Maximum time between two uses.
    pub(crate) idle: Duration,
    /// Maximum time after the load.
    pub(crate) max: Duration,
}

/// Maximum number of recorded uses within `idle`. A recorded use takes a lock.
const RECORDED_USES_MAX: u32 = 16;

impl Sliding {
    /// Returns the remaining freshness below which a use is recorded.
    pub(crate) fn record_below(self) -> Duration {
        self.idle - self.idle / RECORDED_USES_MAX
    }

    /// Returns the new freshness lifetime of a value that is used at this age. `None` if its
    /// lifetime does not grow: it is stale already, or an override made it shorter than `idle`.
    pub(crate) fn extended(self, age: Duration, fresh: Duration) -> Option<Duration> {
        let longer = age.saturating_add(self.idle).min(self.max);
        (fresh >= self.idle && age < fresh && longer > fresh).then_some(longer)
    }
}

/// Lifetime settings of one answer or one call; `None` leaves the setting of the cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LifetimeOverrides {
    pub(crate) fresh: Option<Fresh>,
    pub(crate) stale_while_revalidate: Option<Duration>,
    pub(crate) stale_if_error: Option<Duration>,
}

/// Freshness as a duration, or as a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fresh {
    For(Duration),
    ExpiresAt(Schedule),
}

impl LifetimeOverrides {
    /// Returns these settings, with those of `other` in place of `None`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            fresh: self.fresh.or(other.fresh),
            stale_while_revalidate: self.stale_while_revalidate.or(other.stale_while_revalidate),
            stale_if_error: self.stale_if_error.or(other.stale_if_error),
        }
    }
}

/// Declares the setters of the fields `overrides` and `tags`, which answers and call options share.
macro_rules! entry_setters {
    () => {
        /// Sets the freshness lifetime of the entry, without jitter. That of an answer overrides
        /// that of a call, which overrides that of the cache.
        pub const fn ttl(mut self, ttl: Duration) -> Self {
            self.overrides.fresh = Some(Fresh::For(ttl));
            self
        }

        /// Sets a schedule for the entry: it becomes stale at the schedule's next time. Replaces a
        /// `ttl`.
        pub const fn expires_at(mut self, schedule: Schedule) -> Self {
            self.overrides.fresh = Some(Fresh::ExpiresAt(schedule));
            self
        }

        /// Sets the time after the end of freshness during which the value is served while one load
        /// refreshes it in the background.
        pub const fn stale_while_revalidate(mut self, window: Duration) -> Self {
            self.overrides.stale_while_revalidate = Some(window);
            self
        }

        /// Sets the time after the end of freshness during which the value is served if a load
        /// fails.
        pub const fn stale_if_error(mut self, window: Duration) -> Self {
            self.overrides.stale_if_error = Some(window);
            self
        }

        /// Adds tags to the entry, by which it can be invalidated. Tags of an answer and of a call
        /// add up.
        pub fn tags<T: Into<Box<str>>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
            self.tags.extend(tags.into_iter().map(Into::into));
            self
        }
    };
}
pub(crate) use entry_setters;

/// The content of an entry, as far as its lifetime depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Value,
    /// A value equal to the previous one, which had this freshness lifetime.
    Unchanged(Duration),
    Absent,
}

impl Lifetimes {
    /// Returns the lifetime of one entry. Overrides are used as they are; lifetimes of the cache
    /// get jitter, so that entries that were loaded together do not expire together.
    pub(crate) fn resolve(
        &self,
        kind: EntryKind,
        now: WallTime,
        overrides: LifetimeOverrides,
        dice: &mut impl Dice,
    ) -> Lifetime {
        let fresh = match overrides.fresh {
            Some(Fresh::For(span)) => span,
            Some(Fresh::ExpiresAt(schedule)) => schedule.time_left(now, dice),
            None => self.default_fresh(kind, now, dice),
        };
        let stale_while_revalidate = overrides.stale_while_revalidate;
        Lifetime {
            fresh,
            stale_while_revalidate: stale_while_revalidate.unwrap_or(self.stale_while_revalidate),
            stale_if_error: overrides.stale_if_error.unwrap_or(self.stale_if_error),
            stale: Stale::Permitted,
        }
    }

    fn default_fresh(&self, kind: EntryKind, now: WallTime, dice: &mut impl Dice) -> Duration {
        if let (EntryKind::Absent, Some(ttl)) = (kind, self.negative_ttl) {
            return self.jittered(ttl, dice);
        }
        if let Some(schedule) = self.expires_at {
            return schedule.time_left(now, dice);
        }
        let Some(ttl) = self.ttl else {
            return self.sliding.map_or(Duration::MAX, |sliding| sliding.idle);
        };
        match (kind, self.adaptive_max) {
            (EntryKind::Unchanged(before), Some(max)) => {
                let longer = before.saturating_mul(2).clamp(ttl, max);
                self.jittered(longer, dice).min(max)
            }
            _ => self.jittered(ttl, dice),
        }
    }

    fn jittered(&self, span: Duration, dice: &mut impl Dice) -> Duration {
        if self.jitter { pace::spread(span, dice.unit()) } else { span }
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

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// One second past midnight.
    const NOW: WallTime = WallTime::from_secs(86_401);

    fn cache() -> Lifetimes {
        Lifetimes {
            ttl: Some(secs(100)),
            negative_ttl: Some(secs(20)),
            expires_at: None,
            adaptive_max: None,
            sliding: None,
            stale_while_revalidate: secs(7),
            stale_if_error: secs(70),
            jitter: true,
        }
    }

    fn fresh(cache: Lifetimes, kind: EntryKind, chance: f64) -> Duration {
        cache.resolve(kind, NOW, LifetimeOverrides::default(), &mut Always(chance)).fresh
    }

    #[test]
    fn cache_lifetimes_get_jitter_and_overrides_do_not() {
        assert_eq!(fresh(cache(), EntryKind::Value, 1.0), secs(105));
        assert_eq!(fresh(cache(), EntryKind::Value, 0.0), secs(95));
        assert_eq!(fresh(cache(), EntryKind::Absent, 1.0), secs(21));
        assert_eq!(fresh(Lifetimes { jitter: false, ..cache() }, EntryKind::Value, 1.0), secs(100));
        let overrides =
            LifetimeOverrides { fresh: Some(Fresh::For(secs(10))), ..LifetimeOverrides::default() };
        let lifetime = cache().resolve(EntryKind::Value, NOW, overrides, &mut Always(1.0));
        assert_eq!(lifetime.fresh, secs(10));
    }

    #[test]
    fn an_answer_overrides_its_call_and_both_override_the_cache() {
        let answer =
            LifetimeOverrides { stale_if_error: Some(secs(1)), ..LifetimeOverrides::default() };
        let call = LifetimeOverrides {
            stale_if_error: Some(secs(2)),
            stale_while_revalidate: Some(secs(3)),
            fresh: None,
        };
        let lifetime = cache().resolve(EntryKind::Value, NOW, answer.or(call), &mut Always(0.5));
        assert_eq!(lifetime.stale_if_error, secs(1));
        assert_eq!(lifetime.stale_while_revalidate, secs(3));
        assert_eq!(lifetime.fresh, secs(100));
    }

    #[test]
    fn an_unlimited_lifetime_gets_no_jitter() {
        let cache = Lifetimes { ttl: None, negative_ttl: None, ..cache() };
        for kind in [EntryKind::Value, EntryKind::Absent, EntryKind::Unchanged(secs(9))] {
            assert_eq!(fresh(cache, kind, 0.1), Duration::MAX);
        }
    }

    #[test]
    fn an_unchanged_value_doubles_its_lifetime_up_to_the_maximum() {
        let adaptive = Lifetimes { adaptive_max: Some(secs(500)), jitter: false, ..cache() };
        let unchanged = |before| fresh(adaptive, EntryKind::Unchanged(secs(before)), 1.0);
        assert_eq!(
            (unchanged(100), unchanged(200), unchanged(300)),
            (secs(200), secs(400), secs(500))
        );
        assert_eq!(unchanged(10), secs(100), "at least the ttl");
        assert_eq!(fresh(adaptive, EntryKind::Value, 1.0), secs(100));
        let jittered = Lifetimes { jitter: true, ..adaptive };
        assert_eq!(
            fresh(jittered, EntryKind::Unchanged(secs(400)), 1.0),
            secs(500),
            "jitter does not exceed the maximum"
        );
        assert_eq!(
            fresh(cache(), EntryKind::Unchanged(secs(400)), 0.5),
            secs(100),
            "only with adaptive lifetimes"
        );
    }

    #[test]
    fn a_schedule_ends_values_and_negative_ttl_ends_absence() {
        let nightly = Schedule::daily(Duration::ZERO);
        let cache = Lifetimes { expires_at: Some(nightly), ttl: None, ..cache() };
        assert_eq!(fresh(cache, EntryKind::Value, 1.0), secs(86_399));
        assert_eq!(fresh(cache, EntryKind::Absent, 0.5), secs(20));
    }

    #[test]
    fn a_sliding_lifetime_grows_up_to_its_maximum_and_shorter_overrides_do_not_slide() {
        let sliding = Sliding { idle: secs(160), max: secs(400) };
        assert_eq!(sliding.record_below(), secs(150));
        assert_eq!(sliding.extended(secs(10), secs(160)), Some(secs(170)));
        assert_eq!(sliding.extended(secs(300), secs(310)), Some(secs(400)));
        assert_eq!(sliding.extended(secs(300), secs(400)), None);
        assert_eq!(sliding.extended(secs(10), secs(20)), None);
        assert_eq!(sliding.extended(secs(160), secs(160)), None);
        let cache = Lifetimes { sliding: Some(sliding), ttl: None, ..cache() };
        assert_eq!(fresh(cache, EntryKind::Value, 1.0), secs(160));
    }
}
