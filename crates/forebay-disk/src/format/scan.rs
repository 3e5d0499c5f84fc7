//! Scan of a segment that an earlier session wrote.
//!
//! A closed segment has a footer. Without a valid one the records are read in sequence; after
//! invalid bytes the next record is searched.
//!
//! Each record header contains the number of removals before it. A gap or a missing segment
//! therefore shows whether a removal is lost, and only then are older records distrusted.

use std::io;

use crate::files::io::{OpenFile, read_all};
use crate::format::layout::{
    ALIGN, RECORD_HEADER, RECORD_HEADER_LEN, ROW, RecordHeader, RecordId, Row, SEGMENT_HEADER,
    Seed, SegmentHeader, TRAILER, decode_footer, peek_trailer,
};

/// Bytes per read in the search for the next record.
const WINDOW: u32 = 256 << 10;

/// Content of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentScan {
    pub(crate) segment: u32,
    /// Records in the order of their offsets.
    pub(crate) rows: Vec<Row>,
    /// Number of removals before the segment and at its end; `None` if unknown.
    pub(crate) removals: Option<(u64, u64)>,
    /// Highest wall clock value.
    pub(crate) newest: u64,
    /// Offset for a footer, if there is none.
    pub(crate) footer_at: Option<u32>,
    /// Number of unreadable parts.
    pub(crate) holes: u64,
    /// Offset behind the last gap in which a removal is lost; earlier records are not trusted.
    pub(crate) floor: u32,
    /// True if a read failed.
    pub(crate) failed: bool,
}

impl SegmentScan {
    /// Scans a segment. Unreadable records are missing from the result.
    pub(crate) fn of(file: &dyn OpenFile, seed: Seed, segment: u32) -> Self {
        let mut scan = Self { segment, ..Self::default() };
        scan.failed = scan.read(file, seed).is_err();
        scan
    }

    fn read(&mut self, file: &dyn OpenFile, seed: Seed) -> io::Result<()> {
        let len = u32::try_from(file.len()?).unwrap_or(u32::MAX);
        let mut start = [0; SEGMENT_HEADER as usize];
        let mut header = None;
        if len >= SEGMENT_HEADER {
            read_all(file, &mut start, 0)?;
            header = SegmentHeader::decode(&start, seed, self.segment);
        }
        if self.read_footer(file, seed, len, header)? {
            return Ok(());
        }
        self.holes += u64::from(header.is_none());
        self.footer_at = len.checked_next_multiple_of(ALIGN);
        self.removals = header.map(|header| (header.removals, header.removals));
        RecordScan { scan: self, file, seed, len, at: SEGMENT_HEADER }.all()
    }

    fn read_footer(
        &mut self,
        file: &dyn OpenFile,
        seed: Seed,
        len: u32,
        header: Option<SegmentHeader>,
    ) -> io::Result<bool> {
        let Some(space) = (len as usize).checked_sub(SEGMENT_HEADER as usize + TRAILER) else {
            return Ok(false);
        };
        let mut end = [0; TRAILER];
        read_all(file, &mut end, u64::from(len) - TRAILER as u64)?;
        let Some(trailer) = peek_trailer(&end, self.segment) else { return Ok(false) };
        let rows_len = usize::try_from(trailer.rows).unwrap_or(usize::MAX).saturating_mul(ROW);
        if rows_len > space {
            return Ok(false);
        }
        let mut footer = vec![0; rows_len + TRAILER];
        let at = u64::from(len) - footer.len() as u64;
        read_all(file, &mut footer, at)?;
        let Some(rows) = decode_footer(&footer, seed, self.segment) else { return Ok(false) };
        let inside = rows.iter().filter(|row| row.kind.is_counted()).count() as u64;
        let before = trailer.removals.saturating_sub(inside);
        // A footer added after a crash contains only the removals that could be read.
        self.removals = Some((header.map_or(before, |header| header.removals), trailer.removals));
        self.newest = trailer.newest;
        self.rows = rows;
        Ok(true)
    }

    /// Adds a record, and notes whether a removal before it is lost.
    fn note(&mut self, header: &RecordHeader, offset: u32, len: u32) {
        let (before, seen) = self.removals.unwrap_or((header.removals, header.removals));
        if header.removals > seen {
            self.floor = offset;
        }
        let inside = u64::from(header.kind.is_counted());
        self.removals = Some((before, seen.max(header.removals) + inside));
        self.newest = self.newest.max(header.stored.wall);
        self.rows.push(Row { digest: header.digest, offset, len, kind: header.kind });
    }
}

/// Sequential scan of the records of a segment.
struct RecordScan<'a> {
    scan: &'a mut SegmentScan,
    file: &'a dyn OpenFile,
    seed: Seed,
    len: u32,
    at: u32,
}

impl RecordScan<'_> {
    fn all(mut self) -> io::Result<()> {
        let mut bytes = [0; RECORD_HEADER_LEN];
        while self.fits(RECORD_HEADER_LEN) {
            read_all(self.file, &mut bytes, u64::from(self.at))?;
            let header = RecordHeader::decode(
                &bytes,
                self.seed,
                RecordId { segment: self.scan.segment, offset: self.at },
            );
            match header.and_then(|header| Some((header, header.len()?))) {
                // A record without an end was being written when the session ended.
                Some((_, len)) if !self.fits(len as usize) => break,
                Some((header, len)) => {
                    self.scan.note(&header, self.at, len);
                    self.at += len;
                }
                None if self.find_next()? => self.scan.holes += 1,
                None => break,
            }
        }
        self.scan.holes += u64::from(self.at < self.len);
        Ok(())
    }

    fn fits(&self, len: usize) -> bool {
        u64::from(self.at) + len as u64 <= u64::from(self.len)
    }

    /// Finds the next record. Clients control the bytes in between: a false start costs one
    /// checksum and no call.
    fn find_next(&mut self) -> io::Result<bool> {
        let mut window = vec![0; WINDOW as usize];
        let mut from = self.at.saturating_add(ALIGN);
        while self.len.saturating_sub(from) >= RECORD_HEADER {
            let len = (self.len - from).min(WINDOW);
            let window = &mut window[..len as usize];
            read_all(self.file, window, u64::from(from))?;
            // A record that begins near the end of the window is found in the next one.
            let last = (len - RECORD_HEADER) / ALIGN * ALIGN;
            for ahead in (0..=last).step_by(ALIGN as usize) {
                let record = RecordId { segment: self.scan.segment, offset: from + ahead };
                if RecordHeader::decode(&window[ahead as usize..], self.seed, record).is_some() {
                    self.at = from + ahead;
                    return Ok(true);
                }
            }
            from = from.saturating_add(last + ALIGN);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
