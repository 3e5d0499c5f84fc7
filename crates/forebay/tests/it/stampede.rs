//! Request coalescing: one load per key, with dropped callers, errors and panics.

use std::fmt;
use std::sync::Arc;

use forebay::Error;
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, wait_for_loads, within_timeout};

#[tokio::test]
async fn a_thousand_callers_of_a_cold_key_share_one_load_and_one_value() {
    let (world, gate) = (World::new(), Gate::new());
    let crowd = Crowd::of(1_000, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    gate.open();
    let result = crowd.results().await;
    let first = result[0].clone().expect("a value");
    assert!(result.iter().all(|one| Arc::ptr_eq(one.as_ref().expect("a value"), &first)));
    assert_eq!((world.loads(), world.cache.stats().coalesced), (1, 999));
}

#[tokio::test]
async fn a_thousand_tasks_on_an_expired_key_cost_one_load() {
    let world = World::new();
    world.load("a").await.expect("a value");
    world.clock.advance(std::time::Duration::from_secs(60));
    let (before, gate) = (world.loads(), Gate::new());
    let crowd = Crowd::of(1_000, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    gate.open();
    assert!(crowd.results().await.iter().all(|result| **result.as_ref().expect("a value") == "2"));
    assert_eq!(world.loads() - before, 1);
}

#[tokio::test]
async fn dropping_the_first_caller_does_not_affect_the_others() {
    let (world, gate) = (World::new(), Gate::new());
    let first = Crowd::of(1, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    let others = Crowd::of(999, |_| world.load_behind("a", &gate)).await;
    first.abort().await;
    gate.open();
    assert!(others.results().await.iter().all(|result| **result.as_ref().expect("a value") == "1"));
    assert_eq!((world.loads(), world.cache.stats().loads), (1, 1));
}

#[tokio::test]
async fn ten_thousand_callers_of_an_expired_key_share_one_load() {
    let (world, gate) = (World::new(), Gate::new());
    world.load("a").await.expect("a value");
    world.clock.advance(std::time::Duration::from_secs(60));
    let crowd = Crowd::of(10_000, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    gate.open();
    for result in crowd.results().await {
        assert_eq!(*result.expect("a value"), "2");
    }
    assert_eq!(world.loads(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_threads_share_one_load_too() {
    for round in 0..200 {
        let world = World::new();
        let callers: Vec<_> = (0..16)
            .map(|_| {
                let world = world.clone();
                tokio::spawn(async move { world.load("a").await.expect("a value") })
            })
            .collect();
        for caller in callers {
            assert_eq!(*within_timeout(caller).await.expect("no panic"), "1");
        }
        assert_eq!(world.loads(), 1, "round {round}");
    }
}

#[tokio::test]
async fn dropping_all_callers_does_not_cancel_the_load() {
    let (world, gate) = (World::new(), Gate::new());
    let crowd = Crowd::of(10, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    crowd.abort().await;
    let later = Crowd::of(1, |_| world.load_behind("a", &gate)).await;
    gate.open();
    assert_eq!(*later.results().await[0].clone().expect("a value"), "1");
    assert_eq!(world.get("a").await.as_deref(), Some("1"));
    assert_eq!(world.loads(), 1);
}

#[derive(Debug, PartialEq)]
struct Refused(u32);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused {}", self.0)
    }
}

impl std::error::Error for Refused {}

#[tokio::test]
async fn an_error_reaches_all_waiting_callers_unchanged_and_frees_the_key() {
    let (world, gate) = (World::new(), Gate::new());
    let crowd = Crowd::of(100, |_| {
        let (world, gate) = (world.clone(), gate.clone());
        async move {
            let cache = world.cache.clone();
            let load = || async move {
                world.begin();
                gate.wait().await;
                Err::<String, _>(Refused(7))
            };
            cache.get_or_load("a secret key", load).await
        }
    })
    .await;
    gate.open();
    let result = crowd.results().await;
    let first = result[0]
        .as_ref()
        .expect_err("the load fails")
        .cause()
        .expect("the error of the loader")
        .clone();
    for result in result {
        let error = result.expect_err("the load fails");
        assert!(
            Arc::ptr_eq(&first, error.cause().expect("the error of the loader")),
            "all callers share one error"
        );
        assert_eq!(
            error.cause().expect("the error of the loader").downcast_ref(),
            Some(&Refused(7))
        );
        assert_eq!(error.to_string(), "the loader failed: refused 7");
    }
    assert_eq!(world.loads(), 1);
    assert_eq!(*world.load("a secret key").await.expect("a value"), "2");
}

#[tokio::test]
async fn an_error_contains_its_key_only_with_keys_in_errors() {
    let world = World::with(forebay::Builder::keys_in_errors);
    for _ in 0..2 {
        let error = world.fail("user:42").await.expect_err("the load fails");
        assert_eq!(error.to_string(), "user:42: the loader failed: no database");
        assert!(matches!(error.without_key(), Error::Load(_)), "{error}");
        assert_eq!(error.cause().expect("the error of the loader").to_string(), "no database");
    }
    let error = world.fail("user:42").await.expect_err("the key backs off");
    assert!(error.is_transient() && error.to_string().starts_with("user:42: no load started"));
    let plain = World::new().fail("user:42").await.expect_err("the load fails");
    assert!(!plain.to_string().contains("user:42"), "{plain}");
}

#[tokio::test]
async fn a_load_cycle_is_detected_with_keys_in_errors() {
    let world = World::with(forebay::Builder::keys_in_errors);
    let inner = world.cache.clone();
    let load =
        || async move { inner.get_or_load("a", || async { Ok::<_, Error>(String::new()) }).await };
    let result = within_timeout(world.cache.get_or_load("a", load)).await;
    let error = result.expect_err("a load cycle");
    assert!(matches!(error.without_key(), Error::Circular), "{error}");
}

#[tokio::test]
async fn a_panic_reaches_all_waiting_callers_and_frees_the_key() {
    let (world, gate) = (World::new(), Gate::new());
    let crowd = Crowd::of(10, |_| {
        let (world, gate) = (world.clone(), gate.clone());
        async move {
            let cache = world.cache.clone();
            let load = || async move {
                world.begin();
                gate.wait().await;
                assert!(world.loads() > 1, "a loader's mistake");
                Ok::<_, Error>(String::new())
            };
            cache.get_or_load("a", load).await
        }
    })
    .await;
    gate.open();
    for result in crowd.results().await {
        let error = result.expect_err("the loader panics");
        assert!(matches!(&error, Error::Panicked(how) if how.contains("mistake")), "{error}");
    }
    assert_eq!(*world.load("a").await.expect("a value"), "2");
}

#[tokio::test]
async fn a_key_backs_off_after_two_failed_loads() {
    let world = World::new();
    for _ in 0..2 {
        let error = world.fail("a").await.expect_err("the load fails");
        assert!(!error.is_transient());
    }
    let error = world.load("a").await.expect_err("the key backs off");
    assert!(matches!(error, Error::BackingOff(_)) && error.is_transient(), "{error}");
    assert_eq!(error.cause().expect("the error of the loader").to_string(), "no database");
    assert_eq!((world.loads(), world.cache.stats().backed_off), (2, 1));
    world.clock.advance(std::time::Duration::from_millis(101));
    assert_eq!(*world.load("a").await.expect("a value"), "3");
}
