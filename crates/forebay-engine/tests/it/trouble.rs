//! An origin that is slow, unreachable, or fails every time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::{Demand, Lifetime, Stale, Why};
use forebay_engine::{LoadError, Loaded, Source};
use forebay_testkit::gate::Gate;
use tokio::time::Instant;

use crate::crowd::{Crowd, Obtaining, reached};
use crate::origin::{Answer, Asked, Origin, passed, whole};
use crate::world::{Question, World, bytes, secs};

const FRESH: u64 = 10;

const SOFT: Duration = Duration::from_secs(1);

/// Request that gets a stale entry after waiting one second for its load, and accepts an hour of
/// staleness while the origin cannot be reached.
fn patient() -> Question {
    let demand =
        Demand { soft_timeout: Some(SOFT), stale_if_unreachable: secs(3_600), ..Demand::default() };
    Question::of("a", demand)
}

/// The first load answers with this lifetime, and each further one as `later` says.
fn first_then<F, A>(world: &World, lifetime: Lifetime, later: F) -> Origin
where
    F: Fn(Asked) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let world = world.clone();
    Origin::new(move |asked: Asked| {
        let (world, later) = (world.clone(), later.clone());
        async move {
            if asked.number == 1 {
                return Ok(whole(world.meta(lifetime), "first"));
            }
            later(asked).await
        }
    })
}

fn forbidden() -> Lifetime {
    Lifetime { stale: Stale::Forbidden, ..Lifetime::fresh(secs(FRESH)) }
}

fn for_errors(seconds: u64) -> Lifetime {
    Lifetime { stale_if_error: secs(seconds), ..Lifetime::fresh(secs(FRESH)) }
}

/// Waits at a gate, and then answers.
fn slow(world: &World, gate: &Gate) -> impl Fn(Asked) -> SlowAnswer + Clone + use<> {
    let (world, gate) = (world.clone(), gate.clone());
    move |_| {
        let (world, gate) = (world.clone(), gate.clone());
        Box::pin(async move {
            gate.wait().await;
            Ok(whole(world.fresh(FRESH), "second"))
        })
    }
}

type SlowAnswer = std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>;

async fn expired(world: &World, origin: &Origin) {
    world.obtain("a", origin).await.expect("an answer");
    world.step(FRESH + 1);
}

fn is_stale(told: &Obtaining, why: Why) -> bool {
    told.as_ref().is_ok_and(|obtained| {
        bytes(obtained) == "first"
            && obtained.source == Source::Fallback
            && obtained.why == Some(why)
    })
}

#[tokio::test(start_paused = true)]
async fn a_hanging_load_is_answered_from_stale_at_the_soft_timeout_and_goes_on() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = first_then(&world, Lifetime::fresh(secs(FRESH)), slow(&world, &gate));
    expired(&world, &origin).await;
    let begun = Instant::now();
    let crowd = Crowd::of(500, |_| world.obtain(patient(), &origin)).await;
    for told in crowd.told().await {
        assert!(is_stale(&told, Why::SoftTimeout), "{told:?}");
    }
    let waited = begun.elapsed();
    assert!(waited >= SOFT && waited < SOFT + Duration::from_millis(20), "{waited:?}");
    // Who comes later does not wait for as long again: the flight is old already.
    world.step(1);
    let begun = Instant::now();
    let late = world.obtain(patient(), &origin).await;
    assert!(is_stale(&late, Why::SoftTimeout), "{late:?}");
    assert!(begun.elapsed() < Duration::from_millis(20), "{:?}", begun.elapsed());
    assert_eq!(world.counts.soft_timeouts.load(Ordering::SeqCst), 501);
    assert_eq!(origin.loads(), 2, "one for all of them");
    gate.open();
    world.until_nothing_is_under_way().await;
    let hit = world.obtain(patient(), &origin).await.expect("a hit");
    assert_eq!((bytes(&hit).as_ref(), hit.source), (&b"second"[..], Source::Hit));
}

#[tokio::test(start_paused = true)]
async fn what_forbids_stale_answers_is_waited_for() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = first_then(&world, forbidden(), slow(&world, &gate));
    expired(&world, &origin).await;
    let crowd = Crowd::of(10, |_| world.obtain(patient(), &origin)).await;
    tokio::time::sleep(SOFT * 10).await;
    reached(&gate, 1).await;
    gate.open();
    for obtained in crowd.obtained().await {
        assert_eq!(bytes(&obtained), "second");
    }
    assert_eq!(world.counts.soft_timeouts.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn without_anything_stale_a_slow_load_is_waited_for() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = first_then(&world, forbidden(), slow(&world, &gate));
    let cold = Question { key: crate::world::key("b"), ..patient() };
    expired(&world, &origin).await;
    let crowd = Crowd::of(10, |_| world.obtain(cold.clone(), &origin)).await;
    tokio::time::sleep(SOFT * 10).await;
    gate.open();
    assert_eq!(crowd.obtained().await.len(), 10);
}

/// Results for an expired entry, by the failure of the origin and the lifetime of the entry.
#[tokio::test(start_paused = true)]
async fn what_is_stale_is_served_only_where_this_trouble_allows_it() {
    type Fails = fn() -> Answer;
    let refused: Fails = || Err(LoadError::unreachable("connection refused"));
    let late: Fails = || Err(LoadError::TimedOut(secs(30)));
    let senseless: Fails = || Err(LoadError::origin("no HTTP"));
    let error: Fails = || Err(LoadError::Answered(503));
    let plain = Lifetime::fresh(secs(FRESH));
    let rows = [
        ("refused, nothing said", refused, plain, true),
        ("refused, stale-if-error", refused, for_errors(60), true),
        ("refused, forbidden", refused, forbidden(), false),
        ("too late, nothing said", late, plain, true),
        ("too late, forbidden", late, forbidden(), false),
        ("no sense, nothing said", senseless, plain, false),
        ("no sense, stale-if-error", senseless, for_errors(60), true),
        ("an error, nothing said", error, plain, false),
        ("an error, stale-if-error", error, for_errors(60), true),
        ("an error, forbidden", error, forbidden(), false),
    ];
    for (name, fails, lifetime, served) in rows {
        let world = World::new();
        let origin = first_then(&world, lifetime, move |_| async move { fails() });
        expired(&world, &origin).await;
        let told = world.obtain(patient(), &origin).await;
        assert_eq!(is_stale(&told, Why::LoadFailed), served, "{name}: {told:?}");
        assert_eq!(told.is_ok(), served, "{name}");
        assert_eq!(origin.loads(), 2, "{name}");
    }
}

#[tokio::test]
async fn an_origin_that_stays_away_is_served_without_for_so_long_and_no_longer() {
    let world = World::new();
    let origin = first_then(&world, Lifetime::fresh(secs(FRESH)), |_| async {
        Err(LoadError::unreachable("connection refused"))
    });
    expired(&world, &origin).await;
    world.step(3_598);
    assert!(is_stale(&world.obtain(patient(), &origin).await, Why::LoadFailed));
    world.step(2);
    let told = world.obtain(patient(), &origin).await;
    assert!(matches!(told, Err(LoadError::Unreachable(_))), "{told:?}");
}

#[tokio::test]
async fn after_a_failure_nothing_is_loaded_for_a_moment_that_grows() {
    let world = World::new();
    let origin = Origin::new(|_| async { Err(LoadError::origin("no route")) });
    let mut loads_at = Vec::new();
    for at_ms in 0..10_000_u64 {
        let before = origin.loads();
        let told = world.obtain("a", &origin).await;
        match told {
            Err(LoadError::Origin(_)) => loads_at.push(at_ms),
            Err(LoadError::RecentlyFailed(cause)) => {
                assert!(matches!(*cause, LoadError::Origin(_)), "{cause}");
                assert_eq!(origin.loads(), before);
            }
            other => panic!("{other:?}"),
        }
        world.clock.step(Duration::from_millis(1));
    }
    let gaps: Vec<u64> = loads_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[0], 1, "the first failure costs nothing");
    assert!((50..=100).contains(&gaps[1]), "{gaps:?}");
    assert!((100..=200).contains(&gaps[2]), "{gaps:?}");
    assert!(gaps[6..].iter().all(|gap| (500..=1_000).contains(gap)), "{gaps:?}");
    let held_back = world.counts.held_back.load(Ordering::SeqCst);
    assert_eq!((origin.loads(), held_back), (loads_at.len(), 10_000 - loads_at.len()));
}

#[tokio::test]
async fn a_crowd_that_comes_again_and_again_to_a_failing_origin_never_has_two_loads_under_way() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    let origin = Origin::new({
        let gate = gate.clone();
        move |_| {
            let gate = gate.clone();
            async move {
                gate.wait().await;
                Err(LoadError::origin("no route"))
            }
        }
    });
    for _ in 0..20 {
        let crowd = Crowd::of(1_000, |_| world.obtain("a", &origin)).await;
        assert!(crowd.told().await.iter().all(Result::is_err));
        world.clock.step(Duration::from_millis(50));
    }
    assert_eq!(origin.most_at_once(), 1);
    // A second of crowds: two at once, and then after 100, 200, 400 ms, or half of that each.
    assert!((4..=8).contains(&origin.loads()), "{}", origin.loads());
}

#[tokio::test]
async fn while_loads_are_held_back_what_is_stale_is_served_and_refreshes_wait_too() {
    let swr = Lifetime { stale_while_revalidate: secs(60), ..for_errors(3_600) };
    let world = World::new();
    let origin = first_then(&world, swr, |_| async { Err(LoadError::origin("no route")) });
    expired(&world, &origin).await;
    for _ in 0..100 {
        let stale = world.obtain("a", &origin).await.expect("a stale answer");
        assert_eq!(stale.source, Source::Refreshing);
        world.until_nothing_is_under_way().await;
    }
    assert_eq!(origin.loads(), 3, "two refreshes have failed, and no other was begun");
    world.step(50);
    let stale = world.obtain("a", &origin).await;
    assert!(stale.is_ok_and(|stale| stale.source == Source::Refreshing), "a fourth load");
    world.until_nothing_is_under_way().await;
    world.clock.step(Duration::from_millis(50));
    world.step(10);
    let stale = world.obtain("a", &origin).await;
    assert!(is_stale(&stale, Why::LoadFailed), "a fifth load, since its window is over: {stale:?}");
    assert!(is_stale(&world.obtain("a", &origin).await, Why::BackOff));
    assert_eq!(origin.loads(), 5);
}

#[tokio::test]
async fn an_error_in_the_origins_own_words_is_not_repeated_from_memory() {
    let world = World::new();
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let meta = world.fresh(FRESH);
            async move {
                if asked.number > 1 {
                    return Ok(whole(meta, "good"));
                }
                let passed = passed("broken", Duration::ZERO);
                Ok(Loaded::Failed { passed, error: LoadError::Answered(500) })
            }
        }
    });
    let told = world.obtain("a", &origin).await.expect("the origin's own words");
    assert_eq!(told.source, Source::Passed);
    assert_eq!(bytes(&world.obtain("a", &origin).await.expect("an answer")), "good");
}

#[tokio::test]
async fn what_fails_for_somebody_holds_nobody_else_back() {
    let world = World::new();
    let origin = first_then(&world, Lifetime::fresh(secs(FRESH)), |_| async {
        Err(LoadError::unreachable("broken off"))
    });
    expired(&world, &origin).await;
    let told = world.obtain(Question::from("a").with_credentials(), &origin).await;
    assert!(matches!(told, Err(LoadError::Unreachable(_))), "{told:?}");
    world.obtain(Question::from("a").with_credentials(), &origin).await.expect_err("again");
    let again = world.obtain(Question::from("a").with_credentials(), &origin).await;
    assert!(matches!(again, Err(LoadError::RecentlyFailed(_))), "{again:?}");
    let other = world.obtain("a", &origin).await;
    assert!(matches!(other, Err(LoadError::Unreachable(_))), "{other:?}");
    assert_eq!(origin.loads(), 4);
}

#[tokio::test]
async fn ten_thousand_wait_for_one_load_and_beyond_a_bound_nobody_joins_them() {
    const BOUND: usize = 16_384;
    let (world, gate) = (World::new(), Gate::new());
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |_| {
            let (meta, gate) = (world.fresh(FRESH), gate.clone());
            async move {
                gate.wait().await;
                Ok(whole(meta, "good"))
            }
        }
    });
    let crowd = Crowd::of(BOUND + 1, |_| world.obtain("a", &origin)).await;
    let one_more = world.obtain("a", &origin).await;
    assert!(matches!(one_more, Err(LoadError::Overloaded(_))), "{one_more:?}");
    gate.open();
    assert_eq!(crowd.obtained().await.len(), BOUND + 1);
    assert_eq!(origin.loads(), 1);
}
