//! Switching an origin connection to another protocol (RFC 9110 section 7.8).

use std::pin::pin;
use std::sync::Arc;

use forebay_engine::LoadError;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::sync::Semaphore;

use super::accept::{InvalidHead, validate_head, validate_switch_head};
use super::{FetchRequest, Origin, OriginBody, Progress};
use crate::tunnel::{Tunnel, TunnelPermits, upgrade};

/// Returns the semaphore for tunnels. Tunnels are long-lived and could occupy all connections, so
/// at most half of the connections may be tunnels, rounded up so that one connection permits one
/// tunnel.
pub(super) fn tunnel_semaphore(connections_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(connections_max.div_ceil(2)))
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
        request: FetchRequest,
        protocols: &HeaderValue,
    ) -> Result<SwitchOutcome, LoadError> {
        let tunnel = self.tunnels.clone().try_acquire_owned();
        let tunnel = tunnel.map_err(|_| {
            LoadError::Overloaded(
                "the maximum number of tunnels to the origin (half of `connections_max`) is open",
            )
        })?;
        let progress = Progress::begin();
        let (mut response, connection) = self.exchange_in_time(request, &progress).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            validate_head(&mut response, self.limits).map_err(LoadError::origin)?;
            let permits = super::ConnectionPermits { _connection: connection, unshared: None };
            let stayed = response.map(|body| OriginBody::new(body, permits, self.fetch_timeout));
            return Ok(SwitchOutcome::Declined(stayed));
        }
        validate_switch_head(response.headers(), self.limits).map_err(LoadError::origin)?;
        let protocol = upgrade::agreed(protocols, response.headers());
        let protocol = protocol.ok_or_else(|| LoadError::origin(InvalidHead::Switched))?;
        let upgraded = hyper::upgrade::on(&mut response);
        let upgraded =
            async { upgraded.await.map_err(|error| LoadError::origin(error.to_string())) };
        let upgraded = self.in_time(pin!(upgraded), &progress).await?;
        let permits = TunnelPermits { _connection: connection, _tunnel: tunnel };
        let (headers, tunnel) = (response.into_parts().0.headers, Tunnel::new(upgraded, permits));
        Ok(SwitchOutcome::Switched { headers, protocol, tunnel })
    }
}
