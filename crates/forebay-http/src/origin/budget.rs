//! Tasks of the budget that all instances share: exchanges with the common place, and the rate.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::OriginBudget;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::admission::Admission;
use crate::settings::{BudgetSettings, SharedBudget};

/// Validity of an allowance without a new exchange.
const LEASE: Duration = Duration::from_secs(1);

/// Interval of exchanges: three may fail before an allowance ends.
const INTERVAL: Duration = Duration::from_millis(250);

/// Interval of exchanges while members pass parts of the budget to each other.
const INTERVAL_BUSY: Duration = Duration::from_millis(50);

/// Minimum interval of exchanges for requests that wait for a slot.
const INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Minimum wait for the rate: the resolution of the timer.
const RATE_WAIT_MIN: Duration = Duration::from_millis(1);

/// Returns this process as a member of a budget.
pub(super) fn member(settings: &BudgetSettings) -> OriginBudget {
    match settings.shared {
        Some(_) => OriginBudget::shared(settings.total, Duration::ZERO, LEASE),
        None => OriginBudget::local(settings.total, Duration::ZERO),
    }
}

/// Starts the tasks of the budget of an admission. They end with it.
///
/// # Panics
/// Panics outside of a Tokio runtime.
pub(super) fn start(admission: &Arc<Admission>, settings: &BudgetSettings) {
    tokio::spawn(admit_by_rate(Arc::downgrade(admission), admission.needs_rate.clone()));
    if let Some(shared) = &settings.shared {
        let member = format!("{:032x}", fastrand::u128(..));
        let exchanges = Exchanges { shared: shared.clone(), member };
        let needs_slots = admission.needs_slots.clone();
        tokio::spawn(exchanges.run(Arc::downgrade(admission), needs_slots));
    }
}

/// Admits waiting requests when the rate permits them.
async fn admit_by_rate(admission: Weak<Admission>, needs_rate: Arc<Notify>) {
    while let Some(admission) = admission.upgrade() {
        let wait = admission.admit_waiting();
        drop(admission);
        match wait {
            Some(wait) => sleep(wait.max(RATE_WAIT_MIN)).await,
            None => needs_rate.notified().await,
        }
    }
}

/// Exchanges of one member with the common place.
struct Exchanges {
    shared: SharedBudget,
    /// Random name of the member.
    member: String,
}

impl Exchanges {
    async fn run(self, admission: Weak<Admission>, needs_slots: Arc<Notify>) {
        let SharedBudget { name, budgets } = &self.shared;
        loop {
            let Some(current) = admission.upgrade() else { break };
            let sent = current.now();
            let request = current.change_budget(|budget, waiting| budget.request(sent, waiting));
            drop(current);
            let Some(request) = request else { break };
            let reply = budgets.exchange(name, &self.member, request, LEASE).await;
            let Some(current) = admission.upgrade() else { break };
            let is_busy = match reply {
                Ok(reply) => {
                    let now = current.now();
                    let apply =
                        |budget: &mut OriginBudget, _| budget.apply(request, reply, sent, now);
                    current.change_budget(apply).unwrap_or_default()
                }
                Err(_) => {
                    // The end of the allowance may permit requests, too.
                    current.admit_waiting();
                    false
                }
            };
            drop(current);
            sleep(INTERVAL_MIN).await;
            let rest = if is_busy { INTERVAL_BUSY } else { INTERVAL };
            let _ = timeout(rest - INTERVAL_MIN, needs_slots.notified()).await;
        }
        budgets.leave(name, &self.member).await;
    }
}
