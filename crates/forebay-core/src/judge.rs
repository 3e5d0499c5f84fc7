//! The decision whether an entry may be used for a demand at a given time.

use std::time::Duration;

use crate::demand::Demand;
use crate::entry::{Meta, Stale};
use crate::tags::PurgeState;
use crate::time::Timestamp;
use crate::why::Why;

/// Inverse fraction of the lifetime in which an entry may be refreshed early. Without this limit the
/// gap grows with the request rate, and a busy key would be refreshed earlier and earlier.
const EARLY_GAP_DIVISOR: u64 = 10;

/// Source of random numbers for decisions, passed in by the caller.
pub trait Dice {
    /// Returns a uniformly distributed number in (0, 1].
    fn unit(&mut self) -> f64;
}

/// Decision of [`judge`] about the use of an entry for one demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serve the entry; no load is needed.
    Serve,
    /// Serve the entry, and let one load refresh it in the background, for this reason.
    ServeThenRefresh(Why),
    /// Load from the origin first. If the load fails, the entry may be served when `may_fall_back`
    /// is set.
    Load {
        /// Reason why the entry cannot be served now.
        why: Why,
        /// Set if the entry may be served after some failure; [`may_fall_back`] decides for which.
        may_fall_back: bool,
    },
}

/// Kind of a failed load, as far as it decides whether a stale entry may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFailure {
    /// The load failed although the origin could be reached: for example, the origin answered with
    /// an error or an invalid response, or the loader failed.
    Failed,
    /// The origin cannot be reached, is not asked because of a limit or its circuit breaker, or has
    /// not answered yet: in terms of RFC 9111 section 4.2.4, the cache is disconnected. The
    /// duration is the maximum staleness of an entry that may be served then; its own
    /// stale-if-error window applies if it is longer.
    Unreachable(Duration),
}

impl Verdict {
    const fn load(why: Why) -> Self {
        Self::Load { why, may_fall_back: false }
    }
}

/// Decides whether an entry may be used for a demand at `now`. `standing` is the effect of purges
/// on the entry. Of the demand, `only_if_cached`, `no_store` and `soft_timeout` are not considered.
///
/// The function is pure: equal arguments give equal verdicts. It draws a random number only in the
/// last tenth of the entry's lifetime, where it can matter.
#[inline]
pub fn judge(
    meta: &Meta,
    demand: &Demand,
    standing: PurgeState,
    now: Timestamp,
    dice: &mut impl Dice,
) -> Verdict {
    if standing >= PurgeState::Unverified {
        let why = if standing == PurgeState::Removed { Why::Purged } else { Why::Suspect };
        return Verdict::load(why);
    }
    // RFC 9111 section 5.2.1.4: no-cache in a request requires a validated answer.
    if demand.revalidate {
        return Verdict::load(Why::RequestRevalidate);
    }
    // RFC 9111 section 5.2.1.1.
    if demand.max_age.is_some_and(|max| meta.age(now) > max) {
        return Verdict::load(Why::RequestMaxAge);
    }
    if standing == PurgeState::SoftPurged || !meta.is_fresh(now) {
        return judge_stale(meta, demand, standing, now);
    }
    // RFC 9111 section 5.2.1.3.
    if demand.min_fresh.is_some_and(|min| meta.fresh_left(now) < min) {
        return Verdict::load(Why::RequestMinFresh);
    }
    if !is_plain(meta, now) && refresh_early(meta, demand.beta, now, dice) {
        return Verdict::ServeThenRefresh(Why::EarlyRefresh);
    }
    Verdict::Serve
}

/// Returns `true` if an entry that no purge affects, not even a soft one, is served at `now` for
/// every demand that [is plain], independent of random numbers: before the last tenth of its
/// freshness lifetime. Nearly every hit needs no other verdict.
///
/// [is plain]: Demand::is_plain
#[inline]
#[must_use]
pub fn is_plain(meta: &Meta, now: Timestamp) -> bool {
    meta.fresh_left_millis(now) > meta.lifetime.fresh.millis() / EARLY_GAP_DIVISOR
}

fn judge_stale(meta: &Meta, demand: &Demand, standing: PurgeState, now: Timestamp) -> Verdict {
    let why = if standing == PurgeState::SoftPurged { Why::SoftPurged } else { Why::Stale };
    // RFC 9111 section 4.2.4: some directives forbid every stale answer.
    if meta.lifetime.stale == Stale::Forbidden {
        return Verdict::load(why);
    }
    if demand.min_fresh.is_some() {
        return Verdict::load(Why::RequestMinFresh);
    }
    let staleness = meta.staleness(now);
    // RFC 9111 section 5.2.1.2. After a soft purge the origin must be asked.
    if standing == PurgeState::Valid && demand.max_stale.is_some_and(|max| staleness <= max) {
        return Verdict::Serve;
    }
    // RFC 9111 section 5.2.1.1: max-age without max-stale excludes stale answers.
    let accepts_stale = demand.max_age.is_none() || demand.max_stale.is_some();
    let window = meta.lifetime.stale_while_revalidate.duration();
    if accepts_stale && !window.is_zero() && staleness <= window {
        return Verdict::ServeThenRefresh(why);
    }
    let trouble = OriginFailure::Unreachable(demand.stale_if_unreachable);
    Verdict::Load { why, may_fall_back: accepts_stale && may_fall_back(meta, trouble, now) }
}

/// Returns true if this entry may be served at `now` after a failed load. Its origin must permit
/// stale answers, and the entry must be within its stale-if-error window (RFC 5861 section 4).
/// While the origin is unreachable, the window of `trouble` (RFC 9111 section 4.2.4) counts if it
/// is longer. No other condition of the caller is considered. Callers ask again after the failure, because the
/// window may have ended meanwhile.
#[must_use]
pub fn may_fall_back(meta: &Meta, trouble: OriginFailure, now: Timestamp) -> bool {
    let own = meta.lifetime.stale_if_error.duration();
    let window = match trouble {
        OriginFailure::Failed => own,
        OriginFailure::Unreachable(max) => own.max(max),
    };
    meta.lifetime.stale == Stale::Permitted && !window.is_zero() && meta.staleness(now) <= window
}

/// XFetch (Vattani, Chierichetti, Lowenstein 2015): refresh when
/// `-cost * beta * ln(chance) >= remaining freshness`, which spreads refreshes over the end of the
/// lifetime.
fn refresh_early(meta: &Meta, beta: f64, now: Timestamp, dice: &mut impl Dice) -> bool {
    let left = meta.fresh_left(now);
    let gap_max = Duration::from_millis(meta.lifetime.fresh.millis() / EARLY_GAP_DIVISOR);
    let cost = meta.load_cost();
    if beta <= 0.0 || cost.is_zero() {
        return false;
    }
    let gap = cost.as_secs_f64() * beta * -dice.unit().max(f64::MIN_POSITIVE).ln();
    gap.min(gap_max.as_secs_f64()) >= left.as_secs_f64()
}

/// Random source that never causes an early refresh, for decisions on which no refresh can follow.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDice;

impl Dice for NoDice {
    fn unit(&mut self) -> f64 {
        1.0
    }
}

/// Returns the remaining freshness lifetime of an entry in seconds for `Cache-Status`: positive
/// while fresh, negative when stale. It is rounded up while fresh, so that `ttl` and `Age` add up
/// to the lifetime.
#[must_use]
pub fn ttl_seconds(meta: &Meta, now: Timestamp) -> i64 {
    let whole = |millis: u128| i64::try_from(millis / 1_000).unwrap_or(i64::MAX);
    if meta.is_fresh(now) {
        whole(meta.fresh_left(now).as_millis().saturating_add(999))
    } else {
        -whole(meta.staleness(now).as_millis())
    }
}

#[cfg(test)]
mod tests;
