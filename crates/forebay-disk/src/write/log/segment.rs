//! The open segment: created on demand, closed with a footer.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::files::io::{Mode, OpenFile, write_all};
use crate::format::layout::{
    Digest, Kind, Location, RECORD_HEADER_LEN, Row, SEGMENT_HEADER, SegmentHeader, Trailer,
    encode_footer,
};
use crate::write::log::Log;

/// The segment that is written to.
pub(crate) struct OpenSegment {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn OpenFile>,
    pub(crate) at: u32,
    /// Bytes with separate bodies.
    pub(crate) weight: u64,
    rows: Vec<Row>,
    newest: u64,
}

impl Log {
    /// Ensures that the open segment has `len` free bytes.
    ///
    /// # Errors
    /// The error of creating a segment.
    pub(crate) fn segment_for(&mut self, len: u32) -> io::Result<()> {
        let max = self.shared.segment_max;
        if self.open.as_ref().is_some_and(|open| !open.has_space(len as usize, max)) {
            self.seal();
        }
        if self.open.is_none() {
            self.open = Some(self.begin_segment()?);
        }
        Ok(())
    }

    /// Closes the open segment with `more` unusable bytes at its end.
    pub(crate) fn abandon_segment(&mut self, more: usize) {
        let Some(open) = self.open.take() else { return };
        let path = self.shared.dir.segment(open.number);
        // An empty segment is deleted, so that repeated failures leave no files.
        if open.at == SEGMENT_HEADER && self.shared.dir.unlink(&path).is_ok() {
            self.shared.files.write().remove(&open.number);
            return self.subtract_bytes(u64::from(SEGMENT_HEADER));
        }
        self.add_bytes(more as u64);
        self.sealed.insert(open.number, u64::from(open.at) + more as u64);
    }

    fn begin_segment(&mut self) -> io::Result<OpenSegment> {
        let number = self.next_segment;
        // A number that could not be used is skipped.
        self.next_segment = number.checked_add(1).ok_or(ErrorKind::QuotaExceeded)?;
        let path = self.shared.dir.segment(number);
        let file = self.shared.dir.io.open(&path, Mode::New)?;
        let session = self.shared.residence.session();
        let header = SegmentHeader { segment: number, removals: self.root.removals, session };
        if let Err(error) = write_all(&*file, &header.encode(self.shared.seed), 0) {
            let _ = self.shared.dir.unlink(&path);
            return Err(error);
        }
        self.add_bytes(u64::from(SEGMENT_HEADER));
        self.shared.files.write().insert(number, file.clone());
        let at = SEGMENT_HEADER;
        Ok(OpenSegment { number, file, at, weight: 0, rows: Vec::new(), newest: 0 })
    }

    /// Closes the open segment with a footer. Without one the next opening takes longer.
    pub(crate) fn seal(&mut self) {
        let Some(open) = self.open.take() else { return };
        let end = open.at;
        let (number, rows) = (open.number, &open.rows);
        let footer = self.footer(number, rows, self.root.removals, open.newest);
        let mut bytes = u64::from(end);
        match write_all(&*open.file, &footer, bytes) {
            Ok(()) => {
                self.add_bytes(footer.len() as u64);
                bytes += footer.len() as u64;
            }
            Err(_) => self.shared.failed(),
        }
        self.sealed.insert(number, bytes);
    }

    pub(crate) fn footer(&self, segment: u32, rows: &[Row], removals: u64, newest: u64) -> Vec<u8> {
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let trailer = Trailer { rows: count, segment, removals, newest };
        encode_footer(rows, &trailer, self.shared.seed)
    }

    /// Invalidates a record.
    pub(crate) fn erase_record(&mut self, digest: Digest, location: Location) {
        let struck = match &mut self.open {
            Some(open) if open.number == location.segment => open.erase(location),
            _ => Err(ErrorKind::NotFound.into()),
        };
        if struck.is_err() {
            self.shared.failed();
            // Otherwise a removal of the key invalidates the record.
            self.shared.index.remove(digest);
            let _ = self.append_removal(Kind::Removal, digest);
        }
    }
}

impl OpenSegment {
    /// True if `len` more bytes fit into a segment.
    pub(crate) const fn has_space(&self, len: usize, max: u32) -> bool {
        self.at as usize + len <= max as usize && self.weight < max as u64
    }

    pub(crate) fn take(&mut self, row: Row, wall: u64) {
        self.at += row.len;
        self.weight += u64::from(row.len);
        self.newest = self.newest.max(wall);
        self.rows.push(row);
    }

    fn erase(&mut self, location: Location) -> io::Result<()> {
        // The record is one of the last.
        let row = self.rows.iter().rposition(|row| row.offset == location.offset);
        if let Some(row) = row {
            self.rows.remove(row);
        }
        write_all(&*self.file, &[0; RECORD_HEADER_LEN], u64::from(location.offset))
    }
}
