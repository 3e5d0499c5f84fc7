//! Bookmarks: positions on the bus that tiers record for the next process.

use bytes::Bytes;

/// The longest bookmark.
const BOOKMARK_MAX: usize = 4 << 10;

/// A place on a bus, in bytes that the bus alone reads. It may outlive the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bookmark(Bytes);

impl Bookmark {
    /// Nothing if it is longer than 4 KiB: none is kept of a bus that needs more.
    #[must_use]
    pub fn new(bytes: Bytes) -> Option<Self> {
        (bytes.len() <= BOOKMARK_MAX).then_some(Self(bytes))
    }

    /// What the bus has written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether everything was told, and carried out, between two bookmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// It was.
    Whole,
    /// Something may be missing: what is older than this may have been purged unheard.
    Broken,
}
