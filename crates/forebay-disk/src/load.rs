//! Reading what earlier lives have left, from the newest segment on, while the tier serves.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use crate::io::{Listed, Mode, Opened};
use crate::queue::Op;
use crate::shared::{Shared, Stage};
use crate::survey::Survey;

/// What is in a directory when it is opened.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) segments: BTreeMap<u32, u64>,
    pub(crate) bodies: BTreeMap<(u32, u32), u64>,
    /// Bodies that were on their way.
    parts: Vec<(u64, u64)>,
    foreign: u64,
}

impl Found {
    pub(crate) fn of(listed: Vec<Listed>) -> Self {
        let mut found = Self::default();
        for file in listed {
            match Name::read(&file.name) {
                Some(Name::Segment(number)) => {
                    found.segments.insert(number, file.len);
                }
                Some(Name::Body(name)) => {
                    found.bodies.insert(name, file.len);
                }
                Some(Name::Part(part)) => found.parts.push((part, file.len)),
                Some(Name::Other) => {}
                None => found.foreign += 1,
            }
        }
        found
    }

    pub(crate) fn bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|(_, len)| len);
        self.segments.values().chain(self.bodies.values()).chain(parts).sum()
    }

    /// A number that no segment has, and no body belongs to.
    pub(crate) fn next_segment(&self) -> u32 {
        let segment = self.segments.last_key_value().map(|(number, _)| *number);
        let body = self.bodies.last_key_value().map(|((number, _), _)| *number);
        segment.max(body).map_or(0, |last| last.saturating_add(1))
    }
}

enum Name {
    /// One of a kind.
    Other,
    Segment(u32),
    Body((u32, u32)),
    Part(u64),
}

impl Name {
    fn read(name: &str) -> Option<Self> {
        if name == crate::root::NAME || name == crate::bookmark::NAME {
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
            ("body", Some((segment, offset))) => Some(Self::Body((word(segment)?, word(offset)?))),
            ("part", None) => {
                let (high, low) = stem.split_at_checked(8)?;
                Some(Self::Part(u64::from(word(high)?) << 32 | u64::from(word(low)?)))
            }
            _ => None,
        }
    }
}

/// The thread that reads it.
pub(crate) struct Loader {
    shared: Arc<Shared>,
    /// From the newest on.
    segments: Vec<u32>,
    parts: Vec<(u64, u64)>,
    /// How many removals there were where the segments end that have not been read.
    removals: u64,
}

impl Loader {
    pub(crate) fn new(shared: Arc<Shared>, found: &Found, removals: u64) -> Self {
        shared.tallies.foreign.store(found.foreign, std::sync::atomic::Ordering::Relaxed);
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

    /// Whether older segments can be relied on.
    fn load(&mut self, number: u32) -> bool {
        let shared = &self.shared;
        let file = match open(shared, shared.dir.segment(number)) {
            Ok(file) => file,
            Err(error) => {
                // It made room meanwhile, or somebody has removed it.
                if error.kind() != ErrorKind::NotFound {
                    shared.failed();
                }
                return true;
            }
        };
        let survey = Survey::of(&*file, shared.seed, number);
        shared.tallies.holes.fetch_add(survey.holes, std::sync::atomic::Ordering::Relaxed);
        if survey.failed {
            shared.failed();
        }
        self.judge(survey, file)
    }

    fn judge(&mut self, survey: Survey, file: Arc<dyn Opened>) -> bool {
        let (number, floor) = (survey.segment, survey.floor);
        let queue = &self.shared.queue;
        if let Some((before, end)) = survey.removals {
            if end < self.removals {
                // Removals are lost between here and what has been read already.
                let _ = queue.push(Op::Suspect { last: number });
                return false;
            }
            self.removals = before;
        }
        let _ = queue.push(Op::Surveyed(Box::new((survey, file))));
        let older = number.checked_sub(1).filter(|_| floor > 0);
        if let Some(last) = older {
            let _ = queue.push(Op::Suspect { last });
        }
        floor == 0
    }

    fn unlink_parts(&self) {
        for (part, len) in &self.parts {
            match self.shared.dir.unlink(&self.shared.dir.part(*part)) {
                Ok(()) => {
                    let bytes = &self.shared.tallies.bytes;
                    bytes.fetch_sub(*len, std::sync::atomic::Ordering::Relaxed);
                }
                Err(_) => self.shared.failed(),
            }
        }
    }
}

/// To write, too: a footer may have to be added.
fn open(shared: &Shared, path: PathBuf) -> io::Result<Arc<dyn Opened>> {
    match shared.dir.io.open(&path, Mode::Write) {
        Err(error) if error.kind() != ErrorKind::NotFound => shared.dir.io.open(&path, Mode::Read),
        opened => opened,
    }
}
