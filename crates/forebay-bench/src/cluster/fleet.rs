//! Several caches of one Redis.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use forebay_testkit::client::{Reply, Request, crowd_of};
use forebay_testkit::launch::{Launch, Launched};
use forebay_testkit::origin::Origin;

/// Time limit for caches to know of each other.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// Instances that are connected to each other by the bus.
pub(crate) struct Fleet(pub(crate) Vec<Launched>);

impl Fleet {
    pub(crate) async fn start(
        count: usize,
        origin: &Origin,
        redis: &str,
        binary: &Path,
    ) -> Result<Self> {
        // With these timeouts a busy machine is not taken for a Redis that fails.
        let text = format!(
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\
             [redis]\nurl = \"{redis}\"\nread_timeout = \"5s\"\nwrite_timeout = \"5s\"\n\
             [[site]]\nid = \"shop\"\norigin = \"{}\"\n",
            origin.url()
        );
        let launch = Launch::binary(binary).args(["serve"]).config(&text)?;
        let mut caches = Vec::new();
        for _ in 0..count {
            caches.push(launch.clone().start().await?);
        }
        for cache in &caches {
            wait_ready(cache, count as u64).await?;
        }
        Ok(Self(caches))
    }

    /// Sends one request by each of `callers` clients of each cache at once.
    pub(crate) async fn crowd(&self, callers: usize, target: &str) -> Result<Vec<Reply>> {
        let each = self.0.iter().flat_map(|cache| std::iter::repeat_n(cache.address(), callers));
        let replies = crowd_of(&each.collect::<Vec<_>>(), |_| Request::get(target)).await?;
        for reply in &replies {
            ensure!(reply.status == 200, "{target} was answered {}", reply.status_line);
        }
        Ok(replies)
    }

    /// Sum of a metric over all caches.
    pub(crate) async fn sum(&self, selector: &str) -> Result<u64> {
        let mut sum = 0;
        for cache in &self.0 {
            sum += cache.metric(selector).await?;
        }
        Ok(sum)
    }
}

async fn wait_ready(cache: &Launched, instances: u64) -> Result<()> {
    let begun = Instant::now();
    loop {
        let reply = cache.get_admin("/healthz").await?;
        let health: serde_json::Value = serde_json::from_slice(reply.body())?;
        let known = health["cluster"]["instances"].as_u64();
        if health["state"] == "ready" && known >= Some(instances) {
            return Ok(());
        }
        ensure!(begun.elapsed() < SETTLE_MAX, "a cache does not know the others: {health}");
    }
}
