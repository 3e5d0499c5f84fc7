//! Entries evicted from memory, and values of other programs in Redis.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use forebay_core::frame::{self, Frame};
use forebay_core::{KeyBuf, Lifetime, Meta};
use forebay_engine::{Clock as _, SystemClock};
use forebay_redis::envelope::{Annotations, Retention, seal};
use forebay_redis::{Codec, Packing, Sealing};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::memory;
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::task::JoinSet;

use super::ground::{self, Cache, Row, Scale};

/// Clients that ask side by side.
const ABREAST: usize = 16;

const ORIGIN: Duration = Duration::ZERO;

/// Maximum additional memory for reading a hostile value.
const MEMORY_MAX: u64 = 2 << 20;

/// Decompressed size of a decompression bomb.
const BOMB: usize = 64 << 20;

/// Offset of the digest in a value. A purge token and the compressed frame follow it.
const DIGEST_AT: usize = 43;

/// Purge token of an entry that was not purged.
const NO_TOKEN: [u8; 8] = [0; 8];

/// Keys that have left memory come back from Redis.
pub(crate) async fn evicted(binary: &Path, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let (origin, redis) = (ground::origin(ORIGIN).await?, RedisLaunch::new().start().await?);
    let top = format!(
        "[memory]\nsize = \"1MiB\"\n[redis]\nurl = \"{}\"\n{}",
        redis.url(),
        scale.patience
    );
    let cache = ground::configured(binary, &origin, &top).await?;
    ask_for_all(&cache, scale.keys).await?;
    cache.wait_stored(scale.keys as u64).await?;
    let loads = origin.requests();
    ensure!(loads == scale.keys as u64, "{loads} loads for {} keys", scale.keys);
    ask_for_all(&cache, scale.keys).await?;
    let (again, hits) = (origin.requests() - loads, cache.hits().await?);
    Ok(vec![Row {
        case: format!("{} keys evicted from memory", scale.keys),
        measured: format!("{hits} came back from Redis, {again} origin fetches"),
        bound: "0 origin fetches".to_owned(),
        // Some are still in memory.
        counted: again == 0 && hits > 0,
        timed: true,
    }])
}

async fn ask_for_all(cache: &Cache, keys: usize) -> anyhow::Result<()> {
    let mut asking = JoinSet::new();
    for first in 0..ABREAST {
        let mut client = Client::connect(cache.process.address()).await?;
        asking.spawn(async move {
            for key in (first..keys).step_by(ABREAST) {
                let path = format!("/{key}");
                let reply = client.ask(&Request::get(&path)).await?;
                let is_right = reply.status == 200 && reply.body().starts_with(path.as_bytes());
                ensure!(is_right, "{path} was answered {}", reply.status_line);
            }
            anyhow::Ok(())
        });
    }
    asking.join_all().await.into_iter().collect()
}

/// Values that are none of ours, or not what they say: each is a miss and a count, and costs
/// little memory.
pub(crate) async fn hostile(binary: &Path, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let (origin, redis) = (ground::origin(ORIGIN).await?, RedisLaunch::new().start().await?);
    let mut cache = ground::sharing(binary, &origin, &redis, scale.patience).await?;
    // Everything that is made once is there before anything is measured.
    for path in ["/warm", "/warm/too"] {
        plant(&redis, path, &sealed(path)).await?;
        cache.get(path).await?;
        // It is a miss all the same: it does not say which purges it knew of.
        let rejected = cache.metric("forebay_tier_rejected_total").await?;
        ensure!(rejected == 0, "what is sound is rejected");
    }
    let mut rows = Vec::new();
    for (what, reason, value) in values()? {
        let path = format!("/{}", what.replace(' ', "-"));
        plant(&redis, &path, &value(&path)).await?;
        let rejections = format!("forebay_tier_rejected_total{{reason=\"{reason}\"}}");
        let rejected = cache.metric(&rejections).await?;
        let (loads, before) = (origin.requests(), forget_peak(&cache)?);
        cache.get(&path).await?;
        let grown = memory(cache.process.pid(), "VmHWM")?.saturating_sub(before);
        let loads = origin.requests() - loads;
        let rejected = cache.metric(&rejections).await? - rejected;
        rows.push(Row {
            case: format!("in Redis: {what}"),
            measured: format!("{loads} load, {rejected} {reason}, {} KiB", grown >> 10),
            bound: format!("a miss, a count, {} MiB", MEMORY_MAX >> 20),
            // It is met by who reads, and by who asks for the right to load.
            counted: loads == 1 && (1..=2).contains(&rejected),
            timed: grown <= MEMORY_MAX,
        });
    }
    Ok(rows)
}

type Made = Box<dyn Fn(&str) -> Vec<u8>>;

fn values() -> anyhow::Result<Vec<(&'static str, &'static str, Made)>> {
    let bomb = zstd::bulk::compress(&vec![0; BOMB], 1).context("make a bomb")?;
    let garbage: Vec<u8> = (0..100_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    Ok(vec![
        ("garbage", "foreign", Box::new(move |_| garbage.clone())),
        ("64 MiB of garbage", "foreign", Box::new(|_| vec![b'x'; BOMB])),
        (
            "another version",
            "other-version",
            Box::new(|path| {
                let mut value = sealed(path);
                value[4] += 1;
                value
            }),
        ),
        (
            "a truncated value",
            "damaged",
            Box::new(|path| {
                let mut value = sealed(path);
                value.truncate(value.len() - 5);
                value
            }),
        ),
        ("a value of another key", "damaged", Box::new(|_| sealed("/elsewhere"))),
        ("a bomb of 64 MiB", "unbelievable", {
            let bomb = bomb.clone();
            Box::new(move |path| with_bomb(path, &bomb, BOMB as u64))
        }),
        (
            "a bomb that claims less",
            "damaged",
            Box::new(move |path| with_bomb(path, &bomb, bomb.len() as u64 * 256)),
        ),
    ])
}

fn name(path: &str) -> String {
    format!("forebay:d:{{default|http|test.example|{path}|}}")
}

/// A value as the cache itself would store it, but for its head, which is none.
fn sealed(path: &str) -> Vec<u8> {
    let mut key = KeyBuf::new("default");
    key.part(b"http").part(b"test.example").part(path.as_bytes());
    let (now, kept) = (SystemClock.now(), Duration::from_secs(60));
    let (meta, body) = (Meta::new(now, Lifetime::fresh(kept)), [Bytes::from_static(b"body")]);
    let frame = Frame { key: key.borrowed(), meta: &meta, head: b"", body: &body };
    let Ok(frame) = frame::encode(&frame, now) else { return Vec::new() };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let retention = Retention { ttl: kept, from: Some(since - Duration::from_millis(5)) };
    let packing = Packing { codec: Codec::None, threshold: 0 };
    let sealing = Sealing { object_max: 1 << 20, packing, key: None };
    seal(&frame, &name(path), retention, &Annotations::default(), &sealing)
}

/// A sound header, as an enemy would make it, in front of a bomb.
fn with_bomb(path: &str, bomb: &[u8], claimed: u64) -> Vec<u8> {
    let mut header = sealed(path);
    header.truncate(DIGEST_AT);
    header[5] = 1;
    header[15..23].copy_from_slice(&claimed.to_le_bytes());
    let digest = twox_hash::XxHash3_64::oneshot(&[name(path).as_bytes(), &header].concat());
    [&header[..], &digest.to_le_bytes(), &NO_TOKEN, bomb].concat()
}

async fn plant(redis: &RedisServer, path: &str, value: &[u8]) -> anyhow::Result<()> {
    let name = name(path);
    redis.ask(&[b"SET", name.as_bytes(), value, b"PX", b"60000"]).await?;
    Ok(())
}

/// Resets the peak of a process's memory, and returns it.
fn forget_peak(cache: &Cache) -> anyhow::Result<u64> {
    let file = format!("/proc/{}/clear_refs", cache.process.pid());
    std::fs::write(&file, "5").with_context(|| format!("write {file}"))?;
    memory(cache.process.pid(), "VmHWM")
}
