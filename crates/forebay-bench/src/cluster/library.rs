//! The cases, one after the other, each with processes and a Redis of its own.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_testkit::client::Timings;
use forebay_testkit::launch::{Launch, Signal};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use futures_util::future::try_join_all;

use super::peer::{self, Outcome, SharedNotes};
use super::peers::{Called, PeerGroup};
use super::{filled, floor};
use crate::report::Table;

/// Argument that makes this program a [peer](super::peer).
pub(crate) const PEER: &str = "peer";

/// Runs a peer until its parent ends.
pub(crate) fn run_peer(redis: &str) -> anyhow::Result<()> {
    let noted = SharedNotes::default();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async { peer::run(filled::cache(redis, &noted)?, noted.clone()).await })
}

pub(crate) async fn measure(rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    for (processes, callers) in [(2, 25), (4, 25), (4, 250)] {
        eprintln!("measuring: {processes} processes × {callers}");
        crowds(Crowd { processes, callers }, rounds, table).await?;
    }
    eprintln!("measuring: waits for another process");
    followers(rounds, table).await?;
    eprintln!("measuring: the same with Redis alone");
    floor::messages(rounds, table).await?;
    eprintln!("measuring: the process that loads is killed");
    killed(table).await?;
    eprintln!("measuring: writes in another process");
    written(rounds, table).await?;
    eprintln!("measuring: without Redis");
    unreachable(rounds, table).await
}

/// Time of a load.
const LOAD: Duration = Duration::from_millis(50);

/// Redis, and the one that asks.
const OTHERS: usize = 2;

/// No fill takes this long.
const FILL_MAX: Duration = Duration::from_secs(10);

/// Number of rounds in which a process is killed, each with new processes.
const KILLS: usize = 3;

/// So many callers in each of so many processes.
#[derive(Clone, Copy)]
struct Crowd {
    processes: usize,
    callers: usize,
}

impl Crowd {
    /// Maximum delay between the end of a load and the response to a caller, 99th percentile.
    fn p99(self) -> Duration {
        Duration::from_millis(if self.callers > 25 { 30 } else { 5 })
    }
}

async fn peers(count: usize, redis: &RedisServer) -> anyhow::Result<PeerGroup> {
    let (url, binary) = (redis.url(), std::env::current_exe()?);
    PeerGroup::start(count, || Ok(Launch::binary(&binary).args([PEER, &url]))).await
}

fn check(called: &[Called], value: &str) -> anyhow::Result<()> {
    let expected = Outcome::Value(value.to_owned());
    let wrong = called.iter().find(|one| one.outcome != expected);
    anyhow::ensure!(wrong.is_none(), "not {value}: {wrong:?}");
    Ok(())
}

async fn crowds(crowd: Crowd, rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    let Crowd { processes, callers } = crowd;
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(processes, &redis).await?;
    let (mut times, mut loads, mut most) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        let key = format!("key:{round}");
        let called =
            peers.ask(&format!("{key} {callers} say:{round} {}", LOAD.as_millis())).await?;
        check(&called, &round.to_string())?;
        times.extend(called.iter().map(Called::took));
        loads.extend(peers.take_notes().await?.loads);
        most = most.max(peers.loads(&key));
    }
    let name = format!("library, {processes} × {callers}, {rounds} rounds");
    table.count(format!("{name}: most loads in a round"), most as f64, 1.0);
    table.shown(format!("{name}: a load by itself, p99"), Timings::new(loads).p99());
    let times = Timings::new(times);
    let all = processes + OTHERS;
    if callers > 25 {
        let p50 = LOAD + Duration::from_millis(10);
        table.time(format!("{name}: p50"), times.p50(), p50, all);
    } else {
        table.shown(format!("{name}: p50"), times.p50());
    }
    table.time(format!("{name}: p99"), times.p99(), LOAD + crowd.p99(), all);
    Ok(())
}

/// Measures the delay between the acknowledged write of the leader and the response to a follower.
/// Its bound also holds from the response to the leader's own caller, who does not wait for the
/// write.
async fn followers(rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(2, &redis).await?;
    let (mut later, mut after_caller) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let value = "x".repeat(1_024);
        let called = peers.ask(&format!("key:{round} 1 say:{value} {}", LOAD.as_millis())).await?;
        check(&called, &value)?;
        let ended = || called.iter().map(|one| one.ended);
        let (first, last) = ended().min().zip(ended().max()).context("nobody has ended")?;
        after_caller.push(last - first);
        later.push(last.saturating_sub(filled(&peers).await?));
    }
    for (since, later) in [("fill is acknowledged", later), ("caller", after_caller)] {
        let (later, p50) = (Timings::new(later), Duration::from_micros(500));
        let name = format!("library, follower, 1 KiB, after its leader's {since}");
        table.time(format!("{name}: p50"), later.p50(), p50, 2 + OTHERS);
        table.time(format!("{name}: p99"), later.p99(), Duration::from_millis(3), 2 + OTHERS);
    }
    Ok(())
}

/// Returns the time at which Redis acknowledged the only write of a round, which may be after all
/// calls have ended.
async fn filled(peers: &PeerGroup) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        match peers.take_notes().await?.fills[..] {
            [filled] => return Ok(filled),
            [] => anyhow::ensure!(begun.elapsed() < FILL_MAX, "nothing was filled"),
            ref several => anyhow::bail!("filled {} times", several.len()),
        }
    }
}

async fn killed(table: &mut Table) -> anyhow::Result<()> {
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        longest = longest.max(kill_one().await?);
    }
    let bound = Duration::from_millis(1_550);
    table.time("library, holder of the lease killed: next load after", longest, bound, 0);
    Ok(())
}

async fn kill_one() -> anyhow::Result<Duration> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(2, &redis).await?;
    let [doomed, waiting] = peers.processes() else { anyhow::bail!("two") };
    let (_, took, answered) = tokio::join!(
        doomed.ask("key 1 say:never held"),
        async {
            doomed.loading("key", 1).await?;
            doomed.signal(Signal::Kill).await?;
            let begun = Instant::now();
            waiting.loading("key", 1).await?;
            anyhow::Ok(begun.elapsed())
        },
        async {
            doomed.loading("key", 1).await?;
            waiting.ask("key 25 say:other 0").await
        },
    );
    check(&answered?, "other")?;
    took
}

/// From the acknowledgement of a write here to the first answer there that is new.
async fn written(rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(2, &redis).await?;
    let [here, there] = peers.processes() else { anyhow::bail!("two") };
    let mut times = Vec::new();
    for round in 0..rounds {
        let (see, set) = (format!("see key {round}"), format!("set key {round}"));
        let (seen, written) = tokio::try_join!(there.done(&see), here.done(&set))?;
        times.push(seen.1.saturating_sub(written.1));
        let stays = there.get("key").await?;
        anyhow::ensure!(stays == Outcome::Value(round.to_string()), "it went back: {stays:?}");
    }
    let times = Timings::new(times);
    let name = "library, written here, read there";
    table.time(format!("{name}: p50"), times.p50(), Duration::from_millis(1), 2 + OTHERS);
    table.time(format!("{name}: p99"), times.p99(), Duration::from_millis(20), 2 + OTHERS);
    Ok(())
}

async fn unreachable(rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    const PROCESSES: usize = 4;
    let redis = RedisLaunch::new().start().await?;
    let peers = peers(PROCESSES, &redis).await?;
    redis.kill().await?;
    let mut most = 0;
    for round in 0..rounds.min(10) {
        let key = format!("key:{round}");
        let what = format!("{key} 25 say:alone {}", LOAD.as_millis());
        let called =
            try_join_all(peers.processes().iter().map(|process| process.ask(&what))).await?;
        called.iter().try_for_each(|called| check(called, "alone"))?;
        most = most
            .max(peers.processes().iter().map(|process| process.loads(&key)).max().unwrap_or(0));
    }
    let name = format!("library, Redis gone, {PROCESSES} × 25: most loads of a key and process");
    table.count(name, most as f64, 1.0);
    Ok(())
}
