//! Eviction of the oldest segment; entries that were hit are written again.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_core::{KeyRef, frame};

use crate::counts::count;
use crate::files::io::read_new;
use crate::format::layout::{
    Digest, Location, RECORD_HEADER_LEN, RecordHeader, RecordId, SEGMENT_HEADER,
};
use crate::write::log::{Log, Record};

/// Divisor for the part of a segment that may be written again, so that eviction frees space.
const REINSERTED_SHARE: u64 = 2;

impl Log {
    /// Evicts segments until `len` more bytes fit into the size.
    ///
    /// # Errors
    /// `FileTooLarge` if no segment is left to evict, or the error of a removal.
    pub(crate) fn evict_for(&mut self, len: u64) -> io::Result<()> {
        while self.shared.bytes() + len > self.shared.limits.size {
            if !self.evict_oldest()? {
                return Err(ErrorKind::FileTooLarge.into());
            }
        }
        Ok(())
    }

    fn evict_oldest(&mut self) -> io::Result<bool> {
        if self.sealed.is_empty() && self.open.as_ref().is_some_and(|open| open.at > SEGMENT_HEADER)
        {
            self.seal();
        }
        let Some((&oldest, &bytes)) = self.sealed.first_key_value() else { return Ok(false) };
        self.reinsert(oldest, bytes / REINSERTED_SHARE);
        let entries = self.delete_segment(oldest)?;
        let counters = &self.shared.counters;
        count(&counters.evicted);
        counters.evicted_entries.fetch_add(entries as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// Writes hit entries again, up to `share` bytes. Each stays readable at its old location until
    /// then.
    fn reinsert(&mut self, segment: u32, share: u64) {
        let mut left = share;
        for (digest, location) in self.shared.index.hits_in(segment) {
            let Some(rest) = left.checked_sub(location.len() as u64) else { break };
            left = rest;
            match self.reinsert_one(digest, location) {
                Ok(()) => {}
                // The disk is full or broken; the remaining entries are evicted.
                Err(_) => return self.shared.failed(),
            }
        }
    }

    fn reinsert_one(&mut self, digest: Digest, location: Location) -> io::Result<()> {
        let Some(file) = self.shared.file(location.segment) else { return Ok(()) };
        let bytes = Bytes::from(read_new(&*file, location.len(), u64::from(location.offset))?);
        let at = location.record();
        let header = RecordHeader::decode(&bytes, self.shared.seed, at);
        let payload = header.and_then(|header| {
            let end = RECORD_HEADER_LEN.checked_add(usize::try_from(header.payload).ok()?)?;
            (end <= bytes.len()).then(|| (header, bytes.slice(RECORD_HEADER_LEN..end)))
        });
        let Some((header, payload)) = payload.filter(|(header, _)| header.digest == digest) else {
            self.shared.damaged(digest, location);
            return Ok(());
        };
        // A possibly purged entry is not written again, since it would outlive the record of the
        // purge.
        let (marks, generation) = (&self.shared.purge_marks, header.generation);
        let is_softened = |key: KeyRef<'_>| marks.is_softened(generation, key);
        if marks.any_after(generation) || frame::key(&payload).is_none_or(is_softened) {
            return Ok(());
        }
        // The payload's own digest is verified at each read.
        let RecordHeader { kind, stored, generation, .. } = header;
        let record = Record { kind, digest, stored, generation, payload: &payload };
        let moved = self.append(&record)?;
        if location.has_body() {
            self.move_body(at, moved.record())?;
        }
        // A reader may have found it damaged meanwhile.
        if self.shared.index.move_if(digest, location, moved) {
            count(&self.shared.counters.reinserted);
        } else {
            self.erase_record(digest, moved);
        }
        Ok(())
    }

    fn move_body(&mut self, from: RecordId, to: RecordId) -> io::Result<()> {
        let dir = &self.shared.dir;
        dir.io.rename(&dir.body(from), &dir.body(to))?;
        let len = self.bodies.remove(&from).unwrap_or(0);
        self.add_body(to, len);
        Ok(())
    }

    /// Deletes a segment with its bodies, and returns the number of its readable entries.
    pub(crate) fn delete_segment(&mut self, number: u32) -> io::Result<usize> {
        let entries = self.shared.index.forget(number);
        self.shared.files.write().remove(&number);
        let bodies: Vec<_> = self.bodies.range(RecordId::all_in(number)).collect();
        for name in bodies.into_iter().map(|(name, _)| *name).collect::<Vec<_>>() {
            self.unlink_body(name);
        }
        if self.bodies.range(RecordId::all_in(number)).next().is_some() {
            return Err(io::Error::other(
                "a body file of the evicted segment could not be deleted",
            ));
        }
        self.shared.dir.unlink(&self.shared.dir.segment(number))?;
        let bytes = self.sealed.remove(&number).unwrap_or(0);
        self.subtract_bytes(bytes);
        if self.sealed.range(..number).next().is_none() {
            self.shared.purge_marks.forget_before(number);
        }
        Ok(entries)
    }

    /// Deletes all earlier segments up to this one, because removals of their entries may be lost.
    pub(crate) fn discard_segments(&mut self, last: u32) {
        let all: Vec<u32> = self.sealed.range(..=last).map(|(number, _)| *number).collect();
        for number in all {
            count(&self.shared.counters.discarded_segments);
            if self.delete_segment(number).is_err() {
                self.shared.failed();
            }
        }
    }
}
