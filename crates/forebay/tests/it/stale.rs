//! Lifetimes, refreshes, fallbacks and timeouts. Lifetimes go by the clock that is moved by hand;
//! timeouts by that of tokio, which is paused: it moves on when nothing else does.

use forebay::{Error, LoadLimiter, Options};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, millis, reached, secs, within_patience};

#[tokio::test]
async fn a_stale_value_is_served_while_one_load_refreshes_it() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(30)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(60));
    let gate = Gate::new();
    let crowd = Crowd::of(50, |_| world.load_behind("a", &gate)).await;
    for told in crowd.told().await {
        assert_eq!(*told.expect("a value"), "1", "nobody waits");
    }
    reached(&gate, 1).await;
    assert_eq!(world.get("a").await.as_deref(), Some("1"), "also without a loader");
    gate.open();
    world.until_nothing_is_loading().await;
    assert_eq!(world.get("a").await.as_deref(), Some("2"));
    let stats = world.cache.stats();
    assert_eq!((world.loads(), stats.refreshing_hits, stats.stale_hits), (2, 50, 51));
    world.clock.advance(secs(91));
    assert_eq!(world.get("a").await, None, "the window is over");
}

#[tokio::test]
async fn a_stale_value_is_served_while_loads_fail() {
    let world = World::with(|builder| builder.stale_if_error(secs(600)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(659));
    for _ in 0..5 {
        assert_eq!(*world.fail("a").await.expect("a value"), "1");
    }
    assert_eq!(world.cache.stats().fallbacks, 5);
    assert_eq!(world.loads(), 3, "after the second failure no load is begun for a moment");
    world.clock.advance(secs(2));
    let error = world.fail("a").await.expect_err("the window is over");
    assert!(matches!(error, Error::Load(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_load_is_answered_with_something_stale_and_goes_on() {
    let world = World::with(|builder| builder.stale_if_error(secs(600)).soft_timeout(millis(50)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(60));
    let gate = Gate::new();
    let begun = tokio::time::Instant::now();
    let told = within_patience(world.load_behind("a", &gate)).await;
    assert_eq!(*told.expect("a value"), "1");
    assert_eq!(begun.elapsed(), millis(50));
    gate.open();
    world.until_nothing_is_loading().await;
    assert_eq!(world.get("a").await.as_deref(), Some("2"));
    assert_eq!(world.cache.stats().soft_timeouts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_leaves_its_load_to_others() {
    let world = World::with(|builder| builder.hard_timeout(millis(200)));
    let gate = Gate::new();
    let error = world.load_behind("a", &gate).await.expect_err("it takes long");
    assert!(matches!(error, Error::TimedOut(after) if after == millis(200)), "{error}");
    assert!(error.is_transient());
    let patient = world.cache.with(Options::new().hard_timeout(secs(60)));
    let counting = world.clone();
    let load = || async move { Ok::<_, Error>(counting.begin().to_string()) };
    let waiting = patient.get_or_load("a", load);
    let (told, ()) = tokio::join!(waiting, async { gate.open() });
    assert_eq!(*told.expect("a value"), "1", "it followed the load that goes on");
    assert_eq!(world.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_takes_something_stale_if_there_is_any() {
    let world = World::with(|builder| builder.stale_if_error(secs(600)).hard_timeout(millis(200)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(60));
    let told = within_patience(world.load_behind("a", &Gate::new())).await;
    assert_eq!(*told.expect("a value"), "1");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_hangs_is_given_up() {
    let world = World::with(|builder| builder.load_timeout(secs(5)));
    let crowd = Crowd::of(10, |_| world.load_behind("a", &Gate::new())).await;
    for told in crowd.told().await {
        let error = told.expect_err("it hangs");
        assert!(matches!(error, Error::TimedOut(after) if after == secs(5)), "{error}");
    }
    assert_eq!(world.loads(), 1);
    assert_eq!(*world.load("a").await.expect("a value"), "2");
}

#[tokio::test]
async fn no_more_loads_are_under_way_than_may() {
    let group = LoadLimiter::at_most(3);
    let (one, gate) = (World::with(|builder| builder.load_limiter(&group)), Gate::new());
    let other = World::with(|builder| builder.load_limiter(&group));
    let ask = |number: usize| {
        let world = if number.is_multiple_of(2) { &one } else { &other };
        world.load_behind(&number.to_string(), &gate)
    };
    let crowd = Crowd::of(20, ask).await;
    reached(&gate, 3).await;
    one.until(|one| one.cache.stats().loading == 10).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(one.loads() + other.loads(), 3, "of both together");
    gate.open();
    assert!(crowd.told().await.iter().all(Result::is_ok));
    assert_eq!(one.loads() + other.loads(), 20);
}

#[tokio::test]
async fn a_cache_may_have_a_bound_of_its_own_within_that_of_its_group() {
    let group = LoadLimiter::at_most(3);
    let (one, gate) =
        (World::with(|builder| builder.load_limiter(&group).loads_max(1)), Gate::new());
    let other = World::with(|builder| builder.load_limiter(&group));
    let crowd_of = |world: &World| {
        let (world, gate) = (world.clone(), gate.clone());
        async move { Crowd::of(10, |number| world.load_behind(&number.to_string(), &gate)).await }
    };
    let (first, second) = (crowd_of(&one).await, crowd_of(&other).await);
    reached(&gate, 3).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!((one.loads(), other.loads()), (1, 2));
    gate.open();
    assert!(first.told().await.iter().chain(&second.told().await).all(Result::is_ok));
    assert_eq!((one.loads(), other.loads()), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_for_a_turn_is_told_so() {
    let world = World::with(|builder| builder.loads_max(1).load_timeout(secs(5)));
    let gate = Gate::new();
    let first = Crowd::of(1, |_| world.load_behind("a", &gate)).await;
    reached(&gate, 1).await;
    tokio::time::advance(secs(1)).await;
    // Its turn would come in four seconds, and is taken by the one before it.
    let crowd = Crowd::of(2, |_| world.load_behind("b", &Gate::new())).await;
    let last = Crowd::of(1, |_| world.load_behind("c", &gate)).await;
    assert!(matches!(first.told().await[0], Err(Error::TimedOut(_))));
    let error = last.told().await.remove(0).expect_err("no turn");
    assert!(matches!(error, Error::Overloaded(_)) && error.is_transient(), "{error}");
    drop(crowd);
}

#[tokio::test]
async fn lifetimes_are_spread_unless_they_are_stated() {
    let world = World::with(|builder| builder.jitter(true));
    for number in 0..200 {
        world.load(&number.to_string()).await.expect("a value");
    }
    let ttl = |key: &str| world.cache.explain(key).stored.expect("it is there").ttl;
    let spread: Vec<_> = (0..200).map(|number: u32| ttl(&number.to_string())).collect();
    assert!(spread.iter().all(|ttl| (secs(57)..=secs(63)).contains(ttl)));
    assert!(spread.iter().any(|ttl| *ttl < secs(58)));
    assert!(spread.iter().any(|ttl| *ttl > secs(62)));
    world.cache.with(Options::new().ttl(secs(60))).set("stated", String::new()).await;
    assert_eq!(ttl("stated"), secs(60));
}
