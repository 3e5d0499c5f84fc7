//! Versioned writes: the newest version stays, in whatever order writers end.

use std::sync::Arc;

use forebay::codec::{Codec, MessagePack};
use forebay::testkit::{FaultyTier, ManualClock};
use forebay::{Answer, Cache, Error, Memory, Options, Prior};
use forebay_testkit::gate::Gate;

use crate::world::{World, secs};

async fn found(cache: &Cache<String>, key: &str) -> Option<String> {
    cache.get(key).await.map(|value| value.to_string())
}

async fn set(cache: &Cache<String>, value: &str, version: u64) -> bool {
    cache.set_versioned("key", value.to_owned(), version).await
}

/// Loads a version of a value, after waiting at a gate.
async fn load(cache: Cache<String>, value: &str, version: u64, gate: Gate) -> Option<String> {
    let value = value.to_owned();
    let loading = cache.with(Options::new().force_refresh());
    let load = move |_: Prior<String>| async move {
        gate.wait().await;
        Ok::<_, Error>(Answer::value(value).version(version))
    };
    let loaded = loading.get_or_load_with("key", load).await;
    loaded.expect("the load succeeds").map(|value| value.to_string())
}

#[tokio::test]
async fn set_versioned_stores_newer_versions_only() {
    let World { cache, .. } = World::new();
    assert!(set(&cache, "two", 2).await);
    assert!(!set(&cache, "one", 1).await);
    assert!(!set(&cache, "again", 2).await, "an equal version is not newer");
    assert_eq!(found(&cache, "key").await.as_deref(), Some("two"));
    assert!(set(&cache, "large", u64::MAX).await);
    assert_eq!(found(&cache, "key").await.as_deref(), Some("large"));
}

#[tokio::test]
async fn remove_versioned_refuses_older_versions_for_load_timeout() {
    let World { cache, clock, .. } = World::new();
    assert!(set(&cache, "one", 1).await);
    assert!(!cache.remove_versioned("key", 1).await, "the stored version is as new");
    assert!(cache.remove_versioned("key", 3).await);
    assert_eq!(found(&cache, "key").await, None);
    assert!(!set(&cache, "two", 2).await);
    assert!(!cache.remove_versioned("key", 3).await);
    assert_eq!(load(cache.clone(), "late", 2, Gate::of(0)).await.as_deref(), Some("late"));
    assert_eq!(found(&cache, "key").await, None, "the load is not stored");
    assert!(set(&cache, "four", 4).await);
    assert_eq!(found(&cache, "key").await.as_deref(), Some("four"));
    // A removed version is remembered for load_timeout, 60 s.
    assert!(cache.remove_versioned("key", 5).await);
    clock.advance(secs(59));
    assert!(!set(&cache, "late", 4).await);
    clock.advance(secs(2));
    assert!(set(&cache, "restored", 4).await);
}

#[tokio::test]
async fn the_version_of_an_old_entry_is_compared() {
    let cache = World::untimed(|builder| builder);
    assert!(set(&cache.cache, "two", 2).await);
    cache.clock.advance(secs(3_600));
    assert!(!set(&cache.cache, "one", 1).await);
    cache.cache.invalidate_all().await;
    assert!(set(&cache.cache, "one", 1).await, "invalidate_all forgets versions");
}

#[tokio::test]
async fn a_late_load_does_not_replace_a_newer_version() {
    let World { cache, .. } = World::new();
    for (stored, loaded, stays) in [(2, 1, "set"), (4, 4, "loaded"), (6, 7, "loaded")] {
        let gate = Gate::new();
        let loading = tokio::spawn(load(cache.clone(), "loaded", loaded, gate.clone()));
        gate.wait_waiters(1).await;
        assert!(set(&cache, "set", stored).await);
        gate.open();
        // The load began before `set`, so it is not stored, even if it is newer. Its caller receives
        // the stored value, like the next caller. The next load is stored.
        assert_eq!(loading.await.expect("no panic").as_deref(), Some("set"));
        assert_eq!(found(&cache, "key").await.as_deref(), Some("set"));
        load(cache.clone(), "loaded", loaded, Gate::of(0)).await;
        assert_eq!(found(&cache, "key").await.as_deref(), Some(stays), "{stored}, {loaded}");
    }
}

#[tokio::test]
async fn a_loader_reads_the_version_and_may_answer_unchanged() {
    let World { cache, .. } = World::new();
    assert!(set(&cache, "seven", 7).await);
    let refresh = cache.with(Options::new().force_refresh());
    let load = |prior: Prior<String>| async move {
        assert_eq!((prior.version(), prior.validator()), (Some(7), None));
        Ok::<_, Error>(Answer::unchanged())
    };
    let loaded = refresh.get_or_load_with("key", load).await.expect("the load succeeds");
    assert_eq!(loaded.as_deref().map(String::as_str), Some("seven"));
    assert!(!set(&cache, "six", 6).await, "the version is kept");
}

#[tokio::test]
async fn concurrent_versioned_writes_keep_the_newest() {
    let World { cache, .. } = World::new();
    for turn in 0_u64..20 {
        let key: Arc<str> = format!("key:{turn}").into();
        let writers = (1..=50_u64).map(|version| {
            // Each number once, in another order in each round.
            let version = version * (2 * turn + 1) % 53 + 1;
            let (cache, key) = (cache.clone(), key.clone());
            tokio::spawn(async move {
                cache.set_versioned(&key, version.to_string(), version).await.then_some(version)
            })
        });
        let writers: Vec<_> = writers.collect();
        let mut newest = None;
        for writer in writers {
            newest = newest.max(writer.await.expect("no panic"));
        }
        assert_eq!(found(&cache, &key).await, newest.map(|version| version.to_string()));
        assert_eq!(newest, (1..=50).map(|version| version * (2 * turn + 1) % 53 + 1).max());
    }
}

#[tokio::test]
async fn versions_in_a_tier_are_compared() {
    let (tier, clock) = (FaultyTier::new(), ManualClock::new());
    let over = || -> Cache<String> {
        Cache::builder("texts")
            .memory(Memory::entries(100))
            .ttl(secs(3_600))
            .clock(clock.shared())
            .tiers(Codec::new(MessagePack), [tier.shared()])
            .build()
            .expect("valid settings")
    };
    let (before, after) = (over(), over());
    assert!(set(&before, "five", 5).await);
    // Like a restarted process: memory is empty, and no removals are remembered.
    assert!(!set(&after, "four", 4).await);
    assert_eq!(found(&after, "key").await.as_deref(), Some("five"));
    assert!(after.remove_versioned("key", 6).await);
    assert_eq!(found(&over(), "key").await, None, "removed from the tier as well");
}
