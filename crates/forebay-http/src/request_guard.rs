//! The guard in front of the HTTP/1 server: what a client sends is checked before hyper sees it.
//!
//! hyper parses leniently where RFC 9112 leaves a choice, and each lenient choice is a chance for
//! two parties to disagree about where a message ends.
//! [`Guarded`] wraps the socket, follows the framing of every byte with a [`Scanner`], and puts a
//! stand-in in the place of what is ambiguous, slow or too large, so that the service answers it,
//! and answers to earlier pipelined requests still come first and in order.
//!
//! | what is refused | rule | the peer sees |
//! |---|---|---|
//! | bare CR or LF, NUL, anything but `method SP target SP HTTP/1.x` | RFC 9112, 2.2, 3, 5 | 400 |
//! | a fragment in the target, or what makes no target | RFC 9112, 3.2 | 400 |
//! | obs-fold, white space before the colon, empty or malformed names | RFC 9112, 5.1, 5.2 | 400 |
//! | control bytes in values | RFC 9110, 5.5 | 400 |
//! | no `Host` in HTTP/1.1, several of them, one that is no authority | RFC 9112, 3.2 | 400 |
//! | `Content-Length` repeated (even if equal), as a list, or not digits | RFC 9112, 6.3 | 400 |
//! | `Transfer-Encoding` other than one `chunked`, or in HTTP/1.0 | RFC 9112, 6.1 | 400 |
//! | `Content-Length` together with `Transfer-Encoding` | RFC 9112, 6.1, 6.3 | 400 |
//! | a bad chunk, framing fields in trailers, much overhead | RFC 9112, 7.1; 9110, 6.5.1 | 400 |
//! | a body above [`BODY_MAX`] | RFC 9110, 15.5.14 | 413 |
//! | a target above [`TARGET_MAX`] | RFC 9110, 15.5.15 | 414 |
//! | a head above [`HEAD_MAX`], or more than [`FIELDS_MAX`] fields | RFC 6585, 5 | 431 |
//! | a head or body that comes slower than [`Limits`] allow | RFC 9110, 15.5.9 | 408 |
//! | a peer that is idle, or reads slower than that | RFC 9112, 9.5 | close |
//!
//! Every refusal ends the connection: after it nobody knows where the next message would begin.
//!
//! A body that turns out bad when its head was already handed over fails the body that the service
//! reads; [`Refusal::in_chain`] and [`Lapse::in_chain`] find the reason in hyper's error.
//!
//! | file | room |
//! |---|---|
//! | `framing.rs` | the scanner: head, body, next head; no I/O, no clock, no allocation |
//! | `stream.rs` | the byte stream that consults it and replaces what it refuses |
//! | `exchanges.rs` | which request is being answered |
//! | `interims.rs` | interim responses, past hyper |
//! | `client_timeouts.rs` | how long a peer may take |
//! | `counters.rs` | what was refused and who was too slow, for the metrics |
//!
//! Deliberately absent: limits on methods and on single field values, and everything about final
//! responses.

mod client_timeouts;
mod counters;
mod exchanges;
mod framing;
mod interims;
#[cfg(test)]
mod samples;
mod stream;

pub use client_timeouts::{Lapse, Limits, RATE_MIN};
pub use counters::FrontCounters;
pub use exchanges::{Exchange, Exchanges, TurnedAway};
pub use framing::{BODY_OVERHEAD_MAX, HEAD_MAX, Phase, Refusal, Refused, Scanner};
pub(crate) use interims::INTERIM_MAX;
pub use interims::Interims;
pub use stream::Guarded;

use hyper::server::conn::http1;

/// Longest request target in bytes: what browsers send at most, several times.
pub const TARGET_MAX: usize = 16 * 1024;

/// Most fields in one head: hyper's own bound while its parser keeps them on the stack.
pub const FIELDS_MAX: usize = 100;

/// Longest request body in bytes. Bodies are streamed, so their size costs no memory; but one
/// without an end would hold its connection to the origin for ever.
pub const BODY_MAX: u64 = 64 << 30;

/// Bytes that hyper may buffer in either direction of one connection: two heads, and never less
/// than one, so that its limit on the head is met before this one.
const BUFFER_MAX: usize = 2 * HEAD_MAX;

/// A builder of hyper's HTTP/1 server whose limits agree with those of the guard.
///
/// hyper's own head timer stays off, since [`Guarded`] bounds slow peers without a timer operation
/// for every request. The number of fields is not set: doing so would cost an allocation per
/// request, and the bound hyper has anyway is [`FIELDS_MAX`].
pub fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_header_size(HEAD_MAX).max_buf_size(BUFFER_MAX).header_read_timeout(None);
    builder
}
