//! Cost of a hit with disk and Redis tiers below memory.
//!
//! Buffers of tier writes are allocated and freed while a cache fills, so that its entries lie
//! scattered over the heap, each on several pages; those of a cache without tiers lie in a row.
//! That costs a hit more than all that the tiers add to its path. So two caches are filled by
//! turns, one with tiers and one without, and lie in the same heap: what is between them is what
//! tiers cost. How much the heap does stands in the table beside it.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use forebay::codec::{Codec, Raw};
use forebay::{Cache, Tier};
use forebay_disk::{Disk, Limits};
use forebay_engine::SystemClock;
use forebay_redis::{EndpointSettings, Settings};
use forebay_testkit::redis::RedisLaunch;

use super::subjects::{Hit, Row, counted, loading, row, runtime, with_lifetimes};
use crate::tier::slow::connected;

pub(crate) fn load(keys: &[String]) -> Hit {
    let Filled { tiered, below, .. } = Filled::by_turns(keys);
    loading(tiered, below)
}

/// Without tiers, and in a heap as scattered.
pub(crate) fn beside(keys: &[String]) -> Hit {
    let Filled { tiered, plain, below } = Filled::by_turns(keys);
    loading(plain, (tiered, below))
}

struct Filled {
    tiered: Cache<Row>,
    plain: Cache<Row>,
    below: Below,
}

impl Filled {
    fn by_turns(keys: &[String]) -> Self {
        let (tiered, below) = build().expect("a disk and a Redis");
        let plain = with_lifetimes(counted()).build().expect("it can work");
        runtime().block_on(async {
            for key in keys {
                for cache in [&tiered, &plain] {
                    assert!(cache.set(key, row()).await, "it takes it");
                }
            }
        });
        Self { tiered, plain, below }
    }
}

/// Servers and directories that must outlive the cache.
type Below = Box<dyn Send + Sync>;

fn build() -> Result<(Cache<Row>, Below)> {
    let runtime = runtime();
    let server = runtime.block_on(RedisLaunch::new().start())?;
    let settings = Settings::new(EndpointSettings::at(server.url()));
    let redis = runtime.block_on(connected(settings))?;
    let folder = tempfile::tempdir().context("a folder for the disk tier")?;
    let disk = Disk::open(folder.path(), Limits::of(256 << 20), Arc::new(SystemClock))?;
    let tiers: [Arc<dyn Tier>; 2] = [Arc::new(disk), Arc::new(redis)];
    let cache = with_lifetimes(counted()).tiers(Codec::new(Raw), tiers).build()?;
    Ok((cache, Box::new((runtime, server, folder))))
}
