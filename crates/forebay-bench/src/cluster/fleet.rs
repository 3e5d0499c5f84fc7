//! Several caches of one Redis.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::launch::{Launch, Launched};
use forebay_testkit::origin::Origin;
use tempfile::TempDir;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Maximum time until all caches know of each other.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// Interval between two queries of a cache's state.
const PAUSE: Duration = Duration::from_millis(20);

/// A machine that has too much to do is not taken for a Redis that fails: then there would be more
/// fetches, and rightly so.
const PATIENT: &str = "read_timeout = \"5s\"\nwrite_timeout = \"5s\"";

/// So many caches, which hear each other.
pub(crate) struct Fleet {
    pub(crate) caches: Vec<Launched>,
    _folder: TempDir,
}

impl Fleet {
    pub(crate) async fn start(
        count: usize,
        origin: &Origin,
        redis: &str,
        binary: &Path,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("forebay.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\
             [redis]\nurl = \"{redis}\"\n{PATIENT}\n\
             [[site]]\nid = \"shop\"\norigin = \"{}\"\n",
            origin.url()
        );
        std::fs::write(&file, text)?;
        let mut caches = Vec::new();
        for _ in 0..count {
            let launch = Launch::binary(binary).args(["serve", "--config"]).args([&file]);
            caches.push(launch.start().await?);
        }
        for cache in &caches {
            hears(cache, count).await?;
        }
        Ok(Self { caches, _folder: folder })
    }

    /// So many callers at each cache, all of which ask at once; and how long each took.
    pub(crate) async fn crowd(&self, callers: usize, target: &str) -> anyhow::Result<Vec<Reply>> {
        let start = Arc::new(Barrier::new(callers * self.caches.len()));
        let mut asking = JoinSet::new();
        for cache in &self.caches {
            for _ in 0..callers {
                let mut client = Client::connect(cache.address()).await?;
                let (start, request) = (start.clone(), Request::get(target));
                asking.spawn(async move {
                    start.wait().await;
                    client.ask(&request).await
                });
            }
        }
        let mut replies = Vec::new();
        while let Some(asked) = asking.join_next().await {
            let reply = asked??;
            anyhow::ensure!(reply.status == 200, "{}", reply.status_line);
            replies.push(reply);
        }
        Ok(replies)
    }

    /// The sum of a metric over all caches.
    pub(crate) async fn sum(&self, name: &str, label: &str) -> anyhow::Result<u64> {
        let mut sum = 0;
        for cache in &self.caches {
            sum += metric(cache, name, label).await?;
        }
        Ok(sum)
    }
}

pub(crate) fn admin(cache: &Launched) -> anyhow::Result<SocketAddr> {
    cache.admin().context("the ready line names no admin listener")
}

async fn page(cache: &Launched, path: &str) -> anyhow::Result<Reply> {
    let admin = admin(cache)?;
    let request = Request::get(path).field("Host", admin.to_string());
    Client::connect(admin).await?.ask(&request).await
}

async fn hears(cache: &Launched, instances: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let reply = page(cache, "/healthz").await?;
        let health: serde_json::Value = serde_json::from_slice(reply.body())?;
        let others = health["cluster"]["instances"].as_u64().unwrap_or_default();
        if health["state"] == "ready" && others >= instances as u64 {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "a cache does not hear the others: {health}");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn metric(cache: &Launched, name: &str, label: &str) -> anyhow::Result<u64> {
    let reply = page(cache, "/metrics").await?;
    let text = reply.text();
    let is_meant = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
    };
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok());
    Ok(text.lines().filter(is_meant).filter_map(value).sum())
}
