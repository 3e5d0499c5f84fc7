//! Fixture of every case: an origin with a delay, caches, and requests.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use forebay_core::{KeyRef, Lifetime, Meta};
use forebay_engine::{Clock as _, SystemClock, Tier, WriteMode};
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::launch::{Launch, Launched};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::RedisServer;
use serde_json::Value;

/// Maximum time of a background operation.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// Polling interval of conditions without notification.
pub(crate) const LOOK_GAP: Duration = Duration::from_millis(2);

/// Size of the benchmark: full or quick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Number of repetitions of cases that depend on chance.
    pub(crate) rounds: usize,
    /// Keys that are driven out of memory.
    pub(crate) keys: usize,
    /// Duration of the traffic during which a server is restarted.
    pub(crate) traffic: Duration,
    /// Lines of `[redis]` for cases in which its times are not what is measured.
    pub(crate) patience: &'static str,
    /// `read_timeout` for the case in which Redis answers half a second late.
    pub(crate) far_timeout: &'static str,
}

/// Result of one row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) measured: String,
    pub(crate) bound: String,
    /// True if the counts are correct, on any machine.
    pub(crate) counted: bool,
    /// True if the times hold their bounds, which other load can spoil.
    pub(crate) timed: bool,
}

/// An origin whose answers may be kept for a minute.
pub(crate) async fn origin(delay: Duration) -> anyhow::Result<Origin> {
    let answer = |body: Vec<u8>| Answer::ok(body).field("Cache-Control", "max-age=60");
    Ok(Origin::start(move |asked| {
        let mut body = asked.target.clone().into_bytes();
        body.resize(1 << 10, b'.');
        answer(body).delay(delay)
    })
    .await?)
}

/// A cache with a configuration and arguments.
pub(crate) async fn cache(
    binary: &Path,
    origin: &Origin,
    top: &str,
    args: &[&str],
) -> anyhow::Result<Cache> {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--origin"];
    let launch = Launch::binary(binary).args(serve).args([origin.url()]).args(args);
    let process = launch.config(top)?.start().await?;
    Ok(Cache { client: Client::connect(process.address()).await?, process })
}

/// A cache with a configuration, connected to its Redis.
pub(crate) async fn configured(binary: &Path, origin: &Origin, top: &str) -> anyhow::Result<Cache> {
    let cache = cache(binary, origin, top, &[]).await?;
    cache.wait_state("ready").await?;
    Ok(cache)
}

/// A cache with further lines in `[redis]`, connected to this Redis.
pub(crate) async fn sharing(
    binary: &Path,
    origin: &Origin,
    redis: &RedisServer,
    more: &str,
) -> anyhow::Result<Cache> {
    configured(binary, origin, &format!("[redis]\nurl = \"{}\"\n{more}", redis.url())).await
}

/// A running cache, and one connection to it.
pub(crate) struct Cache {
    pub(crate) process: Launched,
    pub(crate) client: Client,
}

impl Cache {
    /// One request over the connection that stays; its time is in the reply.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Reply> {
        let reply = self.client.ask(&Request::get(path)).await?;
        ensure!(reply.status == 200, "{path} was answered {}", reply.status_line);
        ensure!(reply.body().starts_with(path.as_bytes()), "{path} got another one's body");
        Ok(reply)
    }

    /// Returns the duration of a request, to the end of its body.
    pub(crate) async fn timed(&mut self, path: &str) -> anyhow::Result<Duration> {
        self.get(path).await?.end_after().context("the body broke off")
    }

    /// Waits for a state of the whole.
    pub(crate) async fn wait_state(&self, state: &str) -> anyhow::Result<Duration> {
        self.wait_health(|health| health["state"] == state).await
    }

    /// Waits until it is so, and says how long that took.
    pub(crate) async fn wait_health(
        &self,
        is_so: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        loop {
            let health = self.process.get_admin("/healthz").await?;
            let health = serde_json::from_slice(health.body())?;
            if is_so(&health) {
                return Ok(begun.elapsed());
            }
            ensure!(begun.elapsed() < SETTLE_MAX, "it stays at {health}");
            tokio::time::sleep(LOOK_GAP).await;
        }
    }

    /// Number of reads in Redis that found an entry.
    pub(crate) async fn hits(&self) -> anyhow::Result<u64> {
        self.metric("forebay_lookups_total{tier=\"redis\",result=\"hit\"}").await
    }

    pub(crate) async fn metric(&self, selector: &str) -> anyhow::Result<u64> {
        self.process.metric(selector).await
    }

    /// Waits until so many entries have been stored in Redis.
    pub(crate) async fn wait_stored(&self, least: u64) -> anyhow::Result<()> {
        self.wait_metric("forebay_tier_writes_total{result=\"stored\"}", least).await
    }

    /// Waits until the tier is bypassed.
    pub(crate) async fn wait_opened(&self) -> anyhow::Result<()> {
        self.wait_metric("forebay_tier_state{tier=\"redis\"}", 1).await
    }

    async fn wait_metric(&self, selector: &str, least: u64) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.metric(selector).await? < least {
            ensure!(begun.elapsed() < SETTLE_MAX, "{selector} stays below {least}");
            tokio::time::sleep(LOOK_GAP).await;
        }
        Ok(())
    }
}

/// Stores an entry that is fresh for ten minutes.
pub(crate) async fn put(tier: &dyn Tier, key: KeyRef<'_>, body: Bytes) -> anyhow::Result<()> {
    let meta = Meta::new(SystemClock.now(), Lifetime::fresh(Duration::from_secs(600)));
    let mut writer = tier.begin(key, &meta, &Bytes::new(), WriteMode::Loaded).await?;
    writer.write(body).await?;
    Ok(writer.commit().await?)
}

/// Milliseconds, as a table shows them.
pub(crate) fn ms(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1e3)
}
