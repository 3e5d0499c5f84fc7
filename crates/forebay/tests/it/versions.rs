//! Versions: the newest stays, in whatever order they come.

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

/// A load that names its version, behind a gate.
async fn load(cache: Cache<String>, (value, version): (&str, u64), gate: Gate) -> Option<String> {
    let value = value.to_owned();
    let loading = cache.with(Options::new().force_refresh());
    let load = move |_: Prior<String>| async move {
        gate.wait().await;
        Ok::<_, Error>(Answer::value(value).version(version))
    };
    let loaded = loading.get_or_load_with("key", load).await;
    loaded.expect("it loads").map(|value| value.to_string())
}

#[tokio::test]
async fn only_what_is_newer_is_stored() {
    let World { cache, .. } = World::new();
    assert!(set(&cache, "two", 2).await);
    assert!(!set(&cache, "one", 1).await);
    assert!(!set(&cache, "again", 2).await, "as new is not newer");
    assert_eq!(found(&cache, "key").await.as_deref(), Some("two"));
    assert!(set(&cache, "large", u64::MAX).await);
    assert_eq!(found(&cache, "key").await.as_deref(), Some("large"));
}

#[tokio::test]
async fn what_was_removed_at_a_version_does_not_come_back_below_it() {
    let World { cache, clock, .. } = World::new();
    assert!(set(&cache, "one", 1).await);
    assert!(!cache.remove_versioned("key", 1).await, "what is stored is as new");
    assert!(cache.remove_versioned("key", 3).await);
    assert_eq!(found(&cache, "key").await, None);
    assert!(!set(&cache, "two", 2).await);
    assert!(!cache.remove_versioned("key", 3).await);
    assert_eq!(load(cache.clone(), ("late", 2), Gate::of(0)).await.as_deref(), Some("late"));
    assert_eq!(found(&cache, "key").await, None, "who asked has it, and nobody else");
    assert!(set(&cache, "four", 4).await);
    assert_eq!(found(&cache, "key").await.as_deref(), Some("four"));
    // Longer than any load takes, a removal is remembered no more.
    assert!(cache.remove_versioned("key", 5).await);
    clock.advance(secs(59));
    assert!(!set(&cache, "late", 4).await);
    clock.advance(secs(2));
    assert!(set(&cache, "restored", 4).await);
}

#[tokio::test]
async fn versions_count_that_have_been_stored_for_long() {
    let cache = World::untimed(|builder| builder);
    assert!(set(&cache.cache, "two", 2).await);
    cache.clock.advance(secs(3_600));
    assert!(!set(&cache.cache, "one", 1).await);
    cache.cache.invalidate_all().await;
    assert!(set(&cache.cache, "one", 1).await, "what was invalidated is stored no more");
}

#[tokio::test]
async fn a_load_that_ends_late_does_not_replace_what_is_newer() {
    let World { cache, .. } = World::new();
    for (stored, loaded, stays) in [(2, 1, "set"), (4, 4, "loaded"), (6, 7, "loaded")] {
        let gate = Gate::new();
        let loading = tokio::spawn(load(cache.clone(), ("loaded", loaded), gate.clone()));
        gate.wait_waiters(1).await;
        assert!(set(&cache, "set", stored).await);
        gate.open();
        assert_eq!(loading.await.expect("no panic").as_deref(), Some("loaded"));
        // It began before: it is not stored, even if it is newer. The next load is.
        assert_eq!(found(&cache, "key").await.as_deref(), Some("set"));
        load(cache.clone(), ("loaded", loaded), Gate::of(0)).await;
        assert_eq!(found(&cache, "key").await.as_deref(), Some(stays), "{stored}, {loaded}");
    }
}

#[tokio::test]
async fn a_load_is_told_the_version_and_may_find_it_unchanged() {
    let World { cache, .. } = World::new();
    assert!(set(&cache, "seven", 7).await);
    let refresh = cache.with(Options::new().force_refresh());
    let load = |prior: Prior<String>| async move {
        assert_eq!((prior.version(), prior.validator()), (Some(7), None));
        Ok::<_, Error>(Answer::unchanged())
    };
    let loaded = refresh.get_or_load_with("key", load).await.expect("it loads");
    assert_eq!(loaded.as_deref().map(String::as_str), Some("seven"));
    assert!(!set(&cache, "six", 6).await, "it is still the seventh");
}

#[tokio::test]
async fn writers_in_any_order_leave_the_newest() {
    let World { cache, .. } = World::new();
    for turn in 0_u64..20 {
        let key: Arc<str> = format!("key:{turn}").into();
        let writers = (1..=50_u64).map(|version| {
            // Each number once, in an order that differs from turn to turn.
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
async fn versions_below_memory_count_too() {
    let (tier, clock) = (FaultyTier::new(), ManualClock::new());
    let over = || -> Cache<String> {
        Cache::builder("texts")
            .memory(Memory::entries(100))
            .ttl(secs(3_600))
            .clock(clock.shared())
            .tiers(Codec::new(MessagePack), [tier.shared()])
            .build()
            .expect("it can work")
    };
    let (before, after) = (over(), over());
    assert!(set(&before, "five", 5).await);
    // As after a restart: nothing is in memory, and nothing remembered.
    assert!(!set(&after, "four", 4).await);
    assert_eq!(found(&after, "key").await.as_deref(), Some("five"));
    assert!(after.remove_versioned("key", 6).await);
    assert_eq!(found(&over(), "key").await, None, "it is gone below, too");
}
