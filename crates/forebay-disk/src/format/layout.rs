//! File format of a directory: the specification of version 2.
//!
//! All numbers are little-endian. Every checksum is XXH3-64 keyed with the *seed* of the directory
//! plus the log position of the bytes. The seed is 64 random bits that clients do not know, so a
//! body cannot contain a valid record, and a record is valid only in its own place and directory.
//!
//! **A segment**, `NNNNNNNN.segment`: a header of 40 bytes, then records, each at a multiple of
//! 8, then, once it is full, the footer.
//!
//! | at | bytes | header of a segment |
//! |---|---|---|
//! | 0 | 8 | magic `FBSEG\xf7` and version, 2 bytes |
//! | 8 | 4 | number of the segment, and 4 bytes 0 |
//! | 16 | 8 | removals in the directory before it |
//! | 24 | 8 | id of the session that wrote it |
//! | 32 | 8 | checksum |
//!
//! | at | bytes | header of a record |
//! |---|---|---|
//! | 0 | 4 | magic `FBR\xf7` |
//! | 4 | 4 | kind: see below |
//! | 8 | 4 | length of the payload |
//! | 12 | 4 | number of the segment |
//! | 16 | 16 | digest of the key: XXH3-128 with the seed |
//! | 32 | 8 | removals in the directory before it: records of kinds 3 and 4 |
//! | 40 | 8 | generation: log position (segment, then offset, as one number) when the write began |
//! | 48 | 8 | id of the session that stored the entry |
//! | 56 | 8 | monotonic clock of that session, in milliseconds |
//! | 64 | 8 | wall clock, in seconds since 1970 |
//! | 72 | 8 | checksum over bytes 0 to 71 |
//! | 80 | | payload: a frame, with a digest of its own; of kind 2 with a [`Pointer`] as its body |
//!
//! A purge reaches the entries whose generation is not behind the position of its record, within
//! one session and across later ones, even if the root does not count it after a crash.
//!
//! Kinds: 1 entry; 2 entry with a separate body file; 3 removal; 4 purge of a tag, a site or
//! everything, of the prefix in its payload (see `index/prefixes.rs`), or a soft one of a key (payload of one byte); 5 removal that overwrote an
//! entry on a full disk.
//!
//! The footer is a row of 24 bytes for each record (digest; offset, 4; whole length and kind, 4),
//! then 40 bytes at the very end of the file: number of rows, 4; number of the segment, 4;
//! removals at the end, 8; highest wall clock, 8; magic, 8; checksum over rows and this, 8.
//!
//! **A body**, `NNNNNNNN-OOOOOOOO.body`, belongs to the record in that segment at that offset: its
//! pieces of 128 KiB, then a digest of 8 bytes for each. The record has the digest of the digests.

use twox_hash::{XxHash3_64, XxHash3_128};

/// Format version that is written, and the only one that is read.
pub(crate) const VERSION: u16 = 2;

pub(crate) const SEGMENT_HEADER: u32 = 40;
pub(crate) const RECORD_HEADER: u32 = 80;
pub(crate) const RECORD_HEADER_LEN: usize = RECORD_HEADER as usize;
pub(crate) const ROW: usize = 24;
pub(crate) const TRAILER: usize = 40;

/// Alignment of records, which leaves three bits of a length unused.
pub(crate) const ALIGN: u32 = 8;

/// Bytes of a piece of a separate body. A slow client holds two or three pieces in memory.
pub(crate) const PIECE: usize = 128 << 10;

const SEGMENT_MAGIC: [u8; 6] = *b"FBSEG\xf7";
const RECORD_MAGIC: [u8; 4] = *b"FBR\xf7";
const FOOTER_MAGIC: [u8; 8] = *b"FBFOOT\xf7\x01";

/// Secret of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(pub(crate) u64);

/// Digest of a key, as stored in the index and in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u32; 4]);

/// Location of a record. 12 bytes, since there is one per entry in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    /// Length of the record, a multiple of [`ALIGN`]; the lowest bits are flags.
    marked_len: u32,
}

/// Segment and offset of a record; also the name of its separate body file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordId {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

impl RecordId {
    /// Returns the range of all records in one segment.
    pub(crate) const fn all_in(segment: u32) -> std::ops::RangeInclusive<Self> {
        Self { segment, offset: 0 }..=Self { segment, offset: u32::MAX }
    }
}

const MARK_BODY: u32 = 1;
const MARK_HIT: u32 = 2;
const MARK_GONE: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Entry,
    /// An entry whose body is in a separate file.
    EntryWithBody,
    Removal,
    /// A purge of a tag, a site, a prefix or everything.
    Purge,
    /// A removal that overwrote an entry on a full disk. It is not counted.
    Overwritten,
}

/// Time of storing, on the clocks of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) session: u64,
    pub(crate) monotonic: i64,
    pub(crate) wall: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) segment: u32,
    pub(crate) removals: u64,
    pub(crate) session: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: Kind,
    pub(crate) payload: u32,
    pub(crate) segment: u32,
    pub(crate) digest: Digest,
    pub(crate) removals: u64,
    /// Log position of the last purge before the write began.
    pub(crate) generation: u64,
    pub(crate) stored: Moment,
}

/// One record in a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) digest: Digest,
    pub(crate) offset: u32,
    /// Length with header and padding.
    pub(crate) len: u32,
    pub(crate) kind: Kind,
}

/// End of a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) rows: u32,
    pub(crate) segment: u32,
    pub(crate) removals: u64,
    pub(crate) newest: u64,
}

/// Payload of an entry whose body is in a separate file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) len: u64,
    /// Seed of the pieces' digests, unique to this body.
    pub(crate) salt: u64,
    /// Digest of the pieces' digests.
    pub(crate) table: u128,
}

impl Digest {
    pub(crate) fn of(key: &[u8], seed: Seed) -> Self {
        Self::from_bytes(XxHash3_128::oneshot_with_seed(seed.0, key).to_le_bytes())
    }

    fn from_bytes(bytes: [u8; 16]) -> Self {
        let mut fields = Fields(&bytes);
        Self([fields.u32(), fields.u32(), fields.u32(), fields.u32()])
    }

    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (four, word) in bytes.chunks_exact_mut(4).zip(self.0) {
            four.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the shard among `count`.
    pub(crate) fn shard(self, count: usize) -> usize {
        self.0[0] as usize % count
    }
}

impl Location {
    pub(crate) fn new(segment: u32, row: &Row) -> Self {
        let mark = if row.kind == Kind::EntryWithBody { MARK_BODY } else { 0 };
        Self { segment, offset: row.offset, marked_len: row.len | mark }
    }

    pub(crate) const fn record(self) -> RecordId {
        RecordId { segment: self.segment, offset: self.offset }
    }

    pub(crate) const fn len(self) -> usize {
        (self.marked_len & !(ALIGN - 1)) as usize
    }

    pub(crate) const fn has_body(self) -> bool {
        self.marked_len & MARK_BODY != 0
    }

    pub(crate) const fn was_hit(self) -> bool {
        self.marked_len & MARK_HIT != 0
    }

    pub(crate) const fn mark_hit(&mut self) {
        self.marked_len |= MARK_HIT;
    }

    /// True if the location is a tombstone.
    pub(crate) const fn is_gone(self) -> bool {
        self.marked_len & MARK_GONE != 0
    }

    pub(crate) const fn mark_gone(&mut self) {
        self.marked_len |= MARK_GONE;
    }

    /// True if both locate the same record, regardless of flags.
    pub(crate) fn is(self, other: Self) -> bool {
        (self.segment, self.offset) == (other.segment, other.offset)
    }
}

impl Kind {
    /// True if record headers count the records of this kind before them.
    pub(crate) const fn is_counted(self) -> bool {
        matches!(self, Self::Removal | Self::Purge)
    }

    const fn number(self) -> u32 {
        match self {
            Self::Entry => 1,
            Self::EntryWithBody => 2,
            Self::Removal => 3,
            Self::Purge => 4,
            Self::Overwritten => 5,
        }
    }

    const fn numbered(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Entry,
            2 => Self::EntryWithBody,
            3 => Self::Removal,
            4 => Self::Purge,
            5 => Self::Overwritten,
            _ => return None,
        })
    }
}

/// Returns the length of a record with this payload; `None` if it exceeds a segment.
pub(crate) fn record_len(payload: usize) -> Option<u32> {
    let len = u32::try_from(payload).ok()?.checked_add(RECORD_HEADER)?;
    len.checked_next_multiple_of(ALIGN)
}

impl SegmentHeader {
    pub(crate) fn encode(&self, seed: Seed) -> [u8; SEGMENT_HEADER as usize] {
        let mut out = [0; SEGMENT_HEADER as usize];
        out[..6].copy_from_slice(&SEGMENT_MAGIC);
        out[6..8].copy_from_slice(&VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&self.segment.to_le_bytes());
        out[16..24].copy_from_slice(&self.removals.to_le_bytes());
        out[24..32].copy_from_slice(&self.session.to_le_bytes());
        seal(&mut out, seed, u64::from(self.segment) << 32);
        out
    }

    pub(crate) fn decode(bytes: &[u8], seed: Seed, segment: u32) -> Option<Self> {
        let body = sealed(bytes, seed, u64::from(segment) << 32)?;
        if body.len() != 32 || body[..6] != SEGMENT_MAGIC || body[6..8] != VERSION.to_le_bytes() {
            return None;
        }
        let mut fields = Fields(&body[8..]);
        let (number, _) = (fields.u32(), fields.u32());
        let header = Self { segment: number, removals: fields.u64(), session: fields.u64() };
        (number == segment).then_some(header)
    }
}

impl RecordHeader {
    pub(crate) fn encode(&self, seed: Seed, offset: u32) -> [u8; RECORD_HEADER_LEN] {
        let mut out = [0; RECORD_HEADER_LEN];
        out[..4].copy_from_slice(&RECORD_MAGIC);
        out[4..8].copy_from_slice(&self.kind.number().to_le_bytes());
        out[8..12].copy_from_slice(&self.payload.to_le_bytes());
        out[12..16].copy_from_slice(&self.segment.to_le_bytes());
        out[16..32].copy_from_slice(&self.digest.bytes());
        out[32..40].copy_from_slice(&self.removals.to_le_bytes());
        out[40..48].copy_from_slice(&self.generation.to_le_bytes());
        out[48..56].copy_from_slice(&self.stored.session.to_le_bytes());
        out[56..64].copy_from_slice(&self.stored.monotonic.to_le_bytes());
        out[64..72].copy_from_slice(&self.stored.wall.to_le_bytes());
        seal(&mut out, seed, self.at(offset));
        out
    }

    /// Decodes a header; `None` unless it is valid at this location.
    pub(crate) fn decode(bytes: &[u8], seed: Seed, record: RecordId) -> Option<Self> {
        let bytes = bytes.get(..RECORD_HEADER_LEN)?;
        if bytes[..4] != RECORD_MAGIC {
            return None;
        }
        let body = sealed(bytes, seed, log_position(record.segment, record.offset))?;
        let mut fields = Fields(&body[4..]);
        let (kind, payload, number) = (Kind::numbered(fields.u32())?, fields.u32(), fields.u32());
        let digest = Digest([fields.u32(), fields.u32(), fields.u32(), fields.u32()]);
        let (removals, generation) = (fields.u64(), fields.u64());
        let session = fields.u64();
        let monotonic = fields.u64().cast_signed();
        let stored = Moment { session, monotonic, wall: fields.u64() };
        let header = Self { kind, payload, segment: number, digest, removals, generation, stored };
        (number == record.segment).then_some(header)
    }

    /// Returns the length of the record.
    pub(crate) fn len(&self) -> Option<u32> {
        record_len(usize::try_from(self.payload).ok()?)
    }

    const fn at(&self, offset: u32) -> u64 {
        log_position(self.segment, offset)
    }
}

/// Returns a log position as one number, which grows across processes.
pub(crate) const fn log_position(segment: u32, offset: u32) -> u64 {
    ((segment as u64) << 32) | offset as u64
}

impl Row {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let digest = Digest([fields.u32(), fields.u32(), fields.u32(), fields.u32()]);
        let (offset, marked) = (fields.u32(), fields.u32());
        let kind = Kind::numbered(marked % ALIGN)?;
        Some(Self { digest, offset, len: marked - marked % ALIGN, kind })
    }
}

/// Encodes a footer.
pub(crate) fn encode_footer(rows: &[Row], trailer: &Trailer, seed: Seed) -> Vec<u8> {
    let mut out = Vec::with_capacity(rows.len() * ROW + TRAILER);
    for row in rows {
        out.extend_from_slice(&row.digest.bytes());
        out.extend_from_slice(&row.offset.to_le_bytes());
        out.extend_from_slice(&(row.len | row.kind.number()).to_le_bytes());
    }
    out.extend_from_slice(&trailer.rows.to_le_bytes());
    out.extend_from_slice(&trailer.segment.to_le_bytes());
    out.extend_from_slice(&trailer.removals.to_le_bytes());
    out.extend_from_slice(&trailer.newest.to_le_bytes());
    out.extend_from_slice(&FOOTER_MAGIC);
    out.extend_from_slice(&[0; 8]);
    seal(&mut out, seed, u64::from(trailer.segment));
    out
}

/// Decodes the end of a footer without verifying it, since that needs the rows.
pub(crate) fn peek_trailer(bytes: &[u8], segment: u32) -> Option<Trailer> {
    let mut fields = Fields(bytes.last_chunk::<TRAILER>()?);
    let (rows, number) = (fields.u32(), fields.u32());
    let trailer = Trailer { rows, segment: number, removals: fields.u64(), newest: fields.u64() };
    (fields.u64().to_le_bytes() == FOOTER_MAGIC && number == segment).then_some(trailer)
}

/// Returns the rows of a valid footer.
pub(crate) fn decode_footer(bytes: &[u8], seed: Seed, segment: u32) -> Option<Vec<Row>> {
    peek_trailer(bytes, segment)?;
    sealed(bytes, seed, u64::from(segment))?;
    bytes[..bytes.len() - TRAILER].chunks_exact(ROW).map(Row::decode).collect()
}

impl Pointer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&self.table.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 32] = bytes.try_into().ok()?;
        let mut fields = Fields(bytes);
        let (len, salt) = (fields.u64(), fields.u64());
        let (low, high) = (u128::from(fields.u64()), u128::from(fields.u64()));
        Some(Self { len, salt, table: high << 64 | low })
    }

    /// Returns the number of pieces.
    pub(crate) const fn pieces(&self) -> u64 {
        self.len.div_ceil(PIECE as u64)
    }

    pub(crate) fn table_digest(table: &[u8], salt: u64) -> u128 {
        XxHash3_128::oneshot_with_seed(salt, table)
    }
}

/// Returns the digest of a piece, which depends on its number.
pub(crate) fn piece_digest(piece: &[u8], salt: u64, number: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(salt.wrapping_add(number), piece)
}

/// Writes the checksum of the preceding bytes into the last 8 bytes.
pub(crate) fn seal(bytes: &mut [u8], seed: Seed, position: u64) {
    let end = bytes.len() - 8;
    let checksum = XxHash3_64::oneshot_with_seed(seed.0.wrapping_add(position), &bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns all but the last 8 bytes, if those are their checksum.
pub(crate) fn sealed(bytes: &[u8], seed: Seed, position: u64) -> Option<&[u8]> {
    let (body, checksum) = bytes.split_last_chunk::<8>()?;
    let right = XxHash3_64::oneshot_with_seed(seed.0.wrapping_add(position), body);
    (u64::from_le_bytes(*checksum) == right).then_some(body)
}

/// Reader of numbers from checked bytes; returns 0 behind the end.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((array, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *array
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed(7);
    const RECORD: RecordId = RecordId { segment: 4, offset: 40 };

    fn header() -> RecordHeader {
        let stored = Moment { session: 1, monotonic: -5, wall: 3 };
        let digest = Digest::of(b"key", SEED);
        RecordHeader {
            kind: Kind::Entry,
            payload: 9,
            segment: 4,
            digest,
            removals: 2,
            generation: 1,
            stored,
        }
    }

    #[test]
    fn record_is_valid_in_its_own_place_and_directory_only() {
        let bytes = header().encode(SEED, 40);
        assert_eq!(RecordHeader::decode(&bytes, SEED, RECORD), Some(header()));
        for (seed, location) in [
            (Seed(8), RECORD),
            (SEED, RecordId { segment: 4, offset: 48 }),
            (SEED, RecordId { segment: 5, offset: 40 }),
        ] {
            assert_eq!(RecordHeader::decode(&bytes, seed, location), None);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_or_footer_is_detected() {
        let record = header().encode(SEED, 40);
        let segment = SegmentHeader { segment: 4, removals: 2, session: 1 };
        let row = Row { digest: header().digest, offset: 40, len: 88, kind: Kind::EntryWithBody };
        let trailer = Trailer { rows: 1, segment: 4, removals: 2, newest: 3 };
        let footer = encode_footer(&[row], &trailer, SEED);
        assert_eq!(decode_footer(&footer, SEED, 4), Some(vec![row]));
        assert_eq!(peek_trailer(&footer, 4), Some(trailer));
        assert_eq!(SegmentHeader::decode(&segment.encode(SEED), SEED, 4), Some(segment));
        let flipped = |bytes: &[u8], bit: usize| {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        for bit in 0..record.len() * 8 {
            assert_eq!(RecordHeader::decode(&flipped(&record, bit), SEED, RECORD), None);
        }
        for bit in 0..footer.len() * 8 {
            assert_eq!(decode_footer(&flipped(&footer, bit), SEED, 4), None);
        }
        let bytes = segment.encode(SEED);
        for bit in 0..bytes.len() * 8 {
            assert_eq!(SegmentHeader::decode(&flipped(&bytes, bit), SEED, 4), None);
        }
    }

    /// The expected values are those of xxHash 0.8, the reference implementation.
    #[test]
    fn checksums_equal_those_of_the_reference_implementation() {
        for (len, table, piece) in [
            (0, 0x76a3_0bdf_56cd_fa2c_cb4a_a04f_e72c_771f, 0xd6e8_722a_bcda_6801),
            (16, 0x4e17_3788_b4fa_6129_22f7_e147_dfac_1b62, 0xb5d8_de09_257a_7c4d),
            (240, 0xcc0e_6987_a967_ace5_6958_b918_5f40_8ea8, 0x2b06_9bb5_6ea7_0ccb),
            (5_000, 0x15b5_1bc3_acef_5b5b_87c6_1303_a98c_2ada, 0xb359_d17d_3156_9828),
        ] {
            let bytes: Vec<u8> =
                (0..len).map(|at: usize| (at * at % 251).to_le_bytes()[0]).collect();
            assert_eq!(Pointer::table_digest(&bytes, 7), table, "{len} bytes");
            assert_eq!(piece_digest(&bytes, 7, 9), piece, "{len} bytes");
        }
    }

    #[test]
    fn a_spot_keeps_its_marks_beside_its_length() {
        let row = Row { digest: header().digest, offset: 40, len: 88, kind: Kind::EntryWithBody };
        let mut location = Location::new(4, &row);
        let before = location;
        location.mark_hit();
        assert_eq!((location.len(), location.has_body(), location.was_hit()), (88, true, true));
        assert!(location.is(before) && !before.was_hit());
        assert_eq!(size_of::<(Digest, Location)>(), 28);
    }

    #[test]
    fn a_pointer_comes_back() {
        let pointer = Pointer { len: 5, salt: 6, table: u128::MAX - 4 };
        assert_eq!(Pointer::decode(&pointer.encode()), Some(pointer));
        assert_eq!(Pointer::decode(&pointer.encode()[1..]), None);
    }
}
