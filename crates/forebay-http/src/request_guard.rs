//! Guard below the HTTP/1 server: checks a client's bytes before hyper parses them.
//!
//! hyper parses leniently where RFC 9112 leaves a choice. Each lenient choice is a chance for two
//! parties to disagree about the end of a message (request smuggling). [`Guarded`] wraps the socket
//! and follows the framing of every byte with a [`Scanner`]. It replaces a message that is
//! ambiguous, slow or too large by a substitute request, so that the service writes the rejection:
//! the responses to earlier pipelined requests still come first and in order.
//!
//! | rejected | rule | the client receives |
//! |---|---|---|
//! | bare CR or LF, NUL, anything but `method SP target SP HTTP/1.x` | RFC 9112, 2.2, 3, 5 | 400 |
//! | a fragment in the target, or an invalid target | RFC 9112, 3.2 | 400 |
//! | obs-fold, white space before the colon, empty or malformed names | RFC 9112, 5.1, 5.2 | 400 |
//! | control bytes in values | RFC 9110, 5.5 | 400 |
//! | no `Host` in HTTP/1.1, several `Host` fields, or an invalid authority | RFC 9112, 3.2 | 400 |
//! | `Content-Length` repeated (even if equal), as a list, or not digits | RFC 9112, 6.3 | 400 |
//! | `Transfer-Encoding` other than one `chunked`, or in HTTP/1.0 | RFC 9112, 6.1 | 400 |
//! | `Content-Length` together with `Transfer-Encoding` | RFC 9112, 6.1, 6.3 | 400 |
//! | an invalid chunk, framing fields in trailers, too many extensions and trailers | RFC 9112, 7.1; 9110, 6.5.1 | 400 |
//! | a body above [`BODY_MAX`] | RFC 9110, 15.5.14 | 413 |
//! | a target above [`TARGET_MAX`] | RFC 9110, 15.5.15 | 414 |
//! | a head above [`HEAD_MAX`], or more than [`FIELDS_MAX`] fields | RFC 6585, 5 | 431 |
//! | a head or body slower than the [`ClientTimeouts`] allow | RFC 9110, 15.5.9 | 408 |
//! | an idle client, or one that reads too slowly | RFC 9112, 9.5 | close |
//!
//! Every rejection closes the connection, because the start of the next message is unknown.
//!
//! If a body turns out to be invalid after its head was passed to hyper, the read of that body
//! fails. `FramingError::in_chain` and `ExpiredTimeout::in_chain` find the reason in hyper's
//! error.
//!
//! | file | contents |
//! |---|---|
//! | `framing.rs` | the scanner: head, body, next head; no I/O, no clock, no allocation |
//! | `stream.rs` | the byte stream that runs the scanner and replaces rejected requests |
//! | `direct.rs` | responses that are written without hyper |
//! | `endings.rs` | responses whose last bytes are not flushed yet |
//! | `exchanges.rs` | number of requests in progress on a connection |
//! | `interims.rs` | interim responses, written without hyper |
//! | `client_timeouts.rs` | timeouts and the minimum transfer rate of clients |
//! | `counters.rs` | counters of rejections and timeouts, for the metrics |
//!
//! Deliberately absent: limits on methods and on the length of single field values, and the
//! processing of final responses.

mod client_timeouts;
mod counters;
mod direct;
mod endings;
mod exchanges;
mod framing;
mod interims;
#[cfg(test)]
mod samples;
mod stream;

pub use client_timeouts::{ClientTimeouts, ExpiredTimeout, RATE_MIN};
pub use counters::GuardCounters;
pub(crate) use direct::{DirectAnswer, DirectFetch, DirectOutput, DirectResponder, DirectResponse};
pub use exchanges::{Exchange, Exchanges, Rejection};
pub use framing::{BODY_OVERHEAD_MAX, FramingError, HEAD_MAX, Phase, ScanError, Scanner};
pub(crate) use framing::{PlainHead, RawValue};
pub(crate) use interims::INTERIM_MAX;
pub use interims::Interims;
pub use stream::Guarded;

use hyper::server::conn::http1;

/// Maximum length of a request target in bytes: several times the length that browsers send. Longer
/// ones get 414.
pub const TARGET_MAX: usize = 16 * 1024;

/// Maximum number of fields in one head or trailer section; more get 431. It is hyper's own limit
/// for parsing without an allocation.
pub const FIELDS_MAX: usize = 100;

/// Maximum length of a request body in bytes. Bodies are streamed, so their size costs no memory;
/// but an endless body would hold its origin connection forever.
pub const BODY_MAX: u64 = 64 << 30;

/// Maximum number of bytes that hyper buffers in each direction of one connection: two heads, so
/// that the limit on one head is reached before this one.
const BUFFER_MAX: usize = 2 * HEAD_MAX;

/// Returns a builder of hyper's HTTP/1 server with limits that match those of the guard.
///
/// hyper's head timeout is off: [`Guarded`] bounds slow clients without a timer operation per
/// request. The maximum number of fields is not set, because that costs an allocation per request;
/// hyper's default is [`FIELDS_MAX`].
pub fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_header_size(HEAD_MAX).max_buf_size(BUFFER_MAX).header_read_timeout(None);
    builder
}
