//! What all threads of a disk tier share.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Timestamp;
use forebay_engine::Clock;
use forebay_engine::bus::Bookmark;
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
use crate::prefixes::Named;
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
    /// How far the bus has been followed.
    pub(crate) bookmark: RwLock<Option<Bookmark>>,
    /// Where earlier lives have last missed something: what is of an era before it is suspect.
    pub(crate) sound_from: u64,
    /// The same of this life, and until when.
    pub(crate) broke: RwLock<Option<(Timestamp, u64)>>,
    pub(crate) tallies: Tallies,
    pub(crate) health: Health,
    pub(crate) stage: watch::Sender<Stage>,
    /// How many prefixes have become purges of their whole sites.
    pub(crate) widened: watch::Sender<u64>,
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
    /// The era of what is begun now. What left for its origin before something was missed is as
    /// suspect as what was stored then.
    pub(crate) fn era_of(&self, departed: Timestamp) -> u64 {
        let era = self.era.load(Ordering::Acquire);
        match *self.broke.read() {
            Some((until, before)) if departed < until => era.min(before),
            _ => era,
        }
    }

    pub(crate) fn file(&self, segment: u32) -> Option<Arc<dyn Opened>> {
        self.files.read().get(&segment).cloned()
    }

    /// Notes a purge by prefix.
    pub(crate) fn take_prefix(&self, named: Named, place: u64) {
        if self.marks.note_prefix(named, place) {
            count(&self.tallies.widened);
            self.widened.send_modify(|widened| *widened += 1);
        }
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
