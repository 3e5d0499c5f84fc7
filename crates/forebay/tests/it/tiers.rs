//! Tiers below memory, and what is written in them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use forebay::codec::{Codec, Compression, Json, MessagePack};
use forebay::{Cache, Error, Memory, Options, Outlook, Tier};
use forebay_core::{KeyRef, Meta};
use forebay_engine::{Stored, TierError, Writer};
use forebay_testkit::gate::Gate;
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, StreamExt, stream};

use crate::world::{Crowd, World, reached, secs, within_patience};

type Records = Arc<Mutex<HashMap<Vec<u8>, (Meta, Bytes)>>>;

/// A tier that is a map. Clones are the same tier.
#[derive(Clone, Default)]
struct Shelf {
    records: Records,
    broken: Arc<AtomicBool>,
}

impl Shelf {
    fn shared(&self) -> [Arc<dyn Tier>; 1] {
        [Arc::new(self.clone())]
    }

    fn count(&self) -> usize {
        self.records.lock().expect("no panic").len()
    }

    fn is_well(&self) -> Result<(), TierError> {
        if self.broken.load(Ordering::SeqCst) { Err(TierError::failed("broken")) } else { Ok(()) }
    }

    /// A world over this shelf with nothing in memory.
    fn world(&self, codec: Codec<MessagePack>) -> World {
        World::with(|builder| builder.tiers(codec, self.shared()))
    }
}

struct Writing(Shelf, Vec<u8>, Meta, Bytes);

impl Tier for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        let found = self.records.lock().expect("no panic").get(key.bytes()).cloned();
        let stored = found.map(|(meta, head)| Stored::new(meta, head, stream::empty().boxed()));
        ready(self.is_well().map(|()| stored)).boxed()
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        let writing = Writing(self.clone(), key.bytes().to_vec(), meta.clone(), head.clone());
        ready(self.is_well().map(|()| Box::new(writing) as Box<dyn Writer>)).boxed()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        let removed = self.records.lock().expect("no panic").remove(key.bytes()).is_some();
        ready(self.is_well().map(|()| removed)).boxed()
    }
}

impl Writer for Writing {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        assert!(piece.is_empty(), "a value is a head alone");
        ready(Ok(())).boxed()
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        let Self(shelf, key, meta, head) = *self;
        shelf.records.lock().expect("no panic").insert(key, (meta, head));
        ready(Ok(())).boxed()
    }
}

fn plain() -> Codec<MessagePack> {
    Codec::new(MessagePack)
}

#[tokio::test]
async fn what_one_instance_has_loaded_or_set_another_reads() {
    let shelf = Shelf::default();
    let one = shelf.world(plain().compressed(Compression::Zstd).threshold(0));
    one.load("loaded").await.expect("a value");
    one.cache.set("set", "x".repeat(5_000)).await;
    one.until_nothing_is_loading().await;
    assert_eq!(shelf.count(), 2);
    let other = shelf.world(plain());
    assert_eq!(*other.load("loaded").await.expect("a value"), "1");
    assert_eq!(other.get("set").await, Some("x".repeat(5_000)), "also without a loader");
    assert_eq!(other.get("neither").await, None);
    assert_eq!((other.loads(), other.cache.stats().loads), (0, 0));
    assert_eq!(other.cache.explain("set").outlook, Outlook::Served, "it is in memory now");
    let first = other.cache.get("set").await.expect("a value");
    let again = other.cache.get("set").await.expect("a value");
    assert!(Arc::ptr_eq(&first, &again), "it is read once");
}

#[tokio::test]
async fn a_thousand_callers_share_one_walk() {
    let shelf = Shelf::default();
    shelf.world(plain()).cache.set("a", "below".to_owned()).await;
    let (world, gate) = (shelf.world(plain()), Gate::of(0));
    let crowd = Crowd::of(1_000, |_| world.load_behind("a", &gate)).await;
    for told in crowd.told().await {
        assert_eq!(*told.expect("a value"), "below");
    }
    assert_eq!((world.loads(), world.cache.stats().loads), (0, 0));
}

#[tokio::test]
async fn that_there_is_nothing_is_read_as_that() {
    let shelf = Shelf::default();
    let absent = |_| async { Ok::<_, Error>(None) };
    let one = shelf.world(plain());
    one.cache.get_or_load_with("a", absent).await.expect("an answer");
    one.until_nothing_is_loading().await;
    let other = shelf.world(plain());
    let error = other.load("a").await.expect_err("there is nothing");
    assert!(matches!(error, Error::Absent), "{error}");
    assert_eq!(other.loads(), 0);
}

#[tokio::test]
async fn another_codec_reads_what_this_one_has_written() {
    let shelf = Shelf::default();
    let json =
        |shelf: &Shelf| World::with(|builder| builder.tiers(Codec::new(Json), shelf.shared()));
    json(&shelf).cache.set("json", "one".to_owned()).await;
    shelf.world(plain()).cache.set("packed", "two".to_owned()).await;
    assert_eq!(shelf.world(plain()).get("json").await.as_deref(), Some("one"));
    assert_eq!(json(&shelf).get("packed").await.as_deref(), Some("two"));
}

#[tokio::test]
async fn what_cannot_be_read_is_a_miss_and_is_counted() {
    let shelf = Shelf::default();
    let numbers: Cache<u32> = Cache::builder("texts")
        .memory(Memory::entries(10))
        .tiers(plain(), shelf.shared())
        .build()
        .expect("it can work");
    numbers.set("a", 7).await;
    let world = shelf.world(plain());
    assert_eq!(*world.load("a").await.expect("a value"), "1", "a number is no text");
    assert_eq!((world.loads(), world.cache.stats().unreadable), (1, 1));
    world.until_nothing_is_loading().await;
    assert_eq!(shelf.world(plain()).get("a").await.as_deref(), Some("1"), "it was replaced");
}

#[tokio::test]
async fn caches_of_other_names_do_not_meet_in_a_tier() {
    let shelf = Shelf::default();
    shelf.world(plain()).cache.set("a", "text".to_owned()).await;
    let other: Cache<String> = Cache::builder("other")
        .memory(Memory::bytes(1 << 20))
        .tiers(plain(), shelf.shared())
        .build()
        .expect("what is written is what a value weighs");
    assert!(other.get("a").await.is_none());
}

#[tokio::test]
async fn a_tier_that_fails_costs_a_load_and_no_more() {
    let shelf = Shelf::default();
    shelf.broken.store(true, Ordering::SeqCst);
    let world = shelf.world(plain());
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
    let shelf = Shelf::default();
    let world = shelf.world(plain());
    let tagged = || Options::new().tags(["red"]);
    for key in ["a", "b", "c"] {
        world.cache.with(tagged()).set(key, String::new()).await;
    }
    assert!(world.cache.remove("a").await);
    assert_eq!(shelf.count(), 2);
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
    let shelf = Shelf::default();
    shelf.world(plain()).cache.set("a", "below".to_owned()).await;
    let world =
        World::with(|builder| builder.stale_if_error(secs(600)).tiers(plain(), shelf.shared()));
    {
        let mut records = shelf.records.lock().expect("no panic");
        let lifetime = &mut records.values_mut().next().expect("a record").0.lifetime;
        lifetime.stale_if_error = secs(600);
    }
    world.clock.advance(secs(100));
    assert_eq!(*world.fail("a").await.expect("a value"), "below");
    assert_eq!(world.loads(), 1);
}

#[tokio::test]
async fn a_batch_reads_the_tiers_and_loads_the_rest_at_once() {
    let shelf = Shelf::default();
    let values = [("a", "1".to_owned()), ("b", "2".to_owned())];
    shelf.world(plain()).cache.set_many(values).await;
    let world = shelf.world(plain());
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
