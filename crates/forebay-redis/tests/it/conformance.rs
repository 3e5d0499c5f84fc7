//! Conformance test of tiers.

use forebay_engine::{SystemClock, check_tier};

use crate::fixture::{Fixture, server, settings};

#[tokio::test]
async fn the_redis_tier_conforms() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    check_tier(&fixture.tier, &SystemClock).await.unwrap();
}
