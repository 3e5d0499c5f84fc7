//! Connections that the origin closed while they were idle.
//!
//! An origin may close an idle connection at any time, also while a request is being sent on it.
//! Such a close is not a failure of the origin, and only occurs on a connection that has delivered
//! a response before.

use std::collections::HashSet;
use std::error::Error;
use std::io::ErrorKind;
use std::net::SocketAddr;

use forebay_engine::LoadError;
use http::{Extensions, Response};
use hyper_util::client::legacy::Error as ClientError;
use hyper_util::client::legacy::connect::HttpInfo;
use parking_lot::Mutex;

/// Maximum number of remembered connections, far above the number of idle ones. When it is reached,
/// all are forgotten, which costs at most a missed retry.
const USED_CONNECTIONS_MAX: usize = 4_096;

/// Error of a request whose idle connection was closed by the origin. A request that is safe to
/// repeat may be sent again.
#[derive(Debug, thiserror::Error)]
#[error(
    "the origin closed a connection that was open from an earlier request, before it answered \
     (forebay sends a GET or HEAD once more, other requests not): {0}"
)]
pub(super) struct ClosedIdle(pub(super) String);

/// Returns `true` if a load failed only because an idle connection was closed.
pub(crate) fn is_idle_close(error: &LoadError) -> bool {
    let LoadError::Unreachable(cause) = error else { return false };
    cause.downcast_ref::<ClosedIdle>().is_some()
}

/// Local addresses of the connections that have delivered a response.
#[derive(Debug, Default)]
pub(super) struct UsedConnections(Mutex<HashSet<SocketAddr>>);

impl UsedConnections {
    /// Records the connection of a response.
    pub(super) fn record<B>(&self, response: &Response<B>) {
        let Some(address) = local_address(response.extensions()) else { return };
        let mut used_connections = self.0.lock();
        if used_connections.len() >= USED_CONNECTIONS_MAX {
            used_connections.clear();
        }
        used_connections.insert(address);
    }

    /// Returns `true` if the error is the close of a connection that has delivered a response
    /// before.
    pub(super) fn is_idle_close(&self, error: &ClientError) -> bool {
        let mut extras = Extensions::new();
        if let Some(connected) = error.connect_info() {
            connected.get_extras(&mut extras);
        }
        let was_used = local_address(&extras).is_some_and(|a| self.0.lock().remove(&a));
        was_used && is_close(error)
    }
}

fn local_address(extensions: &Extensions) -> Option<SocketAddr> {
    extensions.get::<HttpInfo>().map(HttpInfo::local_addr)
}

/// Returns `true` if the connection ended before a response.
pub(super) fn is_close(error: &ClientError) -> bool {
    let sources = std::iter::successors(Error::source(error), |&error| error.source());
    sources.into_iter().any(|source| {
        let closed = |error: &hyper::Error| error.is_incomplete_message() || error.is_closed();
        let kind = source.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        source.downcast_ref().is_some_and(closed)
            || matches!(kind, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
    })
}
