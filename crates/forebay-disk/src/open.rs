//! BodyOpening a directory, and closing it.

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

/// The smallest size: below it, one segment would be most of it.
const SIZE_MIN: u64 = 16 << 20;

/// How many segments a directory is divided into, as long as they do not get too large: what is
/// evicted at once is a small part.
const SEGMENTS: u64 = 64;

/// A segment is no larger than this, unless there would be too many open files.
const SEGMENT_USUAL_MAX: u64 = 64 << 20;

/// How many segments a very large directory is divided into; each is an open file.
const SEGMENTS_MAX: u64 = 1_024;

/// A segment is never smaller, so that every entry without a body of its own fits into one.
const SEGMENT_MIN: u64 = 4 << 20;

/// There are always some: what is evicted at once is never all.
const SEGMENTS_MIN: u64 = 4;

/// Offsets have 32 bits; this leaves room for a footer.
const SEGMENT_MAX: u64 = 2 << 30;

/// The bounds of a disk tier, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What all its files may occupy, give or take one segment: a 64th of this, within 4 MiB and
    /// 64 MiB (above 64 GiB: a 1,024th). At least 16 MiB.
    pub size: u64,
    /// The largest body that is stored.
    pub object_max: u64,
}

impl Limits {
    /// `size` bytes in all, bodies of up to a quarter of that.
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

/// Why a directory could not be opened. Nothing in it was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open, or this one has.
    #[error("{}: in use by another process", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A later version wrote it.
    #[error("{}: written by a newer version (format {version}); use that one, or another \
             directory", path.display())]
    Newer {
        /// The directory.
        path: PathBuf,
        /// The version of its format.
        version: u32,
    },
    /// It cannot be made, read or written to.
    #[error("{}: the disk tier cannot use it: {source}", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The size is below the least.
    #[error("{size} bytes are too few for a disk tier: at least {SIZE_MIN}")]
    TooSmall {
        /// The size that was asked for.
        size: u64,
    },
}

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("too much is waiting to be written")]
    QueueFull,
    #[error("too many reads are waiting")]
    TooManyReads,
    #[error("the disk could not be written to a moment ago")]
    WriteFailed,
    #[error("the disk tier has stopped")]
    Stopped,
}

impl From<Refusal> for TierError {
    fn from(refusal: Refusal) -> Self {
        Self::failed(refusal)
    }
}

/// A tier in a directory. Dropped, it writes what it has accepted, some time later; to wait for
/// that there is [`close`](Self::close).
pub struct Disk {
    pub(crate) shared: Arc<Shared>,
}

impl Disk {
    /// Opens a directory, which is made if it is missing. Takes milliseconds: what earlier
    /// processes have left is read while the tier serves.
    ///
    /// # Errors
    /// If the directory is in use, of a newer version, or cannot be used; if the size is too small.
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
        // Numbers may begin anew where segments are gone.
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

    /// What it has done until now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counters.read(self.shared.index.entries())
    }

    /// How it is.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.shared.health.condition()
    }

    /// How many purges by prefix have become purges of their whole sites, since there were too many
    /// to be told apart; for whoever wants to be told of one more.
    #[must_use]
    pub fn widened(&self) -> watch::Receiver<u64> {
        self.shared.widened.subscribe()
    }

    /// Waits until all that earlier processes have left can be read.
    pub async fn loaded(&self) {
        self.reached(Stage::Loaded).await;
    }

    /// Writes what it has accepted, and lets go of the directory. Whatever it is asked after this
    /// it refuses.
    pub async fn close(&self) {
        self.shared.queue.close();
        self.reached(Stage::Closed).await;
    }

    async fn reached(&self, stage: Stage) {
        let mut stages = self.shared.stage.subscribe();
        // The sender lives as long as this.
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
