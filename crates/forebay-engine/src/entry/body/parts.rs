//! Bodies that stay in a lower tier: each reader reads the range that it needs there.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;

use super::piece::{BrokenBody, PieceStream};

/// Time limit for one piece of a body that has begun. No other tier can continue it, so the limit
/// allows for a busy disk.
const PIECE_MAX: Duration = Duration::from_secs(5);

/// Body in a lower tier that can be read at any offset. If the tier is still writing the body, only
/// the written beginning can be read.
pub trait Parts: Send + Sync {
    /// Returns the number of bytes, from the first on, that can be read now.
    fn length(&self) -> u64;

    /// Reads a range in bytes, up to the end of what can be read now. Each piece is verified before
    /// it is returned.
    fn part(self: Arc<Self>, range: Range<u64>) -> PieceStream;
}

/// Reader of a body in a tier.
pub(crate) struct PartsReader {
    parts: Arc<dyn Parts>,
    left: Range<u64>,
    /// Started by the first read: many bodies are requested and never read.
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

    /// Returns `true` if the byte at this offset is next.
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
            None => Some(Err(BrokenBody::Source(
                "its tier returned fewer bytes than it announced".into(),
            ))),
        })
    }
}

impl fmt::Debug for PartsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartsReader({:?})", self.left)
    }
}

/// Limits the time of each piece: a stalled tier breaks the body.
pub(crate) fn bounded(body: PieceStream) -> PieceStream {
    unfold(Some(body), |body| async {
        let mut body = body?;
        match tokio::time::timeout(PIECE_MAX, body.next()).await {
            Ok(piece) => Some((piece?, Some(body))),
            Err(_) => {
                Some((Err(BrokenBody::Source("its tier returned nothing for 5 s".into())), None))
            }
        }
    })
    .boxed()
}
