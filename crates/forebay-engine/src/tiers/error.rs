//! Error of a tier, of a lease, or of the bus.

use std::sync::Arc;

/// The reason why an operation of a tier had no effect. Callers get it only with
/// [`TierErrors::Strict`](crate::TierErrors::Strict).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The operation failed with this cause.
    #[error("operation failed: {0}")]
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    /// The operation exceeded its time limit.
    #[error("operation exceeded its time limit")]
    TimedOut,
    /// The circuit breaker bypasses the tier after failures.
    #[error("circuit breaker is open after failures")]
    Bypassed,
    /// The entry exceeds the tier's maximum size. Not a failure of the tier.
    #[error("entry exceeds the tier's maximum size")]
    TooLarge,
    /// The tier has stored or removed a newer version. Not a failure of the tier.
    #[error("the tier has a newer version")]
    Outdated,
    /// The lease of the write is no longer valid. Not a failure of the tier.
    #[error("the lease was withdrawn")]
    Withdrawn,
}

impl TierError {
    /// Creates a failure with this cause.
    #[must_use]
    pub fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(cause.into().into())
    }
}
