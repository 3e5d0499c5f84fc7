//! Tests that no client reads a response made for another client.

use std::time::Duration;

use forebay_testkit::apart::{Apart, Caches};

use crate::server::TestServer;

/// Number of histories per configuration; `FOREBAY_SOAK_ROUNDS` multiplies it.
const HISTORIES: u64 = 50;

/// Number of histories that share one cache, for speed; their URLs differ.
const PER_CACHE: u64 = 50;

/// Configurations. Bodies have 1,536 bytes, more than the `object_max` of 1 KiB.
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
            let server = TestServer::start(apart.origin().address(), SETTINGS[settings]).await?;
            let clock = server.clock.clone();
            let advance = move |by: Duration| clock.step(by);
            opened = Some((Caches::new(vec![server.address], advance), server));
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
async fn every_client_reads_its_own_with_bodies_above_the_maximum() -> anyhow::Result<()> {
    every_client_reads_its_own(1).await
}

#[tokio::test]
async fn every_client_reads_its_own_without_coalescing() -> anyhow::Result<()> {
    every_client_reads_its_own(2).await
}

#[tokio::test]
async fn every_client_reads_its_own_with_few_variants() -> anyhow::Result<()> {
    every_client_reads_its_own(3).await
}
