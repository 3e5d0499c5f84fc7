//! Estimates of the memory size, compared with the same requests to caches of other sizes: those of
//! `forebay plan`, from a recorded log, and those of the running cache (`forebay_hit_ratio_predicted`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::{Launched, Signal};
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::world::{BINARY, ConfigFile, END_MAX, forebay, get_admin};

/// Number of requests, unless the environment variable of this name states another. The running
/// cache needs 100,000 samples: requests for a quarter of the URLs.
const REQUESTS: (&str, usize) = ("FOREBAY_PLAN_REQUESTS", 600_000);

/// Number of URLs of the demo's origin, and exponent of their popularity.
const URLS: usize = 20_000;
const EXPONENT: f64 = 0.9;

/// Clients at once.
const CLIENTS: usize = 4;

/// Size of memory that is recorded, in MiB.
const PRESENT: u64 = 32;

/// Other sizes in MiB, and the label `factor` of their estimate.
const OTHERS: [(u64, &str); 3] = [(16, "0.5"), (64, "2"), (128, "4")];

/// Share of the requests at the start that fill the caches and the models. The estimates of the
/// running cache do not count them either.
const FILLING: f64 = 0.25;

/// Maximum errors, in percentage points.
const CURVE_ERROR_MAX: f64 = 2.0;
const PLAN_ERROR_MAX: f64 = 1.5;

/// Maximum wait for the estimates, which are made once a second.
const ESTIMATES_MAX: Duration = Duration::from_secs(20);

/// Maximum duration of `forebay plan`.
const PLAN_MAX: Duration = Duration::from_secs(300);

/// Recorded run of a cache.
struct Run {
    _file: ConfigFile,
    log: PathBuf,
    /// Hits in memory, in the order of the log.
    hits: Vec<bool>,
}

impl Run {
    /// Share of hits in percent, from this request on.
    fn hit_ratio(&self, first: usize) -> f64 {
        let counted = &self.hits[first..];
        100.0 * counted.iter().filter(|hit| **hit).count() as f64 / counted.len() as f64
    }
}

/// Targets of requests with a Zipf distribution, for bodies of 2 to 10 kB.
fn targets(count: usize) -> Arc<[String]> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut sum = 0.0;
    let weights: Vec<f64> = (1..=URLS)
        .map(|rank| {
            sum += (rank as f64).powf(-EXPONENT);
            sum
        })
        .collect();
    let target = |_| {
        let drawn = random.f64() * sum;
        let rank = weights.partition_point(|weight| *weight < drawn);
        let size = 2_000 + rank.wrapping_mul(2_654_435_761) % 8_000;
        format!("/items/{rank}?size={size}&cc=max-age%3D36000")
    };
    (0..count).map(target).collect()
}

/// Sends the requests in their order, some at once.
async fn send_all(cache: &Launched, targets: &Arc<[String]>) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (next, targets, address) = (next.clone(), targets.clone(), cache.address());
        clients.spawn(async move {
            let mut client = Client::connect(address).await?;
            while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                let request = Request::get(target).field("Host", "demo.example");
                let reply = client.ask(&request).await?;
                ensure!(reply.status == 200, "{target}: {}", reply.status);
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

/// Starts a cache with this memory in MiB that logs to a file.
async fn start(origin: &Launched, memory: u64) -> anyhow::Result<(ConfigFile, PathBuf, Launched)> {
    let file = ConfigFile::of("")?;
    let log = file.folder.path().join("access.log");
    let top = format!(
        "access_log = \"json\"\n[memory]\nsize = \"{memory}MiB\"\n[access]\nfile = \"{}\"\n\
         rotate_size = \"0B\"",
        log.display()
    );
    file.rewrite(&crate::world::serving(&format!("http://{}", origin.address()), &top, ""))?;
    let cache = file.serve().await?;
    Ok((file, log, cache))
}

/// Stops the cache, and reads its log.
async fn read_run(file: ConfigFile, log: PathBuf, mut cache: Launched) -> anyhow::Result<Run> {
    cache.signal(Signal::Term).await?;
    cache.wait_exit(END_MAX).await?;
    let is_hit = |line: &str| {
        let line: Value = serde_json::from_str(line)?;
        Ok(line["cache"] == "hit")
    };
    let hits = std::fs::read_to_string(&log)?.lines().map(is_hit).collect::<anyhow::Result<_>>()?;
    Ok(Run { _file: file, log, hits })
}

/// Waits for the estimates of the running cache, in percent, by the labels of [`OTHERS`].
async fn estimates(cache: &Launched) -> anyhow::Result<Vec<f64>> {
    let begun = Instant::now();
    loop {
        let metrics = get_admin(cache, "/metrics").await?.text().into_owned();
        let of = |factor: &str| {
            let start = format!("forebay_hit_ratio_predicted{{factor=\"{factor}\"}} ");
            let value = metrics.lines().find_map(|line| line.strip_prefix(&start))?;
            Some(100.0 * value.parse::<f64>().ok()?)
        };
        let found: Option<Vec<f64>> = OTHERS.iter().map(|(_, factor)| of(factor)).collect();
        if let Some(found) = found {
            return Ok(found);
        }
        ensure!(begun.elapsed() < ESTIMATES_MAX, "no estimates: too few requests");
    }
}

/// Hit ratios in percent by `forebay plan`, for these sizes in MiB in ascending order.
async fn planned(log: &Path, sizes: &[u64]) -> anyhow::Result<Vec<f64>> {
    let text = sizes.iter().map(|size| format!("{size}MiB")).collect::<Vec<_>>().join(",");
    let mut plan = Command::new(BINARY);
    let plan = plan.args(["plan", "--json", "--sizes", &text, "--log"]).arg(log);
    // No other command of the tests reads a log of this size.
    let done = tokio::time::timeout(PLAN_MAX, plan.output()).await??;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let plan: Value = serde_json::from_slice(&done.stdout)?;
    let rows = plan["rows"].as_array().context("rows")?;
    let ratio = |row: &Value| Some(100.0 * row["hit_ratio"].as_f64()?);
    rows.iter().map(ratio).collect::<Option<_>>().context("a ratio in each row")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "cargo xtask soak plan runs it alone: it sends 2,400,000 requests"]
async fn estimates_of_other_sizes_agree_with_caches_of_these_sizes() -> anyhow::Result<()> {
    let (name, default) = REQUESTS;
    let count = std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let targets = targets(count);
    let origin = forebay(["origin", "--listen", "127.0.0.1:0"]).start().await?;
    let (file, log, cache) = start(&origin, PRESENT).await?;
    send_all(&cache, &targets).await?;
    let estimates = estimates(&cache).await?;
    let recorded = read_run(file, log, cache).await?;
    ensure!(recorded.hits.len() == count, "{} lines", recorded.hits.len());
    let mut sizes: Vec<u64> = OTHERS.iter().map(|(size, _)| *size).chain([PRESENT]).collect();
    sizes.sort_unstable();
    let planned = planned(&recorded.log, &sizes).await?;
    let planned_of = |size: u64| sizes.iter().position(|one| *one == size).map(|at| planned[at]);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of count")]
    let first = (count as f64 * FILLING) as usize;
    let mut errors = Vec::new();
    let mut compare = |what: &str, size: u64, estimate: f64, came: f64, most: f64| {
        println!("{what} {size} MiB: {estimate:.2} %, replay {came:.2} %");
        if (estimate - came).abs() > most {
            errors.push(format!("{what} {size} MiB: {estimate:.2} %, not {came:.2} %"));
        }
    };
    let plan = |size| planned_of(size).context("a row for each size");
    compare("plan", PRESENT, plan(PRESENT)?, recorded.hit_ratio(0), PLAN_ERROR_MAX);
    for ((size, _), estimate) in OTHERS.into_iter().zip(estimates) {
        let (file, log, cache) = start(&origin, size).await?;
        send_all(&cache, &targets).await?;
        let replay = read_run(file, log, cache).await?;
        compare("plan", size, plan(size)?, replay.hit_ratio(0), PLAN_ERROR_MAX);
        compare("curve", size, estimate, replay.hit_ratio(first), CURVE_ERROR_MAX);
    }
    ensure!(errors.is_empty(), "{errors:#?}");
    Ok(())
}
