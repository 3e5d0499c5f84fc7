//! Settings of the budget of an origin.

use std::fmt;
use std::sync::Arc;

use forebay_core::Allowance;
use forebay_engine::OriginBudgets;

/// Budget of an origin: concurrent requests and rate of all instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSettings {
    /// The whole budget.
    pub total: Allowance,
    /// Common place of the instances; `None` if the budget holds for this process alone.
    pub shared: Option<SharedBudget>,
}

/// Budget in a common place.
#[derive(Clone)]
pub struct SharedBudget {
    /// Name of the budget, equal for all instances.
    pub name: Box<str>,
    /// Common place. A process has one for each site as long as it runs, so comparisons of settings
    /// ignore it.
    pub budgets: Arc<dyn OriginBudgets>,
}

impl PartialEq for SharedBudget {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SharedBudget {}

impl fmt::Debug for SharedBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBudget").field("name", &self.name).finish_non_exhaustive()
    }
}
