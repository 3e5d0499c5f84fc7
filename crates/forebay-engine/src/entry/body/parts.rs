//! Bodies that a tier below memory holds and that nobody takes into memory: each reader reads what
//! it wants of them, where it wants it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;

use super::piece::{BrokenBody, PieceStream};

/// What one piece of a body may take that has begun. Nothing else can take the tier's place then,
/// so this is patience with a disk that is busy, and not a budget.
const PIECE_MAX: Duration = Duration::from_secs(5);

/// A body in a tier, of which any part can be read. Of one that is still being written, those
/// bytes that are there.
pub trait Parts: Send + Sync {
    /// How many bytes can be read.
    fn length(&self) -> u64;

    /// These bytes, as far as they can be read now. Each piece is verified before it is given out.
    fn part(self: Arc<Self>, range: Range<u64>) -> PieceStream;
}

/// One reader of such a body.
pub(crate) struct PartsReader {
    parts: Arc<dyn Parts>,
    left: Range<u64>,
    /// Begun with the first read: many ask for a body and never read it.
    stream: Option<PieceStream>,
}

impl PartsReader {
    pub(super) fn new(parts: Arc<dyn Parts>, range: Range<u64>) -> Self {
        let end = range.end.min(parts.length());
        Self { parts, left: range.start.min(end)..end, stream: None }
    }

    pub(super) const fn left(&self) -> u64 {
        self.left.end - self.left.start
    }

    /// Whether the byte at this offset comes next.
    pub(super) const fn reads(&self, offset: u64) -> bool {
        self.left.start == offset && self.left() > 0
    }

    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        if self.left() == 0 {
            return Poll::Ready(None);
        }
        let (parts, left) = (&self.parts, &self.left);
        let stream = self.stream.get_or_insert_with(|| bounded(parts.clone().part(left.clone())));
        stream.poll_next_unpin(cx).map(|piece| match piece {
            Some(Ok(mut piece)) => {
                piece.truncate(usize::try_from(self.left()).unwrap_or(usize::MAX));
                self.left.start += piece.len() as u64;
                Some(Ok(piece))
            }
            Some(Err(broken)) => Some(Err(broken)),
            None => Some(Err(BrokenBody::Source("its tier has less than it said".into()))),
        })
    }
}

impl fmt::Debug for PartsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartsReader({:?})", self.left)
    }
}

/// The same body, but one that breaks off where its tier stalls.
pub(crate) fn bounded(body: PieceStream) -> PieceStream {
    unfold(Some(body), |body| async {
        let mut body = body?;
        match tokio::time::timeout(PIECE_MAX, body.next()).await {
            Ok(piece) => Some((piece?, Some(body))),
            Err(_) => Some((Err(BrokenBody::Source("its tier stalled".into())), None)),
        }
    })
    .boxed()
}
