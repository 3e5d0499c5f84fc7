//! The log of segments: appending records and its consequences. Owned by the writing thread.

mod batch;
mod eviction;
pub(crate) mod partial_bodies;
mod segment;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_engine::bus::{Bookmark, Chain};

use crate::counts::count;
use crate::files::io::{OpenFile, read_new, write_all};
use crate::format::bookmark::{BookmarkFile, SavedBookmark};
use crate::format::layout::{
    Digest, Kind, Location, Moment, RECORD_HEADER_LEN, RecordHeader, RecordId, Row, Seed,
    log_position, record_len,
};
use crate::format::root::Root;
use crate::format::scan::SegmentScan;
use crate::index::prefixes::{PREFIX_READS_MAX, PrefixPurge};
use crate::load::DirectoryContents;
use crate::shared::Shared;
use crate::shared::queue::Store;
use crate::write::log::batch::Batch;
use crate::write::log::partial_bodies::PartialBody;
use crate::write::log::segment::OpenSegment;

/// Payload of the record of a soft purge of one key. No other purge has a payload of this length.
const SOFT_KEY: &[u8] = b"k";

/// State of the writing thread.
pub(crate) struct Log {
    pub(crate) shared: Arc<Shared>,
    pub(crate) root: Root,
    bookmarks: BookmarkFile,
    /// Log position before which entries are unverified.
    trusted_from: u64,
    pub(crate) open: Option<OpenSegment>,
    /// Closed segments, with their bytes.
    pub(crate) sealed: BTreeMap<u32, u64>,
    /// Separate bodies by record, with their bytes.
    pub(crate) bodies: BTreeMap<RecordId, u64>,
    pub(crate) parts: HashMap<u64, PartialBody>,
    pub(crate) next_segment: u32,
    loading: Option<Loading>,
    /// Encoded records that are not written yet.
    pub(crate) batch: Batch,
}

/// State until all earlier segments are loaded.
#[derive(Default)]
struct Loading {
    /// Keys whose older records are ignored.
    superseded: HashSet<Digest>,
    /// Bodies in use.
    bodies: HashSet<RecordId>,
    /// First segment of this session.
    first: u32,
    /// Number of prefix purges that were read.
    prefixes_read: usize,
}

/// A record to append.
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) digest: Digest,
    pub(crate) stored: Moment,
    /// Log position at the beginning of the write.
    pub(crate) generation: u64,
    pub(crate) payload: &'a Bytes,
}

impl<'a> Record<'a> {
    pub(crate) fn of(store: &'a Store) -> Self {
        let Store { kind, digest, stored, generation, payload, .. } = store;
        Self { kind: *kind, digest: *digest, stored: *stored, generation: *generation, payload }
    }
}

impl Log {
    pub(crate) fn new(
        shared: Arc<Shared>,
        root: Root,
        bookmarks: BookmarkFile,
        found: DirectoryContents,
    ) -> Self {
        let trusted_from = shared.trusted_from;
        let first = found.next_segment();
        let bytes = found.bytes();
        shared.counters.bytes.store(bytes, Ordering::Relaxed);
        Self {
            shared,
            root,
            bookmarks,
            trusted_from,
            open: None,
            sealed: found.segments,
            bodies: found.bodies,
            parts: HashMap::new(),
            next_segment: first,
            loading: Some(Loading { first, ..Loading::default() }),
            batch: Batch::default(),
        }
    }

    /// Writes and publishes an entry with a separate body.
    pub(crate) fn store(&mut self, store: &Store, part: u64) -> io::Result<()> {
        let len = record_len(store.payload.len()).ok_or(ErrorKind::FileTooLarge)?;
        self.evict_for(u64::from(len))?;
        let location = self.append(&Record::of(store))?;
        if let Err(error) = self.finish_partial_body(part, location) {
            self.erase_record(store.digest, location);
            return Err(error);
        }
        self.publish(store, location);
        Ok(())
    }

    /// Publishes a written entry, unless its caller has given up.
    pub(crate) fn publish(&mut self, store: &Store, location: Location) {
        let put = || self.shared.index.put(store.digest, location);
        match store.ticket.unless_withdrawn(put) {
            None => {
                self.erase_record(store.digest, location);
                self.drop_body(location);
            }
            Some(before) => {
                count(&self.shared.counters.stored);
                self.supersede(store.digest);
                before.into_iter().for_each(|before| self.drop_body(before));
            }
        }
    }

    /// Removes an entry, for this session and later ones.
    pub(crate) fn remove(&mut self, digest: Digest) -> io::Result<bool> {
        let removed = self.shared.index.remove(digest);
        self.supersede(digest);
        removed.into_iter().for_each(|location| self.drop_body(location));
        // A removal may exceed the size; it takes 80 bytes.
        let _ = self.evict_for(RECORD_HEADER_LEN as u64);
        match self.append_removal(Kind::Removal, digest) {
            Ok(()) => {}
            // On a full disk the entry's record is overwritten as a removal.
            Err(error) => {
                removed.ok_or(error).and_then(|location| self.overwrite(digest, location))?;
            }
        }
        count(&self.shared.counters.removed);
        Ok(removed.is_some())
    }

    /// Records a purge. Entries that it reaches are dropped when they are read.
    pub(crate) fn purge(
        &mut self,
        digest: Digest,
        prefix_purge: Option<PrefixPurge>,
    ) -> io::Result<()> {
        let payload =
            prefix_purge.as_ref().and_then(|prefix_purge| prefix_purge.written(self.shared.seed));
        match prefix_purge.filter(|_| payload.is_some()) {
            Some(prefix_purge) => self.shared.add_prefix_purge(prefix_purge, self.end()),
            None => self.shared.purge_marks.note(digest, self.end()),
        }
        let payload = payload.unwrap_or_default();
        let _ = self.evict_for((RECORD_HEADER_LEN + payload.len()) as u64);
        // The record may be at a later position than noted; no entry was stored in between.
        self.append_counted(Kind::Purge, digest, &payload)?;
        self.begin_generation();
        Ok(())
    }

    /// Records a soft purge of one key. Its entries are stale when they are read.
    pub(crate) fn soften(&mut self, digest: Digest) -> io::Result<()> {
        self.shared.purge_marks.note_key(digest, self.end());
        let payload = Bytes::from_static(SOFT_KEY);
        let _ = self.evict_for((RECORD_HEADER_LEN + payload.len()) as u64);
        self.append_counted(Kind::Purge, digest, &payload)?;
        self.begin_generation();
        Ok(())
    }

    /// Saves a bus position. After a broken chain, older entries are unverified in later sessions.
    pub(crate) fn keep_bookmark(&mut self, bookmark: Bookmark, chain: Chain) -> io::Result<()> {
        if chain == Chain::Broken {
            self.break_chain()?;
        }
        let kept = SavedBookmark { bookmark, trusted_from: self.trusted_from };
        self.bookmarks.write(&kept)?;
        *self.shared.bookmark.write() = Some(kept.bookmark);
        Ok(())
    }

    /// Appends a record without effect, which separates older entries from newer ones.
    fn break_chain(&mut self) -> io::Result<()> {
        let now = self.shared.clock.now();
        let before = self.end();
        let _ = self.evict_for(RECORD_HEADER_LEN as u64);
        let separator = self.shared.purge_marks.separator();
        self.append_removal(Kind::Purge, separator).or_else(|_| self.distrust_older_segments())?;
        self.begin_generation();
        self.trusted_from = self.end();
        *self.shared.chain_break.write() = Some((now, before));
        Ok(())
    }

    /// Returns the position of the next record.
    fn end(&self) -> u64 {
        match &self.open {
            Some(open) => log_position(open.number, open.at),
            None => log_position(self.next_segment, 0),
        }
    }

    /// Starts a generation that earlier purges do not reach.
    fn begin_generation(&self) {
        self.shared.generation.store(self.end(), Ordering::Release);
    }

    /// Replaces the record of a purge on a full disk: the root, which is overwritten in place,
    /// counts one more removal than the segments contain. The next session therefore discards all
    /// older segments.
    pub(crate) fn distrust_older_segments(&mut self) -> io::Result<()> {
        // Later records are in another segment, which is kept.
        self.seal();
        self.begin_generation();
        self.root.note(self.root.removals + 1)
    }

    pub(crate) fn append_removal(&mut self, kind: Kind, digest: Digest) -> io::Result<()> {
        self.append_counted(kind, digest, &Bytes::new())
    }

    fn append_counted(&mut self, kind: Kind, digest: Digest, payload: &Bytes) -> io::Result<()> {
        let stored = self.shared.residence.moment(self.shared.clock.now());
        self.append(&Record { kind, digest, stored, generation: self.end(), payload })?;
        self.root.note(self.root.removals + 1)
    }

    fn overwrite(&self, digest: Digest, location: Location) -> io::Result<()> {
        let file = self.shared.file(location.segment).ok_or(ErrorKind::NotFound)?;
        let payload = location.len() - RECORD_HEADER_LEN;
        let header = RecordHeader {
            kind: Kind::Overwritten,
            payload: u32::try_from(payload).map_err(|_| ErrorKind::FileTooLarge)?,
            segment: location.segment,
            digest,
            removals: 0,
            generation: 0,
            stored: self.shared.residence.moment(self.shared.clock.now()),
        };
        let bytes = header.encode(self.shared.seed, location.offset);
        write_all(&*file, &bytes, u64::from(location.offset))
    }

    /// Appends a record without publishing it.
    pub(crate) fn append(&mut self, record: &Record<'_>) -> io::Result<Location> {
        // Records accepted earlier precede it.
        self.flush();
        let len = record_len(record.payload.len()).ok_or(ErrorKind::FileTooLarge)?;
        self.segment_for(len)?;
        let row = self.encode(record)?;
        self.write_batch()?;
        let open = self.open.as_mut().ok_or(ErrorKind::NotFound)?;
        open.take(row, record.stored.wall);
        Ok(Location::new(open.number, &row))
    }

    pub(crate) fn add_bytes(&self, len: u64) {
        self.shared.counters.bytes.fetch_add(len, Ordering::Relaxed);
    }

    pub(crate) fn subtract_bytes(&self, len: u64) {
        self.shared.counters.bytes.fetch_sub(len, Ordering::Relaxed);
    }

    fn supersede(&mut self, digest: Digest) {
        if let Some(loading) = &mut self.loading {
            loading.superseded.insert(digest);
        }
    }

    /// Applies the scan of an earlier segment. Segments arrive from the newest on, so known records
    /// are newer.
    pub(crate) fn apply_scan(&mut self, scan: &SegmentScan, file: Arc<dyn OpenFile>) {
        let is_there = self.sealed.contains_key(&scan.segment);
        let Some(loading) = self.loading.as_mut().filter(|_| is_there) else { return };
        self.shared.residence.learn(scan.newest);
        self.shared.files.write().insert(scan.segment, file.clone());
        for row in scan.rows.iter().rev().filter(|row| row.offset >= scan.floor) {
            match row.kind {
                Kind::Entry | Kind::EntryWithBody => {
                    loading.add_entry(&self.shared, Location::new(scan.segment, row), row.digest);
                }
                Kind::Purge if row.digest == self.shared.purge_marks.separator() => {}
                Kind::Purge => {
                    let at = RecordId { segment: scan.segment, offset: row.offset };
                    let position = log_position(at.segment, at.offset);
                    let marks = &self.shared.purge_marks;
                    if is_soft_key(row) {
                        marks.note_key(row.digest, position);
                        continue;
                    }
                    match loading.prefix_of(row, &*file, at, self.shared.seed) {
                        Some(purge) => {
                            let reach = marks.reach_of_site(row.digest, &purge.site);
                            let purge = PrefixPurge { reach, ..purge };
                            self.shared.add_prefix_purge(purge, position);
                        }
                        None => marks.note(row.digest, position),
                    }
                }
                Kind::Removal | Kind::Overwritten => {
                    loading.superseded.insert(row.digest);
                }
            }
        }
        self.add_footer(scan);
    }

    /// Adds the footer that is missing after a crash.
    fn add_footer(&mut self, scan: &SegmentScan) {
        let (Some(end), Some((_, removals))) = (scan.footer_at, scan.removals) else { return };
        let Some(file) = self.shared.file(scan.segment) else { return };
        let relied: Vec<Row> =
            scan.rows.iter().filter(|row| row.offset >= scan.floor).copied().collect();
        let footer = self.footer(scan.segment, &relied, removals, scan.newest);
        match write_all(&*file, &footer, u64::from(end)) {
            Ok(()) => {
                self.add_bytes(footer.len() as u64);
                let bytes = u64::from(end) + footer.len() as u64;
                self.sealed.insert(scan.segment, bytes);
            }
            Err(_) => self.shared.failed(),
        }
    }

    /// Ends loading and deletes bodies without a record.
    pub(crate) fn finish_loading(&mut self) {
        let Some(loading) = self.loading.take() else { return };
        self.shared.index.finish_loading();
        let earlier: Vec<_> = self
            .bodies
            .range(..RecordId { segment: loading.first, offset: 0 })
            .map(|(at, _)| *at)
            .collect();
        for name in earlier {
            if !loading.bodies.contains(&name) {
                self.unlink_body(name);
            }
        }
    }
}

/// Returns true if the record of a purge is the soft purge of one key.
fn is_soft_key(row: &Row) -> bool {
    record_len(SOFT_KEY.len()) == Some(row.len)
}

impl Loading {
    /// Reads the target of a prefix purge; `None` if the record is none or cannot be read.
    fn prefix_of(
        &mut self,
        row: &Row,
        file: &dyn OpenFile,
        at: RecordId,
        seed: Seed,
    ) -> Option<PrefixPurge> {
        if !PrefixPurge::may_be(row.len) || self.prefixes_read >= PREFIX_READS_MAX {
            return None;
        }
        self.prefixes_read += 1;
        let bytes = read_new(file, row.len as usize, u64::from(row.offset)).ok()?;
        PrefixPurge::of_record(&bytes, seed, at)
    }

    /// Adds an entry of an earlier session unless a newer record of its key is known.
    fn add_entry(&mut self, shared: &Shared, location: Location, digest: Digest) {
        if self.superseded.contains(&digest) {
            return;
        }
        if shared.index.put_if_absent(digest, location) && location.has_body() {
            self.bodies.insert(location.record());
        }
    }
}
