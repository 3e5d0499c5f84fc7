//! Guarded access to the tiers below memory: with time limits, panic isolation, and pending
//! removals.

mod deadline;
mod pending_removals;
mod writes;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Condition, KeyRef, Meta, Purge, Reach};
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
use super::setup::TierSetup;
use super::tier::{Budget, Stored, Tier, WriteMode, Writer};
use crate::runtime::clock::Clock;
use crate::runtime::event::{Event, Observer};
use crate::runtime::sync::Mutex;
use crate::tiers::bus::{Bookmark, Chain};

/// Maximum wait of a complete body for a tier that is bypassed. Most outages are restarts, and an
/// entry that is not stored would be loaded again by all other instances.
const AWAIT_MAX: Duration = Duration::from_secs(1);

/// Time limit for recording a purge of many keys. Only the purging caller waits for it, and a purge
/// that is lost with the process is worse than a slow one.
const KEEP_MAX: Duration = Duration::from_secs(5);

/// All tiers below memory, from top to bottom.
pub(crate) struct LowerTiers {
    tiers: Box<[LowerTier]>,
    writes: Arc<Writes>,
    /// Number of purges of many keys that could not be recorded.
    unkept: AtomicU64,
}

/// Tier below memory, with its guard.
pub(crate) struct LowerTier {
    setup: TierSetup,
    guard: Arc<Guard>,
    outlook: Outlook,
    debts: Mutex<Debts>,
    observer: Arc<dyn Observer>,
}

impl LowerTiers {
    pub(crate) fn new(
        tiers: impl IntoIterator<Item = TierSetup>,
        clock: &Arc<dyn Clock>,
        observer: &Arc<dyn Observer>,
    ) -> Self {
        let lower = |setup: TierSetup| LowerTier {
            guard: Guard::new(&setup, clock, observer),
            setup,
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

    /// Returns the tiers that store entries of a key.
    pub(crate) fn taking(&self, primary: KeyRef<'_>) -> impl Iterator<Item = &LowerTier> {
        self.tiers.iter().filter(move |lower| lower.takes(primary))
    }

    /// Returns the time limit of one search: the longest read limit of the tiers that are not
    /// bypassed.
    pub(crate) fn walk_budget(&self, primary: KeyRef<'_>) -> Duration {
        let asked = self.taking(primary).filter(|lower| lower.guard.admits(Access::Read));
        asked.map(|lower| lower.budget().read).max().unwrap_or_default()
    }

    /// Reserves a write of this many bytes. `None` if the bound on pending writes is reached.
    pub(crate) fn turn(&self, bytes: u64) -> Option<Turn> {
        self.writes.turn(bytes)
    }

    /// Number of entries being written.
    pub(crate) fn writes(&self) -> usize {
        self.writes.count()
    }

    /// Returns the index of the tier that shares a key with other instances, if there is one.
    pub(crate) fn shared(&self, primary: KeyRef<'_>) -> Option<usize> {
        let is = |lower: &LowerTier| lower.is_shared() && lower.takes(primary);
        self.tiers.iter().position(is)
    }

    /// Returns `true` if a tier belongs to this instance alone.
    pub(crate) fn any_of_its_own(&self) -> bool {
        self.tiers.iter().any(|lower| !lower.is_shared())
    }

    /// Returns `true` if the tier with this index never returns an entry after its purge.
    pub(crate) fn carries_out_purges(&self, above: usize) -> bool {
        let lower = self.tiers.get(above);
        lower.is_some_and(|lower| !lower.is_shared() && lower.tier().carries_out_purges())
    }

    /// Purges a primary key in every tier, or notes its removal as pending. Returns `true` if a
    /// tier had an entry.
    pub(crate) async fn purge(&self, primary: KeyRef<'_>, reach: Reach) -> bool {
        let purged = join_all(self.taking(primary).map(|lower| lower.purge(primary, reach))).await;
        purged.contains(&Some(true))
    }

    /// Returns `true` if every tier keeps softly purged entries as stale ones.
    pub(crate) fn carry_out_soft_purges(&self) -> bool {
        self.tiers.iter().all(|lower| lower.tier().carries_out_soft_purges())
    }

    /// Purges a primary key in the tiers of this instance. `None` if a removal is pending.
    pub(crate) async fn purge_its_own(&self, primary: KeyRef<'_>, reach: Reach) -> Option<bool> {
        let its_own = self.taking(primary).filter(|lower| !lower.is_shared());
        let purged = join_all(its_own.map(|lower| lower.purge(primary, reach))).await;
        purged.into_iter().try_fold(false, |any, purged| Some(any | purged?))
    }

    /// Notes the removal of a key from the shared tiers as pending.
    pub(crate) fn owe_shared(&self, primary: KeyRef<'_>) {
        let shared = self.taking(primary).filter(|lower| lower.is_shared());
        shared.for_each(|lower| lower.debts.lock().note(primary));
    }
}

impl LowerTiers {
    /// Records a purge of many keys in every tier. With a bus, shared tiers are purged over it
    /// instead. Returns `true` if all tiers have recorded it.
    pub(crate) async fn keep(&self, what: &Purge, reach: Reach, has_bus: bool) -> bool {
        let keeping = self.tiers.iter().filter(|lower| !(has_bus && lower.is_shared()));
        let kept = join_all(keeping.map(|lower| lower.keep(what, reach))).await;
        let failed = kept.into_iter().filter(|kept| !kept).count();
        self.unkept.fetch_add(failed as u64, Ordering::Relaxed);
        failed == 0
    }

    /// Returns the bookmark of the tiers of this instance. `None` if they differ.
    pub(crate) fn bookmark(&self) -> Option<Bookmark> {
        let mut its_own = self.tiers.iter().filter(|lower| !lower.is_shared());
        let first = its_own.next()?.tier().bookmark()?;
        its_own.all(|lower| lower.tier().bookmark().as_ref() == Some(&first)).then_some(first)
    }

    /// Stores a bookmark in all tiers of this instance. Returns `true` if all have stored it.
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
    /// Returns `true` if other instances use the same entries.
    pub(crate) fn is_shared(&self) -> bool {
        self.tier().is_shared()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.setup.name
    }

    pub(crate) fn tier(&self) -> &Arc<dyn Tier> {
        &self.setup.tier
    }

    /// Returns `true` if the tier stores entries of this key.
    pub(crate) fn takes(&self, primary: KeyRef<'_>) -> bool {
        self.setup.takes(primary)
    }

    /// Starts to write an entry, with at most the lifetime that the tier stores.
    pub(crate) async fn begin(
        &self,
        key: KeyRef<'_>,
        meta: &Meta,
        head: &Bytes,
        mode: WriteMode<'_>,
    ) -> Result<Box<dyn Writer>, TierError> {
        let capped = self.setup.capped(meta);
        self.tier().begin(key, capped.as_ref().unwrap_or(meta), head, mode).await
    }

    /// Returns the time limits.
    pub(crate) fn budget(&self) -> Budget {
        self.guard.budget()
    }

    /// Returns the state of the circuit breaker for reads.
    pub(crate) fn condition(&self) -> Condition {
        self.guard.condition()
    }

    /// Waits for a bypassed tier, for a limited time. Returns `true` if it had to wait, and `None`
    /// if the tier is still bypassed.
    pub(crate) async fn awaited(&self) -> Option<bool> {
        if self.condition() == Condition::Closed {
            return Some(false);
        }
        timeout(AWAIT_MAX, self.guard.is_read_again()).await.ok().map(|()| true)
    }

    /// Runs one operation. A failure is noted and returned as `None`.
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

    /// Returns `true` if a lookup by a flight that may load should request the lease, too.
    pub(crate) fn is_asked_for_leases(&self) -> bool {
        self.outlook.is_for_leases(self.budget().read)
    }

    /// Runs a lookup, by a plain read or a request for the lease. Its result decides the strategy
    /// of later lookups.
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

    /// Runs one operation, and returns its failure. A bypassed tier is not called.
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
        self.observer.observe(Event::TierCalled { tier: self.name(), op, took });
        if matches!(op, OPEN | LEASE) {
            self.outlook.note_time(took);
        }
        match &result {
            Ok(_) | Err(TierError::TooLarge | TierError::Withdrawn | TierError::Outdated) => {
                self.guard.worked(access);
            }
            // Another tier has used up the shared time.
            Err(TierError::TimedOut) if !is_fair => self.failed(op),
            // A tier that grants no leases has answered. The next read detects other failures.
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

    /// Removes a key, or makes it stale. Returns `true` if there was an entry, and `None` if its
    /// removal is pending now.
    async fn purge(&self, primary: KeyRef<'_>, reach: Reach) -> Option<bool> {
        let mut deadline = Deadline::within(self.budget().write);
        let purging = || match reach {
            Reach::Soft => self.tier().soften(primary),
            Reach::Hard => self.tier().remove(primary),
        };
        let purged = self.run("remove", &mut deadline, purging).await;
        if purged.is_none() {
            self.debts.lock().note(primary);
        }
        purged
    }

    /// Records a purge of many keys. A failing tier is called all the same, without its circuit
    /// breaker.
    async fn keep(&self, what: &Purge, reach: Reach) -> bool {
        let recording = || match reach {
            Reach::Soft => self.tier().soft_purge(what),
            Reach::Hard => self.tier().purge(what),
        };
        let keeping = timeout(KEEP_MAX, caught(recording));
        let kept = matches!(keeping.await, Ok(Ok(())));
        if !kept {
            self.observer.observe(Event::PurgeNotRecorded(self.name()));
        }
        kept
    }

    /// Stores a bookmark, without the circuit breaker.
    async fn keep_bookmark(&self, bookmark: &Bookmark, chain: Chain) -> bool {
        let keeping = timeout(KEEP_MAX, caught(|| self.tier().keep_bookmark(bookmark, chain)));
        matches!(keeping.await, Ok(Ok(())))
    }

    /// Reads a record for a report, by the deadline. Neither the circuit breaker nor the observer
    /// learns of it.
    pub(crate) async fn inspect(
        &self,
        key: KeyRef<'_>,
        deadline: &mut Deadline,
    ) -> Result<Option<Stored>, TierError> {
        deadline.race(caught(|| self.tier().peek(key))).await.unwrap_or(Err(TierError::TimedOut))
    }

    /// Returns `true` if a removal of the key is pending, so that the tier is not read for it.
    pub(crate) fn is_purge_pending(&self, primary: KeyRef<'_>) -> bool {
        self.debts.lock().of(primary) != Debt::Nothing
    }

    /// Carries out a pending removal. Returns `true` if the tier may be used for the key.
    pub(crate) async fn is_clear(&self, primary: KeyRef<'_>, deadline: &mut Deadline) -> bool {
        let owed = self.debts.lock().of(primary);
        let number = match owed {
            Debt::Nothing => return true,
            Debt::Everything => return false,
            Debt::Removal(number) => number,
        };
        let removed = self.run("remove", deadline, || self.tier().remove(primary)).await;
        removed.is_some() && self.debts.lock().forgive(primary, number)
    }
}
