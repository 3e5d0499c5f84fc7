//! Lifetimes, refreshes, fallbacks and timeouts. Lifetimes use the manual clock; timeouts use the
//! clock of tokio, which is paused and advances when no task can run.

use forebay::{Error, LoadLimiter, Options};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, millis, secs, wait_for_loads, within_timeout};

#[tokio::test]
async fn a_stale_value_is_served_while_one_load_refreshes_it() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(30)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(60));
    let gate = Gate::new();
    let crowd = Crowd::of(50, |_| world.load_behind("a", &gate)).await;
    for result in crowd.results().await {
        assert_eq!(*result.expect("a value"), "1", "served without waiting");
    }
    wait_for_loads(&gate, 1).await;
    assert_eq!(world.get("a").await.as_deref(), Some("1"), "also without a loader");
    gate.open();
    world.wait_until_idle().await;
    assert_eq!(world.get("a").await.as_deref(), Some("2"));
    let stats = world.cache.stats();
    assert_eq!((world.loads(), stats.refreshing_hits, stats.stale_hits), (2, 50, 51));
    world.clock.advance(secs(91));
    assert_eq!(world.get("a").await, None, "after the stale window");
}

#[tokio::test]
async fn a_stale_value_is_served_within_stale_if_error() {
    let world = World::with(|builder| builder.stale_if_error(secs(600)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(659));
    for _ in 0..5 {
        assert_eq!(*world.fail("a").await.expect("a value"), "1");
    }
    assert_eq!(world.cache.stats().fallbacks, 5);
    assert_eq!(world.loads(), 3, "the key backs off after the second failure");
    world.clock.advance(secs(2));
    let error = world.fail("a").await.expect_err("after the stale window");
    assert!(matches!(error, Error::Load(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_load_past_the_soft_timeout_is_answered_stale_and_continues() {
    let world = World::with(|builder| builder.stale_if_error(secs(600)).soft_timeout(millis(50)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(60));
    let gate = Gate::new();
    let begun = tokio::time::Instant::now();
    let result = within_timeout(world.load_behind("a", &gate)).await;
    assert_eq!(*result.expect("a value"), "1");
    assert_eq!(begun.elapsed(), millis(50));
    gate.open();
    world.wait_until_idle().await;
    assert_eq!(world.get("a").await.as_deref(), Some("2"));
    assert_eq!(world.cache.stats().soft_timeouts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_load_continues_after_the_hard_timeout_of_its_call() {
    let world = World::with(|builder| builder.hard_timeout(millis(200)));
    let gate = Gate::new();
    let error = world.load_behind("a", &gate).await.expect_err("the load is slow");
    assert!(matches!(error, Error::TimedOut(after) if after == millis(200)), "{error}");
    assert!(error.is_transient());
    let patient = world.cache.with(Options::new().hard_timeout(secs(60)));
    let counting = world.clone();
    let load = || async move { Ok::<_, Error>(counting.begin().to_string()) };
    let waiting = patient.get_or_load("a", load);
    let (result, ()) = tokio::join!(waiting, async { gate.open() });
    assert_eq!(*result.expect("a value"), "1", "it followed the load that goes on");
    assert_eq!(world.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_takes_something_stale_if_there_is_any() {
    let world = World::with(|builder| builder.stale_if_error(secs(600)).hard_timeout(millis(200)));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(60));
    let result = within_timeout(world.load_behind("a", &Gate::new())).await;
    assert_eq!(*result.expect("a value"), "1");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_hangs_is_cancelled_at_load_timeout() {
    let world = World::with(|builder| builder.load_timeout(secs(5)));
    let crowd = Crowd::of(10, |_| world.load_behind("a", &Gate::new())).await;
    for result in crowd.results().await {
        let error = result.expect_err("the load hangs");
        assert!(matches!(error, Error::TimedOut(after) if after == secs(5)), "{error}");
    }
    assert_eq!(world.loads(), 1);
    assert_eq!(*world.load("a").await.expect("a value"), "2");
}

#[tokio::test]
async fn a_load_limiter_bounds_the_loads_of_several_caches() {
    let limiter = LoadLimiter::at_most(3);
    let (one, gate) = (World::with(|builder| builder.load_limiter(&limiter)), Gate::new());
    let other = World::with(|builder| builder.load_limiter(&limiter));
    let ask = |number: usize| {
        let world = if number.is_multiple_of(2) { &one } else { &other };
        world.load_behind(&number.to_string(), &gate)
    };
    let crowd = Crowd::of(20, ask).await;
    wait_for_loads(&gate, 3).await;
    one.wait_until(|one| one.cache.stats().loading == 10).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(one.loads() + other.loads(), 3, "loads of both caches");
    gate.open();
    assert!(crowd.results().await.iter().all(Result::is_ok));
    assert_eq!(one.loads() + other.loads(), 20);
}

#[tokio::test]
async fn loads_max_and_load_limiter_hold_together() {
    let limiter = LoadLimiter::at_most(3);
    let (one, gate) =
        (World::with(|builder| builder.load_limiter(&limiter).loads_max(1)), Gate::new());
    let other = World::with(|builder| builder.load_limiter(&limiter));
    let crowd_of = |world: &World| {
        let (world, gate) = (world.clone(), gate.clone());
        async move { Crowd::of(10, |number| world.load_behind(&number.to_string(), &gate)).await }
    };
    let (first, second) = (crowd_of(&one).await, crowd_of(&other).await);
    wait_for_loads(&gate, 3).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!((one.loads(), other.loads()), (1, 2));
    gate.open();
    assert!(first.results().await.iter().chain(&second.results().await).all(Result::is_ok));
    assert_eq!((one.loads(), other.loads()), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_waits_too_long_for_a_permit_is_overloaded() {
    let world = World::with(|builder| builder.loads_max(1).load_timeout(secs(5)));
    let gate = Gate::new();
    let first = Crowd::of(1, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    tokio::time::advance(secs(1)).await;
    // The permit becomes free in four seconds, and goes to the call before this one.
    let crowd = Crowd::of(2, |_| world.load_behind("b", &Gate::new())).await;
    let last = Crowd::of(1, |_| world.load_behind("c", &gate)).await;
    assert!(matches!(first.results().await[0], Err(Error::TimedOut(_))));
    let error = last.results().await.remove(0).expect_err("no permit");
    assert!(matches!(error, Error::Overloaded(_)) && error.is_transient(), "{error}");
    drop(crowd);
}

#[tokio::test]
async fn cache_lifetimes_get_jitter_and_explicit_ones_do_not() {
    let world = World::with(|builder| builder.jitter(true));
    for number in 0..200 {
        world.load(&number.to_string()).await.expect("a value");
    }
    let ttl = |key: &str| world.cache.explain(key).stored.expect("a stored entry").ttl;
    let ttls: Vec<_> = (0..200).map(|number: u32| ttl(&number.to_string())).collect();
    assert!(ttls.iter().all(|ttl| (secs(57)..=secs(63)).contains(ttl)));
    assert!(ttls.iter().any(|ttl| *ttl < secs(58)));
    assert!(ttls.iter().any(|ttl| *ttl > secs(62)));
    world.cache.with(Options::new().ttl(secs(60))).set("stated", String::new()).await;
    assert_eq!(ttl("stated"), secs(60));
}
