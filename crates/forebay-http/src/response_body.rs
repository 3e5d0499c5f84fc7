//! The body of a response on its way to a client.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use forebay_engine::{BodyReader, BrokenBody};
use forebay_semantics::trailers::strip_trailers;
use http_body::{Body, Frame, SizeHint};

use crate::origin::OriginBody;
use crate::request_guard::Exchange;
use crate::tunnel::Tunnel;

/// A response body. An error in it closes the connection without a clean end.
pub struct ResponseBody {
    source: From,
    /// Tells the connection that an answer is under way.
    exchange: Option<Exchange>,
}

enum From {
    Whole(Bytes),
    Reader(BodyReader),
    /// Some bytes out of the middle.
    Cut(Box<Window>),
    /// One after another.
    Parts(Box<Sequence>),
    /// Nothing any more.
    Broken(BrokenBody),
    Origin(Box<OriginBody>),
    /// None, but what is joined with the client once it has the head.
    Tunnel(Option<Box<Tunnel>>),
}

/// One of several parts of an answer.
pub(crate) enum Part {
    /// These bytes.
    Text(Bytes),
    /// All that this reader reads.
    Body(BodyReader),
}

/// Some bytes of what a reader reads.
struct Window {
    /// Let go of as soon as its last byte has been sent.
    reader: Option<BodyReader>,
    skip: u64,
    left: u64,
}

struct Sequence {
    parts: VecDeque<Part>,
    left: u64,
}

impl ResponseBody {
    /// Bytes that are all here.
    #[must_use]
    pub const fn whole(bytes: Bytes) -> Self {
        Self { source: From::Whole(bytes), exchange: None }
    }

    /// A body that still flows, or that its one reader paces.
    #[must_use]
    pub const fn reader(reader: BodyReader) -> Self {
        Self { source: From::Reader(reader), exchange: None }
    }

    /// So many bytes of a body, behind so many that are not sent.
    #[must_use]
    pub(crate) fn part_of(mut reader: BodyReader, (skip, left): (u64, u64)) -> Self {
        let skip = skip - reader.skip(skip);
        let window = Window { reader: Some(reader), skip, left };
        Self { source: From::Cut(Box::new(window)), exchange: None }
    }

    /// Parts, with so many bytes together.
    #[must_use]
    pub(crate) fn parts(parts: VecDeque<Part>, left: u64) -> Self {
        Self { source: From::Parts(Box::new(Sequence { parts, left })), exchange: None }
    }

    /// A body straight from the origin.
    #[must_use]
    pub fn origin(body: OriginBody) -> Self {
        Self { source: From::Origin(Box::new(body)), exchange: None }
    }

    /// No body: another protocol follows.
    #[must_use]
    pub(crate) fn tunnel(tunnel: Tunnel) -> Self {
        Self { source: From::Tunnel(Some(Box::new(tunnel))), exchange: None }
    }

    /// The tunnel that this answer begins, if it does. Left in place, it ends with the answer.
    pub(crate) fn take_tunnel(&mut self) -> Option<Box<Tunnel>> {
        match &mut self.source {
            From::Tunnel(tunnel) => tunnel.take(),
            _ => None,
        }
    }

    /// Keeps the exchange open until this body is dropped.
    #[must_use]
    pub fn during(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }
}

impl From {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        match self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Reader(reader) => {
                reader.poll_next(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Cut(window) => {
                window.poll_next(cx).map(|piece| piece.map(|p| p.map(Frame::data)))
            }
            Self::Parts(parts) => {
                parts.poll_next(cx).map(|piece| piece.map(|p| p.map(Frame::data)))
            }
            Self::Origin(body) => {
                Pin::new(&mut **body).poll_frame(cx).map(|frame| frame.map(|f| f.map(proper)))
            }
            Self::Broken(broken) => Poll::Ready(Some(Err(broken.clone()))),
            Self::Tunnel(_) => Poll::Ready(None),
        }
    }
}

impl Window {
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

impl Sequence {
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

/// A frame without the trailers that may be none. Which of the others are sent says the head.
fn proper(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        strip_trailers(trailers);
    }
    frame
}

fn ended_early() -> BrokenBody {
    BrokenBody::Source("the body is shorter than it was said to be".into())
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let polled = self.source.poll_frame(cx);
        let Poll::Ready(Some(Err(broken))) = polled else { return polled };
        if matches!(self.source, From::Broken(_)) {
            return Poll::Ready(Some(Err(broken)));
        }
        // An error ends the connection at once, and what was said before it would be lost with it:
        // it is told on the next turn, when that has been flushed.
        self.source = From::Broken(broken);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            From::Whole(bytes) => bytes.is_empty(),
            From::Reader(reader) => reader.left() == Some(0),
            From::Cut(window) => window.left == 0,
            From::Parts(parts) => parts.left == 0,
            From::Origin(body) => body.is_end_stream(),
            From::Broken(_) => false,
            From::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            From::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            From::Reader(reader) => {
                reader.left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            From::Cut(window) => SizeHint::with_exact(window.left),
            From::Parts(parts) => SizeHint::with_exact(parts.left),
            From::Origin(body) => body.size_hint(),
            From::Broken(_) => SizeHint::default(),
            From::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}
