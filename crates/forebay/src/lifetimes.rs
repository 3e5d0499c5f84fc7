//! How long values are fresh, and how they may be used after that.

use std::time::Duration;

use forebay_core::{Dice, Lifetime, Stale, pace};

/// What a cache does unless an answer or a call says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) ttl: Duration,
    pub(crate) negative_ttl: Option<Duration>,
    pub(crate) stale_while_revalidate: Duration,
    pub(crate) stale_if_error: Duration,
    pub(crate) jitter: bool,
}

/// What one answer or one call says; what it leaves open is as the cache has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stated {
    pub(crate) ttl: Option<Duration>,
    pub(crate) stale_while_revalidate: Option<Duration>,
    pub(crate) stale_if_error: Option<Duration>,
}

impl Stated {
    /// This, and where it leaves something open, `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            ttl: self.ttl.or(other.ttl),
            stale_while_revalidate: self.stale_while_revalidate.or(other.stale_while_revalidate),
            stale_if_error: self.stale_if_error.or(other.stale_if_error),
        }
    }
}

/// Whether there is a value to keep, or the knowledge that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Value,
    Absent,
}

impl Lifetimes {
    /// The lifetime of one entry. What was stated is kept to the letter; what only this cache has
    /// chosen is spread, so that what was loaded together does not expire together.
    pub(crate) fn resolve(&self, kind: Kind, stated: Stated, dice: &mut impl Dice) -> Lifetime {
        let chosen = match kind {
            Kind::Value => self.ttl,
            Kind::Absent => self.negative_ttl.unwrap_or(self.ttl),
        };
        let spread = |dice: &mut _| {
            if self.jitter { spread(chosen, dice) } else { chosen }
        };
        let windows = (self.stale_while_revalidate, self.stale_if_error);
        Lifetime {
            fresh: stated.ttl.unwrap_or_else(|| spread(dice)),
            stale_while_revalidate: stated.stale_while_revalidate.unwrap_or(windows.0),
            stale_if_error: stated.stale_if_error.unwrap_or(windows.1),
            stale: Stale::Permitted,
        }
    }
}

fn spread(lifetime: Duration, dice: &mut impl Dice) -> Duration {
    if lifetime == Duration::MAX { lifetime } else { pace::spread(lifetime, dice.unit()) }
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

    fn cache() -> Lifetimes {
        Lifetimes {
            ttl: secs(100),
            negative_ttl: Some(secs(20)),
            stale_while_revalidate: secs(7),
            stale_if_error: secs(70),
            jitter: true,
        }
    }

    #[test]
    fn what_the_cache_chose_is_spread_and_what_was_stated_is_not() {
        let stated = Stated { ttl: Some(secs(10)), ..Stated::default() };
        let fresh = |kind, stated, chance| cache().resolve(kind, stated, &mut Always(chance)).fresh;
        assert_eq!(fresh(Kind::Value, Stated::default(), 1.0), secs(105));
        assert_eq!(fresh(Kind::Value, Stated::default(), 0.0), secs(95));
        assert_eq!(fresh(Kind::Absent, Stated::default(), 1.0), secs(21));
        assert_eq!(fresh(Kind::Value, stated, 1.0), secs(10));
        let plain = Lifetimes { jitter: false, ..cache() };
        let lifetime = plain.resolve(Kind::Value, Stated::default(), &mut Always(1.0));
        assert_eq!(lifetime.fresh, secs(100));
    }

    #[test]
    fn an_answer_goes_before_its_call_and_both_before_the_cache() {
        let answer = Stated { stale_if_error: Some(secs(1)), ..Stated::default() };
        let call = Stated {
            stale_if_error: Some(secs(2)),
            stale_while_revalidate: Some(secs(3)),
            ttl: None,
        };
        let lifetime = cache().resolve(Kind::Value, answer.or(call), &mut Always(0.5));
        assert_eq!(lifetime.stale_if_error, secs(1));
        assert_eq!(lifetime.stale_while_revalidate, secs(3));
        assert_eq!(lifetime.fresh, secs(100));
    }

    #[test]
    fn what_never_expires_is_not_spread() {
        let cache = Lifetimes { ttl: Duration::MAX, negative_ttl: None, ..cache() };
        for kind in [Kind::Value, Kind::Absent] {
            let lifetime = cache.resolve(kind, Stated::default(), &mut Always(0.1));
            assert_eq!(lifetime.fresh, Duration::MAX);
        }
    }
}
