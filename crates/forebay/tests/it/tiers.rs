//! Tiers below memory, and what is written in them.

use std::sync::Arc;

use forebay::codec::{Codec, Compression, Json, MessagePack};
use forebay::testkit::{Fault, FaultyTier};
use forebay::{Cache, Error, Memory, Options, Prediction, TierConfig};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, millis, reached, secs, within_patience};

/// A world over this shelf with nothing in memory.
fn over(shelf: &FaultyTier, codec: Codec<MessagePack>) -> World {
    World::with(|builder| builder.tiers(codec, [shelf.shared()]))
}

fn plain() -> Codec<MessagePack> {
    Codec::new(MessagePack)
}

#[tokio::test]
async fn what_one_instance_has_loaded_or_set_another_reads() {
    let shelf = FaultyTier::new();
    let one = over(&shelf, plain().compressed(Compression::Zstd).threshold(0));
    one.load("loaded").await.expect("a value");
    one.cache.set("set", "x".repeat(5_000)).await;
    one.until_nothing_is_loading().await;
    assert_eq!(shelf.len(), 2);
    let other = over(&shelf, plain());
    assert_eq!(*other.load("loaded").await.expect("a value"), "1");
    assert_eq!(other.get("set").await, Some("x".repeat(5_000)), "also without a loader");
    assert_eq!(other.get("neither").await, None);
    assert_eq!((other.loads(), other.cache.stats().loads), (0, 0));
    assert_eq!(other.cache.explain("set").prediction, Prediction::Served, "it is in memory now");
    let first = other.cache.get("set").await.expect("a value");
    let again = other.cache.get("set").await.expect("a value");
    assert!(Arc::ptr_eq(&first, &again), "it is read once");
}

#[tokio::test]
async fn a_thousand_callers_share_one_walk() {
    let shelf = FaultyTier::new();
    over(&shelf, plain()).cache.set("a", "below".to_owned()).await;
    let (world, gate) = (over(&shelf, plain()), Gate::of(0));
    let crowd = Crowd::of(1_000, |_| world.load_behind("a", &gate)).await;
    for told in crowd.told().await {
        assert_eq!(*told.expect("a value"), "below");
    }
    assert_eq!((world.loads(), world.cache.stats().loads), (0, 0));
}

#[tokio::test]
async fn that_there_is_nothing_is_read_as_that() {
    let shelf = FaultyTier::new();
    let absent = |_| async { Ok::<_, Error>(None) };
    let one = over(&shelf, plain());
    one.cache.get_or_load_with("a", absent).await.expect("an answer");
    one.until_nothing_is_loading().await;
    let other = over(&shelf, plain());
    let error = other.load("a").await.expect_err("there is nothing");
    assert!(matches!(error, Error::Absent), "{error}");
    assert_eq!(other.loads(), 0);
}

#[tokio::test]
async fn another_codec_reads_what_this_one_has_written() {
    let shelf = FaultyTier::new();
    let json = |shelf: &FaultyTier| {
        World::with(|builder| builder.tiers(Codec::new(Json), [shelf.shared()]))
    };
    json(&shelf).cache.set("json", "one".to_owned()).await;
    over(&shelf, plain()).cache.set("packed", "two".to_owned()).await;
    assert_eq!(over(&shelf, plain()).get("json").await.as_deref(), Some("one"));
    assert_eq!(json(&shelf).get("packed").await.as_deref(), Some("two"));
}

#[tokio::test]
async fn what_cannot_be_read_is_a_miss_and_is_counted() {
    let shelf = FaultyTier::new();
    let numbers: Cache<u32> = Cache::builder("texts")
        .memory(Memory::entries(10))
        .tiers(plain(), [shelf.shared()])
        .build()
        .expect("it can work");
    numbers.set("a", 7).await;
    let world = over(&shelf, plain());
    assert_eq!(*world.load("a").await.expect("a value"), "1", "a number is no text");
    assert_eq!((world.loads(), world.cache.stats().decode_failures), (1, 1));
    world.until_nothing_is_loading().await;
    assert_eq!(over(&shelf, plain()).get("a").await.as_deref(), Some("1"), "it was replaced");
}

#[tokio::test]
async fn a_dictionary_comes_into_use_one_instance_after_the_other() {
    let shelf = FaultyTier::new();
    let text = |number: u32| format!("customer {number} of the shop at the corner, with a dog");
    let sample: Vec<String> = (0..300).map(text).collect();
    let dictionary = plain().train(&sample, 2 << 10).expect("much to learn");
    let before = over(&shelf, plain());
    let reads = over(&shelf, plain().also_reads(&dictionary));
    let writes = over(&shelf, plain().dictionary(&dictionary));
    writes.cache.set("new", text(301).repeat(2)).await;
    before.cache.set("old", text(302)).await;
    assert_eq!(reads.get("new").await, Some(text(301).repeat(2)));
    assert_eq!(writes.get("old").await, Some(text(302)));
    assert_eq!(before.get("new").await, None, "it does not have the dictionary");
    assert_eq!((before.cache.stats().decode_failures, before.cache.stats().tier_failures), (1, 0));
    assert_eq!(*before.load("new").await.expect("a value"), "1", "a miss, and no more");
}

#[tokio::test]
async fn caches_of_other_names_do_not_meet_in_a_tier() {
    let shelf = FaultyTier::new();
    over(&shelf, plain()).cache.set("a", "text".to_owned()).await;
    let other: Cache<String> = Cache::builder("other")
        .memory(Memory::bytes(1 << 20))
        .tiers(plain(), [shelf.shared()])
        .build()
        .expect("what is written is what a value weighs");
    assert!(other.get("a").await.is_none());
}

#[tokio::test]
async fn a_tier_that_fails_costs_a_load_and_no_more() {
    let shelf = FaultyTier::new();
    shelf.set_fault(Fault::Fails);
    let world = over(&shelf, plain());
    assert_eq!(*world.load("a").await.expect("a value"), "1");
    assert_eq!(*world.load("a").await.expect("a value"), "1");
    assert!(world.cache.set("b", String::new()).await);
    assert_eq!(world.get("c").await, None);
    world.until_nothing_is_loading().await;
    let stats = world.cache.stats();
    assert_eq!((stats.loads, stats.load_failures), (1, 0));
    assert!(stats.tier_failures >= 3, "{stats:?}");
}

#[tokio::test]
async fn what_was_removed_is_gone_from_the_tiers() {
    let shelf = FaultyTier::new();
    let world = over(&shelf, plain());
    let tagged = || Options::new().tags(["red"]);
    for key in ["a", "b", "c"] {
        world.cache.with(tagged()).set(key, String::new()).await;
    }
    assert!(world.cache.remove("a").await);
    assert_eq!(shelf.len(), 2);
    assert_eq!(world.get("a").await, None);
    world.cache.invalidate_tag("red").await;
    assert_eq!(world.get("b").await, None, "also not out of the tier");
    let gate = Gate::new();
    let aboard = Crowd::of(1, |_| world.load_behind("c", &gate)).await;
    reached(&gate, 1).await;
    world.cache.remove("c").await;
    gate.open();
    aboard.told().await;
    world.until_nothing_is_loading().await;
    assert!(world.get("c").await.is_none(), "what was overtaken reaches no tier");
}

#[tokio::test]
async fn stale_values_of_a_tier_serve_while_loads_fail() {
    let shelf = FaultyTier::new();
    let patient = || {
        World::with(|builder| builder.stale_if_error(secs(600)).tiers(plain(), [shelf.shared()]))
    };
    patient().cache.set("a", "below".to_owned()).await;
    let world = patient();
    world.clock.advance(secs(100));
    assert_eq!(*world.fail("a").await.expect("a value"), "below");
    assert_eq!(world.loads(), 1);
}

#[tokio::test]
async fn a_batch_reads_the_tiers_and_loads_the_rest_at_once() {
    let shelf = FaultyTier::new();
    let values = [("a", "1".to_owned()), ("b", "2".to_owned())];
    over(&shelf, plain()).cache.set_many(values).await;
    let world = over(&shelf, plain());
    let counting = world.clone();
    let load = move |keys: Vec<String>| {
        let world = counting.clone();
        async move {
            world.begin();
            Ok::<Vec<_>, Error>(keys.into_iter().map(|key| (key.clone(), key)).collect())
        }
    };
    let many = world.cache.get_many_or_load(&["x", "a", "y", "b"], load);
    let many = within_patience(many).await.expect("values");
    let many: Vec<_> = many.into_iter().map(|value| value.expect("a value").to_string()).collect();
    assert_eq!((many, world.loads()), (["x", "1", "y", "2"].map(str::to_owned).to_vec(), 1));
}

#[tokio::test]
async fn many_keys_cost_each_tier_one_exchange() {
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
                assert_eq!(keys.len(), 40, "what the tiers do not have");
                Ok::<Vec<(String, String)>, Error>(Vec::new())
            };
            within_patience(world.cache.get_many_or_load(&keys, load)).await.expect("values")
        } else {
            within_patience(world.cache.get_many(&keys)).await
        };
        let there = found.iter().filter(|found| found.is_some()).count();
        assert_eq!(there, 60);
        assert_eq!(upper.reads() - before.0, 1, "with a loader: {loads}");
        assert_eq!(lower.reads() - before.1, 1, "with a loader: {loads}");
        assert_eq!((upper.keys_read() - before.2, lower.keys_read() - before.3), (100, 70));
        world.until_nothing_is_loading().await;
        for key in &keys[60..] {
            world.cache.remove(key).await;
        }
        upper.clear();
        two().cache.set_many(keys[..30].iter().map(|key| (key, key.clone()))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_real_threads_wait_for_nobody_who_does_not_come() {
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
                within_patience(world.cache.get_many_or_load(&keys, load)).await
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
        assert_eq!(world.loads(), 25, "round {round}: each key that no tier had, once");
        assert!(upper.reads() <= 4 + 1 + 35, "round {round}: {}", upper.reads());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_found_below_is_written_above_and_no_load_waits_for_that() {
    let (upper, lower) = (FaultyTier::new(), FaultyTier::new());
    over(&lower, plain()).cache.set("a", "below".to_owned()).await;
    upper.set_fault(Fault::HangsWriting);
    let world = World::with(|builder| builder.tiers(plain(), [upper.shared(), lower.shared()]));
    let began = tokio::time::Instant::now();
    let load = |missing: Vec<String>| async move {
        Ok::<_, Error>(missing.into_iter().map(|key| (key, "loaded".to_owned())))
    };
    let found = within_patience(world.cache.get_many_or_load(&["a", "b"], load)).await;
    let found: Vec<_> = found.expect("values").into_iter().flatten().collect();
    assert_eq!(found.iter().map(|text| text.as_str()).collect::<Vec<_>>(), ["below", "loaded"]);
    assert!(began.elapsed() <= millis(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn more_keys_than_one_exchange_bears_are_several() {
    let shelf = FaultyTier::new();
    let keys: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let found = over(&shelf, plain()).cache.get_many(&keys).await;
    assert!(found.iter().all(Option::is_none));
    assert_eq!((shelf.reads(), shelf.keys_read()), (2, 1_000));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_loaded_in_time_whatever_is_wrong_with_its_tier() {
    for fault in [Fault::Fails, Fault::Hangs, Fault::Damages] {
        let shelf = FaultyTier::new();
        let keys = ["a", "b", "c"];
        over(&shelf, plain()).cache.set_many(keys.map(|key| (key, "below".to_owned()))).await;
        shelf.set_fault(fault);
        let world = over(&shelf, plain());
        let began = tokio::time::Instant::now();
        let load = |keys: Vec<String>| async move {
            Ok::<Vec<_>, Error>(keys.into_iter().map(|key| (key, "loaded".to_owned())).collect())
        };
        let found = within_patience(world.cache.get_many_or_load(&keys, load)).await;
        for found in found.expect("values") {
            assert_eq!(found.expect("a value").as_str(), "loaded", "{fault:?}");
        }
        assert!(began.elapsed() <= millis(1_010), "{fault:?}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn whichever_operation_fails_a_value_is_there_and_what_was_removed_is_not() {
    let mut number = 0;
    loop {
        number += 1;
        let shelf = FaultyTier::new();
        let world = over(&shelf, plain());
        shelf.set_fault(Fault::FailsAt(number));
        assert_eq!(*world.load("a").await.expect("a value"), "1", "operation {number}");
        world.until_nothing_is_loading().await;
        world.cache.remove("a").await;
        assert_eq!(world.get("a").await, None, "operation {number}");
        if shelf.operations() < number {
            break;
        }
    }
    assert!(number > 4, "it was asked for more than {number}");
}

#[tokio::test]
async fn memory_asks_again_what_a_tier_keeps_for_longer() {
    let shelf = FaultyTier::new();
    let instance =
        || World::with(|builder| builder.memory_ttl(secs(10)).tiers(plain(), [shelf.shared()]));
    let (one, other) = (instance(), instance());
    one.cache.set("a", "old".to_owned()).await;
    assert_eq!(other.get("a").await.as_deref(), Some("old"));
    one.clock.advance(secs(2));
    one.cache.set("a", "new".to_owned()).await;
    other.clock.advance(millis(9_999));
    assert_eq!(other.get("a").await.as_deref(), Some("old"), "memory believes it");
    other.clock.advance(millis(1));
    assert_eq!(*other.load("a").await.expect("a value"), "new");
    assert_eq!((other.loads(), other.cache.stats().loads), (0, 0), "nothing was loaded for it");
}

#[tokio::test]
async fn what_has_not_changed_below_is_believed_for_another_while() {
    let shelf = FaultyTier::new();
    let world =
        World::with(|builder| builder.memory_ttl(secs(10)).tiers(plain(), [shelf.shared()]));
    world.load("a").await.expect("a value");
    world.until_nothing_is_loading().await;
    for _ in 0..5 {
        world.clock.advance(secs(10));
        let reads = shelf.reads();
        for _ in 0..3 {
            assert_eq!(*world.load("a").await.expect("a value"), "1");
        }
        assert_eq!(shelf.reads() - reads, 1, "asked once, and believed again");
    }
    assert_eq!(world.loads(), 1);
    world.clock.advance(secs(10));
    assert_eq!(*world.load("a").await.expect("a value"), "2", "its own time is over");
}

#[tokio::test]
async fn a_tier_keeps_values_for_a_time_of_its_own() {
    let (disk, server) = (FaultyTier::new(), FaultyTier::new());
    let instance = || {
        let below =
            [TierConfig::new(disk.shared()).ttl(secs(20)), TierConfig::new(server.shared())];
        World::with(|builder| builder.tiers(plain(), below))
    };
    instance().cache.set("a", "1".to_owned()).await;
    let later = instance();
    later.clock.advance(secs(19));
    assert_eq!(later.get("a").await.as_deref(), Some("1"));
    assert_eq!(server.reads(), 0);
    let later = instance();
    later.clock.advance(secs(20));
    assert_eq!(later.get("a").await.as_deref(), Some("1"));
    assert_eq!(server.reads(), 1, "the disk has it no more");
}

#[tokio::test]
async fn memory_keeps_values_no_longer_than_the_tier_below_it() {
    let shelf = FaultyTier::new();
    let below = TierConfig::new(shelf.shared()).ttl(secs(10));
    let world = World::with(|builder| builder.tiers(plain(), [below]));
    world.load("a").await.expect("a value");
    world.until_nothing_is_loading().await;
    world.clock.advance(millis(9_999));
    assert_eq!(*world.load("a").await.expect("a value"), "1");
    world.clock.advance(millis(2));
    assert_eq!(*world.load("a").await.expect("a value"), "2", "it is gone below, and so here");
}
