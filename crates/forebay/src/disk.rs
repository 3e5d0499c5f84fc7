//! A directory as a tier below memory.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_disk::Limits;
use forebay_engine::SystemClock;

use crate::below::Below;

/// Why a directory cannot be used.
pub use forebay_disk::OpenError;

/// A directory in which values outlive the process. One cache has it to itself, or several of
/// different names; no other process.
///
/// What it cannot do in time is a miss. Values are written behind, and
/// [`close`](Self::close) waits for the last of them.
#[derive(Clone)]
pub struct Disk {
    disk: Arc<forebay_disk::Disk>,
    ttl: Option<Duration>,
}

impl Disk {
    /// Opens a directory for so many bytes, at least 16 MiB; it is made if it is missing. What
    /// earlier processes have left there is read meanwhile.
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

impl From<Disk> for Below {
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
