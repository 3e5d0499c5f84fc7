//! Every end of a flight releases its lease, and waiting instances continue at once.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Lifetime, Meta};
use forebay_engine::{BrokenBody, Content, LoadError, Loaded};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::counts::{minute, numbering};
use super::{Passing, Together, pass};
use crate::origin::{Answer, Origin, flowing, passed, whole};
use crate::world::{MEMORY, bytes, secs, tagged};

/// How the load of a leader ends.
type Ending = fn(&Passing) -> Answer;

/// A body in two pieces, the second a while after the first.
fn slowly(second: Result<Bytes, BrokenBody>) -> forebay_engine::PieceStream {
    let first = stream::once(async { Ok(Bytes::from_static(b"one")) });
    let second = stream::once(async {
        pass(20).await;
        second
    });
    first.chain(second).boxed()
}

const ENDINGS: &[(&str, Ending)] = &[
    ("whole", |clock| Ok(whole(minute(clock), "x"))),
    ("tagged", |clock| Ok(whole(tagged(minute(clock), "red"), "x"))),
    ("flowing", |clock| Ok(flowing(minute(clock), slowly(Ok("two".into()))))),
    ("broken", |clock| Ok(flowing(minute(clock), slowly(Err(BrokenBody::Source("reset".into())))))),
    ("large", |clock| {
        let body = stream::iter([Ok(Bytes::from_static(b"x"))]).boxed();
        let content = Content::Sized(MEMORY, body);
        Ok(Loaded::Entry { meta: minute(clock), head: forebay_engine::Head::default(), content })
    }),
    ("never fresh", |clock| Ok(whole(Meta::new(clock_now(clock), Lifetime::fresh(secs(0))), "x"))),
    ("unchanged", |clock| Ok(Loaded::Unchanged { meta: minute(clock), head: None })),
    ("absent", |_| Ok(Loaded::Absent { lifetime: Lifetime::fresh(secs(60)) })),
    ("pass", |_| Ok(Loaded::Pass(passed("x", secs(1))))),
    ("pass, not remembered", |_| Ok(Loaded::Pass(passed("x", secs(0))))),
    ("failed", |_| {
        Ok(Loaded::Failed { passed: passed("x", secs(0)), error: LoadError::Answered(500) })
    }),
    ("error", |_| Err(LoadError::origin("no"))),
    ("overloaded", |_| Err(LoadError::Overloaded("all are busy"))),
    ("panic", |_| panic!("a loader that panics")),
];

fn clock_now(clock: &Passing) -> forebay_core::Timestamp {
    forebay_engine::Clock::now(clock)
}

fn ending(clock: &Arc<Passing>, ending: Ending) -> Origin {
    let clock = clock.clone();
    Origin::new(move |_| {
        let clock = clock.clone();
        async move {
            pass(50).await;
            ending(&clock)
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_given_back_however_a_load_ends() {
    for (name, how) in ENDINGS {
        let together = Together::new(2).await;
        let [leader, other] = &together.instances[..] else { unreachable!() };
        let leading = tokio::spawn(leader.obtain("a", &ending(&together.clock, *how)));
        pass(10).await;
        assert_eq!(together.server.leases(), 1, "{name}");
        let origin = numbering(&together.clock, minute);
        let began = Instant::now();
        let waited = other.obtain("a", &origin).await;
        // The leader's load, its body, and one of its own at most: it waits for no lease to end.
        let took = began.elapsed();
        assert!(took.as_millis() <= 40 + 20 + 50 + 5, "{name}: {took:?}");
        assert!(waited.is_ok(), "{name}: {waited:?}");
        let _ = leading.await.unwrap();
        pass(100).await;
        assert_eq!(together.server.leases(), 0, "{name}");
        assert!(origin.loads() <= 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_purge_meanwhile_withdraws_the_lease_and_nobody_waits_for_it() {
    for by_leader in [true, false] {
        let together = Together::new(3).await;
        let origin = numbering(&together.clock, minute);
        let [leader, waiting, purging] = &together.instances[..] else { unreachable!() };
        let led = tokio::spawn(leader.obtain("a", &origin));
        pass(10).await;
        let waited = tokio::spawn(waiting.obtain("a", &origin));
        pass(10).await;
        let purged = if by_leader { leader } else { purging }.purge_key("a").await;
        assert!(matches!(purged.propagation, forebay_engine::Propagation::Published(_)));
        // It had joined when the purge came: it may be told what was.
        assert_eq!(bytes(&led.await.unwrap().unwrap()), "1");
        assert_eq!(bytes(&waited.await.unwrap().unwrap()), "2");
        pass(100).await;
        assert_eq!(together.server.leases(), 0);
        for instance in &together.instances {
            assert_ne!(bytes(&instance.obtain("a", &origin).await.unwrap()), "1");
        }
        // Its load began when the purge was over, and before it had heard of it: one more.
        assert!(origin.loads() <= 3, "{}", origin.loads());
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_expire_under_a_leader_cost_a_load_and_nothing_else() {
    let together = Together::new(2).await;
    let [leader, other] = &together.instances[..] else { unreachable!() };
    let origin = numbering(&together.clock, minute);
    let led = tokio::spawn(leader.obtain("a", &origin));
    pass(10).await;
    together.server.evict_leases();
    let second = tokio::spawn(other.obtain("a", &origin));
    assert_eq!(bytes(&led.await.unwrap().unwrap()), "1");
    assert_eq!(bytes(&second.await.unwrap().unwrap()), "2");
    pass(100).await;
    assert_eq!(together.server.counts().refusals, 1);
    assert_eq!((origin.loads(), together.server.leases()), (2, 0));
}
