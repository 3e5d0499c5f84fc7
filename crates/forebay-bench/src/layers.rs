//! Libraries with memory and Redis: reads by tier, by size, under memory pressure, and after an
//! invalidation in another process.
//!
//! All libraries run as processes with the same commands; a time is taken inside of the process.

mod purges;
pub(crate) mod through;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use forebay::codec::{Codec, MessagePack};
use forebay_testkit::launch::memory;
use forebay_testkit::redis::{RedisLaunch, RedisServer, Reply};

use crate::environment::{Options, median, quantile};
use crate::report::{Better, Bound, Comparison, Table, Unit};
use crate::rivals::Rival;
use crate::rivals::catalog::{LIBRARIES, Library, OURS, OURS_SHARED, unavailable};
use crate::rivals::peer::{Peer, Setup, seconds};
use crate::stampede::libraries::note;
use through::Through;

const KIB: usize = 1 << 10;
const KEYS: usize = 10_000;
const TASKS: usize = 100;

/// Values of a published measurement under memory pressure, and how many of them fit into the bound.
const VALUES: usize = 180;
const ROOM: u64 = 25;
const VALUE: usize = 256 << 10;

/// Maximum time until an invalidation is visible in another process.
const VISIBLE_MAX: Duration = Duration::from_secs(2);

const ARTICLE: &str = "Go article";
const LAYERCACHE: &str = "layercache";

/// Figures of one library, or the reason why there are none.
type Figures<T> = Vec<(&'static Library, T)>;

/// Plays a case with each library, one after the other.
async fn each<T>(
    libraries: impl Iterator<Item = &'static Library>,
    rivals: &mut Vec<Rival>,
    play: impl AsyncFn(&'static Library, &mut Vec<Rival>) -> Result<T>,
) -> Result<Figures<T>> {
    let mut all = Vec::new();
    for library in libraries {
        eprintln!("measuring: {}", library.name);
        match play(library, rivals).await {
            Ok(figures) => all.push((library, figures)),
            Err(error) if library.is_ours() => return Err(error.context(library.name)),
            Err(error) => note(rivals, Rival::missing(library.name, format!("{error:#}"))),
        }
    }
    Ok(all)
}

fn row<T>(row: Comparison, all: &Figures<T>, figure: impl Fn(&T) -> f64) -> Comparison {
    all.iter().fold(row, |row, (library, figures)| match library.is_ours() {
        true => row.ours(vec![figure(figures)]),
        false => row.rival(library.name, vec![figure(figures)]),
    })
}

fn alone() -> impl Iterator<Item = &'static Library> {
    LIBRARIES.iter().filter(|library| !library.is_shared)
}

fn shared() -> impl Iterator<Item = &'static Library> {
    LIBRARIES.iter().filter(|library| library.is_shared)
}

async fn redis() -> Result<RedisServer> {
    RedisLaunch::new().start().await
}

async fn start(library: &Library, setup: &Setup, rivals: &mut Vec<Rival>) -> Result<Peer> {
    let peer = Peer::start(library, setup).await?;
    note(rivals, peer.rival.clone());
    Ok(peer)
}

/// Waits until what was written behind an answer is in Redis.
async fn settle(peer: &mut Peer, redis: &RedisServer, keys: u64) -> Result<()> {
    let begun = Instant::now();
    loop {
        let size = redis.ask(&["DBSIZE"]).await?;
        if matches!(size, Reply::Number(size) if size >= keys as i64) {
            return Ok(());
        }
        ensure!(begun.elapsed() < VISIBLE_MAX * 10, "{} has not written all", peer.rival.name);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reads a second, and the 50th and 99th percentile of their seconds.
struct Reads {
    rate: f64,
    p50: f64,
    p99: f64,
}

async fn reads(peer: &mut Peer, millis: u64, seed: u64) -> Result<Reads> {
    let answer = peer.ask(&format!("reads {KEYS} {TASKS} {millis} {seed}")).await?;
    let number = |name: &str| answer[name].as_f64().with_context(|| format!("no {name}"));
    let times = seconds(&answer)?;
    let rate = number("done")? / number("seconds")?;
    Ok(Reads { rate, p50: quantile(&times, 0.5), p99: quantile(&times, 0.99) })
}

/// `tiers`: a published measurement of reads from memory, from Redis, and from both.
pub(crate) fn run_tiers(options: &Options) -> Result<Vec<Table>> {
    let millis = options.pick(2_000, 500);
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut rivals = unavailable();
        let fill = format!("fill {KEYS} {KIB}");
        let memory = each(alone(), &mut rivals, async |library, rivals| {
            let mut peer = start(library, &Setup::new(""), rivals).await?;
            peer.ask(&fill).await?;
            reads(&mut peer, millis, 1).await
        });
        let memory = memory.await?;
        let tiered = each(shared(), &mut rivals, async |library, rivals| {
            let redis = redis().await?;
            let setup = Setup::new(&redis.url());
            let mut writer = start(library, &setup, rivals).await?;
            writer.ask(&fill).await?;
            settle(&mut writer, &redis, KEYS as u64).await?;
            let warm = reads(&mut writer, millis, 1).await?;
            // Every process begins with an empty memory: each key is read from Redis once.
            let mut reader = Peer::start(library, &setup).await?;
            let cold = reads(&mut reader, 100, 1).await?;
            Ok((warm, cold))
        });
        let tiered = tiered.await?;
        let title = format!("{KEYS} keys of 1 KiB by Zipf's law, {TASKS} tasks");
        let mut table = Table::comparisons(title);
        let rate = |name: &str, published: f64| {
            Comparison::new(format!("{name}: reads per second"), Unit::PerSecond, Better::Higher)
                .published(ARTICLE, published)
        };
        let time = |name: &str, published: f64| {
            Comparison::new(name, Unit::Seconds, Better::Lower).published(ARTICLE, published)
        };
        table.compare(row(rate("memory", 12e6), &memory, |one| one.rate));
        table.compare(row(time("memory: p50", 48e-9), &memory, |one| one.p50));
        table.compare(row(time("memory: p99", 210e-9), &memory, |one| one.p99));
        table.compare(row(rate("memory and Redis, warm", 10.5e6), &tiered, |one| one.0.rate));
        table.compare(row(time("memory and Redis, warm: p50", 52e-9), &tiered, |one| one.0.p50));
        table.compare(row(time("memory and Redis, warm: p99", 380e-9), &tiered, |one| one.0.p99));
        table.compare(row(rate("first 0.1 s of a process", 78e3), &tiered, |one| one.1.rate));
        table.compare(row(time("first 0.1 s: p50", 0.7e-3), &tiered, |one| one.1.p50));
        table.compare(row(time("first 0.1 s: p99", 2.4e-3), &tiered, |one| one.1.p99));
        let times = on_disk(KIB, KEYS).await?;
        let on_disk = |what: &str, at: f64| {
            let name = format!("disk, one task: {what}");
            let row = Comparison::new(name, Unit::Seconds, Better::Lower);
            row.ours(vec![quantile(&times, at)])
        };
        table.compare(on_disk("p50", 0.5));
        table.compare(on_disk("p99", 0.99));
        let rate = times.len() as f64 / times.iter().sum::<f64>();
        let row_of_rate =
            Comparison::new("disk, one task: reads per second", Unit::PerSecond, Better::Higher);
        table.compare(row_of_rate.ours(vec![rate]));
        let rate_of = |all: &Figures<Reads>, name| {
            all.iter().find(|(library, _)| library.name == name).map(|(_, reads)| reads.rate)
        };
        let ours = tiered.iter().find(|(library, _)| library.name == OURS_SHARED);
        if let Some((local, (_, (tiered, _)))) = rate_of(&memory, OURS).zip(ours) {
            table.compare(
                Comparison::new("time with Redis to time without", Unit::Times, Better::Lower)
                    .published(ARTICLE, 12.0 / 10.5)
                    .ours(vec![local / tiered.rate])
                    .bound(Bound::AtMost(1.15)),
            );
        }
        table.compare(
            Comparison::new("memcached as a tier", Unit::PerSecond, Better::Neither),
        );
        let note = "forebay has no memcached tier; each process reads with its own tasks: one thread in \
                    Node.js, all cores in Go and Rust";
        Ok(vec![table.note(note).with_rivals(rivals)])
    })
}

/// Length of a value, its name, and published times in seconds from memory and from Redis.
type Payload = (usize, &'static str, Option<(f64, f64)>);

/// `payload`: hits in memory and in Redis by size.
pub(crate) fn run_payload(options: &Options) -> Result<Vec<Table>> {
    const SIZES: [Payload; 3] = [
        (KIB, "1 KiB", Some((0.012e-3, 0.200e-3))),
        (64 * KIB, "64 KiB", None),
        (1_000_000, "1 MB", Some((0.018e-3, 4.170e-3))),
    ];
    let keys = options.pick(50, 15);
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut rivals = unavailable();
        let mut table = Table::comparisons("a hit by size of the value: median");
        for (size, name, published) in SIZES {
            let figures = each(shared(), &mut rivals, async |library, rivals| {
                let redis = redis().await?;
                let setup = Setup::new(&redis.url());
                let mut writer = start(library, &setup, rivals).await?;
                writer.ask(&format!("fill {keys} {size}")).await?;
                settle(&mut writer, &redis, keys).await?;
                let mut reader = Peer::start(library, &setup).await?;
                let (mut first, mut second) = (Vec::new(), Vec::new());
                for times in [&mut first, &mut second] {
                    for key in 0..keys {
                        let key = format!("key:{key}");
                        let loaded = reader.load(&key, 1, Duration::ZERO, size).await?;
                        ensure!(loaded.loads == 0, "{} loads a stored value", library.name);
                        times.extend(loaded.times);
                    }
                }
                Ok((median(&first), median(&second)))
            });
            let figures = figures.await?;
            let time = |name: String| Comparison::new(name, Unit::Seconds, Better::Lower);
            let mut memory = time(format!("{name} in memory"));
            let mut redis = time(format!("{name} in Redis"));
            if let Some((of_memory, of_redis)) = published {
                memory = memory.published(LAYERCACHE, of_memory);
                redis = redis.published(LAYERCACHE, of_redis);
            }
            table.compare(row(memory, &figures, |one| one.1));
            table.compare(row(redis, &figures, |one| one.0));
            let disk = time(format!("{name} on disk"));
            table.compare(disk.ours(vec![median(&on_disk(size, keys as usize).await?)]));
        }
        Ok(vec![table.with_rivals(rivals)])
    })
}

/// Seconds of the first reads of values on disk.
async fn on_disk(size: usize, keys: usize) -> Result<Vec<f64>> {
    Through::Disk.reads(&Codec::new(MessagePack), &"x".repeat(size), keys).await
}

/// `memory-pressure`: more values than fit into the bound.
pub(crate) fn run_pressure(_: &Options) -> Result<Vec<Table>> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut rivals = unavailable();
        let play = async |library: &'static Library, rivals: &mut Vec<Rival>| {
            let redis = redis().await?;
            let mut setup = Setup::new(&redis.url());
            // The overhead of an entry counts as well: less than a kibibyte for each.
            setup.memory = ROOM * (VALUE as u64 + 1024);
            let mut peer = start(library, &setup, rivals).await?;
            let before = memory(peer.pid, "VmRSS")?;
            let mut loads = [0, 0];
            for round in &mut loads {
                for key in 0..VALUES {
                    let loaded = peer.load(&format!("key:{key}"), 1, Duration::ZERO, VALUE).await?;
                    *round += loaded.loads;
                }
                if library.is_shared {
                    settle(&mut peer, &redis, VALUES as u64).await?;
                }
            }
            let grown = memory(peer.pid, "VmRSS")?.saturating_sub(before);
            Ok((loads[1] as f64, grown as f64))
        };
        let all =
            each(LIBRARIES.iter().filter(|one| one.name != "foyer"), &mut rivals, play).await?;
        let part = |is_shared: bool| -> Figures<(f64, f64)> {
            all.iter().filter(|(one, _)| one.is_shared == is_shared).copied().collect()
        };
        let title = format!("{VALUES} values of 256 KiB, room for {ROOM}");
        let mut table = Table::comparisons(title)
            .note("resident memory of the process grows by the values, by garbage, and by buffers");
        for (is_shared, name) in [(false, "memory"), (true, "memory and Redis")] {
            let mut loads = Comparison::new(
                format!("{name}: loads at a second visit"),
                Unit::Count,
                Better::Lower,
            );
            if is_shared {
                loads = loads.published(LAYERCACHE, 0.0).bound(Bound::AtMost(0.0));
            }
            table.compare(row(loads, &part(is_shared), |one| one.0));
            let name = format!("{name}: growth of resident memory");
            let grown = Comparison::new(name, Unit::Bytes, Better::Lower);
            table.compare(row(grown, &part(is_shared), |one| one.1));
        }
        Ok(vec![table.with_rivals(rivals)])
    })
}

/// `invalidation`: time until a removal is visible in another process, and cost of a tag.
pub(crate) fn run_invalidation(options: &Options) -> Result<Vec<Table>> {
    let rounds = options.pick(100, 20);
    let members = [1_000, options.pick(1_000_000, 100_000)];
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut rivals = unavailable();
        let seen = each(shared(), &mut rivals, async |library, rivals| {
            let redis = redis().await?;
            let setup = Setup::new(&redis.url());
            let mut here = start(library, &setup, rivals).await?;
            let mut there = Peer::start(library, &setup).await?;
            let mut times = Vec::new();
            for round in 0..rounds {
                times.push(removed(&mut here, &mut there, round).await?);
            }
            Ok(times)
        });
        let seen = seen.await?;
        let mut table =
            Table::comparisons("a key removed in one process, until another one loads it again");
        let time = |name: &str| Comparison::new(name, Unit::Seconds, Better::Lower);
        let p50 = time("removed here, new there: p50").published(LAYERCACHE, 0.247e-3);
        table.compare(row(p50, &seen, |times| quantile(times, 0.5)));
        let p99 = time("removed here, new there: p99").bound_for(Bound::AtMost(0.020), 4);
        table.compare(row(p99, &seen, |times| quantile(times, 0.99)));
        let tagged = ["forebay", "bentocache"];
        for count in members {
            let figures = each(
                alone().filter(|library| tagged.contains(&library.name)),
                &mut rivals,
                async |library, rivals| {
                    let mut setup = Setup::new("");
                    setup.memory = 4 << 30;
                    let mut peer = start(library, &setup, rivals).await?;
                    peer.ask(&format!("fill {count} 16 all")).await?;
                    let begun = Instant::now();
                    peer.ask("tag all").await?;
                    Ok(begun.elapsed().as_secs_f64())
                },
            );
            let name = format!("a tag of {count} members, memory");
            let row_ = time(&name).bound(Bound::AtMost(0.005));
            table.compare(row(row_, &figures.await?, |time| *time));
        }
        let note = format!(
            "a library without a bus serves the removed value until its lifetime ends: shown as {}",
            Unit::Seconds.show(VISIBLE_MAX.as_secs_f64())
        );
        let purges = purges::measure(options.pick(50, 10)).await?;
        Ok(vec![table.note(note).with_rivals(rivals), purges])
    })
}

/// Removes a key that both processes have, and returns the seconds until the other one misses it.
async fn removed(here: &mut Peer, there: &mut Peer, round: usize) -> Result<f64> {
    let key = format!("key:{round}");
    here.load(&key, 1, Duration::ZERO, KIB).await?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    there.load(&key, 1, Duration::ZERO, KIB).await?;
    here.ask(&format!("remove {key}")).await?;
    let begun = Instant::now();
    while begun.elapsed() < VISIBLE_MAX {
        if there.load(&key, 1, Duration::ZERO, KIB).await?.loads == 1 {
            return Ok(begun.elapsed().as_secs_f64());
        }
    }
    Ok(VISIBLE_MAX.as_secs_f64())
}
