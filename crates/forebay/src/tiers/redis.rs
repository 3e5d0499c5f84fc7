//! The Redis tier; it also works with Valkey.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Cluster, SystemClock};
use forebay_redis::{Notice, NoticeListener};
use tokio::sync::Notify;
use tokio::time::{interval, timeout};

use crate::tiers::tier_config::TierConfig;

pub use forebay_redis::SettingsError;
pub use forebay_redis::{
    EndpointSettings, Login, Servers, Settings as RedisSettings, SharingSettings, TlsSettings,
};

/// Maximum time that [`Redis::connect`] waits for the first answer: longer than a healthy server
/// needs, and short enough not to delay a start. Connecting continues after it.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(1);

/// Interval at which connecting polls the state of the bus.
const BUS_POLL: Duration = Duration::from_millis(5);

/// Redis tier that several processes share. They find each other's values there, wait for each
/// other's loads, and receive each other's invalidations; without
/// [`sharing`](RedisSettings::sharing), they only find each other's values. If the server fails,
/// each process works without it.
#[derive(Clone)]
pub struct Redis {
    redis: forebay_redis::Redis,
    ttl: Option<Duration>,
}

impl Redis {
    /// Connects to the server at a URL: `redis://[user:password@]host[:port][/database]`,
    /// `rediss://` for TLS, or `unix:///path/of/socket`. Returns when the server has answered and
    /// the bus is connected, or after one second. Connecting then continues in the background; a
    /// server that cannot be reached is no error.
    ///
    /// # Errors
    /// The URL is invalid, TLS cannot be set up, or a thread cannot be started.
    pub async fn connect(url: impl Into<String>) -> Result<Self, SettingsError> {
        let sharing = Some(SharingSettings::default());
        let settings = RedisSettings::new(EndpointSettings::at(url));
        Self::with(RedisSettings { sharing, ..settings }).await
    }

    /// Connects with settings: namespace, timeouts, Redis Cluster, Sentinels and fallback servers.
    /// Returns when a server has answered and the bus is connected, or after one second. Connecting
    /// then continues in the background; a server that cannot be reached is no error.
    ///
    /// With `SharingSettings::tracking`, values that other programs change or remove in Redis are
    /// also removed from memory and disk. A Redis Cluster does not support it.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// use forebay::{EndpointSettings, Redis, RedisSettings, Servers, SharingSettings};
    ///
    /// # async fn connect() -> Result<Redis, forebay::SettingsError> {
    /// let nodes = ["redis://one:6379", "redis://two:6379"].map(str::to_owned).to_vec();
    /// let nearest = EndpointSettings {
    ///     read_timeout: Duration::from_millis(20),
    ///     ..EndpointSettings::new(Servers::Cluster(nodes))
    /// };
    /// let settings = RedisSettings {
    ///     namespace: "shop".to_owned(),
    ///     // `None` shares values only, neither loads nor invalidations.
    ///     sharing: Some(SharingSettings::default()),
    ///     ..RedisSettings::new(nearest)
    /// };
    /// Redis::with(settings).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// A setting is out of range, a URL is invalid, TLS cannot be set up, a thread cannot be
    /// started, or settings contradict each other, such as `tracking` and a Redis Cluster.
    pub async fn with(settings: RedisSettings) -> Result<Self, SettingsError> {
        let answered = Arc::new(Answered::default());
        let clock = Arc::new(SystemClock);
        let redis = forebay_redis::Redis::connect(settings, clock, answered.clone())?;
        let ready = async {
            answered.0.notified().await;
            // Other instances do not trust what is written before the bus is connected.
            let mut poll = interval(BUS_POLL);
            while redis.sharing().is_some_and(|sharing| !sharing.bus_connected) {
                poll.tick().await;
            }
        };
        // The cache works without the server, so a timeout is no error.
        let _ = timeout(FIRST_ANSWER_MAX, ready).await;
        Ok(Self { redis, ttl: None })
    }

    /// Returns the leases and the bus of this server. `None` if the settings share values only.
    pub(crate) fn cluster(&self) -> Option<Cluster> {
        self.redis.sharing()?;
        let redis = Arc::new(self.redis.clone());
        Some(Cluster::new(redis.clone(), redis))
    }

    /// Sets the maximum freshness lifetime of values in Redis, counted from their load. Tiers
    /// above, memory included, get the same limit if they have none of their own; theirs must not
    /// be longer. Stale windows follow it as usual. Default: the value's own lifetime.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// Receives a notification when the server answers.
#[derive(Default)]
struct Answered(Notify);

impl NoticeListener for Answered {
    fn notice(&self, notice: &Notice) {
        if matches!(notice, Notice::Up { .. }) {
            self.0.notify_one();
        }
    }
}

impl From<Redis> for TierConfig {
    fn from(redis: Redis) -> Self {
        let config = Self::from(Arc::new(redis.redis));
        match redis.ttl {
            Some(ttl) => config.ttl(ttl),
            None => config,
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
