//! Entries that a front end stores without a load.

use std::sync::Arc;

use forebay_core::{Demand, KeyBuf, Lifetime, Purge, Reach};
use forebay_engine::{Head, Limits, NewEntry, Source};
use forebay_testkit::gate::Gate;

use crate::crowd::{Crowd, reached, within_patience};
use crate::faulty_tier::FaultyTier;
use crate::origin::{Origin, whole};
use crate::world::{MEMORY, Question, Steps, World, bytes, key, secs};

/// An origin whose loads wait at a gate, and bring `loaded`.
fn waiting(world: &World, gate: &Gate) -> Origin {
    let (world, gate) = (world.clone(), gate.clone());
    Origin::new(move |_| {
        let (world, gate) = (world.clone(), gate.clone());
        async move {
            gate.wait().await;
            Ok(whole(world.fresh(60), "loaded"))
        }
    })
}

async fn put(world: &World, name: &str, body: &'static str) -> bool {
    let entry = NewEntry { meta: world.fresh(60), head: Head::default(), body: body.into() };
    let key = key(name);
    let put = world.engine.put(key.borrowed(), entry, ());
    within_patience(put).await
}

#[tokio::test]
async fn what_is_put_is_at_hand_until_it_is_put_anew_or_purged() {
    let (world, gate) = (World::new(), Gate::of(0));
    let origin = waiting(&world, &gate);
    assert!(put(&world, "a", "one").await);
    assert_eq!(world.answer_without_load("a", &origin).await, Some("one".into()));
    assert!(put(&world, "a", "two").await);
    assert_eq!(world.answer_without_load("a", &origin).await, Some("two".into()));
    assert!(world.purge(&Purge::Key(key("a")), Reach::Hard).await);
    assert_eq!(world.answer_without_load("a", &origin).await, None);
    assert_eq!((origin.loads(), world.engine.traffic().flights), (0, 0));
}

#[tokio::test]
async fn a_load_that_began_earlier_and_ends_later_does_not_replace_what_was_put() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = waiting(&world, &gate);
    let before = Crowd::of(3, |_| world.obtain("a", &origin)).await;
    reached(&gate, 1).await;
    assert!(put(&world, "a", "put").await);
    gate.open();
    for obtained in before.obtained().await {
        assert_eq!(bytes(&obtained), "put", "as the next caller is given");
    }
    world.until_nothing_is_under_way().await;
    assert_eq!(world.answer_without_load("a", &origin).await, Some("put".into()));
}

#[tokio::test]
async fn a_load_that_began_after_a_put_replaces_it() {
    let (world, gate) = (World::new(), Gate::of(0));
    let origin = waiting(&world, &gate);
    put(&world, "a", "put").await;
    let anew = Question::of("a", Demand { revalidate: true, ..Demand::default() });
    let obtained = world.obtain(anew, &origin).await.expect("an answer");
    assert_eq!(bytes(&obtained), "loaded");
    assert_eq!(world.answer_without_load("a", &origin).await, Some("loaded".into()));
}

#[tokio::test]
async fn what_is_put_reaches_the_lower_tiers() {
    let clock = Arc::<Steps>::default();
    let tier = FaultyTier::new("faulty", clock.clone());
    let one = World::over(Limits::of(MEMORY), &clock, std::slice::from_ref(&tier));
    assert!(put(&one, "a", "put").await);
    let other = World::over(Limits::of(MEMORY), &clock, &[tier]);
    let origin = waiting(&other, &Gate::of(0));
    let obtained = other.obtain("a", &origin).await.expect("an answer");
    assert_eq!(bytes(&obtained), "put");
    assert!(matches!(obtained.source, Source::Tier(_)), "{:?}", obtained.source);
    assert_eq!(origin.loads(), 0);
}

#[tokio::test]
async fn a_door_may_count_entries_and_state_what_a_load_has_cost() {
    let limits = Limits { object_max: 10, in_flight_max: 0, ..Limits::of(10) };
    let world = World::within(limits);
    for number in 0..50_u32 {
        let key = KeyBuf::new("site").part(&number.to_le_bytes()).borrowed().to_key();
        let mut meta = world.meta(Lifetime::fresh(secs(60)));
        meta.set_load_cost(secs(number.into()));
        let body = vec![7; 1_000].into();
        let entry = NewEntry { meta, head: Head::default().counted(), body };
        assert!(world.engine.put(key.borrowed(), entry, ()).await);
        let stored = world.engine.memory().get(key.borrowed()).expect("the newest is there");
        assert_eq!(stored.meta.load_cost(), secs(number.into()));
    }
    assert_eq!((world.engine.memory().entries(), world.engine.memory().bytes()), (10, 10));
    assert_eq!(world.engine.memory().evictions(), 40);
}
