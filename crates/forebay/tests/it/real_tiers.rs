//! A directory and a Redis below memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::codec::{Codec, Compression, MessagePack};
use forebay::{Answer, Cache, Disk, Error, Memory, Options, Redis};
use forebay_testkit::redis::RedisLaunch;
use tempfile::TempDir;
use tokio::time::{interval, timeout};

use crate::world::secs;

/// No answer takes this long.
const SOON: Duration = Duration::from_secs(20);

/// How often something is looked at that tells nobody when it changes.
const LOOK_GAP: Duration = Duration::from_millis(2);

/// The smallest directory.
const SIZE: u64 = 16 << 20;

async fn opened(folder: &TempDir) -> Disk {
    Disk::open(folder.path().join("tier"), SIZE).await.expect("a directory")
}

/// The threads of the one before it let go of the directory a moment later.
async fn reopened(folder: &TempDir) -> Disk {
    let opening = async {
        let mut looks = interval(LOOK_GAP);
        loop {
            if let Ok(disk) = Disk::open(folder.path().join("tier"), SIZE).await {
                return disk;
            }
            looks.tick().await;
        }
    };
    timeout(SOON, opening).await.expect("it opens soon")
}

fn over(disk: &Disk) -> Cache<String> {
    Cache::builder("texts")
        .memory(Memory::entries(100))
        .disk(disk.clone())
        .ttl(secs(600))
        .build()
        .expect("it can work")
}

/// Until a condition holds that others bring about.
async fn until(reached: impl AsyncFn() -> bool) {
    let reaching = async {
        let mut looks = interval(LOOK_GAP);
        while !reached().await {
            looks.tick().await;
        }
    };
    timeout(SOON, reaching).await.expect("it comes soon");
}

/// What purges by name have reached is not loaded from the directory, and what was stored after
/// them is.
#[tokio::test]
async fn what_is_stored_after_a_purge_by_tag_is_read_from_the_directory() {
    let folder = TempDir::new().expect("a directory");
    let disk = opened(&folder).await;
    let builder = Cache::builder("texts").memory(Memory::entries(1)).disk(disk.clone());
    let cache: Cache<String> = builder.ttl(secs(600)).build().expect("it can work");
    let loads = Arc::new(AtomicU64::new(0));
    let load = async |key: &str| {
        let loads = loads.clone();
        let answer = move |_| {
            let number = loads.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok::<_, Error>(Answer::value(number.to_string()).tags(["news"])) }
        };
        let value = cache.get_or_load_with(key, answer).await.expect("a value");
        until(async || cache.stats().loading == 0).await;
        value.expect("it is there").to_string()
    };
    assert_eq!(load("a").await, "1");
    cache.invalidate_tags(["news"]).await;
    assert_eq!(load("a").await, "2", "it was purged");
    assert_eq!(load("b").await, "3", "there is room for one");
    assert_eq!(load("a").await, "2", "it is read where it was stored after the purge");
    cache.invalidate_tags(["news"]).await;
    assert_eq!(load("b").await, "4", "what is there now is purged all the same");
    assert_eq!(load("a").await, "5");
}

#[tokio::test]
async fn values_on_disk_outlive_the_process_and_what_was_purged_does_not() {
    let folder = TempDir::new().expect("a folder");
    let disk = opened(&folder).await;
    let cache = over(&disk);
    // A machine that has much to do may miss the time of a write, or of a removal.
    for key in ["a", "b", "c"] {
        let tagged = cache.with(Options::new().tags([if key == "c" { "red" } else { "blue" }]));
        until(async || {
            tagged.set(key, key.repeat(2_000)).await;
            over(&disk).get(key).await.is_some()
        })
        .await;
    }
    until(async || {
        cache.remove("b").await;
        over(&disk).get("b").await.is_none()
    })
    .await;
    until(async || {
        let before = cache.stats().tier_failures;
        cache.invalidate_tag("red").await;
        cache.stats().tier_failures == before
    })
    .await;
    disk.close().await;
    drop((cache, disk));
    let cache = over(&reopened(&folder).await);
    until(async || cache.get("a").await.is_some()).await;
    assert_eq!(cache.get("a").await.map(|text| text.len()), Some(2_000));
    let many = cache.get_many(&["a", "b", "c"]).await;
    let there: Vec<bool> = many.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, false]);
}

/// Memory has let go of what was written first.
#[tokio::test]
async fn what_was_unchanged_outlives_the_process_as_it_was_written_anew() {
    let folder = TempDir::new().expect("a folder");
    let disk = opened(&folder).await;
    let cache = over(&disk);
    let kept = |cache: &Cache<String>| cache.explain("a").stored.map(|stored| stored.tags);
    cache.with(Options::new().tags(["first"])).set("a", "a".repeat(2_000)).await;
    // A machine that has much to do may miss the time of a write.
    until(async || {
        let unchanged = |_| async { Ok::<_, Error>(Answer::unchanged().tags(["again"])) };
        let refresh = cache.with(Options::new().force_refresh());
        refresh.get_or_load_with("a", unchanged).await.expect("it is told what is stored");
        until(async || cache.stats().loading == 0).await;
        let other = over(&disk);
        other.get("a").await;
        kept(&other) == Some(vec!["again".to_owned()])
    })
    .await;
    disk.close().await;
    drop((cache, disk));
    let cache = over(&reopened(&folder).await);
    until(async || cache.get("a").await.is_some()).await;
    assert_eq!(cache.get("a").await.as_deref(), Some(&"a".repeat(2_000)));
    assert_eq!(kept(&cache), Some(vec!["again".to_owned()]));
}

/// As a service does it: it loads, is told to stop, and is started again.
#[tokio::test]
async fn what_was_loaded_before_a_stop_is_there_at_the_first_call_after_the_next_start() {
    let (folder, loads) = (TempDir::new().expect("a folder"), Arc::new(AtomicU64::new(0)));
    for _ in 0..5 {
        let disk = Disk::open(folder.path(), SIZE).await.expect("the last one has let go of it");
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
async fn instances_share_a_redis_and_do_without_it() {
    let server = RedisLaunch::new().start().await.expect("a server");
    let url = server.url();
    let instance = async || -> Cache<String> {
        let redis = Redis::connect(url.clone()).await.expect("a URL");
        let codec = Codec::new(MessagePack).compressed(Compression::Zstd);
        let memory = Memory::entries(100);
        let builder = Cache::builder("texts").memory(memory).codec(codec);
        builder.redis(redis.ttl(secs(60))).ttl(secs(600)).build().expect("it can work")
    };
    let (one, other) = (instance().await, instance().await);
    let keys: Vec<String> = (0..50).map(|number| format!("key {number}")).collect();
    one.set_many(keys.iter().map(|key| (key, key.repeat(100)))).await;
    until(async || other.get_many(&keys).await.iter().all(Option::is_some)).await;
    assert_eq!(other.get("key 7").await.as_deref(), Some(&"key 7".repeat(100)));
    one.remove("key 7").await;
    until(async || instance().await.get("key 7").await.is_none()).await;
    drop(server);
    let load = || async { Ok::<String, String>("loaded".to_owned()) };
    let alone = timeout(SOON, one.get_or_load("key 7", load)).await.expect("in time");
    assert_eq!(*alone.expect("a value"), "loaded");
}

#[tokio::test]
async fn what_cannot_be_used_says_why() {
    let error = Redis::connect("no URL").await.expect_err("it is none");
    assert!(error.to_string().contains("URL"), "{error}");
    let folder = TempDir::new().expect("a folder");
    let error = Disk::open(folder.path(), 1).await.expect_err("too few bytes");
    assert!(error.to_string().contains("too few"), "{error}");
    let _held = opened(&folder).await;
    let error = Disk::open(folder.path().join("tier"), SIZE).await.expect_err("it is in use");
    assert!(error.to_string().contains("in use"), "{error}");
}
