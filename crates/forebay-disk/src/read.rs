//! Lookup of an entry: its record is found, read and verified. Large bodies are in files of their own.
//!
//! This folder uses `shared`, `format` and `files`; it never sees the log or the writing thread.

pub(crate) mod bodies;

use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::frame::{self, Arrival, Decoded};
use forebay_core::{Key, KeyRef, Position, PurgeState};
use forebay_engine::{PieceStream, Stored, TierError};
use futures_util::{StreamExt, stream};

use crate::counts::{Condition, count};
use crate::error::Refusal;
use crate::files::buffers::{BUFFER_MAX, Buffers};
use crate::files::io::{OpenFile, read_new};
use crate::format::layout::{Digest, Kind, Location, Pointer, RECORD_HEADER_LEN, RecordHeader};
use crate::index::Index;
use crate::read::bodies::{BodyFile, BodyOpening};
use crate::shared::Shared;

/// Maximum bytes of a record that is read without a pool thread if it is in the page cache: copying
/// it costs less than sending it.
const CACHED_READ_MAX: usize = BUFFER_MAX;

/// Maximum bytes of a record with its own allocation, so that a kept part does not hold a large
/// buffer.
const OWN_ALLOCATION_MAX: usize = 64 << 10;

/// Attempts per lookup of an entry that was just moved, which happens once per segment.
const TRIES_MAX: usize = 2;

/// An entry as it was read.
pub(crate) struct Read {
    pub(crate) decoded: Decoded,
    /// True if an earlier session may have missed a purge of the entry.
    is_unverified: bool,
    /// True if a soft purge has made the entry stale.
    is_softened: bool,
    pub(crate) body: ReadBody,
}

/// Body of the entry.
pub(crate) enum ReadBody {
    Inline(Bytes),
    Separate(Arc<BodyFile>),
}

/// Result of a read attempt.
enum ReadAttempt {
    Found(Box<Read>),
    /// The record is damaged.
    Damaged,
    /// A hard purge reaches the entry.
    Purged,
    /// The record may have been moved meanwhile.
    Moved,
}

impl Shared {
    /// Looks up an entry.
    ///
    /// # Errors
    /// [`TierError`] if the tier has stopped, too many reads are queued, or a read fails.
    pub(crate) async fn read(self: &Arc<Self>, key: KeyRef<'_>) -> Result<Option<Read>, TierError> {
        if self.health.condition() == Condition::Stopped {
            return Err(Refusal::Stopped.into());
        }
        let found = self.find(key, Index::hit).await?;
        count(if found.is_some() { &self.counters.hits } else { &self.counters.misses });
        Ok(found)
    }

    /// Looks up an entry for a report: it is not counted, and not kept longer.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) async fn peek(self: &Arc<Self>, key: KeyRef<'_>) -> Result<Option<Read>, TierError> {
        if self.health.condition() == Condition::Stopped {
            return Err(Refusal::Stopped.into());
        }
        self.find(key, Index::get).await
    }

    async fn find(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        locate: fn(&Index, Digest) -> Option<Location>,
    ) -> Result<Option<Read>, TierError> {
        let digest = Digest::of(key.bytes(), self.seed);
        for _ in 0..TRIES_MAX {
            let Some(location) = locate(&self.index, digest) else { return Ok(None) };
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
            Some((generation, mut read)) => {
                let state = self.purge_marks.state(generation, key, read.decoded.meta.tags());
                read.is_softened = state == PurgeState::SoftPurged;
                match state {
                    PurgeState::Removed => ReadAttempt::Purged,
                    _ => ReadAttempt::Found(Box::new(read)),
                }
            }
            // The record was moved, and its old segment is gone.
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
        // Copied, so that a kept head does not hold the whole record.
        decoded.head = Bytes::copy_from_slice(&decoded.head);
        let body = ReadBody::Inline(decoded.body.clone());
        let is_unverified = header.generation < self.trusted_from;
        Some((header.generation, Read { decoded, is_unverified, is_softened: false, body }))
    }

    /// Opens the separate body of an entry. Runs on a pool thread.
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

/// Reads a record if it is in the page cache.
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
    /// Converts the entry for the engine.
    pub(crate) fn whole(self) -> Stored {
        let (meta, head) = (self.decoded.meta, self.decoded.head);
        let stored = match self.body {
            ReadBody::Inline(bytes) => Stored::new(meta, head, one_piece(bytes)),
            ReadBody::Separate(file) => {
                let body = file.clone().pieces(0..file.len());
                Stored::new(meta, head, body).with_parts(file)
            }
        };
        Stored { suspect: self.is_unverified, softened: self.is_softened, ..stored }
    }
}

fn one_piece(bytes: Bytes) -> PieceStream {
    let piece = (!bytes.is_empty()).then_some(Ok(bytes));
    stream::iter(piece).boxed()
}
