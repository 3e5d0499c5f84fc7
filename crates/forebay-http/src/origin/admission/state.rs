//! State of the admission to one origin: limit, budget and queue.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_core::{AdaptiveLimit, BudgetState, BudgetWait, LimitedCall, LoadSign, OriginBudget};
use tokio::sync::oneshot;

use crate::origin::urgency::{Rank, Urgency};
use crate::origin_status::{BudgetStatus, OriginLoad};
use crate::settings::OriginSettings;

/// Maximum number of requests that wait for one origin. Each holds a request of a client open.
const QUEUE_MAX: usize = 16_384;

#[derive(Debug)]
pub(super) struct State {
    limit: Limit,
    pub(super) budget: Option<OriginBudget>,
    in_flight: usize,
    /// Requests that wait, by their rank when they came.
    queues: [VecDeque<Queued>; Rank::COUNT],
}

#[derive(Debug)]
enum Limit {
    Fixed(usize),
    Adaptive(AdaptiveLimit),
}

#[derive(Debug)]
struct Queued {
    urgency: Urgency,
    admitted: oneshot::Sender<()>,
}

/// Reason why a request is not admitted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The limit on concurrent requests of this process is reached.
    Limit,
    /// The budget of the origin is used up.
    Budget,
}

impl State {
    pub(super) fn new(settings: &OriginSettings, budget: Option<OriginBudget>) -> Self {
        let max = settings.requests_max();
        let limit = match settings.adaptive {
            true => Limit::Adaptive(AdaptiveLimit::new(max)),
            false => Limit::Fixed(max),
        };
        Self { limit, budget, in_flight: 0, queues: Default::default() }
    }

    /// Admits a request if no other one goes first, and limit and budget permit.
    pub(super) fn pass(&mut self, rank: Rank, now: Duration) -> Result<(), Denied> {
        if let Some(budget) = &mut self.budget {
            budget.arrived();
        }
        let is_first = self.queues[..=rank as usize].iter().all(VecDeque::is_empty);
        if !is_first {
            return Err(self.obstacle(now));
        }
        self.take(now).map_err(|denied| match denied {
            None => Denied::Limit,
            Some(_) => Denied::Budget,
        })
    }

    /// Takes a place for one request; on failure, the reason to wait for the budget, or `None` if it
    /// is the limit.
    fn take(&mut self, now: Duration) -> Result<(), Option<BudgetWait>> {
        if self.in_flight >= self.limit.current() {
            return Err(None);
        }
        if let Some(budget) = &mut self.budget {
            budget.take(now).map_err(Some)?;
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Returns the reason why requests wait.
    pub(super) fn obstacle(&self, now: Duration) -> Denied {
        let is_within_limit = self.in_flight < self.limit.current();
        let Some(budget) = &self.budget else { return Denied::Limit };
        let has_no_slot = budget.in_flight() >= budget.allowance(now).slots;
        if is_within_limit || has_no_slot { Denied::Budget } else { Denied::Limit }
    }

    /// Returns the reason for which a request that a client waits for would wait now; `None` if it
    /// would be sent at once. It changes nothing.
    pub(super) fn obstacle_now(&self, now: Duration) -> Option<Denied> {
        if !self.queues[Rank::Foreground as usize].is_empty() {
            return Some(self.obstacle(now));
        }
        if self.in_flight >= self.limit.current() {
            return Some(Denied::Limit);
        }
        // A copy, because the rate is brought up to date.
        self.budget.clone()?.take(now).is_err().then_some(Denied::Budget)
    }

    /// Adds a request to the queue; `None` if the queue is full.
    pub(super) fn enqueue(&mut self, urgency: &Urgency) -> Option<oneshot::Receiver<()>> {
        if self.queued() >= QUEUE_MAX {
            for queue in &mut self.queues {
                queue.retain(|queued| !queued.admitted.is_closed());
            }
            if self.queued() >= QUEUE_MAX {
                return None;
            }
        }
        let (admitted, receiver) = oneshot::channel();
        let queued = Queued { urgency: urgency.clone(), admitted };
        self.queues[urgency.rank() as usize].push_back(queued);
        Some(receiver)
    }

    /// Returns `true` if the queue is not empty.
    pub(super) fn has_queue(&self) -> bool {
        self.queued() > 0
    }

    /// Number of requests in the queue, with those that wait no more.
    fn queued(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    pub(super) fn waiting(&self) -> usize {
        self.queues.iter().flatten().filter(|queued| !queued.admitted.is_closed()).count()
    }

    /// Admits waiting requests while limit and budget permit. Returns the time after which the rate
    /// of the budget permits the next one.
    pub(super) fn admit_waiting(&mut self, now: Duration) -> Option<Duration> {
        while let Some((queue, index)) = self.next() {
            match self.take(now) {
                Ok(()) => {}
                Err(Some(BudgetWait::Rate(wait))) => return Some(wait),
                Err(_) => return None,
            }
            let next = self.queues[queue].remove(index);
            // A request that waits no more has dropped the receiver.
            if next.is_none_or(|next| next.admitted.send(()).is_err()) {
                self.in_flight -= 1;
                if let Some(budget) = &mut self.budget {
                    budget.give_back_unused();
                }
            }
        }
        None
    }

    /// Returns queue and index of the next request: the first one of the highest rank. A request
    /// whose rank has risen since it came goes before all others.
    fn next(&mut self) -> Option<(usize, usize)> {
        let is_urgent = |queued: &Queued| queued.urgency.rank() == Rank::Foreground;
        for (number, queue) in self.queues.iter_mut().enumerate() {
            while queue.front().is_some_and(|queued| queued.admitted.is_closed()) {
                queue.pop_front();
            }
            if number == Rank::Foreground as usize {
                continue;
            }
            if let Some(index) = queue.iter().position(is_urgent) {
                return Some((number, index));
            }
        }
        self.queues.iter().position(|queue| !queue.is_empty()).map(|queue| (queue, 0))
    }

    /// Returns the begin of an admitted request, for an adaptive limit.
    pub(super) fn begin(&mut self) -> Option<LimitedCall> {
        match &mut self.limit {
            Limit::Fixed(_) => None,
            Limit::Adaptive(limit) => Some(limit.began(self.in_flight)),
        }
    }

    pub(super) fn ended(&mut self, call: LimitedCall, sign: LoadSign) {
        if let Limit::Adaptive(limit) = &mut self.limit {
            limit.ended(call, sign);
        }
    }

    /// Ends a request. `in_budget` is false if it uses no slot of the budget any more.
    pub(super) fn release(&mut self, in_budget: bool) {
        self.in_flight -= 1;
        if in_budget {
            self.leave_budget();
        }
    }

    /// Gives the slot of the budget back, while the request goes on.
    pub(super) fn leave_budget(&mut self) {
        if let Some(budget) = &mut self.budget {
            budget.give_back();
        }
    }

    /// Takes one request of the rate for a retry, if the budget permits it now.
    pub(super) fn may_repeat(&mut self, now: Duration) -> bool {
        self.budget.as_mut().is_none_or(|budget| budget.take_rate(now).is_ok())
    }

    pub(super) fn load(&self) -> OriginLoad {
        OriginLoad {
            limit: self.limit.current(),
            in_flight: self.in_flight,
            waiting: self.waiting(),
            results: Default::default(),
        }
    }

    pub(super) fn budget_status(&self, now: Duration) -> Option<BudgetStatus> {
        let budget = self.budget.as_ref()?;
        Some(BudgetStatus {
            is_lost: budget.state(now) == BudgetState::Lost,
            is_shared: budget.state(now) != BudgetState::Local,
            instances: budget.members(),
            total: budget.total(),
            held: budget.allowance(now),
            in_flight: budget.in_flight(),
        })
    }
}

impl Limit {
    const fn current(&self) -> usize {
        match self {
            Self::Fixed(max) => *max,
            Self::Adaptive(limit) => limit.limit(),
        }
    }
}
