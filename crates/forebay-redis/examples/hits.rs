//! What a hit costs: readings of 1 KiB by 64 tasks at once, through the tier and through the bare
//! client, turn by turn on the same server.
//!
//! ```text
//! redis-server --port 7777 --save "" &
//! cargo run --release -p forebay-redis --example hits -- redis://127.0.0.1:7777
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use forebay_core::{Key, KeyBuf, Lifetime, Meta};
use forebay_engine::{Clock, SystemClock, Tier};
use forebay_redis::{Codec, EndpointSettings, Redis, Settings};
use futures_util::future::try_join_all;
use redis::AsyncCommands as _;

const TASKS: usize = 64;
const KEYS: usize = 10_000;
const BODY: usize = 1 << 10;
const TURN: Duration = Duration::from_secs(2);
const TURNS: usize = 3;

/// Readings a second, and microseconds of this process's processor time for each.
struct Figures {
    rate: f64,
    cpu_us: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).context("the URL of a server")?;
    let client = redis::Client::open(&*url)?;
    let bare = client.get_multiplexed_async_connection().await?;
    let mut settings = Settings::new(EndpointSettings::at(&*url));
    settings.sealing.packing.codec = Codec::None;
    let clock = Arc::new(SystemClock);
    let tier = Redis::connect(settings, clock.clone(), Arc::new(()))?;
    while !tier.endpoints()[0].is_up {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fill(&tier, &mut bare.clone(), clock.now()).await?;
    for turn in 1..=TURNS {
        let one = measure(async |number| {
            let value: Option<Vec<u8>> = bare.clone().get(format!("bare:{number}")).await?;
            anyhow::ensure!(value.is_some_and(|value| value.len() == BODY), "not there");
            Ok(())
        })
        .await?;
        let other = measure(async |number| {
            let stored = tier.open(key(number).borrowed()).await?;
            anyhow::ensure!(stored.is_some(), "not there");
            Ok(())
        })
        .await?;
        println!(
            "turn {turn}: bare {:.0}/s {:.2} us, tier {:.0}/s {:.2} us, ratio {:.2}",
            one.rate,
            one.cpu_us,
            other.rate,
            other.cpu_us,
            other.rate / one.rate
        );
    }
    Ok(())
}

fn key(number: usize) -> Key {
    let mut key = KeyBuf::new("site");
    key.part(format!("/items/{number}").as_bytes());
    key.borrowed().to_key()
}

async fn fill(
    tier: &Redis,
    bare: &mut redis::aio::MultiplexedConnection,
    now: forebay_core::Timestamp,
) -> anyhow::Result<()> {
    let body = Bytes::from(vec![b'x'; BODY]);
    let meta = Meta::new(now, Lifetime::fresh(Duration::from_secs(600)));
    for number in 0..KEYS {
        let () = bare.set(format!("bare:{number}"), &body[..]).await?;
        let mut writer = tier.begin(key(number).borrowed(), &meta, &Bytes::new()).await?;
        writer.write(body.clone()).await?;
        writer.commit().await?;
    }
    Ok(())
}

async fn measure(read: impl AsyncFn(usize) -> anyhow::Result<()>) -> anyhow::Result<Figures> {
    let (began, cpu) = (Instant::now(), cpu()?);
    let tasks = (0..TASKS).map(async |task| {
        let (mut number, mut done) = (task * 7_919, 0_u64);
        while began.elapsed() < TURN {
            number = (number * 31 + 17) % KEYS;
            read(number).await?;
            done += 1;
        }
        anyhow::Ok(done)
    });
    let done: u64 = try_join_all(tasks).await?.into_iter().sum();
    let done = done as f64;
    let spent = (self::cpu()? - cpu).as_secs_f64();
    Ok(Figures { rate: done / began.elapsed().as_secs_f64(), cpu_us: spent * 1e6 / done })
}

/// Processor time of this process, user and system, all threads.
fn cpu() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    let own = |text: &str| text.split_whitespace().next().and_then(|first| first.parse().ok());
    let mut nanos: u64 = own(&stat).context("schedstat")?;
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if !path.ends_with(std::process::id().to_string()) {
            nanos += own(&std::fs::read_to_string(path.join("schedstat"))?).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanos))
}
