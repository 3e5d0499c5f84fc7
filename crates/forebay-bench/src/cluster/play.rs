//! The cases, one after the other, each with caches and a Redis of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_testkit::client::{Client, Reply, Request, Timings};
use forebay_testkit::launch::Signal;
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::RedisLaunch;
use futures_util::future::try_join_all;

use super::fleet::Fleet;
use super::tap::Tap;
use crate::report::Table;

/// Binary and rounds.
pub(crate) struct Plan {
    pub(crate) binary: PathBuf,
    pub(crate) rounds: usize,
}

pub(crate) async fn measure(plan: &Plan, table: &mut Table) -> anyhow::Result<()> {
    for crowd in [LARGE, SMALL] {
        eprintln!("measuring: {} × {}", crowd.caches, crowd.callers);
        crowds(crowd, plan, table).await?;
    }
    eprintln!("measuring: waits for another instance");
    followers(plan, table).await?;
    eprintln!("measuring: commands to Redis");
    commands(plan, table).await?;
    eprintln!("measuring: the holder of a lease is killed");
    killed(plan, table).await?;
    eprintln!("measuring: purges on another instance");
    written(plan, table).await?;
    eprintln!("measuring: without Redis");
    unreachable(plan, table).await
}

/// Time that the origin takes.
const LOAD: Duration = Duration::from_millis(50);

/// Redis, and the one that is origin and clients.
const OTHERS: usize = 2;

/// Number of rounds in which a process is killed, each with new instances.
const KILLS: usize = 3;

/// Time in which pending commands may still arrive after all clients have been answered.
const SETTLE: Duration = Duration::from_millis(200);

/// Callers of one cold key, and how much later than a load they have it.
#[derive(Clone, Copy)]
struct Crowd {
    caches: usize,
    callers: usize,
    p50: Option<Duration>,
    p99: Duration,
}

const LARGE: Crowd = Crowd {
    caches: 8,
    callers: 250,
    p50: Some(Duration::from_millis(10)),
    p99: Duration::from_millis(30),
};

const SMALL: Crowd = Crowd { caches: 4, callers: 25, p50: None, p99: Duration::from_millis(5) };

fn fresh(body: impl Into<String>) -> Answer {
    Answer::ok(body.into()).field("Cache-Control", "max-age=600")
}

async fn slow_origin() -> anyhow::Result<Origin> {
    Ok(Origin::always(fresh("x".repeat(1_024)).delay_exactly(LOAD)).await?)
}

async fn crowds(crowd: Crowd, plan: &Plan, table: &mut Table) -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, slow_origin().await?);
    let fleet = Fleet::start(crowd.caches, &origin, &redis.url(), &plan.binary).await?;
    let (mut times, mut most) = (Vec::new(), 0);
    let reads_before = reads(&fleet).await?;
    for round in 0..plan.rounds {
        let before = origin.requests();
        let replies = fleet.crowd(crowd.callers, &format!("/round/{round}")).await?;
        times.extend(replies.iter().filter_map(Reply::end_after));
        most = most.max(origin.requests() - before);
    }
    let reads = reads(&fleet).await? - reads_before;
    let name = format!("{} × {}, {} rounds", crowd.caches, crowd.callers, plan.rounds);
    table.count(format!("{name}: most loads in a round"), most as f64, 1.0);
    let mut loads = Vec::new();
    for _ in 0..plan.rounds {
        loads.push(load(&origin).await?);
    }
    table.shown(format!("{name}: a load by itself, p99"), Timings::new(loads).p99());
    let times = Timings::new(times);
    let processes = crowd.caches + OTHERS;
    if let Some(p50) = crowd.p50 {
        table.time(format!("{name}: p50"), times.p50(), LOAD + p50, processes);
    }
    table.time(format!("{name}: p99"), times.p99(), LOAD + crowd.p99, processes);
    let each = reads as f64 / (plan.rounds * crowd.caches) as f64;
    table.count(format!("{name}: reads of Redis for each process"), each, 1.0);
    warm(crowd, plan, &fleet, table).await
}

/// Measures the time of a request that a client sends to the origin directly.
async fn load(origin: &Origin) -> anyhow::Result<Duration> {
    let mut client = Client::connect(origin.address()).await?;
    let begun = Instant::now();
    Ok(ask(&mut client, &Request::get("/alone")).await? - begun)
}

/// Time of an equal crowd without any wait: no crowd can be faster than that with a
/// load before it, on this machine.
async fn warm(crowd: Crowd, plan: &Plan, fleet: &Fleet, table: &mut Table) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..plan.rounds {
        let replies = fleet.crowd(crowd.callers, "/round/0").await?;
        times.extend(replies.iter().filter_map(Reply::end_after));
    }
    let times = Timings::new(times);
    let name = format!("{} × {}, all hits, without a load", crowd.caches, crowd.callers);
    table.shown(format!("{name}: p50"), times.p50());
    table.shown(format!("{name}: p99"), times.p99());
    Ok(())
}

/// Returns the number of lookups in Redis by all instances.
async fn reads(fleet: &Fleet) -> anyhow::Result<u64> {
    fleet.sum("forebay_tier_seconds_count{op=\"open\"}").await
}

/// Measures the delay between the responses to the leader's client and to a follower's. The leader
/// answers before
/// its fill is acknowledged: what is measured is at least what is promised.
async fn followers(plan: &Plan, table: &mut Table) -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, slow_origin().await?);
    let fleet = Fleet::start(2, &origin, &redis.url(), &plan.binary).await?;
    let mut clients = Vec::new();
    for cache in &fleet.0 {
        clients.push(Client::connect(cache.address()).await?);
    }
    let mut later = Vec::new();
    for round in 0..plan.rounds {
        let request = Request::get(&format!("/round/{round}"));
        let ask = |client| ask(client, &request);
        let done = try_join_all(clients.iter_mut().map(ask)).await?;
        let first = done.iter().min().copied();
        later.extend(first.and_then(|first| done.iter().max().map(|last| *last - first)));
    }
    let later = Timings::new(later);
    let name = "follower, 1 KiB, after its leader's client";
    table.time(format!("{name}: p50"), later.p50(), Duration::from_micros(500), 2 + OTHERS);
    table.time(format!("{name}: p99"), later.p99(), Duration::from_millis(3), 2 + OTHERS);
    let polls = fleet.sum("forebay_lease_total{result=\"elsewhere\"}").await?;
    let each = polls as f64 / plan.rounds as f64;
    table.count("follower: times that it asked who loads", each, 1.0);
    Ok(())
}

/// Sends a request and returns the time at which the response is complete.
async fn ask(client: &mut Client, request: &Request) -> anyhow::Result<Instant> {
    let reply = client.ask(request).await?;
    anyhow::ensure!(reply.status == 200, "{}", reply.status_line);
    Ok(Instant::now())
}

async fn commands(plan: &Plan, table: &mut Table) -> anyhow::Result<()> {
    let alone = commands_of(1, plan).await?;
    let eight = commands_of(8, plan).await?;
    table.count("commands for a cold key, one cache", alone, 5.0);
    table.count("commands for each cache that waits", (eight - alone) / 7.0, 3.0);
    Ok(())
}

async fn commands_of(caches: usize, plan: &Plan) -> anyhow::Result<f64> {
    let (redis, origin) = (RedisLaunch::new().start().await?, slow_origin().await?);
    let fleet = Fleet::start(caches, &origin, &redis.url(), &plan.binary).await?;
    fleet.crowd(1, "/first").await?;
    tokio::time::sleep(SETTLE).await;
    // Commands that name an entry or its leases; those of the bus do not depend on requests.
    let tap = Tap::open(redis.address(), &["forebay:d:{", "forebay:l:{"]).await?;
    for round in 0..plan.rounds {
        fleet.crowd(1, &format!("/round/{round}")).await?;
    }
    tokio::time::sleep(SETTLE).await;
    Ok(tap.seen() as f64 / plan.rounds as f64)
}

async fn killed(plan: &Plan, table: &mut Table) -> anyhow::Result<()> {
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        longest = longest.max(kill_one(plan).await?);
    }
    let bound = Duration::from_millis(1_550);
    table.time("holder of the lease killed: next load after", longest, bound, 0);
    Ok(())
}

async fn kill_one(plan: &Plan) -> anyhow::Result<Duration> {
    let redis = RedisLaunch::new().start().await?;
    let requests = AtomicU64::new(0);
    let origin = Origin::start(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::hang(),
        _ => fresh("second"),
    })
    .await?;
    let fleet = Fleet::start(2, &origin, &redis.url(), &plan.binary).await?;
    let request = Request::get("/page");
    let [mut doomed, mut waiting] = [
        Client::connect(fleet.0[0].address()).await?,
        Client::connect(fleet.0[1].address()).await?,
    ];
    doomed.send(&request).await?;
    origin.wait_requests(1).await?;
    waiting.send(&request).await?;
    while fleet.sum("forebay_lease_total{result=\"elsewhere\"}").await? == 0 {}
    fleet.0[0].signal(Signal::Kill).await?;
    let begun = Instant::now();
    origin.wait_requests(2).await?;
    let took = begun.elapsed();
    let reply = waiting.reply().await?;
    anyhow::ensure!(reply.status == 200, "{}", reply.status_line);
    Ok(took)
}

/// From the acknowledgement of a purge here to the first answer there that is new.
async fn written(plan: &Plan, table: &mut Table) -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let version = Arc::new(AtomicU64::new(0));
    let shown = version.clone();
    let answer = move |_: &_| fresh(shown.load(Ordering::SeqCst).to_string());
    let origin = Origin::start(answer).await?;
    let fleet = Fleet::start(2, &origin, &redis.url(), &plan.binary).await?;
    let admin = fleet.0[0].admin().context("no admin listener")?;
    let mut here = Client::connect(admin).await?;
    let mut there = Client::connect(fleet.0[1].address()).await?;
    let page = Request::get("/page").field("Host", "shop.example");
    let purge = Request::new("POST", "/purge").field("Host", admin.to_string());
    let purge = purge.field("Content-Type", "application/json");
    let purge = purge.body(r#"{"url":"http://shop.example/page","hard":true}"#);
    let mut times = Vec::new();
    for written in 1..=plan.rounds as u64 {
        there.ask(&page).await?;
        version.store(written, Ordering::SeqCst);
        let reply = here.ask(&purge).await?;
        anyhow::ensure!(reply.status == 200, "{}: {}", reply.status_line, reply.text());
        let begun = Instant::now();
        while there.ask(&page).await?.text() != written.to_string() {}
        times.push(begun.elapsed());
    }
    let times = Timings::new(times);
    table.time("purged here, new there: p50", times.p50(), Duration::from_millis(1), 2 + OTHERS);
    table.time("purged here, new there: p99", times.p99(), Duration::from_millis(20), 2 + OTHERS);
    Ok(())
}

async fn unreachable(plan: &Plan, table: &mut Table) -> anyhow::Result<()> {
    const CACHES: usize = 4;
    let (redis, origin) = (RedisLaunch::new().start().await?, slow_origin().await?);
    let fleet = Fleet::start(CACHES, &origin, &redis.url(), &plan.binary).await?;
    redis.kill().await?;
    let mut most = 0;
    for round in 0..plan.rounds.min(10) {
        let before = origin.requests();
        fleet.crowd(25, &format!("/round/{round}")).await?;
        most = most.max(origin.requests() - before);
    }
    let name = format!("Redis gone, {CACHES} × 25: most loads of a key");
    table.count(name, most as f64, CACHES as f64);
    Ok(())
}
