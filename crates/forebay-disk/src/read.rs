//! An entry on its way out: found, read, and verified before anything is believed.

use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::frame::{self, Arrival, Decoded};
use forebay_core::{Key, KeyRef, Position};
use forebay_engine::{PieceStream, Stored, TierError};
use futures_util::{StreamExt, stream};

use crate::bodies::{BodyFile, Opening};
use crate::buffers::{BUFFER_MAX, Buffers};
use crate::counts::{Condition, count};
use crate::io::{Opened, read_new};
use crate::layout::{Digest, Kind, Pointer, RECORD_HEADER_LEN, RecordHeader, Spot};
use crate::open::Refusal;
use crate::shared::Shared;

/// Records up to this size are read without a thread where they are in the machine's memory
/// already: copying one takes less than handing it to a socket does.
const AT_ONCE_MAX: usize = BUFFER_MAX;

/// A record up to this size gets memory of its own: what is kept of it must not keep more.
const OWN_MAX: usize = 64 << 10;

/// How often an entry is looked for that has just been moved: it moves once in the life of a
/// segment.
const TRIES_MAX: usize = 2;

/// An entry as it was read.
pub(crate) struct Read {
    pub(crate) decoded: Decoded,
    /// Whether an earlier life may have missed that it was purged.
    suspect: bool,
    pub(crate) body: ReadBody,
}

/// Its body.
pub(crate) enum ReadBody {
    Inside(Bytes),
    Apart(Arc<BodyFile>),
}

/// What looking for an entry at one spot came to.
enum Tried {
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
        count(if found.is_some() { &self.tallies.hits } else { &self.tallies.misses });
        Ok(found)
    }

    async fn find(self: &Arc<Self>, key: KeyRef<'_>) -> Result<Option<Read>, TierError> {
        let digest = Digest::of(key.bytes(), self.seed);
        for _ in 0..TRIES_MAX {
            let Some(spot) = self.index.hit(digest) else { return Ok(None) };
            match self.read_at(digest, spot, key).await? {
                Tried::Found(read) => return Ok(Some(*read)),
                Tried::Damaged => {
                    self.damaged(digest, spot);
                    return Ok(None);
                }
                Tried::Purged => {
                    self.index.remove_if(digest, spot);
                    return Ok(None);
                }
                Tried::Moved => {}
            }
        }
        Ok(None)
    }

    async fn read_at(
        self: &Arc<Self>,
        digest: Digest,
        spot: Spot,
        key: KeyRef<'_>,
    ) -> Result<Tried, TierError> {
        let Some(file) = self.file(spot.segment) else { return Ok(Tried::Moved) };
        let at_once = read_at_once(&*file, spot, &self.buffers);
        let bytes = match at_once {
            Some(bytes) if !spot.has_body() => {
                return Ok(self.verify((bytes, digest, spot), key));
            }
            at_once => at_once,
        };
        let (shared, key): (_, Key) = (self.clone(), key.to_key());
        let reading = move || {
            let read = || read_new(&*file, spot.len(), u64::from(spot.offset)).map(Bytes::from);
            let bytes = match bytes.map_or_else(read, Ok) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(Tried::Damaged);
                }
                read => read?,
            };
            match shared.verify((bytes, digest, spot), key.borrowed()) {
                Tried::Found(read) => shared.open_body(*read, (digest, spot)),
                other => Ok(other),
            }
        };
        self.pool.run(reading).await?.map_err(|error: std::io::Error| {
            self.failed();
            TierError::failed(error)
        })
    }

    fn verify(&self, (bytes, digest, spot): (Bytes, Digest, Spot), key: KeyRef<'_>) -> Tried {
        match self.decode((&bytes, digest, spot), key) {
            Some((era, read)) => {
                let is_purged = self.marks.reach(era, (key, read.decoded.meta.tags()));
                if is_purged { Tried::Purged } else { Tried::Found(Box::new(read)) }
            }
            // Not where it was looked for: it was moved, and its segment is gone or overwritten.
            None if self.index_says_otherwise(digest, spot) => Tried::Moved,
            None => Tried::Damaged,
        }
    }

    fn index_says_otherwise(&self, digest: Digest, spot: Spot) -> bool {
        self.index.hit(digest).is_some_and(|now| !now.is(spot))
    }

    fn decode(
        &self,
        (bytes, digest, spot): (&Bytes, Digest, Spot),
        key: KeyRef<'_>,
    ) -> Option<(u64, Read)> {
        let at = (spot.segment, spot.offset);
        let header = RecordHeader::decode(bytes, self.seed, at)?;
        let expected = if spot.has_body() { Kind::Bodied } else { Kind::Entry };
        if header.kind != expected || header.digest != digest {
            return None;
        }
        let end = RECORD_HEADER_LEN.checked_add(usize::try_from(header.payload).ok()?)?;
        let payload = (end <= bytes.len()).then(|| bytes.slice(RECORD_HEADER_LEN..end))?;
        let now = self.clock.now();
        let resided = self.life.resided(header.stored, now);
        let arrival = Arrival { now, resided, position: Position::default() };
        let mut decoded = frame::decode(&payload, key, arrival).ok()?;
        // A head is kept as it is, and must not keep all of the record with it.
        decoded.head = Bytes::copy_from_slice(&decoded.head);
        let body = ReadBody::Inside(decoded.body.clone());
        let suspect = header.era < self.sound_from;
        Some((header.era, Read { decoded, suspect, body }))
    }

    /// Opens the body that a record points to. On a thread of the pool.
    fn open_body(
        self: &Arc<Self>,
        mut read: Read,
        (digest, spot): (Digest, Spot),
    ) -> std::io::Result<Tried> {
        if !spot.has_body() {
            return Ok(Tried::Found(Box::new(read)));
        }
        let Some(pointer) = Pointer::decode(&read.decoded.body) else { return Ok(Tried::Damaged) };
        match BodyFile::open(self, pointer, (digest, spot))? {
            Opening::Open(body) => {
                read.body = ReadBody::Apart(Arc::new(body));
                Ok(Tried::Found(Box::new(read)))
            }
            Opening::Missing if self.index_says_otherwise(digest, spot) => Ok(Tried::Moved),
            Opening::Missing | Opening::Damaged => Ok(Tried::Damaged),
        }
    }
}

/// A record that is in the machine's memory.
fn read_at_once(file: &dyn Opened, spot: Spot, buffers: &Arc<Buffers>) -> Option<Bytes> {
    if spot.len() > AT_ONCE_MAX {
        return None;
    }
    let at = u64::from(spot.offset);
    if spot.len() <= OWN_MAX {
        let mut bytes = vec![0; spot.len()];
        let len = file.read_now(&mut bytes, at).ok()?;
        return (len == spot.len()).then(|| bytes.into());
    }
    let mut buffer = buffers.take((spot.offset, spot.len()))?;
    let len = file.read_now(buffer.bytes_mut(), at).ok()?;
    (len == spot.len()).then(|| buffer.into())
}

impl Read {
    /// The whole of it.
    pub(crate) fn whole(self) -> Stored {
        let (meta, head) = (self.decoded.meta, self.decoded.head);
        let stored = match self.body {
            ReadBody::Inside(bytes) => Stored::new(meta, head, one_piece(bytes)),
            ReadBody::Apart(file) => {
                let body = file.clone().pieces(0..file.len());
                Stored::new(meta, head, body).with_parts(file)
            }
        };
        Stored { suspect: self.suspect, ..stored }
    }
}

fn one_piece(bytes: Bytes) -> PieceStream {
    let piece = (!bytes.is_empty()).then_some(Ok(bytes));
    stream::iter(piece).boxed()
}
