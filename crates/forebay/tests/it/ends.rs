//! Dropped caches and callers, runtimes that shut down, and calls without a runtime.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay::codec::{Codec, MessagePack};
use forebay::testkit::{FaultyTier, ManualClock};
use forebay::{Cache, Disk, Error, Memory, Prediction, Redis};
use forebay_testkit::gate::Gate;
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use futures_util::FutureExt;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{interval, timeout};

use crate::world::{Crowd, World, secs, wait_for_loads, within_timeout};

/// Maximum time that a test waits for an event.
const WAIT_MAX: Duration = Duration::from_secs(20);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Polls until a condition holds.
async fn wait_until(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        let mut poll = interval(POLL_INTERVAL);
        while !holds().await {
            poll.tick().await;
        }
    };
    timeout(WAIT_MAX, waiting).await.unwrap_or_else(|_| panic!("timeout waiting for: {what}"));
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[tokio::test]
async fn values_are_freed_with_the_last_handle() {
    let cache: Cache<String> =
        Cache::builder("texts").memory(Memory::entries(9)).build().expect("valid settings");
    let value = Arc::new(String::new());
    let held: Weak<String> = Arc::downgrade(&value);
    cache.set("a", value).await;
    let other = cache.clone();
    drop(cache);
    assert!(held.upgrade().is_some(), "there is another handle");
    drop(other);
    assert!(held.upgrade().is_none());
}

#[tokio::test]
async fn a_load_outlives_the_last_handle_and_the_values_are_freed_after_it() {
    let (world, gate) = (World::new(), Gate::new());
    let value = Arc::new(String::new());
    let held = Arc::downgrade(&value);
    world.cache.set("b", value).await;
    let crowd = Crowd::of(3, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    drop(world);
    gate.open();
    for result in crowd.results().await {
        assert_eq!(*result.expect("a value"), "1");
    }
    wait_until("values are freed", async || held.upgrade().is_none()).await;
}

#[tokio::test]
async fn pending_writes_reach_the_disk_after_the_cache_is_dropped() {
    let folder = TempDir::new().expect("a folder");
    let open = async || Disk::open(folder.path().join("tier"), 16 << 20).await;
    let over = |disk: Disk| -> Cache<String> {
        let builder = Cache::builder("texts").memory(Memory::entries(100)).disk(disk);
        builder.ttl(secs(600)).build().expect("valid settings")
    };
    let cache = over(open().await.expect("a directory"));
    cache.set("set", "set".to_owned()).await;
    let load = || async { Ok::<_, Error>("loaded".to_owned()) };
    cache.get_or_load("loaded", load).await.expect("a value");
    drop(cache);
    // The directory is released when its threads have completed their writes.
    let reopened = tokio::sync::Mutex::new(None);
    wait_until("the directory is released", async || {
        let opened = open().await.ok();
        let is_open = opened.is_some();
        *reopened.lock().await = opened;
        is_open
    })
    .await;
    let cache = over(reopened.into_inner().expect("it was opened"));
    for key in ["set", "loaded"] {
        wait_until(key, async || cache.get(key).await.is_some()).await;
    }
}

async fn clients(server: &RedisServer) -> usize {
    let listed = server.ask(&["CLIENT", "LIST"]).await.expect("it answers").text();
    listed.lines().filter(|line| line.contains("id=")).count()
}

#[tokio::test]
async fn connections_are_closed_with_the_last_handle() {
    let server = RedisLaunch::new().start().await.expect("a server");
    let alone = clients(&server).await;
    let redis = Redis::connect(server.url()).await.expect("a URL");
    let cache: Cache<String> = Cache::builder("texts")
        .memory(Memory::entries(100))
        .redis(redis)
        .ttl(secs(60))
        .build()
        .expect("valid settings");
    let value = Arc::new("a".to_owned());
    let held = Arc::downgrade(&value);
    cache.set("a", value).await;
    cache.get_or_load("b", || async { Ok::<_, Error>("b".to_owned()) }).await.expect("a value");
    assert!(clients(&server).await > alone);
    drop(cache);
    wait_until("values are freed", async || held.upgrade().is_none()).await;
    wait_until("connections are closed", async || clients(&server).await == alone).await;
}

/// A process may have several runtimes, such as one for each test.
#[test]
fn a_runtime_that_shuts_down_cancels_its_loads_and_frees_their_keys() {
    let (world, gate) = (World::new(), Gate::new());
    let (first, second) = (runtime(), runtime());
    let leading = first.spawn(world.load_behind("a", &gate));
    second.block_on(wait_for_loads(&gate, 1));
    let following = second.block_on(Crowd::of(3, |_| world.load_behind("a", &gate)));
    first.shutdown_timeout(WAIT_MAX);
    assert!(second.block_on(leading).is_err(), "the caller ran on the same runtime");
    // One of the followers may load again for the others.
    gate.open();
    for result in second.block_on(following.results()) {
        if let Err(error) = result {
            assert!(matches!(error, Error::Panicked(_)), "{error}");
        }
    }
    let again = second.block_on(world.load("a"));
    assert!(again.is_ok(), "the key is free: {again:?}");
}

#[test]
fn a_batch_whose_runtime_shuts_down_frees_its_keys() {
    let (world, gate) = (World::new(), Gate::new());
    let (first, second) = (runtime(), runtime());
    let (cache, behind) = (world.cache.clone(), gate.clone());
    let batch = first.spawn(async move {
        let load = move |keys: Vec<String>| {
            let behind = behind.clone();
            async move {
                behind.wait().await;
                Ok::<_, Error>(keys.into_iter().map(|key| (key, String::new())))
            }
        };
        cache.get_many_or_load(&["a", "b"], load).await
    });
    second.block_on(wait_for_loads(&gate, 1));
    first.shutdown_timeout(WAIT_MAX);
    assert!(second.block_on(batch).is_err());
    let again = second.block_on(world.load("a"));
    assert!(again.is_ok(), "the key is free: {again:?}");
}

/// Polls a call once without a runtime. Panics if the call waits.
fn poll_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("the call does not wait")
}

#[test]
fn without_a_runtime_memory_works_and_a_load_is_an_error() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(30)));
    assert!(poll_once(world.cache.set("a", "1".to_owned())));
    assert_eq!(poll_once(world.cache.set_many([("b", "2".to_owned())])), 1);
    assert_eq!(poll_once(world.get("a")).as_deref(), Some("1"));
    let load = || async { Ok::<_, Error>("loaded".to_owned()) };
    assert_eq!(*poll_once(world.cache.get_or_load("a", load)).expect("a cached value"), "1");
    let error = poll_once(world.cache.get_or_load("c", load)).expect_err("a load needs a runtime");
    assert!(matches!(error, Error::NoRuntime), "{error}");
    let many = |_| async { Ok::<Vec<(String, String)>, Error>(Vec::new()) };
    let error =
        poll_once(world.cache.get_many_or_load(&["a", "c"], many)).expect_err("c is not cached");
    assert!(matches!(error, Error::NoRuntime), "{error}");
    assert_eq!(poll_once(world.cache.get_many(&["a", "c"])).iter().flatten().count(), 1);
    world.clock.advance(secs(60));
    let stale = poll_once(world.cache.get_or_load("a", load));
    assert_eq!(*stale.expect("within its window"), "1", "served without a refresh");
    assert!(poll_once(world.cache.expire("a")) && poll_once(world.cache.remove("a")));
    poll_once(world.cache.invalidate_tags(["red"]));
    poll_once(world.cache.invalidate_all());
    assert_eq!(world.cache.explain("a").prediction, Prediction::Loaded);
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.errors), (5, 1, 2));
    assert_eq!(stats.reasons.total(), 3);
}

#[test]
fn without_a_runtime_tiers_are_not_read() {
    let tier = FaultyTier::new();
    let instance = || -> Cache<String> {
        Cache::builder("texts")
            .memory(Memory::entries(9))
            .tiers(Codec::new(MessagePack), [tier.shared()])
            .clock(ManualClock::new().shared())
            .build()
            .expect("valid settings")
    };
    let there = runtime();
    assert!(there.block_on(instance().set("a", "in the tier".to_owned())));
    let cache = instance();
    assert_eq!(poll_once(cache.get("a")), None);
    let load = || async { Ok::<_, Error>("loaded".to_owned()) };
    let error = poll_once(cache.get_or_load("a", load)).expect_err("a is not in memory");
    assert!(matches!(error, Error::NoRuntime), "{error}");
    assert_eq!(tier.reads(), 0);
    let found = there.block_on(within_timeout(cache.get("a")));
    assert_eq!(found.expect("a stored entry").as_str(), "in the tier");
    assert_eq!(poll_once(cache.get("a")).expect("it is in memory").as_str(), "in the tier");
}
