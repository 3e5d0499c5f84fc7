//! What happens when a cache, a runtime or a caller comes to its end; and where there is no
//! runtime at all.

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

use crate::world::{Crowd, World, reached, secs, within_patience};

/// No answer takes this long.
const SOON: Duration = Duration::from_secs(20);

const LOOK_GAP: Duration = Duration::from_millis(2);

/// Until a condition holds that others bring about.
async fn until(what: &str, reached: impl AsyncFn() -> bool) {
    let reaching = async {
        let mut looks = interval(LOOK_GAP);
        while !reached().await {
            looks.tick().await;
        }
    };
    timeout(SOON, reaching).await.unwrap_or_else(|_| panic!("{what}: it does not come"));
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[tokio::test]
async fn values_are_let_go_of_with_the_last_handle() {
    let cache: Cache<String> =
        Cache::builder("texts").memory(Memory::entries(9)).build().expect("it can work");
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
async fn a_load_outlives_the_last_handle_and_takes_the_values_with_it() {
    let (world, gate) = (World::new(), Gate::new());
    let value = Arc::new(String::new());
    let held = Arc::downgrade(&value);
    world.cache.set("b", value).await;
    let crowd = Crowd::of(3, |_| world.load_behind("a", &gate)).await;
    reached(&gate, 1).await;
    drop(world);
    gate.open();
    for told in crowd.told().await {
        assert_eq!(*told.expect("a value"), "1");
    }
    until("nothing holds the values", async || held.upgrade().is_none()).await;
}

/// What is written behind an answer arrives, whoever has let go of the cache meanwhile.
#[tokio::test]
async fn what_was_loaded_reaches_the_disk_though_the_cache_is_gone() {
    let folder = TempDir::new().expect("a folder");
    let open = async || Disk::open(folder.path().join("tier"), 16 << 20).await;
    let over = |disk: Disk| -> Cache<String> {
        let builder = Cache::builder("texts").memory(Memory::entries(100)).disk(disk);
        builder.ttl(secs(600)).build().expect("it can work")
    };
    let cache = over(open().await.expect("a directory"));
    cache.set("set", "set".to_owned()).await;
    let load = || async { Ok::<_, Error>("loaded".to_owned()) };
    cache.get_or_load("loaded", load).await.expect("a value");
    drop(cache);
    // The directory is free as soon as its threads have written what they had accepted.
    let reopened = tokio::sync::Mutex::new(None);
    until("the directory is let go of", async || {
        let opened = open().await.ok();
        let is_open = opened.is_some();
        *reopened.lock().await = opened;
        is_open
    })
    .await;
    let cache = over(reopened.into_inner().expect("it was opened"));
    for key in ["set", "loaded"] {
        until(key, async || cache.get(key).await.is_some()).await;
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
        .expect("it can work");
    let value = Arc::new("a".to_owned());
    let held = Arc::downgrade(&value);
    cache.set("a", value).await;
    cache.get_or_load("b", || async { Ok::<_, Error>("b".to_owned()) }).await.expect("a value");
    assert!(clients(&server).await > alone);
    drop(cache);
    until("values are let go of", async || held.upgrade().is_none()).await;
    until("connections are closed", async || clients(&server).await == alone).await;
}

/// A process may have several runtimes: a test of its user has one for each.
#[test]
fn a_runtime_that_ends_takes_its_loads_with_it_and_no_key() {
    let (world, gate) = (World::new(), Gate::new());
    let (first, second) = (runtime(), runtime());
    let leading = first.spawn(world.load_behind("a", &gate));
    second.block_on(reached(&gate, 1));
    let following = second.block_on(Crowd::of(3, |_| world.load_behind("a", &gate)));
    first.shutdown_timeout(SOON);
    assert!(second.block_on(leading).is_err(), "its caller has gone with it");
    // Whoever finds the load given up may load for the others.
    gate.open();
    for told in second.block_on(following.told()) {
        if let Err(error) = told {
            assert!(matches!(error, Error::Panicked(_)), "{error}");
        }
    }
    let again = second.block_on(world.load("a"));
    assert!(again.is_ok(), "the key is free: {again:?}");
}

#[test]
fn a_batch_whose_runtime_ends_frees_its_keys() {
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
    second.block_on(reached(&gate, 1));
    first.shutdown_timeout(SOON);
    assert!(second.block_on(batch).is_err());
    let again = second.block_on(world.load("a"));
    assert!(again.is_ok(), "the key is free: {again:?}");
}

/// Polls once, where there is no runtime: what waits for anything has no answer.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("it waits for nobody")
}

#[test]
fn memory_needs_no_runtime_and_a_load_says_that_it_does() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(30)));
    assert!(at_once(world.cache.set("a", "1".to_owned())));
    assert_eq!(at_once(world.cache.set_many([("b", "2".to_owned())])), 1);
    assert_eq!(at_once(world.get("a")).as_deref(), Some("1"));
    let load = || async { Ok::<_, Error>("loaded".to_owned()) };
    assert_eq!(*at_once(world.cache.get_or_load("a", load)).expect("it is at hand"), "1");
    let error = at_once(world.cache.get_or_load("c", load)).expect_err("it would be loaded");
    assert!(matches!(error, Error::NoRuntime), "{error}");
    let many = |_| async { Ok::<Vec<(String, String)>, Error>(Vec::new()) };
    let error = at_once(world.cache.get_many_or_load(&["a", "c"], many)).expect_err("c is not");
    assert!(matches!(error, Error::NoRuntime), "{error}");
    assert_eq!(at_once(world.cache.get_many(&["a", "c"])).iter().flatten().count(), 1);
    world.clock.advance(secs(60));
    let stale = at_once(world.cache.get_or_load("a", load));
    assert_eq!(*stale.expect("within its window"), "1", "nobody is there to refresh it");
    assert!(at_once(world.cache.expire("a")) && at_once(world.cache.remove("a")));
    at_once(world.cache.invalidate_tags(["red"]));
    at_once(world.cache.invalidate_all());
    assert_eq!(world.cache.explain("a").prediction, Prediction::Loaded);
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.errors), (5, 1, 2));
    assert_eq!(stats.reasons.total(), 3);
}

#[test]
fn tiers_are_not_asked_outside_of_a_runtime() {
    let shelf = FaultyTier::new();
    let instance = || -> Cache<String> {
        Cache::builder("texts")
            .memory(Memory::entries(9))
            .tiers(Codec::new(MessagePack), [shelf.shared()])
            .clock(ManualClock::new().shared())
            .build()
            .expect("it can work")
    };
    let there = runtime();
    assert!(there.block_on(instance().set("a", "below".to_owned())));
    let cache = instance();
    assert_eq!(at_once(cache.get("a")), None);
    let load = || async { Ok::<_, Error>("loaded".to_owned()) };
    let error = at_once(cache.get_or_load("a", load)).expect_err("it is not in memory");
    assert!(matches!(error, Error::NoRuntime), "{error}");
    assert_eq!(shelf.reads(), 0);
    let found = there.block_on(within_patience(cache.get("a")));
    assert_eq!(found.expect("it is there").as_str(), "below");
    assert_eq!(at_once(cache.get("a")).expect("it is in memory").as_str(), "below");
}
