//! The same hit where a disk and a Redis stand below memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use forebay::codec::{Codec, Raw};
use forebay::{Cache, Memory, Tier};
use forebay_disk::{Disk, Limits};
use forebay_engine::SystemClock;
use forebay_redis::{EndpointSettings, Redis, Settings};
use forebay_testkit::redis::RedisLaunch;

use crate::subjects::{CAPACITY, Hit, Row, fill, loading, runtime, with_lifetimes};

/// How long a Redis that was just started may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn load(keys: &[String]) -> Hit {
    let (cache, below) = build().expect("a disk and a Redis");
    fill(&cache, keys);
    let hit = loading(cache);
    Box::new(move |key| {
        let _below = &below;
        hit(key);
    })
}

/// What has to be there as long as the cache is.
type Below = Box<dyn Send + Sync>;

fn build() -> Result<(Cache<Row>, Below)> {
    let runtime = runtime();
    let server = runtime.block_on(RedisLaunch::new().start())?;
    let redis = Redis::connect(
        Settings::new(EndpointSettings::at(&server.url())),
        Arc::new(SystemClock),
        Arc::new(()),
    )?;
    let begun = Instant::now();
    while !redis.endpoints()[0].is_up {
        ensure!(begun.elapsed() < PATIENCE, "the Redis that was started does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
    let folder = tempfile::tempdir().context("a folder for the disk tier")?;
    let disk = Disk::open(folder.path(), Limits::of(256 << 20), Arc::new(SystemClock))?;
    let tiers: [Arc<dyn Tier>; 2] = [Arc::new(disk), Arc::new(redis)];
    let builder = Cache::builder("users").memory(Memory::entries(CAPACITY as u64));
    let cache = with_lifetimes(builder).tiers(Codec::new(Raw), tiers).build()?;
    Ok((cache, Box::new((runtime, server, folder))))
}
