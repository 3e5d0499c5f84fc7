//! Errors of exchanges with an origin.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::LoadError;
use forebay_tls::client::TlsFailure;

use super::accept::HeadLimits;
use super::idle::{ClosedIdle, is_close};
use super::link::Link;
use crate::endpoint_status::CONNECT_RESULTS;
use crate::request_guard::{ExpiredTimeout, FramingError};

/// Failure of a client while its request was being forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientFault {
    /// The request body violates a framing rule or a limit.
    #[error("the client's request body is rejected: {0}")]
    BadBody(FramingError),
    /// The request body arrived too slowly.
    #[error("the client's request body arrived too slowly")]
    TooSlow,
    /// The connection ended before the request body did.
    #[error("the client closed its connection before the end of its request body")]
    Gone,
}

impl ClientFault {
    /// Returns the fault that explains an error of a client's request body.
    pub(crate) fn of_body(error: &(dyn Error + 'static)) -> Self {
        if ExpiredTimeout::in_chain(error).is_some() {
            return Self::TooSlow;
        }
        FramingError::in_chain(error).map_or(Self::Gone, Self::BadBody)
    }

    /// Returns the client fault in the source chain of a failed exchange.
    fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        causes(error).find_map(|cause| cause.downcast_ref().copied())
    }

    /// Returns the client fault that caused a failed load, if there is one.
    #[must_use]
    pub(crate) fn in_error(error: &LoadError) -> Option<Self> {
        let LoadError::Origin(cause) = error else { return None };
        cause.downcast_ref().copied()
    }
}

/// Reason for which there is no connection to an endpoint.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// The name of the endpoint has no address.
    #[error("the name {0} was not resolved: {1}")]
    Name(String, String),
    /// The name lookup took too long.
    #[error("the name {0} was not resolved within {1:?}")]
    NameTimeout(String, Duration),
    /// The endpoint does not accept connections.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
    /// The TLS handshake failed.
    #[error("{0}: TLS failed: {2}")]
    Tls(String, TlsFailure, std::io::Error),
    /// The server and the settings have no version of HTTP in common.
    #[error("{0}: {1}")]
    Protocol(String, &'static str),
    /// A connection failed that several requests waited for.
    #[error("{0}")]
    Shared(Arc<Self>),
    /// Connecting took too long, TLS included.
    #[error("{0}: no connection within {1:?} (connect_timeout)")]
    Timeout(String, Duration),
}

/// Result of an attempt to connect to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectResult {
    Ok,
    Failed,
    Timeout,
    Tls,
    Name,
    Protocol,
}

impl ConnectResult {
    /// Names in metrics, in the order of declaration.
    pub(super) const NAMES: [&str; CONNECT_RESULTS] =
        ["ok", "failed", "timeout", "tls", "name", "protocol"];

    pub(super) fn of(error: Option<&ConnectError>) -> Self {
        match error {
            None => Self::Ok,
            Some(ConnectError::Name(..) | ConnectError::NameTimeout(..)) => Self::Name,
            Some(ConnectError::Io(..)) => Self::Failed,
            Some(ConnectError::Tls(..)) => Self::Tls,
            Some(ConnectError::Protocol(..)) => Self::Protocol,
            Some(ConnectError::Shared(error)) => Self::of(Some(error)),
            Some(ConnectError::Timeout(..)) => Self::Timeout,
        }
    }
}

impl ConnectError {
    /// Returns the failure of TLS, if it is the reason.
    fn tls(&self) -> Option<TlsFailure> {
        match self {
            Self::Tls(_, failure, _) => Some(*failure),
            Self::Shared(error) => error.tls(),
            _ => None,
        }
    }
}

impl ConnectError {
    /// Returns the time limit, if it is the reason.
    fn limit(&self) -> Option<Duration> {
        match self {
            Self::Timeout(_, limit) | Self::NameTimeout(_, limit) => Some(*limit),
            Self::Shared(error) => error.limit(),
            _ => None,
        }
    }
}

impl From<ConnectError> for LoadError {
    fn from(error: ConnectError) -> Self {
        match error.limit() {
            Some(limit) => Self::TimedOut(limit),
            None => Self::unreachable(error),
        }
    }
}

/// Returns `true` if an endpoint refused the connection.
pub(super) fn is_refused(error: &LoadError) -> bool {
    let LoadError::Unreachable(cause) = error else { return false };
    match cause.downcast_ref() {
        Some(ConnectError::Io(_, error)) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// TLS failure of an established connection.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct TlsBroken {
    failure: TlsFailure,
    text: String,
}

/// Returns the code of a failed load for logs and error responses.
#[must_use]
pub(crate) fn code(error: &LoadError) -> &'static str {
    let LoadError::Unreachable(cause) = error else { return error.code() };
    let connecting = cause.downcast_ref().and_then(ConnectError::tls);
    let established = cause.downcast_ref().map(|broken: &TlsBroken| broken.failure);
    connecting.or(established).map_or_else(|| error.code(), TlsFailure::code)
}

/// Converts an error of hyper. A slow client or an invalid request body is not a failure of the
/// origin. All other errors are reported with their causes, because hyper's own message does not
/// name them.
pub(super) fn explain(
    error: &hyper::Error,
    endpoint: &str,
    link: &mut Link,
    limits: HeadLimits,
) -> LoadError {
    if let Some(fault) = ClientFault::in_chain(error) {
        return LoadError::origin(fault);
    }
    if error.is_parse_too_large() {
        return LoadError::origin(limits.exceeded(link.received()));
    }
    let text = sentence(error, endpoint);
    let tls = causes(error).find_map(|cause| TlsFailure::of(cause.downcast_ref()?));
    if let Some(failure) = tls {
        return LoadError::unreachable(TlsBroken { failure, text });
    }
    match is_close(error) {
        true if link.is_used() => LoadError::unreachable(ClosedIdle(text)),
        true => LoadError::unreachable(text),
        false => LoadError::origin(text),
    }
}

/// Converts the refusal of a request that the origin did not process, and whose body is used up. A
/// safe request may be sent again.
pub(super) fn unprocessed(error: &hyper::Error, endpoint: &str) -> LoadError {
    LoadError::unreachable(ClosedIdle(sentence(error, endpoint)))
}

/// Returns an error of hyper in words, with its causes.
pub(super) fn sentence(error: &hyper::Error, endpoint: &str) -> String {
    let mut text = format!("{endpoint}: {error}");
    for cause in causes(error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}

/// Returns the sources of an error, the nearest first.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}
