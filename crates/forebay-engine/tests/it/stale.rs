//! Stale answers, refreshes behind them, and what is served when a load fails (RFC 5861).

use std::sync::atomic::Ordering;

use forebay_core::{Demand, Lifetime, Stale, Why};
use forebay_engine::{Head, LoadError, Loaded, Source};
use forebay_testkit::gate::Gate;

use crate::crowd::{Crowd, reached};
use crate::origin::{Answer, Asked, Origin, passed, whole};
use crate::world::{Question, World, bytes, secs};

const FRESH: u64 = 10;

fn windows(stale_while_revalidate: u64, stale_if_error: u64) -> Lifetime {
    Lifetime {
        stale_while_revalidate: secs(stale_while_revalidate),
        stale_if_error: secs(stale_if_error),
        ..Lifetime::fresh(secs(FRESH))
    }
}

/// Origin whose first load answers `first`; later loads wait at the gate and answer as `later`
/// says.
fn first_then<F>(world: &World, lifetime: Lifetime, gate: &Gate, later: F) -> Origin
where
    F: Fn(&World, Asked) -> Answer + Clone + Send + Sync + 'static,
{
    let (world, gate) = (world.clone(), gate.clone());
    Origin::new(move |asked: Asked| {
        let (world, gate, later) = (world.clone(), gate.clone(), later.clone());
        async move {
            if asked.number == 1 {
                return Ok(whole(world.meta(lifetime), "first"));
            }
            gate.wait().await;
            later(&world, asked)
        }
    })
}

fn second(world: &World, _: Asked) -> Answer {
    Ok(whole(world.fresh(FRESH), "second"))
}

fn unreachable_origin(_: &World, _: Asked) -> Answer {
    Err(LoadError::origin("no route"))
}

#[tokio::test]
async fn in_its_window_a_stale_answer_is_given_at_once_while_one_flight_refreshes_it() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = first_then(&world, windows(60, 0), &gate, second);
    world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + 1);
    for _ in 0..50 {
        let stale = world.obtain("a", &origin).await.expect("a stale answer");
        assert_eq!((bytes(&stale).as_ref(), stale.source), (&b"first"[..], Source::Refreshing));
        assert_eq!(stale.why, Some(Why::Stale));
    }
    reached(&gate, 1).await;
    assert_eq!((origin.loads(), world.engine.traffic().refreshes), (2, 1));
    gate.open();
    world.until_nothing_is_under_way().await;
    let hit = world.obtain("a", &origin).await.expect("a hit");
    assert_eq!((bytes(&hit).as_ref(), hit.source), (&b"second"[..], Source::Hit));
    assert_eq!((origin.loads(), world.engine.traffic().refreshes), (2, 0));
}

#[tokio::test]
async fn behind_its_window_a_stale_answer_is_loaded_first() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    let origin = first_then(&world, windows(60, 0), &gate, second);
    world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + 61);
    let loaded = world.obtain("a", &origin).await.expect("an answer");
    assert_eq!((bytes(&loaded).as_ref(), loaded.why), (&b"second"[..], Some(Why::Stale)));
}

#[tokio::test]
async fn a_failing_refresh_leaves_the_entry_and_the_next_caller_tries_again() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    let origin = first_then(&world, windows(60, 0), &gate, unreachable_origin);
    world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + 1);
    for round in 1..=3 {
        let stale = world.obtain("a", &origin).await.expect("a stale answer");
        assert_eq!(bytes(&stale), "first");
        world.until_nothing_is_under_way().await;
        assert_eq!((origin.loads(), world.engine.traffic().refreshes), (1 + round, 0));
        world.step(1);
    }
}

#[tokio::test]
async fn a_refresh_that_panics_makes_room_for_the_next() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    let origin = first_then(&world, windows(60, 0), &gate, |_: &World, _| panic!("a bug"));
    world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + 1);
    world.obtain("a", &origin).await.expect("a stale answer");
    world.until_nothing_is_under_way().await;
    assert_eq!((origin.loads(), world.engine.traffic().refreshes), (2, 0));
    assert_eq!(bytes(&world.obtain("a", &origin).await.expect("a stale answer")), "first");
}

#[tokio::test]
async fn refreshes_are_bounded_and_what_is_left_out_is_counted() {
    const REFRESHES_MAX: usize = 1_024;
    let (world, gate) = (World::new(), Gate::new());
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |asked: Asked| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                if asked.prior.is_some() {
                    gate.wait().await;
                }
                Ok(whole(world.meta(windows(60, 0)), "any"))
            }
        }
    });
    let names: Vec<_> = (0..REFRESHES_MAX + 10).map(|number| number.to_string()).collect();
    for name in &names {
        world.obtain(name.as_str(), &origin).await.expect("an answer");
    }
    world.step(FRESH + 1);
    for name in &names {
        let stale = world.obtain(name.as_str(), &origin).await.expect("a stale answer");
        assert_eq!(stale.source, Source::Refreshing);
    }
    reached(&gate, REFRESHES_MAX).await;
    assert_eq!(world.engine.traffic().refreshes, REFRESHES_MAX);
    assert_eq!(world.counts.refreshes_skipped.load(Ordering::SeqCst), 10);
    gate.open();
    world.until_nothing_is_under_way().await;
    assert_eq!((origin.loads(), world.engine.traffic().refreshes), (2 * REFRESHES_MAX + 10, 0));
}

/// A stale entry and an origin that cannot be reached.
async fn gone_stale(lifetime: Lifetime, staleness: u64) -> (World, Gate, Origin) {
    let (world, gate) = (World::new(), Gate::new());
    let origin = first_then(&world, lifetime, &gate, unreachable_origin);
    world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + staleness);
    (world, gate, origin)
}

#[tokio::test]
async fn when_a_load_fails_a_stale_answer_is_given_inside_its_window_alone() {
    let forbidden = Lifetime { stale: Stale::Forbidden, ..windows(60, 60) };
    let rows = [
        ("inside", windows(0, 60), 60, true),
        ("outside", windows(0, 60), 61, false),
        ("no window", windows(0, 0), 1, false),
        ("forbidden", forbidden, 1, false),
    ];
    for (name, lifetime, staleness, falls_back) in rows {
        let (world, gate, origin) = gone_stale(lifetime, staleness).await;
        let crowd = Crowd::of(20, |_| world.obtain("a", &origin)).await;
        gate.open();
        for told in crowd.told().await {
            match told {
                Ok(obtained) if falls_back => {
                    assert_eq!(bytes(&obtained), "first", "{name}");
                    assert_eq!(obtained.source, Source::Fallback, "{name}");
                    assert_eq!(obtained.why, Some(Why::LoadFailed), "{name}");
                }
                Err(LoadError::Origin(_)) if !falls_back => {}
                told => panic!("{name}: {told:?}"),
            }
        }
        assert_eq!(origin.loads(), 2, "{name}");
    }
}

#[tokio::test]
async fn a_window_that_closes_while_the_load_fails_is_closed() {
    let (world, gate, origin) = gone_stale(windows(0, 60), 59).await;
    let crowd = Crowd::of(2, |_| world.obtain("a", &origin)).await;
    reached(&gate, 1).await;
    world.step(2);
    gate.open();
    for told in crowd.told().await {
        assert!(matches!(told, Err(LoadError::Origin(_))), "{told:?}");
    }
}

#[tokio::test]
async fn a_caller_with_a_demand_of_its_own_is_not_given_what_it_refused() {
    let (world, gate, origin) = gone_stale(windows(0, 60), 1).await;
    gate.open();
    let demand = Demand { max_age: Some(secs(5)), ..Demand::default() };
    let told = world.obtain(Question::of("a", demand), &origin).await;
    assert!(matches!(told, Err(LoadError::Origin(_))), "{told:?}");
}

fn service_unavailable(_: &World, asked: Asked) -> Answer {
    let passed = passed(format!("sorry {}", asked.number), secs(0));
    Ok(Loaded::Failed { passed, error: LoadError::Answered(503) })
}

#[tokio::test]
async fn an_error_in_the_origins_words_gives_way_to_what_is_stored() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = first_then(&world, windows(0, 60), &gate, service_unavailable);
    world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + 1);
    let crowd = Crowd::of(20, |_| world.obtain("a", &origin)).await;
    gate.open();
    for obtained in crowd.obtained().await {
        assert_eq!((bytes(&obtained).as_ref(), obtained.source), (&b"first"[..], Source::Fallback));
    }
    assert_eq!(origin.loads(), 2);
}

#[tokio::test]
async fn an_error_in_the_origins_words_is_told_once_and_named_to_those_who_waited() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = first_then(&world, windows(0, 0), &gate, service_unavailable);
    world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + 1);
    let crowd = Crowd::of(20, |_| world.obtain("a", &origin)).await;
    reached(&gate, 1).await;
    gate.open();
    let told = crowd.told().await;
    let words = told.iter().flatten().filter(|obtained| obtained.source == Source::Passed).count();
    let named = told.iter().filter(|told| matches!(told, Err(LoadError::Answered(503)))).count();
    assert_eq!((words, named, origin.loads()), (1, 19, 2));
}

#[tokio::test]
async fn an_error_that_somebody_in_particular_met_is_not_everybodys() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = first_then(&world, windows(0, 0), &gate, service_unavailable);
    world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + 1);
    let crowd = Crowd::of(20, |_| {
        world.obtain(Question::of("a", Demand::default()).with_credentials(), &origin)
    })
    .await;
    reached(&gate, 1).await;
    gate.open();
    let obtained = crowd.obtained().await;
    assert!(obtained.iter().all(|obtained| obtained.source == Source::Passed));
    let mut words: Vec<_> = obtained.iter().map(bytes).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!((words.len(), origin.loads()), (20, 21), "nobody shares another's error");
}

#[tokio::test]
async fn an_answer_that_is_unchanged_keeps_its_body_and_gets_new_metadata() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    let unchanged = |world: &World, _: Asked| {
        let head = Some(Head::new("new head".into()));
        Ok(Loaded::Unchanged { meta: world.fresh(100), head })
    };
    let origin = first_then(&world, windows(0, 0), &gate, unchanged);
    let first = world.obtain("a", &origin).await.expect("an answer");
    world.step(FRESH + 1);
    let validated = world.obtain("a", &origin).await.expect("an answer");
    assert_eq!(validated.source, Source::Led { stored: true, unchanged: true });
    world.step(90);
    let hit = world.obtain("a", &origin).await.expect("a hit");
    assert_eq!(hit.source, Source::Hit);
    assert_eq!(bytes(&hit).as_ptr(), bytes(&first).as_ptr(), "the same bytes");
    assert_eq!(hit.entry.head.bytes(), Some(&"new head".into()));
    assert_eq!(hit.entry.meta.lifetime().fresh, secs(100));
    assert_eq!(origin.priors(), [None, Some("first".into())]);
}

#[tokio::test]
async fn unchanged_without_anything_stored_is_an_error_of_the_origin() {
    let world = World::new();
    let origin = Origin::new({
        let world = world.clone();
        move |_| {
            let meta = world.fresh(FRESH);
            async move { Ok(Loaded::Unchanged { meta, head: None }) }
        }
    });
    let told = world.obtain("a", &origin).await;
    assert!(matches!(told, Err(LoadError::Origin(_))), "{told:?}");
    assert_eq!(world.engine.memory().entries(), 0);
}

#[tokio::test]
async fn what_is_costly_is_refreshed_early_by_one_flight_and_served_meanwhile() {
    const FRESH_LONG: u64 = 100;
    let (world, gate) = (World::new(), Gate::new());
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |asked: Asked| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                if asked.number == 1 {
                    world.step(5);
                } else {
                    gate.wait().await;
                }
                Ok(whole(world.fresh(FRESH_LONG), asked.number.to_string()))
            }
        }
    });
    // So eager that any throw of the dice calls for a refresh, and not eager at all.
    let eager = || Question::of("a", Demand { beta: 1e12, ..Demand::default() });
    let calm = || Question::of("a", Demand { beta: 0.0, ..Demand::default() });
    let first = world.obtain(calm(), &origin).await.expect("an answer");
    assert_eq!(first.entry.meta.load_cost(), secs(5));
    world.step(FRESH_LONG * 9 / 10 - 1);
    let hit = world.obtain(eager(), &origin).await.expect("a hit");
    assert_eq!(hit.source, Source::Hit, "not before the last tenth");
    world.step(5);
    assert_eq!(world.obtain(calm(), &origin).await.expect("a hit").source, Source::Hit);
    for _ in 0..20 {
        let served = world.obtain(eager(), &origin).await.expect("an answer");
        assert_eq!((bytes(&served).as_ref(), served.source), (&b"1"[..], Source::Refreshing));
        assert_eq!(served.why, Some(Why::EarlyRefresh));
    }
    reached(&gate, 1).await;
    assert_eq!((origin.loads(), world.engine.traffic().refreshes), (2, 1));
    gate.open();
    world.until_nothing_is_under_way().await;
    assert_eq!(bytes(&world.obtain(calm(), &origin).await.expect("a hit")), "2");
    assert_eq!(origin.loads(), 2);
}
