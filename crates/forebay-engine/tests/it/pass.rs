//! Requests whose answers may not be shared do not wait for each other (invariant 7).

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Lifetime, Stale, Validator, Why};
use forebay_engine::{Loaded, Source};
use forebay_testkit::gate::Gate;
use tokio::time::Instant;

use crate::crowd::{Crowd, reached};
use crate::origin::{Asked, Once, Origin, flowing, passed, tap, whole};
use crate::world::{Question, World, bytes, secs};

/// How long each load takes.
const DELAY: Duration = Duration::from_secs(1);

/// For how long the key is remembered.
const REMEMBER: u64 = 10;

/// Each load takes its time and answers for its caller alone; from load `shared_from` on, for all.
fn private(world: &World, shared_from: usize) -> Origin {
    let world = world.clone();
    Origin::new(move |asked: Asked| {
        let world = world.clone();
        async move {
            tokio::time::sleep(DELAY).await;
            let body = asked.number.to_string();
            Ok(if asked.number < shared_from {
                Loaded::Pass(passed(body, secs(REMEMBER)))
            } else {
                whole(world.fresh(60), body)
            })
        }
    })
}

fn distinct(crowd: &[forebay_engine::Outcome]) -> usize {
    crowd.iter().map(bytes).collect::<HashSet<Bytes>>().len()
}

/// Lets 20 callers ask at once: how long it took, and how many different answers there were.
async fn twenty(world: &World, origin: &Origin, question: &Question) -> (Duration, usize) {
    let begun = Instant::now();
    let crowd = Crowd::of(20, |_| world.obtain(question.clone(), origin)).await;
    let obtained = crowd.obtained().await;
    assert!(obtained.iter().all(|obtained| obtained.source == Source::Passed));
    (begun.elapsed(), distinct(&obtained))
}

#[tokio::test(start_paused = true)]
async fn one_learns_that_answers_are_private_and_then_all_go_together() {
    let world = World::new();
    let origin = private(&world, usize::MAX);
    let question = Question::from("a");
    assert_eq!(twenty(&world, &origin, &question).await, (2 * DELAY, 20));
    assert_eq!((origin.loads(), origin.most_at_once()), (20, 19));
    assert_eq!(twenty(&world, &origin, &question).await, (DELAY, 20), "the marker stands");
    assert_eq!((origin.loads(), origin.most_at_once()), (40, 20));
    world.step(REMEMBER);
    assert_eq!(twenty(&world, &origin, &question).await, (2 * DELAY, 20), "it has decayed");
    assert_eq!(origin.loads(), 60);
    assert_eq!(world.engine.memory().entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_all_lifts_the_marker() {
    let world = World::new();
    let origin = private(&world, 2);
    world.obtain("a", &origin).await.expect("an answer");
    let alone = world.obtain("a", &origin).await.expect("an answer");
    assert_eq!(alone.why, Some(Why::PassMarked));
    assert_eq!(alone.source, Source::Led { stored: true, unchanged: false });
    world.step(61);
    let crowd = Crowd::of(20, |_| world.obtain("a", &origin)).await;
    assert_eq!(distinct(&crowd.obtained().await), 1, "they wait for one again");
    assert_eq!(origin.loads(), 3);
}

/// The first load answers for its caller alone; later ones wait at the gate.
fn private_then_gated(world: &World, gate: &Gate) -> Origin {
    let (world, gate) = (world.clone(), gate.clone());
    Origin::new(move |asked: Asked| {
        let (world, gate) = (world.clone(), gate.clone());
        async move {
            if asked.number == 1 {
                return Ok(Loaded::Pass(passed("private", secs(REMEMBER))));
            }
            gate.wait().await;
            Ok(whole(world.fresh(60), "shared"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_unshared_load_ends_with_its_caller_if_its_front_end_permits_it() {
    for (ends, left) in [(true, 0), (false, 1)] {
        let (world, gate) = (World::new(), Gate::new());
        let origin = private_then_gated(&world, &gate);
        world.obtain("a", &origin).await.expect("an answer");
        let origin = if ends { origin.ending_with_callers() } else { origin };
        let caller = Crowd::of(1, |_| world.obtain("a", &origin)).await;
        reached(&gate, 1).await;
        caller.leave().await;
        assert_eq!((origin.loads(), gate.waiters()), (2, left), "{ends}");
        assert_eq!(world.engine.traffic().flights, left, "{ends}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_others_may_follow_does_not_end_with_its_caller() {
    let (world, gate) = (World::new(), Gate::new());
    let origin = private_then_gated(&world, &gate).ending_with_callers();
    world.obtain("b", &origin).await.expect("an answer");
    let caller = Crowd::of(1, |_| world.obtain("a", &origin)).await;
    reached(&gate, 1).await;
    caller.leave().await;
    assert_eq!(gate.waiters(), 1);
    gate.open();
    let followed = world.obtain("a", &origin).await.expect("an answer");
    assert_eq!((bytes(&followed).as_ref(), origin.loads()), (&b"shared"[..], 2));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_can_be_stored_is_received_to_its_end_after_the_caller_has_its_head() {
    let world = World::new();
    let (tap, body) = tap();
    let body = Once::new(body);
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let answer = match asked.number {
                1 => Loaded::Pass(passed("private", secs(REMEMBER))),
                _ => flowing(world.fresh(60), body.take()),
            };
            async move { Ok(answer) }
        }
    });
    let origin = origin.ending_with_callers();
    world.obtain("a", &origin).await.expect("an answer");
    let obtained = world.obtain("a", &origin).await.expect("an answer");
    let reader = obtained.entry.body.reader();
    drop(obtained);
    tap.send(Ok(Bytes::from_static(b"shared"))).await.expect("it is received");
    drop(tap);
    assert_eq!(reader.collect().await.expect("a whole body"), "shared");
    let stored = world.obtain("a", &origin).await.expect("an answer");
    assert_eq!((stored.source, origin.loads()), (Source::Hit, 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_private_to_somebody_does_not_keep_nobody_in_particular_from_sharing() {
    let world = World::new();
    let origin = private(&world, 2);
    let somebody = Question::from("a").with_credentials();
    assert_eq!(world.obtain(somebody, &origin).await.expect("an answer").source, Source::Passed);
    let gate = Gate::new();
    let shared = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |asked: Asked| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                gate.wait().await;
                Ok(whole(world.fresh(60), asked.number.to_string()))
            }
        }
    });
    let anonymous = Crowd::of(20, |_| world.obtain("a", &shared)).await;
    reached(&gate, 1).await;
    gate.open();
    assert_eq!(distinct(&anonymous.obtained().await), 1);
    assert_eq!(shared.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_private_answer_to_a_follower_with_other_credentials_is_not_shared_either() {
    let world = World::new();
    let origin = private(&world, 2);
    let somebody =
        Crowd::of(1, |_| world.obtain(Question::from("a").with_credentials(), &origin)).await;
    let anonymous = Crowd::of(20, |_| world.obtain("a", &origin)).await;
    let private = somebody.obtained().await;
    assert_eq!((bytes(&private[0]).as_ref(), private[0].source), (&b"1"[..], Source::Passed));
    let shared = anonymous.obtained().await;
    assert!(shared.iter().all(|obtained| bytes(obtained) == "2"));
    assert_eq!(origin.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_storable_but_never_fresh_is_neither_shared_nor_queued_for() {
    let never_fresh = Lifetime::fresh(Duration::ZERO);
    let forbidden =
        Lifetime { stale_while_revalidate: secs(60), stale: Stale::Forbidden, ..never_fresh };
    for lifetime in [never_fresh, forbidden] {
        let world = World::new();
        let origin = Origin::new({
            let world = world.clone();
            move |asked: Asked| {
                let world = world.clone();
                async move {
                    tokio::time::sleep(DELAY).await;
                    let mut meta = world.meta(lifetime);
                    meta.set_validator(Some(Validator { tag: Some("v".into()), modified: None }));
                    Ok(whole(meta, asked.number.to_string()))
                }
            }
        });
        let begun = Instant::now();
        let crowd = Crowd::of(20, |_| world.obtain("a", &origin)).await;
        assert_eq!(distinct(&crowd.obtained().await), 20, "each is validated on its own");
        assert_eq!((begun.elapsed(), origin.loads()), (2 * DELAY, 20));
        let told_of_it = origin.priors().iter().flatten().count();
        assert_eq!(told_of_it, 19, "all but the first can ask whether it is still good");
    }
}

#[tokio::test]
async fn a_private_body_goes_at_the_pace_of_its_caller_and_is_read_once() {
    let world = World::new();
    let origin = Origin::new(|_| async {
        let content = forebay_engine::Content::Stream(crate::origin::ready_pieces(1_000, 64 << 10));
        let head = forebay_engine::Head::default();
        Ok(Loaded::Pass(forebay_engine::Passed { head, content, remember: secs(REMEMBER) }))
    });
    let obtained = world.obtain("a", &origin).await.expect("a head");
    let mut reader = obtained.entry.body.reader();
    let mut read = 0;
    while let Some(piece) = reader.next().await {
        read += piece.expect("it does not break").len();
        assert_eq!(world.engine.traffic().in_flight_bytes, 0, "nothing is held");
    }
    assert_eq!(read, 1_000 * (64 << 10));
    let again = obtained.entry.body.reader().next().await;
    assert!(matches!(again, Some(Err(_))), "no clean end for a second reader: {again:?}");
}
