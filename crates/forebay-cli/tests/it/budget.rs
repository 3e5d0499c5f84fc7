//! A budget of an origin that four instances share over a Redis server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::RedisLaunch;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use serde_json::Value;

use crate::cluster::{health, wait_health, wait_until};
use crate::world::{ConfigFile, forebay, metric};

const INSTANCES: usize = 4;

/// Validity of an allowance without an exchange.
const LEASE: Duration = Duration::from_secs(1);

/// Clients of each instance: together ten times the budget of 16 requests.
const CLIENTS: usize = 40;

/// Time of one request at the origin.
const EXCHANGE: Duration = Duration::from_millis(25);

type Times = Arc<Mutex<Vec<Instant>>>;

/// Origin that takes at least this long for each request, and the times of its requests.
async fn timed(exchange: Duration) -> anyhow::Result<(Origin, Times)> {
    let times = Times::default();
    let seen = times.clone();
    let origin = Origin::start(move |_| {
        seen.lock().push(Instant::now());
        Answer::ok("x").field("Cache-Control", "no-store").delay(exchange)
    });
    Ok((origin.await?, times))
}

/// Returns the maximum number of requests within a time. If each takes as long, all of these were in
/// flight at once.
fn most_within(times: &Times, span: Duration) -> usize {
    let times = times.lock();
    let within = |index: usize| {
        let end = times[index] + span;
        times[index..].iter().take_while(|at| **at < end).count()
    };
    (0..times.len()).map(within).max().unwrap_or_default()
}

struct Fleet {
    caches: Vec<(Launched, ConfigFile)>,
    clients: Vec<tokio::task::JoinHandle<anyhow::Result<()>>>,
    is_over: Arc<AtomicBool>,
}

impl Fleet {
    /// Starts instances with this budget, whose clients request new paths all the time.
    async fn start(origin: &Origin, redis: &str, budget: &str) -> anyhow::Result<Self> {
        let text = format!(
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[redis]\nurl = \"{redis}\"\n\
             [[site]]\nid = \"shop\"\n[site.origin]\nurls = [\"{}\"]\nbudget = {budget}\n",
            origin.url()
        );
        let one = async |_| {
            let file = ConfigFile::of(&text)?;
            anyhow::Ok((file.serve().await?, file))
        };
        let caches = try_join_all((0..INSTANCES).map(one)).await?;
        for (cache, _) in &caches {
            wait_health(cache, |health| {
                budget_of(health)["instances"] == INSTANCES
                    && budget_of(health)["state"] == "shared"
            })
            .await?;
        }
        let (is_over, number) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let clients = caches.iter().flat_map(|(cache, _)| {
            let (address, is_over, number) = (cache.address(), is_over.clone(), number.clone());
            (0..CLIENTS).map(move |_| {
                let (is_over, number) = (is_over.clone(), number.clone());
                tokio::spawn(async move {
                    let mut client = Client::connect(address).await?;
                    while !is_over.load(Ordering::Relaxed) {
                        let path = format!("/{}", number.fetch_add(1, Ordering::Relaxed));
                        anyhow::ensure!(client.ask(&Request::get(&path)).await?.status == 200);
                    }
                    Ok(())
                })
            })
        });
        let clients = clients.collect();
        Ok(Self { caches, clients, is_over })
    }

    async fn loads(&self) -> anyhow::Result<Vec<u64>> {
        let loads = self.caches.iter().map(|(cache, _)| metric(cache, "forebay_loads_total", ""));
        try_join_all(loads).await
    }

    /// Ends all clients; none of their requests may have failed.
    async fn end(self) -> anyhow::Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await??;
        }
        Ok(())
    }
}

fn budget_of(health: &Value) -> &Value {
    &health["budgets"]["shop"]
}

fn assert_fair(loads: &[u64]) {
    let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
    assert!(loads.iter().all(|one| (*one as f64 - mean).abs() <= 0.2 * mean), "{loads:?}");
}

fn since(before: &[u64], after: &[u64]) -> Vec<u64> {
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

#[tokio::test]
async fn the_requests_of_all_instances_stay_within_the_budget() -> anyhow::Result<()> {
    let (origin, times) = timed(EXCHANGE).await?;
    let redis = RedisLaunch::new().start().await?;
    let fleet = Fleet::start(&origin, &redis.url(), "{ in_flight = 16 }").await?;
    let begun = Instant::now();
    let before = fleet.loads().await?;
    while origin.requests() < 1_500 {
        wait_until(begun, "the origin answers").await?;
    }
    assert_fair(&since(&before, &fleet.loads().await?));
    let most = most_within(&times, EXCHANGE);
    assert!((12..=16).contains(&most), "{most} at once");
    // Each instance has an equal part without Redis, and no client fails.
    let port = redis.kill().await?;
    for (cache, _) in &fleet.caches {
        wait_health(cache, |health| budget_of(health)["state"] == "lost").await?;
        let health = health(cache).await?;
        assert_eq!(budget_of(&health)["in_flight"]["held"], 16 / INSTANCES);
    }
    tokio::time::sleep(LEASE).await;
    for (cache, _) in &fleet.caches {
        assert!(metric(cache, "forebay_origin_in_flight", "").await? <= 4);
    }
    let _back = RedisLaunch::new().port(port).start().await?;
    for (cache, _) in &fleet.caches {
        wait_health(cache, |health| budget_of(health)["state"] == "shared").await?;
    }
    let (before, served) = (fleet.loads().await?, origin.requests());
    let begun = Instant::now();
    while origin.requests() < served + 1_500 {
        wait_until(begun, "the origin answers again").await?;
    }
    assert_fair(&since(&before, &fleet.loads().await?));
    let most = most_within(&times, EXCHANGE);
    assert!(most <= 16, "{most} at once");
    fleet.end().await
}

#[tokio::test]
async fn the_rate_of_all_instances_stays_within_the_budget() -> anyhow::Result<()> {
    const RATE: usize = 400;
    let (origin, times) = timed(Duration::ZERO).await?;
    let redis = RedisLaunch::new().start().await?;
    let budget = format!("{{ rate = \"{RATE}/s\" }}");
    let fleet = Fleet::start(&origin, &redis.url(), &budget).await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_fair(&fleet.loads().await?);
    fleet.end().await?;
    let count = times.lock().len();
    assert!(count > 3 * RATE, "the budget is used: {count}");
    // A batch is the twentieth of a second. A busy machine may deliver some requests later.
    let most = most_within(&times, Duration::from_secs(1));
    assert!(most <= RATE + RATE / 10, "{most} within a second");
    Ok(())
}

#[tokio::test]
async fn check_says_that_a_budget_without_a_shared_tier_is_for_one_process() -> anyhow::Result<()> {
    let file = ConfigFile::of(
        "[[site]]\nid = \"shop\"\n[site.origin]\nurls = [\"http://127.0.0.1:1\"]\n\
         budget = { in_flight = 64, rate = \"200/s\" }\n",
    )?;
    let done = forebay(["check"]).args([&file.path]).finish().await?;
    let (out, err) = (done.stdout.concat(), done.stderr.concat());
    assert_eq!(done.status.code(), Some(0), "{err}");
    assert!(out.contains("at most 64 concurrent requests and 200 requests per second"), "{out}");
    assert!(err.contains("site shop: the budget of the origin holds for each process"), "{err}");
    Ok(())
}
