//! Settings of retries.

/// Retries of requests on another endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// Maximum number of retries of one request; zero means none.
    pub attempts: u32,
    /// Failures after which a request is sent again.
    pub on: Vec<RetryOn>,
    /// Retries as a percentage of all requests. Three per second are always possible.
    pub budget_percent: u32,
}

/// Failure after which a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryOn {
    /// There was no connection, so that nothing was sent.
    Connect,
    /// The connection was closed before the response head.
    Closed,
    /// There was no response head in time.
    Timeout,
    /// The response has this status code.
    Status(u16),
}
