//! The segments, as the thread that writes has them: appending, and what follows from it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::batch::Batch;
use crate::counts::count;
use crate::io::{Mode, Opened, write_all};
use crate::layout::{
    Digest, Kind, Moment, RECORD_HEADER_LEN, RecordHeader, Row, SEGMENT_HEADER, SegmentHeader,
    Spot, Trailer, encode_footer, place, record_len,
};
use crate::load::Found;
use crate::queue::Store;
use crate::root::Root;
use crate::shared::Shared;
use crate::survey::Survey;

/// All that belongs to writing. One thread owns it.
pub(crate) struct Log {
    pub(crate) shared: Arc<Shared>,
    pub(crate) root: Root,
    pub(crate) open: Option<OpenSegment>,
    /// The others, with the bytes of each.
    pub(crate) sealed: BTreeMap<u32, u64>,
    /// Bodies in files of their own, by the record that they belong to, with their bytes.
    pub(crate) bodies: BTreeMap<(u32, u32), u64>,
    parts: HashMap<u64, Part>,
    next_segment: u32,
    loading: Option<Loading>,
    /// What is encoded and not written yet.
    pub(crate) batch: Batch,
}

/// The segment that is written to.
pub(crate) struct OpenSegment {
    pub(crate) number: u32,
    pub(crate) file: Arc<dyn Opened>,
    pub(crate) at: u32,
    /// With the bodies that belong to it.
    weight: u64,
    rows: Vec<Row>,
    newest: u64,
}

/// A body on its way.
struct Part {
    file: Arc<dyn Opened>,
    len: u64,
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
    pub(crate) fn new(shared: Arc<Shared>, root: Root, found: Found) -> Self {
        let first = found.next_segment();
        let bytes = found.bytes();
        shared.tallies.bytes.store(bytes, Ordering::Relaxed);
        Self {
            shared,
            root,
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
    pub(crate) fn purge(&mut self, digest: Digest) -> io::Result<()> {
        self.shared.marks.note(digest, self.end());
        let _ = self.make_room(RECORD_HEADER_LEN as u64);
        self.append_removal(Kind::Purge, digest)?;
        self.begin_era();
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

    fn append_removal(&mut self, kind: Kind, digest: Digest) -> io::Result<()> {
        let stored = self.shared.life.moment(self.shared.clock.now());
        self.append(&Record { kind, digest, stored, era: self.end(), payload: &Bytes::new() })?;
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

    /// Makes sure that the open segment has room for so many bytes.
    pub(crate) fn segment_for(&mut self, len: u32) -> io::Result<()> {
        let max = self.shared.segment_max;
        if self.open.as_ref().is_some_and(|open| !open.has_room(len as usize, max)) {
            self.seal();
        }
        if self.open.is_none() {
            self.open = Some(self.begin_segment()?);
        }
        Ok(())
    }

    /// Closes the open segment as it is, with so many bytes at its end that nobody counts on.
    pub(crate) fn leave(&mut self, more: usize) {
        let Some(open) = self.open.take() else { return };
        self.grew(more as u64);
        self.sealed.insert(open.number, u64::from(open.at) + more as u64);
    }

    fn begin_segment(&mut self) -> io::Result<OpenSegment> {
        let number = self.next_segment;
        // A number that could not be used is left out.
        self.next_segment = number.checked_add(1).ok_or(ErrorKind::QuotaExceeded)?;
        let path = self.shared.dir.segment(number);
        let file = self.shared.dir.io.open(&path, Mode::New)?;
        let life = self.shared.life.id();
        let header = SegmentHeader { segment: number, removals: self.root.removals, life };
        if let Err(error) = write_all(&*file, &header.encode(self.shared.seed), 0) {
            let _ = self.shared.dir.unlink(&path);
            return Err(error);
        }
        self.grew(u64::from(SEGMENT_HEADER));
        self.shared.files.write().insert(number, file.clone());
        let at = SEGMENT_HEADER;
        Ok(OpenSegment { number, file, at, weight: 0, rows: Vec::new(), newest: 0 })
    }

    /// Closes the open segment with a footer. One without costs time when it is opened again, and
    /// nothing else.
    pub(crate) fn seal(&mut self) {
        let Some(open) = self.open.take() else { return };
        let end = open.at;
        let (number, rows) = (open.number, &open.rows);
        let footer = self.footer((number, rows), (self.root.removals, open.newest));
        let mut bytes = u64::from(end);
        match write_all(&*open.file, &footer, bytes) {
            Ok(()) => {
                self.grew(footer.len() as u64);
                bytes += footer.len() as u64;
            }
            Err(_) => self.shared.failed(),
        }
        self.sealed.insert(number, bytes);
    }

    fn footer(&self, (segment, rows): (u32, &[Row]), (removals, newest): (u64, u64)) -> Vec<u8> {
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let trailer = Trailer { rows: count, segment, removals, newest };
        encode_footer(rows, &trailer, self.shared.seed)
    }

    /// Makes a record one that never was.
    pub(crate) fn strike(&mut self, digest: Digest, spot: Spot) {
        let struck = match &mut self.open {
            Some(open) if open.number == spot.segment => open.strike(spot),
            _ => Err(ErrorKind::NotFound.into()),
        };
        if struck.is_err() {
            self.shared.failed();
            // A key of which nothing counts is the next best.
            self.shared.index.remove(digest);
            let _ = self.append_removal(Kind::Removal, digest);
        }
    }

    /// Adds to a body that is on its way; the first piece makes its file.
    pub(crate) fn grow(&mut self, part: u64, piece: &[u8]) -> io::Result<Arc<dyn Opened>> {
        self.make_room(piece.len() as u64)?;
        if !self.parts.contains_key(&part) {
            let file = self.shared.dir.io.open(&self.shared.dir.part(part), Mode::New)?;
            self.parts.insert(part, Part { file, len: 0 });
        }
        let growing = self.parts.get_mut(&part).ok_or(ErrorKind::NotFound)?;
        write_all(&*growing.file, piece, growing.len)?;
        growing.len += piece.len() as u64;
        let file = growing.file.clone();
        self.grew(piece.len() as u64);
        Ok(file)
    }

    pub(crate) fn abandon(&mut self, part: u64) {
        let Some(growing) = self.parts.remove(&part) else { return };
        match self.shared.dir.unlink(&self.shared.dir.part(part)) {
            Ok(()) => self.shrank(growing.len),
            Err(_) => self.shared.failed(),
        }
    }

    /// Gives a body the name of its record.
    fn settle_part(&mut self, part: u64, spot: Spot) -> io::Result<()> {
        let name = (spot.segment, spot.offset);
        let dir = &self.shared.dir;
        dir.io.rename(&dir.part(part), &dir.body(name))?;
        let len = self.parts.remove(&part).map_or(0, |part| part.len);
        self.has_body(name, len);
        Ok(())
    }

    /// Notes a body, and what it adds to its segment.
    pub(crate) fn has_body(&mut self, name: (u32, u32), len: u64) {
        self.bodies.insert(name, len);
        if let Some(open) = self.open.as_mut().filter(|open| open.number == name.0) {
            open.weight += len;
        }
    }

    /// Removes the body of a record that does not count any more.
    fn drop_body(&mut self, spot: Spot) {
        if spot.has_body() {
            self.unlink_body((spot.segment, spot.offset));
        }
    }

    pub(crate) fn unlink_body(&mut self, name: (u32, u32)) {
        let Some(len) = self.bodies.remove(&name) else { return };
        match self.shared.dir.unlink(&self.shared.dir.body(name)) {
            Ok(()) => self.shrank(len),
            Err(_) => {
                self.shared.failed();
                // It is tried again when its segment goes.
                self.bodies.insert(name, len);
            }
        }
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
        self.shared.files.write().insert(survey.segment, file);
        for row in survey.rows.iter().rev().filter(|row| row.offset >= survey.floor) {
            match row.kind {
                Kind::Entry | Kind::Bodied => {
                    loading.take_in(&self.shared, (Spot::new(survey.segment, row), row.digest));
                }
                Kind::Purge => {
                    self.shared.marks.note(row.digest, place(survey.segment, row.offset));
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
        let earlier: Vec<_> = self.bodies.range(..(loading.first, 0)).map(|(at, _)| *at).collect();
        for name in earlier {
            if !loading.bodies.contains(&name) {
                self.unlink_body(name);
            }
        }
    }
}

impl Loading {
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

impl OpenSegment {
    /// Whether so many bytes more stay within a segment.
    pub(crate) const fn has_room(&self, len: usize, max: u32) -> bool {
        self.at as usize + len <= max as usize && self.weight < max as u64
    }

    pub(crate) fn take(&mut self, row: Row, wall: u64) {
        self.at += row.len;
        self.weight += u64::from(row.len);
        self.newest = self.newest.max(wall);
        self.rows.push(row);
    }

    fn strike(&mut self, spot: Spot) -> io::Result<()> {
        // One of the last.
        let row = self.rows.iter().rposition(|row| row.offset == spot.offset);
        if let Some(row) = row {
            self.rows.remove(row);
        }
        write_all(&*self.file, &[0; RECORD_HEADER_LEN], u64::from(spot.offset))
    }
}
