//! Common place of the budgets of origins.

use std::time::Duration;

use forebay_core::{BudgetReply, BudgetRequest};
use futures_util::future::BoxFuture;

use super::error::TierError;

/// Common place of the budgets of origins, which instances share. It keeps the claim of each member
/// for a limited time, and grants no more than the budget altogether.
///
/// The implementation limits the time of each operation.
pub trait OriginBudgets: Send + Sync + 'static {
    /// Replaces the claim of a member of a budget, and returns its allowance. The claim ends after
    /// `lease`.
    fn exchange<'a>(
        &'a self,
        budget: &'a str,
        member: &'a str,
        request: BudgetRequest,
        lease: Duration,
    ) -> BoxFuture<'a, Result<BudgetReply, TierError>>;

    /// Removes the claim of a member that has ended. If this fails, the claim ends by itself.
    fn leave<'a>(&'a self, budget: &'a str, member: &'a str) -> BoxFuture<'a, ()>;
}
