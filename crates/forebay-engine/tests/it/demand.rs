//! Answers satisfy the requirements of the caller (RFC 9111 section 5.2.1).

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Demand, Lifetime, Why};
use forebay_engine::{LoadError, Loaded, Source};
use forebay_testkit::gate::Gate;

use crate::crowd::{Crowd, reached};
use crate::origin::{Asked, Once, Origin, flowing, tap, whole};
use crate::world::{Question, World, bytes, secs};

fn revalidate() -> Question {
    Question::of("a", Demand { revalidate: true, ..Demand::default() })
}

fn no_store() -> Question {
    Question::of("a", Demand { no_store: true, ..Demand::default() })
}

fn max_age(seconds: u64) -> Question {
    Question::of("a", Demand { max_age: Some(secs(seconds)), ..Demand::default() })
}

/// Answers with the number of the load and this lifetime.
fn numbered(world: &World, lifetime: Lifetime) -> Origin {
    let world = world.clone();
    Origin::new(move |asked| {
        let meta = world.meta(lifetime);
        async move { Ok(whole(meta, asked.number.to_string())) }
    })
}

fn stale_while_revalidate(fresh: u64, window: u64) -> Lifetime {
    Lifetime { stale_while_revalidate: secs(window), ..Lifetime::fresh(secs(fresh)) }
}

#[tokio::test]
async fn who_demands_validation_leads_or_follows_the_next_flight_never_the_one_under_way() {
    let world = World::new();
    let gates = [Gate::new(), Gate::new()];
    let origin = Origin::new({
        let (world, gates) = (world.clone(), gates.clone());
        move |asked: Asked| {
            let (world, gate) = (world.clone(), gates[asked.number - 1].clone());
            async move {
                gate.wait().await;
                Ok(whole(world.fresh(60), asked.number.to_string()))
            }
        }
    });
    let ordinary = Crowd::of(10, |_| world.obtain("a", &origin)).await;
    reached(&gates[0], 1).await;
    let demanding = Crowd::of(50, |_| world.obtain(revalidate(), &origin)).await;
    gates[0].open();
    assert!(ordinary.obtained().await.iter().all(|obtained| bytes(obtained) == "1"));
    reached(&gates[1], 1).await;
    gates[1].open();
    assert!(demanding.obtained().await.iter().all(|obtained| bytes(obtained) == "2"));
    assert_eq!(origin.loads(), 2);
}

#[tokio::test]
async fn who_demands_validation_does_not_wait_for_a_body_nor_go_alone_because_of_it() {
    let (world, second) = (World::new(), Gate::new());
    let (tap, body) = tap();
    let body = Once::new(body);
    let origin = Origin::new({
        let (world, second) = (world.clone(), second.clone());
        move |asked: Asked| {
            let (world, second, body) = (world.clone(), second.clone(), body.clone());
            async move {
                if asked.number == 1 {
                    return Ok(flowing(world.fresh(60), body.take()));
                }
                second.wait().await;
                Ok(whole(world.fresh(60), asked.number.to_string()))
            }
        }
    });
    let first = world.obtain("a", &origin).await.expect("a head");
    // All of them came before the load of the next flight had started.
    let demanding = Crowd::of(50, |_| world.obtain(revalidate(), &origin)).await;
    reached(&second, 1).await;
    assert_eq!(origin.loads(), 2, "the first of them did not wait for the body");
    // To those who come now, that flight is one under way.
    let late = Crowd::of(50, |_| world.obtain(revalidate(), &origin)).await;
    second.open();
    assert!(demanding.obtained().await.iter().all(|obtained| bytes(obtained) == "2"));
    assert!(late.obtained().await.iter().all(|obtained| bytes(obtained) == "3"));
    assert_eq!(origin.loads(), 3);
    tap.try_send(Ok(Bytes::from_static(b"1"))).expect("it is still read");
    drop(tap);
    assert_eq!(first.entry.body.reader().collect().await, Ok(Bytes::from_static(b"1")));
}

#[tokio::test]
async fn who_joins_when_the_next_flight_has_come_and_gone_takes_what_it_brought() {
    let world = World::new();
    let origin = numbered(&world, Lifetime::fresh(secs(60)));
    let gate = Gate::new();
    let slow = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |_| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                gate.wait().await;
                Ok(whole(world.fresh(60), "slow"))
            }
        }
    });
    let ordinary = Crowd::of(1, |_| world.obtain("a", &slow)).await;
    reached(&gate, 1).await;
    let demanding = Crowd::of(20, |_| world.obtain(revalidate(), &origin)).await;
    gate.open();
    ordinary.obtained().await;
    // Each load completes at the moment at which it starts, before the other callers wake.
    assert!(demanding.obtained().await.iter().all(|obtained| bytes(obtained) == "1"));
    assert_eq!((slow.loads(), origin.loads()), (1, 1));
}

#[tokio::test]
async fn a_validation_that_completed_before_a_caller_arrived_does_not_answer_it() {
    let world = World::new();
    let origin = numbered(&world, Lifetime::fresh(secs(60)));
    for number in 1..=3 {
        let obtained = world.obtain(revalidate(), &origin).await.expect("an answer");
        assert_eq!(bytes(&obtained), number.to_string());
    }
    assert_eq!(origin.loads(), 3);
    assert_eq!(origin.priors()[1..], [Some("1".into()), Some("2".into())]);
}

#[tokio::test]
async fn nothing_is_loaded_for_who_wants_only_what_is_cached() {
    let world = World::new();
    let origin = numbered(&world, stale_while_revalidate(10, 10));
    let cached = || Question::of("a", Demand { only_if_cached: true, ..Demand::default() });
    let missed = world.obtain(cached(), &origin).await;
    assert!(matches!(missed, Err(LoadError::NotCached)), "{missed:?}");
    assert_eq!(origin.loads(), 0);
    world.obtain("a", &origin).await.expect("an answer");
    assert_eq!(world.obtain(cached(), &origin).await.expect("a hit").source, Source::Hit);
    world.step(15);
    let stale = world.obtain(cached(), &origin).await.expect("a stale hit");
    assert_eq!(bytes(&stale), "1");
    world.step(15);
    assert!(matches!(world.obtain(cached(), &origin).await, Err(LoadError::NotCached)));
    assert_eq!((origin.loads(), world.engine.traffic().flights), (1, 0));
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_a_load_each_and_leaves_no_trace() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |asked: Asked| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                gate.wait().await;
                Ok(whole(world.fresh(60), asked.number.to_string()))
            }
        }
    });
    let crowd = Crowd::of(20, |_| world.obtain(no_store(), &origin)).await;
    reached(&gate, 20).await;
    gate.open();
    let obtained = crowd.obtained().await;
    let mut bodies: Vec<_> = obtained.iter().map(bytes).collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!((bodies.len(), origin.loads()), (20, 20), "each has its own");
    let passed = |why| (Source::Passed, Some(why));
    assert!(obtained.iter().all(|o| (o.source, o.why) == passed(Why::RequestNoStore)));
    assert_eq!(world.engine.memory().entries(), 0);
}

#[tokio::test]
async fn what_is_not_to_be_stored_leaves_what_is_stored_as_it_is() {
    let world = World::new();
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let meta = world.fresh(10);
            async move {
                Ok(match asked.prior {
                    Some(_) if asked.number == 2 => Loaded::Unchanged { meta, head: None },
                    _ => whole(meta, asked.number.to_string()),
                })
            }
        }
    });
    world.obtain("a", &origin).await.expect("an answer");
    world.step(20);
    let validated = world.obtain(no_store(), &origin).await.expect("an answer");
    assert_eq!(validated.source, Source::Led { stored: false, unchanged: true });
    assert_eq!(bytes(&validated), "1");
    assert_eq!(
        world.answer_without_load("a", &origin).await,
        None,
        "what is stored is as stale as before"
    );
    let loaded = world.obtain(no_store(), &origin).await.expect("an answer");
    assert_eq!(bytes(&loaded), "3");
    assert_eq!(world.answer_without_load("a", &origin).await, None);
    let question = Question::of("a", Demand { max_stale: Some(secs(60)), ..Demand::default() });
    assert_eq!(bytes(&world.obtain(question, &origin).await.expect("a stale hit")), "1");
    assert_eq!(origin.loads(), 3);
}

#[tokio::test]
async fn where_nothing_may_be_stored_nothing_is_refreshed_behind_an_answer() {
    let world = World::new();
    let origin = numbered(&world, stale_while_revalidate(10, 60));
    world.obtain("a", &origin).await.expect("an answer");
    world.step(20);
    let stale = world.obtain(no_store(), &origin).await.expect("a stale answer");
    assert_eq!((bytes(&stale).as_ref(), stale.source), (&b"1"[..], Source::Refreshing));
    assert_eq!((origin.loads(), world.engine.traffic().flights), (1, 0));
}

#[tokio::test]
async fn an_answer_is_not_older_than_its_caller_allows() {
    let world = World::new();
    let origin = numbered(&world, Lifetime::fresh(secs(60)));
    world.obtain("a", &origin).await.expect("an answer");
    world.step(10);
    let hit = world.obtain(max_age(10), &origin).await.expect("a hit");
    assert_eq!((hit.source, origin.loads()), (Source::Hit, 1));
    let loaded = world.obtain(max_age(9), &origin).await.expect("an answer");
    assert_eq!((loaded.why, origin.loads()), (Some(Why::RequestMaxAge), 2));
    let min_fresh =
        |seconds| Question::of("a", Demand { min_fresh: Some(secs(seconds)), ..Demand::default() });
    assert_eq!(world.obtain(min_fresh(60), &origin).await.expect("a hit").source, Source::Hit);
    let loaded = world.obtain(min_fresh(61), &origin).await.expect("an answer");
    assert_eq!((loaded.why, origin.loads()), (Some(Why::RequestMinFresh), 3));
}

#[tokio::test]
async fn a_follower_is_not_given_what_is_too_old_for_it_but_may_wait_for_its_own() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |asked: Asked| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                gate.wait().await;
                // It has been ten seconds old at another cache already.
                let mut meta = world.fresh(60);
                meta.born = meta.born.minus(secs(10));
                Ok(whole(meta, asked.number.to_string()))
            }
        }
    });
    let patient = Crowd::of(5, |_| world.obtain("a", &origin)).await;
    reached(&gate, 1).await;
    let demanding = Crowd::of(5, |_| world.obtain(max_age(5), &origin)).await;
    gate.open();
    assert!(patient.obtained().await.iter().all(|obtained| bytes(obtained) == "1"));
    let demanding = demanding.obtained().await;
    assert!(demanding.iter().all(|obtained| bytes(obtained) == "2"), "no origin does better");
    assert_eq!(origin.loads(), 2);
}

#[tokio::test]
async fn who_accepts_stale_answers_gets_them_up_to_its_bound() {
    let world = World::new();
    let origin = numbered(&world, Lifetime::fresh(secs(10)));
    let first = world.obtain("a", &origin).await.expect("an answer");
    world.step(15);
    let max_stale =
        |seconds| Question::of("a", Demand { max_stale: Some(secs(seconds)), ..Demand::default() });
    let stale = world.obtain(max_stale(5), &origin).await.expect("a stale hit");
    assert_eq!((stale.source, stale.why), (Source::Hit, Some(Why::Stale)));
    assert!(Arc::ptr_eq(&stale.entry, &first.entry));
    let loaded = world.obtain(max_stale(4), &origin).await.expect("an answer");
    assert_eq!((bytes(&loaded).as_ref(), origin.loads()), (&b"2"[..], 2));
}
