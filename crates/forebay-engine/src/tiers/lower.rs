//! The tiers below memory as the engine reaches them: within a time, past a panic, and without
//! what they could not be purged of.

mod deadline;
mod pending_removals;
mod writes;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Condition, KeyRef, Purge};
use futures_util::future::join_all;
use tokio::time::timeout;

pub(crate) use self::deadline::Deadline;
use self::pending_removals::{Debt, Debts};
pub(crate) use self::writes::Turn;
use self::writes::Writes;
use super::catch_panic::caught;
use super::error::TierError;
use super::guard::{Access, Guard};
use super::lease_strategy::{LEASE, Looked, OPEN, Outlook};
use super::tier::{Budget, Tier};
use crate::runtime::clock::Clock;
use crate::runtime::event::{Event, Observer};
use crate::runtime::sync::Mutex;
use crate::tiers::bus::{Bookmark, Chain};

/// How long a body that is whole waits for a tier that is being left alone. Most outages are
/// restarts, and what was loaded meanwhile would be loaded again by everybody else.
const AWAIT_MAX: Duration = Duration::from_secs(1);

/// How long a tier may take to write down a purge of many. Only who purges waits for it, and a
/// purge that is lost with the process is worse than one that takes its time.
const KEEP_MAX: Duration = Duration::from_secs(5);

/// All tiers below memory, from the uppermost on.
pub(crate) struct LowerTiers {
    tiers: Box<[LowerTier]>,
    writes: Arc<Writes>,
    /// How many purges of many could not be written down.
    unkept: AtomicU64,
}

/// One of them.
pub(crate) struct LowerTier {
    pub(crate) tier: Arc<dyn Tier>,
    guard: Arc<Guard>,
    outlook: Outlook,
    debts: Mutex<Debts>,
    observer: Arc<dyn Observer>,
}

impl LowerTiers {
    pub(crate) fn new(
        tiers: Vec<Arc<dyn Tier>>,
        clock: &Arc<dyn Clock>,
        observer: &Arc<dyn Observer>,
    ) -> Self {
        let lower = |tier: Arc<dyn Tier>| LowerTier {
            guard: Guard::new(tier.clone(), clock, observer),
            tier,
            outlook: Outlook::default(),
            debts: Mutex::default(),
            observer: observer.clone(),
        };
        let tiers = tiers.into_iter().map(lower).collect();
        Self { tiers, writes: Arc::default(), unkept: AtomicU64::new(0) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    pub(crate) fn all(&self) -> &[LowerTier] {
        &self.tiers
    }

    /// Those that are for a key.
    pub(crate) fn taking(&self, primary: KeyRef<'_>) -> impl Iterator<Item = &LowerTier> {
        self.tiers.iter().filter(move |lower| lower.tier.takes(primary))
    }

    /// The time of one walk down: what the slowest tier may take that is asked at all.
    pub(crate) fn walk_budget(&self, primary: KeyRef<'_>) -> Duration {
        let asked = self.taking(primary).filter(|lower| lower.guard.admits(Access::Read));
        asked.map(|lower| lower.budget().read).max().unwrap_or_default()
    }

    /// The right to write so many bytes to a tier; nothing if as much as allowed is on its way.
    pub(crate) fn turn(&self, bytes: u64) -> Option<Turn> {
        self.writes.turn(bytes)
    }

    /// How many entries are on their way into tiers.
    pub(crate) fn writes(&self) -> usize {
        self.writes.count()
    }

    /// How many tiers stand above the one that a key is shared in, if there is any.
    pub(crate) fn shared(&self, primary: KeyRef<'_>) -> Option<usize> {
        let is = |lower: &LowerTier| lower.is_shared() && lower.tier.takes(primary);
        self.tiers.iter().position(is)
    }

    /// Whether there is any that nobody shares.
    pub(crate) fn any_of_its_own(&self) -> bool {
        self.tiers.iter().any(|lower| !lower.is_shared())
    }

    /// Whether the tier below so many others gives out nothing that it was told to purge.
    pub(crate) fn carries_out_purges(&self, above: usize) -> bool {
        let lower = self.tiers.get(above);
        lower.is_some_and(|lower| !lower.is_shared() && lower.tier.carries_out_purges())
    }

    /// Removes a primary key from every tier, or remembers that it has to be. `true` if any had
    /// something.
    pub(crate) async fn remove(&self, primary: KeyRef<'_>) -> bool {
        let removed = join_all(self.taking(primary).map(|lower| lower.purge(primary))).await;
        removed.contains(&Some(true))
    }

    /// The same for tiers that nobody shares; nothing if any of them has to be rid of it yet.
    pub(crate) async fn remove_its_own(&self, primary: KeyRef<'_>) -> Option<bool> {
        let its_own = self.taking(primary).filter(|lower| !lower.is_shared());
        let removed = join_all(its_own.map(|lower| lower.purge(primary))).await;
        removed.into_iter().try_fold(false, |any, removed| Some(any | removed?))
    }

    /// Remembers that the tiers that are shared have to be rid of a key.
    pub(crate) fn owe_shared(&self, primary: KeyRef<'_>) {
        let shared = self.taking(primary).filter(|lower| lower.is_shared());
        shared.for_each(|lower| lower.debts.lock().note(primary));
    }
}

impl LowerTiers {
    /// Has every tier remember a purge of many; what is shared is purged over the bus instead, if
    /// there is one. Whether all of them do.
    pub(crate) async fn keep(&self, what: &Purge, has_bus: bool) -> bool {
        let keeping = self.tiers.iter().filter(|lower| !(has_bus && lower.is_shared()));
        let kept = join_all(keeping.map(|lower| lower.keep(what))).await;
        let failed = kept.into_iter().filter(|kept| !kept).count();
        self.unkept.fetch_add(failed as u64, Ordering::Relaxed);
        failed == 0
    }

    /// Up to where all tiers that nobody shares have followed the bus; nothing if they are not
    /// equally far.
    pub(crate) fn bookmark(&self) -> Option<Bookmark> {
        let mut its_own = self.tiers.iter().filter(|lower| !lower.is_shared());
        let first = its_own.next()?.tier.bookmark()?;
        its_own.all(|lower| lower.tier.bookmark().as_ref() == Some(&first)).then_some(first)
    }

    /// Has all of them keep a bookmark. Whether they do.
    pub(crate) async fn keep_bookmark(&self, bookmark: &Bookmark, chain: Chain) -> bool {
        let its_own = self.tiers.iter().filter(|lower| !lower.is_shared());
        let kept = join_all(its_own.map(|lower| lower.keep_bookmark(bookmark, chain))).await;
        kept.into_iter().all(|kept| kept)
    }

    pub(crate) fn unkept(&self) -> u64 {
        self.unkept.load(Ordering::Relaxed)
    }
}

impl LowerTier {
    /// Whether other instances use the same.
    pub(crate) fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.tier.name()
    }

    /// How long it may take.
    pub(crate) fn budget(&self) -> Budget {
        self.guard.budget()
    }

    /// Whether it is asked at all.
    pub(crate) fn condition(&self) -> Condition {
        self.guard.condition()
    }

    /// Waits until it is asked again, for a while. Whether that was necessary; nothing if it was
    /// in vain.
    pub(crate) async fn awaited(&self) -> Option<bool> {
        if self.condition() == Condition::Closed {
            return Some(false);
        }
        timeout(AWAIT_MAX, self.guard.is_read_again()).await.ok().map(|()| true)
    }

    /// Carries out one operation; failures are noted here, and are nothing to the one who asks.
    pub(crate) async fn run<T, F>(
        &self,
        op: &'static str,
        deadline: &mut Deadline,
        begin: impl FnOnce() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, TierError>>,
    {
        self.attempt(op, deadline, begin).await.ok()
    }

    /// Whether who looks here for a flight that may load asks for the lease at once.
    pub(crate) fn is_asked_for_leases(&self) -> bool {
        self.outlook.is_for_leases(self.budget().read)
    }

    /// A look, by reading or by asking for the lease as well. What it has found is remembered for
    /// the looks to come.
    pub(crate) async fn look<T, F>(
        &self,
        deadline: &mut Deadline,
        begin: impl FnOnce() -> F,
    ) -> Result<T, TierError>
    where
        T: Looked,
        F: Future<Output = Result<T, TierError>>,
    {
        let looked = self.attempt(T::OP, deadline, begin).await;
        if let Ok(looked) = &looked {
            self.outlook.note(looked.has_found());
        }
        looked
    }

    /// One operation, for one who wants to know why it failed. Nothing is even begun for a tier
    /// that is being left alone.
    pub(crate) async fn attempt<T, F>(
        &self,
        op: &'static str,
        deadline: &mut Deadline,
        begin: impl FnOnce() -> F,
    ) -> Result<T, TierError>
    where
        F: Future<Output = Result<T, TierError>>,
    {
        let access = Access::of(op);
        if deadline.is_over() {
            return Err(TierError::TimedOut);
        }
        if !self.guard.admits(access) {
            return Err(TierError::Bypassed);
        }
        let began = self.guard.exact();
        let is_fair = deadline.leaves(self.budget().read / 2);
        let ended = deadline.race(caught(begin)).await;
        let result = ended.unwrap_or(Err(TierError::TimedOut));
        let took = self.guard.exact().saturating_sub(began);
        self.observer.observe(Event::TierAsked { tier: self.name(), op, took });
        if matches!(op, OPEN | LEASE) {
            self.outlook.note_time(took);
        }
        match &result {
            Ok(_) | Err(TierError::TooLarge | TierError::Withdrawn | TierError::Outdated) => {
                self.guard.worked(access);
            }
            // Another tier has used up its time.
            Err(TierError::TimedOut) if !is_fair => self.failed(op),
            // Who gives no leases has answered. Whoever asked reads next, and finds out the rest.
            Err(TierError::Failed(_)) if op == LEASE => {}
            Err(_) => {
                self.failed(op);
                self.guard.failed(access);
            }
        }
        result
    }

    fn failed(&self, op: &'static str) {
        self.observer.observe(Event::TierFailed { tier: self.name(), op });
    }

    /// Whether there was anything; nothing if it is owed now.
    async fn purge(&self, primary: KeyRef<'_>) -> Option<bool> {
        let mut deadline = Deadline::within(self.budget().write);
        let removed = self.run("remove", &mut deadline, || self.tier.remove(primary)).await;
        if removed.is_none() {
            self.debts.lock().note(primary);
        }
        removed
    }

    /// Breakers are not asked: a tier that fails is tried all the same.
    async fn keep(&self, what: &Purge) -> bool {
        let keeping = timeout(KEEP_MAX, caught(|| self.tier.purge(what)));
        let kept = matches!(keeping.await, Ok(Ok(())));
        if !kept {
            self.observer.observe(Event::PurgeNotKept(self.name()));
        }
        kept
    }

    /// Breakers are not asked here, either.
    async fn keep_bookmark(&self, bookmark: &Bookmark, chain: Chain) -> bool {
        let keeping = timeout(KEEP_MAX, caught(|| self.tier.keep_bookmark(bookmark, chain)));
        matches!(keeping.await, Ok(Ok(())))
    }

    /// Whether the tier may be used for a key: it has been rid of what it should have been.
    pub(crate) async fn is_clear(&self, primary: KeyRef<'_>, deadline: &mut Deadline) -> bool {
        let owed = self.debts.lock().of(primary);
        let number = match owed {
            Debt::Nothing => return true,
            Debt::Everything => return false,
            Debt::Removal(number) => number,
        };
        let removed = self.run("remove", deadline, || self.tier.remove(primary)).await;
        removed.is_some() && self.debts.lock().forgive(primary, number)
    }
}
