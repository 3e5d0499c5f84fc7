//! Circuit breaker of a tier: a failing tier is bypassed, and used again when it works (invariants
//! 8, 10).
//!
//! Time is paused in these tests: a time limit expires only when no task can run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::Condition;
use forebay_engine::{Limits, LoadError, Source};
use tokio::time::Instant;

use crate::crowd::within_patience;
use crate::faulty_tier::{Fault, FaultyTier};
use crate::origin::{Origin, whole};
use crate::world::{MEMORY, Question, Steps, World, key};

const NAME: &str = "faulty";

/// Time limit of a lookup in all tiers: the cost of a frozen tier until its circuit breaker opens.
const WALK: Duration = Duration::from_millis(50);

fn world_over(tier: &FaultyTier, clock: &Arc<Steps>) -> World {
    World::over(Limits::of(MEMORY), clock, std::slice::from_ref(tier))
}

fn faulty_tier() -> (Arc<Steps>, FaultyTier) {
    let clock = Arc::<Steps>::default();
    let tier = FaultyTier::new(NAME, clock.clone());
    (clock, tier)
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
async fn ask(world: &World, origin: &Origin, name: &str) -> (Source, Duration) {
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
    (obtained.source, took)
}

fn opens(tier: &FaultyTier) -> usize {
    tier.operations().opens.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_frozen_tier_costs_a_few_deadlines_and_then_nothing() {
    let (clock, tier) = faulty_tier();
    let world = world_over(&tier, &clock);
    let origin = fresh(&world);
    tier.inject_fault(0, Fault::Freezes);
    for number in 0..5 {
        let (_, took) = ask(&world, &origin, &number.to_string()).await;
        assert!((WALK..WALK + Duration::from_millis(5)).contains(&took), "{number}: {took:?}");
    }
    assert_eq!(condition(&world), Condition::Open);
    let asked = opens(&tier);
    for number in 5..100 {
        let (source, took) = ask(&world, &origin, &number.to_string()).await;
        assert_eq!(
            (source, took),
            (Source::Led { stored: true, unchanged: false }, Duration::ZERO)
        );
    }
    assert_eq!(opens(&tier), asked, "it was left alone");
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_works_again_is_taken_back_without_any_request_paying_for_it() {
    let (clock, tier) = faulty_tier();
    let filler = world_over(&tier, &clock);
    ask(&filler, &fresh(&filler), "stored").await;
    let world = world_over(&tier, &clock);
    let origin = fresh(&world);
    tier.inject_fault(0, Fault::Fails);
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
    let trials = opens(&tier) - 5;
    assert!((10..=21).contains(&trials), "one at a time, {trials} in all");
    tier.recover();
    clock.step(Duration::from_millis(100));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(condition(&world), Condition::Closed);
    assert_eq!(ask(&world, &origin, "stored").await.0, Source::Tier(NAME));
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_takes_no_writes_is_read_all_the_same() {
    let (clock, tier) = faulty_tier();
    let filler = world_over(&tier, &clock);
    for number in 0..20 {
        ask(&filler, &fresh(&filler), &number.to_string()).await;
    }
    let world = world_over(&tier, &clock);
    let origin = fresh(&world);
    tier.refuse_writes(true);
    let begins = || tier.operations().begins.load(Ordering::SeqCst);
    let before = begins();
    for number in 100..200 {
        ask(&world, &origin, &number.to_string()).await;
    }
    assert_eq!(begins() - before, 5, "then no write was begun");
    for number in 0..20 {
        assert_eq!(ask(&world, &origin, &number.to_string()).await.0, Source::Tier(NAME));
    }
    assert_eq!(condition(&world), Condition::Closed);
    // One write after a while is its own trial.
    tier.refuse_writes(false);
    clock.step(Duration::from_millis(100));
    ask(&world, &origin, "200").await;
    ask(&world, &origin, "201").await;
    assert_eq!(begins() - before, 7);
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_another_one_left_no_time_is_not_blamed() {
    let (clock, below) = faulty_tier();
    let above = FaultyTier::new("above", clock.clone());
    above.inject_fault(0, Fault::Freezes);
    let world = World::over(Limits::of(MEMORY), &clock, &[above, below]);
    let origin = fresh(&world);
    for number in 0..10 {
        ask(&world, &origin, &number.to_string()).await;
    }
    let conditions: Vec<_> = world.engine.lower_tiers().collect();
    assert_eq!(conditions, [("above", Condition::Open), (NAME, Condition::Closed)]);
}

#[tokio::test(start_paused = true)]
async fn what_was_loaded_while_a_tier_was_left_alone_is_written_when_it_works_again() {
    let (clock, tier) = faulty_tier();
    let world = world_over(&tier, &clock);
    let origin = fresh(&world);
    tier.inject_fault(0, Fault::Fails);
    for number in 0..5 {
        ask(&world, &origin, &number.to_string()).await;
    }
    assert_eq!(condition(&world), Condition::Open);
    let name = |number: usize| format!("meanwhile {number}");
    for number in 0..20 {
        let question = Question { key: key(&name(number)), ..Question::from("any") };
        within_patience(world.obtain(question, &origin)).await.expect("an answer at once");
    }
    assert_eq!((tier.records(), world.engine.traffic().writes), (0, 20));
    tier.recover();
    clock.step(Duration::from_millis(100));
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!((tier.records(), world.engine.traffic().writes), (20, 0));
    let other = world_over(&tier, &clock);
    for number in 0..20 {
        assert_eq!(ask(&other, &origin, &name(number)).await.0, Source::Tier(NAME));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_late_takes_the_place_of_nothing_newer() {
    let (clock, tier) = faulty_tier();
    let (world, other) = (world_over(&tier, &clock), world_over(&tier, &clock));
    let (old, new) = (fresh(&world), fresh(&other));
    ask(&other, &new, "stored").await;
    tier.inject_fault(0, Fault::Fails);
    for number in 0..5 {
        ask(&world, &old, &number.to_string()).await;
    }
    let question = || Question { key: key("raced"), ..Question::from("any") };
    within_patience(world.obtain(question(), &old)).await.expect("an answer at once");
    assert_eq!(world.engine.traffic().writes, 1);
    // Another instance finds the tier working first, and has something newer for it.
    tier.recover();
    clock.step(Duration::from_millis(50));
    let before = tier.operations().commits.load(Ordering::SeqCst);
    within_patience(other.obtain(question(), &new)).await.expect("an answer");
    tokio::task::yield_now().await;
    clock.step(Duration::from_millis(60));
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(world.engine.traffic().writes, 0);
    let commits = tier.operations().commits.load(Ordering::SeqCst) - before;
    assert_eq!((commits, condition(&world)), (1, Condition::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_stays_away_is_not_waited_for_in_vain_for_long() {
    let (clock, tier) = faulty_tier();
    let world = world_over(&tier, &clock);
    let origin = fresh(&world);
    tier.inject_fault(0, Fault::Fails);
    for number in 0..300 {
        let question = Question { key: key(&number.to_string()), ..Question::from("any") };
        within_patience(world.obtain(question, &origin)).await.expect("an answer");
    }
    let waiting = world.engine.traffic().writes;
    assert!((200..=256).contains(&waiting), "as many as may: {waiting}");
    tokio::time::sleep(Duration::from_millis(1_020)).await;
    assert_eq!((world.engine.traffic().writes, tier.records()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_strict_door_is_told_that_a_tier_failed() {
    let (clock, tier) = faulty_tier();
    let filler = world_over(&tier, &clock);
    ask(&filler, &fresh(&filler), "stored").await;
    let world = world_over(&tier, &clock);
    let origin = fresh(&world);
    let strict = origin.strict();
    assert_eq!(ask(&world, &strict, "hot").await.0, Source::Led { stored: true, unchanged: false });
    tier.inject_fault(0, Fault::Fails);
    let loads = origin.loads();
    for number in 0..20 {
        let question = Question { key: key(&number.to_string()), ..Question::from("any") };
        let told = within_patience(world.obtain(question, &strict)).await.expect_err("an error");
        assert!(matches!(told, LoadError::Tier(NAME, _)), "{told}");
    }
    assert_eq!(condition(&world), Condition::Open, "also while it is left alone");
    assert_eq!(origin.loads(), loads, "the origin is not asked in its stead");
    // Memory still answers, and a caller that is not strict is not affected.
    assert_eq!(ask(&world, &strict, "hot").await.0, Source::Hit);
    assert_eq!(
        ask(&world, &origin, "cold").await.0,
        Source::Led { stored: true, unchanged: false }
    );
    tier.recover();
    clock.step(Duration::from_millis(100));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(ask(&world, &strict, "stored").await.0, Source::Tier(NAME));
}
