//! Failures of requests: status codes, codes for logs, and sentences.

use std::fmt;
use std::time::Duration;

use forebay_engine::LoadError;
use http::StatusCode;

use crate::origin::{self, ClientFault};
use crate::request_guard::{BODY_MAX, FIELDS_MAX, FramingError, HEAD_MAX, Rejection, TARGET_MAX};

/// Value of `Retry-After` in a 503, in seconds.
const RETRY_AFTER_SECS: u64 = 1;

/// Reason for which a request gets an error response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub(crate) enum Failure {
    /// The request is invalid, for the given reason; the connection is closed after the response.
    BadRequest(&'static str),
    /// The request violates a framing rule or a limit; the connection is closed after the response.
    Refused(FramingError),
    /// The maximum number of client connections is reached.
    TooManyConnections,
    /// The request target is too long.
    TargetTooLong,
    /// The request did not arrive within the client timeouts.
    TooSlow,
    /// The client disconnected before the end of its request body.
    ClientGone,
    /// A cache in front of an origin does not support the method.
    MethodNotAllowed,
    /// No site matches the host and path.
    NoSite,
    /// The client may not use the site.
    AccessDenied,
    /// The client may not purge: its address or its token does not match.
    PurgeDenied,
    /// The client has sent too many requests, and may send another after this time.
    RateLimited(Duration),
    /// The listener does not serve the site of the request (RFC 9110 section 15.5.20).
    Misdirected,
    /// The request passed through this cache too often (RFC 9110 section 7.6.3).
    Loop,
    /// The load from the origin or a tier failed.
    Load(LoadError),
    /// The origin cannot be reached, and the stored response requires revalidation.
    MustRevalidate(LoadError),
    /// The stored response cannot be decoded.
    Unreadable,
}

impl Failure {
    /// Returns the status code of the response.
    #[must_use]
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Load(LoadError::Answered(status)) => {
                StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            Self::BadRequest(_) | Self::ClientGone => StatusCode::BAD_REQUEST,
            Self::Refused(why) => status_of(*why),
            Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoSite => StatusCode::NOT_FOUND,
            Self::AccessDenied | Self::PurgeDenied => StatusCode::FORBIDDEN,
            Self::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::Load(LoadError::RecentlyFailed(cause)) => {
                Self::Load(LoadError::clone(cause)).status()
            }
            // RFC 9111 section 5.2.2.2: 504 if the stored response requires revalidation and the
            // origin cannot be reached.
            Self::Load(LoadError::TimedOut(_) | LoadError::NotCached) | Self::MustRevalidate(_) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Load(
                LoadError::Overloaded(_)
                | LoadError::OverBudget
                | LoadError::Unavailable(_)
                | LoadError::Tier(..),
            ) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Load(LoadError::Panicked(_)) | Self::Unreadable => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Load(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns the code for logs and `Cache-Status`.
    #[must_use]
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad-request",
            Self::Refused(why) => why.label(),
            Self::TooManyConnections => "connections",
            Self::TargetTooLong => "target-too-long",
            Self::TooSlow => "client-too-slow",
            Self::ClientGone => "client-gone",
            Self::MethodNotAllowed => "method",
            Self::NoSite => "no-site",
            Self::AccessDenied => "access-denied",
            Self::PurgeDenied => "purge-denied",
            Self::RateLimited(_) => "rate-limited",
            Self::Misdirected => "misdirected",
            Self::Loop => "loop",
            Self::Load(error) | Self::MustRevalidate(error) => origin::code(error),
            Self::Unreadable => "unreadable-entry",
        }
    }

    /// Returns `true` if the connection must be closed, because its framing is in doubt.
    pub(crate) const fn closes(&self) -> bool {
        matches!(
            self,
            Self::BadRequest(_)
                | Self::Refused(_)
                | Self::TooManyConnections
                | Self::TargetTooLong
                | Self::TooSlow
                | Self::ClientGone
        )
    }

    /// Returns `true` for a failure that the client alone caused.
    #[must_use]
    pub(crate) const fn is_of_client(&self) -> bool {
        matches!(self, Self::BadRequest(_) | Self::Refused(_) | Self::TooSlow | Self::ClientGone)
    }

    /// Returns one sentence for the client, without internal details.
    pub(crate) const fn sentence(&self) -> &'static str {
        match self {
            Self::BadRequest(why) => why,
            Self::Refused(why) => sentence_of(*why),
            Self::TooManyConnections => {
                "The cache has reached its limit of client connections. Try again later."
            }
            Self::TargetTooLong => "The request target is longer than 16 KiB.",
            Self::TooSlow => "The request did not arrive within the time limit.",
            Self::ClientGone => "The connection ended before the end of the request body.",
            Self::MethodNotAllowed => {
                "This cache does not support CONNECT, nor OPTIONS and TRACE with Max-Forwards: 0. \
                 It forwards requests with the methods in the Allow header."
            }
            Self::NoSite => "No site is configured for this host and path.",
            Self::AccessDenied => "This site is not open to the address of this client.",
            Self::PurgeDenied => {
                "This client may not purge: no rule permits it with this address and token."
            }
            Self::RateLimited(_) => {
                "This client has sent too many requests. Repeat the request after the time in \
                 Retry-After."
            }
            Self::Misdirected => {
                "The requested host is not served on this address and port of the cache."
            }
            Self::Loop => {
                "The request came back to this cache: the origin of the site forwards to the cache."
            }
            Self::Load(LoadError::TimedOut(_)) => {
                "The origin server did not respond within the time limit."
            }
            Self::Load(LoadError::NotCached) => {
                "No fresh response is stored, and the request has Cache-Control: only-if-cached."
            }
            Self::Load(LoadError::Answered(_)) => {
                "The origin server answered with an error, and no stored response may replace it."
            }
            Self::Load(LoadError::Overloaded(_)) => {
                "The cache has reached a limit on waiting requests, memory or connections to the \
                 origin server. Try again later."
            }
            Self::Load(LoadError::OverBudget) => {
                "The budget of requests to the origin server is used up. Try again later."
            }
            Self::Load(LoadError::Unavailable(_)) => {
                "The origin server failed or was too slow, and is not asked for a while. Try again later."
            }
            Self::Load(LoadError::Tier(..)) => {
                "A storage tier of the cache (disk or Redis) has failed, and this site does not \
                 continue without it. Try again later."
            }
            Self::Load(LoadError::Panicked(_)) | Self::Unreadable => {
                "The cache failed with an internal error. The request may be repeated."
            }
            Self::Load(LoadError::RecentlyFailed(_)) => {
                "Requests to the origin server for this URL failed; the cache waits for up to a \
                 second before the next one. Try again later."
            }
            Self::MustRevalidate(_) => {
                "The origin server cannot be reached, and the stored response requires revalidation."
            }
            Self::Load(_) => {
                "The origin server cannot be reached, or its response is not valid HTTP."
            }
        }
    }

    /// Returns `true` if there is no response of the origin, so that a fallback may replace the error.
    pub(crate) fn lacks_origin(&self) -> bool {
        let error = match self {
            Self::Load(LoadError::RecentlyFailed(cause)) => cause,
            Self::Load(error) | Self::MustRevalidate(error) => error,
            _ => return false,
        };
        matches!(
            error,
            LoadError::Origin(_)
                | LoadError::Unreachable(_)
                | LoadError::TimedOut(_)
                | LoadError::Overloaded(_)
                | LoadError::OverBudget
                | LoadError::Unavailable(_)
        )
    }

    /// Returns the value of `Retry-After` in seconds.
    pub(crate) fn retry_after(&self) -> u64 {
        match self {
            Self::Load(LoadError::Unavailable(left)) => whole_seconds(*left),
            _ => RETRY_AFTER_SECS,
        }
    }

    pub(crate) fn cause(&self) -> Option<String> {
        match self {
            Self::Load(error) | Self::MustRevalidate(error) => Some(error.to_string()),
            _ => None,
        }
    }
}

impl From<ClientFault> for Failure {
    fn from(fault: ClientFault) -> Self {
        match fault {
            ClientFault::BadBody(why) => Self::Refused(why),
            ClientFault::TooSlow => Self::TooSlow,
            ClientFault::Gone => Self::ClientGone,
        }
    }
}

impl From<Rejection> for Failure {
    fn from(why: Rejection) -> Self {
        match why {
            Rejection::Framing(why) => Self::Refused(why),
            Rejection::HeadTimeout => Self::TooSlow,
            Rejection::TooManyConnections => Self::TooManyConnections,
        }
    }
}

const fn status_of(why: FramingError) -> StatusCode {
    match why {
        FramingError::HeadTooLarge | FramingError::TooManyFields => {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        }
        FramingError::TargetTooLong => StatusCode::URI_TOO_LONG,
        FramingError::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// Returns the sentence for the author of the client.
const fn sentence_of(why: FramingError) -> &'static str {
    const { assert!(HEAD_MAX == 64 << 10 && TARGET_MAX == 16 << 10) };
    const { assert!(FIELDS_MAX == 100 && BODY_MAX == 64 << 30) };
    match why {
        FramingError::RequestLine => "The request line is malformed.",
        FramingError::LineEnding => "A line of the request does not end with CR LF.",
        FramingError::Nul => "The request contains a NUL byte.",
        FramingError::Fold => "A header line of the request begins with white space.",
        FramingError::FieldName => "The name of a header field of the request is invalid.",
        FramingError::FieldValue => "A field value of the request contains a control character.",
        FramingError::Host => "The request must have exactly one valid Host header.",
        FramingError::ContentLength => {
            "The Content-Length of the request is repeated, a list, not a decimal number, or too \
             large."
        }
        FramingError::TransferEncoding => {
            "The Transfer-Encoding of a request must be exactly \"chunked\", in HTTP/1.1."
        }
        FramingError::BothFramings => "The request has both Content-Length and Transfer-Encoding.",
        FramingError::Chunk => "A chunk of the request body is malformed.",
        FramingError::Trailer => {
            "The request has Content-Length, Transfer-Encoding or Host in its trailers."
        }
        FramingError::BodyOverhead => {
            "The chunk extensions and trailers of the request are too long in total."
        }
        FramingError::HeadTooLarge => "The request head is larger than 64 KiB.",
        FramingError::TooManyFields => "The request has more than 100 header fields.",
        FramingError::TargetTooLong => "The request target is longer than 16 KiB.",
        FramingError::BodyTooLarge => "The request body is larger than 64 GiB.",
    }
}

/// Rounds up to whole seconds, at least one.
pub(crate) fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0)).max(1)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())?;
        self.cause().map_or(Ok(()), |cause| write!(f, " ({cause})"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_engine::TierError;

    use super::*;

    #[test]
    fn every_failure_has_its_status() {
        let rows = [
            (Failure::Load(LoadError::TimedOut(Duration::ZERO)), 504),
            (Failure::Load(LoadError::NotCached), 504),
            (Failure::Load(LoadError::Overloaded("x")), 503),
            (Failure::Load(LoadError::OverBudget), 503),
            (Failure::Load(LoadError::Unavailable(Duration::ZERO)), 503),
            (Failure::Load(LoadError::Tier("redis", TierError::TimedOut)), 503),
            (Failure::Load(LoadError::origin("x")), 502),
            (Failure::Load(LoadError::unreachable("x")), 502),
            (Failure::Load(LoadError::RecentlyFailed(Arc::new(LoadError::Answered(503)))), 503),
            (Failure::MustRevalidate(LoadError::unreachable("x")), 504),
            (Failure::Load(LoadError::Answered(500)), 500),
            (Failure::Load(LoadError::Panicked("x".into())), 500),
            (Failure::BadRequest("x"), 400),
            (Failure::TooSlow, 408),
            (Failure::ClientGone, 400),
            (Failure::TooManyConnections, 503),
            (Failure::Refused(FramingError::Nul), 400),
            (Failure::Refused(FramingError::BodyTooLarge), 413),
            (Failure::Refused(FramingError::TargetTooLong), 414),
            (Failure::Refused(FramingError::HeadTooLarge), 431),
            (Failure::Refused(FramingError::TooManyFields), 431),
            (Failure::TargetTooLong, 414),
            (Failure::NoSite, 404),
            (Failure::MethodNotAllowed, 405),
            (Failure::AccessDenied, 403),
            (Failure::RateLimited(Duration::from_millis(1_500)), 429),
            (Failure::Misdirected, 421),
        ];
        for (failure, status) in rows {
            assert_eq!(failure.status().as_u16(), status, "{failure}");
        }
    }
}
