//! Connections that the origin closed while they were idle.
//!
//! An origin may close an idle connection at any time, also while a request is being sent on it.
//! Such a close is not a failure of the origin, and only occurs on a connection that has delivered
//! a response before.

use std::error::Error;
use std::io::ErrorKind;

use forebay_engine::LoadError;

/// Error of a request whose idle connection was closed by the origin. A request that is safe to
/// repeat may be sent again.
#[derive(Debug, thiserror::Error)]
#[error(
    "the origin closed a connection that was open from an earlier request, before it answered \
     (forebay repeats a GET or HEAD once; it does not repeat other requests): {0}"
)]
pub(super) struct ClosedIdle(pub(super) String);

/// Returns `true` if a load failed only because an idle connection was closed.
pub(crate) fn is_idle_close(error: &LoadError) -> bool {
    let LoadError::Unreachable(cause) = error else { return false };
    cause.downcast_ref::<ClosedIdle>().is_some()
}

/// Returns `true` if the connection ended before a response.
pub(super) fn is_close(error: &hyper::Error) -> bool {
    let kind =
        |source: &(dyn Error + 'static)| Some(source.downcast_ref::<std::io::Error>()?.kind());
    let sources = std::iter::successors(error.source(), |&source| source.source());
    error.is_incomplete_message()
        || error.is_closed()
        || error.is_canceled()
        || sources
            .filter_map(kind)
            .any(|kind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
}
