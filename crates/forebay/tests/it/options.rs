//! Options of single calls.

use std::sync::Arc;

use forebay::{Error, Options};

use crate::world::{World, millis, secs, within_timeout};

async fn load_with(world: &World, options: Options) -> Result<Arc<String>, Error> {
    let counting = world.clone();
    let load = || async move { Ok::<_, Error>(counting.begin().to_string()) };
    within_timeout(world.cache.with(options).get_or_load("a", load)).await
}

async fn loaded(world: &World, options: Options) -> String {
    load_with(world, options).await.expect("a value").to_string()
}

#[tokio::test]
async fn max_stale_accepts_a_stale_value() {
    let world = World::new();
    world.load("a").await.expect("a value");
    world.clock.advance(secs(70));
    let tolerant = Options::new().max_stale(secs(10));
    assert_eq!(loaded(&world, tolerant.clone()).await, "1");
    let found = world.cache.with(tolerant.clone()).get("a").await;
    assert_eq!(*found.expect("an accepted stale value"), "1");
    let many = world.cache.with(tolerant.clone()).get_many(&["a", "b"]).await;
    assert_eq!(many.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
    assert_eq!(world.get("a").await, None, "not without the option");
    world.clock.advance(millis(1));
    assert_eq!(loaded(&world, tolerant).await, "2");
    assert_eq!(world.cache.stats().stale_hits, 3);
}

#[tokio::test]
async fn never_older_than_loads_an_older_value_again() {
    let world = World::new();
    world.load("a").await.expect("a value");
    world.clock.advance(secs(10));
    let strict = Options::new().never_older_than(secs(10));
    assert_eq!(loaded(&world, strict.clone()).await, "1");
    world.clock.advance(millis(1));
    assert_eq!(loaded(&world, strict).await, "2");
    assert_eq!(world.get("a").await.as_deref(), Some("2"), "stored for all calls");
}

#[tokio::test]
async fn force_refresh_loads_a_fresh_value_again() {
    let world = World::new();
    world.load("a").await.expect("a value");
    assert_eq!(loaded(&world, Options::new().force_refresh()).await, "2");
    assert_eq!(*world.load("a").await.expect("a value"), "2");
}

#[tokio::test]
async fn only_if_cached_loads_nothing() {
    let world = World::new();
    let only = || Options::new().only_if_cached();
    let error = load_with(&world, only()).await.expect_err("nothing is stored");
    assert!(matches!(error, Error::NotCached), "{error}");
    world.load("a").await.expect("a value");
    assert_eq!(loaded(&world, only()).await, "1");
    assert_eq!(world.loads(), 1);
}

#[tokio::test]
async fn options_set_lifetime_and_tags_of_loaded_and_set_values() {
    let world = World::new();
    let short = || Options::new().ttl(secs(5)).tags(["red"]).stale_if_error(secs(9));
    loaded(&world, short()).await;
    world.cache.with(short()).set("b", "b".to_owned()).await;
    for key in ["a", "b"] {
        let stored = world.cache.explain(key).stored.expect("a stored entry");
        assert_eq!((stored.ttl, stored.stale_if_error), (secs(5), secs(9)), "{key}");
        assert_eq!(stored.tags, ["red"], "{key}");
    }
    world.clock.advance(secs(5));
    assert_eq!((world.get("a").await, world.get("b").await), (None, None));
}

#[tokio::test]
async fn early_refresh_needs_beta_and_the_last_tenth_of_the_lifetime() {
    let world = World::new();
    let costly = world.cache.with(Options::new().ttl(secs(100)));
    let load =
        |_| async { Ok::<_, Error>(forebay::Answer::value("one".to_owned()).cost(secs(1_000))) };
    costly.get_or_load_with("a", load).await.expect("an answer");
    let eager = || Options::new().beta(1_000.0);
    world.clock.advance(millis(89_999));
    assert_eq!(loaded(&world, eager()).await, "one");
    assert_eq!(world.loads(), 0, "too early");
    world.clock.advance(millis(1));
    assert_eq!(loaded(&world, Options::new().beta(0.0)).await, "one");
    assert_eq!(world.loads(), 0, "beta is 0");
    assert_eq!(loaded(&world, eager()).await, "one", "served while it is refreshed");
    world.wait_until_idle().await;
    assert_eq!(world.get("a").await.as_deref(), Some("1"));
    let stats = world.cache.stats();
    assert_eq!((world.loads(), stats.refreshing_hits, stats.stale_hits), (1, 1, 0));
}
