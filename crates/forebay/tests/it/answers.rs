//! Answers of loaders, and the previous entry that they read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::{Answer, Error, Options};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, secs, within_timeout};

/// Value, validator and age of the previous entry.
type Previous = (Option<String>, Option<Vec<u8>>, Option<Duration>);

/// Loads with this answer, and returns the previous entry that the loader read.
async fn answered(
    world: &World,
    answer: impl FnOnce() -> Answer<String> + Send + 'static,
) -> (Result<Option<Arc<String>>, Error>, Option<Previous>) {
    let told = Arc::new(Mutex::new(None));
    let (seen, counting) = (told.clone(), world.clone());
    let load = world.cache.get_or_load_with("a", move |prior| async move {
        counting.begin();
        let value = prior.value().map(ToString::to_string);
        let validator = prior.validator().map(<[u8]>::to_vec);
        *seen.lock().expect("no panic") = Some((value, validator, prior.age()));
        Ok::<_, Error>(answer())
    });
    let answer = within_timeout(load).await;
    let told = told.lock().expect("no panic").take();
    (answer, told)
}

fn one() -> Answer<String> {
    Answer::value("one".to_owned()).validator("v1").tags(["red"])
}

#[tokio::test]
async fn a_loader_reads_the_previous_entry_and_may_keep_it() {
    let world = World::new();
    let (first, told) = answered(&world, one).await;
    let first = first.expect("an answer").expect("a value");
    assert_eq!(told, Some((None, None, None)));
    world.clock.advance(secs(61));
    let (again, told) = answered(&world, Answer::unchanged).await;
    let again = again.expect("an answer").expect("a value");
    assert_eq!(told, Some((Some("one".into()), Some(b"v1".to_vec()), Some(secs(61)))));
    assert!(Arc::ptr_eq(&first, &again), "the stored value is kept");
    let stored = world.cache.explain("a").stored.expect("a stored entry");
    assert_eq!((stored.age, stored.has_validator), (secs(0), true));
    assert_eq!(stored.tags, ["red"]);
    world.cache.invalidate_tag("red").await;
    assert_eq!(world.get("a").await, None, "the entry has kept its tag");
}

#[tokio::test]
async fn an_answer_chooses_its_lifetime_and_its_cost() {
    let world = World::new();
    let answer = || {
        Answer::value(String::new())
            .ttl(secs(5))
            .stale_while_revalidate(secs(6))
            .stale_if_error(secs(7))
            .cost(secs(8))
    };
    answered(&world, answer).await.0.expect("an answer");
    let stored = world.cache.explain("a").stored.expect("a stored entry");
    assert_eq!((stored.ttl, stored.stale_while_revalidate), (secs(5), secs(6)));
    assert_eq!((stored.stale_if_error, stored.load_cost), (secs(7), secs(8)));
}

#[tokio::test]
async fn tags_of_a_call_and_of_its_answer_add_up() {
    let world = World::new();
    let with = world.cache.with(Options::new().tags(["call"]));
    let load = |_| async { Ok::<_, Error>(one()) };
    with.get_or_load_with("a", load).await.expect("an answer");
    let stored = world.cache.explain("a").stored.expect("a stored entry");
    assert_eq!(stored.tags, ["call", "red"]);
}

#[tokio::test]
async fn an_absent_answer_is_stored_for_negative_ttl() {
    let world = World::with(|builder| builder.negative_ttl(secs(5)));
    for _ in 0..3 {
        assert_eq!(answered(&world, Answer::absent).await.0.expect("an answer"), None);
        assert_eq!(world.get("a").await, None);
    }
    assert_eq!(world.loads(), 1);
    let error = world.load("a").await.expect_err("there is nothing");
    assert!(matches!(error, Error::Absent), "{error}");
    assert!(world.cache.explain("a").stored.expect("a stored entry").is_absent);
    world.clock.advance(secs(5));
    let (found, told) = answered(&world, one).await;
    assert!(found.expect("an answer").is_some());
    assert_eq!(told, Some((None, None, Some(secs(5)))), "the age of the absent entry");
}

#[tokio::test]
async fn an_option_is_a_valid_answer() {
    let world = World::new();
    let find = |row: Option<String>| move |_| async move { Ok::<_, Error>(row) };
    let none = world.cache.get_or_load_with("a", find(None)).await.expect("an answer");
    assert_eq!(none, None);
    let row = world.cache.get_or_load_with("b", find(Some("b".into()))).await;
    assert_eq!(*row.expect("an answer").expect("a row"), "b");
}

#[tokio::test]
async fn a_passed_answer_is_not_stored_and_its_key_is_not_coalesced() {
    let (world, gate) = (World::new(), Gate::new());
    let pass = |world: &World| {
        let (world, gate) = (world.clone(), gate.clone());
        async move {
            let cache = world.cache.clone();
            let load = move |_| async move {
                let number = world.begin();
                gate.wait().await;
                Ok::<_, Error>(Answer::pass(Some(number.to_string())))
            };
            let found = cache.get_or_load_with("a", load).await;
            found.expect("an answer").expect("a value").to_string()
        }
    };
    let crowd = Crowd::of(20, |_| pass(&world)).await;
    gate.open();
    let mut told = crowd.results().await;
    told.sort_by_key(|number| number.parse::<u32>().expect("a number"));
    let each: Vec<_> = (1..=20).map(|number: u32| number.to_string()).collect();
    assert_eq!(told, each, "one load for each caller");
    assert_eq!(world.get("a").await, None);
    assert_eq!(world.cache.stats().entries, 0);
}

#[tokio::test]
async fn an_unchanged_answer_without_a_stored_entry_is_an_error() {
    let world = World::new();
    let error = answered(&world, Answer::unchanged).await.0.expect_err("nothing is stored");
    assert_eq!(
        error.to_string(),
        "the loader failed: the loader answered `Answer::unchanged`, but no value is stored"
    );
    assert_eq!(world.get("a").await, None);
}
