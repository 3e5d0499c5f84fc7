//! Asking which instance loads, and waiting for another one that does.
//!
//! ```text
//! walked in vain ──► ask ─┬─ granted ──────────────────────────► load, and fill what is shared
//!                         ├─ filled ───────────────────────────► land
//!                         ├─ elsewhere ─► wait ─┬─ filled ─────► land
//!                         │                     ├─ pass ───────► all aboard go alone
//!                         │                     ├─ vary ───────► each boards its own variant
//!                         │                     ├─ failed ─────► load, for this instance
//!                         │                     ├─ too long ───► load, for those aboard
//!                         │                     └─ free ───────► ask again
//!                         └─ nobody answers ───────────────────► load, for this instance
//! ```
//!
//! The walk may have asked already, with its look; and whoever it could not ask is not asked here
//! either. What is asked shares the time of the walk, up to a wait for another instance: what is
//! asked and read after that has a time of its own.
//!
//! A lease never makes anybody fail, and nobody waits for it for ever.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Demand, Key, KeyRef, Meta, Position, Presence, PurgeState, Vary, Why};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::entry::suits;
use crate::fill::lower_lookup::{Brought, Ended, Purpose, Walk, Walked};
use crate::fill::{Landing, UNFRESH_REMEMBER};
use crate::flight::Landed;
use crate::flight::load::{Company, Load};
use crate::flight::pass_markers::Marked;
use crate::runtime::event::{Event, LeaseCame};
use crate::runtime::sync::timeout;
use crate::tiers::error::TierError;
use crate::tiers::lease::{Claim, Lease, Leases, Outcome, Permit, Woken};
use crate::tiers::lease_strategy::LEASE;
use crate::tiers::lower::{Deadline, LowerTier};
use crate::tiers::tier::Stored;

/// How often one flight asks. Each time but the first, somebody else has purged or given up.
const ASKS_MAX: usize = 8;

/// Whether a flight asks other instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// It does, and waits for them.
    Waits,
    /// It does, but waits for none: so its caller wants it. Without a lease nothing goes into what
    /// is shared. A purge that has not been heard of yet could not keep it out.
    Once,
    /// It does not, since it is for one caller: what it brings stays in this instance.
    Alone,
}

impl Asking {
    /// The same for who goes alone.
    pub(crate) const fn alone(self) -> Self {
        match self {
            Self::Waits | Self::Alone => Self::Alone,
            Self::Once => Self::Once,
        }
    }
}

/// Where what a flight brings may be stored.
pub(crate) enum Right {
    /// Wherever there is room: there is nobody to be asked.
    Anywhere,
    /// Wherever there is room: it was not loaded, but made just now.
    Put,
    /// Everywhere, as long as the lease stands.
    Leased(Arc<dyn Permit>),
    /// In this instance.
    Here,
    /// Nowhere.
    Nowhere,
}

impl Right {
    /// Whether it is a right to write to this tier.
    pub(crate) fn is_for(&self, lower: &LowerTier) -> bool {
        match self {
            Self::Anywhere | Self::Put | Self::Leased(_) => true,
            Self::Here => !lower.is_shared(),
            Self::Nowhere => false,
        }
    }

    /// Whether anything may be stored at all.
    pub(crate) fn stands(&self) -> bool {
        match self {
            Self::Anywhere | Self::Put | Self::Here => true,
            Self::Leased(permit) => permit.is_held(),
            Self::Nowhere => false,
        }
    }
}

/// What came of it.
pub(crate) enum Claimed {
    /// This flight loads, by its [`Right`].
    Load,
    Brought(Box<Brought>),
    /// Those aboard go on without this flight: alone for this reason, or they board again.
    Back(Option<Why>),
    /// It was to refresh what another instance refreshes.
    Needless,
}

/// What was said to who asked for a lease, and where the log of purges stood before that.
pub(crate) type Answered = (Result<Lease, TierError>, Position);

/// What a flight has found in the tier that is shared, under which key, by its stamp.
#[derive(Default)]
pub(crate) struct Seen {
    /// A variant's; nothing for the primary key.
    pub(crate) variant: Option<Key>,
    pub(crate) stamp: Option<u64>,
}

impl<L: Load> Landing<L> {
    /// Asks for the right to load, or for what another instance has loaded; unless the walk has
    /// asked already, and was answered.
    pub(crate) async fn claim(&mut self, mut answered: Option<Answered>) -> Claimed {
        let engine = self.engine.clone();
        let primary = self.seat.flight().primary().borrowed();
        let (Some(joined), Some(above)) = (&engine.joined, engine.lower.shared(primary)) else {
            return Claimed::Load;
        };
        if self.keep.asking == Asking::Alone || self.load.only_looks() {
            self.right = Right::Here;
            return Claimed::Load;
        }
        let mut left = self.load.lease_wait_max().unwrap_or(joined.wait_max);
        for _ in 0..ASKS_MAX {
            if self.seat.is_cut() {
                return self.leave_to_another();
            }
            let (asked, position) = match answered.take() {
                Some(answered) => answered,
                None => self.ask(&*joined.leases, above).await,
            };
            let claimed = match asked {
                Err(_) => return self.load_by(Right::Here, LeaseCame::Failed),
                Ok(Lease::Granted(permit)) => {
                    self.came(LeaseCame::Granted);
                    self.right = Right::Leased(permit);
                    return Claimed::Load;
                }
                // Who goes alone wants a load of its own.
                Ok(Lease::Filled(_)) if self.seat.flight().company == Company::Alone => {
                    return self.load_by(Right::Here, LeaseCame::Filled);
                }
                Ok(Lease::Filled(stored)) => {
                    self.came(LeaseCame::Filled);
                    self.take((above, position), Some(*stored)).await
                }
                Ok(Lease::Elsewhere(_)) if self.keep.asking == Asking::Once => {
                    return self.load_by(Right::Here, LeaseCame::Elsewhere);
                }
                Ok(Lease::Elsewhere(woken)) => match self.wait(&mut left, woken).await {
                    None => return self.load_unless_refreshing(Right::Nowhere),
                    Some(Woken::Filled(stored)) => {
                        self.take((above, position), stored.map(|stored| *stored)).await
                    }
                    Some(Woken::Released(outcome)) => self.released(outcome),
                    Some(Woken::Again) => None,
                },
            };
            if let Some(claimed) = claimed {
                return claimed;
            }
        }
        self.came(LeaseCame::Overdue);
        self.load_unless_refreshing(Right::Nowhere)
    }

    async fn ask(&mut self, leases: &dyn Leases, above: usize) -> Answered {
        // What is read from here on knows of every purge before it.
        let position = self.engine.log.position();
        let mut deadline = self.left();
        let flight = self.seat.flight();
        let primary = flight.primary().borrowed();
        let entry = self.seen.variant.as_ref().map_or(primary, Key::borrowed);
        let boarded = flight.key().borrowed();
        let claim = Claim { primary, boarded, entry, seen: self.seen.stamp, is_look: false };
        let asking = || leases.acquire(claim);
        let asked = self.engine.lower.all()[above].attempt(LEASE, &mut deadline, asking).await;
        self.deadline = Some(deadline);
        (asked, position)
    }

    /// What is left of the time for tiers.
    fn left(&mut self) -> Deadline {
        let budget = || self.engine.lower.walk_budget(self.seat.flight().primary().borrowed());
        self.deadline.take().unwrap_or_else(|| Deadline::within(budget()))
    }

    /// Nothing if it takes too long.
    async fn wait(
        &mut self,
        left: &mut Duration,
        woken: BoxFuture<'static, Woken>,
    ) -> Option<Woken> {
        self.came(LeaseCame::Elsewhere);
        self.load.delayed();
        let clock = &self.engine.clock;
        let began = clock.exact();
        let flight = self.seat.flight();
        flight.wait_elsewhere(true);
        let woken = timeout(*left, AssertUnwindSafe(woken).catch_unwind()).await;
        flight.wait_elsewhere(false);
        *left = left.saturating_sub(clock.exact().saturating_sub(began));
        // What another instance took was not the tier's time.
        self.deadline = None;
        let woken = woken.ok().map(|woken| woken.unwrap_or(Woken::Again));
        self.came(match &woken {
            None => LeaseCame::Overdue,
            Some(Woken::Filled(_)) => LeaseCame::Woken,
            Some(Woken::Released(_)) => LeaseCame::Released,
            Some(Woken::Again) => LeaseCame::Freed,
        });
        woken
    }

    /// What another instance has filled lands as what a walk has found does. What comes no longer
    /// is of no use, and asked for again.
    async fn take(
        &mut self,
        (above, position): (usize, Position),
        stored: Option<Stored>,
    ) -> Option<Claimed> {
        if !self.seat.flight().walks {
            // It may be what is being purged just now.
            return Some(self.load_unless_refreshing(Right::Here));
        }
        let engine = self.engine.clone();
        let sought = self.keep.sought.clone()?;
        let deadline = self.left();
        let mut walk = Walk::new((&engine, &self.seat), &self.load, &sought, deadline);
        walk.resume((self.family.take(), std::mem::take(&mut self.seen)), position);
        let candidate = match stored {
            Some(stored) => walk.taken(above, stored).await,
            None => walk.look_in(above).await,
        };
        let mut claimed = None;
        let mut never_fresh = false;
        if let Some(candidate) = candidate {
            if walk.is_served(&candidate) {
                claimed = walk.begin(candidate).await.map(Box::new).map(Claimed::Brought);
            } else {
                never_fresh = is_never_fresh(&candidate.meta);
                if let Some(Walked::Stale(entry, depth)) = walk.collect(candidate).await {
                    self.stale = Some((entry, depth));
                }
            }
        }
        let Ended { family, seen, answered: _, deadline } = walk.ended();
        (self.family, self.seen, self.deadline) = (family, seen, deadline);
        if never_fresh {
            // As when it lands here: nobody should wait for another's validation.
            self.keep_stale();
            self.mark((Marked::Unfresh, engine.clock.now()), UNFRESH_REMEMBER);
            return Some(self.all_go_alone(Why::PassMarked));
        }
        claimed
    }

    fn released(&mut self, outcome: Outcome) -> Option<Claimed> {
        match outcome {
            Outcome::Pass { remember, credentials } if credentials == self.keep.credentials => {
                let why = if remember.is_zero() { Why::NotShareable } else { Why::PassMarked };
                self.mark((Marked::Private, self.engine.clock.now()), remember);
                Some(self.all_go_alone(why))
            }
            Outcome::Failed => Some(self.load_unless_refreshing(Right::Here)),
            Outcome::Vary(vary) => {
                self.learn(&vary);
                Some(Claimed::Back(None))
            }
            Outcome::Pass { .. } | Outcome::Abandoned => None,
        }
    }

    /// Who looks from here on boards its own variant.
    fn learn(&self, vary: &Vary) {
        let primary = self.seat.flight().primary().borrowed();
        self.seat.unless_cut(|| {
            self.engine.memory.announce(primary, (vary, Presence::Present));
        });
    }

    fn all_go_alone(&self, why: Why) -> Claimed {
        self.seat.land(Landed::Private);
        Claimed::Back(Some(why))
    }

    /// A purge came before it has departed: who boards anew may store what comes.
    fn leave_to_another(&mut self) -> Claimed {
        match self.seat.flight().company {
            Company::Shared => Claimed::Back(None),
            Company::Alone => {
                self.right = Right::Nowhere;
                Claimed::Load
            }
        }
    }

    /// A refresh is left to the instance that has it in hand.
    fn load_unless_refreshing(&mut self, right: Right) -> Claimed {
        let purpose = self.keep.sought.as_ref().map(|sought| sought.purpose);
        self.right = right;
        if purpose == Some(Purpose::Refresh) { Claimed::Needless } else { Claimed::Load }
    }

    fn load_by(&mut self, right: Right, came: LeaseCame) -> Claimed {
        self.came(came);
        self.right = right;
        Claimed::Load
    }

    pub(crate) fn came(&self, came: LeaseCame) {
        let key = self.seat.flight().key().borrowed();
        self.engine.observer.observe(Event::Lease { key, came });
    }

    /// Gives the lease back, if there is one that no tier has given back yet.
    pub(crate) async fn give_back(&self, outcome: Outcome) {
        if let Right::Leased(permit) = &self.right
            && self.seat.flight().give_back()
        {
            permit.release(outcome).await;
        }
    }

    /// What the lease is for from here on: a leader that has boarded by the primary key learns of
    /// its variant from the answer. The instances that wait learn of the variants.
    pub(crate) async fn narrow(&self, vary: &Vary, selection: KeyRef<'_>) {
        let Right::Leased(permit) = &self.right else { return };
        if !permit.narrow(selection, vary).await {
            self.came(LeaseCame::Withdrawn);
        }
    }
}

/// Whether an answer was stale as soon as it came.
fn is_never_fresh(meta: &Meta) -> bool {
    !suits(meta, PurgeState::Valid, &Demand::default(), meta.departed)
}
