//! A tier that fails is left alone, and taken back when it works again (invariants 8, 10).
//!
//! Time is paused in these tests: a deadline passes only where nothing moves any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::Condition;
use forebay_engine::{Limits, Via};
use tokio::time::Instant;

use crate::crowd::within_patience;
use crate::origin::{Origin, whole};
use crate::shelf::{Fault, Shelf};
use crate::world::{MEMORY, Question, Steps, World, key};

const NAME: &str = "shelf";

/// What one walk down may take, and so what a frozen tier costs until it is left alone.
const WALK: Duration = Duration::from_millis(50);

fn world_over(shelf: &Shelf, clock: &Arc<Steps>) -> World {
    World::over((Limits::of(MEMORY), clock), std::slice::from_ref(shelf))
}

fn shelf() -> (Arc<Steps>, Shelf) {
    let clock = Arc::<Steps>::default();
    let shelf = Shelf::new(NAME, clock.clone());
    (clock, shelf)
}

fn fresh(world: &World) -> Origin {
    let world = world.clone();
    Origin::new(move |_| {
        let meta = world.fresh(3_600);
        async move { Ok(whole(meta, "loaded")) }
    })
}

fn condition(world: &World) -> Condition {
    world.engine.lower_tiers().map(|(_, condition)| condition).next().expect("one tier")
}

/// Loads a key of its own, and says how it came and how long it took.
async fn ask(world: &World, origin: &Origin, name: &str) -> (Via, Duration) {
    let begun = Instant::now();
    let question = Question { key: key(name), ..Question::from(name) };
    let obtained = within_patience(world.obtain(question, origin)).await.expect("an answer");
    let took = begun.elapsed();
    let writing = async {
        while world.engine.traffic().flights > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within_patience(writing).await;
    (obtained.via, took)
}

fn opens(shelf: &Shelf) -> usize {
    shelf.operations().opens.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_frozen_tier_costs_a_few_deadlines_and_then_nothing() {
    let (clock, shelf) = shelf();
    let world = world_over(&shelf, &clock);
    let origin = fresh(&world);
    shelf.go_wrong(0, Fault::Freezes);
    for number in 0..5 {
        let (_, took) = ask(&world, &origin, &number.to_string()).await;
        assert!((WALK..WALK + Duration::from_millis(5)).contains(&took), "{number}: {took:?}");
    }
    assert_eq!(condition(&world), Condition::Open);
    let asked = opens(&shelf);
    for number in 5..1_000 {
        let (via, took) = ask(&world, &origin, &number.to_string()).await;
        assert_eq!((via, took), (Via::Led { stored: true, unchanged: false }, Duration::ZERO));
    }
    assert_eq!(opens(&shelf), asked, "it was left alone");
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_works_again_is_taken_back_without_any_request_paying_for_it() {
    let (clock, shelf) = shelf();
    let filler = world_over(&shelf, &clock);
    ask(&filler, &fresh(&filler), "stored").await;
    let world = world_over(&shelf, &clock);
    let origin = fresh(&world);
    shelf.go_wrong(0, Fault::Fails);
    for number in 0..5 {
        ask(&world, &origin, &number.to_string()).await;
    }
    assert_eq!(condition(&world), Condition::Open);
    // Trials fail as long as it does.
    for _ in 0..20 {
        clock.step(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_ne!(condition(&world), Condition::Closed);
    }
    let trials = opens(&shelf) - 5;
    assert!((10..=21).contains(&trials), "one at a time, {trials} in all");
    shelf.recover();
    clock.step(Duration::from_millis(100));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(condition(&world), Condition::Closed);
    assert_eq!(ask(&world, &origin, "stored").await.0, Via::Tier(NAME));
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_takes_no_writes_is_read_all_the_same() {
    let (clock, shelf) = shelf();
    let filler = world_over(&shelf, &clock);
    for number in 0..20 {
        ask(&filler, &fresh(&filler), &number.to_string()).await;
    }
    let world = world_over(&shelf, &clock);
    let origin = fresh(&world);
    shelf.refuse_writes(true);
    let begins = || shelf.operations().begins.load(Ordering::SeqCst);
    let before = begins();
    for number in 100..200 {
        ask(&world, &origin, &number.to_string()).await;
    }
    assert_eq!(begins() - before, 5, "then no write was begun");
    for number in 0..20 {
        assert_eq!(ask(&world, &origin, &number.to_string()).await.0, Via::Tier(NAME));
    }
    assert_eq!(condition(&world), Condition::Closed);
    // One write after a while is its own trial.
    shelf.refuse_writes(false);
    clock.step(Duration::from_millis(100));
    ask(&world, &origin, "200").await;
    ask(&world, &origin, "201").await;
    assert_eq!(begins() - before, 7);
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_another_one_left_no_time_is_not_blamed() {
    let (clock, below) = shelf();
    let above = Shelf::new("above", clock.clone());
    above.go_wrong(0, Fault::Freezes);
    let world = World::over((Limits::of(MEMORY), &clock), &[above, below]);
    let origin = fresh(&world);
    for number in 0..10 {
        ask(&world, &origin, &number.to_string()).await;
    }
    let conditions: Vec<_> = world.engine.lower_tiers().collect();
    assert_eq!(conditions, [("above", Condition::Open), (NAME, Condition::Closed)]);
}
