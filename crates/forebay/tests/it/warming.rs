//! Filling a cache before it is asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forebay::{Error, Options, Warm, Warmed};
use forebay_testkit::gate::Gate;

use crate::world::{World, reached, secs, within_patience};

/// Which keys were loaded, in the order in which their loads began.
#[derive(Clone, Default)]
struct Begun(Arc<Mutex<Vec<String>>>);

impl Begun {
    async fn load(self, key: String) -> Result<String, Error> {
        self.0.lock().expect("no panic").push(key.clone());
        Ok(key)
    }

    fn keys(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
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
    assert_eq!((warmed.done, warmed.already_cached, warmed.failed), (9, 1, 1));
    assert_eq!(told.load(Ordering::SeqCst), 9);
    assert_eq!(world.get("9").await.as_deref(), Some("9"));
}

#[tokio::test]
async fn keys_of_a_higher_priority_come_first_and_equals_in_their_order() {
    let (world, begun) = (World::new(), Begun::default());
    let rank = |key: &str| match key.as_bytes()[0] {
        b'h' => 10,
        b'l' => -10,
        _ => 0,
    };
    let keys = ["low 1", "plain 1", "high 1", "low 2", "high 2", "plain 2"];
    let warm = Warm::new().concurrency(1).priority(rank);
    let loading = begun.clone();
    let warmed = world.cache.warm(keys, warm, move |key| loading.clone().load(key)).await;
    assert_eq!((warmed.done, warmed.already_cached, warmed.failed), (6, 0, 0));
    assert_eq!(begun.keys(), ["high 1", "high 2", "plain 1", "plain 2", "low 1", "low 2"]);
}

#[tokio::test]
async fn a_warming_that_is_given_up_ends_what_it_has_begun_and_begins_no_more() {
    let (world, gate) = (World::new(), Gate::new());
    let (cache, counting, behind) = (world.cache.clone(), world.clone(), gate.clone());
    let warming = tokio::spawn(async move {
        let load = move |key: String| {
            let (world, gate) = (counting.clone(), behind.clone());
            async move {
                world.begin();
                gate.wait().await;
                Ok::<_, Error>(key)
            }
        };
        let keys: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        cache.warm(keys, Warm::new().concurrency(4), load).await
    });
    reached(&gate, 4).await;
    warming.abort();
    assert!(warming.await.expect_err("it was given up").is_cancelled());
    gate.open();
    world.until_nothing_is_loading().await;
    assert_eq!((world.loads(), world.cache.stats().entries), (4, 4));
    assert_eq!(world.get("3").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_panic_of_who_is_told_ends_the_warming_and_no_load() {
    let (world, begun) = (World::new(), Begun::default());
    let (cache, loading) = (world.cache.clone(), begun.clone());
    let warming = tokio::spawn(async move {
        let warm = Warm::new().concurrency(2).progress(|warmed| {
            assert!(warmed.done < 3, "a mistake of whoever is told");
        });
        let keys = ["1", "2", "3", "4", "5", "6", "7", "8"];
        cache.warm(keys, warm, move |key| loading.clone().load(key)).await
    });
    let ended = within_patience(warming).await.expect_err("it panics");
    assert!(ended.is_panic());
    world.until_nothing_is_loading().await;
    let begun = begun.keys().len();
    assert!((3..8).contains(&begun), "{begun}");
    assert_eq!(world.cache.stats().entries, begun as u64, "what was begun is there");
    assert_eq!(*world.load("8").await.expect("a value"), "1", "nothing is left behind");
}

#[tokio::test]
async fn a_loader_that_panics_is_a_load_that_failed() {
    let world = World::new();
    let load = |key: String| {
        assert!(key != "2", "a mistake before there is a future");
        async move { if key == "3" { panic!("and in it") } else { Ok::<_, Error>(key) } }
    };
    let warmed = world.cache.warm(["1", "2", "3", "4"], Warm::new(), load).await;
    assert_eq!((warmed.done, warmed.failed), (4, 2));
}

#[tokio::test]
async fn warming_can_have_options() {
    let (world, begun) = (World::new(), Begun::default());
    world.cache.set("a", "old".to_owned()).await;
    world.clock.advance(secs(10));
    world.cache.set("b", "young".to_owned()).await;
    let young = Options::new().never_older_than(secs(9)).ttl(secs(5)).tags(["warmed"]);
    let loading = begun.clone();
    let with = world.cache.with(young);
    let warmed = with.warm(["a", "b"], Warm::new(), move |key| loading.clone().load(key)).await;
    assert_eq!((warmed.done, warmed.already_cached), (2, 1));
    assert_eq!(begun.keys(), ["a"]);
    let stored = world.cache.explain("a").stored.expect("it is there");
    assert_eq!((stored.ttl, stored.tags), (secs(5), vec!["warmed".to_owned()]));
}
