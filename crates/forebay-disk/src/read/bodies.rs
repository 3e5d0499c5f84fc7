//! Large bodies in separate files: readable while they are written, in verified pieces.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::{BrokenBody, Parts, PieceStream};
use futures_util::{StreamExt, stream};
use parking_lot::RwLock;

use crate::counts::count;
use crate::files::io::{Mode, OpenFile, read_all, read_new};
use crate::format::layout::{Digest, Location, PIECE, Pointer, piece_digest};
use crate::shared::Shared;

/// Bytes of a piece's digest.
const DIGEST: usize = size_of::<u64>();

/// An open body file, complete or partially written.
pub(crate) struct BodyFile {
    shared: Arc<Shared>,
    file: Arc<dyn OpenFile>,
    salt: u64,
    written: RwLock<Written>,
    /// The entry of the body, which leaves the index if the body is damaged; `None` while it is
    /// written.
    entry: Option<(Digest, Location)>,
}

/// Readable part of a body.
#[derive(Default)]
struct Written {
    len: u64,
    /// Digests of the pieces.
    table: Vec<u8>,
}

/// Result of opening a body file.
pub(crate) enum BodyOpening {
    Open(BodyFile),
    Damaged,
    Missing,
}

impl BodyFile {
    /// Opens a body file and verifies its table of digests.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        pointer: Pointer,
        digest: Digest,
        location: Location,
    ) -> io::Result<BodyOpening> {
        let name = location.record();
        let file = match shared.dir.io.open(&shared.dir.body(name), Mode::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BodyOpening::Missing),
            opened => opened?,
        };
        let table_len = pointer.pieces().checked_mul(DIGEST as u64);
        let whole = table_len.and_then(|table| pointer.len.checked_add(table));
        // Checked before allocating by it.
        if whole != Some(file.len()?) {
            return Ok(BodyOpening::Damaged);
        }
        let mut table = vec![0; usize::try_from(table_len.unwrap_or(0)).unwrap_or(0)];
        read_all(&*file, &mut table, pointer.len)?;
        if Pointer::table_digest(&table, pointer.salt) != pointer.table {
            return Ok(BodyOpening::Damaged);
        }
        let written = RwLock::new(Written { len: pointer.len, table });
        let (shared, salt) = (shared.clone(), pointer.salt);
        Ok(BodyOpening::Open(Self { shared, file, salt, written, entry: Some((digest, location)) }))
    }

    /// Creates the reader of a body that is being written to this file.
    pub(crate) fn begin(shared: &Arc<Shared>, file: Arc<dyn OpenFile>, salt: u64) -> Self {
        Self { shared: shared.clone(), file, salt, written: RwLock::default(), entry: None }
    }

    /// Records that a piece was written.
    pub(crate) fn add_piece(&self, piece: &[u8]) {
        let mut written = self.written.write();
        let number = (written.table.len() / DIGEST) as u64;
        let digest = piece_digest(piece, self.salt, number);
        written.table.extend_from_slice(&digest.to_le_bytes());
        written.len += piece.len() as u64;
    }

    /// Returns the digests of all written pieces.
    pub(crate) fn table(&self) -> Vec<u8> {
        self.written.read().table.clone()
    }

    pub(crate) fn len(&self) -> u64 {
        self.written.read().len
    }

    /// Returns the bytes of a range, limited to the body. Only the pieces in the range are read.
    pub(crate) fn pieces(self: Arc<Self>, range: Range<u64>) -> PieceStream {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        stream::unfold(Some((self, start)), move |rest| async move {
            let (body, at) = rest.filter(|(_, at)| *at < end)?;
            match body.piece_from(at, end).await {
                Ok(piece) => {
                    let next = at + piece.len() as u64;
                    Some((Ok(piece), Some((body, next))))
                }
                Err(broken) => Some((Err(broken), None)),
            }
        })
        .boxed()
    }

    async fn piece_from(self: &Arc<Self>, at: u64, end: u64) -> Result<Bytes, BrokenBody> {
        let body = self.clone();
        let number = at / PIECE as u64;
        let read = self.shared.pool.run(move || body.read_piece(number)).await;
        let broken = |why: &dyn std::fmt::Display| BrokenBody::Source(why.to_string().into());
        let piece = read.map_err(|refusal| broken(&refusal))?.map_err(|error| {
            self.count_failure(&error);
            broken(&error)
        })?;
        let from = at - number * PIECE as u64;
        let to = (end - number * PIECE as u64).min(piece.len() as u64);
        let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(piece.len());
        Ok(piece.slice(index(from)..index(to)))
    }

    fn read_piece(&self, number: u64) -> io::Result<Bytes> {
        let start = number * PIECE as u64;
        let len = (self.len() - start).min(PIECE as u64);
        let piece = read_new(&*self.file, usize::try_from(len).unwrap_or(PIECE), start)?;
        let at = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(DIGEST);
        let digest = piece_digest(&piece, self.salt, number).to_le_bytes();
        let is_right =
            self.written.read().table.get(at..at.saturating_add(DIGEST)) == Some(&digest[..]);
        if is_right { Ok(piece.into()) } else { Err(ErrorKind::InvalidData.into()) }
    }

    fn count_failure(&self, error: &io::Error) {
        match error.kind() {
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => match self.entry {
                Some((digest, location)) => self.shared.damaged(digest, location),
                None => count(&self.shared.counters.damaged),
            },
            _ => self.shared.failed(),
        }
    }
}

impl Parts for BodyFile {
    fn length(&self) -> u64 {
        self.len()
    }

    fn part(self: Arc<Self>, range: Range<u64>) -> PieceStream {
        self.pieces(range)
    }
}
