//! What of a body in flight a lower tier holds already, while it is written there.
//!
//! As long as the tier keeps up, no reader holds up the fill, and none is left behind: what has
//! left the window is read from the tier. What the tier has not written yet never leaves the
//! window. When the tier gives up, what it has written can still be read, and from there on the
//! window goes by its readers, as that of any other body.

use std::fmt;
use std::sync::Arc;

use super::parts::{Parts, PartsReader};

/// A tier's copy of a flow.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) parts: Option<Arc<dyn Parts>>,
    /// How many bytes can be read there.
    pub(super) written: u64,
    /// How many bytes the tier has taken. It may hold back some of them for a while.
    pub(super) taken: u64,
    pub(super) grows: bool,
}

impl Draft {
    /// How many bytes the window need not hold.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether more is going to be written.
    pub(super) const fn grows(&self) -> bool {
        self.grows
    }

    /// A reader of what is there from `at` on.
    pub(super) fn reader(&self, at: u64) -> Option<PartsReader> {
        let parts = self.parts.clone().filter(|_| at < self.written)?;
        Some(PartsReader::new(parts, at..self.written))
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft({} of {} bytes, grows: {})", self.written, self.taken, self.grows)
    }
}
