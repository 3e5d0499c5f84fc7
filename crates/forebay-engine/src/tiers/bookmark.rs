//! Bookmarks: positions on the bus that tiers record for the next process.

use bytes::Bytes;

/// Maximum size of a bookmark, in bytes.
const BOOKMARK_MAX: usize = 4 << 10;

/// Position on the bus, as bytes that only the bus interprets. A tier that survives the process
/// stores it, so that the next process continues there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bookmark(Bytes);

impl Bookmark {
    /// Creates a bookmark. `None` if it is longer than 4 KiB: a longer position is not recorded.
    #[must_use]
    pub fn new(bytes: Bytes) -> Option<Self> {
        (bytes.len() <= BOOKMARK_MAX).then_some(Self(bytes))
    }

    /// Returns the bytes of the position, which only the bus interprets.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Says whether every purge between the previous bookmark and this one was received and applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// Every purge was received and applied.
    Whole,
    /// A purge may have been missed, so that entries stored earlier may have been purged.
    Broken,
}
