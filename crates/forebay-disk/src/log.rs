//! The segments, as the thread that writes has them: appending, and what follows from it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_engine::bus::{Bookmark, Chain};

use crate::batch::Batch;
use crate::bookmark::{BookmarkFile, Kept};
use crate::counts::count;
use crate::io::{Opened, read_new, write_all};
use crate::layout::{
    Digest, Kind, Moment, RECORD_HEADER_LEN, RecordHeader, Row, Seed, Spot, place, record_len,
};
use crate::load::Found;
use crate::parts::Part;
use crate::prefixes::{Named, READS_MAX};
use crate::queue::Store;
use crate::root::Root;
use crate::segment::OpenSegment;
use crate::shared::Shared;
use crate::survey::Survey;

/// All that belongs to writing. One thread owns it.
pub(crate) struct Log {
    pub(crate) shared: Arc<Shared>,
    pub(crate) root: Root,
    bookmarks: BookmarkFile,
    /// What is of an era before this place may have been purged unheard.
    sound_from: u64,
    pub(crate) open: Option<OpenSegment>,
    /// The others, with the bytes of each.
    pub(crate) sealed: BTreeMap<u32, u64>,
    /// Bodies in files of their own, by the record that they belong to, with their bytes.
    pub(crate) bodies: BTreeMap<(u32, u32), u64>,
    pub(crate) parts: HashMap<u64, Part>,
    pub(crate) next_segment: u32,
    loading: Option<Loading>,
    /// What is encoded and not written yet.
    pub(crate) batch: Batch,
}

/// What has to be kept in mind until all earlier segments have been read.
#[derive(Default)]
struct Loading {
    /// Keys of which nothing older counts any more.
    settled: HashSet<Digest>,
    /// Bodies that are in use.
    bodies: HashSet<(u32, u32)>,
    /// The first segment of this life.
    first: u32,
    /// How many records of purges by prefix have been read.
    prefixes_read: usize,
}

/// A record to be appended.
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) digest: Digest,
    pub(crate) stored: Moment,
    /// Where the log ended when it was begun.
    pub(crate) era: u64,
    pub(crate) payload: &'a Bytes,
}

impl<'a> Record<'a> {
    pub(crate) fn of(store: &'a Store) -> Self {
        let Store { kind, digest, stored, era, payload, .. } = store;
        Self { kind: *kind, digest: *digest, stored: *stored, era: *era, payload }
    }
}

impl Log {
    pub(crate) fn new(
        shared: Arc<Shared>,
        (root, bookmarks): (Root, BookmarkFile),
        found: Found,
    ) -> Self {
        let sound_from = shared.sound_from;
        let first = found.next_segment();
        let bytes = found.bytes();
        shared.tallies.bytes.store(bytes, Ordering::Relaxed);
        Self {
            shared,
            root,
            bookmarks,
            sound_from,
            open: None,
            sealed: found.segments,
            bodies: found.bodies,
            parts: HashMap::new(),
            next_segment: first,
            loading: Some(Loading { first, ..Loading::default() }),
            batch: Batch::default(),
        }
    }

    /// Writes an entry whose body has a file of its own, and makes it visible.
    pub(crate) fn store(&mut self, store: &Store, part: u64) -> io::Result<()> {
        let len = record_len(store.payload.len()).ok_or(ErrorKind::FileTooLarge)?;
        self.make_room(u64::from(len))?;
        let spot = self.append(&Record::of(store))?;
        if let Err(error) = self.settle_part(part, spot) {
            self.strike(store.digest, spot);
            return Err(error);
        }
        self.publish(store, spot);
        Ok(())
    }

    /// Makes an entry visible that has been written, unless nobody waits for that any more.
    pub(crate) fn publish(&mut self, store: &Store, spot: Spot) {
        let put = || self.shared.index.put(store.digest, spot);
        match store.ticket.unless_withdrawn(put) {
            None => {
                self.strike(store.digest, spot);
                self.drop_body(spot);
            }
            Some(before) => {
                count(&self.shared.tallies.stored);
                self.settle(store.digest);
                before.into_iter().for_each(|before| self.drop_body(before));
            }
        }
    }

    /// Makes an entry invisible, for this life and for those to come.
    pub(crate) fn remove(&mut self, digest: Digest) -> io::Result<bool> {
        let stood = self.shared.index.remove(digest);
        self.settle(digest);
        stood.into_iter().for_each(|spot| self.drop_body(spot));
        // A removal is more important than the bound; it takes 80 bytes.
        let _ = self.make_room(RECORD_HEADER_LEN as u64);
        match self.append_removal(Kind::Removal, digest) {
            Ok(()) => {}
            // Where there is no room for one more record, the old one becomes it.
            Err(error) => stood.ok_or(error).and_then(|spot| self.overwrite(digest, spot))?,
        }
        count(&self.shared.tallies.removed);
        Ok(stood.is_some())
    }

    /// Makes all that a purge names invisible, for those who come to read it.
    pub(crate) fn purge(&mut self, digest: Digest, named: Option<Named>) -> io::Result<()> {
        let payload = named.as_ref().and_then(|named| named.written(self.shared.seed));
        match named.filter(|_| payload.is_some()) {
            Some(named) => self.shared.take_prefix(named, self.end()),
            None => self.shared.marks.note(digest, self.end()),
        }
        let payload = payload.unwrap_or_default();
        let _ = self.make_room((RECORD_HEADER_LEN + payload.len()) as u64);
        // Where it stands may be behind what was noted; nothing can have been stored between.
        self.append_counted((Kind::Purge, digest), &payload)?;
        self.begin_era();
        Ok(())
    }

    /// Notes how far the bus was followed. What is older than a broken chain is suspect to those
    /// who open the directory next.
    pub(crate) fn keep_bookmark(&mut self, bookmark: Bookmark, chain: Chain) -> io::Result<()> {
        if chain == Chain::Broken {
            self.break_chain()?;
        }
        let kept = Kept { bookmark, sound_from: self.sound_from };
        self.bookmarks.write(&kept)?;
        *self.shared.bookmark.write() = Some(kept.bookmark);
        Ok(())
    }

    /// A record that stands for nothing parts what is older from what comes.
    fn break_chain(&mut self) -> io::Result<()> {
        let now = self.shared.clock.now();
        let before = self.end();
        let _ = self.make_room(RECORD_HEADER_LEN as u64);
        let parting = self.shared.marks.parting();
        self.append_removal(Kind::Purge, parting).or_else(|_| self.distrust())?;
        self.begin_era();
        self.sound_from = self.end();
        *self.shared.broke.write() = Some((now, before));
        Ok(())
    }

    /// Where the next record will stand.
    fn end(&self) -> u64 {
        match &self.open {
            Some(open) => place(open.number, open.at),
            None => place(self.next_segment, 0),
        }
    }

    /// What is begun from here on is not reached by the purges that have been.
    fn begin_era(&self) {
        self.shared.era.store(self.end(), Ordering::Release);
    }

    /// The same for those who open the directory next, where there is no room for the record of a
    /// purge: the root, which is written in place, tells of one more than the segments do. So all
    /// that is older will be given up.
    pub(crate) fn distrust(&mut self) -> io::Result<()> {
        // What is written from here on stands in another segment, and is kept.
        self.seal();
        self.begin_era();
        self.root.note(self.root.removals + 1)
    }

    pub(crate) fn append_removal(&mut self, kind: Kind, digest: Digest) -> io::Result<()> {
        self.append_counted((kind, digest), &Bytes::new())
    }

    fn append_counted(
        &mut self,
        (kind, digest): (Kind, Digest),
        payload: &Bytes,
    ) -> io::Result<()> {
        let stored = self.shared.life.moment(self.shared.clock.now());
        self.append(&Record { kind, digest, stored, era: self.end(), payload })?;
        self.root.note(self.root.removals + 1)
    }

    fn overwrite(&self, digest: Digest, spot: Spot) -> io::Result<()> {
        let file = self.shared.file(spot.segment).ok_or(ErrorKind::NotFound)?;
        let payload = spot.len() - RECORD_HEADER_LEN;
        let header = RecordHeader {
            kind: Kind::Overwritten,
            payload: u32::try_from(payload).map_err(|_| ErrorKind::FileTooLarge)?,
            segment: spot.segment,
            digest,
            removals: 0,
            era: 0,
            stored: self.shared.life.moment(self.shared.clock.now()),
        };
        let bytes = header.encode(self.shared.seed, spot.offset);
        write_all(&*file, &bytes, u64::from(spot.offset))
    }

    /// Appends a record; it is not visible yet.
    pub(crate) fn append(&mut self, record: &Record<'_>) -> io::Result<Spot> {
        // What was accepted before stands before it.
        self.flush();
        let len = record_len(record.payload.len()).ok_or(ErrorKind::FileTooLarge)?;
        self.segment_for(len)?;
        let row = self.encode(record)?;
        self.write_batch()?;
        let open = self.open.as_mut().ok_or(ErrorKind::NotFound)?;
        open.take(row, record.stored.wall);
        Ok(Spot::new(open.number, &row))
    }

    pub(crate) fn grew(&self, len: u64) {
        self.shared.tallies.bytes.fetch_add(len, Ordering::Relaxed);
    }

    pub(crate) fn shrank(&self, len: u64) {
        self.shared.tallies.bytes.fetch_sub(len, Ordering::Relaxed);
    }

    fn settle(&mut self, digest: Digest) {
        if let Some(loading) = &mut self.loading {
            loading.settled.insert(digest);
        }
    }

    /// Takes in what stands in a segment of an earlier life. They come from the newest on, so what
    /// is known of a key already is newer.
    pub(crate) fn take_in(&mut self, (survey, file): (&Survey, Arc<dyn Opened>)) {
        let is_there = self.sealed.contains_key(&survey.segment);
        let Some(loading) = self.loading.as_mut().filter(|_| is_there) else { return };
        self.shared.life.learn(survey.newest);
        self.shared.files.write().insert(survey.segment, file.clone());
        for row in survey.rows.iter().rev().filter(|row| row.offset >= survey.floor) {
            match row.kind {
                Kind::Entry | Kind::Bodied => {
                    loading.take_in(&self.shared, (Spot::new(survey.segment, row), row.digest));
                }
                Kind::Purge if row.digest == self.shared.marks.parting() => {}
                Kind::Purge => {
                    let at = (survey.segment, row.offset);
                    match loading.prefix_of(row, (&*file, at), self.shared.seed) {
                        Some(named) => {
                            self.shared.take_prefix(named, place(at.0, at.1));
                        }
                        None => self.shared.marks.note(row.digest, place(at.0, at.1)),
                    }
                }
                Kind::Removal | Kind::Overwritten => {
                    loading.settled.insert(row.digest);
                }
            }
        }
        self.seal_found(survey);
    }

    /// Adds the footer that an earlier life had no time for.
    fn seal_found(&mut self, survey: &Survey) {
        let (Some(end), Some((_, removals))) = (survey.unsealed, survey.removals) else { return };
        let Some(file) = self.shared.file(survey.segment) else { return };
        let relied: Vec<Row> =
            survey.rows.iter().filter(|row| row.offset >= survey.floor).copied().collect();
        let footer = self.footer((survey.segment, &relied), (removals, survey.newest));
        match write_all(&*file, &footer, u64::from(end)) {
            Ok(()) => {
                self.grew(footer.len() as u64);
                let bytes = u64::from(end) + footer.len() as u64;
                self.sealed.insert(survey.segment, bytes);
            }
            Err(_) => self.shared.failed(),
        }
    }

    /// Everything of earlier lives has been taken in: what is left of bodies belongs to nobody.
    pub(crate) fn all_taken_in(&mut self) {
        let Some(loading) = self.loading.take() else { return };
        self.shared.index.all_loaded();
        let earlier: Vec<_> = self.bodies.range(..(loading.first, 0)).map(|(at, _)| *at).collect();
        for name in earlier {
            if !loading.bodies.contains(&name) {
                self.unlink_body(name);
            }
        }
    }
}

impl Loading {
    /// What a record of a purge names, if it is one by prefix and can be read.
    fn prefix_of(
        &mut self,
        row: &Row,
        (file, at): (&dyn Opened, (u32, u32)),
        seed: Seed,
    ) -> Option<Named> {
        if !Named::may_be(row.len) || self.prefixes_read >= READS_MAX {
            return None;
        }
        self.prefixes_read += 1;
        let bytes = read_new(file, row.len as usize, u64::from(row.offset)).ok()?;
        Named::of_record(&bytes, seed, at)
    }

    /// An entry of an earlier life can be read, unless something newer is known of its key.
    fn take_in(&mut self, shared: &Shared, (spot, digest): (Spot, Digest)) {
        if self.settled.contains(&digest) {
            return;
        }
        if shared.index.put_if_absent(digest, spot) && spot.has_body() {
            self.bodies.insert((spot.segment, spot.offset));
        }
    }
}
