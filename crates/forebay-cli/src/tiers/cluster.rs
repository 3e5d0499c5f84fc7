//! Leases and the invalidation bus over all shared tiers.
//!
//! A site can have its own Redis, so there can be several shared tiers. The lease of a key is taken
//! in the tier that holds the key. A purge is published to the tiers that hold what it purges.
//! Purges from every tier are applied; the bus counts as connected while all tiers are.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Purge, Reach, WhenBlind};
use forebay_engine::bus::{Bookmark, Listener, Notice, Published};
use forebay_engine::lease::{Claim, Lease};
use forebay_engine::{Bus, Cluster, Leases, TierError};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;

use crate::config::resolved::{ResolvedConfig, ResolvedRedis};
use crate::tiers::shared::SharedTier;

/// Cluster of the engine; `None` without a shared tier.
pub(crate) fn of(config: &ResolvedConfig, tiers: &[SharedTier]) -> Option<Cluster> {
    if tiers.is_empty() {
        return None;
    }
    let shared = Arc::new(SharedTiers(tiers.to_vec()));
    // All sites share the memory tier, so one strict site makes the policy strict for all.
    let own = config.sites.iter().filter_map(|site| site.redis.as_ref());
    let is_strict = |redis: &ResolvedRedis| redis.when_blind == WhenBlind::Strict;
    let when_blind = match config.redis.iter().chain(own).any(is_strict) {
        true => WhenBlind::Strict,
        false => WhenBlind::Available,
    };
    Some(Cluster { when_blind, ..Cluster::new(shared.clone(), shared) })
}

/// All shared tiers.
struct SharedTiers(Vec<SharedTier>);

impl Leases for SharedTiers {
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<Lease, TierError>> {
        let site = claim.primary.namespace();
        match self.0.iter().find(|tier| tier.namespaces.contains(site)) {
            Some(tier) => tier.redis.acquire(claim),
            None => async {
                Err(TierError::failed("no lease requested: the site of the key has no shared tier"))
            }
            .boxed(),
        }
    }
}

impl SharedTiers {
    /// Tiers to publish a purge to: those that hold what it purges, or all if none does.
    fn recipients<'a>(&'a self, what: &'a Purge) -> impl Iterator<Item = &'a SharedTier> {
        let is_about = move |tier: &&SharedTier| match what {
            Purge::Key(key) => tier.namespaces.contains(key.borrowed().namespace()),
            Purge::Site(site) | Purge::Prefix { site, .. } => {
                tier.namespaces.contains(site.as_bytes())
            }
            Purge::Tag(_) | Purge::All => true,
        };
        let is_shared = self.0.iter().any(|tier| is_about(&tier));
        self.0.iter().filter(move |tier| !is_shared || is_about(tier))
    }
}

impl Bus for SharedTiers {
    fn publish<'a>(
        &'a self,
        what: &'a Purge,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Published, TierError>> {
        let publishing = self.recipients(what).map(|tier| tier.redis.publish(what, reach));
        let publishing = join_all(publishing);
        async move {
            let mut all: Option<Published> = None;
            for told in publishing.await {
                let told = told?;
                all = Some(match all {
                    None => told,
                    Some(before) => merged(before, told),
                });
            }
            all.ok_or_else(|| {
                TierError::failed("purge not published: no shared tier is configured")
            })
        }
        .boxed()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let sources = self.0.iter().map(|tier| BusSource::of(tier.name)).collect();
        let bus = Arc::new(MergedBus { listener, sources: Mutex::new(sources) });
        for (at, tier) in self.0.iter().enumerate() {
            tier.redis.listen(Arc::new(SourceListener { bus: bus.clone(), at }));
        }
    }
}

fn merged(one: Published, other: Published) -> Published {
    let id = format!("{},{}", one.id, other.id).into();
    let instances = one.instances.max(other.instances);
    Published { id, instances, found: one.found || other.found }
}

/// Merges the notices of all shared tiers into one listener.
struct MergedBus {
    listener: Arc<dyn Listener>,
    sources: Mutex<Vec<BusSource>>,
}

/// State of one shared tier's bus.
struct BusSource {
    name: &'static str,
    is_connected: bool,
    /// Position up to which all purges of this tier were received.
    reached: Option<Bookmark>,
}

impl BusSource {
    const fn of(name: &'static str) -> Self {
        Self { name, is_connected: false, reached: None }
    }
}

/// Combines the bookmarks of all sources into one: name and bookmark of each, with a length prefix
/// of two bytes. `None` while a source has no bookmark.
fn merge_bookmarks(sources: &[BusSource]) -> Option<Bookmark> {
    let mut out = Vec::new();
    for source in sources {
        for bytes in [source.name.as_bytes(), source.reached.as_ref()?.bytes()] {
            out.extend_from_slice(&u16::try_from(bytes.len()).ok()?.to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }
    Bookmark::new(out.into())
}

/// Bookmark of the source `name` within a merged bookmark; `None` if it is absent.
fn bookmark_of(all: &Bookmark, name: &str) -> Option<Bookmark> {
    let mut rest = all.bytes();
    loop {
        let (found, behind) = length_prefixed(rest)?;
        let (bookmark, behind) = length_prefixed(behind)?;
        if found == name.as_bytes() {
            return Bookmark::new(Bytes::copy_from_slice(bookmark));
        }
        rest = behind;
    }
}

fn length_prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

/// Listener for the source at index `at`.
struct SourceListener {
    bus: Arc<MergedBus>,
    at: usize,
}

impl Listener for SourceListener {
    fn hear(&self, notice: Notice) {
        // The lock is held during the call, so that the listener is called by one thread at a time.
        let mut sources = self.bus.sources.lock();
        let all_connected =
            |sources: &[BusSource]| sources.iter().all(|source| source.is_connected);
        let before = all_connected(&sources);
        match notice {
            Notice::Connected => sources[self.at].is_connected = true,
            Notice::Disconnected => sources[self.at].is_connected = false,
            Notice::Reached(bookmark) => {
                sources[self.at].reached = Some(bookmark);
                if let Some(all) = merge_bookmarks(&sources) {
                    self.bus.listener.hear(Notice::Reached(all));
                }
                return;
            }
            Notice::Purged { .. } | Notice::Outdated { .. } | Notice::Gap => {
                return self.bus.listener.hear(notice);
            }
        }
        if all_connected(&sources) != before {
            self.bus.listener.hear(notice);
        }
    }

    fn bookmark(&self) -> Option<Bookmark> {
        let name = self.bus.sources.lock()[self.at].name;
        bookmark_of(&self.bus.listener.bookmark()?, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<Notice>>);

    impl Listener for Recorder {
        fn hear(&self, notice: Notice) {
            self.0.lock().push(notice);
        }

        /// Last bookmark that was received.
        fn bookmark(&self) -> Option<Bookmark> {
            self.0.lock().iter().rev().find_map(|notice| match notice {
                Notice::Reached(bookmark) => Some(bookmark.clone()),
                _ => None,
            })
        }
    }

    #[test]
    fn a_merged_bookmark_splits_into_one_per_source() {
        let recorder = Arc::new(Recorder::default());
        let bus = |names: &[&'static str]| {
            let sources = Mutex::new(names.iter().copied().map(BusSource::of).collect());
            Arc::new(MergedBus { listener: recorder.clone(), sources })
        };
        let listeners = |names| {
            let bus = bus(names);
            (0..names.len()).map(|at| SourceListener { bus: bus.clone(), at }).collect::<Vec<_>>()
        };
        let bookmark = |text: &'static str| Bookmark::new(text.into()).expect("short");
        let before = listeners(&["redis", "redis-shop"]);
        before[1].hear(Notice::Reached(bookmark("shop")));
        assert!(recorder.0.lock().is_empty(), "the other source has no bookmark yet");
        before[0].hear(Notice::Reached(bookmark("all")));
        before[0].hear(Notice::Reached(bookmark("later")));
        let after = listeners(&["redis-blog", "redis-shop", "redis"]);
        let known: Vec<_> = after.iter().map(Listener::bookmark).collect();
        assert_eq!(known, [None, Some(bookmark("shop")), Some(bookmark("later"))]);
    }

    #[test]
    fn the_bus_is_connected_only_when_every_source_is() {
        let recorder = Arc::new(Recorder::default());
        let sources = Mutex::new(["one", "other"].map(BusSource::of).into());
        let bus = Arc::new(MergedBus { listener: recorder.clone(), sources });
        let [one, other] = [0, 1].map(|at| SourceListener { bus: bus.clone(), at });
        let took = || std::mem::take(&mut *recorder.0.lock());
        one.hear(Notice::Gap);
        one.hear(Notice::Connected);
        assert_eq!(took(), [Notice::Gap]);
        other.hear(Notice::Connected);
        assert_eq!(took(), [Notice::Connected]);
        one.hear(Notice::Connected);
        one.hear(Notice::Disconnected);
        other.hear(Notice::Disconnected);
        assert_eq!(took(), [Notice::Disconnected]);
        one.hear(Notice::Connected);
        assert_eq!(took(), []);
        let purged = Notice::Purged { what: Purge::All, reach: Reach::Soft };
        other.hear(purged.clone());
        other.hear(Notice::Connected);
        assert_eq!(took(), [purged, Notice::Connected]);
    }
}
