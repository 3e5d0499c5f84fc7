//! Bodies of an origin's responses.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_engine::{BrokenBody, Content};
use futures_util::stream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

use super::admission::RequestPermit;
use super::endpoint::InFlight;
use super::link::Link;

/// Body of an origin's response. Fails if a piece takes longer than the body timeout. Holds its
/// connection with the permits until its end.
pub(crate) struct OriginBody {
    /// Dropped before its connection: the rest of a body that has arrived is then skipped.
    inner: ReceivedBody,
    /// Bytes before those of `inner`; never empty.
    begun: Option<Bytes>,
    exchange: Option<Exchange>,
    piece_timeout: Duration,
    /// Timer for the next piece; armed only while waiting.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Source of the pieces of a body.
enum ReceivedBody {
    /// All bytes have arrived.
    Whole(Bytes),
    Hyper(Incoming),
}

/// Connection whose response is being received.
pub(super) struct Exchange {
    pub(super) connection: Link,
    pub(super) permits: ConnectionPermits,
}

/// Permits that a response holds until its body has been received.
#[derive(Debug)]
pub(super) struct ConnectionPermits {
    /// Permit of the request.
    pub(super) request: RequestPermit,
    /// Permit of an unshared response.
    pub(super) unshared: Option<OwnedSemaphorePermit>,
    /// Count at the endpoint; absent if there is one endpoint only.
    pub(super) in_flight: Option<InFlight>,
}

impl OriginBody {
    pub(super) fn new(incoming: Incoming, exchange: Exchange, piece_timeout: Duration) -> Self {
        // The connection is released after the last byte.
        let exchange = (!incoming.is_end_stream()).then_some(exchange);
        let inner = ReceivedBody::Hyper(incoming);
        Self { inner, begun: None, exchange, piece_timeout, timer: None }
    }

    /// Creates a body that has arrived.
    pub(super) const fn whole(bytes: Bytes) -> Self {
        let inner = ReceivedBody::Whole(bytes);
        Self { inner, begun: None, exchange: None, piece_timeout: Duration::ZERO, timer: None }
    }

    /// Reads the body up to `most` bytes. Returns the bytes, or `None` if it is longer: then the body
    /// still has all of them.
    ///
    /// # Errors
    /// If the body breaks off.
    pub(crate) async fn read_whole(&mut self, most: usize) -> Result<Option<Bytes>, BrokenBody> {
        let mut bytes = BytesMut::new();
        while let Some(frame) = self.frame().await {
            // Trailers belong to the body that is replaced.
            let Ok(piece) = frame?.into_data() else { continue };
            bytes.extend_from_slice(&piece);
            if bytes.len() > most {
                self.put_before(bytes.freeze());
                return Ok(None);
            }
        }
        Ok(Some(bytes.freeze()))
    }

    /// Takes the body if it has arrived whole.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        match &mut self.inner {
            ReceivedBody::Whole(bytes) if self.begun.is_none() => Some(std::mem::take(bytes)),
            ReceivedBody::Whole(_) | ReceivedBody::Hyper(_) => None,
        }
    }

    /// Puts bytes before those that were not read yet.
    pub(crate) fn put_before(&mut self, bytes: Bytes) {
        self.begun = Some(bytes).filter(|bytes| !bytes.is_empty());
    }

    /// Returns the permits, unless the body has ended.
    pub(super) fn permits(&mut self) -> Option<&mut ConnectionPermits> {
        self.exchange.as_mut().map(|exchange| &mut exchange.permits)
    }

    fn poll_inner(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(exchange) = &mut self.exchange else {
            return Pin::new(&mut self.inner).poll_frame(cx);
        };
        let connection = exchange.connection.get().filter(|connection| connection.is_driven_here());
        let Some(connection) = connection else {
            return Pin::new(&mut self.inner).poll_frame(cx);
        };
        // The connection alone delivers frames, and it is polled here, so that it needs no waker.
        let mut unwoken = Context::from_waker(Waker::noop());
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(&mut unwoken) {
            return Poll::Ready(frame);
        }
        connection.drive(cx);
        Pin::new(&mut self.inner).poll_frame(&mut unwoken)
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = self.piece_timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        timer.as_mut().poll(cx)
    }

    /// Converts the body to content for the engine, without trailers. A body that has arrived whole
    /// is copied, because its piece would keep the read buffer of its connection.
    pub(crate) fn into_content(mut self) -> Content {
        let length = self.size_hint().exact();
        if let Some(bytes) = self.take_whole() {
            return Content::Whole(bytes);
        }
        if self.begun.is_none() {
            match self.poll_inner(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => {}
                Poll::Ready(None) => return Content::Whole(Bytes::new()),
                Poll::Ready(Some(Err(error))) => {
                    return Content::Stream(Box::pin(stream::iter([Err(broken(&error))])));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    let piece = frame.into_data().unwrap_or_default();
                    if self.inner.is_end_stream() {
                        return Content::Whole(Bytes::copy_from_slice(&piece));
                    }
                    self.put_before(piece);
                }
            }
        }
        match length {
            Some(length) => Content::Sized(length, self.into_stream()),
            None => Content::Stream(self.into_stream()),
        }
    }

    /// Converts the body to a stream of pieces for the engine, without trailers.
    pub(crate) fn into_stream(self) -> forebay_engine::PieceStream {
        Box::pin(stream::unfold(Some(self), |body| async {
            let mut body = body?;
            loop {
                match body.frame().await? {
                    // Trailers are not stored.
                    Ok(frame) => match frame.into_data() {
                        Ok(piece) if piece.is_empty() => {}
                        Ok(piece) => {
                            return Some((Ok(piece), (!body.is_end_stream()).then_some(body)));
                        }
                        Err(_) => {}
                    },
                    Err(broken) => return Some((Err(broken), None)),
                }
            }
        }))
    }
}

impl Body for ReceivedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Hyper(incoming) => Pin::new(incoming).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Hyper(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Hyper(incoming) => incoming.size_hint(),
        }
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        if let Some(bytes) = self.begun.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Poll::Ready(frame) = self.poll_inner(cx) {
            self.timer = None;
            match &frame {
                Some(Ok(_)) if !self.inner.is_end_stream() => {}
                _ => self.exchange = None,
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(&error))));
        }
        ready!(self.poll_timeout(cx));
        let late = format!(
            "the origin sent no further part of the response body within {:?} (body_timeout)",
            self.piece_timeout
        );
        self.exchange = None;
        Poll::Ready(Some(Err(BrokenBody::Source(late.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.begun.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.inner.size_hint();
        let Some(begun) = &self.begun else { return rest };
        let begun = begun.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(begun));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(begun));
        }
        hint
    }
}

fn broken(error: &hyper::Error) -> BrokenBody {
    BrokenBody::Source(error.to_string().into())
}
