//! Response bodies to clients.

mod encoded;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use forebay_engine::{BodyReader, BrokenBody, ReaderWatch};
use forebay_semantics::trailers::strip_trailers;
use http_body::{Body, Frame, SizeHint};

use crate::compress::encoder::Encoder;
use crate::metrics::CompressionCounts;
use crate::origin::OriginBody;
use crate::record::{ConnectionEnd, End, Labels, OpenRecord, Timing};
use crate::request_guard::Exchange;
use crate::tunnel::Tunnel;
use encoded::EncodedBody;

/// Maximum length of a piece of a body. The server drops a body that it has in one piece at once, and
/// then nothing tells how much of it the client has.
const PIECE_MAX: usize = 64 << 10;

/// Response body. An error aborts the connection, so that the client notices the truncation. The
/// response ends when its body is dropped, or with the next flush of its connection.
pub struct ResponseBody {
    source: Source,
    labels: Option<Labels>,
    timing: Timing,
    record: Option<Box<OpenRecord>>,
    /// Marks the request as in progress while the body exists.
    exchange: Option<Exchange>,
}

enum Source {
    Whole(Bytes),
    Reader(BodyReader),
    /// A range of a stored body.
    Cut(Box<BodySlice>),
    /// Several parts, in order.
    Parts(Box<PartSequence>),
    /// An error that ends the body.
    Broken(BrokenBody),
    Origin(Box<OriginBody>),
    /// A body in a content coding.
    Encoded(Box<EncodedBody>),
    /// No body; the tunnel starts once the client has the head.
    Tunnel(Option<Box<Tunnel>>),
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::whole(bytes)
    }
}

/// Part of a multipart response.
pub(crate) enum Part {
    /// Fixed bytes, such as a part header.
    Text(Bytes),
    /// All bytes of a reader.
    Body(BodyReader),
}

/// Range of the bytes of a reader.
struct BodySlice {
    /// Dropped as soon as its last byte is sent.
    reader: Option<BodyReader>,
    skip: u64,
    left: u64,
}

struct PartSequence {
    parts: VecDeque<Part>,
    left: u64,
}

impl ResponseBody {
    const fn of(source: Source) -> Self {
        let timing = Timing { origin: None, is_sent: false };
        Self { source, labels: None, timing, record: None, exchange: None }
    }

    /// Returns a body of complete bytes.
    #[must_use]
    pub(crate) const fn whole(bytes: Bytes) -> Self {
        Self::of(Source::Whole(bytes))
    }

    /// Returns a body that may still be arriving.
    #[must_use]
    pub(crate) const fn reader(reader: BodyReader) -> Self {
        Self::of(Source::Reader(reader))
    }

    /// Returns a body of `length` bytes of the reader, after `skip` bytes that are not sent.
    #[must_use]
    pub(crate) fn slice(mut reader: BodyReader, skip: u64, length: u64) -> Self {
        let skip = skip - reader.skip(skip);
        let window = BodySlice { reader: Some(reader), skip, left: length };
        Self::of(Source::Cut(Box::new(window)))
    }

    /// Returns a body of several parts with `left` bytes in total.
    #[must_use]
    pub(crate) fn parts(parts: VecDeque<Part>, left: u64) -> Self {
        Self::of(Source::Parts(Box::new(PartSequence { parts, left })))
    }

    /// Returns a body that is forwarded from the origin without caching.
    #[must_use]
    pub(crate) fn origin(body: OriginBody) -> Self {
        Self::of(Source::Origin(Box::new(body)))
    }

    /// Returns an empty body after which `tunnel` starts.
    #[must_use]
    pub(crate) fn tunnel(tunnel: Tunnel) -> Self {
        Self::of(Source::Tunnel(Some(Box::new(tunnel))))
    }

    /// Sends the body in the coding of `encoder`.
    pub(crate) fn encode(&mut self, encoder: Encoder, counts: CompressionCounts) {
        let inner = std::mem::replace(&mut self.source, Source::Whole(Bytes::new()));
        self.source = Source::Encoded(Box::new(EncodedBody::new(inner, encoder, counts)));
    }

    /// Takes the tunnel of the response, if there is one. Otherwise the tunnel is dropped with the
    /// body.
    pub(crate) fn take_tunnel(&mut self) -> Option<Box<Tunnel>> {
        match &mut self.source {
            Source::Tunnel(tunnel) => tunnel.take(),
            _ => None,
        }
    }

    /// Sets the labels of the response.
    pub(crate) const fn set_labels(&mut self, labels: Labels) {
        self.labels = Some(labels);
    }

    /// Returns the labels of the response, if they are set.
    pub(crate) const fn labels(&self) -> Option<Labels> {
        self.labels
    }

    /// Sets the duration of the origin request of the response, and whether the client gets
    /// durations.
    pub(crate) const fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Returns the duration of the origin request, and whether the client gets durations.
    pub(crate) const fn timing(&self) -> Timing {
        self.timing
    }

    /// Records the response when it ends.
    pub(crate) fn set_record(&mut self, record: OpenRecord) {
        self.record = Some(Box::new(record));
    }

    /// Ends the response before its last `left` bytes, which the body has given.
    pub(crate) fn cut(&mut self, left: usize) {
        if let Some(mut record) = self.record.take() {
            record.take_back(left);
            record.end_by(ConnectionEnd::Dropped);
        }
    }

    /// Keeps `exchange` open until the body is dropped.
    #[must_use]
    pub(crate) fn during(mut self, exchange: Exchange) -> Self {
        if let Some(watch) = self.source.watch() {
            exchange.watch(watch);
        }
        self.exchange = Some(exchange);
        self
    }
}

impl Source {
    /// Returns a watch on the bytes of the cache that are sent as they are.
    fn watch(&self) -> Option<ReaderWatch> {
        match self {
            Self::Reader(reader) => reader.watch(),
            Self::Cut(window) => window.reader.as_ref()?.watch(),
            _ => None,
        }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        match self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => {
                let piece = bytes.split_to(bytes.len().min(PIECE_MAX));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Self::Reader(reader) => {
                reader.poll_next(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Cut(window) => {
                window.poll_next(cx).map(|piece| piece.map(|p| p.map(Frame::data)))
            }
            Self::Parts(parts) => {
                parts.poll_next(cx).map(|piece| piece.map(|p| p.map(Frame::data)))
            }
            Self::Origin(body) => Pin::new(&mut **body)
                .poll_frame(cx)
                .map(|frame| frame.map(|f| f.map(without_forbidden_trailers))),
            Self::Encoded(body) => body.poll_frame(cx),
            Self::Broken(broken) => Poll::Ready(Some(Err(broken.clone()))),
            Self::Tunnel(_) => Poll::Ready(None),
        }
    }
}

impl BodySlice {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        while let Some(reader) = self.reader.as_mut().filter(|_| self.left > 0) {
            let piece = match ready!(reader.poll_next(cx)) {
                Some(Ok(piece)) => piece,
                Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                None => return Poll::Ready(Some(Err(ended_early()))),
            };
            let piece = self.cut(piece);
            if self.left == 0 {
                self.reader = None;
            }
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(piece)));
            }
        }
        Poll::Ready(None)
    }

    fn cut(&mut self, mut piece: Bytes) -> Bytes {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(piece.len());
        piece.advance(skipped);
        self.skip -= skipped as u64;
        piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= piece.len() as u64;
        piece
    }
}

impl PartSequence {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        while let Some(part) = self.parts.front_mut() {
            let piece = match part {
                Part::Text(text) if text.is_empty() => None,
                Part::Text(text) => Some(Ok(std::mem::take(text))),
                Part::Body(reader) => ready!(reader.poll_next(cx)),
            };
            match piece {
                Some(Ok(piece)) => {
                    self.left = self.left.saturating_sub(piece.len() as u64);
                    return Poll::Ready(Some(Ok(piece)));
                }
                Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                None => drop(self.parts.pop_front()),
            }
        }
        Poll::Ready(None)
    }
}

/// Removes trailer fields that are not allowed. The head determines which of the others are sent.
fn without_forbidden_trailers(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        strip_trailers(trailers);
    }
    frame
}

fn ended_early() -> BrokenBody {
    BrokenBody::Source("the response body ended before its stated length".into())
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let Some(record) = self.record.take() else { return };
        let record = *record;
        let has_all = record.is_whole() || self.is_end_stream();
        match (&self.source, &self.exchange) {
            (Source::Broken(BrokenBody::FellBehind), _) => record.end(End::TooSlow),
            (Source::Broken(_), _) => record.end(End::OriginBroke),
            (_, None) if has_all => record.end_by(ConnectionEnd::Flushed),
            (_, Some(exchange)) if has_all => exchange.end_when_flushed(record),
            (_, Some(exchange)) => record.end_by(exchange.connection_end()),
            (_, None) => record.end_by(ConnectionEnd::Dropped),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let polled = self.source.poll_frame(cx);
        let broken = match polled {
            Poll::Ready(Some(Err(broken))) => broken,
            polled => {
                if let Some(record) = &mut self.record {
                    record.add_polled(&polled);
                }
                return polled;
            }
        };
        if matches!(self.source, Source::Broken(_)) {
            return Poll::Ready(Some(Err(broken)));
        }
        // An error closes the connection at once and discards unflushed bytes, so it is reported on
        // the next poll, after they are flushed.
        self.source = Source::Broken(broken);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Reader(reader) => reader.left() == Some(0),
            Source::Cut(window) => window.left == 0,
            Source::Parts(parts) => parts.left == 0,
            Source::Origin(body) => body.is_end_stream(),
            Source::Encoded(body) => body.is_end_stream(),
            Source::Broken(_) => false,
            Source::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Reader(reader) => {
                reader.left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Source::Cut(window) => SizeHint::with_exact(window.left),
            Source::Parts(parts) => SizeHint::with_exact(parts.left),
            Source::Origin(body) => body.size_hint(),
            Source::Encoded(_) | Source::Broken(_) => SizeHint::default(),
            Source::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}
