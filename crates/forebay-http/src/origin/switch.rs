//! Switching an origin connection to another protocol (RFC 9110 section 7.8).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use forebay_engine::LoadError;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::accept::{InvalidHead, validate_switch_head};
use super::exchange::{Answered, RequestTimes};
use super::outgoing::{FetchRequest, Outgoing};
use super::progress::Progress;
use super::stream::OriginStream;
use super::{Origin, OriginBody, OriginResponse};
use crate::tunnel::{Tunnel, TunnelPermits, upgrade};

/// Returns the semaphore for tunnels. Tunnels are long-lived, so at most half of the concurrent
/// requests may be tunnels, rounded up so that one request permits one tunnel.
pub(super) fn tunnel_semaphore(requests_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(requests_max.div_ceil(2)))
}

/// Result of a request for another protocol.
pub(crate) enum SwitchOutcome {
    /// The origin responded in HTTP. Only the request head was sent.
    Declined(Response<OriginBody>),
    /// The origin switched protocols.
    Switched {
        /// Header fields of the 101.
        headers: HeaderMap,
        /// Accepted protocol.
        protocol: HeaderValue,
        /// Tunnel over the connection.
        tunnel: Tunnel,
    },
}

impl Origin {
    /// Sends a request whose fields ask for one of `protocols`.
    ///
    /// # Errors
    /// Returns an error in the cases of [`fetch`](Self::fetch), if the maximum number of tunnels is
    /// reached, or if the origin switches to a protocol that was not requested.
    pub(crate) async fn switch(
        &self,
        request: Box<FetchRequest>,
        protocols: &HeaderValue,
    ) -> Result<SwitchOutcome, LoadError> {
        let now = Instant::now();
        if let Some(breaker) = &self.breaker {
            drop(breaker.admit(false, now)?);
        }
        let tunnel = self.tunnels.clone().try_acquire_owned();
        let tunnel = tunnel.map_err(|_| {
            LoadError::Overloaded(
                "the maximum number of tunnels to the origin (half of `connections_max`) is open",
            )
        })?;
        let progress = Progress::begin(now, request.body.is_end_stream());
        let request = Outgoing::Built(request, None);
        let answered =
            self.exchange_in_time(request, &progress, &RequestTimes::new(now, None), now).await?;
        if answered.response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let declined = self.receive(answered, &progress)?;
            return Ok(SwitchOutcome::Declined(declined.into_http()));
        }
        let Answered { response, mut connection, mut permits } = answered;
        let OriginResponse::Hyper(response) = response else {
            return Err(LoadError::origin(InvalidHead::Switched));
        };
        permits.request.leave_budget();
        validate_switch_head(response.headers(), self.limits).map_err(LoadError::origin)?;
        let protocol = upgrade::agreed(protocols, response.headers());
        let protocol = protocol.ok_or_else(|| LoadError::origin(InvalidHead::Switched))?;
        let switched = connection.detach().and_then(|connection| connection.into_switched());
        let (stream, read) = switched.ok_or_else(|| LoadError::origin(InvalidHead::Switched))?;
        let stream = Box::new(SwitchedStream { read, stream });
        let permits = TunnelPermits {
            _request: Box::new(permits.request),
            _tunnel: tunnel,
            _in_flight: permits.in_flight.map(|count| Box::new(count) as _),
        };
        let (headers, tunnel) = (response.into_parts().0.headers, Tunnel::new(stream, permits));
        Ok(SwitchOutcome::Switched { headers, protocol, tunnel })
    }
}

/// Connection after a protocol switch.
#[derive(Debug)]
struct SwitchedStream {
    /// Bytes of the new protocol that arrived with the 101.
    read: Bytes,
    stream: OriginStream,
}

impl AsyncRead for SwitchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read[..length]);
        self.read.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SwitchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
