//! Bookmarks: positions on the bus that tiers record for the next process.

use bytes::Bytes;

/// Maximum size of a bookmark, in bytes.
const BOOKMARK_MAX: usize = 4 << 10;

/// Position on a bus, in bytes that only the bus interprets. It may outlive the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bookmark(Bytes);

impl Bookmark {
    /// Creates a bookmark. `None` if it is longer than 4 KiB: a longer position is not recorded.
    #[must_use]
    pub fn new(bytes: Bytes) -> Option<Self> {
        (bytes.len() <= BOOKMARK_MAX).then_some(Self(bytes))
    }

    /// Returns the bytes of the bus.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Completeness of the purges between two bookmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// All purges were received and applied.
    Whole,
    /// A purge may be missing: older entries may have missed it.
    Broken,
}
