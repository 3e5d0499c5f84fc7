//! First bytes of a cleartext connection: HTTP/1 or, by its preface, HTTP/2.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::request_guard::{ClientTimeouts, ExpiredTimeout, GuardCounters};

/// Preface of an HTTP/2 client (RFC 9113 section 3.4). Its first line is no valid HTTP/1 request.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Size of the buffer for the first bytes: most heads fit, so that they are read at once.
const FIRST_READ: usize = 4 << 10;

/// Protocol of a connection, with the bytes that were read.
pub(super) enum Sniffed {
    Http1(BytesMut),
    Http2(BytesMut),
    /// Closed by the client, or too slow.
    Ended,
}

/// Reads until the protocol is known: once the bytes differ from the preface, or are equal to it.
pub(super) async fn sniff<S: AsyncRead + Unpin>(
    stream: &mut S,
    timeouts: &ClientTimeouts,
    counters: &GuardCounters,
) -> Sniffed {
    let mut received = BytesMut::with_capacity(FIRST_READ);
    let mut expired = ExpiredTimeout::FirstByte;
    let mut longest = timeouts.first_byte_timeout;
    loop {
        let read: Result<io::Result<usize>, _> =
            timeout(longest, stream.read_buf(&mut received)).await;
        match read {
            Ok(Ok(0) | Err(_)) => return Sniffed::Ended,
            Ok(Ok(_)) => {}
            Err(_) => {
                counters.count_timeout(expired);
                return Sniffed::Ended;
            }
        }
        let length = received.len().min(PREFACE.len());
        if received[..length] != PREFACE[..length] {
            return Sniffed::Http1(received);
        }
        if length == PREFACE.len() {
            return Sniffed::Http2(received);
        }
        (expired, longest) = (ExpiredTimeout::Head, timeouts.head_timeout);
    }
}
