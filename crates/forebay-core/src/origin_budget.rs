//! Budget of an origin: concurrent requests and a rate, which all instances share.
//!
//! Each instance is a member. It holds an allowance, and requests within it need no communication.
//! Members state their claims in a common place, which grants no more than the budget altogether.
//! An allowance shrinks first at its member and then in the common place, so that the sum of all
//! allowances never exceeds the budget.

mod share;

use std::fmt;
use std::time::Duration;

use share::{Standing, fair_share};

/// Value of a part of a budget that has no bound. The common place counts in numbers of this size
/// exactly.
pub const UNBOUNDED: u64 = 1 << 40;

/// Rate units per request per second.
pub const RATE_UNIT: u64 = 1_000;

/// Parts of a second whose requests may come at once: a batch is 50 milliseconds of the rate.
const BATCHES_PER_SECOND: f64 = 20.0;

/// Time constant of the average rate of requests.
const DEMAND_SPAN: Duration = Duration::from_millis(500);

/// Rate that is wanted above the average, so that growing demand rarely waits: a quarter.
const DEMAND_MARGIN: f64 = 1.25;

/// Concurrent requests and rate: a whole budget, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Number of concurrent requests.
    pub slots: u64,
    /// Thousandths of a request per second.
    pub rate: u64,
}

impl Allowance {
    /// No request.
    pub const NONE: Self = Self { slots: 0, rate: 0 };

    /// No bound.
    pub const UNBOUNDED: Self = Self { slots: UNBOUNDED, rate: UNBOUNDED };

    fn with(self, other: Self, part: impl Fn(u64, u64) -> u64) -> Self {
        Self { slots: part(self.slots, other.slots), rate: part(self.rate, other.rate) }
    }

    fn exceeds(self, other: Self) -> bool {
        self.slots > other.slots || self.rate > other.rate
    }
}

/// Bounds in words, such as `64 concurrent requests and 200 requests per second`.
impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_second = self.rate as f64 / RATE_UNIT as f64;
        match (self.slots < UNBOUNDED, self.rate < UNBOUNDED) {
            (true, true) => {
                write!(f, "{} concurrent requests and {per_second} requests per second", self.slots)
            }
            (true, false) => write!(f, "{} concurrent requests", self.slots),
            (false, true) => write!(f, "{per_second} requests per second"),
            (false, false) => f.write_str("no bound"),
        }
    }
}

/// Claim of one member on a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetClaim {
    /// Allowance that the member uses.
    pub held: Allowance,
    /// Allowance that its requests need now.
    pub wanted: Allowance,
}

/// Message of a member to the common place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetRequest {
    /// Allowance that the member asks for.
    pub asked: Allowance,
    /// Claim until the reply.
    pub claim: BudgetClaim,
    /// The whole budget.
    pub total: Allowance,
    /// [`BudgetReply::epoch`] that the member's allowance comes from; 0 before its first grant.
    pub epoch: u64,
}

/// Reply of the common place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetReply {
    /// Allowance of the member: at least the one that it held.
    pub granted: Allowance,
    /// Claims of the other members, in an order that is equal for all.
    pub others: Vec<BudgetClaim>,
    /// Number of the others that are before this member.
    pub position: usize,
    /// Number of the current second, equal for all members.
    pub round: u64,
    /// Begin of the common place: another number if it has lost its claims since.
    pub epoch: u64,
    /// `true` if all members have had the time to state their claims since the begin. Before that, a
    /// member of another epoch is granted no more than it held.
    pub is_complete: bool,
}

/// Source of the current allowance of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetState {
    /// The budget is not shared: it holds for this process alone.
    Local,
    /// The allowance was granted by the common place.
    Shared,
    /// The common place was not reached within the period of the last grant. The allowance is the
    /// budget divided by the last known number of members.
    Lost,
}

/// Reason why a request must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetWait {
    /// All slots are in use.
    Slot,
    /// The rate is used up for this time.
    Rate(Duration),
}

/// Member of a budget: this process. Times are on its monotonic clock, from any beginning.
#[derive(Clone, Debug)]
pub struct OriginBudget {
    total: Allowance,
    /// Validity of a grant; absent if the budget is not shared.
    lease: Option<Duration>,
    /// Allowance for further requests. More may be in flight after it has become smaller.
    held: Allowance,
    /// End of the grant, by the member's clock: not later than in the common place.
    valid_until: Duration,
    others: Vec<BudgetClaim>,
    /// Number of members, this one included, as last known.
    members: u64,
    /// Epoch that the allowance comes from.
    epoch: u64,
    /// Place of this member among the others.
    standing: Standing,
    in_flight: u64,
    tokens: f64,
    settled: Duration,
    /// Requests since the last message.
    arrivals: u64,
    /// Average rate of requests, in requests per second.
    demand: f64,
    asked_at: Duration,
}

impl OriginBudget {
    /// Creates the member of a budget that no other process shares.
    #[must_use]
    pub const fn local(total: Allowance, now: Duration) -> Self {
        Self {
            total,
            lease: None,
            held: total,
            valid_until: Duration::ZERO,
            others: Vec::new(),
            members: 1,
            epoch: 0,
            standing: Standing { position: 0, round: 0 },
            in_flight: 0,
            tokens: 1.0,
            settled: now,
            arrivals: 0,
            demand: 0.0,
            asked_at: now,
        }
    }

    /// Creates a member of a shared budget. It has no allowance before its first grant. If there is
    /// none within `lease`, it uses the whole budget, because it knows of no other member.
    #[must_use]
    pub fn shared(total: Allowance, now: Duration, lease: Duration) -> Self {
        let local = Self::local(total, now);
        Self { lease: Some(lease), held: Allowance::NONE, valid_until: now + lease, ..local }
    }

    /// Returns the source of the allowance.
    #[must_use]
    pub fn state(&self, now: Duration) -> BudgetState {
        match (self.lease, now < self.valid_until) {
            (None, _) => BudgetState::Local,
            (Some(_), true) => BudgetState::Shared,
            (Some(_), false) => BudgetState::Lost,
        }
    }

    /// Returns the whole budget.
    #[must_use]
    pub const fn total(&self) -> Allowance {
        self.total
    }

    /// Returns the number of members, this one included, as last known.
    #[must_use]
    pub const fn members(&self) -> u64 {
        self.members
    }

    /// Returns the number of requests that use a slot.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the current allowance. A lost member has at least one slot.
    #[must_use]
    pub fn allowance(&self, now: Duration) -> Allowance {
        if self.state(now) != BudgetState::Lost {
            return self.held;
        }
        let members = self.members;
        Allowance { slots: (self.total.slots / members).max(1), rate: self.total.rate / members }
    }

    /// Counts the arrival of a request. The demand that this member reports includes it.
    pub const fn arrived(&mut self) {
        self.arrivals += 1;
    }

    /// Takes a slot and one request of the rate.
    ///
    /// # Errors
    /// The reason to wait.
    pub fn take(&mut self, now: Duration) -> Result<(), BudgetWait> {
        if self.in_flight >= self.allowance(now).slots {
            return Err(BudgetWait::Slot);
        }
        self.take_rate(now)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Takes one request of the rate, for a request that has a slot and is sent again.
    ///
    /// # Errors
    /// The reason to wait.
    pub fn take_rate(&mut self, now: Duration) -> Result<(), BudgetWait> {
        let per_second = self.settle(now);
        if self.tokens < 1.0 {
            let wait = ((1.0 - self.tokens) / per_second).min(1.0);
            return Err(BudgetWait::Rate(Duration::from_secs_f64(wait)));
        }
        self.tokens -= 1.0;
        Ok(())
    }

    /// Gives back the slot of a request that has ended.
    pub const fn give_back(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Gives back a slot and one request of the rate, because the request was not sent.
    pub const fn give_back_unused(&mut self) {
        self.give_back();
        self.tokens += 1.0;
    }

    /// Adds the requests of the rate since the last call. Returns the rate per second.
    fn settle(&mut self, now: Duration) -> f64 {
        let per_second = self.allowance(now).rate as f64 / RATE_UNIT as f64;
        let passed = now.saturating_sub(self.settled).as_secs_f64();
        let batch = (per_second / BATCHES_PER_SECOND).max(1.0);
        self.tokens = (self.tokens + passed * per_second).min(batch);
        self.settled = self.settled.max(now);
        per_second
    }

    /// Returns the message to the common place. `waiting` is the number of requests that wait.
    pub fn request(&mut self, now: Duration, waiting: u64) -> BudgetRequest {
        let passed = now.saturating_sub(self.asked_at).as_secs_f64();
        if passed > 0.0 {
            let part = (passed / DEMAND_SPAN.as_secs_f64()).min(1.0);
            self.demand += (self.arrivals as f64 / passed - self.demand) * part;
            (self.arrivals, self.asked_at) = (0, now);
        }
        let mut held = self.allowance(now);
        held.slots = held.slots.max(self.in_flight);
        let wanted = self.wanted(waiting);
        let asked = self.target(wanted);
        BudgetRequest {
            asked,
            claim: BudgetClaim { held, wanted },
            total: self.total,
            epoch: self.epoch,
        }
    }

    /// Returns the rate of recent requests, with a margin.
    #[expect(clippy::cast_possible_truncation, reason = "a conversion of floats saturates")]
    fn demand_rate(&self) -> u64 {
        (self.demand * DEMAND_MARGIN * RATE_UNIT as f64) as u64
    }

    fn wanted(&self, waiting: u64) -> Allowance {
        let rate = if waiting > 0 { self.total.rate } else { self.demand_rate() };
        let wanted = Allowance { slots: self.in_flight + waiting, rate };
        wanted.with(self.total, u64::min)
    }

    /// Returns the fair part of the budget for this member.
    fn target(&self, wanted: Allowance) -> Allowance {
        let part = |total, mine, of: fn(&Allowance) -> u64| {
            let others = self.others.iter().map(|other| of(&other.wanted));
            fair_share(total, mine, others, self.standing)
        };
        Allowance {
            slots: part(self.total.slots, wanted.slots, |it| it.slots),
            rate: part(self.total.rate, wanted.rate, |it| it.rate),
        }
    }

    /// Applies a reply to a message that was sent at `sent`: the grant is valid from then. Returns `true` if another message should follow soon, because this member returned a
    /// part of its allowance, or waits for parts that others have to return.
    pub fn apply(
        &mut self,
        request: BudgetRequest,
        reply: BudgetReply,
        sent: Duration,
        now: Duration,
    ) -> bool {
        self.settle(now);
        let known = reply.others.len() as u64 + 1;
        let is_of_epoch = self.epoch == 0 || reply.is_complete;
        self.members = if is_of_epoch { known } else { known.max(self.members) };
        if is_of_epoch {
            self.epoch = reply.epoch;
        }
        self.others = reply.others;
        self.valid_until = sent + self.lease.unwrap_or_default();
        let wanted = request.claim.wanted;
        self.standing = Standing { position: reply.position, round: reply.round };
        let target = self.target(wanted);
        let mut held = reply.granted;
        if held.exceeds(target) && self.is_short_of_parts() {
            held = held.with(target, u64::min);
        }
        self.held = held;
        reply.granted.exceeds(held) || wanted.exceeds(held) && target.exceeds(held)
    }

    /// Returns `true` if another member has less than it wants, or less than half of an equal part.
    fn is_short_of_parts(&self) -> bool {
        let half = |total: u64| total / self.members / 2;
        let least = Allowance { slots: half(self.total.slots), rate: half(self.total.rate) };
        let is_short = |one: &BudgetClaim| {
            let due = one.wanted.with(least, u64::max);
            due.exceeds(one.held)
        };
        self.others.iter().any(is_short)
    }
}

#[cfg(test)]
mod tests;
