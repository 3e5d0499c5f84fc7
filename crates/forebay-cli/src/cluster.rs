//! What joins this cache with others: leases and a bus, over all tiers that they share.
//!
//! A site can have a Redis of its own, so there can be several. Who loads a key is asked where the
//! key is shared. A purge is told where what it reaches is shared; what comes over any of them is
//! heard, and only who hears all of them hears.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Purge, Reach, WhenBlind};
use forebay_engine::bus::{Bookmark, Listener, Notice, Published};
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
        let ends = self.0.iter().map(|tier| End::of(tier.name)).collect();
        let hall = Arc::new(Hall { listener, ends: Mutex::new(ends) });
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
    ends: Mutex<Vec<End>>,
}

/// One of them.
struct End {
    name: &'static str,
    is_heard: bool,
    /// Up to where everything was told.
    reached: Option<Bookmark>,
}

impl End {
    const fn of(name: &'static str) -> Self {
        Self { name, is_heard: false, reached: None }
    }
}

/// Where all of them are, in one: the name of each and its bookmark, with their lengths before
/// them. Nothing as long as one has told of none.
fn all_of(ends: &[End]) -> Option<Bookmark> {
    let mut out = Vec::new();
    for end in ends {
        for bytes in [end.name.as_bytes(), end.reached.as_ref()?.bytes()] {
            out.extend_from_slice(&u16::try_from(bytes.len()).ok()?.to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }
    Bookmark::new(out.into())
}

/// The one of a name in one of all; nothing if there is none.
fn one_of(all: &Bookmark, name: &str) -> Option<Bookmark> {
    let mut rest = all.bytes();
    loop {
        let (its, behind) = counted(rest)?;
        let (bookmark, behind) = counted(behind)?;
        if its == name.as_bytes() {
            return Bookmark::new(Bytes::copy_from_slice(bookmark));
        }
        rest = behind;
    }
}

fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

/// Who listens to one of them.
struct Ear {
    hall: Arc<Hall>,
    at: usize,
}

impl Listener for Ear {
    fn hear(&self, notice: Notice) {
        // Held meanwhile: what is told comes from one thread at a time.
        let mut ends = self.hall.ends.lock();
        let hears = |ends: &[End]| ends.iter().all(|end| end.is_heard);
        let before = hears(&ends);
        match notice {
            Notice::Heard => ends[self.at].is_heard = true,
            Notice::Lost => ends[self.at].is_heard = false,
            Notice::Reached(bookmark) => {
                ends[self.at].reached = Some(bookmark);
                if let Some(all) = all_of(&ends) {
                    self.hall.listener.hear(Notice::Reached(all));
                }
                return;
            }
            Notice::Purged { .. } | Notice::Outdated { .. } | Notice::Gap => {
                return self.hall.listener.hear(notice);
            }
        }
        if hears(&ends) != before {
            self.hall.listener.hear(notice);
        }
    }

    fn bookmark(&self) -> Option<Bookmark> {
        let name = self.hall.ends.lock()[self.at].name;
        one_of(&self.hall.listener.bookmark()?, name)
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

        /// The last one that it was told.
        fn bookmark(&self) -> Option<Bookmark> {
            self.0.lock().iter().rev().find_map(|notice| match notice {
                Notice::Reached(bookmark) => Some(bookmark.clone()),
                _ => None,
            })
        }
    }

    #[test]
    fn a_bookmark_of_all_is_one_of_each() {
        let notes = Arc::new(Notes::default());
        let hall = |names: &[&'static str]| {
            let ends = Mutex::new(names.iter().copied().map(End::of).collect());
            Arc::new(Hall { listener: notes.clone(), ends })
        };
        let ears = |names| {
            let hall = hall(names);
            (0..names.len()).map(|at| Ear { hall: hall.clone(), at }).collect::<Vec<_>>()
        };
        let bookmark = |text: &'static str| Bookmark::new(text.into()).expect("short");
        let before = ears(&["redis", "redis-shop"]);
        before[1].hear(Notice::Reached(bookmark("shop")));
        assert!(notes.0.lock().is_empty(), "of the other one nobody knows");
        before[0].hear(Notice::Reached(bookmark("all")));
        before[0].hear(Notice::Reached(bookmark("later")));
        let after = ears(&["redis-blog", "redis-shop", "redis"]);
        let known: Vec<_> = after.iter().map(Listener::bookmark).collect();
        assert_eq!(known, [None, Some(bookmark("shop")), Some(bookmark("later"))]);
    }

    #[test]
    fn only_who_hears_all_hears() {
        let notes = Arc::new(Notes::default());
        let ends = Mutex::new(["one", "other"].map(End::of).into());
        let hall = Arc::new(Hall { listener: notes.clone(), ends });
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
