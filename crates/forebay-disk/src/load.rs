//! Loading of earlier segments, from the newest on, while the tier serves.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use crate::files::io::{DirectoryFile, Mode, OpenFile};
use crate::format::layout::RecordId;
use crate::format::scan::SegmentScan;
use crate::shared::queue::Op;
use crate::shared::{Shared, Stage};

/// Files of a directory at its opening.
#[derive(Default)]
pub(crate) struct DirectoryContents {
    pub(crate) segments: BTreeMap<u32, u64>,
    pub(crate) bodies: BTreeMap<RecordId, u64>,
    /// Partial bodies.
    parts: Vec<(u64, u64)>,
    foreign: u64,
}

impl DirectoryContents {
    pub(crate) fn of(listed: Vec<DirectoryFile>) -> Self {
        let mut found = Self::default();
        for file in listed {
            match FileName::read(&file.name) {
                Some(FileName::Segment(number)) => {
                    found.segments.insert(number, file.len);
                }
                Some(FileName::Body(name)) => {
                    found.bodies.insert(name, file.len);
                }
                Some(FileName::Part(part)) => found.parts.push((part, file.len)),
                Some(FileName::Other) => {}
                None => found.foreign += 1,
            }
        }
        found
    }

    pub(crate) fn bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|(_, len)| len);
        self.segments.values().chain(self.bodies.values()).chain(parts).sum()
    }

    /// Returns a segment number that no segment and no body uses.
    pub(crate) fn next_segment(&self) -> u32 {
        let segment = self.segments.last_key_value().map(|(number, _)| *number);
        let body = self.bodies.last_key_value().map(|(record, _)| record.segment);
        segment.max(body).map_or(0, |last| last.saturating_add(1))
    }
}

enum FileName {
    /// A file with a fixed name.
    Other,
    Segment(u32),
    Body(RecordId),
    Part(u64),
}

impl FileName {
    fn read(name: &str) -> Option<Self> {
        if name == crate::format::root::NAME || name == crate::format::bookmark::NAME {
            return Some(Self::Other);
        }
        let (stem, ending) = name.split_once('.')?;
        let is_ours = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let word = |part: &str| match part.len() {
            8 if is_ours(part) => u32::from_str_radix(part, 16).ok(),
            _ => None,
        };
        match (ending, stem.split_once('-')) {
            ("segment", None) => Some(Self::Segment(word(stem)?)),
            ("body", Some((segment, offset))) => {
                Some(Self::Body(RecordId { segment: word(segment)?, offset: word(offset)? }))
            }
            ("part", None) => {
                let (high, low) = stem.split_at_checked(8)?;
                Some(Self::Part(u64::from(word(high)?) << 32 | u64::from(word(low)?)))
            }
            _ => None,
        }
    }
}

/// Loads earlier segments on a thread of its own.
pub(crate) struct Loader {
    shared: Arc<Shared>,
    /// Segment numbers, the newest first.
    segments: Vec<u32>,
    parts: Vec<(u64, u64)>,
    /// Number of removals up to the end of the segments not loaded yet.
    removals: u64,
}

impl Loader {
    pub(crate) fn new(shared: Arc<Shared>, found: &DirectoryContents, removals: u64) -> Self {
        shared.counters.foreign.store(found.foreign, std::sync::atomic::Ordering::Relaxed);
        let segments = found.segments.keys().rev().copied().collect();
        Self { shared, segments, parts: found.parts.clone(), removals }
    }

    pub(crate) fn run(mut self) {
        for number in std::mem::take(&mut self.segments) {
            if self.shared.queue.is_closed() || !self.load(number) {
                break;
            }
        }
        self.unlink_parts();
        if self.shared.queue.push(Op::Loaded).is_err() {
            self.shared.advance(Stage::Loaded);
        }
    }

    /// Loads a segment. Returns whether older segments can be trusted.
    fn load(&mut self, number: u32) -> bool {
        let shared = &self.shared;
        let file = match open(shared, shared.dir.segment(number)) {
            Ok(file) => file,
            Err(error) => {
                // The segment was evicted or removed meanwhile.
                if error.kind() != ErrorKind::NotFound {
                    shared.failed();
                }
                return true;
            }
        };
        let scan = SegmentScan::of(&*file, shared.seed, number);
        shared.counters.holes.fetch_add(scan.holes, std::sync::atomic::Ordering::Relaxed);
        if scan.failed {
            shared.failed();
        }
        self.apply(scan, file)
    }

    fn apply(&mut self, scan: SegmentScan, file: Arc<dyn OpenFile>) -> bool {
        let (number, floor) = (scan.segment, scan.floor);
        let queue = &self.shared.queue;
        if let Some((before, end)) = scan.removals {
            if end < self.removals {
                // Removals between this segment and the loaded ones are lost.
                let _ = queue.push(Op::DiscardSegments { last: number });
                return false;
            }
            self.removals = before;
        }
        let _ = queue.push(Op::SegmentScanned(Box::new((scan, file))));
        let older = number.checked_sub(1).filter(|_| floor > 0);
        if let Some(last) = older {
            let _ = queue.push(Op::DiscardSegments { last });
        }
        floor == 0
    }

    fn unlink_parts(&self) {
        for (part, len) in &self.parts {
            match self.shared.dir.unlink(&self.shared.dir.part(*part)) {
                Ok(()) => {
                    let bytes = &self.shared.counters.bytes;
                    bytes.fetch_sub(*len, std::sync::atomic::Ordering::Relaxed);
                }
                Err(_) => self.shared.failed(),
            }
        }
    }
}

/// Opened for writing if possible, since a footer may be added.
fn open(shared: &Shared, path: PathBuf) -> io::Result<Arc<dyn OpenFile>> {
    match shared.dir.io.open(&path, Mode::Write) {
        Err(error) if error.kind() != ErrorKind::NotFound => shared.dir.io.open(&path, Mode::Read),
        opened => opened,
    }
}
