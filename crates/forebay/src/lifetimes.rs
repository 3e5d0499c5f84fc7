//! How long values are fresh, and how they may be used after that.

use std::time::Duration;

use forebay_core::{Dice, Lifetime, Stale, WallTime, pace};

use crate::schedule::Schedule;

/// What a cache does unless an answer or a call says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    /// Nothing: until it is removed, or makes room for others.
    pub(crate) ttl: Option<Duration>,
    pub(crate) negative_ttl: Option<Duration>,
    pub(crate) expires_at: Option<Schedule>,
    /// Up to where a value lives longer each time that it was found unchanged.
    pub(crate) adaptive_max: Option<Duration>,
    pub(crate) sliding: Option<Sliding>,
    pub(crate) stale_while_revalidate: Duration,
    pub(crate) stale_if_error: Duration,
    pub(crate) jitter: bool,
}

/// Values that live for as long as they are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sliding {
    /// How long they live unused.
    pub(crate) idle: Duration,
    /// How long they live at all.
    pub(crate) max: Duration,
}

/// How often at most, within its idle time, a use is noted: what is noted costs a lock.
const NOTED: u32 = 16;

impl Sliding {
    /// What is left of the lifetime of a value that was used a moment ago.
    pub(crate) fn left_when_noted(self) -> Duration {
        self.idle - self.idle / NOTED
    }

    /// How long a value is fresh in all that is used at this age; nothing if that is no longer
    /// than it is anyway. What was overrides to be shorter does not slide, nor does what is past its
    /// time, whoever takes it all the same.
    pub(crate) fn extended(self, age: Duration, fresh: Duration) -> Option<Duration> {
        let longer = age.saturating_add(self.idle).min(self.max);
        (fresh >= self.idle && age < fresh && longer > fresh).then_some(longer)
    }
}

/// What one answer or one call says; what it leaves open is as the cache has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LifetimeOverrides {
    pub(crate) fresh: Option<Fresh>,
    pub(crate) stale_while_revalidate: Option<Duration>,
    pub(crate) stale_if_error: Option<Duration>,
}

/// For how long, or until when.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fresh {
    For(Duration),
    ExpiresAt(Schedule),
}

impl LifetimeOverrides {
    /// This, and where it leaves something open, `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            fresh: self.fresh.or(other.fresh),
            stale_while_revalidate: self.stale_while_revalidate.or(other.stale_while_revalidate),
            stale_if_error: self.stale_if_error.or(other.stale_if_error),
        }
    }
}

/// Whether there is a value to keep, or the knowledge that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Value,
    /// As the one before it, which was fresh for so long.
    Unchanged(Duration),
    Absent,
}

impl Lifetimes {
    /// The lifetime of one entry. What was overrides is kept to the letter; what only this cache has
    /// chosen is spread, so that what was loaded together does not expire together.
    pub(crate) fn resolve(
        &self,
        (kind, now): (EntryKind, WallTime),
        overrides: LifetimeOverrides,
        dice: &mut impl Dice,
    ) -> Lifetime {
        let windows = (self.stale_while_revalidate, self.stale_if_error);
        let fresh = match overrides.fresh {
            Some(Fresh::For(span)) => span,
            Some(Fresh::ExpiresAt(schedule)) => schedule.left(now, dice),
            None => self.chosen(kind, now, dice),
        };
        Lifetime {
            fresh,
            stale_while_revalidate: overrides.stale_while_revalidate.unwrap_or(windows.0),
            stale_if_error: overrides.stale_if_error.unwrap_or(windows.1),
            stale: Stale::Permitted,
        }
    }

    fn chosen(&self, kind: EntryKind, now: WallTime, dice: &mut impl Dice) -> Duration {
        if let (EntryKind::Absent, Some(ttl)) = (kind, self.negative_ttl) {
            return self.spread(ttl, dice);
        }
        if let Some(schedule) = self.expires_at {
            return schedule.left(now, dice);
        }
        let Some(ttl) = self.ttl else {
            return self.sliding.map_or(Duration::MAX, |sliding| sliding.idle);
        };
        match (kind, self.adaptive_max) {
            (EntryKind::Unchanged(before), Some(max)) => {
                let longer = before.saturating_mul(2).clamp(ttl, max);
                self.spread(longer, dice).min(max)
            }
            _ => self.spread(ttl, dice),
        }
    }

    fn spread(&self, chosen: Duration, dice: &mut impl Dice) -> Duration {
        if self.jitter { pace::spread(chosen, dice.unit()) } else { chosen }
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
        cache.resolve((kind, NOW), LifetimeOverrides::default(), &mut Always(chance)).fresh
    }

    #[test]
    fn what_the_cache_chose_is_spread_and_what_was_stated_is_not() {
        assert_eq!(fresh(cache(), EntryKind::Value, 1.0), secs(105));
        assert_eq!(fresh(cache(), EntryKind::Value, 0.0), secs(95));
        assert_eq!(fresh(cache(), EntryKind::Absent, 1.0), secs(21));
        assert_eq!(fresh(Lifetimes { jitter: false, ..cache() }, EntryKind::Value, 1.0), secs(100));
        let overrides =
            LifetimeOverrides { fresh: Some(Fresh::For(secs(10))), ..LifetimeOverrides::default() };
        let lifetime = cache().resolve((EntryKind::Value, NOW), overrides, &mut Always(1.0));
        assert_eq!(lifetime.fresh, secs(10));
    }

    #[test]
    fn an_answer_goes_before_its_call_and_both_before_the_cache() {
        let answer =
            LifetimeOverrides { stale_if_error: Some(secs(1)), ..LifetimeOverrides::default() };
        let call = LifetimeOverrides {
            stale_if_error: Some(secs(2)),
            stale_while_revalidate: Some(secs(3)),
            fresh: None,
        };
        let lifetime = cache().resolve((EntryKind::Value, NOW), answer.or(call), &mut Always(0.5));
        assert_eq!(lifetime.stale_if_error, secs(1));
        assert_eq!(lifetime.stale_while_revalidate, secs(3));
        assert_eq!(lifetime.fresh, secs(100));
    }

    #[test]
    fn what_never_expires_is_not_spread() {
        let cache = Lifetimes { ttl: None, negative_ttl: None, ..cache() };
        for kind in [EntryKind::Value, EntryKind::Absent, EntryKind::Unchanged(secs(9))] {
            assert_eq!(fresh(cache, kind, 0.1), Duration::MAX);
        }
    }

    #[test]
    fn what_is_found_unchanged_lives_twice_as_long_up_to_a_bound() {
        let adaptive = Lifetimes { adaptive_max: Some(secs(500)), jitter: false, ..cache() };
        let same = |before| fresh(adaptive, EntryKind::Unchanged(secs(before)), 1.0);
        assert_eq!((same(100), same(200), same(300)), (secs(200), secs(400), secs(500)));
        assert_eq!(same(10), secs(100), "never less than what is new");
        assert_eq!(fresh(adaptive, EntryKind::Value, 1.0), secs(100));
        let spread = Lifetimes { jitter: true, ..adaptive };
        assert_eq!(
            fresh(spread, EntryKind::Unchanged(secs(400)), 1.0),
            secs(500),
            "the bound is a bound"
        );
        assert_eq!(
            fresh(cache(), EntryKind::Unchanged(secs(400)), 0.5),
            secs(100),
            "only where wanted"
        );
    }

    #[test]
    fn what_ends_at_an_hour_ends_there_and_absence_after_its_own_time() {
        let nightly = Schedule::daily(Duration::ZERO);
        let cache = Lifetimes { expires_at: Some(nightly), ttl: None, ..cache() };
        assert_eq!(fresh(cache, EntryKind::Value, 1.0), secs(86_399));
        assert_eq!(fresh(cache, EntryKind::Absent, 0.5), secs(20));
    }

    #[test]
    fn what_is_used_slides_up_to_a_bound_and_what_was_stated_does_not() {
        let sliding = Sliding { idle: secs(160), max: secs(400) };
        assert_eq!(sliding.left_when_noted(), secs(150));
        assert_eq!(sliding.extended(secs(10), secs(160)), Some(secs(170)));
        assert_eq!(sliding.extended(secs(300), secs(310)), Some(secs(400)));
        assert_eq!(sliding.extended(secs(300), secs(400)), None);
        assert_eq!(sliding.extended(secs(10), secs(20)), None);
        assert_eq!(sliding.extended(secs(160), secs(160)), None);
        let cache = Lifetimes { sliding: Some(sliding), ttl: None, ..cache() };
        assert_eq!(fresh(cache, EntryKind::Value, 1.0), secs(160));
    }
}
