//! First reads of values by a cache of forebay that has them in one lower tier.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use forebay::codec::{Codec, MessagePack};
use forebay::{Cache, Disk, EndpointSettings, Memory, Redis, RedisSettings, SharingSettings};
use forebay_testkit::redis::RedisLaunch;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Timeouts of Redis while a read from it is measured.
const PATIENCE: Duration = Duration::from_secs(2);
const DISK: u64 = 1 << 30;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    Memory,
    Disk,
    Redis,
}

impl Through {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Redis];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Redis => "Redis",
        }
    }

    /// Seconds of a read of each of so many keys, by a cache that has the value in this tier:
    /// read, verify, decompress and decode.
    pub(crate) async fn reads<V>(
        self,
        codec: &Codec<MessagePack>,
        value: &V,
        keys: usize,
    ) -> Result<Vec<f64>>
    where
        V: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static,
    {
        let redis = RedisLaunch::new().start().await?;
        let folder = tempfile::tempdir()?;
        let cache = async || -> Result<(Cache<V>, Option<Disk>)> {
            let builder = Cache::builder("values").memory(Memory::entries(1_000_000));
            let builder = builder.ttl(Duration::from_secs(600));
            Ok(match self {
                // It has no bytes, so a codec is refused.
                Self::Memory => (builder.build()?, None),
                Self::Disk => {
                    let disk = Disk::open(folder.path(), DISK).await?;
                    (builder.codec(codec.clone()).disk(disk.clone()).build()?, Some(disk))
                }
                Self::Redis => {
                    let redis = patient(redis.url()).await?;
                    (builder.codec(codec.clone()).redis(redis).build()?, None)
                }
            })
        };
        let (writer, disk) = cache().await?;
        for number in 0..keys {
            let stored = writer.set(number.to_string(), value.clone()).await;
            ensure!(stored, "a value is not stored");
        }
        writer.flush().await;
        let reader = if self == Self::Memory {
            writer
        } else {
            drop(writer);
            if let Some(disk) = disk {
                disk.close().await;
            }
            cache().await?.0
        };
        let mut times = Vec::new();
        for number in 0..keys {
            let key = number.to_string();
            let begun = Instant::now();
            let found = reader.get(key).await;
            times.push(begun.elapsed().as_secs_f64());
            ensure!(found.is_some_and(|found| *found == *value), "it is not in {}", self.name());
        }
        Ok(times)
    }
}

/// A Redis with which a busy machine is not taken for a server that fails.
async fn patient(url: String) -> Result<Redis> {
    let (read_timeout, write_timeout) = (PATIENCE, PATIENCE);
    let endpoint = EndpointSettings { read_timeout, write_timeout, ..EndpointSettings::at(url) };
    let sharing = Some(SharingSettings::default());
    Ok(Redis::with(RedisSettings { sharing, ..RedisSettings::new(endpoint) }).await?)
}
