//! No client reads what was made for another one, whatever its origin says.

use std::time::Duration;

use forebay_testkit::apart::{Apart, Caches};

use crate::door::Door;

/// Histories for each way to configure a site; `FOREBAY_SOAK_ROUNDS` multiplies them.
const HISTORIES: u64 = 250;

/// How many histories share one cache. Their URLs differ, so this is only about speed.
const PER_CACHE: u64 = 50;

/// One way to configure a site: bodies of 1,536 bytes are larger than 1 KiB.
const SETTINGS: [&[(&str, &str)]; 4] = [
    &[],
    &[("object_max", "\"1KiB\"")],
    &[("coalesce", "false")],
    &[("variants_max", "2"), ("stale_on_disconnect_max", "\"3600s\"")],
];

fn histories() -> u64 {
    let rounds = std::env::var("FOREBAY_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    HISTORIES * rounds.unwrap_or(1)
}

async fn every_client_reads_its_own(settings: usize) -> anyhow::Result<()> {
    let apart = Apart::start().await?;
    let first = settings as u64 * 1_000_000_000;
    let mut opened = None;
    for number in 0..histories() {
        if number.is_multiple_of(PER_CACHE) {
            let door = Door::open(apart.origin().address(), SETTINGS[settings]).await?;
            let clock = door.clock.clone();
            let advance = move |by: Duration| clock.step(by);
            opened = Some((Caches::new(vec![door.address], advance), door));
        }
        let Some((caches, _)) = &mut opened else { continue };
        apart.history(first + number, caches).await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_client_reads_its_own_by_default() -> anyhow::Result<()> {
    every_client_reads_its_own(0).await
}

#[tokio::test]
async fn every_client_reads_its_own_where_bodies_are_too_large() -> anyhow::Result<()> {
    every_client_reads_its_own(1).await
}

#[tokio::test]
async fn every_client_reads_its_own_where_nothing_is_coalesced() -> anyhow::Result<()> {
    every_client_reads_its_own(2).await
}

#[tokio::test]
async fn every_client_reads_its_own_where_few_variants_are_kept() -> anyhow::Result<()> {
    every_client_reads_its_own(3).await
}
