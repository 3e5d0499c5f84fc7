//! Cycles of loads that wait for other loads. Time is paused, so that a deadlock ends in a timeout
//! at once and fails the test.

use std::sync::Arc;

use forebay::{Cache, Error};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, secs, within_timeout};

type Calling = futures_util::future::BoxFuture<'static, Result<Arc<String>, Error>>;

/// Loads each key of the list by requesting the next one; the last key has a value.
fn chain(world: &World, row: &'static [&'static str]) -> Calling {
    let world = world.clone();
    Box::pin(async move {
        let Some((key, rest)) = row.split_first() else {
            return Ok(Arc::new("the end".to_owned()));
        };
        let cache = world.cache.clone();
        cache.get_or_load(*key, move || async move { chain(&world, rest).await }).await
    })
}

#[tokio::test(start_paused = true)]
async fn a_load_may_wait_for_another_load() {
    let world = World::new();
    let end = within_timeout(chain(&world, &["a", "b", "c"])).await.expect("a value");
    assert_eq!(*end, "the end");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_would_wait_for_itself_is_a_circular_error() {
    for row in [&["a", "a"][..], &["a", "b", "a"], &["a", "b", "c", "b"]] {
        let world = World::new();
        let error = within_timeout(chain(&world, row)).await.expect_err("a circle");
        assert!(matches!(error, Error::Circular), "{row:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_loads_that_would_wait_for_each_other_gets_a_circular_error() {
    let (world, both) = (World::new(), Gate::new());
    let ask = |number: usize| -> Calling {
        let (mine, others) = if number == 0 { ("a", "b") } else { ("b", "a") };
        let (world, both) = (world.clone(), both.clone());
        Box::pin(async move {
            let cache = world.cache.clone();
            let load = move || async move {
                both.wait().await;
                let never = || async { Ok::<String, Error>("never".to_owned()) };
                world.cache.get_or_load(others, never).await
            };
            cache.get_or_load(mine, load).await
        })
    };
    let crowd = Crowd::of(2, ask).await;
    crate::world::wait_for_loads(&both, 2).await;
    both.open();
    for result in crowd.results().await {
        let error = result.expect_err("a circle");
        assert!(matches!(error, Error::Circular), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_in_two_caches_is_no_cycle() {
    let (one, other) = (World::new(), World::new());
    let cache: Cache<String> = other.cache.clone();
    let load = || async move {
        cache.get_or_load("a", || async { Ok::<_, Error>("other".to_owned()) }).await
    };
    let result = within_timeout(one.cache.get_or_load("a", load)).await;
    assert_eq!(*result.expect("a value"), "other");
}

#[tokio::test(start_paused = true)]
async fn a_call_for_a_cached_value_is_no_wait() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(60)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(60));
    // The refresh of `a` requests `a`, which is served stale.
    let inner = world.clone();
    let load = || async move { inner.load("a").await };
    world.cache.get_or_load("a", load).await.expect("a value");
    world.wait_until_idle().await;
    assert_eq!(
        world.get("a").await.as_deref(),
        Some("1"),
        "the refresh has stored the stale value again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_load_that_waits_gives_its_permit_to_the_other_load() {
    let world = World::with(|builder| builder.loads_max(1));
    let end = within_timeout(chain(&world, &["a", "b", "c"])).await.expect("a value");
    assert_eq!(*end, "the end");
    let again = within_timeout(world.load("d")).await.expect("all permits are free again");
    assert_eq!(*again, "1");
}
