//! Load of an origin by this process, and status of its budget, for health reports and metrics.

use forebay_core::Allowance;

/// Status of the budget of an origin, as this process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetStatus {
    /// `true` if the instances share the budget; otherwise it holds for this process alone.
    pub is_shared: bool,
    /// `true` if the shared tier does not answer, so that this process uses an equal part.
    pub is_lost: bool,
    /// Number of instances, as last known.
    pub instances: u64,
    /// The whole budget.
    pub total: Allowance,
    /// Part that this process may use now.
    pub held: Allowance,
    /// Number of requests of this process that use the budget.
    pub in_flight: u64,
}

/// Number of results of requests for admission to an origin.
pub(crate) const ADMISSION_RESULTS: usize = 5;

/// Load of an origin by this process, for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginLoad {
    /// Current maximum number of concurrent requests.
    pub(crate) limit: usize,
    pub(crate) in_flight: usize,
    pub(crate) waiting: usize,
    /// Numbers of requests for admission, by result.
    pub(crate) results: [(&'static str, u64); ADMISSION_RESULTS],
}
