//! Writer's side of a draft: a lower tier reports how much of a streaming body it has written.

use std::sync::Arc;

use super::Flow;
use crate::entry::body::parts::Parts;

/// The end of it that belongs to whoever writes the tier. Dropped, nothing more is written.
#[derive(Debug)]
pub(crate) struct DraftWriter(Arc<Flow>);

impl DraftWriter {
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

impl Drop for DraftWriter {
    fn drop(&mut self) {
        self.end();
    }
}
