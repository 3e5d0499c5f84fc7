//! Error of a tier, of a lease, or of the bus.

use std::sync::Arc;

/// Reason why an operation of a tier, of its leases or of the bus had no effect. The caller of a
/// load gets it only with [`TierErrors::Strict`](crate::TierErrors::Strict).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The operation failed with this cause.
    #[error("operation failed: {0}")]
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    /// The operation of the tier exceeded its time limit.
    #[error("the operation exceeded its time limit")]
    TimedOut,
    /// The operation was not tried, because the circuit breaker of the tier is open after several
    /// failures.
    #[error("the circuit breaker is open after failures, so the tier was not called")]
    Bypassed,
    /// The entry is larger than the tier stores. This is not a failure of the tier.
    #[error("the entry exceeds the tier's maximum size and is not stored there")]
    TooLarge,
    /// The tier has stored or removed a newer version of the entry, so that this one is not stored.
    /// This is not a failure of the tier.
    #[error("the tier has a newer version, so this one is not stored there")]
    Outdated,
    /// The lease under which the entry was to be written is no longer valid, because of a purge or
    /// because it expired. This is not a failure of the tier.
    #[error("the lease was withdrawn or has expired, so the entry is not stored")]
    Withdrawn,
}

impl TierError {
    /// Creates the error of an operation that failed with this cause.
    #[must_use]
    pub fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(cause.into().into())
    }

    /// Returns the name of the kind of error in traces, such as `timed-out`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::TimedOut => "timed-out",
            Self::Bypassed => "bypassed",
            Self::TooLarge => "too-large",
            Self::Outdated => "outdated",
            Self::Withdrawn => "withdrawn",
        }
    }
}
