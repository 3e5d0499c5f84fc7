//! A directory as a tier below memory.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_disk::Limits;
use forebay_engine::SystemClock;
use tokio::time::timeout;

use crate::tier_config::TierConfig;

/// Why a directory cannot be used.
pub use forebay_disk::OpenError;

/// How long opening waits for what is found in the directory: longer than that takes as a rule,
/// since a service that begins without it loads everything anew, and no reason to start much later.
/// It goes on behind.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

/// A directory in which values outlive the process. One cache has it to itself, or several of
/// different names; no other process.
///
/// What it cannot do in time is a miss. Values are written behind the calls that bring them. A
/// process that ends on purpose lets its caches [flush](crate::Cache::flush) and then
/// [closes](Self::close) the directory; one that is killed loses what it was writing at that
/// moment, and nothing else.
#[derive(Clone)]
pub struct Disk {
    disk: Arc<forebay_disk::Disk>,
    ttl: Option<Duration>,
}

impl Disk {
    /// Opens a directory for so many bytes, at least 16 MiB; it is made if it is missing. Returns
    /// when it is known what earlier processes have left there, or after five seconds if that takes
    /// longer: looking goes on, and until it has ended, what was not come across yet is a miss.
    ///
    /// # Errors
    /// If it is in use by another process, was written by a newer version, or cannot be used.
    pub async fn open(path: impl AsRef<Path>, size: u64) -> Result<Self, OpenError> {
        let path = path.as_ref().to_owned();
        let opening =
            move || forebay_disk::Disk::open(&path, Limits::of(size), Arc::new(SystemClock));
        // Opening takes milliseconds, and blocks.
        let opened = match tokio::task::spawn_blocking(opening).await {
            Ok(opened) => opened?,
            Err(ended) => std::panic::resume_unwind(ended.into_panic()),
        };
        let _ = timeout(FOUND_WITHIN, opened.loaded()).await;
        Ok(Self { disk: Arc::new(opened), ttl: None })
    }

    /// It keeps values for this long at most; the tiers above it must not keep them for longer.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Writes what it has accepted, and lets go of the directory. It takes nothing after that.
    pub async fn close(&self) {
        self.disk.close().await;
    }
}

impl From<Disk> for TierConfig {
    fn from(disk: Disk) -> Self {
        let below = Self::from(disk.disk);
        match disk.ttl {
            Some(ttl) => below.ttl(ttl),
            None => below,
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
