//! Lifetimes that grow, slide, or end at an hour of the day.

use std::time::Duration;

use forebay::codec::{Codec, MessagePack};
use forebay::testkit::FaultyTier;
use forebay::{Answer, Error, Options, Schedule};

use crate::world::{World, millis, secs};

fn ttl(world: &World) -> Duration {
    world.cache.explain("a").stored.expect("it is there").ttl
}

fn sliding() -> World {
    World::untimed(|builder| builder.sliding(secs(160), secs(400)))
}

#[tokio::test]
async fn what_is_used_lives_on_and_what_is_not_goes() {
    let world = sliding();
    assert_eq!(*world.load("a").await.expect("a value"), "1");
    for _ in 0..2 {
        world.clock.advance(secs(149));
        assert_eq!(*world.load("a").await.expect("a value"), "1", "it was used");
    }
    world.clock.advance(secs(160));
    assert_eq!(*world.load("a").await.expect("a value"), "2", "it was not");
    assert_eq!(world.loads(), 2);
}

#[tokio::test]
async fn no_use_lets_a_value_live_beyond_its_bound() {
    let world = sliding();
    world.load("a").await.expect("a value");
    for age in (40..400).step_by(40) {
        world.clock.advance(secs(40));
        assert_eq!(world.get("a").await.as_deref(), Some("1"), "at {age} s");
    }
    assert_eq!(ttl(&world), secs(400));
    world.clock.advance(millis(39_999));
    assert_eq!(world.get("a").await.as_deref(), Some("1"));
    world.clock.advance(millis(1));
    assert_eq!(world.get("a").await, None);
    assert_eq!(world.loads(), 1);
}

#[tokio::test]
async fn uses_are_noted_a_few_times_and_all_are_hits() {
    let world = sliding();
    world.load("a").await.expect("a value");
    for _ in 0..10 {
        world.load("a").await.expect("a value");
        world.clock.advance(secs(1));
    }
    assert_eq!(ttl(&world), secs(160), "within a sixteenth nothing is noted");
    world.clock.advance(secs(1));
    let keys = ["a"];
    let never = |_| async { Ok::<Vec<(String, String)>, Error>(Vec::new()) };
    let found = world.cache.get_many_or_load(&keys, never).await.expect("values");
    assert_eq!(found[0].as_deref().map(String::as_str), Some("1"), "many are uses, too");
    assert_eq!(ttl(&world), secs(171));
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (11, 1, 1));
}

#[tokio::test]
async fn what_was_removed_does_not_slide_and_what_was_stated_neither() {
    let world = sliding();
    world.load("a").await.expect("a value");
    world.clock.advance(secs(100));
    world.cache.expire("a").await;
    assert_eq!(world.get("a").await, None, "stale is stale");
    world.cache.invalidate_all().await;
    let short = world.cache.with(Options::new().ttl(secs(30)));
    short.set("a", "short".to_owned()).await;
    world.clock.advance(secs(20));
    assert_eq!(world.get("a").await.as_deref(), Some("short"));
    world.clock.advance(secs(10));
    assert_eq!(world.get("a").await, None, "to the letter");
}

#[tokio::test]
async fn what_has_slid_to_its_end_is_served_in_its_windows() {
    let windows = |builder: forebay::Builder<String>| {
        builder.sliding(secs(160), secs(400)).stale_while_revalidate(secs(30))
    };
    let world = World::untimed(windows);
    world.load("a").await.expect("a value");
    world.clock.advance(secs(170));
    assert_eq!(world.get("a").await.as_deref(), Some("1"), "stale, and within the window");
    assert_eq!(*world.load("a").await.expect("a value"), "1", "nobody waits");
    world.until_nothing_is_loading().await;
    assert_eq!(world.get("a").await.as_deref(), Some("2"));
    assert_eq!((world.loads(), world.cache.stats().stale_hits), (2, 2));
    world.clock.advance(secs(300));
    let tolerant = world.cache.with(Options::new().max_stale(secs(200)));
    assert!(tolerant.get("a").await.is_some());
    assert_eq!(world.get("a").await, None, "it is no fresher for that");
    assert_eq!(world.cache.stats().stale_hits, 3);
}

fn sliding_over(shelf: &FaultyTier) -> World {
    World::untimed(|builder| {
        builder.sliding(secs(160), secs(400)).tiers(Codec::new(MessagePack), [shelf.shared()])
    })
}

/// A tier below memory has a value for as long as it may lie unused after its load; memory knows
/// what was used since.
#[tokio::test]
async fn what_is_used_lives_on_in_memory_and_the_tier_below_it_brings_nothing_back() {
    let shelf = FaultyTier::new();
    let world = sliding_over(&shelf);
    world.load("a").await.expect("a value");
    world.until_nothing_is_loading().await;
    world.clock.advance(secs(150));
    assert_eq!(*world.load("a").await.expect("a value"), "1", "it was used");
    world.clock.advance(secs(150));
    assert_eq!(*world.load("a").await.expect("a value"), "1", "300 s old, and in use");
    assert_eq!(shelf.reads(), 1, "the first look, and none since");
    let restarted = sliding_over(&shelf);
    restarted.clock.advance(secs(300));
    assert_eq!(restarted.get("a").await, None, "it was not used there");
    world.clock.advance(secs(160));
    assert_eq!(*world.load("a").await.expect("a value"), "2", "it is loaded, not brought back");
}

#[tokio::test]
async fn what_is_found_in_a_tier_slides_on_from_there() {
    let shelf = FaultyTier::new();
    let earlier = sliding_over(&shelf);
    for key in ["a", "b", "c", "d"] {
        earlier.cache.set(key, "below".to_owned()).await;
    }
    let world = sliding_over(&shelf);
    world.clock.advance(secs(159));
    assert_eq!(*world.load("a").await.expect("a value"), "below");
    assert_eq!(world.get("b").await.as_deref(), Some("below"));
    assert!(world.cache.get_many(&["c"]).await[0].is_some());
    let never = |_| async { Ok::<Vec<(String, String)>, Error>(Vec::new()) };
    assert!(world.cache.get_many_or_load(&["d"], never).await.expect("values")[0].is_some());
    world.clock.advance(secs(150));
    for key in ["a", "b", "c", "d"] {
        assert_eq!(world.get(key).await.as_deref(), Some("below"), "{key} was used");
    }
    world.clock.advance(secs(91));
    for key in ["a", "b", "c", "d"] {
        assert_eq!(world.get(key).await, None, "{key} is 400 s old");
    }
    assert_eq!(world.loads(), 0);
}

#[tokio::test]
async fn a_value_that_stays_the_same_is_loaded_less_and_less() {
    let world = World::with(|builder| builder.adaptive(secs(200)));
    let load = |text: &'static str| {
        world.cache.get_or_load("a", move || async move { Ok::<_, Error>(text.to_owned()) })
    };
    for expected in [60, 120, 200, 200] {
        load("same").await.expect("a value");
        assert_eq!(ttl(&world), secs(expected));
        world.clock.advance(secs(expected));
    }
    load("other").await.expect("a value");
    assert_eq!(ttl(&world), secs(60), "it has changed");
    world.clock.advance(secs(60));
    let unchanged = |_| async { Ok::<_, Error>(Answer::unchanged()) };
    world.cache.get_or_load_with("a", unchanged).await.expect("an answer");
    assert_eq!(ttl(&world), secs(120), "its loader says that it has not");
}

#[tokio::test]
async fn values_end_at_an_hour_of_the_day() {
    // The clock starts at midnight.
    let noon = Schedule::daily(secs(12 * 3_600)).spread(Duration::from_nanos(1));
    let world = World::untimed(|builder| builder.expires_at(noon));
    world.clock.advance(secs(3_600));
    world.load("a").await.expect("a value");
    assert_eq!(ttl(&world).as_secs(), 11 * 3_600);
    world.clock.advance(secs(11 * 3_600 - 1));
    assert!(world.get("a").await.is_some());
    world.clock.advance(secs(2));
    assert_eq!(*world.load("a").await.expect("a value"), "2");
    assert_eq!(ttl(&world).as_secs(), 24 * 3_600 - 1);
    let hourly = Options::new().expires_at(Schedule::every(secs(3_600)).spread(secs(60)));
    let mut ends = Vec::new();
    for _ in 0..200 {
        world.cache.with(hourly.clone()).set("a", String::new()).await;
        ends.push(ttl(&world));
    }
    let (first, last) = (ends.iter().min().expect("some"), ends.iter().max().expect("some"));
    assert!(*first >= secs(3_599) && *last < secs(3_599 + 60), "{first:?} to {last:?}");
    assert!(*last - *first > secs(50), "spread over the minute");
}
