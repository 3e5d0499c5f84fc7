//! One load for all instances: how many loads, how many operations, how long.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Demand, Lifetime, Meta, Stale};
use forebay_engine::{Clock, Coalesce, LeaseEvent, LoadError, Source};
use tokio::time::Instant;

use super::{Making, Passing, Together, pass};
use crate::origin::{Asked, Origin, passed, whole};
use crate::world::{Question, bytes, secs, tagged, varying};
use forebay_engine::Loaded;

/// Duration of a load at the origins of these tests, in milliseconds.
const LOAD: u64 = 50;

/// The metadata of an answer that is born now, and fresh for a minute.
pub(super) fn minute(clock: &Passing) -> Meta {
    Meta::new(clock.now(), Lifetime::fresh(secs(60)))
}

/// Answers after a while, with the number of the load.
pub(super) fn numbering(clock: &Arc<Passing>, meta: fn(&Passing) -> Meta) -> Origin {
    answering(clock, move |clock, asked| whole(meta(clock), asked.number.to_string()))
}

pub(super) fn answering(
    clock: &Arc<Passing>,
    answer: impl Fn(&Passing, &Asked) -> Loaded + Clone + Send + Sync + 'static,
) -> Origin {
    let clock = clock.clone();
    Origin::new(move |asked| {
        let (clock, answer) = (clock.clone(), answer.clone());
        async move {
            pass(LOAD).await;
            Ok(answer(&clock, &asked))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_cold_key_is_loaded_once_by_eight_instances_of_250_callers() {
    let together = Together::new(8).await;
    for round in 1..=10 {
        let origin = numbering(&together.clock, minute);
        let before = together.server.counts();
        let began = Instant::now();
        let obtained = together.crowd(250, &format!("{round}").as_str().into(), &origin).await;
        assert!(began.elapsed() <= Duration::from_millis(LOAD + 10), "{:?}", began.elapsed());
        assert_eq!(origin.loads(), 1);
        assert!(obtained.iter().all(|obtained| bytes(obtained.as_ref().unwrap()) == "1"));
        let counts = together.server.counts();
        // Each instance looks once; who is woken without the value reads it.
        assert!(counts.opens - before.opens <= 7, "{counts:?} {before:?}");
        assert_eq!(counts.asks - before.asks, 8);
        assert_eq!((counts.fills - before.fills, counts.refusals), (1, 0));
        assert_eq!(together.server.leases(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_shared_is_never_queued_for() {
    let together = Together::new(4).await;
    let origin = answering(&together.clock, |_, asked| {
        Loaded::Pass(passed(asked.number.to_string(), secs(1)))
    });
    let question = Question::from("a");
    for (round, delays) in [(1, 2), (2, 1)] {
        let began = Instant::now();
        let obtained = together.crowd(25, &question, &origin).await;
        assert!(began.elapsed() <= Duration::from_millis(delays * LOAD + 10), "round {round}");
        let mut bodies: Vec<_> = obtained.into_iter().map(|one| bytes(&one.unwrap())).collect();
        bodies.sort();
        bodies.dedup();
        assert_eq!(bodies.len(), 100, "nobody was given another's answer");
    }
    assert_eq!((origin.loads(), together.server.records(), together.server.leases()), (200, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_as_it_comes_is_never_queued_for() {
    let together = Together::new(4).await;
    let origin =
        numbering(&together.clock, |clock| Meta::new(clock.now(), Lifetime::fresh(Duration::ZERO)));
    for delays in [2, 1] {
        let began = Instant::now();
        let obtained = together.crowd(5, &"a".into(), &origin).await;
        assert!(obtained.iter().all(Result::is_ok));
        let took = began.elapsed();
        assert!(took <= Duration::from_millis(delays * LOAD + 10), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_fails_is_tried_once_by_each_instance() {
    let together = Together::new(4).await;
    let origin = Origin::new(|_| async {
        pass(LOAD).await;
        Err(LoadError::origin("no"))
    });
    let began = Instant::now();
    let obtained = together.crowd(25, &"a".into(), &origin).await;
    assert!(began.elapsed() <= Duration::from_millis(2 * LOAD + 10), "{:?}", began.elapsed());
    assert!(obtained.iter().all(|one| matches!(one, Err(LoadError::Origin(_)))));
    assert_eq!((origin.loads(), together.server.leases()), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn each_variant_is_loaded_once() {
    for _ in 0..10 {
        let together = Together::new(4).await;
        let origin = answering(&together.clock, |clock, asked| {
            whole(varying(minute(clock)), asked.language.unwrap_or("none"))
        });
        let began = Instant::now();
        let languages = ["de", "en"].map(|language| origin.speaking(language));
        let crowds = languages.iter().map(|origin| together.crowd(10, &QUESTION, origin));
        let crowds: Vec<_> = futures_util::future::join_all(crowds).await;
        assert!(began.elapsed() <= Duration::from_millis(2 * LOAD + 10), "{:?}", began.elapsed());
        for (crowd, language) in crowds.into_iter().zip(["de", "en"]) {
            assert!(crowd.iter().all(|one| bytes(one.as_ref().unwrap()) == language));
        }
        assert_eq!((origin.loads(), together.server.leases()), (2, 0));
        // All instances use one family of variants, so no one loads again.
        for origin in &languages {
            assert!(together.crowd(1, &QUESTION, origin).await.iter().all(Result::is_ok));
        }
        assert_eq!(origin.loads(), 2);
    }
}

use std::sync::LazyLock;
static QUESTION: LazyLock<Question> = LazyLock::new(|| "a".into());

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_when_its_lease_ends() {
    let together = Together::new(3).await;
    let origin = numbering(&together.clock, minute);
    let dead = &together.instances[0];
    drop(tokio::spawn(dead.obtain("a", &origin)));
    pass(10).await;
    dead.link.freeze(true);
    let began = Instant::now();
    let obtained = futures_util::future::join_all(
        together.instances[1..].iter().map(|instance| instance.obtain("a", &origin)),
    );
    for obtained in obtained.await {
        assert_eq!(bytes(&obtained.unwrap()), "2");
    }
    let took = began.elapsed();
    assert!(took <= Duration::from_millis(1_550 + LOAD), "{took:?}");
    assert!(took >= Duration::from_millis(1_400 + LOAD), "{took:?}");
    assert_eq!(origin.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_paused_for_longer_than_its_lease_stores_nothing() {
    let together = Together::new(2).await;
    let [paused, other] = &together.instances[..] else { unreachable!() };
    let slow = Origin::new({
        let (clock, link) = (together.clock.clone(), paused.link.clone());
        move |_| {
            let (clock, link) = (clock.clone(), link.clone());
            async move {
                pass(LOAD).await;
                link.thawed().await;
                Ok(whole(minute(&clock), "old"))
            }
        }
    });
    let leading = tokio::spawn(paused.obtain("a", &slow));
    pass(10).await;
    paused.link.freeze(true);
    let quick = numbering(&together.clock, minute);
    assert_eq!(bytes(&other.obtain("a", &quick).await.unwrap()), "1");
    pass(1_000).await;
    paused.link.freeze(false);
    assert_eq!(bytes(&leading.await.unwrap().unwrap()), "old");
    pass(100).await;
    assert_eq!(paused.seen.came(LeaseEvent::Withdrawn), 1);
    assert_eq!(bytes(&paused.obtain("a", &quick).await.unwrap()), "1", "it was not kept");
    assert_eq!(together.server.counts().fills, 1);
}

#[tokio::test(start_paused = true)]
async fn where_nobody_answers_each_instance_loads_once() {
    let together = Together::new(4).await;
    for instance in &together.instances {
        instance.link.cut(true);
    }
    pass(2_000).await;
    let origin = numbering(&together.clock, minute);
    for _ in 0..5 {
        for obtained in together.crowd(100, &"a".into(), &origin).await {
            obtained.unwrap();
        }
        pass(2_000).await;
    }
    assert_eq!(origin.loads(), 4);
    assert!(together.instances.iter().all(|instance| instance.seen.came(LeaseEvent::Failed) == 1));
}

#[tokio::test(start_paused = true)]
async fn who_coalesces_here_alone_waits_for_no_other_instance() {
    let together = Together::new(4).await;
    let origin = numbering(&together.clock, minute);
    let question = Question { coalesce: Coalesce::Instance, ..Question::from("a") };
    let began = Instant::now();
    for obtained in together.crowd(25, &question, &origin).await {
        obtained.unwrap();
    }
    assert!(began.elapsed() <= Duration::from_millis(LOAD + 10), "{:?}", began.elapsed());
    let counts = together.server.counts();
    assert_eq!((origin.loads(), counts.asks, counts.fills), (4, 4, 1));
    assert!(together.server.records() == 1, "it is shared all the same");
}

/// Whoever waits for long is served what is stale, if it may be; for the others their instance
/// loads, and what comes is stored nowhere.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_another_instance_for_ever() {
    let making = Making { wait_max: secs(3), ..Making::default() };
    let together = Together::made(2, making).await;
    let [leader, other] = &together.instances[..] else { unreachable!() };
    let mut lifetime = Lifetime::fresh(secs(1));
    lifetime.stale_if_error = secs(60);
    let clock = together.clock.clone();
    let first = Origin::new(move |_| {
        let meta = Meta::new(clock.now(), lifetime);
        async move { Ok(whole(meta, "stale")) }
    });
    for name in ["stale", "cold"] {
        if name == "stale" {
            for instance in [leader, other] {
                instance.obtain(name, &first).await.unwrap();
            }
            pass(1_500).await;
        }
        let hanging = Origin::new(|_| async {
            pass(20_000).await;
            Err(LoadError::origin("at last"))
        });
        let leading = tokio::spawn(leader.obtain(name, &hanging));
        pass(10).await;
        let began = Instant::now();
        let origin = numbering(&together.clock, minute);
        let crowd = (0..25).map(|_| tokio::spawn(other.obtain(name, &origin)));
        let obtained = futures_util::future::join_all(crowd).await;
        let bodies = obtained.into_iter().map(|one| bytes(&one.unwrap().unwrap()));
        let (expected, within) = if name == "stale" { ("stale", 0) } else { ("1", LOAD) };
        assert!(bodies.into_iter().all(|body| body == expected), "{name}");
        let took = began.elapsed();
        assert!(
            took >= secs(3) && took <= secs(3) + Duration::from_millis(within + 10),
            "{took:?}"
        );
        pass(100).await;
        assert_eq!(origin.loads(), 1);
        assert_eq!(other.seen.came(LeaseEvent::Overdue), if name == "stale" { 1 } else { 2 });
        leading.abort();
        pass(20_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_instance_refreshes_for_all() {
    let together = Together::new(4).await;
    let origin = numbering(&together.clock, |clock| {
        let mut lifetime = Lifetime::fresh(secs(1));
        lifetime.stale_while_revalidate = secs(60);
        Meta::new(clock.now(), lifetime)
    });
    together.crowd(5, &"a".into(), &origin).await;
    assert_eq!(origin.loads(), 1);
    pass(1_500).await;
    for obtained in together.crowd(5, &"a".into(), &origin).await {
        assert_eq!(bytes(&obtained.unwrap()), "1");
    }
    pass(LOAD + 10).await;
    assert_eq!(origin.loads(), 2);
    for obtained in together.crowd(5, &"a".into(), &origin).await {
        let obtained = obtained.unwrap();
        assert_eq!((bytes(&obtained), obtained.source), ("2".into(), Source::Hit));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tagged_answer_is_shared_as_any_other() {
    let together = Together::new(4).await;
    let origin = numbering(&together.clock, |clock| tagged(minute(clock), "red"));
    for obtained in together.crowd(5, &"a".into(), &origin).await {
        obtained.unwrap();
    }
    assert_eq!(origin.loads(), 1);
}

/// A caller whose demand no other instance's load can satisfy loads for itself.
#[tokio::test(start_paused = true)]
async fn a_demand_of_ones_own_is_met_by_a_load_of_ones_own() {
    let together = Together::new(2).await;
    let origin = numbering(&together.clock, minute);
    together.crowd(1, &"a".into(), &origin).await;
    let demand = Demand { revalidate: true, ..Demand::default() };
    let obtained = together.instances[1].obtain(Question::of("a", demand), &origin).await.unwrap();
    assert_eq!((bytes(&obtained), origin.loads()), ("2".into(), 2));
    assert_eq!(obtained.entry.meta.lifetime().stale, Stale::Permitted);
}
