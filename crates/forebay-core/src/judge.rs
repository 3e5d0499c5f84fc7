//! May this entry be used for this demand, now?

use std::time::Duration;

use crate::demand::Demand;
use crate::entry::{Meta, Stale};
use crate::tags::Standing;
use crate::time::Timestamp;
use crate::why::Why;

/// The gap in which an entry may be refreshed early, as a part of its lifetime. Uncapped, the gap
/// grows with the request rate, and a busy key would be refreshed ever earlier.
const EARLY_GAP_DIVISOR: u64 = 10;

/// A source of chance. The core never throws dice of its own.
pub trait Dice {
    /// A number in (0, 1], evenly spread.
    fn unit(&mut self) -> f64;
}

/// What may be done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Use it.
    Serve,
    /// Use it, and let one flight refresh it meanwhile.
    ServeThenRefresh(Why),
    /// Load first. If the load has trouble, the entry may be used after all when `may_fall_back`.
    Load {
        /// Why it cannot be used as it is.
        why: Why,
        /// Whether there is trouble in which it may be served; [`may_fall_back`] says in which.
        may_fall_back: bool,
    },
}

/// What keeps a load from bringing an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The load failed, or the origin answered with an error.
    Failed,
    /// The origin cannot be reached, or has not answered yet: in the words of RFC 9111 section
    /// 4.2.4, the cache is disconnected. With it goes for how long past its lifetime an answer
    /// may be served then.
    Unreachable(Duration),
}

impl Verdict {
    const fn load(why: Why) -> Self {
        Self::Load { why, may_fall_back: false }
    }
}

/// Judges an entry for a demand at `now`.
///
/// Pure arithmetic: the same arguments give the same verdict, and the dice are thrown only when
/// the throw can matter (the entry is in the last tenth of its lifetime).
#[inline]
pub fn judge(
    meta: &Meta,
    demand: &Demand,
    standing: Standing,
    (now, dice): (Timestamp, &mut impl Dice),
) -> Verdict {
    if standing >= Standing::Suspect {
        let why = if standing == Standing::Gone { Why::Purged } else { Why::Suspect };
        return Verdict::load(why);
    }
    // RFC 9111 section 5.2.1.4: no-cache in a request wants a validated answer.
    if demand.revalidate {
        return Verdict::load(Why::RequestRevalidate);
    }
    // RFC 9111 section 5.2.1.1.
    if demand.max_age.is_some_and(|max| meta.age(now) > max) {
        return Verdict::load(Why::RequestMaxAge);
    }
    if standing == Standing::Softened || !meta.is_fresh(now) {
        return judge_stale(meta, demand, standing, now);
    }
    // RFC 9111 section 5.2.1.3.
    if demand.min_fresh.is_some_and(|min| meta.fresh_left(now) < min) {
        return Verdict::load(Why::RequestMinFresh);
    }
    if may_be_early(meta, now) && refresh_early(meta, demand.beta, now, dice) {
        return Verdict::ServeThenRefresh(Why::EarlyRefresh);
    }
    Verdict::Serve
}

/// Up to when an entry in good standing is served to everybody whose demand [is plain], whatever
/// the dice say: before the last tenth of its lifetime. It never changes, so that who keeps it
/// beside the entry can do without a verdict for nearly every hit.
///
/// [is plain]: Demand::is_plain
#[must_use]
pub fn plain_until(meta: &Meta) -> Timestamp {
    let fresh = meta.lifetime.fresh.millis();
    let plain = fresh - fresh / EARLY_GAP_DIVISOR;
    if plain == 0 { Timestamp::MIN } else { meta.born.plus(Duration::from_millis(plain)) }
}

fn judge_stale(meta: &Meta, demand: &Demand, standing: Standing, now: Timestamp) -> Verdict {
    let why = if standing == Standing::Softened { Why::SoftPurged } else { Why::Stale };
    // RFC 9111 section 4.2.4: some directives forbid every stale answer.
    if meta.lifetime.stale == Stale::Forbidden {
        return Verdict::load(why);
    }
    if demand.min_fresh.is_some() {
        return Verdict::load(Why::RequestMinFresh);
    }
    let staleness = meta.staleness(now);
    // RFC 9111 section 5.2.1.2. A soft purge says that the origin knows better: ask it.
    if standing == Standing::Good && demand.max_stale.is_some_and(|max| staleness <= max) {
        return Verdict::Serve;
    }
    // RFC 9111 section 5.2.1.1: with max-age and no max-stale, the client wants nothing stale.
    let accepts_stale = demand.max_age.is_none() || demand.max_stale.is_some();
    let window = meta.lifetime.stale_while_revalidate.duration();
    if accepts_stale && !window.is_zero() && staleness <= window {
        return Verdict::ServeThenRefresh(why);
    }
    let trouble = Trouble::Unreachable(demand.stale_if_unreachable);
    Verdict::Load { why, may_fall_back: accepts_stale && may_fall_back(meta, trouble, now) }
}

/// Whether a load that has trouble may be answered with this entry at `now`: within the time for
/// errors that it names itself (RFC 5861 section 4), and while the cache is disconnected within
/// the caller's time, too (RFC 9111 section 4.2.4). Asked again when the trouble has come: it may
/// have taken longer than the window was open.
#[must_use]
pub fn may_fall_back(meta: &Meta, trouble: Trouble, now: Timestamp) -> bool {
    let own = meta.lifetime.stale_if_error.duration();
    let window = match trouble {
        Trouble::Failed => own,
        Trouble::Unreachable(max) => own.max(max),
    };
    meta.lifetime.stale == Stale::Permitted && !window.is_zero() && meta.staleness(now) <= window
}

/// Whether the last tenth of the lifetime has begun: nearly every hit is done with this.
#[inline]
fn may_be_early(meta: &Meta, now: Timestamp) -> bool {
    meta.fresh_left_millis(now) <= meta.lifetime.fresh.millis() / EARLY_GAP_DIVISOR
}

/// XFetch (Vattani, Chierichetti, Lowenstein 2015): refresh when
/// `-cost * beta * ln(chance) >= what is left`, so that refreshes spread over the last moments
/// instead of all falling on the last one.
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

/// Dice that never call for an early refresh; for judging where nobody could act on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDice;

impl Dice for NoDice {
    fn unit(&mut self) -> f64 {
        1.0
    }
}

/// What is left of an entry's lifetime for `Cache-Status`: positive while fresh, negative once
/// stale. Begun seconds count whole while it is fresh, so that `ttl` and `Age` add up to the
/// lifetime.
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
