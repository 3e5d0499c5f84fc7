//! Extreme arguments: longest durations, invalid numbers, keys of all lengths. No call panics or
//! hangs.

use std::time::Duration;

use forebay::{Answer, Error, Options, Warm};

use crate::world::{World, secs, within_timeout};

#[tokio::test]
async fn the_longest_and_the_shortest_durations_work() {
    let world = World::untimed(|builder| builder.ttl(Duration::MAX).jitter(true));
    world.load("a").await.expect("a value");
    world.clock.advance(secs(1_000_000_000));
    assert_eq!(world.get("a").await.as_deref(), Some("1"));
    for span in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let odd = Options::new().ttl(span).stale_while_revalidate(span).stale_if_error(span);
        let with = world.cache.with(odd.max_stale(span).never_older_than(span));
        let answer = move |_| async move {
            let answer = Answer::value("b".to_owned()).cost(span).validator(Vec::new());
            Ok::<_, Error>(answer.ttl(span).stale_while_revalidate(span).stale_if_error(span))
        };
        let found = within_timeout(with.get_or_load_with("b", answer)).await;
        assert_eq!(*found.expect("an answer").expect("a value"), "b", "{span:?}");
        assert!(!world.cache.explain("b").to_string().is_empty());
        world.cache.remove("b").await;
    }
}

#[tokio::test]
async fn invalid_numbers_neither_refresh_nor_hang() {
    let world = World::new();
    world.load("a").await.expect("a value");
    world.clock.advance(secs(59));
    for beta in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, f64::MAX] {
        let with = world.cache.with(Options::new().beta(beta));
        let load = || async { Ok::<_, Error>("again".to_owned()) };
        within_timeout(with.get_or_load("a", load)).await.expect("a value");
        world.wait_until_idle().await;
    }
    let at_once = Options::new().hard_timeout(Duration::ZERO).soft_timeout(Duration::ZERO);
    let load = || async { Ok::<_, Error>("loaded".to_owned()) };
    let result = within_timeout(world.cache.with(at_once).get_or_load("c", load)).await;
    assert!(matches!(result, Ok(_) | Err(Error::TimedOut(_))), "{result:?}");
}

#[tokio::test]
async fn keys_and_tags_of_every_length_and_content_work() {
    let world = World::new();
    let keys = [String::new(), "\0".to_owned(), "a/b?c#d".to_owned(), "ö".repeat(1 << 20)];
    for key in &keys {
        world.cache.with(Options::new().tags([key.as_str(), ""])).set(key, key.clone()).await;
    }
    for key in &keys {
        assert_eq!(world.get(key).await.as_ref(), Some(key), "{} bytes", key.len());
    }
    world.cache.invalidate_tag(&keys[2]).await;
    assert_eq!(world.get(&keys[2]).await, None);
    assert_eq!(world.get(&keys[1]).await.as_ref(), Some(&keys[1]));
    world.cache.invalidate_tag("").await;
    let nothing: [&str; 0] = [];
    let load = |key: String| async move { Ok::<_, Error>(key) };
    let warmed = world.cache.warm(nothing, Warm::new().concurrency(usize::MAX), load).await;
    assert_eq!(warmed.done, 0);
    assert_eq!(world.cache.get_many(&nothing).await.len(), 0);
}
