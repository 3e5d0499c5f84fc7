//! Batches.

use std::sync::{Arc, Mutex};

use forebay::Error;
use forebay::codec::{Codec, MessagePack};
use forebay::testkit::FaultyTier;
use forebay_testkit::gate::Gate;
use futures_util::future::BoxFuture;

use crate::world::{Crowd, World, reached, secs, within_patience};

type Many = BoxFuture<'static, Result<Vec<Option<Arc<String>>>, Error>>;

/// A loader of many that counts its calls and the keys of each, and waits at a gate.
#[derive(Clone)]
struct Shop {
    world: World,
    gate: Gate,
    calls: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Shop {
    fn new(world: &World, gate: &Gate) -> Self {
        Self { world: world.clone(), gate: gate.clone(), calls: Arc::default() }
    }

    /// Each key is its own value; what begins with `no` is not there.
    fn get_many(&self, keys: &[&str]) -> Many {
        let (shop, cache) = (self.clone(), self.world.cache.clone());
        let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
        let load = move |keys: Vec<String>| {
            let shop = shop.clone();
            async move {
                shop.calls.lock().expect("no panic").push(keys.clone());
                shop.gate.wait().await;
                let there = keys.into_iter().filter(|key| !key.starts_with("no"));
                Ok::<Vec<_>, Error>(there.map(|key| (key.clone(), key)).collect())
            }
        };
        Box::pin(async move { within_patience(cache.get_many_or_load(&keys, load)).await })
    }

    /// The keys of each call, sorted.
    fn calls(&self) -> Vec<Vec<String>> {
        let mut calls = self.calls.lock().expect("no panic").clone();
        calls.iter_mut().for_each(|keys| keys.sort());
        calls
    }
}

fn texts(many: Result<Vec<Option<Arc<String>>>, Error>) -> Vec<Option<String>> {
    let found = many.expect("values").into_iter();
    found.map(|value| value.map(|value| value.to_string())).collect()
}

fn some(keys: &[&str]) -> Vec<Option<String>> {
    keys.iter().map(|key| Some((*key).to_owned())).collect()
}

#[tokio::test]
async fn one_load_brings_all_that_is_missing_in_the_order_of_the_keys() {
    let (world, open) = (World::new(), Gate::of(0));
    let shop = Shop::new(&world, &open);
    world.cache.set("b", "at hand".to_owned()).await;
    let found = texts(shop.get_many(&["c", "b", "a", "nobody", "c"]).await);
    let at_hand = Some("at hand".to_owned());
    assert_eq!(found, [Some("c".into()), at_hand, Some("a".into()), None, Some("c".into())]);
    assert_eq!(shop.calls(), [["a", "c", "nobody"]]);
    let again = texts(shop.get_many(&["nobody", "a"]).await);
    assert_eq!(again, [None, Some("a".into())]);
    assert_eq!(shop.calls().len(), 1, "that there is nothing is remembered");
    assert_eq!(texts(shop.get_many(&[]).await), []);
    let many = world.cache.get_many(&["a", "x"]).await;
    assert!(many[0].is_some() && many[1].is_none());
}

#[tokio::test]
async fn a_batch_and_single_reads_of_the_same_keys_load_each_key_once() {
    let keys: Vec<String> = (0..100).map(|number| format!("key {number}")).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    for batch_first in [true, false] {
        let (world, gate) = (World::new(), Gate::new());
        let shop = Shop::new(&world, &gate);
        let batch = |_| shop.get_many(&names);
        let single = |number: usize| world.load_behind(&keys[number], &gate);
        let (batch, singles) = if batch_first {
            let batch = Crowd::of(1, batch).await;
            (batch, Crowd::of(100, single).await)
        } else {
            let singles = Crowd::of(100, single).await;
            (Crowd::of(1, batch).await, singles)
        };
        gate.open();
        let expected = if batch_first { some(&names) } else { Vec::new() };
        let found = texts(batch.told().await.remove(0));
        assert!(found.len() == 100 && (found == expected || !batch_first));
        assert!(singles.told().await.iter().all(Result::is_ok));
        let (calls, loads) = if batch_first { (1, 0) } else { (0, 100) };
        assert_eq!((shop.calls().len(), world.loads()), (calls, loads));
        assert_eq!(world.cache.stats().loads, 100, "each key once");
    }
}

#[tokio::test]
async fn two_batches_share_what_they_have_in_common() {
    let (world, gate) = (World::new(), Gate::new());
    let shop = Shop::new(&world, &gate);
    let sets = [&["a", "b", "c"][..], &["b", "c", "d"]];
    let crowd = Crowd::of(2, |number| shop.get_many(sets[number])).await;
    reached(&gate, 2).await;
    gate.open();
    for (told, keys) in crowd.told().await.into_iter().zip(sets) {
        assert_eq!(texts(told), some(keys));
    }
    assert_eq!(shop.calls(), [vec!["a", "b", "c"], vec!["d"]]);
}

#[tokio::test]
async fn a_batch_that_nobody_waits_for_any_more_is_loaded_all_the_same() {
    let (world, gate) = (World::new(), Gate::new());
    let shop = Shop::new(&world, &gate);
    let crowd = Crowd::of(1, |_| shop.get_many(&["a", "b"])).await;
    crowd.leave().await;
    gate.open();
    world.until_nothing_is_loading().await;
    assert_eq!(world.get("b").await.as_deref(), Some("b"));
    assert_eq!(shop.calls().len(), 1);
}

#[tokio::test]
async fn what_is_stale_is_served_and_refreshed_by_the_same_load() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(60)));
    world.cache.set("a", "stale".to_owned()).await;
    world.clock.advance(secs(60));
    let shop = Shop::new(&world, &Gate::of(0));
    assert_eq!(texts(shop.get_many(&["a", "b"]).await), some(&["stale", "b"]));
    world.until_nothing_is_loading().await;
    assert_eq!(shop.calls(), [["a", "b"]]);
    assert_eq!(world.get("a").await.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_batch_that_fails_or_panics_says_so_and_frees_its_keys() {
    for panics in [false, true] {
        let world = World::new();
        let load = move |keys: Vec<String>| async move {
            assert!(!panics, "a mistake with {} keys", keys.len());
            Err::<Vec<(String, String)>, _>("no database")
        };
        let error = within_patience(world.cache.get_many_or_load(&["a", "b"], load)).await;
        let error = error.expect_err("it fails").to_string();
        assert!(error.contains(if panics { "mistake with 2" } else { "no database" }), "{error}");
        assert_eq!(*world.load("a").await.expect("a value"), "1");
    }
}

#[tokio::test]
async fn a_large_batch_boards_all_its_keys_at_once() {
    let keys: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let world = World::with(|builder| builder.memory(forebay::Memory::entries(10_000)));
    let shop = Shop::new(&world, &Gate::of(0));
    assert_eq!(texts(shop.get_many(&names).await), some(&names));
    assert_eq!(shop.calls().len(), 1);
}

#[tokio::test]
async fn a_batch_within_a_load_that_would_wait_for_it_is_told_so() {
    let world = World::new();
    let inner = world.cache.clone();
    let load = || async move {
        let never = |_| async { Ok::<Vec<(String, String)>, Error>(Vec::new()) };
        inner.get_many_or_load(&["a", "b"], never).await.map(|_| String::new())
    };
    let error = within_patience(world.cache.get_or_load("a", load)).await.expect_err("a circle");
    assert!(matches!(error, Error::Circular), "{error}");
}

#[tokio::test]
async fn many_values_are_set() {
    let world = World::new();
    let values = [("a", "1".to_owned()), ("b", "2".to_owned())];
    assert_eq!(world.cache.set_many(values).await, 2);
    assert_eq!(world.get("b").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn of_many_values_for_one_key_the_last_one_stays() {
    let shelf = FaultyTier::new();
    let over = || World::with(|builder| builder.tiers(Codec::new(MessagePack), [shelf.shared()]));
    let world = over();
    let values = (0..500).map(|number: u32| ((number % 5).to_string(), number.to_string()));
    assert_eq!(world.cache.set_many(values).await, 500);
    for key in 0..5 {
        let expected = Some((495 + key).to_string());
        assert_eq!(world.get(&key.to_string()).await, expected);
        assert_eq!(over().get(&key.to_string()).await, expected, "in the tier, too");
    }
}

/// A loader that brings rows of keys that it was not asked for, twice for one, and none for one.
#[tokio::test]
async fn a_loader_may_bring_too_much_and_too_little() {
    let world = World::new();
    let load = |mut keys: Vec<String>| async move {
        keys.sort();
        assert_eq!(keys, ["a", "b", "few"]);
        let rows = [("foreign", 0), ("a", 1), ("a", 2), ("b", 3), ("A", 4)];
        Ok::<_, Error>(rows.map(|(key, number)| (key.to_owned(), number.to_string())))
    };
    let found = world.cache.get_many_or_load(&["few", "a", "b", "a"], load).await;
    let two = Some("2".to_owned());
    assert_eq!(texts(found), [None, two.clone(), Some("3".to_owned()), two]);
    assert!(world.cache.explain("few").stored.expect("it is known").is_absent);
    for foreign in ["foreign", "A"] {
        assert_eq!(world.cache.explain(foreign).stored, None, "nobody has asked for it");
    }
    assert_eq!(world.cache.stats().loads, 3);
}

/// What a tier takes on at once is bounded, and a batch may be larger than that.
#[tokio::test]
async fn ten_thousand_keys_are_loaded_once_and_all_of_them_reach_the_tier() {
    const KEYS: usize = 10_000;
    let shelf = FaultyTier::new();
    let over = || {
        World::with(|builder| {
            let builder = builder.memory(forebay::Memory::entries(2 * KEYS as u64));
            builder.tiers(Codec::new(MessagePack), [shelf.shared()])
        })
    };
    let keys: Vec<String> = (0..KEYS).map(|number| number.to_string()).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let world = over();
    let shop = Shop::new(&world, &Gate::of(0));
    assert_eq!(texts(shop.get_many(&names).await), some(&names));
    assert_eq!(shop.calls().len(), 1, "one call of the loader");
    assert!(shelf.reads() <= KEYS.div_ceil(512) as u64, "{} exchanges", shelf.reads());
    world.until(|world| world.cache.stats().writing == 0).await;
    assert_eq!((shelf.len(), world.cache.tiers()[0].skipped_writes), (KEYS, 0), "of so many");
    let other = over();
    assert_eq!(other.cache.get_many(&names).await.iter().flatten().count(), KEYS);
    assert_eq!((other.cache.stats().loads, other.cache.stats().tier_hits), (0, KEYS as u64));
}
