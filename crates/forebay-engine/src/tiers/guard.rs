//! What keeps a lower tier that fails from costing anybody more than a look at a flag: breakers,
//! and trials behind everybody's back.
//!
//! Reading and writing have a breaker each. A tier that takes no writes, such as a replica, is read
//! all the same; one that cannot be read is not written to either.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::{Admission, Breaker, BreakerRules, Condition, Dice, KeyBuf};
use tokio::time::{sleep, timeout};

use super::catch_panic::caught;
use super::lease_strategy::{LEASE, OPEN};
use super::tier::{Budget, Tier};
use crate::runtime::clock::{Clock, ThreadDice};
use crate::runtime::event::{Event, Observer};
use crate::runtime::sync::{Mutex, spawn};

/// When a tier is asked no more: after five failures in a row, or half of a second's operations.
/// The first trial comes after 50 to 100 ms, so that a tier that works again is back within 250.
const RULES: BreakerRules = BreakerRules {
    calls_min: 5,
    failed_percent: 50,
    window: Duration::from_secs(1),
    open_for: Duration::from_millis(100),
};

/// How often it is asked whether a trial is due. It is due at a time that dice have chosen.
const TRIAL_STEP: Duration = Duration::from_millis(10);

/// What trials ask for. Nothing stands under it: an answer is all that is wanted.
const TRIAL_NAMESPACE: &str = "forebay.trial";

/// What an operation does to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    pub(crate) fn of(op: &str) -> Self {
        if matches!(op, OPEN | "read" | LEASE) { Self::Read } else { Self::Write }
    }
}

/// The guard of one tier.
pub(crate) struct Guard {
    tier: Arc<dyn Tier>,
    reads: Mutex<Breaker>,
    writes: Mutex<Breaker>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
}

impl Guard {
    pub(crate) fn new(
        tier: Arc<dyn Tier>,
        clock: &Arc<dyn Clock>,
        observer: &Arc<dyn Observer>,
    ) -> Arc<Self> {
        let breaker = || Mutex::new(Breaker::new(RULES, clock.now()));
        let (reads, writes) = (breaker(), breaker());
        Arc::new(Self { tier, reads, writes, clock: clock.clone(), observer: observer.clone() })
    }

    pub(crate) fn budget(&self) -> Budget {
        self.tier.budget()
    }

    /// The time, to measure what an operation takes.
    pub(crate) fn exact(&self) -> Duration {
        self.clock.exact()
    }

    /// Whether it is read.
    pub(crate) fn condition(&self) -> Condition {
        self.reads.lock().condition()
    }

    /// Resolves when it is read: at once, or when a trial has worked.
    pub(crate) async fn is_read_again(&self) {
        while self.condition() != Condition::Closed {
            sleep(TRIAL_STEP).await;
        }
    }

    /// Whether the tier may be asked. While it cannot be read, no request pays for finding out
    /// whether it can again: trials do. Nobody waits for a write, so one of them is its own trial.
    pub(crate) fn admits(&self, access: Access) -> bool {
        if self.condition() != Condition::Closed {
            return false;
        }
        let admitted = || self.writes.lock().admit(self.clock.now()) != Admission::Refused;
        access == Access::Read || admitted()
    }

    /// It did what it was asked to.
    pub(crate) fn worked(&self, access: Access) {
        self.breaker(access).lock().worked(self.clock.now());
    }

    /// It did not, or took too long.
    pub(crate) fn failed(self: &Arc<Self>, access: Access) {
        let mut breaker = self.breaker(access).lock();
        let was_closed = breaker.condition() == Condition::Closed;
        breaker.failed(self.clock.now(), ThreadDice.unit());
        let opened = was_closed && breaker.condition() == Condition::Open;
        drop(breaker);
        if opened && access == Access::Read {
            self.observer.observe(Event::TierOpened(self.tier.name()));
            spawn(try_until_it_works(Arc::downgrade(self)));
        }
    }

    const fn breaker(&self, access: Access) -> &Mutex<Breaker> {
        match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        }
    }

    async fn is_well(&self) -> bool {
        let key = KeyBuf::new(TRIAL_NAMESPACE);
        let asked = timeout(self.budget().read, caught(|| self.tier.open(key.borrowed()))).await;
        matches!(asked, Ok(Ok(_)))
    }
}

/// Ends when the tier works again, or nobody has it any more.
async fn try_until_it_works(guard: Weak<Guard>) {
    loop {
        sleep(TRIAL_STEP).await;
        let Some(guard) = guard.upgrade() else { return };
        let admission = guard.reads.lock().admit(guard.clock.now());
        if admission == Admission::Refused {
            continue;
        }
        let is_well = guard.is_well().await;
        let (mut breaker, now) = (guard.reads.lock(), guard.clock.now());
        if is_well {
            breaker.worked(now);
            drop(breaker);
            guard.observer.observe(Event::TierClosed(guard.tier.name()));
            return;
        }
        breaker.failed(now, ThreadDice.unit());
    }
}
