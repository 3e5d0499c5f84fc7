//! What stands in a segment that an earlier life has written.
//!
//! A segment that was full tells so in its footer. One that was not, or whose footer is damaged,
//! is walked through record by record; behind bytes that are no record, the next one is searched.
//!
//! Every record tells how many removals stand before it. So a gap in a segment, or a missing one,
//! shows whether a removal is lost in it; only then is what is older not relied on.

use std::io;

use crate::io::{OpenFile, read_all};
use crate::layout::{
    ALIGN, RECORD_HEADER, RECORD_HEADER_LEN, ROW, RecordHeader, RecordId, Row, SEGMENT_HEADER,
    Seed, SegmentHeader, TRAILER, decode_footer, peek_trailer,
};

/// How much is read at once in search of the next record.
const WINDOW: u32 = 256 << 10;

/// What stands in one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentScan {
    pub(crate) segment: u32,
    /// In the order in which they stand there.
    pub(crate) rows: Vec<Row>,
    /// How many removals stand before the segment, and at its end; nothing if it does not tell.
    pub(crate) removals: Option<(u64, u64)>,
    /// The highest wall clock in it.
    pub(crate) newest: u64,
    /// Where a footer can be written, if it has none.
    pub(crate) footer_at: Option<u32>,
    /// How many stretches are no records.
    pub(crate) holes: u64,
    /// Behind the last hole in which a removal is lost: what stands before is not relied on.
    pub(crate) floor: u32,
    /// The call that failed, if it was left unread for that.
    pub(crate) failed: bool,
}

impl SegmentScan {
    /// Reads a segment. What cannot be read is missing from the scan.
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
        let Some(room) = (len as usize).checked_sub(SEGMENT_HEADER as usize + TRAILER) else {
            return Ok(false);
        };
        let mut end = [0; TRAILER];
        read_all(file, &mut end, u64::from(len) - TRAILER as u64)?;
        let Some(trailer) = peek_trailer(&end, self.segment) else { return Ok(false) };
        let rows_len = usize::try_from(trailer.rows).unwrap_or(usize::MAX).saturating_mul(ROW);
        if rows_len > room {
            return Ok(false);
        }
        let mut footer = vec![0; rows_len + TRAILER];
        let at = u64::from(len) - footer.len() as u64;
        read_all(file, &mut footer, at)?;
        let Some(rows) = decode_footer(&footer, seed, self.segment) else { return Ok(false) };
        let inside = rows.iter().filter(|row| row.kind.is_counted()).count() as u64;
        let before = trailer.removals.saturating_sub(inside);
        // A footer that was added after a crash knows of no more than could be read then.
        self.removals = Some((header.map_or(before, |header| header.removals), trailer.removals));
        self.newest = trailer.newest;
        self.rows = rows;
        Ok(true)
    }

    /// Takes in one record, and notes whether a removal is lost before it.
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

/// A walk through the records of a segment.
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
                // A record whose end is missing was being written when the life ended.
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

    /// Goes on to the next record. Clients choose what stands in between: bytes that only begin
    /// as a record does cost a checksum each, and no call.
    fn find_next(&mut self) -> io::Result<bool> {
        let mut window = vec![0; WINDOW as usize];
        let mut from = self.at.saturating_add(ALIGN);
        while self.len.saturating_sub(from) >= RECORD_HEADER {
            let len = (self.len - from).min(WINDOW);
            let window = &mut window[..len as usize];
            read_all(self.file, window, u64::from(from))?;
            // What begins too near to the end is looked at in the next window.
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
