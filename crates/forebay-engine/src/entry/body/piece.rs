//! Body in pieces, and the reasons why one ends early.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;

/// Body in pieces. A stream that ends without an error is a complete body.
pub type PieceStream = BoxStream<'static, Result<Bytes, BrokenBody>>;

/// Reason why a body cannot be read to its end. Every reader gets it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BrokenBody {
    /// The source failed, or ended before its announced end.
    #[error("the body broke off: {0}")]
    Source(Arc<str>),
    /// The task that read the body into the cache has ended.
    #[error("the body was abandoned before its end")]
    Abandoned,
    /// The reader started or stayed behind the kept part of a body: of one too large to keep, or of
    /// one that was dropped because its readers had stopped.
    #[error("the reader fell behind what is kept of a large body")]
    FellBehind,
}

/// Body of an origin's answer.
pub enum Content {
    /// All bytes at once.
    Whole(Bytes),
    /// Pieces of unknown total length.
    Stream(PieceStream),
    /// Pieces with their announced total length. A body too large to keep is streamed from its first
    /// byte.
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
