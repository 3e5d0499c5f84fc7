//! Opening and closing of a directory.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use forebay_engine::Clock;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::counts::{Condition, Counters, Counts, Health};
use crate::error::{OpenError, SIZE_MIN};
use crate::files::io::{FileSystem, OsFileSystem};
use crate::files::pool::Pool;
use crate::format::bookmark::BookmarkFile;
use crate::format::dir::Dir;
use crate::format::layout::log_position;
use crate::format::root::Root;
use crate::index::Index;
use crate::index::purge_marks::PurgeMarks;
use crate::index::residence::ResidenceClock;
use crate::limits::Limits;
use crate::load::{DirectoryContents, Loader};
use crate::shared::queue::Queue;
use crate::shared::{Shared, Stage};
use crate::write::log::Log;
use crate::write::writer;

/// A disk tier in one directory. Dropping it starts the shutdown: accepted entries are still
/// written. [`close`](Self::close) waits for that.
pub struct Disk {
    pub(crate) shared: Arc<Shared>,
}

impl Disk {
    /// Opens a directory and creates it if it is missing. This takes milliseconds, since earlier
    /// entries are loaded on a thread of their own; see [`loaded`](Self::loaded). Entries of an older format version are not read.
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

    /// Returns totals since the tier was opened: lookups, writes, refused operations, damaged
    /// records, evictions and errors. `entries` and `bytes` are the readable entries and the bytes
    /// of all files now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counters.read(self.shared.index.entries())
    }

    /// Returns the health of the tier, as its last write showed.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.shared.health.condition()
    }

    /// Returns a channel with the number of prefix purges since the opening that were widened to
    /// their whole site, because more than 64 were recorded.
    #[must_use]
    pub fn widened(&self) -> watch::Receiver<u64> {
        self.shared.widened.subscribe()
    }

    /// Waits until all entries of earlier processes can be found. Before that, lookups of them may
    /// miss.
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
