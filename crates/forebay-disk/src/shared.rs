//! State shared by all threads of a disk tier, and the queue of operations for the writing thread.
//!
//! This folder uses `index`, `format`, `files`, `counts` and `limits`; it never sees the tier trait or
//! the log.

pub(crate) mod queue;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Timestamp;
use forebay_engine::Clock;
use forebay_engine::bus::Bookmark;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::counts::{Counters, Health, count};
use crate::files::buffers::Buffers;
use crate::files::io::OpenFile;
use crate::files::pool::Pool;
use crate::format::dir::Dir;
use crate::format::layout::{Digest, Location, Seed};
use crate::index::Index;
use crate::index::prefixes::PrefixPurge;
use crate::index::purge_marks::PurgeMarks;
use crate::index::residence::ResidenceClock;
use crate::limits::Limits;
use crate::shared::queue::Queue;

/// One open directory.
pub(crate) struct Shared {
    pub(crate) dir: Dir,
    pub(crate) seed: Seed,
    pub(crate) limits: Limits,
    pub(crate) segment_max: u32,
    pub(crate) index: Index,
    /// Readable segments.
    pub(crate) files: RwLock<HashMap<u32, Arc<dyn OpenFile>>>,
    pub(crate) queue: Queue,
    pub(crate) pool: Pool,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) residence: ResidenceClock,
    pub(crate) purge_marks: PurgeMarks,
    /// Log position behind the last purge. Writes that begin now are reached by later purges only.
    pub(crate) generation: AtomicU64,
    /// Saved bus position.
    pub(crate) bookmark: RwLock<Option<Bookmark>>,
    /// Log position before which entries of earlier sessions are unverified.
    pub(crate) trusted_from: u64,
    /// Time and log position of the last missed purges in this session.
    pub(crate) chain_break: RwLock<Option<(Timestamp, u64)>>,
    pub(crate) counters: Counters,
    pub(crate) health: Health,
    pub(crate) stage: watch::Sender<Stage>,
    /// Number of prefix purges widened to their whole site.
    pub(crate) widened: watch::Sender<u64>,
}

/// Lifecycle of an open directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Entries of earlier sessions are being loaded.
    Loading,
    Loaded,
    /// Everything is written, and the directory is released.
    Closed,
}

impl Shared {
    /// Returns the generation for a write. A load that started before purges were missed is as
    /// unverified as entries stored then.
    pub(crate) fn generation_of(&self, load_started_at: Timestamp) -> u64 {
        let generation = self.generation.load(Ordering::Acquire);
        match *self.chain_break.read() {
            Some((until, before)) if load_started_at < until => generation.min(before),
            _ => generation,
        }
    }

    pub(crate) fn file(&self, segment: u32) -> Option<Arc<dyn OpenFile>> {
        self.files.read().get(&segment).cloned()
    }

    /// Records a prefix purge.
    pub(crate) fn add_prefix_purge(&self, prefix_purge: PrefixPurge, position: u64) {
        if self.purge_marks.note_prefix_purge(prefix_purge, position) {
            count(&self.counters.widened);
            self.widened.send_modify(|widened| *widened += 1);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    /// Counts a damaged record and removes it from the index.
    pub(crate) fn damaged(&self, digest: Digest, location: Location) {
        count(&self.counters.damaged);
        self.index.remove_if(digest, location);
    }

    pub(crate) fn failed(&self) {
        count(&self.counters.io_errors);
    }

    pub(crate) fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            *now = stage.max(*now);
            later
        });
    }
}
