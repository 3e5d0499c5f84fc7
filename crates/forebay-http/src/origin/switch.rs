//! Asking an origin to speak another protocol (RFC 9110 section 7.8).

use std::pin::pin;
use std::sync::Arc;

use forebay_engine::LoadError;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::sync::Semaphore;

use super::accept::{Unacceptable, accept, accept_switch};
use super::{Origin, OriginBody, Progress, Question};
use crate::tunnel::{Places, Tunnel};
use crate::upgrade;

/// Tunnels last, and an origin whose connections they all took could not be asked for anything
/// else: half of the connections are theirs at most, rounded up so that one is enough for one.
pub(super) fn room_for_tunnels(connections_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(connections_max.div_ceil(2)))
}

/// What came of asking for another protocol.
pub(crate) enum Switched {
    /// An answer in HTTP. Nothing but the request's head was sent.
    Stayed(Response<OriginBody>),
    /// The protocol is spoken from now on.
    Agreed {
        /// The fields of the 101.
        headers: HeaderMap,
        /// What was agreed on.
        protocol: HeaderValue,
        /// The connection.
        tunnel: Tunnel,
    },
}

impl Origin {
    /// Asks a question whose fields ask for one of these protocols.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), if there are too many tunnels already, and if the origin switches to
    /// something that it was not asked for.
    pub(crate) async fn switch(
        &self,
        question: Question,
        protocols: &HeaderValue,
    ) -> Result<Switched, LoadError> {
        let tunnel = self.tunnels.clone().try_acquire_owned();
        let tunnel = tunnel.map_err(|_| LoadError::Overloaded("all tunnels are in use"))?;
        let progress = Progress::begin();
        let (mut response, connection) = self.exchange_in_time(question, &progress).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            accept(&mut response, self.limits).map_err(LoadError::origin)?;
            let places = super::Held { _connection: connection, alone: None };
            let stayed = response.map(|body| OriginBody::new(body, places, self.fetch_timeout));
            return Ok(Switched::Stayed(stayed));
        }
        accept_switch(response.headers(), self.limits).map_err(LoadError::origin)?;
        let protocol = upgrade::agreed(protocols, response.headers());
        let protocol = protocol.ok_or_else(|| LoadError::origin(Unacceptable::Switched))?;
        let upgraded = hyper::upgrade::on(&mut response);
        let upgraded =
            async { upgraded.await.map_err(|error| LoadError::origin(error.to_string())) };
        let upgraded = self.in_time(pin!(upgraded), &progress).await?;
        let places = Places { _connection: connection, _tunnel: tunnel };
        let (headers, tunnel) = (response.into_parts().0.headers, Tunnel::new(upgraded, places));
        Ok(Switched::Agreed { headers, protocol, tunnel })
    }
}
