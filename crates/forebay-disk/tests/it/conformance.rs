//! Conformance test of tiers.

use std::sync::Arc;

use forebay_disk::Limits;
use forebay_engine::{SystemClock, check_tier};

use crate::fixture::{Fixture, MIB};

#[tokio::test]
async fn the_disk_tier_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tier");
    let fixture = Fixture::open_with(&path, Limits::of(64 * MIB), Arc::new(SystemClock));
    check_tier(&*fixture.disk, &SystemClock).await.unwrap();
}
