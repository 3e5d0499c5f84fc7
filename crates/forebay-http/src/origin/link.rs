//! Way of one request to an endpoint: a connection of its own, or a place on a shared one.

use std::sync::Arc;

use hyper::body::Incoming;

use super::accept::InterimRelay;
use super::connection::{Connection, SendError};
use super::http2::StreamLease;
use super::outgoing::Message;
use super::pool::PooledConnection;
use super::response::OriginResponse;

/// Connection that carries one request.
#[derive(Debug)]
pub(super) enum Link {
    /// HTTP/1.1: the connection carries no other request meanwhile.
    Alone(PooledConnection),
    /// HTTP/2: a stream beside others.
    Stream(StreamLease),
}

impl Link {
    /// Sends a request, and returns the head of the final response.
    pub(super) async fn send(
        &mut self,
        message: Message<'_>,
        interims: &Arc<InterimRelay>,
    ) -> Result<OriginResponse<Incoming>, SendError> {
        match self {
            Self::Stream(stream) => {
                let response = stream.send(message.into_request(), interims).await?;
                Ok(OriginResponse::Hyper(response))
            }
            Self::Alone(pooled) => match pooled.get() {
                Some(connection) => connection.send(message, interims).await,
                None => Err(SendError::Retired(message.into_request())),
            },
        }
    }

    /// Returns the connection that this request alone uses. `None` for HTTP/2, whose connections are
    /// driven by tasks.
    pub(super) fn get(&mut self) -> Option<&mut Connection> {
        match self {
            Self::Alone(pooled) => pooled.get(),
            Self::Stream(_) => None,
        }
    }

    /// Takes the connection that this request alone uses out of its pool.
    pub(super) fn detach(&mut self) -> Option<Box<Connection>> {
        match self {
            Self::Alone(pooled) => pooled.detach(),
            Self::Stream(_) => None,
        }
    }

    /// Returns `true` if the connection has delivered a response.
    pub(super) fn is_used(&mut self) -> bool {
        match self {
            Self::Alone(pooled) => pooled.get().is_some_and(|connection| connection.is_used),
            Self::Stream(stream) => stream.is_used(),
        }
    }

    /// Returns the number of bytes received since the last request was written; 0 for HTTP/2.
    pub(super) fn received(&mut self) -> usize {
        self.get().map_or(0, |connection| connection.received())
    }
}
