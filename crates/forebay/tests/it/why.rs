//! Reasons of misses, explanations, and the counters of lower tiers.

use std::sync::Arc;

use forebay::codec::{Codec, MessagePack};
use forebay::testkit::{Fault, FaultyTier};
use forebay::{Answer, Error, Options, Prediction};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, secs, wait_for_loads, within_timeout};

async fn load_with(world: &World, options: Options) -> Result<Arc<String>, Error> {
    let counting = world.clone();
    let load = || async move { Ok::<_, Error>(counting.begin().to_string()) };
    within_timeout(world.cache.with(options).get_or_load("a", load)).await
}

#[tokio::test]
async fn each_miss_has_a_reason() {
    let world = World::new();
    let reasons = || world.cache.stats().reasons;
    let plain = Options::new;
    load_with(&world, plain()).await.expect("a value");
    world.clock.advance(secs(60));
    load_with(&world, plain()).await.expect("a value");
    world.clock.advance(secs(10));
    load_with(&world, plain().never_older_than(secs(9))).await.expect("a value");
    load_with(&world, plain().force_refresh()).await.expect("a value");
    world.cache.expire("a").await;
    load_with(&world, plain().tags(["red"])).await.expect("a value");
    world.cache.invalidate_tag("red").await;
    load_with(&world, plain()).await.expect("a value");
    world.cache.remove("a").await;
    assert_eq!(world.get("a").await, None);
    let counted = [
        ("uri-miss", 2),
        ("stale", 1),
        ("request-revalidate", 1),
        ("request-max-age", 1),
        ("purged", 1),
        ("soft-purged", 1),
    ];
    for (reason, times) in counted {
        assert_eq!(reasons().get(reason), times, "{reason} in {:?}", reasons());
    }
    assert_eq!(reasons().iter().count(), counted.len(), "{:?}", reasons());
    assert_eq!(reasons().total(), world.cache.stats().misses);
}

#[tokio::test]
async fn an_error_has_a_reason_and_a_hit_has_none() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(30)));
    for _ in 0..3 {
        world.fail("a").await.expect_err("the load fails, or the key backs off");
    }
    assert_eq!((world.cache.stats().errors, world.cache.stats().reasons.get("uri-miss")), (3, 3));
    world.clock.advance(secs(1));
    world.load("a").await.expect("a value");
    world.load("a").await.expect("a value");
    world.clock.advance(secs(2));
    let error = load_with(&world, Options::new().only_if_cached().never_older_than(secs(1))).await;
    assert!(matches!(error, Err(Error::NotCached)), "{error:?}");
    world.clock.advance(secs(58));
    world.load("a").await.expect("a stale value within its window");
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.errors), (2, 1, 4));
    assert_eq!(stats.reasons.total(), stats.misses + stats.errors);
    assert_eq!(format!("{:?}", stats.reasons), r#"{"uri-miss": 4, "request-max-age": 1}"#);
}

#[tokio::test]
async fn each_coalesced_miss_has_a_reason() {
    let (world, gate) = (World::new(), Gate::new());
    let crowd = Crowd::of(100, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    gate.open();
    crowd.results().await;
    assert_eq!(world.cache.stats().reasons.get("uri-miss"), 100);
}

fn over(tier: &FaultyTier) -> World {
    World::with(|builder| {
        builder.tiers(Codec::new(MessagePack), [tier.shared()]).stale_if_error(secs(60))
    })
}

#[tokio::test]
async fn tier_stats_count_hits_operations_and_failures() {
    let tier = FaultyTier::new();
    over(&tier).cache.set_many([("a", "1".to_owned()), ("b", "2".to_owned())]).await;
    let world = over(&tier);
    world.load("a").await.expect("a value");
    assert_eq!(world.get("b").await.as_deref(), Some("2"));
    assert_eq!(world.get("c").await, None);
    let told = world.cache.tiers().remove(0);
    assert_eq!((told.name, told.hits, told.failures), ("faulty", 2, 0));
    assert!(told.operations >= 3 && !told.is_bypassed, "{told:?}");
    let stats = world.cache.stats();
    assert_eq!((stats.misses, stats.tier_hits, stats.loads), (3, 2, 0));
    assert_eq!(stats.reasons.get("uri-miss"), 3);
    tier.set_fault(Fault::Fails);
    for number in 0..20 {
        world.load(&number.to_string()).await.expect("a value");
        world.wait_until_idle().await;
    }
    let told = world.cache.tiers().remove(0);
    assert!(told.failures > 0 && told.is_bypassed, "{told:?}");
    assert_eq!(world.cache.stats().tier_failures, told.failures + told.skipped_writes);
    assert!(World::new().cache.tiers().is_empty());
}

#[tokio::test]
async fn an_explanation_predicts_each_kind_of_result() {
    let tier = FaultyTier::new();
    let (world, tiered) = (World::new(), over(&tier));
    let only = || Options::new().only_if_cached();
    let rows = [
        (world.cache.explain("a"), Prediction::Loaded),
        (world.cache.with(only()).explain("a"), Prediction::NotCached),
        (tiered.cache.explain("a"), Prediction::TierLookupThenLoad),
        (tiered.cache.with(only()).explain("a"), Prediction::TierLookupOnly),
    ];
    for (explanation, prediction) in rows {
        assert_eq!(explanation.prediction, prediction);
        let text = explanation.to_string();
        assert!(text.ends_with(" (uri-miss); memory has no entry"), "{text}");
    }
    for _ in 0..2 {
        world.fail("a").await.expect_err("the load fails");
    }
    assert_eq!(world.cache.explain("a").prediction, Prediction::BackingOff);
    world.clock.advance(secs(1));
    assert_eq!(world.cache.explain("a").prediction, Prediction::Loaded, "the back-off is over");
    let forced = world.cache.with(Options::new().force_refresh());
    world.cache.set("a", String::new()).await;
    assert_eq!(forced.explain("a").why, Some("request-revalidate"));
    let absent = |_| async { Ok::<_, Error>(Answer::absent().tags(["x", "y"])) };
    world.cache.get_or_load_with("b", absent).await.expect("an answer");
    let expected =
        "served from memory; memory has an absent entry, age 0ns, fresh for 60 s, tags x, y";
    assert_eq!(world.cache.explain("b").to_string(), expected);
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.errors), (0, 2), "explain changes no counters");
}

#[tokio::test]
async fn only_if_cached_reads_the_tiers() {
    let tier = FaultyTier::new();
    over(&tier).cache.set_many(["a", "b", "c"].map(|key| (key, "below".to_owned()))).await;
    let world = over(&tier);
    let only = || Options::new().only_if_cached();
    assert_eq!(*load_with(&world, only()).await.expect("a stored entry"), "below");
    let with = world.cache.with(only());
    assert_eq!(with.get("b").await.expect("a stored entry").as_str(), "below");
    let never = |_| async { Ok::<_, Error>([("x".to_owned(), "loaded".to_owned())]) };
    let found = within_timeout(with.get_many_or_load(&["c", "a"], never)).await;
    assert_eq!(found.expect("values").iter().flatten().count(), 2);
    let error = within_timeout(with.get_many_or_load(&["c", "x"], never)).await;
    assert!(matches!(error, Err(Error::NotCached)), "{error:?}");
    assert_eq!((world.loads(), world.cache.stats().loads), (0, 0));
    world.clock.advance(secs(61));
    let error = load_with(&world, only()).await.expect_err("stale, and no load has failed");
    assert!(matches!(error, Error::NotCached), "{error}");
    assert_eq!(
        (world.get("a").await, world.get("b").await),
        (None, None),
        "`get` serves no stale value either"
    );
    let stats = world.cache.stats();
    assert_eq!(stats.reasons.total(), stats.misses + stats.errors);
    assert_eq!((stats.errors, stats.tier_hits), (2, 3));
}
