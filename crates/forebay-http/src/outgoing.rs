//! The body of a response on its way to a client.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use forebay_engine::{BodyReader, BrokenBody};
use http_body::{Body, Frame, SizeHint};

use crate::front::Exchange;
use crate::origin::OriginBody;
use crate::tunnel::Tunnel;

/// A response body. An error in it closes the connection without a clean end.
pub struct Outgoing {
    source: From,
    /// Tells the connection that an answer is under way.
    exchange: Option<Exchange>,
}

enum From {
    Whole(Bytes),
    Reader(BodyReader),
    Origin(Box<OriginBody>),
    /// None, but what is joined with the client once it has the head.
    Tunnel(Option<Box<Tunnel>>),
}

impl Outgoing {
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
            From::Whole(_) | From::Reader(_) | From::Origin(_) => None,
        }
    }

    /// Keeps the exchange open until this body is dropped.
    #[must_use]
    pub fn during(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        match &mut self.source {
            From::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            From::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            From::Reader(reader) => {
                reader.poll_next(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            From::Origin(body) => Pin::new(&mut **body).poll_frame(cx),
            From::Tunnel(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            From::Whole(bytes) => bytes.is_empty(),
            From::Reader(reader) => reader.left() == Some(0),
            From::Origin(body) => body.is_end_stream(),
            From::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            From::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            From::Reader(reader) => {
                reader.left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            From::Origin(body) => body.size_hint(),
            From::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}
