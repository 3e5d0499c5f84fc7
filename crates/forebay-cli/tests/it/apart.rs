//! No client reads what was made for another one, over the tiers below memory and several caches.

use std::net::SocketAddr;

use forebay_testkit::apart::{Apart, Caches};
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::Origin;
use forebay_testkit::redis::RedisLaunch;
use tempfile::TempDir;

use crate::cluster::{PATIENT, wait_ready};
use crate::world::{ConfigFile, end, metric, serving};

/// Histories in a test; `FOREBAY_SOAK_ROUNDS` multiplies them.
const HISTORIES: u64 = 8;

/// So small that most of what a history stores is read from the tiers below.
const MEMORY: &str = "[memory]\nsize = \"32KiB\"\n";

fn histories() -> u64 {
    let rounds = std::env::var("FOREBAY_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    HISTORIES * rounds.unwrap_or(1)
}

/// A cache with a disk of its own, and the Redis of all.
struct Cache {
    launched: Launched,
    #[expect(dead_code, reason = "it is held")]
    folders: (ConfigFile, TempDir),
}

impl Cache {
    async fn start(origin: &Origin, redis: Option<&str>) -> anyhow::Result<Self> {
        let disk = tempfile::tempdir()?;
        let path = disk.path().display();
        let redis = redis.map(|url| format!("[redis]\nurl = \"{url}\"\n{PATIENT}\n"));
        let top = format!(
            "{MEMORY}[disk]\npath = \"{path}\"\nsize = \"64MiB\"\n{}",
            redis.unwrap_or_default()
        );
        let file = ConfigFile::of(&serving(&origin.url(), &top, ""))?;
        Ok(Self { launched: file.serve().await?, folders: (file, disk) })
    }
}

async fn every_client_reads_its_own(count: usize, redis: Option<&str>) -> anyhow::Result<()> {
    let apart = Apart::start().await?;
    let mut caches = Vec::new();
    for _ in 0..count {
        caches.push(Cache::start(apart.origin(), redis).await?);
    }
    if redis.is_some() {
        for cache in &caches {
            wait_ready(&cache.launched, count).await?;
        }
    }
    let addresses: Vec<SocketAddr> = caches.iter().map(|one| one.launched.address()).collect();
    let mut asked = Caches::new(addresses, |_| {});
    for seed in 0..histories() {
        apart.history(seed, &mut asked).await?;
    }
    drop(asked);
    let mut below = 0;
    for cache in &caches {
        for tier in ["disk", "redis"] {
            let hits = format!("tier=\"{tier}\",result=\"hit\"");
            below += metric(&cache.launched, "forebay_lookups_total", &hits).await?;
        }
    }
    assert!(below > 0, "nothing was read from the tiers below memory");
    for cache in caches {
        end(cache.launched, Signal::Term).await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_client_reads_its_own_from_a_disk() -> anyhow::Result<()> {
    every_client_reads_its_own(1, None).await
}

#[tokio::test]
async fn every_client_reads_its_own_from_three_caches_with_disks_and_a_redis() -> anyhow::Result<()>
{
    let redis = RedisLaunch::new().start().await?;
    every_client_reads_its_own(3, Some(&format!("redis://{}", redis.address()))).await
}
