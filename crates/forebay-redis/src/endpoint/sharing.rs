//! What keeps an endpoint from being shared by loads, or from being heard, and who is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Timestamp;
use parking_lot::Mutex;

use super::Endpoint;
use crate::counts::{Notice, count};
use crate::link::Link;
use crate::trouble::Trouble;

/// How long loads are not shared through a server that did not do what it takes.
const UNSHARED_PAUSE: Duration = Duration::from_secs(1);

/// The same for one that drops leases for want of room: that does not pass in a second.
const EVICTING_PAUSE: Duration = Duration::from_secs(10);

/// What was found out last.
#[derive(Default)]
pub(super) struct Sharing {
    unshared: Mutex<Option<Unshared>>,
    /// How many names it has dropped for want of room, when that was asked last.
    evicted: AtomicU64,
    /// Why the bus is not heard.
    deaf: Mutex<Option<String>>,
    /// Why it is not heard what other programs write.
    untracked: Mutex<Option<String>>,
}

/// Why loads are not shared.
struct Unshared {
    why: Trouble,
    /// When it is tried again.
    again: Timestamp,
}

impl Endpoint {
    /// Whether loads are shared through it.
    pub(crate) fn shares(&self, now: Timestamp) -> Result<(), Trouble> {
        let unshared = self.sharing.unshared.lock();
        let reason = unshared.as_ref().filter(|unshared| now < unshared.again);
        reason.map_or(Ok(()), |unshared| Err(unshared.why.clone()))
    }

    /// It does not do what it takes. For a while it is not asked to.
    pub(crate) fn shares_no_more(&self, why: &Trouble, now: Timestamp) {
        count(&self.counters.leases_failed);
        // Of a connection others tell; one that is busy is not of another mind.
        if !why.is_refusal()
            && !matches!(why, Trouble::Foreign | Trouble::Unable(_) | Trouble::Evicts)
        {
            return;
        }
        let pause = if *why == Trouble::Evicts { EVICTING_PAUSE } else { UNSHARED_PAUSE };
        let again = now.plus(pause);
        let before = self.sharing.unshared.lock().replace(Unshared { why: why.clone(), again });
        if before.is_none() {
            let (address, why) = (self.target.address.clone(), why.to_string());
            self.witness.notice(&Notice::Unshared { address, why });
        }
    }

    /// A lease is gone that nobody has withdrawn: perhaps for want of room.
    pub(crate) async fn lost_a_lease(&self, leases: &str) {
        let asking = |link: Arc<Link>| async move { link.evicted(leases).await };
        // Whoever does not tell has other troubles, and names them.
        let Ok(evicted) = self.run(self.read_timeout, asking).await else { return };
        if evicted > 0 && self.sharing.evicted.swap(evicted, Ordering::AcqRel) != evicted {
            self.shares_no_more(&Trouble::Evicts, self.clock.now());
        }
    }

    /// Why the bus is not heard there, or that it is.
    pub(crate) fn says_bus(&self, trouble: Option<&Trouble>) {
        let is_told = |trouble: &&Trouble| {
            trouble.is_refusal() || matches!(trouble, Trouble::Foreign | Trouble::Unable(_))
        };
        let why = trouble.map(ToString::to_string);
        let before = std::mem::replace(&mut *self.sharing.deaf.lock(), why.clone());
        if let Some(why) = why.filter(|_| trouble.filter(is_told).is_some())
            && before.as_ref() != Some(&why)
        {
            self.witness.notice(&Notice::Deaf { address: self.target.address.clone(), why });
        }
    }

    /// Why what other programs write is not heard there, or that it is.
    pub(crate) fn says_tracking(&self, trouble: Option<&Trouble>) {
        let why = trouble.map(ToString::to_string);
        let before = std::mem::replace(&mut *self.sharing.untracked.lock(), why.clone());
        if let Some(why) = why.filter(|why| before.as_ref() != Some(why)) {
            self.witness.notice(&Notice::Untracked { address: self.target.address.clone(), why });
        }
    }

    /// It has just granted, or refused, a lease.
    pub(crate) fn shares_again(&self) {
        if self.sharing.unshared.lock().take().is_some() {
            self.witness.notice(&Notice::Shared { address: self.target.address.clone() });
        }
    }
}

impl Sharing {
    pub(super) fn unshared(&self) -> Option<String> {
        self.unshared.lock().as_ref().map(|unshared| unshared.why.to_string())
    }

    pub(super) fn deaf(&self) -> Option<String> {
        self.deaf.lock().clone()
    }

    pub(super) fn untracked(&self) -> Option<String> {
        self.untracked.lock().clone()
    }
}
