//! Segments built from a script, and their scan, for the fuzz target: random input would never
//! contain a valid checksum.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::files::io::OpenFile;
use crate::format::layout::{
    ALIGN, Digest, Kind, Moment, RECORD_HEADER_LEN, RecordHeader, Row, SEGMENT_HEADER, Seed,
    SegmentHeader, Trailer, encode_footer, record_len,
};
use crate::format::scan::SegmentScan;

const SEED: Seed = Seed(0x5eed);
const SEGMENT: u32 = 3;

/// File in memory that counts its reads.
pub(crate) struct MemoryFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) reads: AtomicUsize,
}

impl MemoryFile {
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, reads: AtomicUsize::new(0) }
    }

    pub(crate) fn scan(&self) -> SegmentScan {
        SegmentScan::of(self, SEED, SEGMENT)
    }
}

impl OpenFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        let len = buffer.len().min(self.bytes.len() - at);
        buffer[..len].copy_from_slice(&self.bytes[at..at + len]);
        Ok(len)
    }

    fn append_at(&self, buffer: &mut Vec<u8>, at: u64) -> io::Result<usize> {
        let mut more = vec![0; buffer.capacity() - buffer.len()];
        let len = self.read_at(&mut more, at)?;
        buffer.extend_from_slice(&more[..len]);
        Ok(len)
    }

    fn read_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.read_at(buffer, at)
    }

    fn write_at(&self, _bytes: &[u8], _at: u64) -> io::Result<usize> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn truncate(&self, _len: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn unlock(&self) {}
}

/// Segment under construction.
pub(crate) struct SegmentBuilder {
    pub(crate) bytes: Vec<u8>,
    /// Rows that a scan must find, unless there is a footer or the end is missing.
    pub(crate) rows: Vec<Row>,
    pub(crate) removals: u64,
    /// Offsets of damaged counted records.
    lost: Vec<u32>,
    is_sealed: bool,
    is_cut: bool,
}

impl SegmentBuilder {
    pub(crate) fn new() -> Self {
        let header = SegmentHeader { segment: SEGMENT, removals: 0, session: 1 };
        let bytes = header.encode(SEED).to_vec();
        Self {
            bytes,
            rows: Vec::new(),
            removals: 0,
            lost: Vec::new(),
            is_sealed: false,
            is_cut: false,
        }
    }

    pub(crate) fn record(&mut self, kind: Kind, payload: &[u8]) {
        let (Ok(offset), Some(len)) = (u32::try_from(self.bytes.len()), record_len(payload.len()))
        else {
            return;
        };
        let digest = Digest::of(&[u8::try_from(self.rows.len() % 7).unwrap_or(0)], SEED);
        let header = RecordHeader {
            kind,
            payload: u32::try_from(payload.len()).unwrap_or(0),
            segment: SEGMENT,
            digest,
            removals: self.removals,
            generation: 0,
            stored: Moment { session: 1, monotonic: 0, wall: 9 },
        };
        self.bytes.extend_from_slice(&header.encode(SEED, offset));
        self.bytes.extend_from_slice(payload);
        self.bytes.resize((offset + len) as usize, 0);
        self.rows.push(Row { digest, offset, len, kind });
        self.removals += u64::from(kind.is_counted());
    }

    /// Appends bytes that are not a record.
    pub(crate) fn noise(&mut self, noise: &[u8]) {
        self.bytes.extend_from_slice(noise);
        let whole = self.bytes.len().next_multiple_of(ALIGN as usize);
        self.bytes.resize(whole, 0);
    }

    /// Flips a bit in the header of the last undamaged record.
    pub(crate) fn damage(&mut self, bit: usize) {
        let Some(row) = self.rows.pop() else { return };
        self.bytes[row.offset as usize + bit / 8 % RECORD_HEADER_LEN] ^= 1 << (bit % 8);
        if row.kind.is_counted() {
            self.lost.push(row.offset);
        }
    }

    fn footer(&mut self) {
        let count = u32::try_from(self.rows.len()).unwrap_or(0);
        let trailer = Trailer { rows: count, segment: SEGMENT, removals: self.removals, newest: 9 };
        self.bytes.extend_from_slice(&encode_footer(&self.rows, &trailer, SEED));
    }
}

/// Builds a segment as the script says, and scans it. Returns the number of found records (at most
/// 4), whether a lost removal was noticed, the number of unreadable parts (at most 2), and whether
/// there was no valid footer.
///
/// # Panics
/// If the scan finds a record that was not written, or misses one that was.
#[must_use]
pub fn run_script(script: &[u8]) -> (usize, bool, u64, bool) {
    let raw = MemoryFile::new(script.to_vec()).scan();
    assert!(raw.rows.is_empty(), "a record out of nothing");
    let mut builder = SegmentBuilder::new();
    let mut rest = script;
    while let Some(([what, argument], behind)) = rest.split_first_chunk() {
        rest = behind;
        let (taken, left) = rest.split_at(rest.len().min(usize::from(*argument)));
        match what % 8 {
            0 | 1 => builder.record(Kind::Entry, taken),
            2 => builder.record(Kind::Removal, &[]),
            3 => builder.record(Kind::Purge, &[]),
            4 => builder.noise(taken),
            5 => builder.damage(usize::from(*argument) * 3),
            6 => builder.is_sealed = true,
            _ => builder.is_cut = builder.bytes.len() > SEGMENT_HEADER as usize,
        }
        if matches!(what % 8, 0 | 1 | 4) {
            rest = left;
        }
    }
    if builder.is_sealed {
        builder.footer();
    }
    if builder.is_cut {
        builder.bytes.pop();
    }
    let scan = MemoryFile::new(builder.bytes.clone()).scan();
    check(&builder, &scan);
    (scan.rows.len().min(4), scan.floor > 0, scan.holes.min(2), scan.footer_at.is_some())
}

fn check(builder: &SegmentBuilder, scan: &SegmentScan) {
    let SegmentBuilder { is_sealed, is_cut, .. } = *builder;
    let mut end = SEGMENT_HEADER;
    for row in &scan.rows {
        assert!(row.offset >= end, "records that overlap");
        end = row.offset + row.len;
    }
    assert!(end as usize <= builder.bytes.len() && !scan.failed);
    assert_eq!(scan.footer_at.is_none(), is_sealed && !is_cut, "a footer counts if it is whole");
    let wanted = builder.rows.len() - usize::from(is_cut && !is_sealed && !builder.rows.is_empty());
    assert!(scan.rows.starts_with(&builder.rows[..wanted]), "an undamaged record is missing");
    assert!(scan.rows.len() <= builder.rows.len(), "a record that was never written");
    // A loss shows in the records behind it; at the very end, in the root or in the next segment.
    let last = scan.rows.last().map_or(0, |row| row.offset);
    for lost in builder.lost.iter().filter(|lost| **lost < last && scan.footer_at.is_some()) {
        assert!(scan.floor > *lost, "a removal was lost in silence");
    }
}
