//! Why a call was no hit, in numbers and in words; and what the tiers below memory did.

use std::sync::Arc;

use forebay::codec::{Codec, MessagePack};
use forebay::testkit::{Fault, FaultyTier};
use forebay::{Answer, Error, Options, Prediction};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, reached, secs, within_patience};

async fn load_with(world: &World, options: Options) -> Result<Arc<String>, Error> {
    let counting = world.clone();
    let load = || async move { Ok::<_, Error>(counting.begin().to_string()) };
    within_patience(world.cache.with(options).get_or_load("a", load)).await
}

#[tokio::test]
async fn each_call_that_is_no_hit_has_a_reason() {
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
async fn a_call_without_an_answer_has_a_reason_and_a_hit_has_none() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(30)));
    for _ in 0..3 {
        world.fail("a").await.expect_err("it fails, or is held back");
    }
    assert_eq!((world.cache.stats().errors, world.cache.stats().reasons.get("uri-miss")), (3, 3));
    world.clock.advance(secs(1));
    world.load("a").await.expect("a value");
    world.load("a").await.expect("a value");
    world.clock.advance(secs(2));
    let error = load_with(&world, Options::new().only_if_cached().never_older_than(secs(1))).await;
    assert!(matches!(error, Err(Error::NotCached)), "{error:?}");
    world.clock.advance(secs(58));
    world.load("a").await.expect("within its window");
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.errors), (2, 1, 4));
    assert_eq!(stats.reasons.total(), stats.misses + stats.errors);
    assert_eq!(format!("{:?}", stats.reasons), r#"{"uri-miss": 4, "request-max-age": 1}"#);
}

#[tokio::test]
async fn all_who_share_a_load_have_a_reason_of_their_own() {
    let (world, gate) = (World::new(), Gate::new());
    let crowd = Crowd::of(100, |_| world.load_behind("a", &gate)).await;
    reached(&gate, 1).await;
    gate.open();
    crowd.told().await;
    assert_eq!(world.cache.stats().reasons.get("uri-miss"), 100);
}

fn over(shelf: &FaultyTier) -> World {
    World::with(|builder| {
        builder.tiers(Codec::new(MessagePack), [shelf.shared()]).stale_if_error(secs(60))
    })
}

#[tokio::test]
async fn what_a_tier_has_done_is_told_of_it() {
    let shelf = FaultyTier::new();
    over(&shelf).cache.set_many([("a", "1".to_owned()), ("b", "2".to_owned())]).await;
    let world = over(&shelf);
    world.load("a").await.expect("a value");
    assert_eq!(world.get("b").await.as_deref(), Some("2"));
    assert_eq!(world.get("c").await, None);
    let told = world.cache.tiers().remove(0);
    assert_eq!((told.name, told.hits, told.failures), ("faulty", 2, 0));
    assert!(told.operations >= 3 && !told.is_bypassed, "{told:?}");
    let stats = world.cache.stats();
    assert_eq!((stats.misses, stats.tier_hits, stats.loads), (3, 2, 0));
    assert_eq!(stats.reasons.get("uri-miss"), 3);
    shelf.set_fault(Fault::Fails);
    for number in 0..20 {
        world.load(&number.to_string()).await.expect("a value");
        world.until_nothing_is_loading().await;
    }
    let told = world.cache.tiers().remove(0);
    assert!(told.failures > 0 && told.is_bypassed, "{told:?}");
    assert_eq!(world.cache.stats().tier_failures, told.failures + told.skipped_writes);
    assert!(World::new().cache.tiers().is_empty());
}

#[tokio::test]
async fn an_explanation_names_what_a_call_would_do() {
    let shelf = FaultyTier::new();
    let (world, tiered) = (World::new(), over(&shelf));
    let only = || Options::new().only_if_cached();
    let rows = [
        (world.cache.explain("a"), Prediction::Loaded),
        (world.cache.with(only()).explain("a"), Prediction::NotCached),
        (tiered.cache.explain("a"), Prediction::TierLookupThenLoad),
        (tiered.cache.with(only()).explain("a"), Prediction::TierLookupOnly),
    ];
    for (explanation, prediction) in rows {
        assert_eq!(explanation.prediction, prediction);
        let says = explanation.to_string();
        let ends = says.ends_with(" (uri-miss); nothing is stored in memory");
        assert!(ends && says.starts_with("it is "), "{says}");
    }
    for _ in 0..2 {
        world.fail("a").await.expect_err("it fails");
    }
    assert_eq!(world.cache.explain("a").prediction, Prediction::BackingOff);
    world.clock.advance(secs(1));
    assert_eq!(world.cache.explain("a").prediction, Prediction::Loaded, "it is tried again");
    let forced = world.cache.with(Options::new().force_refresh());
    world.cache.set("a", String::new()).await;
    assert_eq!(forced.explain("a").why, Some("request-revalidate"));
    let absent = |_| async { Ok::<_, Error>(Answer::absent().tags(["x", "y"])) };
    world.cache.get_or_load_with("b", absent).await.expect("an answer");
    let says = world.cache.explain("b").to_string();
    let expected = "it is served; that there is nothing is stored, 0ns old, and fresh for 60 s, \
                    tagged x, y";
    assert_eq!(says, expected);
    let stats = world.cache.stats();
    assert_eq!((stats.hits, stats.errors), (0, 2), "explaining counts nothing");
}

#[tokio::test]
async fn a_call_that_wants_nothing_loaded_is_given_what_tiers_have() {
    let shelf = FaultyTier::new();
    over(&shelf).cache.set_many(["a", "b", "c"].map(|key| (key, "below".to_owned()))).await;
    let world = over(&shelf);
    let only = || Options::new().only_if_cached();
    assert_eq!(*load_with(&world, only()).await.expect("it is there"), "below");
    let with = world.cache.with(only());
    assert_eq!(with.get("b").await.expect("it is there").as_str(), "below");
    let never = |_| async { Ok::<_, Error>([("x".to_owned(), "loaded".to_owned())]) };
    let found = within_patience(with.get_many_or_load(&["c", "a"], never)).await;
    assert_eq!(found.expect("values").iter().flatten().count(), 2);
    let error = within_patience(with.get_many_or_load(&["c", "x"], never)).await;
    assert!(matches!(error, Err(Error::NotCached)), "{error:?}");
    assert_eq!((world.loads(), world.cache.stats().loads), (0, 0));
    world.clock.advance(secs(61));
    let error = load_with(&world, only()).await.expect_err("it is stale, and no load has failed");
    assert!(matches!(error, Error::NotCached), "{error}");
    assert_eq!((world.get("a").await, world.get("b").await), (None, None), "nor to `get`");
    let stats = world.cache.stats();
    assert_eq!(stats.reasons.total(), stats.misses + stats.errors);
    assert_eq!((stats.errors, stats.tier_hits), (2, 3));
}
