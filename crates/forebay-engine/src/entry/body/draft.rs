//! What of a body in flight a lower tier holds already, while it is written there.
//!
//! As long as the tier keeps up, no reader holds up the fill, and none is left behind: what has
//! left the window is read from the tier. What the tier has not written yet never leaves the
//! window. When the tier gives up, what it has written can still be read, and from there on the
//! window goes by its readers, as that of any other body.

use std::fmt;
use std::sync::Arc;

use super::flow::Flow;
use super::parts::{Parts, PartsReader};

/// A tier's copy of a flow.
#[derive(Default)]
pub(super) struct Draft {
    parts: Option<Arc<dyn Parts>>,
    /// How many bytes can be read there.
    written: u64,
    /// How many bytes the tier has taken. It may hold back some of them for a while.
    taken: u64,
    grows: bool,
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

/// The end of it that belongs to whoever writes the tier. Dropped, nothing more is written.
#[derive(Debug)]
pub(crate) struct Drafting(Arc<Flow>);

impl Drafting {
    /// From here on what the tier lacks is kept for it.
    pub(crate) fn begin(flow: &Arc<Flow>) -> Self {
        flow.with_draft(|draft| draft.grows = true);
        Self(flow.clone())
    }

    /// The tier has taken so many bytes, and can give some of them back.
    pub(crate) fn grew(&self, taken: u64, parts: Option<&Arc<dyn Parts>>) {
        self.0.with_draft(|draft| {
            draft.taken = taken;
            if let Some(parts) = parts {
                draft.written = parts.length();
                draft.parts = Some(parts.clone());
            }
        });
    }

    /// Nothing more is written. `false` if nobody can read the body from its first byte any more.
    pub(crate) fn end(&self) -> bool {
        self.0.with_draft(|draft| draft.grows = false)
    }
}

impl Drop for Drafting {
    fn drop(&mut self) {
        self.end();
    }
}
