//! Removal, soft purge, and purge by tag.

use forebay::{Error, Options};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, secs, wait_for_loads};

async fn tagged(world: &World, key: &str, tags: &[&str]) {
    let options = Options::new().tags(tags.iter().copied());
    world.cache.with(options).set(key, key.to_owned()).await;
}

#[tokio::test]
async fn an_invalidation_removes_the_named_entries_only() {
    let world = World::new();
    for (key, tags) in [("a", &["red"][..]), ("b", &["red", "blue"]), ("c", &["blue"]), ("d", &[])]
    {
        tagged(&world, key, tags).await;
    }
    assert!(world.cache.remove("d").await);
    assert!(!world.cache.remove("d").await, "d is removed already");
    world.cache.invalidate_tag("red").await;
    assert_eq!((world.get("a").await, world.get("b").await), (None, None));
    assert_eq!(world.get("c").await.as_deref(), Some("c"));
    tagged(&world, "a", &["red"]).await;
    assert_eq!(world.get("a").await.as_deref(), Some("a"), "a was set after the purge");
    world.cache.invalidate_tags(["red", "blue"]).await;
    assert_eq!((world.get("a").await, world.get("c").await), (None, None));
    tagged(&world, "d", &[]).await;
    world.cache.invalidate_all().await;
    assert_eq!(world.get("d").await, None);
}

#[tokio::test]
async fn an_expired_entry_is_served_within_its_stale_windows() {
    for by_tag in [false, true] {
        let world = World::with(|builder| builder.stale_if_error(secs(60)));
        tagged(&world, "a", &["red"]).await;
        if by_tag {
            world.cache.expire_tag("red").await;
        } else {
            assert!(world.cache.expire("a").await);
            assert!(!world.cache.expire("b").await);
        }
        assert_eq!(world.get("a").await, None);
        assert_eq!(*world.fail("a").await.expect("a value"), "a", "the load failed");
        assert_eq!(*world.load("a").await.expect("a value"), "2");
    }
}

#[tokio::test]
async fn a_load_in_flight_during_a_removal_is_not_stored() {
    for all in [false, true] {
        let (world, gate) = (World::new(), Gate::new());
        let before = Crowd::of(5, |_| world.load_behind("a", &gate)).await;
        wait_for_loads(&gate, 1).await;
        if all {
            world.cache.invalidate_all().await;
        } else {
            world.cache.remove("a").await;
        }
        let later = Crowd::of(5, |_| world.load_behind("a", &gate)).await;
        wait_for_loads(&gate, 2).await;
        gate.open();
        for result in before.results().await {
            // The value of their own load, or of the later one if that was stored first.
            let value = result.expect("a value");
            assert!(["1", "2"].contains(&value.as_str()), "{value}");
        }
        for result in later.results().await {
            assert_eq!(*result.expect("a value"), "2", "the old value does not return");
        }
        assert_eq!(world.get("a").await.as_deref(), Some("2"));
        assert_eq!(world.loads(), 2);
    }
}

#[tokio::test]
async fn a_load_in_flight_during_a_set_is_not_stored() {
    let (world, gate) = (World::new(), Gate::new());
    let before = Crowd::of(5, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    assert!(world.cache.set("a", "set".to_owned()).await);
    gate.open();
    before.results().await;
    world.wait_until_idle().await;
    assert_eq!(world.get("a").await.as_deref(), Some("set"));
}

#[tokio::test]
async fn a_set_replaces_an_absent_entry() {
    let world = World::new();
    let absent = |_| async { Ok::<_, Error>(None) };
    assert_eq!(world.cache.get_or_load_with("a", absent).await.expect("an answer"), None);
    world.cache.set("a", "set".to_owned()).await;
    assert_eq!(*world.load("a").await.expect("a value"), "set");
    assert_eq!(world.loads(), 0);
}
