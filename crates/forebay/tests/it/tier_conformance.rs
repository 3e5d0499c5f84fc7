//! Conformance test of tiers, on the tiers for tests and on the tier of the example.

use std::sync::Arc;

use forebay::testkit::{FaultyTier, check_tier};
use forebay::tier::SystemClock;

#[path = "../../examples/directory_tier.rs"]
#[expect(dead_code, reason = "the example has a main function")]
mod directory_tier;

#[tokio::test]
async fn the_tier_for_tests_conforms() {
    check_tier(&FaultyTier::new(), &SystemClock).await.unwrap();
}

#[tokio::test]
async fn the_tier_of_the_example_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tier");
    let tier = directory_tier::DirectoryTier::open(&path, Arc::new(SystemClock)).unwrap();
    check_tier(&tier, &SystemClock).await.unwrap();
}
