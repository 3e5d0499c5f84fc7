//! Checks that reject settings which are out of range or contradict each other.

use std::time::Duration;

use super::{Builder, reject};
use crate::error::BuildError;
use crate::lifetimes::{Lifetimes, Sliding};
use crate::tiers::tier_config::TierConfig;

impl<V: Send + Sync + 'static> Builder<V> {
    pub(super) fn check(&self) -> Result<(), BuildError> {
        self.check_lifetimes()?;
        self.check_windows()?;
        self.check_loads()?;
        if self.cluster.is_some() && !self.tiers.iter().any(TierConfig::is_shared) {
            return reject("`cluster` needs a shared tier, and none of the `tiers` is shared");
        }
        self.check_tiers()
    }

    fn check_lifetimes(&self) -> Result<(), BuildError> {
        let Lifetimes { ttl, negative_ttl, expires_at, sliding, adaptive_max, .. } = self.lifetimes;
        if [ttl, negative_ttl].contains(&Some(Duration::ZERO)) {
            return reject("`ttl` and `negative_ttl` must be longer than zero");
        }
        let given = [ttl.is_some(), expires_at.is_some(), sliding.is_some()];
        if given.into_iter().filter(|given| *given).count() > 1 {
            return reject("`ttl`, `expires_at` and `sliding` exclude each other: set one of them");
        }
        if let Some(message) = expires_at.and_then(|schedule| schedule.invalid()) {
            return reject(message);
        }
        if let Some(Sliding { idle, max }) = sliding
            && (idle < Duration::from_secs(1) || max <= idle)
        {
            return reject(format!(
                "`sliding` is (idle {idle:?}, max {max:?}): `idle` must be at least one second, \
                 and `max` longer than `idle`"
            ));
        }
        match (ttl, adaptive_max) {
            (_, None) => Ok(()),
            (Some(ttl), Some(max)) if max > ttl => Ok(()),
            (None, Some(_)) => reject("`adaptive` needs a `ttl` to start with: set one"),
            (Some(ttl), Some(max)) => reject(format!(
                "`adaptive` is {max:?} and `ttl` is {ttl:?}: `adaptive` must be longer than `ttl`"
            )),
        }
    }

    fn check_windows(&self) -> Result<(), BuildError> {
        let Lifetimes { ttl, expires_at, sliding, stale_while_revalidate, stale_if_error, .. } =
            self.lifetimes;
        let ends =
            ttl.is_some_and(|ttl| ttl < Duration::MAX) || expires_at.is_some() || sliding.is_some();
        if !ends && (stale_while_revalidate, stale_if_error) != (Duration::ZERO, Duration::ZERO) {
            return reject(
                "`stale_while_revalidate` and `stale_if_error` need values that become stale: set \
                 `ttl`, `expires_at` or `sliding`",
            );
        }
        if !stale_if_error.is_zero() && stale_if_error < stale_while_revalidate {
            return reject(format!(
                "`stale_if_error` is {stale_if_error:?} and `stale_while_revalidate` is \
                 {stale_while_revalidate:?}: `stale_if_error` must be zero or at least as long"
            ));
        }
        let beta = self.demand.beta;
        if !beta.is_finite() || beta < 0.0 {
            return reject(format!("`beta` is {beta}: it must be finite and at least 0"));
        }
        Ok(())
    }

    fn check_loads(&self) -> Result<(), BuildError> {
        let (soft, hard) = (self.demand.soft_timeout, self.hard_timeout);
        if self.load_timeout.is_zero() || [soft, hard].contains(&Some(Duration::ZERO)) {
            return reject(
                "`load_timeout`, `soft_timeout` and `hard_timeout` must be longer than zero",
            );
        }
        if let (Some(soft), Some(hard)) = (soft, hard)
            && soft >= hard
        {
            return reject(format!(
                "`soft_timeout` is {soft:?} and `hard_timeout` is {hard:?}: `soft_timeout` must \
                 be shorter"
            ));
        }
        if soft.is_some() && self.lifetimes.stale_if_error.is_zero() {
            return reject(
                "`soft_timeout` serves stale values within `stale_if_error`: set that as well",
            );
        }
        if self.loads_max == Some(0) {
            return reject("`loads_max` is zero: no load could start; set at least 1");
        }
        Ok(())
    }

    fn check_tiers(&self) -> Result<(), BuildError> {
        if self.tiers.is_empty() {
            return self.check_without_tiers();
        }
        if self.name.is_empty() {
            return reject("the name is empty: a cache with `tiers` needs one for its keys there");
        }
        self.check_sliding()?;
        self.check_order()
    }

    fn check_without_tiers(&self) -> Result<(), BuildError> {
        if self.codec.is_some() {
            return reject(
                "a codec is set, but there are no `tiers`: add one, or remove the codec",
            );
        }
        if self.memory_ttl.is_some() {
            return reject("`memory_ttl` needs `tiers`: without them set `ttl`");
        }
        Ok(())
    }

    /// Rejects a lifetime limit of one tier beside `sliding`: it would end values that are in use.
    fn check_sliding(&self) -> Result<(), BuildError> {
        let timed = self.tiers.iter().any(|tier| tier.ttl.is_some());
        if self.lifetimes.sliding.is_some() && (timed || self.memory_ttl.is_some()) {
            return reject(
                "`sliding` sets the lifetime in all tiers: remove `memory_ttl` and the `ttl` of \
                 each tier, or replace `sliding` by `ttl`",
            );
        }
        Ok(())
    }

    /// Rejects a tier that keeps values longer than the tier below it, which it revalidates with.
    fn check_order(&self) -> Result<(), BuildError> {
        let longest = self.lifetimes.adaptive_max.or(self.lifetimes.ttl);
        let spans = std::iter::once(("memory".to_owned(), self.memory_ttl))
            .chain(self.tiers.iter().map(|tier| (tier.name(), tier.ttl)))
            .chain([("the cache".to_owned(), longest)]);
        let mut above: Option<(String, Duration)> = None;
        for (name, span) in spans {
            let Some(span) = span else { continue };
            if span.is_zero() {
                return reject(format!("the ttl of {name} is zero: it must be longer than zero"));
            }
            if let Some((higher, longer)) = &above
                && *longer > span
            {
                return reject(format!(
                    "the ttl of {higher} ({longer:?}) is longer than that of {name} ({span:?}): \
                     a tier must not keep values longer than a tier below it, or than the lifetime \
                     of the cache (`ttl`, or `adaptive` if set)"
                ));
            }
            above = Some((name, span));
        }
        Ok(())
    }
}
