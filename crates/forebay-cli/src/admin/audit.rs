//! Log of the requests to the admin listener that may change something.

use forebay_core::Timestamp;
use forebay_http::WarningLimits;
use forebay_semantics::PeerAddress;
use http::{Method, Request, StatusCode};

/// Maximum length of a path in the log, in bytes.
const PATH_MAX: usize = 256;

/// Key of the limit on lines of refused requests.
const REFUSED: &str = "admin-refused";

/// Request that may change something.
pub(super) struct Call {
    method: Method,
    path: String,
    by: String,
}

impl Call {
    /// Returns the request, unless its method is safe.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Self> {
        if request.method().is_safe() {
            return None;
        }
        let path = request.uri().path();
        let path = path[..path.floor_char_boundary(PATH_MAX)].to_owned();
        Some(Self { method: request.method().clone(), path, by: client_of(request) })
    }

    /// Writes the line of the request. Requests that were refused have at most ten lines a second.
    pub(super) fn log(&self, status: StatusCode, limits: &WarningLimits, now: Timestamp) {
        let Self { method, path, by } = self;
        let status = status.as_u16();
        if !matches!(status, 400..500) {
            tracing::info!(%method, path, status, by, "admin request");
        } else if let Some(suppressed) = limits.admit(REFUSED, now) {
            tracing::warn!(%method, path, status, by, suppressed, "admin request refused");
        }
    }
}

/// Returns the client of a request as log fields have it.
pub(super) fn client_of<B>(request: &Request<B>) -> String {
    let peer = request.extensions().get::<PeerAddress>();
    peer.map_or_else(|| "-".to_owned(), PeerAddress::to_string)
}
