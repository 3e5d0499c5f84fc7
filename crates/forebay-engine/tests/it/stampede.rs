//! One load per key, also if callers leave, fail or panic (invariants 1, 4, 5, 6).

use std::sync::Arc;

use forebay_engine::{LoadError, LookupResult, Source};
use forebay_testkit::gate::Gate;

use crate::crowd::{Crowd, reached};
use crate::origin::{Answer, Asked, Origin, whole};
use crate::world::{Question, World, bytes};

/// An origin that answers with the number of the load, once the gate is open.
fn gated(world: &World, gate: &Gate) -> Origin {
    let (world, gate) = (world.clone(), gate.clone());
    Origin::new(move |asked| {
        let (world, gate) = (world.clone(), gate.clone());
        async move {
            gate.wait().await;
            Ok(whole(world.fresh(60), asked.number.to_string()))
        }
    })
}

#[tokio::test]
async fn any_number_of_callers_on_a_cold_key_is_one_load_and_one_entry() {
    for count in [1_000, 10_000] {
        let (world, gate) = (World::new(), Gate::new());
        let origin = gated(&world, &gate);
        let crowd = Crowd::of(count, |_| world.obtain("a", &origin)).await;
        assert_eq!(world.engine.traffic().flights, 1);
        gate.open();
        let obtained = crowd.obtained().await;
        assert_eq!(origin.loads(), 1);
        let first = &obtained[0].entry;
        assert!(obtained.iter().all(|obtained| Arc::ptr_eq(&obtained.entry, first)));
        let led = Source::Led { stored: true, unchanged: false };
        assert_eq!(obtained.iter().filter(|obtained| obtained.source == led).count(), 1);
        let followed = obtained.iter().filter(|obtained| obtained.source == Source::Followed);
        assert_eq!(followed.count(), count - 1);
        assert_eq!(world.engine.traffic().flights, 0);
        assert_eq!(world.obtain("a", &origin).await.expect("a hit").source, Source::Hit);
        assert_eq!(origin.loads(), 1);
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_take_the_load_with_it() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = gated(&world, &gate);
    Crowd::of(1, |_| world.obtain("a", &origin)).await.leave().await;
    reached(&gate, 1).await;
    let next = Crowd::of(1, |_| world.obtain("a", &origin)).await;
    gate.open();
    assert_eq!(next.obtained().await[0].source, Source::Followed);
    assert_eq!(origin.loads(), 1);
}

#[tokio::test]
async fn a_load_that_nobody_waits_for_any_more_is_stored_all_the_same() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = gated(&world, &gate);
    Crowd::of(100, |_| world.obtain("a", &origin)).await.leave().await;
    reached(&gate, 1).await;
    gate.open();
    let obtained = world.obtain("a", &origin).await.expect("an answer");
    assert_eq!((bytes(&obtained).as_ref(), origin.loads()), (&b"1"[..], 1));
}

/// Fails the first load in the way that `fail` does, and answers the others.
fn failing_once<F>(world: &World, gate: &Gate, fail: F) -> Origin
where
    F: Fn() -> Answer + Send + Sync + 'static,
{
    let (world, gate, fail) = (world.clone(), gate.clone(), Arc::new(fail));
    Origin::new(move |asked: Asked| {
        let (world, gate, fail) = (world.clone(), gate.clone(), fail.clone());
        async move {
            gate.wait().await;
            if asked.number == 1 { fail() } else { Ok(whole(world.fresh(60), "good")) }
        }
    })
}

#[tokio::test]
async fn a_panicking_load_is_told_to_all_who_wait_and_frees_the_key() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = failing_once(&world, &gate, || panic!("a bug in a loader"));
    let crowd = Crowd::of(50, |_| world.obtain("a", &origin)).await;
    gate.open();
    for told in crowd.told().await {
        let Err(LoadError::Panicked(why)) = told else { panic!("{told:?}") };
        assert_eq!(&*why, "a bug in a loader");
    }
    assert_eq!((origin.loads(), world.engine.traffic().flights), (1, 0));
    world.step(1);
    assert_eq!(bytes(&world.obtain("a", &origin).await.expect("an answer")), "good");
    assert_eq!(origin.loads(), 2);
}

#[tokio::test]
async fn a_loader_that_panics_before_it_has_a_future_is_no_worse() {
    let world = World::new();
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            assert!(asked.number > 1, "a bug in front of a loader");
            let meta = world.fresh(60);
            async move { Ok(whole(meta, "good")) }
        }
    });
    let crowd = Crowd::of(50, |_| world.obtain("a", &origin)).await;
    for told in crowd.told().await {
        let Err(LoadError::Panicked(why)) = told else { panic!("{told:?}") };
        assert!(why.contains("a bug in front of a loader"), "{why}");
    }
    assert_eq!((origin.loads(), world.engine.traffic().flights), (1, 0));
    world.step(1);
    assert_eq!(bytes(&world.obtain("a", &origin).await.expect("an answer")), "good");
}

#[tokio::test]
async fn a_failed_load_is_shared_by_its_waiters_once() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = failing_once(&world, &gate, || Err(LoadError::origin("no route")));
    let crowd = Crowd::of(1_000, |_| world.obtain("a", &origin)).await;
    gate.open();
    for told in crowd.told().await {
        assert!(matches!(told, Err(LoadError::Origin(_))), "{told:?}");
    }
    assert_eq!((origin.loads(), world.engine.traffic().flights), (1, 0));
    world.step(1);
    assert_eq!(bytes(&world.obtain("a", &origin).await.expect("an answer")), "good");
    assert_eq!(origin.loads(), 2);
}

#[tokio::test]
async fn a_leader_that_finds_an_entry_stored_since_its_lookup_does_not_load() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    let origin = gated(&world, &gate);
    let wanting = world.look("a", &origin);
    world.obtain("a", &origin).await.expect("an answer");
    let late = world.fetch("a", wanting, &origin).await.expect("an answer");
    assert_eq!((late.source, origin.loads()), (Source::Followed, 1));
}

#[tokio::test]
async fn different_keys_do_not_wait_for_each_other() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = gated(&world, &gate);
    let keys: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let crowd = Crowd::of(100, |number| world.obtain(keys[number].as_str(), &origin)).await;
    reached(&gate, 100).await;
    gate.open();
    crowd.obtained().await;
    assert_eq!((origin.loads(), origin.most_at_once()), (100, 100));
}

#[test]
fn what_one_thread_loads_is_a_hit_on_another() {
    let (world, gate) = (World::new(), Gate::new());
    gate.open();
    let origin = gated(&world, &gate);
    let loading = (world.clone(), origin.clone());
    let loader = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(loading.0.obtain("a", &loading.1)).expect("an answer")
    });
    let loaded = loader.join().expect("it ends");
    let question = Question::from("a");
    let LookupResult::Hit(hit) = world.engine.lookup(&question.ask(&origin)) else {
        panic!("no hit")
    };
    assert_eq!(hit.source, Source::Hit);
    assert!(Arc::ptr_eq(&hit.entry, &loaded.entry));
    assert_eq!(origin.loads(), 1);
}
