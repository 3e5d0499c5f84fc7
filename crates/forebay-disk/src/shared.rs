//! What all threads of a disk tier share.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_engine::Clock;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::buffers::Buffers;
use crate::counts::{Health, Tallies, count};
use crate::index::Index;
use crate::io::{Io, Opened};
use crate::layout::{Digest, Seed, Spot};
use crate::life::Life;
use crate::marks::Marks;
use crate::open::Limits;
use crate::pool::Pool;
use crate::queue::Queue;

/// One open directory.
pub(crate) struct Shared {
    pub(crate) dir: Dir,
    pub(crate) seed: Seed,
    pub(crate) limits: Limits,
    pub(crate) segment_max: u32,
    pub(crate) index: Index,
    /// The segments that can be read.
    pub(crate) files: RwLock<HashMap<u32, Arc<dyn Opened>>>,
    pub(crate) queue: Queue,
    pub(crate) pool: Pool,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) life: Life,
    pub(crate) marks: Marks,
    /// The place in the log behind the last purge: what is begun now is reached by later ones only.
    pub(crate) era: AtomicU64,
    pub(crate) tallies: Tallies,
    pub(crate) health: Health,
    pub(crate) stage: watch::Sender<Stage>,
}

/// How far a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// What earlier lives have left is still being read.
    Loading,
    Loaded,
    /// Everything is written, and the directory is let go of.
    Closed,
}

/// A directory, and how its files are reached.
#[derive(Clone)]
pub(crate) struct Dir {
    pub(crate) io: Arc<dyn Io>,
    pub(crate) path: PathBuf,
}

impl Dir {
    pub(crate) fn segment(&self, number: u32) -> PathBuf {
        self.path.join(format!("{number:08x}.segment"))
    }

    pub(crate) fn body(&self, (segment, offset): (u32, u32)) -> PathBuf {
        self.path.join(format!("{segment:08x}-{offset:08x}.body"))
    }

    pub(crate) fn part(&self, part: u64) -> PathBuf {
        self.path.join(format!("{part:016x}.part"))
    }

    /// Removes a file; one that is not there is removed.
    pub(crate) fn unlink(&self, path: &Path) -> io::Result<()> {
        match self.io.unlink(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Shared {
    pub(crate) fn file(&self, segment: u32) -> Option<Arc<dyn Opened>> {
        self.files.read().get(&segment).cloned()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.tallies.bytes.load(Ordering::Relaxed)
    }

    /// What stands there is not what it should be: it is not looked for any more.
    pub(crate) fn damaged(&self, digest: Digest, spot: Spot) {
        count(&self.tallies.damaged);
        self.index.remove_if(digest, spot);
    }

    pub(crate) fn failed(&self) {
        count(&self.tallies.io_errors);
    }

    pub(crate) fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            *now = stage.max(*now);
            later
        });
    }
}
