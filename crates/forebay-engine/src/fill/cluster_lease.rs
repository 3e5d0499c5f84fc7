//! Lease of a key among instances: its request, and the wait for an instance that holds it.
//!
//! ```text
//! not found ──► request ─┬─ granted ──────────────────────────► load, and fill the shared tier
//!                        ├─ filled ───────────────────────────► fill from the tier
//!                        ├─ held ─────► wait ─┬─ filled ──────► fill from the tier
//!                        │                    ├─ pass ────────► all callers load alone
//!                        │                    ├─ vary ────────► each joins a flight of its variant
//!                        │                    ├─ failed ──────► load, for this instance
//!                        │                    ├─ timed out ───► load, for the waiting callers
//!                        │                    └─ released ────► request again
//!                        └─ no answer ────────────────────────► load, for this instance
//! ```
//!
//! The search in lower tiers may have requested the lease already; a tier that failed there is not
//! asked again. The request shares the time of the search, up to a wait for another instance;
//! operations after that have a time of their own. A lease never fails a request, and each wait for
//! it is bounded.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Demand, Key, Meta, Position, Presence, PurgeState, Vary, Why};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::lower_lookup::{FoundEntry, Purpose, SearchState, TierSearch};
use super::{Fill, Leading, Missed, Permitted, UNFRESH_REMEMBER};
use crate::entry::suits;
use crate::flight::FlightResult;
use crate::flight::load::{Audience, Load, LoadSource};
use crate::flight::pass_markers::Marked;
use crate::runtime::event::LeaseEvent;
use crate::runtime::sync::timeout;
use crate::tiers::error::TierError;
use crate::tiers::lease::{Claim, Lease, Leases, LoadMark, Permit, Release, Woken};
use crate::tiers::lease_strategy::{LEASE, Looked};
use crate::tiers::lower::Deadline;
use crate::tiers::tier::Stored;

/// Maximum number of lease requests per flight. Each after the first follows a purge or a release by
/// another instance.
const REQUESTS_MAX: usize = 8;

/// Use of leases by a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseUse {
    /// The flight requests the lease, and waits for an instance that holds it.
    Wait,
    /// The flight requests the lease, but does not wait, because its caller demands it. Without the
    /// lease the shared tier is not written: it could miss a purge that is not received yet.
    Once,
    /// The flight requests no lease, because it is for one caller. Its answer stays in this
    /// instance.
    Never,
}

impl LeaseUse {
    /// Restricts the use for a load of one caller.
    pub(crate) const fn of_single(self) -> Self {
        match self {
            Self::Wait | Self::Never => Self::Never,
            Self::Once => Self::Once,
        }
    }
}

/// Permission to store an answer.
pub(super) enum WritePermission {
    /// All tiers. No lease is needed.
    All,
    /// All tiers, for an entry that was put and not loaded.
    Put,
    /// All tiers, while the lease is valid.
    Leased(Arc<dyn Permit>),
    /// Tiers of this instance.
    Instance,
    /// No tier.
    None,
}

impl WritePermission {
    /// Returns `true` if the permission includes shared tiers, or other tiers.
    pub(super) const fn includes(&self, shared: bool) -> bool {
        match self {
            Self::All | Self::Put | Self::Leased(_) => true,
            Self::Instance => !shared,
            Self::None => false,
        }
    }

    /// Returns `true` if the answer may be stored in memory.
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Self::All | Self::Put | Self::Instance => true,
            Self::Leased(permit) => permit.is_held(),
            Self::None => false,
        }
    }
}

/// Result of the request for a lease.
pub(super) enum Leased<L> {
    Load(Permitted<L>),
    Found(Fill<L>, FoundEntry),
    /// The callers of this flight start again, or load alone for this reason.
    Retry(Leading<L>, Option<Why>),
    /// The flight is a refresh that another instance carries out.
    Needless,
}

/// Decision after one answer or wake-up.
enum Step {
    /// Request the lease again.
    Again,
    Load(WritePermission),
    Found(Box<FoundEntry>),
    Retry(Option<Why>),
    Needless,
}

/// Answer to a lease request.
pub(super) struct LeaseAnswer {
    pub(super) lease: Result<Lease, TierError>,
    /// Position of the purge log before the request.
    pub(super) position: Position,
}

impl<L: Load> Missed<L> {
    /// Acquires the permission to load, or the entry that another instance has loaded.
    pub(super) async fn lease(mut self) -> Leased<L> {
        let step = self.next_step().await;
        let Self { leading, prior, stale, family, .. } = self;
        match step {
            Step::Load(permission) => {
                Leased::Load(Permitted { leading, permission, prior, stale, family })
            }
            Step::Found(found) => {
                let fill = Fill::new(leading, WritePermission::All, family);
                Leased::Found(fill, FoundEntry { by_instance: true, ..*found })
            }
            Step::Retry(why) => Leased::Retry(leading, why),
            Step::Again | Step::Needless => Leased::Needless,
        }
    }

    async fn next_step(&mut self) -> Step {
        let engine = self.leading.engine.clone();
        let shared = engine.lower.shared(self.leading.primary());
        let (Some(joined), Some(tier_index)) = (&engine.joined, shared) else {
            return Step::Load(WritePermission::All);
        };
        let options = self.leading.options;
        if self.leading.rules.lease_use == LeaseUse::Never
            || options.source == LoadSource::LowerTiers
        {
            return Step::Load(WritePermission::Instance);
        }
        let mut left = options.lease_wait_max.unwrap_or(joined.wait_max);
        for _ in 0..REQUESTS_MAX {
            if self.leading.leader.is_purged() {
                return self.after_purge();
            }
            let LeaseAnswer { lease, position } = match self.lease_answer.take() {
                Some(answer) => answer,
                None => self.request(&*joined.leases, tier_index).await,
            };
            let step = match lease {
                Err(_) => self.load_for_instance(LeaseEvent::Failed),
                Ok(Lease::Granted(permit)) => {
                    self.leading.observe_lease(LeaseEvent::Granted);
                    Step::Load(WritePermission::Leased(permit))
                }
                // This caller wants a load of its own.
                Ok(Lease::Filled(_)) if self.leading.flight().audience == Audience::Single => {
                    self.load_for_instance(LeaseEvent::Filled)
                }
                Ok(Lease::Filled(stored)) => {
                    self.leading.observe_lease(LeaseEvent::Filled);
                    self.take(tier_index, position, Some(*stored)).await
                }
                Ok(Lease::Held(..)) if self.leading.rules.lease_use == LeaseUse::Once => {
                    self.load_for_instance(LeaseEvent::Elsewhere)
                }
                Ok(Lease::Held(woken, mark)) => match self.wait(&mut left, woken, mark).await {
                    None => self.load_unless_refreshing(WritePermission::None),
                    Some(Woken::Filled(stored)) => {
                        self.take(tier_index, position, stored.map(|stored| *stored)).await
                    }
                    Some(Woken::Released(release)) => self.after_release(release),
                    Some(Woken::Again) => Step::Again,
                },
            };
            if !matches!(step, Step::Again) {
                return step;
            }
        }
        self.leading.observe_lease(LeaseEvent::Overdue);
        self.load_unless_refreshing(WritePermission::None)
    }

    async fn request(&mut self, leases: &dyn Leases, tier_index: usize) -> LeaseAnswer {
        // Entries read from here on reflect every purge before this position.
        let position = self.leading.engine.log.position();
        let mut deadline = self.time_left();
        let flight = self.leading.flight();
        let primary = flight.primary().borrowed();
        let entry = self.seen.variant.as_ref().map_or(primary, Key::borrowed);
        let flight_key = flight.key().borrowed();
        let mark = self.leading.load_mark();
        let (seen, mark) = (self.seen.stamp, mark.as_deref());
        let claim = Claim { primary, flight_key, entry, seen, is_look: false, mark };
        let lower = &self.leading.engine.lower.all()[tier_index];
        let begun = self.leading.engine.clock.exact();
        let lease = lower.attempt(LEASE, &mut deadline, || leases.acquire(claim)).await;
        self.leading.report_tier(lower, LEASE, begun, lease.as_ref().map(Looked::has_found));
        self.deadline = Some(deadline);
        LeaseAnswer { lease, position }
    }

    /// Returns the time left for operations of lower tiers.
    fn time_left(&mut self) -> Deadline {
        let budget = || self.leading.engine.lower.walk_budget(self.leading.primary());
        self.deadline.take().unwrap_or_else(|| Deadline::within(budget()))
    }

    /// Waits for the instance that holds the lease. `None` if it takes too long.
    async fn wait(
        &mut self,
        left: &mut Duration,
        woken: BoxFuture<'static, Woken>,
        mark: Option<LoadMark>,
    ) -> Option<Woken> {
        self.leading.observe_lease(LeaseEvent::Elsewhere);
        if let Some(mark) = mark {
            self.leading.load.follows(&mark);
        }
        if let Some(part) = self.leading.load.batch() {
            part.delayed();
        }
        let clock = &self.leading.engine.clock;
        let began = clock.exact();
        let flight = self.leading.flight();
        flight.set_waits_for_instance(true);
        let woken = timeout(*left, AssertUnwindSafe(woken).catch_unwind()).await;
        flight.set_waits_for_instance(false);
        *left = left.saturating_sub(clock.exact().saturating_sub(began));
        // The wait is not part of the tier's time.
        self.deadline = None;
        let woken = woken.ok().map(|woken| woken.unwrap_or(Woken::Again));
        self.leading.observe_lease(match &woken {
            None => LeaseEvent::Overdue,
            Some(Woken::Filled(_)) => LeaseEvent::Woken,
            Some(Woken::Released(_)) => LeaseEvent::Released,
            Some(Woken::Again) => LeaseEvent::Freed,
        });
        woken
    }

    /// Uses the entry that another instance has written. If it does not satisfy the demand, the
    /// lease is requested again.
    async fn take(
        &mut self,
        tier_index: usize,
        position: Position,
        stored: Option<Stored>,
    ) -> Step {
        if !self.leading.flight().may_search_tiers {
            // The entry may be one that is being purged.
            return self.load_unless_refreshing(WritePermission::Instance);
        }
        let Some(demand) = self.leading.rules.tiers.clone() else { return Step::Again };
        let deadline = self.time_left();
        let mut search = TierSearch::new(&self.leading, &demand, position, deadline);
        search.resume(self.family.take(), std::mem::take(&mut self.seen));
        let candidate = match stored {
            Some(stored) => search.use_record(tier_index, stored).await,
            None => search.lookup_in(tier_index).await,
        };
        let mut step = Step::Again;
        let mut never_fresh = false;
        if let Some(candidate) = candidate {
            if search.is_served(&candidate) {
                if let Some(found) = search.begin(candidate).await {
                    step = Step::Found(Box::new(found));
                }
            } else {
                never_fresh = is_never_fresh(&candidate.meta);
                let stale = search.collect(candidate).await;
                self.stale = stale.or_else(|| self.stale.take());
            }
        }
        let SearchState { family, seen, lease_answer: _, deadline } = search.into_state();
        (self.family, self.seen, self.deadline) = (family, seen, deadline);
        if never_fresh {
            // As with such an answer of the origin: no request waits for another's validation.
            self.leading.keep_stale(self.stale.as_ref());
            self.leading.mark(Marked::Unfresh, UNFRESH_REMEMBER);
            return self.load_alone(Why::PassMarked);
        }
        step
    }

    fn after_release(&self, release: Release) -> Step {
        let rules = &self.leading.rules;
        match release {
            Release::Pass { remember, credentials } if credentials == rules.credentials => {
                let why = if remember.is_zero() { Why::NotShareable } else { Why::PassMarked };
                self.leading.mark(Marked::Private, remember);
                self.load_alone(why)
            }
            Release::Failed => self.load_unless_refreshing(WritePermission::Instance),
            Release::Vary(vary) => {
                self.announce_variants(&vary);
                Step::Retry(None)
            }
            Release::Pass { .. } | Release::Abandoned => Step::Again,
        }
    }

    /// Lets later requests join flights of their own variants.
    fn announce_variants(&self, vary: &Vary) {
        let Leading { engine, leader, .. } = &self.leading;
        leader.unless_purged(|| {
            engine.memory.announce(self.leading.primary(), vary, Presence::Present);
        });
    }

    fn load_alone(&self, why: Why) -> Step {
        self.leading.leader.announce(FlightResult::Private);
        Step::Retry(Some(why))
    }

    /// Decides after a purge that came before the load: a new flight may store its answer.
    fn after_purge(&self) -> Step {
        match self.leading.flight().audience {
            Audience::Shared => Step::Retry(None),
            Audience::Single => Step::Load(WritePermission::None),
        }
    }

    /// Loads, unless the flight is a refresh that another instance carries out.
    fn load_unless_refreshing(&self, permission: WritePermission) -> Step {
        let purpose = self.leading.rules.tiers.as_ref().map(|tiers| tiers.purpose);
        if purpose == Some(Purpose::Refresh) { Step::Needless } else { Step::Load(permission) }
    }

    fn load_for_instance(&self, event: LeaseEvent) -> Step {
        self.leading.observe_lease(event);
        Step::Load(WritePermission::Instance)
    }
}

/// Returns `true` if an answer was stale from its start.
fn is_never_fresh(meta: &Meta) -> bool {
    !suits(meta, PurgeState::Valid, &Demand::default(), meta.load_started_at)
}
