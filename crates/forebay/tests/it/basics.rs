//! Values, bounds and statistics.

use std::sync::Arc;

use forebay::{Cache, Memory, Prediction};

use crate::world::{World, secs};

/// A value that can be told from its copies.
struct Row(u64);

fn rows(memory: Memory) -> Cache<Row> {
    Cache::builder("rows").memory(memory).build().expect("it can work")
}

#[tokio::test]
async fn a_value_is_handed_out_itself_and_never_copied() {
    let cache = rows(Memory::entries(10));
    let row = Arc::new(Row(7));
    assert!(cache.set("a", row.clone()).await);
    let found = cache.get("a").await.expect("it is there");
    assert!(Arc::ptr_eq(&row, &found));
    let load = || async { Ok::<Row, String>(Row(8)) };
    let loaded = cache.get_or_load("a", load).await.expect("a value");
    assert!(Arc::ptr_eq(&row, &loaded), "nothing was loaded");
    let other = cache.get_or_load(String::from("b"), load).await.expect("a value");
    assert_eq!(other.0, 8);
    let again = cache.get("b").await.expect("it is there");
    assert!(Arc::ptr_eq(&other, &again));
}

#[tokio::test]
async fn a_bound_in_entries_holds_exactly_so_many() {
    for entries in [1, 7, 1_000] {
        let cache = rows(Memory::entries(entries));
        for number in 0..entries {
            cache.set(number.to_string(), Row(number)).await;
        }
        assert_eq!((cache.stats().entries, cache.stats().evictions), (entries, 0));
        for number in 0..entries {
            let row = cache.get(number.to_string()).await.expect("nothing had to leave");
            assert_eq!(row.0, number);
        }
        for number in 0..100 {
            cache.set(format!("other {number}"), Row(number)).await;
        }
        assert_eq!((cache.stats().entries, cache.stats().evictions), (entries, 100));
    }
}

#[tokio::test]
async fn a_large_bound_in_entries_is_never_exceeded_and_nearly_reached() {
    const ENTRIES: u64 = 50_000;
    let cache = rows(Memory::entries(ENTRIES));
    for number in 0..2 * ENTRIES {
        cache.set(number.to_string(), Row(number)).await;
    }
    let held = cache.stats().entries;
    assert!((ENTRIES * 95 / 100..=ENTRIES).contains(&held), "{held}");
}

#[tokio::test]
async fn a_bound_in_bytes_holds_what_the_weigher_says() {
    const BOUND: u64 = 1 << 20;
    let cache: Cache<Vec<u8>> = Cache::builder("blobs")
        .memory(Memory::bytes(BOUND))
        .weigher(|key, blob: &Vec<u8>| {
            assert!(key.starts_with("blob"));
            blob.capacity()
        })
        .build()
        .expect("it can work");
    for number in 0..1_000 {
        assert!(cache.set(format!("blob {number}"), vec![7; 10_000]).await);
        assert!(cache.stats().weight <= BOUND);
    }
    let held = cache.stats();
    assert!(held.entries * 10_000 <= BOUND, "{held:?}");
    assert!(held.weight > BOUND * 9 / 10, "{held:?}");
    assert_eq!(held.entries + held.evictions, 1_000);
    assert!(!cache.set("blob", vec![7; 300_000]).await, "heavier than a quarter");
    assert!(cache.get("blob").await.is_none());
    let load = || async { Ok::<_, String>(vec![7; 300_000]) };
    let blob = cache.get_or_load("blob", load).await.expect("it is handed out all the same");
    assert_eq!(blob.len(), 300_000);
}

#[tokio::test]
async fn caches_of_one_name_share_nothing() {
    let (one, other) = (rows(Memory::entries(10)), rows(Memory::entries(10)));
    one.set("a", Row(1)).await;
    assert!(other.get("a").await.is_none());
    assert!(one.clone().get("a").await.is_some(), "a clone is the same cache");
}

#[tokio::test]
async fn each_call_counts_once() {
    let world = World::new();
    assert_eq!(world.get("a").await, None);
    world.load("a").await.expect("a value");
    world.load("a").await.expect("a value");
    assert_eq!(world.get("a").await.as_deref(), Some("1"));
    world.fail("b").await.expect_err("it fails");
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.errors), (2, 2, 1));
    assert_eq!((stats.loads, stats.load_failures), (2, 1));
    assert_eq!((stats.entries, stats.weight), (1, 1));
    assert!((stats.hit_ratio() - 0.4).abs() < 1e-9);
}

#[tokio::test]
async fn an_explanation_says_what_a_call_would_do_and_changes_nothing() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(30)));
    let explain = || world.cache.explain("a");
    assert_eq!(explain().to_string(), "it is loaded (uri-miss); nothing is stored in memory");
    world.load("a").await.expect("a value");
    world.clock.advance(secs(20));
    assert_eq!(
        explain().to_string(),
        "it is served; a value is stored, 20s old, and fresh for 40 s"
    );
    world.clock.advance(secs(45));
    assert_eq!(
        explain().to_string(),
        "it is served, and refreshed meanwhile (stale); a value is stored, 65s old, and stale \
         for 5 s"
    );
    world.clock.advance(secs(30));
    assert_eq!(explain().prediction, Prediction::Loaded);
    assert_eq!(explain().stored.expect("it is there").ttl_left, -35);
    world.cache.remove("a").await;
    assert_eq!(explain().stored, None);
    assert_eq!((world.loads(), world.cache.stats().hits), (1, 0));
}

#[tokio::test]
async fn keys_that_nobody_has_drive_out_no_values() {
    for entries in [64, 1_000] {
        let cache = rows(Memory::entries(entries));
        for number in 0..entries {
            cache.set(number.to_string(), Row(number)).await;
        }
        for number in 0..2_000 {
            let absent = |_| async { Ok::<_, String>(None) };
            let found = cache.get_or_load_with(format!("no {number}"), absent).await;
            assert!(found.expect("an answer").is_none());
        }
        for number in 0..entries {
            assert!(cache.get(number.to_string()).await.is_some(), "{number} of {entries}");
        }
        assert!(cache.stats().entries <= entries + entries / 15 + 1);
    }
}
