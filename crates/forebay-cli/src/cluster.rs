//! What joins this cache with others: leases and a bus, over all tiers that they share.
//!
//! A site can have a Redis of its own, so there can be several. Who loads a key is asked where the
//! key is shared. A purge is told where what it reaches is shared; what comes over any of them is
//! heard, and only who hears all of them hears.

use std::sync::Arc;

use forebay_core::{Purge, Reach, WhenBlind};
use forebay_engine::bus::{Listener, Notice, Published};
use forebay_engine::lease::{Claim, Lease};
use forebay_engine::{Bus, Cluster, Leases, TierError};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;

use crate::config::plan::{Plan, RedisPlan};
use crate::shared::SharedTier;

/// What the engine is joined by; nothing if nothing is shared.
pub(crate) fn of(plan: &Plan, tiers: &[SharedTier]) -> Option<Cluster> {
    if tiers.is_empty() {
        return None;
    }
    let shared = Arc::new(Shared(tiers.to_vec()));
    // All sites share memory: whoever asks for caution gets it for all.
    let own = plan.sites.iter().filter_map(|site| site.redis.as_ref());
    let is_strict = |redis: &RedisPlan| redis.when_blind == WhenBlind::Strict;
    let when_blind = match plan.redis.iter().chain(own).any(is_strict) {
        true => WhenBlind::Strict,
        false => WhenBlind::Available,
    };
    Some(Cluster { when_blind, ..Cluster::new(shared.clone(), shared) })
}

/// All tiers that are shared.
struct Shared(Vec<SharedTier>);

impl Leases for Shared {
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Lease, TierError>> {
        let site = claim.primary.namespace();
        match self.0.iter().find(|tier| tier.is_for(site)) {
            Some(tier) => tier.redis.acquire(claim),
            None => async { Err(TierError::failed("nothing is shared of this site")) }.boxed(),
        }
    }
}

impl Shared {
    /// Where a purge has to be told. What is shared nowhere is told to all who listen anywhere.
    fn told<'a>(&'a self, what: &'a Purge) -> impl Iterator<Item = &'a SharedTier> {
        let is_about = move |tier: &&SharedTier| match what {
            Purge::Key(key) => tier.is_for(key.borrowed().namespace()),
            Purge::Site(site) | Purge::Prefix { site, .. } => tier.is_for(site.as_bytes()),
            Purge::Tag(_) | Purge::All => true,
        };
        let is_shared = self.0.iter().any(|tier| is_about(&tier));
        self.0.iter().filter(move |tier| !is_shared || is_about(tier))
    }
}

impl Bus for Shared {
    fn publish<'a>(
        &'a self,
        what: &'a Purge,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Published, TierError>> {
        let telling = self.told(what).map(|tier| tier.redis.publish(what, reach));
        let telling = join_all(telling);
        async move {
            let mut all: Option<Published> = None;
            for told in telling.await {
                let told = told?;
                all = Some(match all {
                    None => told,
                    Some(before) => together(before, told),
                });
            }
            all.ok_or_else(|| TierError::failed("nothing is shared"))
        }
        .boxed()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let heard = Mutex::new(vec![false; self.0.len()]);
        let hall = Arc::new(Hall { listener, heard });
        for (at, tier) in self.0.iter().enumerate() {
            tier.redis.listen(Arc::new(Ear { hall: hall.clone(), at }));
        }
    }
}

fn together(one: Published, other: Published) -> Published {
    let id = format!("{},{}", one.id, other.id).into();
    let instances = one.instances.max(other.instances);
    Published { id, instances, found: one.found || other.found }
}

/// Where everything that is heard comes together.
struct Hall {
    listener: Arc<dyn Listener>,
    /// Which of them are heard.
    heard: Mutex<Vec<bool>>,
}

/// Who listens to one of them.
struct Ear {
    hall: Arc<Hall>,
    at: usize,
}

impl Listener for Ear {
    fn hear(&self, notice: Notice) {
        // Held meanwhile: what is told comes from one thread at a time.
        let mut heard = self.hall.heard.lock();
        let hears = |heard: &[bool]| heard.iter().all(|one| *one);
        let before = hears(&heard);
        match notice {
            Notice::Heard => heard[self.at] = true,
            Notice::Lost => heard[self.at] = false,
            Notice::Purged { .. } | Notice::Outdated { .. } | Notice::Gap => {
                return self.hall.listener.hear(notice);
            }
        }
        if hears(&heard) != before {
            self.hall.listener.hear(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Notes(Mutex<Vec<Notice>>);

    impl Listener for Notes {
        fn hear(&self, notice: Notice) {
            self.0.lock().push(notice);
        }
    }

    #[test]
    fn only_who_hears_all_hears() {
        let notes = Arc::new(Notes::default());
        let heard = Mutex::new(vec![false; 2]);
        let hall = Arc::new(Hall { listener: notes.clone(), heard });
        let [one, other] = [0, 1].map(|at| Ear { hall: hall.clone(), at });
        let took = || std::mem::take(&mut *notes.0.lock());
        one.hear(Notice::Gap);
        one.hear(Notice::Heard);
        assert_eq!(took(), [Notice::Gap]);
        other.hear(Notice::Heard);
        assert_eq!(took(), [Notice::Heard]);
        one.hear(Notice::Heard);
        one.hear(Notice::Lost);
        other.hear(Notice::Lost);
        assert_eq!(took(), [Notice::Lost]);
        one.hear(Notice::Heard);
        assert_eq!(took(), []);
        let purged = Notice::Purged { what: Purge::All, reach: Reach::Soft };
        other.hear(purged.clone());
        other.hear(Notice::Heard);
        assert_eq!(took(), [purged, Notice::Heard]);
    }
}
