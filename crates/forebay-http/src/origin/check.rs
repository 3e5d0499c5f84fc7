//! Active health checks of endpoints.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{CONNECTION, HOST, USER_AGENT};
use http::uri::Uri;
use http::{HeaderValue, Request};
use tokio::time::{Instant, sleep, timeout};

use super::accept::InterimRelay;
use super::connection::SendError;
use super::endpoint::Endpoint;
use super::group::Group;
use super::no_body;
use super::outgoing::Message;
use super::progress::Progress;
use crate::settings::{EndpointAddress, HealthCheckSettings, OriginSettings};

/// Value of `User-Agent` in checks.
const AGENT: HeaderValue = HeaderValue::from_static("forebay-health-check");

/// Part of the interval by which checks vary, so that instances do not check at once: one tenth.
const SPREAD: u32 = 10;

/// Maximum delay of the first check after a start or a reload.
const FIRST_DELAY_MAX: Duration = Duration::from_secs(1);

/// Checks of the endpoints of one origin.
#[derive(Debug)]
pub(super) struct Checks {
    settings: HealthCheckSettings,
    host: Option<HeaderValue>,
}

impl Checks {
    /// Starts a task for each endpoint of a group. The tasks end when the group is dropped.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    pub(super) fn start(origin: &OriginSettings, group: &Arc<Group>) {
        let Some(settings) = origin.health.clone() else { return };
        let checks = Arc::new(Self { settings, host: origin.host.clone() });
        for index in 0..group.count() {
            tokio::spawn(checks.clone().run(Arc::downgrade(group), index));
        }
    }

    async fn run(self: Arc<Self>, group: Weak<Group>, index: usize) {
        let every = self.settings.every;
        sleep(every.min(FIRST_DELAY_MAX).mul_f64(fastrand::f64())).await;
        loop {
            let Some(endpoint) = group.upgrade().and_then(|group| group.endpoint(index)) else {
                return;
            };
            let result = self.check(&endpoint).await;
            let Some(group) = group.upgrade() else { return };
            group.checked(index, result);
            drop((group, endpoint));
            let spread = every / SPREAD;
            sleep(every - spread + spread.mul_f64(2.0 * fastrand::f64())).await;
        }
    }

    /// Checks one endpoint on a connection of its own. An error is the cause in words.
    async fn check(&self, endpoint: &Arc<Endpoint>) -> Result<(), String> {
        let limit = self.settings.timeout;
        let late = || format!("no response head within {limit:?} (health.timeout)");
        let status = timeout(limit, self.status(endpoint)).await.map_err(|_| late())??;
        match self.settings.statuses.iter().any(|range| range.contains(&status)) {
            true => Ok(()),
            false => Err(format!("status {status} (health.statuses)")),
        }
    }

    async fn status(&self, endpoint: &Arc<Endpoint>) -> Result<u16, String> {
        // Not for requests: the next check uses a new connection, too.
        let link = endpoint.connect_alone().await;
        let mut link = link.map_err(|error| error.to_string())?;
        let mut request =
            Box::new(Request::new(Progress::begin(Instant::now(), true).track(no_body())));
        *request.uri_mut() = Uri::from(self.settings.path.clone());
        let headers = request.headers_mut();
        let host = self.host.clone().or_else(|| host_of(&endpoint.address));
        headers.insert(HOST, host.unwrap_or_else(|| HeaderValue::from_static("localhost")));
        headers.insert(USER_AGENT, AGENT);
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let interims = Arc::new(InterimRelay::default());
        let sent = link.send(Message::Built(request), &interims).await;
        drop(link.detach());
        match sent {
            Ok(response) => Ok(response.status().as_u16()),
            Err(
                SendError::Unsent(_, error)
                | SendError::Failed(error)
                | SendError::GoneAway(error)
                | SendError::Refused(_, error),
            ) => Err(error.to_string()),
            Err(SendError::Retired(_)) => Err("the server ended the connection".to_owned()),
            Err(SendError::Client(fault)) => Err(fault.to_string()),
            Err(SendError::Interims) => Err("too many interim responses".to_owned()),
        }
    }
}

/// Returns the `Host` of a server without a configured one.
fn host_of(address: &EndpointAddress) -> Option<HeaderValue> {
    match address {
        EndpointAddress::Tcp(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        EndpointAddress::Unix(_) => None,
    }
}
