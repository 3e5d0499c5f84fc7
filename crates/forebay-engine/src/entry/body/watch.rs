//! Watch on a reader of a body, for a connection whose client does not read.

use std::sync::Weak;

use super::flow::Flow;
use super::long::Long;

/// Tells whether a [`BodyReader`](super::BodyReader) has fallen behind, without reading from it.
///
/// A connection that waits for its client does not read the body, and would notice the loss only
/// after the client has taken everything before it.
#[derive(Debug)]
pub struct ReaderWatch(Watched);

#[derive(Debug)]
enum Watched {
    Long(Weak<Long>),
    /// A streaming body, and the number of the reader.
    Flowing(Weak<Flow>, usize),
}

impl ReaderWatch {
    pub(super) const fn long(body: Weak<Long>) -> Self {
        Self(Watched::Long(body))
    }

    pub(super) const fn flowing(body: Weak<Flow>, reader: usize) -> Self {
        Self(Watched::Flowing(body, reader))
    }

    /// Returns `true` if the next bytes of the reader were dropped from memory. `false` after the
    /// reader was dropped.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &self.0 {
            Watched::Long(body) => body.upgrade().is_some_and(|body| body.is_dropped()),
            Watched::Flowing(body, reader) => {
                body.upgrade().is_some_and(|body| body.is_lost(*reader))
            }
        }
    }
}
