//! A Redis, or a Valkey, as a tier below memory.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Cluster, SystemClock};
use forebay_redis::{Notice, NoticeListener};
use tokio::sync::Notify;
use tokio::time::{interval, timeout};

use crate::tier_config::TierConfig;

/// Why a server cannot be used, by what was told of it.
pub use forebay_redis::SettingsError;
/// What [`Redis::with`] is told.
pub use forebay_redis::{
    EndpointSettings, Login, Servers, Settings as RedisSettings, SharingSettings, TlsSettings,
};

/// How long connecting waits for the first answer: longer than a healthy server takes, and no
/// reason to start late. It goes on behind.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// How often it is asked whether others are heard, which nobody tells.
const LOOK_GAP: Duration = Duration::from_millis(5);

/// A server that instances share: what one has loaded, the others find there; while one loads, the
/// others wait for it; and what one removes or invalidates is gone in all of them. While the server
/// is away everything goes on without it.
#[derive(Clone)]
pub struct Redis {
    redis: forebay_redis::Redis,
    ttl: Option<Duration>,
}

impl Redis {
    /// A server by its URL: `redis://[user:password@]host[:port][/database]`, `rediss://` for
    /// TLS, or `unix:///path/of/socket`. Returns when it has answered, or after a second if it
    /// has not: connecting goes on for as long as it takes.
    ///
    /// # Errors
    /// If the URL is none.
    pub async fn connect(url: impl Into<String>) -> Result<Self, SettingsError> {
        let sharing = Some(SharingSettings::default());
        let settings = RedisSettings::new(EndpointSettings::at(url));
        Self::with(RedisSettings { sharing, ..settings }).await
    }

    /// The same with other settings: a namespace, times, a Cluster, Sentinels, fallbacks; whether
    /// what other programs remove there goes from memory and disk, too
    /// (`SharingSettings::tracking`).
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
    ///     // Without it processes share values, and neither loads nor invalidations.
    ///     sharing: Some(SharingSettings::default()),
    ///     ..RedisSettings::new(nearest)
    /// };
    /// Redis::with(settings).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// If they are wrong in themselves.
    pub async fn with(settings: RedisSettings) -> Result<Self, SettingsError> {
        let answered = Arc::new(Answered::default());
        let clock = Arc::new(SystemClock);
        let redis = forebay_redis::Redis::connect(settings, clock, answered.clone())?;
        // It may be away, and then it is.
        let first = async {
            answered.0.notified().await;
            // What is written before the others are heard is not believed by them.
            let mut looks = interval(LOOK_GAP);
            while redis.sharing().is_some_and(|sharing| !sharing.bus_connected) {
                looks.tick().await;
            }
        };
        let _ = timeout(FIRST_ANSWER, first).await;
        Ok(Self { redis, ttl: None })
    }

    /// What joins caches over it; nothing if its settings share nothing but values.
    pub(crate) fn cluster(&self) -> Option<Cluster> {
        self.redis.sharing()?;
        let redis = Arc::new(self.redis.clone());
        Some(Cluster::new(redis.clone(), redis))
    }

    /// It keeps values for this long at most; the tiers above it must not keep them for longer,
    /// and those that were told nothing do not.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// Told when the server answers.
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
        let below = Self::from(Arc::new(redis.redis));
        match redis.ttl {
            Some(ttl) => below.ttl(ttl),
            None => below,
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
