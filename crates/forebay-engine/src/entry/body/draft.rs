//! Draft: the part of a streaming body that a lower tier has written and can return.
//!
//! While the tier keeps up, no reader stops the body, and none is left behind: bytes that have left
//! the window are read from the tier. Bytes that the tier has not written never leave the window.
//! When the tier gives up, its part stays readable, and the window depends on its readers, as that
//! of any other body.

use std::fmt;
use std::sync::Arc;

use super::parts::{Parts, PartsReader};

/// Copy of a streaming body in a tier.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) parts: Option<Arc<dyn Parts>>,
    /// Number of bytes that can be read there.
    pub(super) written: u64,
    /// Number of bytes that the tier has accepted. It may buffer some of them for a while.
    pub(super) taken: u64,
    pub(super) grows: bool,
}

impl Draft {
    /// Returns the number of bytes that the window need not hold.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns `true` while the tier writes.
    pub(super) const fn grows(&self) -> bool {
        self.grows
    }

    /// Creates a reader of the written bytes from `at` on.
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
