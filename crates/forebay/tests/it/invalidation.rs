//! What was removed is not seen again, and what was set is not undone.

use forebay::{Error, Options};
use forebay_testkit::gate::Gate;

use crate::world::{Crowd, World, reached, secs};

async fn tagged(world: &World, key: &str, tags: &[&str]) {
    let options = Options::new().tags(tags.iter().copied());
    world.cache.with(options).set(key, key.to_owned()).await;
}

#[tokio::test]
async fn removing_reaches_what_it_names_and_nothing_else() {
    let world = World::new();
    for (key, tags) in [("a", &["red"][..]), ("b", &["red", "blue"]), ("c", &["blue"]), ("d", &[])]
    {
        tagged(&world, key, tags).await;
    }
    assert!(world.cache.remove("d").await);
    assert!(!world.cache.remove("d").await, "it is gone already");
    world.cache.invalidate_tag("red").await;
    assert_eq!((world.get("a").await, world.get("b").await), (None, None));
    assert_eq!(world.get("c").await.as_deref(), Some("c"));
    tagged(&world, "a", &["red"]).await;
    assert_eq!(world.get("a").await.as_deref(), Some("a"), "it came after");
    world.cache.invalidate_tags(["red", "blue"]).await;
    assert_eq!((world.get("a").await, world.get("c").await), (None, None));
    tagged(&world, "d", &[]).await;
    world.cache.invalidate_all().await;
    assert_eq!(world.get("d").await, None);
}

#[tokio::test]
async fn what_has_expired_serves_where_stale_values_do() {
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
async fn a_load_that_was_overtaken_by_a_removal_is_not_kept() {
    for all in [false, true] {
        let (world, gate) = (World::new(), Gate::new());
        let aboard = Crowd::of(5, |_| world.load_behind("a", &gate)).await;
        reached(&gate, 1).await;
        if all {
            world.cache.invalidate_all().await;
        } else {
            world.cache.remove("a").await;
        }
        let later = Crowd::of(5, |_| world.load_behind("a", &gate)).await;
        reached(&gate, 2).await;
        gate.open();
        for told in aboard.told().await {
            assert_eq!(*told.expect("a value"), "1");
        }
        for told in later.told().await {
            assert_eq!(*told.expect("a value"), "2", "not what was true before");
        }
        assert_eq!(world.get("a").await.as_deref(), Some("2"));
        assert_eq!(world.loads(), 2);
    }
}

#[tokio::test]
async fn a_load_that_was_overtaken_by_a_set_is_not_kept() {
    let (world, gate) = (World::new(), Gate::new());
    let aboard = Crowd::of(5, |_| world.load_behind("a", &gate)).await;
    reached(&gate, 1).await;
    assert!(world.cache.set("a", "set".to_owned()).await);
    gate.open();
    aboard.told().await;
    world.until_nothing_is_loading().await;
    assert_eq!(world.get("a").await.as_deref(), Some("set"));
}

#[tokio::test]
async fn a_value_that_was_set_takes_the_place_of_nothing() {
    let world = World::new();
    let absent = |_| async { Ok::<_, Error>(None) };
    assert_eq!(world.cache.get_or_load_with("a", absent).await.expect("an answer"), None);
    world.cache.set("a", "set".to_owned()).await;
    assert_eq!(*world.load("a").await.expect("a value"), "set");
    assert_eq!(world.loads(), 0);
}
