//! Loads that wait for loads. Without the check each of these circles would wait for ever; time is
//! paused, so that such a wait ends in a timeout at once, and fails the test.

use std::sync::Arc;

use forebay::{Cache, Error};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, secs, within_patience};

type Asking = futures_util::future::BoxFuture<'static, Result<Arc<String>, Error>>;

/// Loads each key of the row by asking for the next one; the last is there.
fn chain(world: &World, row: &'static [&'static str]) -> Asking {
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
async fn a_load_may_wait_for_another() {
    let world = World::new();
    let end = within_patience(chain(&world, &["a", "b", "c"])).await.expect("a value");
    assert_eq!(*end, "the end");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_would_wait_for_itself_is_told_so() {
    for row in [&["a", "a"][..], &["a", "b", "a"], &["a", "b", "c", "b"]] {
        let world = World::new();
        let error = within_patience(chain(&world, row)).await.expect_err("a circle");
        assert!(matches!(error, Error::Circular), "{row:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_loads_that_would_wait_for_each_other_are_told_so() {
    let (world, both) = (World::new(), Gate::new());
    let ask = |number: usize| -> Asking {
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
    crate::world::reached(&both, 2).await;
    both.open();
    for told in crowd.told().await {
        let error = told.expect_err("a circle");
        assert!(matches!(error, Error::Circular), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_key_of_another_cache_is_no_circle() {
    let (one, other) = (World::new(), World::new());
    let cache: Cache<String> = other.cache.clone();
    let load = || async move {
        cache.get_or_load("a", || async { Ok::<_, Error>("other".to_owned()) }).await
    };
    let told = within_patience(one.cache.get_or_load("a", load)).await;
    assert_eq!(*told.expect("a value"), "other");
}

#[tokio::test(start_paused = true)]
async fn a_value_at_hand_is_no_wait() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(60)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(60));
    // The refresh of `a` asks for `a`, which is served meanwhile.
    let inner = world.clone();
    let load = || async move { inner.load("a").await };
    world.cache.get_or_load("a", load).await.expect("a value");
    world.until_nothing_is_loading().await;
    assert_eq!(world.get("a").await.as_deref(), Some("1"), "it refreshed it with itself");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_waits_gives_its_turn_to_the_one_it_waits_for() {
    let world = World::with(|builder| builder.loads_max(1));
    let end = within_patience(chain(&world, &["a", "b", "c"])).await.expect("a value");
    assert_eq!(*end, "the end");
    let again = within_patience(world.load("d")).await.expect("the turns are all back");
    assert_eq!(*again, "1");
}
