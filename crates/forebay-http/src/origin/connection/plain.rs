//! Plain exchanges: a request without a body, and a small response that is complete when its head is.
//!
//! Most responses of applications are small and state their length. For these, hyper's connection
//! costs more than all else between two system calls. All other responses are read by hyper,
//! which takes over the exchange with the bytes that have arrived ([`OriginStream::resume`]): a body
//! in several pieces or without a length, an interim response, every error.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use forebay_semantics::{FieldLines as _, RawFields};
use http::StatusCode;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use httparse::Status;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::origin::accept::digits;
use crate::origin::encoded::EncodedRequest;
use crate::origin::response::PlainResponse;
use crate::origin::stream::{OriginStream, Takeover};

/// Maximum size of a plain response in bytes, with its head.
const SIZE_MAX: usize = 16 << 10;

/// Maximum number of fields of a plain response.
const FIELDS_MAX: usize = 64;

thread_local! {
    /// Read buffer of a thread, so that an idle connection has none.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE_MAX].into());
}

/// Result of a plain exchange.
pub(super) enum PlainResult {
    /// The response. The connection is idle again.
    Response(Box<PlainResponse>),
    /// hyper must read the response.
    Takeover(Takeover),
}

/// Result of parsing the received bytes.
enum Parsed {
    Plain(Box<PlainResponse>),
    /// More bytes of the head must arrive.
    Partial,
    /// hyper must read the response.
    Other,
}

/// Writes a request, and reads its response. If that is not plain, the result has the bytes received so
/// far.
pub(super) async fn exchange(request: &EncodedRequest, stream: &mut OriginStream) -> PlainResult {
    let (mut unwritten, mut is_sent, mut before) = (request.bytes(), false, Vec::new());
    poll_fn(|cx| {
        if !is_sent {
            if let Err(error) = ready!(poll_request(stream, &mut unwritten, cx)) {
                return Poll::Ready(takeover(&[], &[], Some(Err(error))));
            }
            is_sent = true;
        }
        poll_response(stream, request.is_head(), &mut before, cx)
    })
    .await
}

/// Writes the rest of a request. It also ends if the stream withholds an error of a write: the read
/// side may still have a response, or the reason.
fn poll_request(
    stream: &mut OriginStream,
    unwritten: &mut &[u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !unwritten.is_empty() {
        match Pin::new(&mut *stream).poll_write(cx, unwritten) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(written)) => *unwritten = &unwritten[written..],
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending if stream.has_failed() => return Poll::Ready(Ok(())),
            Poll::Pending => return Poll::Pending,
        }
    }
    Pin::new(stream).poll_flush(cx)
}

/// Reads a response. `before` holds what earlier reads got of its head.
fn poll_response(
    stream: &mut OriginStream,
    is_head: bool,
    before: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<PlainResult> {
    READ_BUFFER.with_borrow_mut(|buffer| {
        loop {
            let mut buf = ReadBuf::new(buffer);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf));
            let piece = buf.filled();
            if read.is_err() || piece.is_empty() {
                return Poll::Ready(takeover(before, piece, Some(read)));
            }
            let is_first = before.is_empty();
            if !is_first {
                before.extend_from_slice(piece);
            }
            let received = if is_first { piece } else { &before[..] };
            match response(received, is_head) {
                Parsed::Plain(response) if received.len() <= SIZE_MAX => {
                    return Poll::Ready(PlainResult::Response(response));
                }
                Parsed::Partial if received.len() < SIZE_MAX => {
                    if is_first {
                        before.extend_from_slice(piece);
                    }
                }
                Parsed::Plain(_) | Parsed::Partial | Parsed::Other => {
                    let received = Bytes::copy_from_slice(received);
                    return Poll::Ready(PlainResult::Takeover(Takeover::new(received, None)));
                }
            }
        }
    })
}

fn takeover(before: &[u8], piece: &[u8], end: Option<io::Result<()>>) -> PlainResult {
    PlainResult::Takeover(Takeover::new(Bytes::from([before, piece].concat()), end))
}

/// Parses a response, if the bytes are exactly a plain one. `is_head` is that of the request.
fn response(received: &[u8], is_head: bool) -> Parsed {
    let mut fields = [MaybeUninit::uninit(); FIELDS_MAX];
    let mut head = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut head,
        received,
        &mut fields,
    );
    match parsed {
        Ok(Status::Complete(length)) => {
            plain(&head, received, length, is_head).map_or(Parsed::Other, Parsed::Plain)
        }
        Ok(Status::Partial) => Parsed::Partial,
        Err(_) => Parsed::Other,
    }
}

/// Returns the response if it is plain: final, in HTTP/1.1 with the usual reason phrase, with no
/// `Connection` but `keep-alive`, with an unambiguous end (RFC 9112 section 6.3), and complete without
/// further bytes.
fn plain(
    head: &httparse::Response<'_, '_>,
    received: &[u8],
    head_length: usize,
    is_head: bool,
) -> Option<Box<PlainResponse>> {
    let status = StatusCode::from_u16(head.code?).ok()?;
    // hyper preserves a reason phrase that is not the standard one.
    let is_usual = head.version == Some(1) && head.reason == status.canonical_reason();
    if !is_usual || status.is_informational() {
        return None;
    }
    let lines = head.headers.iter().map(|field| (field.name.as_bytes(), field.value));
    let fields = RawFields::copied(received.get(..head_length)?, lines);
    let is_kept_alive = |line: &[u8]| line.eq_ignore_ascii_case(b"keep-alive");
    if fields.has(&TRANSFER_ENCODING) || !fields.lines(&CONNECTION).all(is_kept_alive) {
        return None;
    }
    let stated = match fields.lines(&CONTENT_LENGTH).collect::<SmallVec<[_; 1]>>()[..] {
        [] => None,
        [stated] => Some(usize::try_from(canonical(stated)?).ok()?),
        _ => return None,
    };
    // RFC 9110 section 8.6: a 204 has no Content-Length.
    if status == StatusCode::NO_CONTENT && stated.is_some() {
        return None;
    }
    let has_body = !is_head && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let length = if has_body { stated? } else { 0 };
    let body = received.get(head_length..).filter(|body| body.len() == length)?;
    let body = Bytes::copy_from_slice(body);
    Some(Box::new(PlainResponse { status, fields, body }))
}

/// Parses a length as this cache writes it: decimal digits without leading zeros.
fn canonical(text: &[u8]) -> Option<u64> {
    digits(text).filter(|_| text.len() == 1 || text.first() != Some(&b'0'))
}
