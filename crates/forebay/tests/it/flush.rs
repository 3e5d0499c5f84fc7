//! `Cache::flush`: waiting for loads and writes before a process ends.

use forebay::codec::{Codec, MessagePack};
use forebay::testkit::{Fault, FaultyTier};
use forebay_testkit::gate::Gate;
use futures_util::FutureExt;

use crate::world::{Crowd, World, secs, wait_for_loads, within_timeout};

#[tokio::test(start_paused = true)]
async fn flush_waits_for_a_load_whose_caller_was_dropped() {
    let (world, gate) = (World::new(), Gate::new());
    let caller = Crowd::of(1, |_| world.load_behind("a", &gate)).await;
    wait_for_loads(&gate, 1).await;
    caller.abort().await;
    let mut flushing = Box::pin(world.cache.flush());
    assert!(flushing.as_mut().now_or_never().is_none(), "a load is in flight");
    assert_eq!(world.cache.stats().loading, 1);
    gate.open();
    within_timeout(flushing).await;
    assert_eq!(world.cache.stats().loading, 0);
    assert_eq!(world.get("a").await.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn flush_waits_for_a_background_refresh() {
    let world = World::with(|builder| builder.stale_while_revalidate(secs(60)));
    assert_eq!(world.load("a").await.unwrap().as_str(), "1");
    world.clock.advance(secs(70));
    assert_eq!(world.load("a").await.unwrap().as_str(), "1");
    within_timeout(world.cache.flush()).await;
    assert_eq!(world.get("a").await.as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn flush_waits_for_tier_writes_until_they_time_out() {
    let tier = FaultyTier::new();
    let world = World::with(|builder| builder.tiers(Codec::new(MessagePack), [tier.shared()]));
    tier.set_fault(Fault::HangsWriting);
    assert_eq!(world.load("a").await.unwrap().as_str(), "1");
    assert_eq!(world.cache.stats().tier_failures, 0, "the write is in flight");
    within_timeout(world.cache.flush()).await;
    assert_eq!(world.cache.stats().tier_failures, 1, "the write timed out");
    assert!(tier.is_empty());
}

#[tokio::test(start_paused = true)]
async fn flush_of_an_idle_cache_returns_at_once() {
    assert!(World::new().cache.flush().now_or_never().is_some());
}
