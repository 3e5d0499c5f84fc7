//! Circuit breakers of a lower tier: a failing tier costs a request no more than a check of a flag;
//! trial calls run in the background.
//!
//! Reads and writes have a circuit breaker each. A tier that refuses writes, such as a replica, is
//! still read; a tier that cannot be read is not written.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::{Admission, Breaker, BreakerRules, Condition, Dice, KeyBuf};
use tokio::time::{sleep, timeout};

use super::catch_panic::caught;
use super::lease_strategy::{LEASE, OPEN};
use super::setup::TierSetup;
use super::tier::{Budget, Tier};
use crate::runtime::clock::{Clock, ThreadDice};
use crate::runtime::event::{Event, Observer};
use crate::runtime::sync::{Mutex, spawn};

/// Rules of the circuit breakers: open after five consecutive failures, or half of a second's
/// operations. The first trial comes after 50 to 100 ms, so that a recovered tier is used again
/// within 250 ms.
const RULES: BreakerRules = BreakerRules {
    calls_min: 5,
    failed_percent: 50,
    window: Duration::from_secs(1),
    open_for: Duration::from_millis(100),
};

/// Interval of the checks whether a trial is due. Its time is random.
const TRIAL_STEP: Duration = Duration::from_millis(10);

/// Key of trial reads. There is no entry: any answer is a success.
const TRIAL_NAMESPACE: &str = "forebay.trial";

/// Kind of an operation.
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

/// Circuit breakers of one tier.
pub(crate) struct Guard {
    tier: Arc<dyn Tier>,
    name: &'static str,
    reads: Mutex<Breaker>,
    writes: Mutex<Breaker>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
}

impl Guard {
    pub(crate) fn new(
        setup: &TierSetup,
        clock: &Arc<dyn Clock>,
        observer: &Arc<dyn Observer>,
    ) -> Arc<Self> {
        let breaker = || Mutex::new(Breaker::new(RULES, clock.now()));
        let (reads, writes) = (breaker(), breaker());
        let (tier, name) = (setup.tier.clone(), setup.name);
        Arc::new(Self {
            tier,
            name,
            reads,
            writes,
            clock: clock.clone(),
            observer: observer.clone(),
        })
    }

    pub(crate) fn budget(&self) -> Budget {
        self.tier.budget()
    }

    /// Returns the time, to measure operations.
    pub(crate) fn exact(&self) -> Duration {
        self.clock.exact()
    }

    /// Returns the state of the circuit breaker for reads.
    pub(crate) fn condition(&self) -> Condition {
        self.reads.lock().condition()
    }

    /// Waits until the tier may be read: at once, or after a successful trial.
    pub(crate) async fn is_read_again(&self) {
        while self.condition() != Condition::Closed {
            sleep(TRIAL_STEP).await;
        }
    }

    /// Returns `true` if the tier may be called. While it cannot be read, no request is a trial:
    /// background trials are. A write is its own trial, because no request waits for it.
    pub(crate) fn admits(&self, access: Access) -> bool {
        if self.condition() != Condition::Closed {
            return false;
        }
        let admitted = || self.writes.lock().admit(self.clock.now()) != Admission::Refused;
        access == Access::Read || admitted()
    }

    /// Notes a successful operation.
    pub(crate) fn worked(&self, access: Access) {
        self.breaker(access).lock().worked(self.clock.now());
    }

    /// Notes a failed operation.
    pub(crate) fn failed(self: &Arc<Self>, access: Access) {
        let mut breaker = self.breaker(access).lock();
        let was_closed = breaker.condition() == Condition::Closed;
        breaker.failed(self.clock.now(), ThreadDice.unit());
        let opened = was_closed && breaker.condition() == Condition::Open;
        drop(breaker);
        if opened && access == Access::Read {
            self.observer.observe(Event::TierBypassed(self.name));
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

/// Runs trials until the tier has recovered, or is dropped.
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
            guard.observer.observe(Event::TierRestored(guard.name));
            return;
        }
        breaker.failed(now, ThreadDice.unit());
    }
}
