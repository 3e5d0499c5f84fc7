//! Settings of an origin and of its endpoints.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use forebay_core::CallRules;
use forebay_semantics::Scheme;
use forebay_tls::client::{ServerName, TlsClient};
use http::HeaderValue;
use http::uri::Authority;

use super::budget::BudgetSettings;
use super::health::{EjectionSettings, HealthCheckSettings};
use super::retry::RetrySettings;
use crate::authority::normalise_authority;

/// Default maximum number of fields of a response head: applications set a few dozen.
const FIELDS_MAX: usize = 256;

/// Default maximum length of a response head in bytes: [`FIELDS_MAX`] fields of 1 KiB.
const HEAD_MAX: usize = 256 << 10;

/// Settings of an origin server.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginSettings {
    /// Endpoints of the origin; 1 to 64, further ones are not used. A request cannot change them.
    pub endpoints: Vec<EndpointSettings>,
    /// Choice among several endpoints.
    pub balance: Balance,
    /// Value of `Host` in requests to the origin; `None` forwards the client's.
    pub host: Option<HeaderValue>,
    /// Maximum number of connections to the origin.
    pub connections_max: usize,
    /// Maximum number of concurrent requests to the origin, not more than `connections_max`, which
    /// is the default. Further ones wait for half of the site's `fetch_timeout`, then fail. Responses
    /// that cannot be shared use at most three quarters of this number, tunnels at most half.
    pub in_flight_max: Option<usize>,
    /// Lowers the limit on concurrent requests while the origin is overloaded if `true`.
    pub adaptive: bool,
    /// Budget of all instances; `None` is no bound.
    pub budget: Option<BudgetSettings>,
    /// Maximum time for which an idle connection to the origin is kept; zero keeps none.
    pub keep_alive: Duration,
    /// Maximum number of fields in one response head of the origin.
    pub fields_max: usize,
    /// Maximum size of one response head of the origin in bytes; at least 8 KiB.
    pub head_max: usize,
    /// Versions of HTTP for requests to the origin.
    pub protocols: OriginProtocols,
    /// Time limits of the phases of an exchange.
    pub timeouts: PhaseTimeouts,
    /// Interval at which the names of endpoints are resolved again.
    pub resolve_every: Duration,
    /// Active health checks; `None` if there are none.
    pub health: Option<HealthCheckSettings>,
    /// Ejection of endpoints whose requests fail. A single endpoint is never ejected.
    pub eject: EjectionSettings,
    /// Retries of failed requests; `None` if there are none.
    pub retry: Option<RetrySettings>,
    /// Circuit breaker; `None` if there is none.
    pub breaker: Option<BreakerSettings>,
}

/// Versions of HTTP for requests to an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginProtocols {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 or HTTP/1.1, as TLS agrees (ALPN); HTTP/2 is preferred. Without TLS, HTTP/1.1.
    Http2First,
    /// HTTP/2 or HTTP/1.1, as TLS agrees (ALPN); HTTP/1.1 is preferred. Without TLS, HTTP/1.1.
    Http1First,
    /// HTTP/2, which TLS has to agree on (ALPN).
    Http2,
    /// HTTP/2 without TLS and without an agreement (h2c, RFC 9113 section 3.3).
    PriorKnowledge,
}

/// Choice among the endpoints of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The one of two random endpoints that has fewer requests in flight per weight.
    #[default]
    Least,
    /// An endpoint that depends on host and target of the request (rendezvous hashing), unless it has
    /// more than 1.25 times the mean number of requests in flight.
    Hash,
    /// The first endpoint. The others are spares.
    First,
}

/// Circuit breaker of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Thresholds, windows and times of the circuit breaker.
    pub rules: CallRules,
    /// Status codes of responses that count as failures, like failed fetches.
    pub failure_statuses: Vec<u16>,
}

/// Time limits of the phases of an exchange, within the site's `fetch_timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTimeouts {
    /// Maximum time for connecting, TLS included. A name lookup has this time again.
    pub connect: Duration,
    /// Maximum time for each piece of a response body; `None` means the site's `fetch_timeout`.
    pub body: Option<Duration>,
}

impl Default for PhaseTimeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(2), body: None }
    }
}

/// Server of an origin, and the way to connect to it.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSettings {
    /// Address of the server.
    pub address: EndpointAddress,
    /// TLS client; `None` connects without TLS.
    pub tls: Option<EndpointTls>,
    /// Share of the requests, relative to the other endpoints; at least one.
    pub weight: u32,
}

/// TLS client of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointTls {
    /// Name in the server's certificate, and in the server name indication.
    pub name: ServerName<'static>,
    /// Client with its trusted authorities and its own certificate.
    pub client: TlsClient,
}

/// Address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointAddress {
    /// Host, as a name or an IP address, and port.
    Tcp(Authority),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl EndpointAddress {
    /// Returns the label of the endpoint in metrics and logs.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Tcp(authority) => authority.to_string(),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

impl OriginSettings {
    /// Returns default settings for an origin with one endpoint at `authority`, without TLS.
    #[must_use]
    pub fn new(authority: Authority) -> Self {
        Self {
            endpoints: vec![EndpointSettings {
                address: EndpointAddress::Tcp(authority),
                tls: None,
                weight: 1,
            }],
            balance: Balance::default(),
            host: None,
            connections_max: 1_024,
            in_flight_max: None,
            adaptive: false,
            budget: None,
            keep_alive: Duration::from_secs(60),
            fields_max: FIELDS_MAX,
            head_max: HEAD_MAX,
            protocols: OriginProtocols::default(),
            timeouts: PhaseTimeouts::default(),
            resolve_every: Duration::from_secs(30),
            health: None,
            eject: EjectionSettings::default(),
            retry: None,
            breaker: None,
        }
    }

    /// Returns the maximum number of concurrent requests.
    pub(crate) fn requests_max(&self) -> usize {
        self.in_flight_max.unwrap_or(self.connections_max).min(self.connections_max)
    }

    /// Returns the authority in the key of a request without a host: the configured `Host` of the
    /// origin, or the address of its first endpoint. `None` if the configured value is not a valid
    /// authority.
    pub(crate) fn own_authority(&self, scheme: Scheme) -> Option<Cow<'_, str>> {
        let text = match (&self.host, self.endpoints.first().map(|endpoint| &endpoint.address)) {
            (Some(host), _) => host.to_str().ok()?,
            (None, Some(EndpointAddress::Tcp(authority))) => authority.as_str(),
            (None, Some(EndpointAddress::Unix(_)) | None) => "localhost",
        };
        normalise_authority(scheme, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_host_gets_the_origins_authority() {
        let own = |authority, host: Option<&'static str>| {
            let authority = Authority::from_static(authority);
            let host = host.map(HeaderValue::from_static);
            let origin = OriginSettings { host, ..OriginSettings::new(authority) };
            origin.own_authority(Scheme::Http).map(Cow::into_owned)
        };
        assert_eq!(own("Origin.internal:80", None).as_deref(), Some("origin.internal"));
        assert_eq!(own("127.0.0.1:3000", None).as_deref(), Some("127.0.0.1:3000"));
        assert_eq!(own("127.0.0.1:3000", Some("Shop:81")).as_deref(), Some("shop:81"));
        assert_eq!(own("127.0.0.1:3000", Some("a b")), None);
        let mut origin = OriginSettings::new(Authority::from_static("a"));
        origin.endpoints[0].address = EndpointAddress::Unix("/run/app.sock".into());
        assert_eq!(origin.own_authority(Scheme::Http).as_deref(), Some("localhost"));
    }
}
