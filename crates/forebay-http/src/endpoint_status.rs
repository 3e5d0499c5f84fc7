//! Status of an origin and of its endpoints, for health reports and metrics.

use forebay_core::EndpointState;

/// Number of results of attempts to connect to an endpoint.
pub(crate) const CONNECT_RESULTS: usize = 6;

/// Use of the connections to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginUsage {
    /// Connections in use.
    pub connections: usize,
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Requests that wait for a free connection.
    pub waiting: usize,
}

/// Status of one endpoint of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// Host and port, or path of the socket.
    pub endpoint: Box<str>,
    /// State; `None` for a single endpoint without checks, whose state is not known.
    pub state: Option<EndpointState>,
    /// Numbers of requests by result.
    pub(crate) requests: [(&'static str, u64); 2],
    /// Numbers of changes to a state without requests, by reason.
    pub(crate) ejections: [(&'static str, u64); 2],
    /// Numbers of checks by result.
    pub(crate) checks: [(&'static str, u64); 2],
    /// Numbers of attempts to connect by result.
    pub(crate) connects: [(&'static str, u64); CONNECT_RESULTS],
    /// Numbers of open connections by use.
    pub(crate) connections: [(&'static str, usize); 2],
    /// Numbers of name lookups by result.
    pub(crate) resolves: [(&'static str, u64); 2],
}
