//! Complete body, in one piece or in segments.

use std::sync::Arc;

use bytes::Bytes;

use super::long::Long;

/// Complete body.
#[derive(Debug)]
pub(crate) enum Whole {
    /// Body of at most one segment.
    One(Bytes),
    /// Body of several segments.
    Long(Arc<Long>),
}
