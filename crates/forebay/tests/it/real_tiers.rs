//! Disk and Redis tiers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::codec::{Codec, Compression, MessagePack};
use forebay::{Answer, Cache, Disk, Error, Memory, Options, Redis};
use forebay_testkit::redis::RedisLaunch;
use tempfile::TempDir;
use tokio::time::{interval, timeout};

use crate::world::secs;

/// Maximum time that a test waits for an event.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Interval at which a test polls a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Smallest size of a disk tier in bytes.
const SIZE: u64 = 16 << 20;

async fn opened(folder: &TempDir) -> Disk {
    Disk::open(folder.path().join("tier"), SIZE).await.expect("a directory")
}

/// Opens the directory again, when the threads of the previous tier have released it.
async fn reopened(folder: &TempDir) -> Disk {
    let opening = async {
        let mut looks = interval(POLL_INTERVAL);
        loop {
            if let Ok(disk) = Disk::open(folder.path().join("tier"), SIZE).await {
                return disk;
            }
            looks.tick().await;
        }
    };
    timeout(WAIT_MAX, opening).await.expect("the directory is released in time")
}

fn over(disk: &Disk) -> Cache<String> {
    Cache::builder("texts")
        .memory(Memory::entries(100))
        .disk(disk.clone())
        .ttl(secs(600))
        .build()
        .expect("valid settings")
}

/// Polls until a condition holds.
async fn wait_until(reached: impl AsyncFn() -> bool) {
    let reaching = async {
        let mut looks = interval(POLL_INTERVAL);
        while !reached().await {
            looks.tick().await;
        }
    };
    timeout(WAIT_MAX, reaching).await.expect("the condition holds in time");
}

#[tokio::test]
async fn an_entry_stored_after_a_tag_purge_is_read_from_disk() {
    let folder = TempDir::new().expect("a directory");
    let disk = opened(&folder).await;
    let builder = Cache::builder("texts").memory(Memory::entries(1)).disk(disk.clone());
    let cache: Cache<String> = builder.ttl(secs(600)).build().expect("valid settings");
    let loads = Arc::new(AtomicU64::new(0));
    let load = async |key: &str| {
        let loads = loads.clone();
        let answer = move |_| {
            let number = loads.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok::<_, Error>(Answer::value(number.to_string()).tags(["news"])) }
        };
        let value = cache.get_or_load_with(key, answer).await.expect("a value");
        wait_until(async || cache.stats().loading == 0).await;
        value.expect("a stored entry").to_string()
    };
    assert_eq!(load("a").await, "1");
    cache.invalidate_tags(["news"]).await;
    assert_eq!(load("a").await, "2", "a was purged");
    assert_eq!(load("b").await, "3", "b evicts a from memory");
    assert_eq!(load("a").await, "2", "read from disk, where it was stored after the purge");
    cache.invalidate_tags(["news"]).await;
    assert_eq!(load("b").await, "4", "the second purge removes it from disk");
    assert_eq!(load("a").await, "5");
}

#[tokio::test]
async fn values_on_disk_survive_a_restart_and_purged_ones_do_not() {
    let folder = TempDir::new().expect("a folder");
    let disk = opened(&folder).await;
    let cache = over(&disk);
    // On a busy machine a write or a removal may time out, so each is repeated.
    for key in ["a", "b", "c"] {
        let tagged = cache.with(Options::new().tags([if key == "c" { "red" } else { "blue" }]));
        wait_until(async || {
            tagged.set(key, key.repeat(2_000)).await;
            over(&disk).get(key).await.is_some()
        })
        .await;
    }
    wait_until(async || {
        cache.remove("b").await;
        over(&disk).get("b").await.is_none()
    })
    .await;
    wait_until(async || {
        let before = cache.stats().tier_failures;
        cache.invalidate_tag("red").await;
        cache.stats().tier_failures == before
    })
    .await;
    disk.close().await;
    drop((cache, disk));
    let cache = over(&reopened(&folder).await);
    wait_until(async || cache.get("a").await.is_some()).await;
    assert_eq!(cache.get("a").await.map(|text| text.len()), Some(2_000));
    let many = cache.get_many(&["a", "b", "c"]).await;
    let there: Vec<bool> = many.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, false]);
}

#[tokio::test]
async fn an_unchanged_value_survives_a_restart_with_its_new_tags() {
    let folder = TempDir::new().expect("a folder");
    let disk = opened(&folder).await;
    let cache = over(&disk);
    let kept = |cache: &Cache<String>| cache.explain("a").stored.map(|stored| stored.tags);
    cache.with(Options::new().tags(["first"])).set("a", "a".repeat(2_000)).await;
    // On a busy machine a write may time out, so it is repeated.
    wait_until(async || {
        let unchanged = |_| async { Ok::<_, Error>(Answer::unchanged().tags(["again"])) };
        let refresh = cache.with(Options::new().force_refresh());
        refresh.get_or_load_with("a", unchanged).await.expect("the previous value exists");
        wait_until(async || cache.stats().loading == 0).await;
        let other = over(&disk);
        other.get("a").await;
        kept(&other) == Some(vec!["again".to_owned()])
    })
    .await;
    disk.close().await;
    drop((cache, disk));
    let cache = over(&reopened(&folder).await);
    wait_until(async || cache.get("a").await.is_some()).await;
    assert_eq!(cache.get("a").await.as_deref(), Some(&"a".repeat(2_000)));
    assert_eq!(kept(&cache), Some(vec!["again".to_owned()]));
}

#[tokio::test]
async fn loaded_values_are_hits_at_the_first_call_after_a_restart() {
    let (folder, loads) = (TempDir::new().expect("a folder"), Arc::new(AtomicU64::new(0)));
    for _ in 0..5 {
        let disk = Disk::open(folder.path(), SIZE)
            .await
            .expect("the previous tier has released the directory");
        let cache = over(&disk);
        for key in ["a", "b", "c"] {
            let loads = loads.clone();
            let load = move || async move {
                loads.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Error>(key.repeat(2_000))
            };
            assert_eq!(cache.get_or_load(key, load).await.expect("a value").len(), 2_000);
        }
        cache.flush().await;
        assert_eq!(cache.stats().loading, 0);
        disk.close().await;
    }
    assert_eq!(loads.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn instances_share_a_redis_and_work_without_it() {
    let server = RedisLaunch::new().start().await.expect("a server");
    let url = server.url();
    let instance = async || -> Cache<String> {
        let redis = Redis::connect(url.clone()).await.expect("a URL");
        let codec = Codec::new(MessagePack).compressed(Compression::Zstd);
        let memory = Memory::entries(100);
        let builder = Cache::builder("texts").memory(memory).codec(codec);
        builder.redis(redis.ttl(secs(60))).ttl(secs(600)).build().expect("valid settings")
    };
    let (one, other) = (instance().await, instance().await);
    let keys: Vec<String> = (0..50).map(|number| format!("key {number}")).collect();
    // On a busy machine a write may time out, so it is repeated.
    wait_until(async || {
        one.set_many(keys.iter().map(|key| (key, key.repeat(100)))).await;
        other.get_many(&keys).await.iter().all(Option::is_some)
    })
    .await;
    assert_eq!(other.get("key 7").await.as_deref(), Some(&"key 7".repeat(100)));
    one.remove("key 7").await;
    wait_until(async || instance().await.get("key 7").await.is_none()).await;
    drop(server);
    let load = || async { Ok::<String, String>("loaded".to_owned()) };
    let alone = timeout(WAIT_MAX, one.get_or_load("key 7", load)).await.expect("in time");
    assert_eq!(*alone.expect("a value"), "loaded");
}

#[tokio::test]
async fn a_value_of_a_million_bytes_is_shared_over_redis() {
    let server = RedisLaunch::new().start().await.expect("a server");
    let instance = async || -> Cache<String> {
        let redis = Redis::connect(server.url()).await.expect("a URL");
        let builder = Cache::builder("texts").memory(Memory::entries(10));
        builder.redis(redis).ttl(secs(600)).build().expect("valid settings")
    };
    let (one, other) = (instance().await, instance().await);
    let value = "x".repeat(1_000_000);
    // On a busy machine a write or a read may time out, so both are repeated.
    wait_until(async || {
        one.set("large", value.clone()).await;
        one.flush().await;
        other.get("large").await.is_some_and(|found| *found == value)
    })
    .await;
}

#[tokio::test]
async fn unusable_tiers_are_errors_with_their_reason() {
    let error = Redis::connect("no URL").await.expect_err("the URL is invalid");
    assert!(error.to_string().contains("URL"), "{error}");
    let folder = TempDir::new().expect("a folder");
    let error = Disk::open(folder.path(), 1).await.expect_err("too few bytes");
    assert!(error.to_string().contains("too small"), "{error}");
    let _held = opened(&folder).await;
    let error =
        Disk::open(folder.path().join("tier"), SIZE).await.expect_err("the directory is in use");
    assert!(error.to_string().contains("in use"), "{error}");
}
