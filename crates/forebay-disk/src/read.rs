//! An entry on its way out: found, read, and verified before anything is believed.

use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::frame::{self, Arrival, Decoded};
use forebay_core::{Key, KeyRef, Position};
use forebay_engine::{PieceStream, Stored, TierError};
use futures_util::{StreamExt, stream};

use crate::bodies::{BodyFile, BodyOpening};
use crate::buffers::{BUFFER_MAX, Buffers};
use crate::counts::{Condition, count};
use crate::io::{OpenFile, read_new};
use crate::layout::{Digest, Kind, Location, Pointer, RECORD_HEADER_LEN, RecordHeader};
use crate::open::Refusal;
use crate::shared::Shared;

/// Records up to this size are read without a thread where they are in the machine's memory
/// already: copying one takes less than handing it to a socket does.
const CACHED_READ_MAX: usize = BUFFER_MAX;

/// A record up to this size gets memory of its own: what is kept of it must not keep more.
const OWN_ALLOCATION_MAX: usize = 64 << 10;

/// How often an entry is looked for that has just been moved: it moves once in the life of a
/// segment.
const TRIES_MAX: usize = 2;

/// An entry as it was read.
pub(crate) struct Read {
    pub(crate) decoded: Decoded,
    /// Whether an earlier life may have missed that it was purged.
    is_unverified: bool,
    pub(crate) body: ReadBody,
}

/// Its body.
pub(crate) enum ReadBody {
    Inline(Bytes),
    Separate(Arc<BodyFile>),
}

/// What looking for an entry at one location came to.
enum ReadAttempt {
    Found(Box<Read>),
    /// It is not what it should be.
    Damaged,
    /// A purge has reached it.
    Purged,
    /// It may have been moved meanwhile.
    Moved,
}

impl Shared {
    /// What stands under a key.
    pub(crate) async fn read(self: &Arc<Self>, key: KeyRef<'_>) -> Result<Option<Read>, TierError> {
        if self.health.condition() == Condition::Stopped {
            return Err(Refusal::Stopped.into());
        }
        let found = self.find(key).await?;
        count(if found.is_some() { &self.counters.hits } else { &self.counters.misses });
        Ok(found)
    }

    async fn find(self: &Arc<Self>, key: KeyRef<'_>) -> Result<Option<Read>, TierError> {
        let digest = Digest::of(key.bytes(), self.seed);
        for _ in 0..TRIES_MAX {
            let Some(location) = self.index.hit(digest) else { return Ok(None) };
            match self.read_at(digest, location, key).await? {
                ReadAttempt::Found(read) => return Ok(Some(*read)),
                ReadAttempt::Damaged => {
                    self.damaged(digest, location);
                    return Ok(None);
                }
                ReadAttempt::Purged => {
                    self.index.remove_if(digest, location);
                    return Ok(None);
                }
                ReadAttempt::Moved => {}
            }
        }
        Ok(None)
    }

    async fn read_at(
        self: &Arc<Self>,
        digest: Digest,
        location: Location,
        key: KeyRef<'_>,
    ) -> Result<ReadAttempt, TierError> {
        let Some(file) = self.file(location.segment) else { return Ok(ReadAttempt::Moved) };
        let cached = read_from_page_cache(&*file, location, &self.buffers);
        let bytes = match cached {
            Some(bytes) if !location.has_body() => {
                return Ok(self.verify(bytes, digest, location, key));
            }
            cached => cached,
        };
        let (shared, key): (_, Key) = (self.clone(), key.to_key());
        let reading = move || {
            let read =
                || read_new(&*file, location.len(), u64::from(location.offset)).map(Bytes::from);
            let bytes = match bytes.map_or_else(read, Ok) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(ReadAttempt::Damaged);
                }
                read => read?,
            };
            match shared.verify(bytes, digest, location, key.borrowed()) {
                ReadAttempt::Found(read) => shared.open_body(*read, digest, location),
                other => Ok(other),
            }
        };
        self.pool.run(reading).await?.map_err(|error: std::io::Error| {
            self.failed();
            TierError::failed(error)
        })
    }

    fn verify(
        &self,
        bytes: Bytes,
        digest: Digest,
        location: Location,
        key: KeyRef<'_>,
    ) -> ReadAttempt {
        match self.decode(&bytes, digest, location, key) {
            Some((generation, read)) => {
                let is_purged = self.purge_marks.reach(generation, key, read.decoded.meta.tags());
                if is_purged { ReadAttempt::Purged } else { ReadAttempt::Found(Box::new(read)) }
            }
            // Not where it was looked for: it was moved, and its segment is gone or overwritten.
            None if self.index_says_otherwise(digest, location) => ReadAttempt::Moved,
            None => ReadAttempt::Damaged,
        }
    }

    fn index_says_otherwise(&self, digest: Digest, location: Location) -> bool {
        self.index.hit(digest).is_some_and(|now| !now.is(location))
    }

    fn decode(
        &self,
        bytes: &Bytes,
        digest: Digest,
        location: Location,
        key: KeyRef<'_>,
    ) -> Option<(u64, Read)> {
        let at = location.record();
        let header = RecordHeader::decode(bytes, self.seed, at)?;
        let expected = if location.has_body() { Kind::EntryWithBody } else { Kind::Entry };
        if header.kind != expected || header.digest != digest {
            return None;
        }
        let end = RECORD_HEADER_LEN.checked_add(usize::try_from(header.payload).ok()?)?;
        let payload = (end <= bytes.len()).then(|| bytes.slice(RECORD_HEADER_LEN..end))?;
        let now = self.clock.now();
        let resided = self.residence.resided(header.stored, now);
        let arrival = Arrival { now, resided, position: Position::default() };
        let mut decoded = frame::decode(&payload, key, arrival).ok()?;
        // A head is kept as it is, and must not keep all of the record with it.
        decoded.head = Bytes::copy_from_slice(&decoded.head);
        let body = ReadBody::Inline(decoded.body.clone());
        let is_unverified = header.generation < self.trusted_from;
        Some((header.generation, Read { decoded, is_unverified, body }))
    }

    /// Opens the body that a record points to. On a thread of the pool.
    fn open_body(
        self: &Arc<Self>,
        mut read: Read,
        digest: Digest,
        location: Location,
    ) -> std::io::Result<ReadAttempt> {
        if !location.has_body() {
            return Ok(ReadAttempt::Found(Box::new(read)));
        }
        let Some(pointer) = Pointer::decode(&read.decoded.body) else {
            return Ok(ReadAttempt::Damaged);
        };
        match BodyFile::open(self, pointer, digest, location)? {
            BodyOpening::Open(body) => {
                read.body = ReadBody::Separate(Arc::new(body));
                Ok(ReadAttempt::Found(Box::new(read)))
            }
            BodyOpening::Missing if self.index_says_otherwise(digest, location) => {
                Ok(ReadAttempt::Moved)
            }
            BodyOpening::Missing | BodyOpening::Damaged => Ok(ReadAttempt::Damaged),
        }
    }
}

/// A record that is in the machine's memory.
fn read_from_page_cache(
    file: &dyn OpenFile,
    location: Location,
    buffers: &Arc<Buffers>,
) -> Option<Bytes> {
    if location.len() > CACHED_READ_MAX {
        return None;
    }
    let at = u64::from(location.offset);
    if location.len() <= OWN_ALLOCATION_MAX {
        let mut bytes = vec![0; location.len()];
        let len = file.read_if_cached(&mut bytes, at).ok()?;
        return (len == location.len()).then(|| bytes.into());
    }
    let mut buffer = buffers.take(location.offset, location.len())?;
    let len = file.read_if_cached(buffer.bytes_mut(), at).ok()?;
    (len == location.len()).then(|| buffer.into())
}

impl Read {
    /// The whole of it.
    pub(crate) fn whole(self) -> Stored {
        let (meta, head) = (self.decoded.meta, self.decoded.head);
        let stored = match self.body {
            ReadBody::Inline(bytes) => Stored::new(meta, head, one_piece(bytes)),
            ReadBody::Separate(file) => {
                let body = file.clone().pieces(0..file.len());
                Stored::new(meta, head, body).with_parts(file)
            }
        };
        Stored { suspect: self.is_unverified, ..stored }
    }
}

fn one_piece(bytes: Bytes) -> PieceStream {
    let piece = (!bytes.is_empty()).then_some(Ok(bytes));
    stream::iter(piece).boxed()
}
