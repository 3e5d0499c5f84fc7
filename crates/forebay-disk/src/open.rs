//! Opening and closing of a directory.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use forebay_engine::{Clock, TierError};
use parking_lot::RwLock;
use thiserror::Error;
use tokio::sync::watch;

use crate::bookmark::BookmarkFile;
use crate::counts::{Condition, Counters, Counts, Health};
use crate::index::Index;
use crate::io::{FileSystem, OsFileSystem};
use crate::layout::{ALIGN, log_position};
use crate::load::{DirectoryContents, Loader};
use crate::log::Log;
use crate::pool::Pool;
use crate::purge_marks::PurgeMarks;
use crate::queue::Queue;
use crate::residence::ResidenceClock;
use crate::root::Root;
use crate::shared::{Dir, Shared, Stage};
use crate::writer;

/// Minimum size in bytes: one segment would be most of a smaller directory.
const SIZE_MIN: u64 = 16 << 20;

/// Usual number of segments, so that one eviction frees a small part.
const SEGMENTS: u64 = 64;

/// Usual maximum bytes of a segment.
const SEGMENT_USUAL_MAX: u64 = 64 << 20;

/// Maximum number of segments of a very large directory; each is an open file.
const SEGMENTS_MAX: u64 = 1_024;

/// Minimum bytes of a segment, so that every entry with an inline body fits.
const SEGMENT_MIN: u64 = 4 << 20;

/// Minimum number of segments, so that one eviction never frees everything.
const SEGMENTS_MIN: u64 = 4;

/// Maximum bytes of a segment: offsets have 32 bits, and a footer follows.
const SEGMENT_MAX: u64 = 2 << 30;

/// Size limits of a disk tier, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum total bytes of all files, plus at most one segment: a 64th of this, from 4 MiB to 64
    /// MiB (above 64 GiB: a 1,024th). At least 16 MiB.
    pub size: u64,
    /// Maximum size of a body that is stored, in bytes.
    pub object_max: u64,
}

impl Limits {
    /// Returns limits of `size` bytes for all files, and a quarter of that for one body.
    #[must_use]
    pub const fn of(size: u64) -> Self {
        Self { size, object_max: size / 4 }
    }

    fn segment_max(self) -> u32 {
        let usual = (self.size / SEGMENTS).min(SEGMENT_USUAL_MAX);
        let len = usual.max(self.size / SEGMENTS_MAX).clamp(SEGMENT_MIN, SEGMENT_MAX);
        let len = len.min(self.size / SEGMENTS_MIN);
        u32::try_from(len).unwrap_or(u32::MAX) / ALIGN * ALIGN
    }
}

/// Reason why the directory of a disk tier could not be opened. Nothing in it was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory is open already, in this or another process.
    #[error("{}: the directory of the disk tier is in use by another process", path.display())]
    InUse {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The directory has a newer format version.
    #[error("{}: the directory of the disk tier has format {version} of a newer forebay version; \
             use that version, or another directory", path.display())]
    Newer {
        /// Path of the directory.
        path: PathBuf,
        /// Format version of the directory.
        version: u32,
    },
    /// The directory cannot be created, read or written.
    #[error("{}: the directory of the disk tier cannot be used: {source}", path.display())]
    Unusable {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The size limit of the tier is below 16 MiB.
    #[error("the disk tier's size of {size} bytes is too small: at least {SIZE_MIN} are required")]
    TooSmall {
        /// Requested size in bytes.
        size: u64,
    },
}

/// Reason why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("the write queue of the disk tier is full (32 MiB), so the operation is refused")]
    QueueFull,
    #[error("the read queue of the disk tier is full (1,024 reads), so the lookup is refused")]
    TooManyReads,
    #[error("writes to the disk tier are paused for up to a second after a failed write")]
    WriteFailed,
    #[error("the disk tier is closed")]
    Stopped,
}

impl From<Refusal> for TierError {
    fn from(refusal: Refusal) -> Self {
        Self::failed(refusal)
    }
}

/// A disk tier in one directory. Dropping it starts the shutdown: accepted entries are still
/// written. [`close`](Self::close) waits for that.
pub struct Disk {
    pub(crate) shared: Arc<Shared>,
}

impl Disk {
    /// Opens a directory and creates it if it is missing. This takes milliseconds, since earlier
    /// entries are loaded while the tier serves.
    ///
    /// # Errors
    /// [`OpenError`] if the directory is in use, has a newer format version or cannot be used, or
    /// if the size is too small.
    pub fn open(path: &Path, limits: Limits, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        if limits.size < SIZE_MIN {
            return Err(OpenError::TooSmall { size: limits.size });
        }
        Self::open_over(Arc::new(OsFileSystem), path, limits, clock)
    }

    pub(crate) fn open_over(
        io: Arc<dyn FileSystem>,
        path: &Path,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let root = Root::lock(&*io, path)?;
        let failed = |source| OpenError::Unusable { path: path.to_owned(), source };
        let found = DirectoryContents::of(io.list(path).map_err(failed)?);
        let dir = Dir { io, path: path.to_owned() };
        let (bookmarks, kept) = BookmarkFile::open(dir.clone(), root.seed);
        // Segment numbers may start again where all segments are gone.
        let first = log_position(found.next_segment(), 0);
        let trusted_from = kept.as_ref().map_or(0, |kept| kept.trusted_from.min(first));
        let shared = Arc::new(Shared {
            dir,
            seed: root.seed,
            limits,
            segment_max: limits.segment_max(),
            index: Index::new(),
            files: RwLock::new(HashMap::new()),
            queue: Queue::default(),
            pool: Pool::start().map_err(failed)?,
            buffers: Arc::default(),
            residence: ResidenceClock::begin(&*clock),
            clock,
            purge_marks: PurgeMarks::new(root.seed),
            generation: AtomicU64::new(first),
            bookmark: RwLock::new(kept.map(|kept| kept.bookmark)),
            trusted_from,
            chain_break: RwLock::default(),
            counters: Counters::default(),
            health: Health::default(),
            stage: watch::Sender::new(Stage::Loading),
            widened: watch::Sender::default(),
        });
        let loader = Loader::new(shared.clone(), &found, root.removals);
        let log = Log::new(shared.clone(), root, bookmarks, found);
        let disk = Self { shared };
        start("disk-write", move || writer::run(log)).map_err(failed)?;
        start("disk-load", move || loader.run()).map_err(failed)?;
        Ok(disk)
    }

    /// Returns totals since the tier was opened (reads, writes, rejected records, evictions, errors),
    /// and how many entries can be read and how many bytes all its files have now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counters.read(self.shared.index.entries())
    }

    /// Returns the health of the tier.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.shared.health.condition()
    }

    /// Returns a channel with the number of prefix purges that were widened to their whole site,
    /// because there were too many.
    #[must_use]
    pub fn widened(&self) -> watch::Receiver<u64> {
        self.shared.widened.subscribe()
    }

    /// Waits until all entries of earlier processes can be found.
    pub async fn loaded(&self) {
        self.reached(Stage::Loaded).await;
    }

    /// Writes all accepted entries and releases the directory. Later operations on the tier are
    /// refused.
    pub async fn close(&self) {
        self.shared.queue.close();
        self.reached(Stage::Closed).await;
    }

    async fn reached(&self, stage: Stage) {
        let mut stages = self.shared.stage.subscribe();
        // The sender lives as long as `self`.
        let _ = stages.wait_for(|now| *now >= stage).await;
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(())
}
