//! What cannot work, alone or together, and is refused with a sentence.

use std::time::Duration;

use super::{Builder, refuse};
use crate::error::BuildError;
use crate::lifetimes::{Lifetimes, Sliding};

impl<V: Send + Sync + 'static> Builder<V> {
    pub(super) fn check(&self) -> Result<(), BuildError> {
        self.check_end()?;
        self.check_windows()?;
        self.check_loads()?;
        if self.cluster.is_some() && !self.tiers.iter().any(crate::TierConfig::is_shared) {
            return refuse("a `cluster` shares one of its `tiers`, and none of these is shared");
        }
        self.check_tiers()
    }

    /// When values end.
    fn check_end(&self) -> Result<(), BuildError> {
        let Lifetimes { ttl, negative_ttl, expires_at, sliding, adaptive_max, .. } = self.lifetimes;
        if [ttl, negative_ttl].contains(&Some(Duration::ZERO)) {
            return refuse("`ttl` and `negative_ttl` are longer than zero, or nothing is kept");
        }
        let ends = [ttl.is_some(), expires_at.is_some(), sliding.is_some()];
        if ends.into_iter().filter(|given| *given).count() > 1 {
            return refuse(
                "give one of `ttl`, `expires_at` and `sliding`: each says when values end",
            );
        }
        if let Some(flaw) = expires_at.and_then(|schedule| schedule.flaw()) {
            return refuse(flaw);
        }
        if let Some(Sliding { idle, max }) = sliding
            && (idle < Duration::from_secs(1) || max <= idle)
        {
            return refuse(format!(
                "`sliding` is {idle:?} unused and {max:?} in all: the first is a second at least, \
                 and the second is longer"
            ));
        }
        match (ttl, adaptive_max) {
            (_, None) => Ok(()),
            (Some(ttl), Some(max)) if max > ttl => Ok(()),
            (None, Some(_)) => refuse("`adaptive` begins with a `ttl`: give one"),
            (Some(ttl), Some(max)) => refuse(format!(
                "`adaptive` ends at {max:?}, and `ttl` is {ttl:?} already: make it longer"
            )),
        }
    }

    fn check_windows(&self) -> Result<(), BuildError> {
        let Lifetimes { ttl, expires_at, sliding, stale_while_revalidate, stale_if_error, .. } =
            self.lifetimes;
        let ends =
            ttl.is_some_and(|ttl| ttl < Duration::MAX) || expires_at.is_some() || sliding.is_some();
        if !ends && (stale_while_revalidate, stale_if_error) != (Duration::ZERO, Duration::ZERO) {
            return refuse("values without a `ttl` are never stale: give one, or no windows");
        }
        if !stale_if_error.is_zero() && stale_if_error < stale_while_revalidate {
            return refuse(format!(
                "`stale_if_error` ({stale_if_error:?}) ends before `stale_while_revalidate` \
                 ({stale_while_revalidate:?}) and would never matter: make it longer"
            ));
        }
        let beta = self.demand.beta;
        if !beta.is_finite() || beta < 0.0 {
            return refuse(format!("`beta` is {beta}, and has to be zero or more"));
        }
        Ok(())
    }

    fn check_loads(&self) -> Result<(), BuildError> {
        let (soft, hard) = (self.demand.soft_timeout, self.hard_timeout);
        if self.load_timeout.is_zero() || [soft, hard].contains(&Some(Duration::ZERO)) {
            return refuse("a timeout of zero would end every load before it begins");
        }
        if let (Some(soft), Some(hard)) = (soft, hard)
            && soft >= hard
        {
            return refuse(format!(
                "`soft_timeout` ({soft:?}) comes after `hard_timeout` ({hard:?}): make it shorter"
            ));
        }
        if soft.is_some() && self.lifetimes.stale_if_error.is_zero() {
            return refuse(
                "`soft_timeout` serves what is stale within `stale_if_error`: give that, too",
            );
        }
        if self.loads_max == Some(0) {
            return refuse("`loads_max` is zero, so that nothing could be loaded");
        }
        Ok(())
    }

    fn check_tiers(&self) -> Result<(), BuildError> {
        if self.tiers.is_empty() {
            return self.check_without_tiers();
        }
        if self.name.is_empty() {
            return refuse("a cache with `tiers` needs a name: others may write there, too");
        }
        self.check_sliding()?;
        self.check_order()
    }

    fn check_without_tiers(&self) -> Result<(), BuildError> {
        if self.codec.is_some() {
            return refuse(
                "there is a codec and no tier: `tiers` is empty, name one or leave it out",
            );
        }
        if self.memory_ttl.is_some() {
            return refuse("`memory_ttl` is for caches with `tiers`: without them `ttl` is all");
        }
        Ok(())
    }

    /// A time of a tier's own would end a value that is in use.
    fn check_sliding(&self) -> Result<(), BuildError> {
        let timed = self.tiers.iter().any(|below| below.ttl.is_some());
        if self.lifetimes.sliding.is_some() && (timed || self.memory_ttl.is_some()) {
            return refuse(
                "`sliding` says how long values live, in all tiers: leave out `memory_ttl` and the \
                 `ttl` of each tier, or give a `ttl` in the place of `sliding`",
            );
        }
        Ok(())
    }

    /// What a tier has let go of cannot be asked for by the one above it.
    fn check_order(&self) -> Result<(), BuildError> {
        let longest = self.lifetimes.adaptive_max.or(self.lifetimes.ttl);
        let spans = std::iter::once(("memory".to_owned(), self.memory_ttl))
            .chain(self.tiers.iter().map(|below| (below.name(), below.ttl)))
            .chain([("everything".to_owned(), longest)]);
        let mut above: Option<(String, Duration)> = None;
        for (name, span) in spans {
            let Some(span) = span else { continue };
            if span.is_zero() {
                return refuse(format!("the ttl of {name} is zero, so that nothing could be kept"));
            }
            if let Some((higher, longer)) = &above
                && *longer > span
            {
                return refuse(format!(
                    "the ttl of {higher} ({longer:?}) is longer than that of {name} ({span:?}): \
                     what is gone below cannot be asked about above"
                ));
            }
            above = Some((name, span));
        }
        Ok(())
    }
}
