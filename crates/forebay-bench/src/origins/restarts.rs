//! Rolling restart of four instances with a shared tier and a warm-up, under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::RedisLaunch;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::traffic::{Servers, Traffic, count_other};
use super::{POLL, STATE_MAX, cache};
use crate::environment::Options;
use crate::report::{Bound, Table};

const INSTANCES: usize = 4;

/// Pages: each expires several times.
const PAGES: u64 = 400;

/// Lifetimes in seconds, which the origin gives to its responses in turn. With one lifetime, all
/// pages expire at once, and the number of requests in a window depends on its start and end.
const LIFETIMES_S: [u64; 5] = [2, 5, 3, 6, 4];

/// Wait until the pages expire at different times: twice the longest lifetime.
const SETTLED: Duration = Duration::from_secs(12);

/// Requests per second.
const RATE: u32 = 400;

/// Requests to the origin, relative to those without a restart.
const MORE_MAX: f64 = 1.1;

/// Maximum time for a stop.
const END_MAX: Duration = Duration::from_secs(20);

/// Instance that reads the list of its pages before it is ready.
async fn instance(origin: &Origin, redis: &str, folder: &TempDir) -> Result<Launched> {
    let list = folder.path().join("urls.txt");
    let top = format!("ready_after_warm = \"{}\"\n[redis]\nurl = \"{redis}\"", list.display());
    let cache = cache(&top, &format!("origin = \"{}\"", origin.url())).await?;
    let begun = Instant::now();
    while cache.get_admin("/readyz").await?.status != 200 {
        ensure!(begun.elapsed() < STATE_MAX, "an instance is not ready");
        tokio::time::sleep(POLL).await;
    }
    Ok(cache)
}

pub(super) async fn run(options: &Options) -> Result<Table> {
    let span = Duration::from_secs(options.pick(20, 8));
    let answers = LIFETIMES_S.map(|seconds| {
        let answer = Answer::ok("x".repeat(1_000));
        answer.field("Cache-Control", format!("max-age={seconds}"))
    });
    let turn = |serial: u64| usize::try_from(serial).unwrap_or(0) % LIFETIMES_S.len();
    let origin = Origin::start(move |request| answers[turn(request.serial)].clone()).await?;
    let (redis, folder) = (RedisLaunch::new().start().await?, tempfile::tempdir()?);
    // The host of the clients of this program.
    let urls: String = (0..PAGES).map(|page| format!("http://bench/{page}\n")).collect();
    std::fs::write(folder.path().join("urls.txt"), urls)?;
    let mut caches = Vec::new();
    for _ in 0..INSTANCES {
        caches.push(instance(&origin, &redis.url(), &folder).await?);
    }
    let servers: Servers = Arc::new(Mutex::new(caches.iter().map(Launched::address).collect()));
    // A page goes to another instance each time, as behind a load balancer.
    let traffic =
        Traffic::start(RATE, &servers, |number| format!("/{}", (number + number / PAGES) % PAGES));
    tokio::time::sleep(SETTLED).await;
    let rate = |before: u64, begun: Instant| {
        (origin.requests() - before) as f64 / begun.elapsed().as_secs_f64()
    };
    let (before, begun) = (origin.requests(), Instant::now());
    tokio::time::sleep(span).await;
    let steady = rate(before, begun);
    let (before, begun) = (origin.requests(), Instant::now());
    for (index, cache) in caches.iter_mut().enumerate() {
        // The load balancer takes it out before it stops.
        servers.lock().remove(0);
        cache.signal(Signal::Term).await?;
        let status = cache.wait_exit(END_MAX).await?;
        ensure!(status.success(), "instance {index} ended with {status}");
        *cache = instance(&origin, &redis.url(), &folder).await?;
        servers.lock().push(cache.address());
        tokio::time::sleep(span / 8).await;
    }
    let restarted = rate(before, begun);
    let replies = traffic.end().await?;
    let title = format!(
        "rolling restart of {INSTANCES} instances with a warm-up: {PAGES} pages of 2 to 6 s, \
         {RATE} requests/s"
    );
    let mut table = Table::figures(title);
    table.figure("requests/s to the origin, steady", steady, "", Bound::None);
    table.figure("requests/s to the origin, during the restarts", restarted, "", Bound::None);
    table.figure("ratio", restarted / steady, "", Bound::AtMost(MORE_MAX));
    table.count("failed requests of clients", count_other(&replies, 200), 0.0);
    Ok(table)
}
