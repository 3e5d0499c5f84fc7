//! Connections that the origin closed while they were idle.
//!
//! It may do so at any time, also at the moment when a request is on its way on one of them. That
//! is nobody's failure, and one that only shows on a connection which has worked before.

use std::collections::HashSet;
use std::error::Error;
use std::io::ErrorKind;
use std::net::SocketAddr;

use forebay_engine::LoadError;
use http::{Extensions, Response};
use hyper_util::client::legacy::Error as ClientError;
use hyper_util::client::legacy::connect::HttpInfo;
use parking_lot::Mutex;

/// Connections that are remembered: far more than are kept. Beyond it all are forgotten, which
/// costs nothing but a second try.
const PROVEN_MAX: usize = 4_096;

/// A request that met such a close. One that is safe to repeat may be.
#[derive(Debug, thiserror::Error)]
#[error("the origin closed an idle connection: {0}")]
pub(super) struct ClosedIdle(pub(super) String);

/// Whether a load failed by nothing but such a close.
pub(crate) fn closed_idle(error: &LoadError) -> bool {
    let LoadError::Unreachable(cause) = error else { return false };
    cause.downcast_ref::<ClosedIdle>().is_some()
}

/// The connections that have brought an answer, by their local address.
#[derive(Debug, Default)]
pub(super) struct Proven(Mutex<HashSet<SocketAddr>>);

impl Proven {
    /// Its connection has brought this answer.
    pub(super) fn note<B>(&self, response: &Response<B>) {
        let Some(address) = local_address(response.extensions()) else { return };
        let mut proven = self.0.lock();
        if proven.len() >= PROVEN_MAX {
            proven.clear();
        }
        proven.insert(address);
    }

    /// Whether this error is the close of a connection that has worked before.
    pub(super) fn explains(&self, error: &ClientError) -> bool {
        let mut extras = Extensions::new();
        if let Some(connected) = error.connect_info() {
            connected.get_extras(&mut extras);
        }
        let was_proven = local_address(&extras).is_some_and(|a| self.0.lock().remove(&a));
        was_proven && is_close(error)
    }
}

fn local_address(extensions: &Extensions) -> Option<SocketAddr> {
    extensions.get::<HttpInfo>().map(HttpInfo::local_addr)
}

/// Whether the connection ended before there was an answer.
pub(super) fn is_close(error: &ClientError) -> bool {
    let sources = std::iter::successors(Error::source(error), |&error| error.source());
    sources.into_iter().any(|source| {
        let closed = |error: &hyper::Error| error.is_incomplete_message() || error.is_closed();
        let kind = source.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        source.downcast_ref().is_some_and(closed)
            || matches!(kind, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
    })
}
