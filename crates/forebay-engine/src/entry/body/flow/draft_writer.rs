//! Writer's side of a draft: a lower tier reports how much of a streaming body it has written.

use std::sync::Arc;

use super::Flow;
use crate::entry::body::parts::Parts;

/// Writer of a draft. Dropping it ends the draft.
#[derive(Debug)]
pub(crate) struct DraftWriter(Arc<Flow>);

impl DraftWriter {
    /// Starts a draft: bytes that the tier lacks stay in the window from now on.
    pub(crate) fn begin(flow: &Arc<Flow>) -> Self {
        flow.with_draft(|draft| draft.grows = true);
        Self(flow.clone())
    }

    /// Notes the number of bytes that the tier has accepted, and the part that it can return.
    pub(crate) fn grew(&self, taken: u64, parts: Option<&Arc<dyn Parts>>) {
        self.0.with_draft(|draft| {
            draft.taken = taken;
            if let Some(parts) = parts {
                draft.written = parts.length();
                draft.parts = Some(parts.clone());
            }
        });
    }

    /// Ends the draft. Returns `false` if the first byte of the body cannot be read any more.
    pub(crate) fn end(&self) -> bool {
        self.0.with_draft(|draft| draft.grows = false)
    }
}

impl Drop for DraftWriter {
    fn drop(&mut self) {
        self.end();
    }
}
