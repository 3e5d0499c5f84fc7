//! One copy of a value in memory, also with lower tiers, and repeated encoding for the tiers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::codec::{Codec, CodecError, Compression, Format, MessagePack};
use forebay::testkit::FaultyTier;
use forebay::{Answer, Builder, Cache, Error, Memory, Options, Prior};
use parking_lot::Mutex;

use crate::world::{World, secs, within_timeout};

/// Behaviour of the format when a value is encoded.
#[derive(Clone, Copy, Default)]
enum Encoding {
    #[default]
    Works,
    Fails,
    Panics,
}

/// `MessagePack` that counts encodings, and fails on demand.
#[derive(Clone, Default)]
struct CountingFormat {
    written: Arc<AtomicUsize>,
    writing: Arc<Mutex<Encoding>>,
}

impl CountingFormat {
    fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }
}

impl Format<String> for CountingFormat {
    const ID: u8 = <MessagePack as Format<String>>::ID;

    fn write(&self, value: &String, out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.written.fetch_add(1, Ordering::SeqCst);
        let writing = *self.writing.lock();
        match writing {
            Encoding::Works => MessagePack.write(value, out),
            Encoding::Fails => Err(CodecError::TooLarge(usize::MAX)),
            Encoding::Panics => panic!("the test has set a panic"),
        }
    }

    fn read(&self, id: u8, bytes: &[u8]) -> Result<String, CodecError> {
        MessagePack.read(id, bytes)
    }
}

/// Creates a cache with these tiers.
fn above(tiers: &[&FaultyTier], format: &CountingFormat) -> World {
    above_with(tiers, format, |builder| builder)
}

fn above_with(
    tiers: &[&FaultyTier],
    format: &CountingFormat,
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

/// Returns the value that a new process finds in a tier, this many seconds after the start of the
/// clock.
async fn found_in(tier: &FaultyTier, seconds: u64, key: &str) -> Option<String> {
    let other = above(&[tier], &CountingFormat::default());
    other.clock.advance(secs(seconds));
    other.get(key).await
}

/// Requests a key with a loader that answers that the previous value is unchanged.
async fn unchanged(cache: &Cache<String>, key: &str, options: Options) -> Option<Arc<String>> {
    let load = |prior: Prior<String>| async move {
        assert!(prior.value().is_some(), "the loader reads the previous value");
        Ok::<_, Error>(Answer::unchanged())
    };
    let calls = cache.with(options);
    within_timeout(calls.get_or_load_with(key, load)).await.expect("an answer")
}

/// Returns the weight of memory after each way in which a value can be stored.
async fn weights(tiers: &[&FaultyTier]) -> Vec<(&'static str, u64)> {
    let world = above_with(tiers, &CountingFormat::default(), |builder| {
        builder.weigher(|_, text| text.len()).stale_if_error(secs(600))
    });
    let cache = &world.cache;
    let mut weights = Vec::new();
    let mut note = async |way| {
        world.wait_until_idle().await;
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
    assert_eq!(world.fail("c").await.expect("a stale value").as_str(), "1");
    note("served since its load failed").await;
    let absent = |_: Prior<String>| async { Ok::<_, Error>(Answer::absent()) };
    cache.get_or_load_with("d", absent).await.expect("an answer");
    note("absent").await;
    cache.remove("a").await;
    note("removed").await;
    weights
}

#[tokio::test]
async fn memory_counts_the_same_weight_with_and_without_tiers() {
    let alone = weights(&[]).await;
    let (one, other) = (FaultyTier::new(), FaultyTier::new());
    assert_eq!(weights(&[&one]).await, alone);
    assert_eq!(weights(&[&FaultyTier::new(), &other]).await, alone);
    assert!(!one.is_empty() && !other.is_empty());
    assert!(alone[0].1 > 3_000 && alone[0].1 < 3_400, "{alone:?}");
}

#[tokio::test]
async fn a_value_read_from_a_tier_has_the_weight_of_the_stored_value() {
    let tier = FaultyTier::new();
    let weighing = || {
        above_with(&[&tier], &CountingFormat::default(), |builder| {
            builder.weigher(|_, it| it.len())
        })
    };
    let (one, other) = (weighing(), weighing());
    let keys: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    one.cache.set_many(keys.iter().map(|key| (key, key.repeat(500)))).await;
    assert_eq!(other.get("7").await, Some("7".repeat(500)));
    assert!(other.cache.get_many(&keys).await.iter().all(Option::is_some));
    other.wait_until_idle().await;
    assert_eq!(other.cache.stats().weight, one.cache.stats().weight);
    assert_eq!(other.loads(), 0);
}

#[tokio::test]
async fn a_failed_load_keeps_one_copy_of_the_stale_tier_value() {
    let tier = FaultyTier::new();
    let patient = || {
        above_with(&[&tier], &CountingFormat::default(), |builder| {
            builder.weigher(|_, text| text.len()).stale_if_error(secs(600))
        })
    };
    let (one, other) = (patient(), patient());
    one.cache.set("a", "x".repeat(5_000)).await;
    other.clock.advance(secs(100));
    assert_eq!(other.fail("a").await.expect("a stale value").len(), 5_000);
    assert_eq!(other.cache.stats().weight, one.cache.stats().weight);
}

#[tokio::test]
async fn without_a_weigher_the_encoded_length_counts_once() {
    let weight = async |length: usize, codec: Codec<MessagePack>| {
        let tier = FaultyTier::new();
        let world = || {
            let codec = codec.clone();
            World::with(|it| it.memory(Memory::bytes(1 << 20)).tiers(codec, [tier.shared()]))
        };
        let (one, other) = (world(), world());
        one.cache.set("a", "x".repeat(length)).await;
        assert!(other.get("a").await.is_some());
        assert_eq!(other.cache.stats().weight, one.cache.stats().weight);
        one.cache.stats().weight
    };
    let plain = || Codec::new(MessagePack);
    assert_eq!(weight(5_000, plain()).await - weight(1_000, plain()).await, 4_000);
    // Memory holds the decoded value; the compression in the tier does not count.
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
async fn an_unchanged_value_is_written_to_all_tiers_again() {
    let (upper, lower, format) = (FaultyTier::new(), FaultyTier::new(), CountingFormat::default());
    let world = above(&[&upper, &lower], &format);
    world.load("a").await.expect("a value");
    world.wait_until_idle().await;
    assert_eq!(format.written(), 1);
    world.clock.advance(secs(61));
    let result = unchanged(&world.cache, "a", Options::new()).await;
    assert_eq!(result.as_deref().map(String::as_str), Some("1"));
    world.wait_until_idle().await;
    assert_eq!(format.written(), 2, "one encoding for all tiers");
    for tier in [&upper, &lower] {
        assert_eq!(found_in(tier, 61 + 50, "a").await.as_deref(), Some("1"));
    }
    assert_eq!(world.cache.stats().tier_failures, 0);
}

#[tokio::test]
async fn a_refresh_restores_a_value_that_the_server_has_lost() {
    let (tier, format) = (FaultyTier::new(), CountingFormat::default());
    let world = above_with(&[&tier], &format, |builder| builder.stale_while_revalidate(secs(600)));
    world.load("a").await.expect("a value");
    world.wait_until_idle().await;
    tier.clear();
    world.clock.advance(secs(61));
    let served = unchanged(&world.cache, "a", Options::new()).await;
    assert_eq!(served.as_deref().map(String::as_str), Some("1"));
    assert_eq!(world.cache.stats().refreshing_hits, 1);
    world.wait_until_idle().await;
    assert_eq!(found_in(&tier, 61 + 50, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn an_unchanged_early_refresh_is_written_to_the_tier() {
    let (tier, format) = (FaultyTier::new(), CountingFormat::default());
    let world = above_with(&[&tier], &format, |builder| builder.beta(1_000.0));
    let costly =
        |_: Prior<String>| async { Ok::<_, Error>(Answer::value("1".to_owned()).cost(secs(10))) };
    world.cache.get_or_load_with("a", costly).await.expect("a value");
    world.wait_until_idle().await;
    world.clock.advance(secs(58));
    unchanged(&world.cache, "a", Options::new()).await.expect("a value");
    assert_eq!((world.cache.stats().refreshing_hits, world.cache.stats().stale_hits), (1, 0));
    world.wait_until_idle().await;
    assert_eq!(found_in(&tier, 58 + 50, "a").await.as_deref(), Some("1"));
    assert_eq!(format.written(), 2);
}

#[tokio::test]
async fn an_unchanged_answer_keeps_the_version_in_the_tier() {
    let tier = FaultyTier::new();
    let world = above(&[&tier], &CountingFormat::default());
    assert!(world.cache.set_versioned("a", "seven".to_owned(), 7).await);
    tier.clear();
    unchanged(&world.cache, "a", Options::new().force_refresh()).await.expect("a value");
    world.wait_until_idle().await;
    let other = above(&[&tier], &CountingFormat::default());
    assert!(!other.cache.set_versioned("a", "six".to_owned(), 6).await);
    assert_eq!(other.get("a").await.as_deref(), Some("seven"));
    assert!(other.cache.set_versioned("a", "eight".to_owned(), 8).await);
    assert_eq!(found_in(&tier, 0, "a").await.as_deref(), Some("eight"));
}

#[tokio::test]
async fn an_unchanged_tier_value_is_written_back_without_encoding() {
    let (tier, format) = (FaultyTier::new(), CountingFormat::default());
    above(&[&tier], &CountingFormat::default()).cache.set("a", "below".to_owned()).await;
    let world = above(&[&tier], &format);
    world.clock.advance(secs(61));
    let result = unchanged(&world.cache, "a", Options::new()).await;
    assert_eq!(result.as_deref().map(String::as_str), Some("below"));
    world.wait_until_idle().await;
    assert_eq!(format.written(), 0);
    assert_eq!(found_in(&tier, 61 + 50, "a").await.as_deref(), Some("below"));
}

#[tokio::test]
async fn a_value_found_in_a_lower_tier_is_copied_to_the_upper_tier() {
    let (upper, lower, format) = (FaultyTier::new(), FaultyTier::new(), CountingFormat::default());
    above(&[&lower], &CountingFormat::default()).cache.set("a", "below".to_owned()).await;
    let world = above_with(&[&upper, &lower], &format, |builder| builder.memory_ttl(secs(10)));
    for seconds in [0, 10, 20] {
        upper.clear();
        let load = |keys: Vec<String>| async move {
            assert_eq!(keys, ["b"], "the key that no tier has");
            Ok::<_, Error>(Vec::<(String, String)>::new())
        };
        let found = if seconds == 10 {
            world.cache.get_many_or_load(&["a", "b"], load).await.expect("values")[0].clone()
        } else {
            world.cache.get("a").await
        };
        assert_eq!(found.as_deref().map(String::as_str), Some("below"));
        world.wait_until_idle().await;
        assert_eq!(found_in(&upper, seconds, "a").await.as_deref(), Some("below"));
        world.clock.advance(secs(10));
    }
    assert_eq!(format.written(), 0, "the bytes are copied without encoding");
}

#[tokio::test]
async fn an_unchanged_absent_entry_is_written_as_absent() {
    let (tier, format) = (FaultyTier::new(), CountingFormat::default());
    let world = above(&[&tier], &format);
    for answer in [Answer::absent, Answer::unchanged] {
        let load = move |_: Prior<String>| async move { Ok::<_, Error>(answer()) };
        assert_eq!(world.cache.get_or_load_with("a", load).await.expect("an answer"), None);
        world.wait_until_idle().await;
        world.clock.advance(secs(61));
    }
    let other = above(&[&tier], &format);
    other.clock.advance(secs(61 + 50));
    let error = other.load("a").await.expect_err("there is nothing");
    assert!(matches!(error, Error::Absent), "{error}");
    assert_eq!((other.loads(), format.written()), (0, 0));
}

#[tokio::test]
async fn a_value_that_cannot_be_encoded_again_is_not_written_as_absent() {
    for writing in [Encoding::Fails, Encoding::Panics] {
        let (tier, format) = (FaultyTier::new(), CountingFormat::default());
        let world = above(&[&tier], &format);
        world.load("a").await.expect("a value");
        world.wait_until_idle().await;
        *format.writing.lock() = writing;
        world.clock.advance(secs(61));
        let result = unchanged(&world.cache, "a", Options::new()).await;
        assert_eq!(result.as_deref().map(String::as_str), Some("1"));
        world.wait_until_idle().await;
        assert_eq!(
            (format.written(), world.cache.stats().tier_failures),
            (2, 1),
            "the failure is counted"
        );
        assert_eq!(world.get("a").await.as_deref(), Some("1"), "the value is in memory");
        let other = above(&[&tier], &CountingFormat::default());
        other.clock.advance(secs(61 + 50));
        assert_eq!(*other.load("a").await.expect("a value"), "1", "loaded, not absent");
        assert_eq!(other.loads(), 1);
        // The next write succeeds.
        *format.writing.lock() = Encoding::Works;
        unchanged(&world.cache, "a", Options::new().force_refresh()).await.expect("a value");
        world.wait_until_idle().await;
        assert_eq!(found_in(&tier, 61 + 50, "a").await.as_deref(), Some("1"));
    }
}
