//! Cost of a hit: reads of 1 KiB by 64 tasks at once, through the tier and through the bare client, in
//! turns on the same server; on a runtime with a thread per core, and on one with a single thread.

use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_engine::Tier as _;
use forebay_redis::{Codec, EndpointSettings, Redis, Settings};
use forebay_testkit::redis::RedisLaunch;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::ground::put;
use super::slow::{connected, key};
use crate::environment::Options;
use crate::report::{Table, Verdict};

const TASKS: usize = 64;
const KEYS: usize = 10_000;
const BODY: usize = 1 << 10;
/// Short and many: what else the machine does falls on both of two that follow each other.
const TURN: Duration = Duration::from_millis(250);
const TURNS: usize = 21;
const TURNS_QUICK: usize = 7;
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum additional time of a hit through the tier, relative to the bare client.
const RATIO_MIN: f64 = 0.9;

/// Maximum CPU time of a hit, in microseconds.
const CPU_MAX: f64 = 4.0;

/// Readings a second, and microseconds of this process's processor time for each.
#[derive(Clone, Copy)]
struct Figures {
    rate: f64,
    cpu_us: f64,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let keeper = Runtime::new()?;
    let server = keeper.block_on(RedisLaunch::new().start())?;
    let title =
        format!("{TASKS} tasks, {KEYS} keys of {BODY} bytes; bare client and tier in turns");
    let columns = ["runtime", "bare/s", "us", "tier/s", "us CPU", "ratio", "lowest", "highest"];
    let mut table = Table::new(title, &columns);
    for (name, mut builder) in [
        ("a thread per core", Builder::new_multi_thread()),
        ("one thread", Builder::new_current_thread()),
    ] {
        let runtime = builder.enable_all().build()?;
        let turns = options.pick(TURNS, TURNS_QUICK);
        runtime.block_on(compare(name, &server.url(), turns, &mut table))?;
    }
    Ok(table)
}

async fn compare(name: &str, url: &str, turns: usize, table: &mut Table) -> anyhow::Result<()> {
    let client = redis::Client::open(url)?;
    let bare = client.get_multiplexed_async_connection().await?;
    // What a machine that does other things does to an answer is not what is measured.
    let (read_timeout, write_timeout) = (PATIENCE, PATIENCE);
    let endpoint = EndpointSettings { read_timeout, write_timeout, ..EndpointSettings::at(url) };
    let mut settings = Settings::new(endpoint);
    settings.sealing.packing.codec = Codec::None;
    let tier = connected(settings).await?;
    let body = Bytes::from(vec![b'x'; BODY]);
    for number in 0..KEYS {
        let () = bare.clone().set(number, &body[..]).await?;
        put(&tier, key(&number.to_string()).borrowed(), body.clone()).await?;
    }
    let mut all = Vec::new();
    for _ in 0..turns {
        let bare = bare.clone();
        let one = measure(move |number| read_bare(bare.clone(), number)).await?;
        let tier = tier.clone();
        let other = measure(move |number| read_tier(tier.clone(), number)).await?;
        all.push((one, other));
    }
    all.sort_by(|(a, b), (c, d)| (b.rate / a.rate).total_cmp(&(d.rate / c.rate)));
    let (least, most) = (all[0], all[all.len() - 1]);
    let (one, other) = all[all.len() / 2];
    let ratio = |(one, other): (Figures, Figures)| other.rate / one.rate;
    let holds = ratio((one, other)) >= RATIO_MIN && other.cpu_us <= CPU_MAX;
    let mut cells = vec![name.to_owned()];
    cells.extend(
        [one, other]
            .iter()
            .flat_map(|figures| [format!("{:.0}", figures.rate), format!("{:.2}", figures.cpu_us)]),
    );
    cells.extend([(one, other), least, most].map(|pair| format!("{:.2}", ratio(pair))));
    let bound = format!("ratio ≥ {RATIO_MIN}, {CPU_MAX} us CPU");
    table.row(cells, bound, Verdict::of(holds));
    Ok(())
}

async fn read_bare(mut bare: MultiplexedConnection, number: usize) -> anyhow::Result<()> {
    let value: Option<Vec<u8>> = bare.get(number).await?;
    anyhow::ensure!(value.is_some_and(|value| value.len() == BODY), "not there");
    Ok(())
}

async fn read_tier(tier: Redis, number: usize) -> anyhow::Result<()> {
    let stored = tier.open(key(&number.to_string()).borrowed()).await?;
    anyhow::ensure!(stored.is_some(), "not there: {:?}", tier.counts());
    Ok(())
}

async fn measure<F, R>(read: R) -> anyhow::Result<Figures>
where
    F: Future<Output = anyhow::Result<()>> + Send,
    R: Fn(usize) -> F + Clone + Send + 'static,
{
    let (began, cpu) = (Instant::now(), cpu());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let read = read.clone();
        tasks.spawn(async move {
            let (mut number, mut done) = (task * 7_919, 0_u64);
            while began.elapsed() < TURN {
                number = (number * 31 + 17) % KEYS;
                read(number).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(ended) = tasks.join_next().await {
        done += ended??;
    }
    let done = done as f64;
    let spent = (self::cpu() - cpu).as_secs_f64();
    Ok(Figures { rate: done / began.elapsed().as_secs_f64(), cpu_us: spent * 1e6 / done })
}

/// Processor time of this process, user and system, all threads.
fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_nanos(spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64)
}
