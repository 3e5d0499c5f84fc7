//! Body in pieces, and the reasons why one ends early.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;

/// Stream of the pieces of a body. The body is complete if the stream ends without an error.
pub type PieceStream = BoxStream<'static, Result<Bytes, BrokenBody>>;

/// Reason why a body ends early. Every reader of the body gets it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BrokenBody {
    /// The origin or the tier failed while sending the body, or ended before the announced length;
    /// the text is the cause.
    #[error("the body ended early: {0}")]
    Source(Arc<str>),
    /// The task that read the body into the cache ended before the body did.
    #[error("the body ended early: the task that read it from the origin was aborted")]
    Abandoned,
    /// The reader is too slow: the bytes that it needs next are no longer in memory. The body is
    /// too large to be kept, was dropped while its readers did not read, or is for one caller and
    /// was read already.
    #[error("the body was read too slowly: its next bytes are no longer in memory")]
    FellBehind,
}

/// Body of an origin's answer, as a [`Load`](crate::Load) returns it.
pub enum Content {
    /// Complete body in one piece.
    Whole(Bytes),
    /// Pieces of a body of unknown length.
    Stream(PieceStream),
    /// Pieces of a body, and its announced length in bytes. If that is more than can be kept, the
    /// body is streamed to its readers and not stored in memory.
    Sized(u64, PieceStream),
}

impl Content {
    /// Returns the announced length.
    pub(crate) fn announced(&self) -> Option<u64> {
        match self {
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Stream(_) => None,
            Self::Sized(length, _) => Some(*length),
        }
    }
}
