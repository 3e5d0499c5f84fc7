//! The disk tier.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_disk::{INDEX_WAIT_MAX, Limits};
use forebay_engine::SystemClock;
use tokio::time::timeout;

use crate::tiers::tier_config::TierConfig;

pub use forebay_disk::OpenError;

/// A disk tier: a directory whose values survive the process. Caches of one process with different
/// names can share it. A second process cannot open it.
///
/// A read that fails or times out is a miss, unless
/// [`tier_errors`](crate::Builder::tier_errors) is strict. Loaded values are written after the
/// calls that loaded them have returned. Before a process ends, [flush](crate::Cache::flush) its
/// caches and then [close](Self::close) the directory. A killed process loses only the writes in
/// flight.
#[derive(Clone)]
pub struct Disk {
    disk: Arc<forebay_disk::Disk>,
    ttl: Option<Duration>,
}

impl Disk {
    /// Opens a directory with a maximum size in bytes, at least 16 MiB, and creates it if it is
    /// missing. Returns when the entries of earlier processes are indexed, or after five seconds;
    /// then indexing continues, and an entry that is not indexed yet is a miss.
    ///
    /// # Errors
    /// The size is below 16 MiB, or the directory is open already (in this or another process), was
    /// written by a newer version, or cannot be created, read or written.
    pub async fn open(path: impl AsRef<Path>, size: u64) -> Result<Self, OpenError> {
        let path = path.as_ref().to_owned();
        let opening =
            move || forebay_disk::Disk::open(&path, Limits::of(size), Arc::new(SystemClock));
        // Opening blocks for some milliseconds.
        let opened = match tokio::task::spawn_blocking(opening).await {
            Ok(opened) => opened?,
            Err(ended) => std::panic::resume_unwind(ended.into_panic()),
        };
        let _ = timeout(INDEX_WAIT_MAX, opened.loaded()).await;
        Ok(Self { disk: Arc::new(opened), ttl: None })
    }

    /// Sets the maximum freshness lifetime of values in the directory, counted from their load.
    /// Tiers above, memory included, get the same limit if they have none of their own; theirs must
    /// not be longer. Stale windows follow it as usual. Default: the value's own lifetime.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Completes the accepted writes and releases the directory, so that another process can open
    /// it. Later reads and writes of the tier fail.
    pub async fn close(&self) {
        self.disk.close().await;
    }
}

impl From<Disk> for TierConfig {
    fn from(disk: Disk) -> Self {
        let config = Self::from(disk.disk);
        match disk.ttl {
            Some(ttl) => config.ttl(ttl),
            None => config,
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
