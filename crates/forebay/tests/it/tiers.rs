//! Lower tiers, and the values in them.

use std::sync::Arc;

use forebay::codec::{Codec, Compression, Json, MessagePack};
use forebay::testkit::{Fault, FaultyTier};
use forebay::{Cache, Error, Memory, Options, Prediction, TierConfig};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, millis, secs, wait_for_loads, within_timeout};

/// Creates a cache with this tier and empty memory.
fn over(tier: &FaultyTier, codec: Codec<MessagePack>) -> World {
    World::with(|builder| builder.tiers(codec, [tier.shared()]))
}

fn plain() -> Codec<MessagePack> {
    Codec::new(MessagePack)
}

#[tokio::test]
async fn an_instance_reads_what_another_has_loaded_or_set() {
    let tier = FaultyTier::new();
    let one = over(&tier, plain().compressed(Compression::Zstd).threshold(0));
    one.load("loaded").await.expect("a value");
    one.cache.set("set", "x".repeat(5_000)).await;
    one.wait_until_idle().await;
    assert_eq!(tier.len(), 2);
    let other = over(&tier, plain());
    assert_eq!(*other.load("loaded").await.expect("a value"), "1");
    assert_eq!(other.get("set").await, Some("x".repeat(5_000)), "without a loader");
    assert_eq!(other.get("neither").await, None);
    assert_eq!((other.loads(), other.cache.stats().loads), (0, 0));
    assert_eq!(other.cache.explain("set").prediction, Prediction::Served, "now in memory");
    let first = other.cache.get("set").await.expect("a value");
    let again = other.cache.get("set").await.expect("a value");
    assert!(Arc::ptr_eq(&first, &again), "the tier is read once");
}

#[tokio::test]
async fn a_thousand_callers_share_one_tier_lookup() {
    let tier = FaultyTier::new();
    over(&tier, plain()).cache.set("a", "below".to_owned()).await;
    let (world, gate) = (over(&tier, plain()), Gate::of(0));
    let crowd = Crowd::of(1_000, |_| world.load_behind("a", &gate)).await;
    for result in crowd.results().await {
        assert_eq!(*result.expect("a value"), "below");
    }
    assert_eq!((world.loads(), world.cache.stats().loads), (0, 0));
}

#[tokio::test]
async fn an_absent_entry_is_read_from_a_tier_as_absent() {
    let tier = FaultyTier::new();
    let absent = |_| async { Ok::<_, Error>(None) };
    let one = over(&tier, plain());
    one.cache.get_or_load_with("a", absent).await.expect("an answer");
    one.wait_until_idle().await;
    let other = over(&tier, plain());
    let error = other.load("a").await.expect_err("the key is absent");
    assert!(matches!(error, Error::Absent), "{error}");
    assert_eq!(other.loads(), 0);
}

#[tokio::test]
async fn a_codec_reads_values_of_another_codec() {
    let tier = FaultyTier::new();
    let json =
        |tier: &FaultyTier| World::with(|builder| builder.tiers(Codec::new(Json), [tier.shared()]));
    json(&tier).cache.set("json", "one".to_owned()).await;
    over(&tier, plain()).cache.set("packed", "two".to_owned()).await;
    assert_eq!(over(&tier, plain()).get("json").await.as_deref(), Some("one"));
    assert_eq!(json(&tier).get("packed").await.as_deref(), Some("two"));
}

#[tokio::test]
async fn a_value_that_cannot_be_decoded_is_a_counted_miss() {
    let tier = FaultyTier::new();
    let numbers: Cache<u32> = Cache::builder("texts")
        .memory(Memory::entries(10))
        .tiers(plain(), [tier.shared()])
        .build()
        .expect("valid settings");
    numbers.set("a", 7).await;
    let world = over(&tier, plain());
    assert_eq!(*world.load("a").await.expect("a value"), "1", "a number is not a string");
    assert_eq!((world.loads(), world.cache.stats().decode_failures), (1, 1));
    world.wait_until_idle().await;
    assert_eq!(over(&tier, plain()).get("a").await.as_deref(), Some("1"), "the load replaced it");
}

#[tokio::test]
async fn a_dictionary_can_be_rolled_out_instance_by_instance() {
    let tier = FaultyTier::new();
    let text = |number: u32| format!("customer {number} of the shop at the corner, with a dog");
    let sample: Vec<String> = (0..300).map(text).collect();
    let dictionary = plain().train(&sample, 2 << 10).expect("the sample is large enough");
    let before = over(&tier, plain());
    let reads = over(&tier, plain().also_reads(&dictionary));
    let writes = over(&tier, plain().dictionary(&dictionary));
    writes.cache.set("new", text(301).repeat(2)).await;
    before.cache.set("old", text(302)).await;
    assert_eq!(reads.get("new").await, Some(text(301).repeat(2)));
    assert_eq!(writes.get("old").await, Some(text(302)));
    assert_eq!(before.get("new").await, None, "the instance lacks the dictionary");
    assert_eq!((before.cache.stats().decode_failures, before.cache.stats().tier_failures), (1, 0));
    assert_eq!(*before.load("new").await.expect("a value"), "1", "a decode failure is a miss");
}

#[tokio::test]
async fn caches_of_different_names_are_separate_in_one_tier() {
    let tier = FaultyTier::new();
    over(&tier, plain()).cache.set("a", "text".to_owned()).await;
    let other: Cache<String> = Cache::builder("other")
        .memory(Memory::bytes(1 << 20))
        .tiers(plain(), [tier.shared()])
        .build()
        .expect("a tier replaces the weigher");
    assert!(other.get("a").await.is_none());
}

#[tokio::test]
async fn a_failing_tier_is_a_miss() {
    let tier = FaultyTier::new();
    tier.set_fault(Fault::Fails);
    let world = over(&tier, plain());
    assert_eq!(*world.load("a").await.expect("a value"), "1");
    assert_eq!(*world.load("a").await.expect("a value"), "1");
    assert!(world.cache.set("b", String::new()).await);
    assert_eq!(world.get("c").await, None);
    world.wait_until_idle().await;
    let stats = world.cache.stats();
    assert_eq!((stats.loads, stats.load_failures), (1, 0));
    assert!(stats.tier_failures >= 3, "{stats:?}");
}

#[tokio::test]
async fn removed_entries_are_removed_from_the_tiers() {
    let tier = FaultyTier::new();
    let world = over(&tier, plain());
    let tagged = || Options::new().tags(["red"]);
    for key in ["a", "b", "c"] {
        world.cache.with(tagged()).set(key, String::new()).await;
    }
    assert!(world.cache.remove("a").await);
    assert_eq!(tier.len(), 2);
    assert_eq!(world.get("a").await, None);
    world.cache.invalidate_tag("red").await;
    assert_eq!(world.get("b").await, None, "removed from the tier as well");
    let gate = Gate::new();
    let waiting = Crowd::of(1, |_| world.load_behind("c", &gate)).await;
    wait_for_loads(&gate, 1).await;
    world.cache.remove("c").await;
    gate.open();
    waiting.results().await;
    world.wait_until_idle().await;
    assert!(world.get("c").await.is_none(), "the load in flight is not stored in the tier");
}

#[tokio::test]
async fn a_stale_tier_value_is_served_within_stale_if_error() {
    let tier = FaultyTier::new();
    let patient =
        || World::with(|builder| builder.stale_if_error(secs(600)).tiers(plain(), [tier.shared()]));
    patient().cache.set("a", "below".to_owned()).await;
    let world = patient();
    world.clock.advance(secs(100));
    assert_eq!(*world.fail("a").await.expect("a value"), "below");
    assert_eq!(world.loads(), 1);
}

#[tokio::test]
async fn a_batch_reads_the_tiers_and_loads_the_rest_with_one_call() {
    let tier = FaultyTier::new();
    let values = [("a", "1".to_owned()), ("b", "2".to_owned())];
    over(&tier, plain()).cache.set_many(values).await;
    let world = over(&tier, plain());
    let counting = world.clone();
    let load = move |keys: Vec<String>| {
        let world = counting.clone();
        async move {
            world.begin();
            Ok::<Vec<_>, Error>(keys.into_iter().map(|key| (key.clone(), key)).collect())
        }
    };
    let many = world.cache.get_many_or_load(&["x", "a", "y", "b"], load);
    let many = within_timeout(many).await.expect("values");
    let many: Vec<_> = many.into_iter().map(|value| value.expect("a value").to_string()).collect();
    assert_eq!((many, world.loads()), (["x", "1", "y", "2"].map(str::to_owned).to_vec(), 1));
}

#[tokio::test]
async fn a_batch_reads_each_tier_once() {
    let (upper, lower) = (FaultyTier::new(), FaultyTier::new());
    let two = || World::with(|builder| builder.tiers(plain(), [upper.shared(), lower.shared()]));
    let keys: Vec<String> = (0..100).map(|number| format!("key {number}")).collect();
    two().cache.set_many(keys[..60].iter().map(|key| (key, key.clone()))).await;
    upper.clear();
    two().cache.set_many(keys[..30].iter().map(|key| (key, key.clone()))).await;
    for loads in [true, false] {
        let world = two();
        let before = (upper.reads(), lower.reads(), upper.keys_read(), lower.keys_read());
        let found = if loads {
            let load = |keys: Vec<String>| async move {
                assert_eq!(keys.len(), 40, "the keys that no tier has");
                Ok::<Vec<(String, String)>, Error>(Vec::new())
            };
            within_timeout(world.cache.get_many_or_load(&keys, load)).await.expect("values")
        } else {
            within_timeout(world.cache.get_many(&keys)).await
        };
        let present = found.iter().filter(|found| found.is_some()).count();
        assert_eq!(present, 60);
        assert_eq!(upper.reads() - before.0, 1, "with a loader: {loads}");
        assert_eq!(lower.reads() - before.1, 1, "with a loader: {loads}");
        assert_eq!((upper.keys_read() - before.2, lower.keys_read() - before.3), (100, 70));
        world.wait_until_idle().await;
        for key in &keys[60..] {
            world.cache.remove(key).await;
        }
        upper.clear();
        two().cache.set_many(keys[..30].iter().map(|key| (key, key.clone()))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_batches_do_not_wait_for_keys_that_withdraw() {
    for round in 0..100 {
        let (upper, lower) = (FaultyTier::new(), FaultyTier::new());
        let two =
            || World::with(|builder| builder.tiers(plain(), [upper.shared(), lower.shared()]));
        two().cache.set_many((0..10).map(|key| (key.to_string(), "below".to_owned()))).await;
        if round % 2 == 0 {
            upper.clear();
        }
        let world = two();
        let batch = |first: usize| {
            let world = world.clone();
            tokio::spawn(async move {
                let keys: Vec<String> = (first..first + 20).map(|key| key.to_string()).collect();
                let counting = world.clone();
                let load = move |missing: Vec<String>| {
                    for _ in &missing {
                        counting.begin();
                    }
                    async move { Ok::<_, Error>(missing.into_iter().map(|key| (key.clone(), key))) }
                };
                within_timeout(world.cache.get_many_or_load(&keys, load)).await
            })
        };
        let batches: Vec<_> = [0, 5, 10, 15].map(batch).into();
        let single = tokio::spawn({
            let world = world.clone();
            async move { world.load("7").await }
        });
        assert_eq!(*single.await.expect("no panic").expect("a value"), "below");
        for batch in batches {
            let found = batch.await.expect("no panic").expect("values");
            assert!(found.iter().all(Option::is_some), "round {round}");
        }
        assert_eq!(world.loads(), 25, "round {round}: one load for each key that no tier has");
        assert!(upper.reads() <= 4 + 1 + 35, "round {round}: {}", upper.reads());
    }
}

#[tokio::test(start_paused = true)]
async fn no_load_waits_for_copying_a_lower_tier_value_upward() {
    let (upper, lower) = (FaultyTier::new(), FaultyTier::new());
    over(&lower, plain()).cache.set("a", "below".to_owned()).await;
    upper.set_fault(Fault::HangsWriting);
    let world = World::with(|builder| builder.tiers(plain(), [upper.shared(), lower.shared()]));
    let began = tokio::time::Instant::now();
    let load = |missing: Vec<String>| async move {
        Ok::<_, Error>(missing.into_iter().map(|key| (key, "loaded".to_owned())))
    };
    let found = within_timeout(world.cache.get_many_or_load(&["a", "b"], load)).await;
    let found: Vec<_> = found.expect("values").into_iter().flatten().collect();
    assert_eq!(found.iter().map(|text| text.as_str()).collect::<Vec<_>>(), ["below", "loaded"]);
    assert!(began.elapsed() <= millis(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_batch_above_512_keys_reads_a_tier_several_times() {
    let tier = FaultyTier::new();
    let keys: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let found = over(&tier, plain()).cache.get_many(&keys).await;
    assert!(found.iter().all(Option::is_none));
    assert_eq!((tier.reads(), tier.keys_read()), (2, 1_000));
}

#[tokio::test(start_paused = true)]
async fn a_batch_over_a_faulty_tier_is_loaded_within_its_read_budget() {
    for fault in [Fault::Fails, Fault::Hangs, Fault::Damages] {
        let tier = FaultyTier::new();
        let keys = ["a", "b", "c"];
        over(&tier, plain()).cache.set_many(keys.map(|key| (key, "below".to_owned()))).await;
        tier.set_fault(fault);
        let world = over(&tier, plain());
        let began = tokio::time::Instant::now();
        let load = |keys: Vec<String>| async move {
            Ok::<Vec<_>, Error>(keys.into_iter().map(|key| (key, "loaded".to_owned())).collect())
        };
        let found = within_timeout(world.cache.get_many_or_load(&keys, load)).await;
        for found in found.expect("values") {
            assert_eq!(found.expect("a value").as_str(), "loaded", "{fault:?}");
        }
        assert!(began.elapsed() <= millis(1_010), "{fault:?}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_failure_of_any_tier_operation_neither_loses_a_load_nor_revives_a_removed_entry() {
    let mut number = 0;
    loop {
        number += 1;
        let tier = FaultyTier::new();
        let world = over(&tier, plain());
        tier.set_fault(Fault::FailsAt(number));
        assert_eq!(*world.load("a").await.expect("a value"), "1", "operation {number}");
        world.wait_until_idle().await;
        world.cache.remove("a").await;
        assert_eq!(world.get("a").await, None, "operation {number}");
        if tier.operations() < number {
            break;
        }
    }
    assert!(number > 4, "only {number} operations");
}

#[tokio::test]
async fn memory_asks_the_tier_again_after_memory_ttl() {
    let tier = FaultyTier::new();
    let instance =
        || World::with(|builder| builder.memory_ttl(secs(10)).tiers(plain(), [tier.shared()]));
    let (one, other) = (instance(), instance());
    one.cache.set("a", "old".to_owned()).await;
    assert_eq!(other.get("a").await.as_deref(), Some("old"));
    one.clock.advance(secs(2));
    one.cache.set("a", "new".to_owned()).await;
    other.clock.advance(millis(9_999));
    assert_eq!(other.get("a").await.as_deref(), Some("old"), "memory_ttl is not over");
    other.clock.advance(millis(1));
    assert_eq!(*other.load("a").await.expect("a value"), "new");
    assert_eq!((other.loads(), other.cache.stats().loads), (0, 0), "no load was needed");
}

#[tokio::test]
async fn an_unchanged_tier_value_is_kept_for_another_memory_ttl() {
    let tier = FaultyTier::new();
    let world = World::with(|builder| builder.memory_ttl(secs(10)).tiers(plain(), [tier.shared()]));
    world.load("a").await.expect("a value");
    world.wait_until_idle().await;
    for _ in 0..5 {
        world.clock.advance(secs(10));
        let reads = tier.reads();
        for _ in 0..3 {
            assert_eq!(*world.load("a").await.expect("a value"), "1");
        }
        assert_eq!(tier.reads() - reads, 1, "one read for each memory_ttl");
    }
    assert_eq!(world.loads(), 1);
    world.clock.advance(secs(10));
    assert_eq!(*world.load("a").await.expect("a value"), "2", "the ttl is over");
}

#[tokio::test]
async fn a_tier_ttl_ends_values_in_that_tier_only() {
    let (disk, server) = (FaultyTier::new(), FaultyTier::new());
    let instance = || {
        let tiers =
            [TierConfig::new(disk.shared()).ttl(secs(20)), TierConfig::new(server.shared())];
        World::with(|builder| builder.tiers(plain(), tiers))
    };
    instance().cache.set("a", "1".to_owned()).await;
    let later = instance();
    later.clock.advance(secs(19));
    assert_eq!(later.get("a").await.as_deref(), Some("1"));
    assert_eq!(server.reads(), 0);
    let later = instance();
    later.clock.advance(secs(20));
    assert_eq!(later.get("a").await.as_deref(), Some("1"));
    assert_eq!(server.reads(), 1, "the disk tier's ttl is over");
}

#[tokio::test]
async fn memory_keeps_values_no_longer_than_the_tier_below_it() {
    let tier = FaultyTier::new();
    let config = TierConfig::new(tier.shared()).ttl(secs(10));
    let world = World::with(|builder| builder.tiers(plain(), [config]));
    world.load("a").await.expect("a value");
    world.wait_until_idle().await;
    world.clock.advance(millis(9_999));
    assert_eq!(*world.load("a").await.expect("a value"), "1");
    world.clock.advance(millis(2));
    assert_eq!(
        *world.load("a").await.expect("a value"),
        "2",
        "memory inherits the ttl of the tier"
    );
}
