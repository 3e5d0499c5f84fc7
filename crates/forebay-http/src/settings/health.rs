//! Settings of the health of endpoints.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::uri::PathAndQuery;

/// Active health checks of each endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckSettings {
    /// Path and query of the GET that checks an endpoint.
    pub path: PathAndQuery,
    /// Interval of the checks of one endpoint, varied by a tenth.
    pub every: Duration,
    /// Maximum time for connecting and for the response head.
    pub timeout: Duration,
    /// Number of passed checks in a row after which an unhealthy endpoint is used again.
    pub healthy_after: u32,
    /// Number of failed checks in a row after which an endpoint is not used.
    pub unhealthy_after: u32,
    /// Status codes of a passed check.
    pub statuses: Vec<RangeInclusive<u16>>,
}

/// Ejection of endpoints whose requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionSettings {
    /// Number of failed requests in a row that ejects an endpoint; zero means never.
    pub failures: u32,
    /// Duration of the first ejection. The n-th in a row takes n times as long, at most 5 minutes.
    pub duration: Duration,
    /// Maximum percentage of the endpoints that may be ejected.
    pub percent_max: u32,
    /// Time in which the share of requests grows after an endpoint is used again.
    pub slow_start: Duration,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        let (duration, slow_start) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { failures: 5, duration, percent_max: 50, slow_start }
    }
}
