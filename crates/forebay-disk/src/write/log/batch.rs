//! Group commit: entries that wait in the queue at the same time are written with one file system
//! call.

use std::io::{self, ErrorKind};
use std::mem;

use bytes::Bytes;

use crate::counts::count;
use crate::files::io::{OpenFile, write_all, write_all_parts};
use crate::format::layout::{ALIGN, Location, RecordHeader, Row, record_len};
use crate::shared::queue::Store;
use crate::write::log::{Log, Record};

/// Approximate maximum bytes per call. Larger batches gain nothing, and up to this size the copied
/// bytes stay in the CPU cache.
const BYTES_MAX: usize = 256 << 10;

/// Maximum bytes of a payload that is copied. A larger one ends its batch.
const COPIED_MAX: usize = 64 << 10;

/// Padding of a record.
const ZEROS: [u8; ALIGN as usize] = [0; ALIGN as usize];

/// Encoded records for the end of the open segment.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Payload that is not copied, and the number of padding bytes after it.
    last: Option<(Bytes, usize)>,
    stores: Vec<(Store, Row)>,
}

impl Batch {
    fn len(&self) -> usize {
        self.bytes.len() + self.last.as_ref().map_or(0, |(last, zeros)| last.len() + zeros)
    }

    /// Appends a record.
    fn push(&mut self, header: &[u8], payload: &Bytes, zeros: usize) {
        self.bytes.extend_from_slice(header);
        if payload.len() > COPIED_MAX {
            self.last = Some((payload.clone(), zeros));
        } else {
            self.bytes.extend_from_slice(payload);
            self.bytes.extend_from_slice(&ZEROS[..zeros]);
        }
    }

    fn write(&self, file: &dyn OpenFile, at: u64) -> io::Result<()> {
        match &self.last {
            None => write_all(file, &self.bytes, at),
            Some((last, zeros)) => {
                write_all_parts(file, &[&self.bytes, last, &ZEROS[..*zeros]], at)
            }
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.last = None;
    }
}

impl Log {
    /// Adds an entry with an inline body; it is written with the [batch](Self::flush).
    pub(crate) fn stage(&mut self, store: Store) {
        match self.stage_record(&store) {
            Ok(row) => self.batch.stores.push((store, row)),
            Err(error) => self.fail([store], &error),
        }
    }

    fn stage_record(&mut self, store: &Store) -> io::Result<Row> {
        let len = record_len(store.payload.len()).ok_or(ErrorKind::FileTooLarge)?;
        if !self.fits_behind_the_batch(len) {
            self.flush();
            self.evict_for(u64::from(len))?;
            self.segment_for(len)?;
        }
        self.encode(&Record::of(store))
    }

    fn fits_behind_the_batch(&self, len: u32) -> bool {
        let whole = self.batch.len() + len as usize;
        let end = self.shared.bytes() + whole as u64;
        whole <= BYTES_MAX
            && self.batch.last.is_none()
            && end <= self.shared.limits.size
            && self.open.as_ref().is_some_and(|open| open.has_space(whole, self.shared.segment_max))
    }

    /// Encodes a record at the end of the batch.
    pub(crate) fn encode(&mut self, record: &Record<'_>) -> io::Result<Row> {
        let open = self.open.as_ref().ok_or(ErrorKind::NotFound)?;
        let Record { kind, digest, stored, generation, payload } = *record;
        let too_large = || io::Error::from(ErrorKind::FileTooLarge);
        let len = record_len(payload.len()).ok_or_else(too_large)?;
        let ahead = u32::try_from(self.batch.len()).map_err(|_| too_large())?;
        let offset = open.at + ahead;
        let header = RecordHeader {
            kind,
            payload: u32::try_from(payload.len()).map_err(|_| too_large())?,
            segment: open.number,
            digest,
            removals: self.root.removals,
            generation,
            stored,
        };
        let header = header.encode(self.shared.seed, offset);
        let zeros = len as usize - header.len() - payload.len();
        self.batch.push(&header, payload, zeros);
        Ok(Row { digest, offset, len, kind })
    }

    /// Writes the batch, publishes its entries, and replies to their callers.
    pub(crate) fn flush(&mut self) {
        if self.batch.stores.is_empty() {
            return;
        }
        let mut stores = mem::take(&mut self.batch.stores);
        match self.write_batch() {
            Ok(()) => self.publish_all(&mut stores),
            Err(error) => self.fail(stores.drain(..).map(|(store, _)| store), &error),
        }
        self.batch.stores = stores;
    }

    /// Writes the encoded records.
    pub(crate) fn write_batch(&mut self) -> io::Result<()> {
        let Some(open) = &self.open else { return Err(ErrorKind::NotFound.into()) };
        let (len, at) = (self.batch.len(), u64::from(open.at));
        let written = self.batch.write(&*open.file, at);
        match &written {
            Ok(()) => self.add_bytes(len as u64),
            // Complete records may remain after the failed call. The next record must not precede
            // them.
            Err(_) if open.file.truncate(at).is_ok() => {}
            Err(_) => self.abandon_segment(len),
        }
        self.batch.clear();
        written
    }

    fn publish_all(&mut self, stores: &mut Vec<(Store, Row)>) {
        self.shared.health.wrote();
        let Some(open) = &mut self.open else { return };
        let number = open.number;
        for (store, row) in &*stores {
            open.take(*row, store.stored.wall);
        }
        for (store, row) in &*stores {
            self.publish(store, Location::new(number, row));
        }
        for (store, _) in stores.drain(..) {
            // The caller may be gone.
            let _ = store.reply.send(Ok(()));
        }
    }

    /// Records one failure and reports it to all callers.
    fn fail(&self, stores: impl IntoIterator<Item = Store>, error: &io::Error) {
        self.shared.note(error);
        for store in stores {
            count(&self.shared.counters.failed);
            let same = error.raw_os_error().map(io::Error::from_raw_os_error);
            let _ = store.reply.send(Err(same.unwrap_or_else(|| error.kind().into())));
        }
    }
}
