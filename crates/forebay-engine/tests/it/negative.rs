//! Negative entries: stored facts that a key has no value.

use forebay_core::{Lifetime, Presence, Purge, Reach};
use forebay_engine::{Loaded, Outcome, Source};

use crate::crowd::Crowd;
use crate::origin::{Origin, whole};
use crate::world::{World, bytes, key, secs};

/// An origin that has something under this key from this load on, or until it.
fn changing(world: &World, absent_if: impl Fn(usize) -> bool + Send + Sync + 'static) -> Origin {
    let world = world.clone();
    Origin::new(move |asked| {
        let answer = if absent_if(asked.number) {
            Loaded::Absent { lifetime: Lifetime::fresh(secs(10)) }
        } else {
            whole(world.fresh(10), "there")
        };
        async { Ok(answer) }
    })
}

fn presence(obtained: &Outcome) -> Presence {
    obtained.entry.meta.presence
}

#[tokio::test]
async fn what_is_absent_is_asked_for_once_by_a_crowd_and_by_those_who_come_later() {
    let world = World::new();
    let origin = changing(&world, |_| true);
    let crowd = Crowd::of(50, |_| world.obtain("a", &origin)).await;
    for obtained in crowd.obtained().await {
        assert_eq!((presence(&obtained), bytes(&obtained).len()), (Presence::Absent, 0));
    }
    let hit = world.obtain("a", &origin).await.expect("a hit");
    assert_eq!((hit.source, presence(&hit), origin.loads()), (Source::Hit, Presence::Absent, 1));
    assert_eq!(world.engine.memory().bytes(), world.engine.memory().absent_bytes());
}

#[tokio::test]
async fn what_appears_and_vanishes_is_what_it_was_last() {
    let world = World::new();
    let origin = changing(&world, |number| number % 2 == 1);
    for expected in [Presence::Absent, Presence::Present, Presence::Absent, Presence::Present] {
        let led = world.obtain("a", &origin).await.expect("an answer");
        let hit = world.obtain("a", &origin).await.expect("a hit");
        assert_eq!((presence(&led), presence(&hit), hit.source), (expected, expected, Source::Hit));
        assert_eq!(world.engine.memory().entries(), 1);
        world.step(11);
    }
    assert_eq!(origin.loads(), 4);
}

#[tokio::test]
async fn a_purge_takes_the_knowledge_that_nothing_is_there_with_it() {
    let world = World::new();
    let origin = changing(&world, |number| number == 1);
    world.obtain("a", &origin).await.expect("an answer");
    assert!(world.purge(&Purge::Key(key("a")), Reach::Hard).await);
    let after = world.obtain("a", &origin).await.expect("an answer");
    assert_eq!((presence(&after), origin.loads()), (Presence::Present, 2));
}
