//! Memory holds a value once, whatever stands below it; and what has to go down again is written
//! anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::codec::{Codec, CodecError, Compression, Format, MessagePack};
use forebay::testkit::FaultyTier;
use forebay::{Answer, Builder, Cache, Error, Memory, Options, Prior};
use parking_lot::Mutex;

use crate::world::{World, secs, within_patience};

/// What happens where a value is written.
#[derive(Clone, Copy, Default)]
enum Writing {
    #[default]
    Works,
    Fails,
    Panics,
}

/// `MessagePack` that counts what it writes, and fails as it is told.
#[derive(Clone, Default)]
struct Watched {
    written: Arc<AtomicUsize>,
    writing: Arc<Mutex<Writing>>,
}

impl Watched {
    fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }
}

impl Format<String> for Watched {
    const ID: u8 = <MessagePack as Format<String>>::ID;

    fn write(&self, value: &String, out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.written.fetch_add(1, Ordering::SeqCst);
        let writing = *self.writing.lock();
        match writing {
            Writing::Works => MessagePack.write(value, out),
            Writing::Fails => Err(CodecError::Size),
            Writing::Panics => panic!("as it was told"),
        }
    }

    fn read(&self, id: u8, bytes: &[u8]) -> Result<String, CodecError> {
        MessagePack.read(id, bytes)
    }
}

/// A world above these tiers.
fn above(tiers: &[&FaultyTier], format: &Watched) -> World {
    above_with(tiers, format, |builder| builder)
}

fn above_with(
    tiers: &[&FaultyTier],
    format: &Watched,
    choose: impl FnOnce(Builder<String>) -> Builder<String>,
) -> World {
    let tiers: Vec<_> = tiers.iter().map(|tier| tier.shared()).collect();
    World::with(|builder| {
        let builder = choose(builder.memory(Memory::bytes(1 << 20)));
        if tiers.is_empty() {
            return builder;
        }
        builder.tiers(Codec::new(format.clone()), tiers)
    })
}

/// What a process finds in a tier that has begun just now, when that one's time has come this far.
async fn found_in(tier: &FaultyTier, seconds: u64, key: &str) -> Option<String> {
    let other = above(&[tier], &Watched::default());
    other.clock.advance(secs(seconds));
    other.get(key).await
}

/// Asks for a key whose loader says that what it is told of is unchanged.
async fn unchanged(cache: &Cache<String>, key: &str, options: Options) -> Option<Arc<String>> {
    let load = |prior: Prior<String>| async move {
        assert!(prior.value().is_some(), "it is told what is stored");
        Ok::<_, Error>(Answer::unchanged())
    };
    let calls = cache.with(options);
    within_patience(calls.get_or_load_with(key, load)).await.expect("an answer")
}

/// What memory weighs after each of the ways in which a value comes into it.
async fn weights(tiers: &[&FaultyTier]) -> Vec<(&'static str, u64)> {
    let world = above_with(tiers, &Watched::default(), |builder| {
        builder.weigher(|_, text| text.len()).stale_if_error(secs(600))
    });
    let cache = &world.cache;
    let mut weights = Vec::new();
    let mut note = async |way| {
        world.until_nothing_is_loading().await;
        weights.push((way, cache.stats().weight));
    };
    cache.set("a", "x".repeat(3_000)).await;
    note("set").await;
    cache.set_versioned("b", "x".repeat(4_000), 7).await;
    note("set as a version").await;
    world.load("c").await.expect("a value");
    note("loaded").await;
    let many = |keys: Vec<String>| async move {
        Ok::<_, Error>(keys.into_iter().map(|key| (key.clone(), key.repeat(1_000))))
    };
    cache.get_many_or_load(&["d", "e"], many).await.expect("values");
    note("loaded with others").await;
    unchanged(cache, "a", Options::new().force_refresh()).await.expect("a value");
    note("unchanged").await;
    assert!(cache.expire("b").await);
    note("made stale").await;
    world.clock.advance(secs(61));
    assert_eq!(world.fail("c").await.expect("what is stale").as_str(), "1");
    note("served since its load failed").await;
    let absent = |_: Prior<String>| async { Ok::<_, Error>(Answer::absent()) };
    cache.get_or_load_with("d", absent).await.expect("an answer");
    note("absent").await;
    cache.remove("a").await;
    note("removed").await;
    weights
}

#[tokio::test]
async fn memory_weighs_the_same_with_tiers_and_without_whatever_way_a_value_comes() {
    let alone = weights(&[]).await;
    let (one, other) = (FaultyTier::new(), FaultyTier::new());
    assert_eq!(weights(&[&one]).await, alone);
    assert_eq!(weights(&[&FaultyTier::new(), &other]).await, alone);
    assert!(!one.is_empty() && !other.is_empty());
    assert!(alone[0].1 > 3_000 && alone[0].1 < 3_400, "{alone:?}");
}

#[tokio::test]
async fn what_is_read_below_weighs_what_it_did_where_it_was_stored() {
    let shelf = FaultyTier::new();
    let weighing =
        || above_with(&[&shelf], &Watched::default(), |builder| builder.weigher(|_, it| it.len()));
    let (one, other) = (weighing(), weighing());
    let keys: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    one.cache.set_many(keys.iter().map(|key| (key, key.repeat(500)))).await;
    assert_eq!(other.get("7").await, Some("7".repeat(500)));
    assert!(other.cache.get_many(&keys).await.iter().all(Option::is_some));
    other.until_nothing_is_loading().await;
    assert_eq!(other.cache.stats().weight, one.cache.stats().weight);
    assert_eq!(other.loads(), 0);
}

#[tokio::test]
async fn a_failed_load_leaves_what_a_tier_had_in_memory_once() {
    let shelf = FaultyTier::new();
    let patient = || {
        above_with(&[&shelf], &Watched::default(), |builder| {
            builder.weigher(|_, text| text.len()).stale_if_error(secs(600))
        })
    };
    let (one, other) = (patient(), patient());
    one.cache.set("a", "x".repeat(5_000)).await;
    other.clock.advance(secs(100));
    assert_eq!(other.fail("a").await.expect("what is stale").len(), 5_000);
    assert_eq!(other.cache.stats().weight, one.cache.stats().weight);
}

#[tokio::test]
async fn without_a_weigher_each_byte_that_is_written_counts_once() {
    let weight = async |length: usize, codec: Codec<MessagePack>| {
        let shelf = FaultyTier::new();
        let world = || {
            let codec = codec.clone();
            World::with(|it| it.memory(Memory::bytes(1 << 20)).tiers(codec, [shelf.shared()]))
        };
        let (one, other) = (world(), world());
        one.cache.set("a", "x".repeat(length)).await;
        assert!(other.get("a").await.is_some());
        assert_eq!(other.cache.stats().weight, one.cache.stats().weight);
        one.cache.stats().weight
    };
    let plain = || Codec::new(MessagePack);
    assert_eq!(weight(5_000, plain()).await - weight(1_000, plain()).await, 4_000);
    // Memory has it as it is, however small it was made for the tier.
    let smaller = plain().compressed(Compression::Zstd);
    assert_eq!(weight(5_000, smaller).await, weight(5_000, plain()).await);
    let numbers = |tiers: &[&FaultyTier]| -> Cache<u64> {
        let builder = Cache::builder("n").memory(Memory::bytes(1 << 20));
        let tiers: Vec<_> = tiers.iter().map(|tier| tier.shared()).collect();
        let builder =
            if tiers.is_empty() { builder } else { builder.tiers(Codec::new(MessagePack), tiers) };
        builder.build().expect("numbers own nothing")
    };
    let (alone, above) = (numbers(&[]), numbers(&[&FaultyTier::new()]));
    for cache in [&alone, &above] {
        cache.set("a", 1_u64 << 60).await;
    }
    assert_eq!(above.stats().weight, alone.stats().weight);
}

#[tokio::test]
async fn an_unchanged_value_is_written_anew_and_lives_on_below() {
    let (upper, lower, format) = (FaultyTier::new(), FaultyTier::new(), Watched::default());
    let world = above(&[&upper, &lower], &format);
    world.load("a").await.expect("a value");
    world.until_nothing_is_loading().await;
    assert_eq!(format.written(), 1);
    world.clock.advance(secs(61));
    let told = unchanged(&world.cache, "a", Options::new()).await;
    assert_eq!(told.as_deref().map(String::as_str), Some("1"));
    world.until_nothing_is_loading().await;
    assert_eq!(format.written(), 2, "once for all tiers");
    for tier in [&upper, &lower] {
        assert_eq!(found_in(tier, 61 + 50, "a").await.as_deref(), Some("1"));
    }
    assert_eq!(world.cache.stats().tier_failures, 0);
}

#[tokio::test]
async fn what_a_server_has_forgotten_is_there_again_after_a_refresh() {
    let (shelf, format) = (FaultyTier::new(), Watched::default());
    let world = above_with(&[&shelf], &format, |builder| builder.stale_while_revalidate(secs(600)));
    world.load("a").await.expect("a value");
    world.until_nothing_is_loading().await;
    shelf.clear();
    world.clock.advance(secs(61));
    let served = unchanged(&world.cache, "a", Options::new()).await;
    assert_eq!(served.as_deref().map(String::as_str), Some("1"));
    assert_eq!(world.cache.stats().refreshing_hits, 1);
    world.until_nothing_is_loading().await;
    assert_eq!(found_in(&shelf, 61 + 50, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn an_early_refresh_that_changes_nothing_is_written_below() {
    let (shelf, format) = (FaultyTier::new(), Watched::default());
    let world = above_with(&[&shelf], &format, |builder| builder.beta(1_000.0));
    let costly =
        |_: Prior<String>| async { Ok::<_, Error>(Answer::value("1".to_owned()).cost(secs(10))) };
    world.cache.get_or_load_with("a", costly).await.expect("a value");
    world.until_nothing_is_loading().await;
    world.clock.advance(secs(58));
    unchanged(&world.cache, "a", Options::new()).await.expect("a value");
    assert_eq!((world.cache.stats().refreshing_hits, world.cache.stats().stale_hits), (1, 0));
    world.until_nothing_is_loading().await;
    assert_eq!(found_in(&shelf, 58 + 50, "a").await.as_deref(), Some("1"));
    assert_eq!(format.written(), 2);
}

#[tokio::test]
async fn an_unchanged_version_stays_that_version_below() {
    let shelf = FaultyTier::new();
    let world = above(&[&shelf], &Watched::default());
    assert!(world.cache.set_versioned("a", "seven".to_owned(), 7).await);
    shelf.clear();
    unchanged(&world.cache, "a", Options::new().force_refresh()).await.expect("a value");
    world.until_nothing_is_loading().await;
    let other = above(&[&shelf], &Watched::default());
    assert!(!other.cache.set_versioned("a", "six".to_owned(), 6).await);
    assert_eq!(other.get("a").await.as_deref(), Some("seven"));
    assert!(other.cache.set_versioned("a", "eight".to_owned(), 8).await);
    assert_eq!(found_in(&shelf, 0, "a").await.as_deref(), Some("eight"));
}

#[tokio::test]
async fn what_a_tier_had_and_is_unchanged_goes_back_as_it_came() {
    let (shelf, format) = (FaultyTier::new(), Watched::default());
    above(&[&shelf], &Watched::default()).cache.set("a", "below".to_owned()).await;
    let world = above(&[&shelf], &format);
    world.clock.advance(secs(61));
    let told = unchanged(&world.cache, "a", Options::new()).await;
    assert_eq!(told.as_deref().map(String::as_str), Some("below"));
    world.until_nothing_is_loading().await;
    assert_eq!(format.written(), 0);
    assert_eq!(found_in(&shelf, 61 + 50, "a").await.as_deref(), Some("below"));
}

#[tokio::test]
async fn what_is_found_in_a_lower_tier_goes_to_the_upper_one_each_time() {
    let (upper, lower, format) = (FaultyTier::new(), FaultyTier::new(), Watched::default());
    above(&[&lower], &Watched::default()).cache.set("a", "below".to_owned()).await;
    let world = above_with(&[&upper, &lower], &format, |builder| builder.memory_ttl(secs(10)));
    for seconds in [0, 10, 20] {
        upper.clear();
        let load = |keys: Vec<String>| async move {
            assert_eq!(keys, ["b"], "what no tier has");
            Ok::<_, Error>(Vec::<(String, String)>::new())
        };
        let found = if seconds == 10 {
            world.cache.get_many_or_load(&["a", "b"], load).await.expect("values")[0].clone()
        } else {
            world.cache.get("a").await
        };
        assert_eq!(found.as_deref().map(String::as_str), Some("below"));
        world.until_nothing_is_loading().await;
        assert_eq!(found_in(&upper, seconds, "a").await.as_deref(), Some("below"));
        world.clock.advance(secs(10));
    }
    assert_eq!(format.written(), 0, "it goes up as it came");
}

#[tokio::test]
async fn that_there_is_still_nothing_is_written_as_that() {
    let (shelf, format) = (FaultyTier::new(), Watched::default());
    let world = above(&[&shelf], &format);
    for answer in [Answer::absent, Answer::unchanged] {
        let load = move |_: Prior<String>| async move { Ok::<_, Error>(answer()) };
        assert_eq!(world.cache.get_or_load_with("a", load).await.expect("an answer"), None);
        world.until_nothing_is_loading().await;
        world.clock.advance(secs(61));
    }
    let other = above(&[&shelf], &format);
    other.clock.advance(secs(61 + 50));
    let error = other.load("a").await.expect_err("there is nothing");
    assert!(matches!(error, Error::Absent), "{error}");
    assert_eq!((other.loads(), format.written()), (0, 0));
}

#[tokio::test]
async fn what_cannot_be_written_anew_is_kept_from_the_tier_and_is_never_absent_there() {
    for writing in [Writing::Fails, Writing::Panics] {
        let (shelf, format) = (FaultyTier::new(), Watched::default());
        let world = above(&[&shelf], &format);
        world.load("a").await.expect("a value");
        world.until_nothing_is_loading().await;
        *format.writing.lock() = writing;
        world.clock.advance(secs(61));
        let told = unchanged(&world.cache, "a", Options::new()).await;
        assert_eq!(told.as_deref().map(String::as_str), Some("1"));
        world.until_nothing_is_loading().await;
        assert_eq!((format.written(), world.cache.stats().tier_failures), (2, 1), "it is told");
        assert_eq!(world.get("a").await.as_deref(), Some("1"), "memory has it");
        let other = above(&[&shelf], &Watched::default());
        other.clock.advance(secs(61 + 50));
        assert_eq!(*other.load("a").await.expect("a value"), "1", "loaded, and not absent");
        assert_eq!(other.loads(), 1);
        // What is begun next is as good as ever.
        *format.writing.lock() = Writing::Works;
        unchanged(&world.cache, "a", Options::new().force_refresh()).await.expect("a value");
        world.until_nothing_is_loading().await;
        assert_eq!(found_in(&shelf, 61 + 50, "a").await.as_deref(), Some("1"));
    }
}
