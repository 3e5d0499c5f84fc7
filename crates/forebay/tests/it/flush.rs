//! Before a process ends: nothing is under way any more.

use forebay::codec::{Codec, MessagePack};
use forebay::testkit::{Fault, FaultyTier};
use forebay_testkit::gate::Gate;
use futures_util::FutureExt;

use crate::world::{Crowd, World, reached, secs, within_patience};

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_load_whose_caller_has_left() {
    let (world, gate) = (World::new(), Gate::new());
    let caller = Crowd::of(1, |_| world.load_behind("a", &gate)).await;
    reached(&gate, 1).await;
    caller.leave().await;
    let mut settling = Box::pin(world.cache.flush());
    assert!(settling.as_mut().now_or_never().is_none(), "its load is under way");
    assert_eq!(world.cache.stats().loading, 1);
    gate.open();
    within_patience(settling).await;
    assert_eq!(world.cache.stats().loading, 0);
    assert_eq!(world.get("a").await.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_refresh_behind_an_answer() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(60)));
    assert_eq!(world.load("a").await.unwrap().as_str(), "1");
    world.clock.advance(secs(70));
    assert_eq!(world.load("a").await.unwrap().as_str(), "1");
    within_patience(world.cache.flush()).await;
    assert_eq!(world.get("a").await.as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_what_is_written_to_tiers_until_their_time_is_over() {
    let tier = FaultyTier::new();
    let world = World::with(|builder| builder.tiers(Codec::new(MessagePack), [tier.shared()]));
    tier.set_fault(Fault::HangsWriting);
    assert_eq!(world.load("a").await.unwrap().as_str(), "1");
    assert_eq!(world.cache.stats().tier_failures, 0, "it is being written");
    within_patience(world.cache.flush()).await;
    assert_eq!(world.cache.stats().tier_failures, 1, "it was given up");
    assert!(tier.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_does_nothing_is_settled_at_once() {
    assert!(World::new().cache.flush().now_or_never().is_some());
}
