//! Batches and warming.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forebay::{Error, Warm, Warmed};
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
async fn warming_loads_in_order_and_a_few_at_a_time() {
    let (world, gate) = (World::new(), Gate::new());
    world.cache.set("2", String::new()).await;
    let begun = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::new(AtomicUsize::new(0));
    let (seen, behind, telling) = (begun.clone(), gate.clone(), told.clone());
    let load = move |key: String| {
        let (seen, behind) = (seen.clone(), behind.clone());
        async move {
            seen.lock().expect("no panic").push(key.clone());
            behind.wait().await;
            if key == "4" { Err("no such row") } else { Ok(key) }
        }
    };
    let warm = Warm::new().concurrency(3).progress(move |warmed: Warmed| {
        telling.fetch_add(1, Ordering::SeqCst);
        assert_eq!(warmed.done, telling.load(Ordering::SeqCst));
    });
    let cache = world.cache.clone();
    let keys: Vec<_> = (1..=9).map(|number: u32| number.to_string()).collect();
    let warming = tokio::spawn(async move { cache.warm(keys, warm, load).await });
    reached(&gate, 3).await;
    assert_eq!(*begun.lock().expect("no panic"), ["1", "3", "4"]);
    gate.open();
    let warmed = within_patience(warming).await.expect("no panic");
    assert_eq!((warmed.done, warmed.at_hand, warmed.failed), (9, 1, 1));
    assert_eq!(told.load(Ordering::SeqCst), 9);
    assert_eq!(world.get("9").await.as_deref(), Some("9"));
}
