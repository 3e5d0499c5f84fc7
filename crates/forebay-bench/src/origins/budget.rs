//! Budget of an origin for four instances, whose Redis is killed and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::traffic::{Reply, closed_loop, count_other};
use super::{POLL, STATE_MAX, cache};
use crate::environment::Options;
use crate::report::{Bound, Table};

const INSTANCES: u64 = 4;

/// Clients of each instance without a pause: ten times the budget of requests in flight.
const CLIENTS: u64 = 40;
const IN_FLIGHT: u64 = 16;

/// Requests per second, and those that are permitted at once.
const RATE: u64 = 400;
const BATCH: u64 = RATE / 20;

/// Time of a request at the origin.
const EXCHANGE: Duration = Duration::from_millis(25);

/// Validity of the part of an instance without Redis.
const LEASE: Duration = Duration::from_secs(1);

/// Difference of an instance to the mean.
const UNFAIR_MAX: f64 = 0.20;

/// Half of `fetch_timeout`, with the time at the origin.
const WAIT_MAX_S: f64 = 15.0;

/// Instances, their clients, and the times of requests at the origin.
struct Fleet {
    caches: Vec<Launched>,
    times: Arc<Mutex<Vec<Instant>>>,
    clients: Vec<JoinHandle<Result<Vec<Reply>>>>,
    is_over: Arc<AtomicBool>,
    _origin: Origin,
}

impl Fleet {
    /// Starts the instances, waits until they share the budget, and starts clients.
    async fn start(redis: &RedisServer, budget: &str, exchange: Duration) -> Result<Self> {
        let times = Arc::<Mutex<Vec<Instant>>>::default();
        let seen = times.clone();
        let origin = Origin::start(move |_| {
            seen.lock().push(Instant::now());
            Answer::ok("x").field("Cache-Control", "no-store").delay(exchange)
        });
        let origin = origin.await?;
        let mut caches = Vec::new();
        for _ in 0..INSTANCES {
            let top = format!("[redis]\nurl = \"{}\"", redis.url());
            let site = format!("[site.origin]\nurls = [\"{}\"]\nbudget = {budget}", origin.url());
            caches.push(cache(&top, &site).await?);
        }
        for cache in &caches {
            let is_shared =
                |budget: &Value| budget["state"] == "shared" && budget["instances"] == INSTANCES;
            wait_budget(cache, is_shared).await?;
        }
        let is_over = Arc::<AtomicBool>::default();
        let clients = caches.iter().map(|cache| {
            let (address, is_over) = (cache.address(), is_over.clone());
            tokio::spawn(async move { closed_loop(CLIENTS, address, &is_over).await })
        });
        Ok(Self { clients: clients.collect(), is_over, caches, times, _origin: origin })
    }

    /// Largest number of requests at the origin in a time.
    fn most_within(&self, span: Duration) -> u64 {
        let times = self.times.lock();
        let within = |index: usize| {
            let end = times[index] + span;
            times[index..].iter().take_while(|at| **at < end).count()
        };
        (0..times.len()).map(within).max().unwrap_or_default() as u64
    }

    /// Largest difference of an instance to the mean number of loads in a time.
    async fn unfairness(&self, span: Duration) -> Result<f64> {
        let before = self.loads().await?;
        tokio::time::sleep(span).await;
        let after = self.loads().await?;
        let loads: Vec<f64> =
            after.iter().zip(before).map(|(after, before)| after - before).collect();
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        Ok(loads.iter().map(|one| (one - mean).abs() / mean).fold(0.0, f64::max))
    }

    async fn loads(&self) -> Result<Vec<f64>> {
        let mut loads = Vec::new();
        for cache in &self.caches {
            loads.push(cache.metric("forebay_loads_total").await? as f64);
        }
        Ok(loads)
    }

    async fn wait(&self, is: impl Fn(&Value) -> bool) -> Result<()> {
        for cache in &self.caches {
            wait_budget(cache, &is).await?;
        }
        Ok(())
    }

    /// Largest number of requests in flight of one instance in a time.
    async fn most_of_one(&self, span: Duration) -> Result<f64> {
        let (begun, mut most) = (Instant::now(), 0);
        while begun.elapsed() < span {
            for cache in &self.caches {
                most = most.max(cache.metric("forebay_origin_in_flight").await?);
            }
        }
        Ok(most as f64)
    }

    /// Ends the clients, and returns their responses.
    async fn replies(&mut self) -> Result<Vec<Reply>> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut replies = Vec::new();
        for client in self.clients.drain(..) {
            replies.extend(client.await??);
        }
        Ok(replies)
    }
}

/// Waits until the budget in `/healthz` satisfies a condition.
async fn wait_budget(cache: &Launched, is: impl Fn(&Value) -> bool) -> Result<()> {
    let begun = Instant::now();
    loop {
        let health = cache.get_admin("/healthz").await?;
        let health: Value = serde_json::from_slice(health.body())?;
        let budget = &health["budgets"]["bench"];
        if is(budget) {
            return Ok(());
        }
        ensure!(begun.elapsed() < STATE_MAX, "budget: {budget}");
        tokio::time::sleep(POLL).await;
    }
}

pub(super) async fn run(options: &Options) -> Result<Table> {
    let span = Duration::from_secs(options.pick(8, 3));
    let mut redis = Some(RedisLaunch::new().start().await?);
    let server = redis.as_ref().context("Redis runs")?;
    let budget = format!("{{ in_flight = {IN_FLIGHT} }}");
    let mut fleet = Fleet::start(server, &budget, EXCHANGE).await?;
    let title = format!(
        "a budget for {INSTANCES} instances: {IN_FLIGHT} in flight, or {RATE} requests/s; {} clients",
        INSTANCES * CLIENTS
    );
    let mut table = Table::figures(title);
    let unfair = fleet.unfairness(span).await?;
    let bound = Bound::AtMost(UNFAIR_MAX);
    table.figure("largest difference to the mean of instances", unfair, "", bound);
    let port = redis.take().context("Redis runs")?.kill().await?;
    fleet.wait(|budget| budget["state"] == "lost").await?;
    tokio::time::sleep(LEASE).await;
    let most = fleet.most_of_one(span).await?;
    let name = "in flight of one instance, after Redis was killed";
    table.count(name, most, (IN_FLIGHT / INSTANCES) as f64);
    let again = RedisLaunch::new().port(port).start().await?;
    fleet.wait(|budget| budget["state"] == "shared" && budget["instances"] == INSTANCES).await?;
    let unfair = fleet.unfairness(LEASE * 2).await?;
    table.figure("difference after Redis is back", unfair, "", bound);
    let replies = fleet.replies().await?;
    let most = fleet.most_within(EXCHANGE) as f64;
    table.count("most in flight at the origin, in all phases", most, IN_FLIGHT as f64);
    let longest = replies.iter().map(|reply| reply.took).fold(0.0, f64::max);
    table.figure("longest wait of a client", longest, "s", Bound::AtMost(WAIT_MAX_S));
    table.count("requests that are not 200", count_other(&replies, 200), 0.0);
    // Otherwise, its instances would share the budget of the next ones.
    drop(fleet);
    let budget = format!("{{ rate = \"{RATE}/s\" }}");
    let mut fleet = Fleet::start(&again, &budget, Duration::ZERO).await?;
    tokio::time::sleep(span).await;
    let replies = fleet.replies().await?;
    let most = fleet.most_within(Duration::from_secs(1)) as f64;
    table.count("requests at the origin in any second", most, (RATE + BATCH) as f64);
    let used = replies.len() as f64 / span.as_secs_f64();
    table.figure("requests/s", used, "", Bound::AtLeast(RATE as f64 * 0.9));
    Ok(table)
}
