//! The tiers below memory as the engine reaches them: within a time, past a panic, and without
//! what they could not be purged of.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::{Condition, Key, KeyRef, Purge};
use futures_util::FutureExt;
use futures_util::future::{Either, join_all, select};
use tokio::time::{Sleep, timeout};

use super::guard::{Access, Guard};
use super::outlook::Outlook;
use super::{Budget, Stored, Tier, TierError};
use crate::bus::{Bookmark, Chain};
use crate::clock::Clock;
use crate::event::{Event, Observer};
use crate::lease::Lease;
use crate::sync::Mutex;

/// How many entries may be on their way into tiers at once. Beyond it they are not stored there:
/// a slow tier must not collect bodies.
const WRITES_MAX: usize = 256;

/// How many bytes of whole bodies may be on their way into tiers at once.
const WRITE_BYTES_MAX: u64 = 64 << 20;

/// How long a body that is whole waits for a tier that is being left alone. Most outages are
/// restarts, and what was loaded meanwhile would be loaded again by everybody else.
const AWAIT_MAX: Duration = Duration::from_secs(1);

/// How many keys a tier may owe the removal of. Beyond it the tier is used no more.
const DEBTS_MAX: usize = 10_000;

/// How long a tier may take to write down a purge of many. Only who purges waits for it, and a
/// purge that is lost with the process is worse than one that takes its time.
const KEEP_MAX: Duration = Duration::from_secs(5);

/// What asking for a lease is called.
const LEASE: &str = "lease";

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

/// The removals that a tier has failed to carry out. What stands there under such a key was
/// purged, so the tier is not read for the key until the removal has been made up for.
#[derive(Debug, Default)]
struct Debts {
    keys: HashMap<Key, u64, ahash::RandomState>,
    noted: u64,
    too_many: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Debt {
    Nothing,
    /// A removal, and its number: another one may come while it is made up for.
    Removal(u64),
    Everything,
}

/// What is on its way into tiers.
#[derive(Default)]
struct Writes {
    count: AtomicUsize,
    bytes: AtomicU64,
}

/// A write under way; dropping it makes room for another.
pub(crate) struct Turn {
    writes: Arc<Writes>,
    bytes: u64,
}

/// The end of the time for something, shared by all its steps.
pub(crate) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    is_over: bool,
}

impl LowerTiers {
    pub(crate) fn new(
        tiers: Vec<Arc<dyn Tier>>,
        (clock, observer): (&Arc<dyn Clock>, &Arc<dyn Observer>),
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

    /// The right to write so many bytes to a tier; nothing if as much as allowed is on its way. A
    /// single body may be larger than all of it.
    pub(crate) fn turn(&self, bytes: u64) -> Option<Turn> {
        let writes = &self.writes;
        let room = |count: usize| (count < WRITES_MAX).then_some(count + 1);
        writes.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        let before = writes.bytes.fetch_add(bytes, Ordering::Relaxed);
        let turn = Turn { writes: writes.clone(), bytes };
        (before == 0 || before.saturating_add(bytes) <= WRITE_BYTES_MAX).then_some(turn)
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

    /// How many entries are on their way into tiers.
    pub(crate) fn writes(&self) -> usize {
        self.writes.count.load(Ordering::Relaxed)
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

    /// Reads one record.
    pub(crate) async fn open<F>(
        &self,
        deadline: &mut Deadline,
        begin: impl FnOnce() -> F,
    ) -> Result<Option<Stored>, TierError>
    where
        F: Future<Output = Result<Option<Stored>, TierError>>,
    {
        let opened = self.attempt("open", deadline, begin).await;
        if let Ok(record) = &opened {
            self.outlook.note(record.is_some());
        }
        opened
    }

    /// Reads one record, or asks for the lease of what is not here, in one.
    pub(crate) async fn look<F>(
        &self,
        deadline: &mut Deadline,
        begin: impl FnOnce() -> F,
    ) -> Result<Lease, TierError>
    where
        F: Future<Output = Result<Lease, TierError>>,
    {
        let leased = self.lease(deadline, begin).await;
        if let Ok(lease) = &leased {
            self.outlook.note(matches!(lease, Lease::Filled(_)));
        }
        leased
    }

    /// Asks for the lease of what was looked for here. Where none is given, there may be reading.
    pub(crate) async fn lease<F>(
        &self,
        deadline: &mut Deadline,
        begin: impl FnOnce() -> F,
    ) -> Result<Lease, TierError>
    where
        F: Future<Output = Result<Lease, TierError>>,
    {
        self.attempt(LEASE, deadline, begin).await
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
            return Err(TierError::LeftAlone);
        }
        let began = self.guard.exact();
        let is_fair = deadline.leaves(self.budget().read / 2);
        // A tier may panic before it has made its future, too.
        let operation = AssertUnwindSafe(async { begin().await }).catch_unwind();
        let result = match deadline.race(operation).await {
            None => Err(TierError::TimedOut),
            Some(Err(panic)) => Err(panicked(&*panic)),
            Some(Ok(result)) => result,
        };
        let took = self.guard.exact().saturating_sub(began);
        self.observer.observe(Event::TierAsked { tier: self.name(), op, took });
        if matches!(op, "open" | LEASE) {
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
        let keeping = AssertUnwindSafe(async { self.tier.purge(what).await }).catch_unwind();
        let kept = matches!(timeout(KEEP_MAX, keeping).await, Ok(Ok(Ok(()))));
        if !kept {
            self.observer.observe(Event::PurgeNotKept(self.name()));
        }
        kept
    }

    /// Breakers are not asked here, either.
    async fn keep_bookmark(&self, bookmark: &Bookmark, chain: Chain) -> bool {
        let keeping = async { self.tier.keep_bookmark(bookmark, chain).await };
        let kept = timeout(KEEP_MAX, AssertUnwindSafe(keeping).catch_unwind()).await;
        matches!(kept, Ok(Ok(Ok(()))))
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

impl Debts {
    fn of(&self, primary: KeyRef<'_>) -> Debt {
        if self.too_many {
            return Debt::Everything;
        }
        if self.keys.is_empty() {
            return Debt::Nothing;
        }
        self.keys.get(primary.bytes()).map_or(Debt::Nothing, |number| Debt::Removal(*number))
    }

    fn note(&mut self, primary: KeyRef<'_>) {
        if self.too_many {
            return;
        }
        self.noted += 1;
        self.keys.insert(primary.to_key(), self.noted);
        self.too_many = self.keys.len() > DEBTS_MAX;
    }

    fn forgive(&mut self, primary: KeyRef<'_>, number: u64) -> bool {
        let is_paid = self.of(primary) == Debt::Removal(number);
        if is_paid {
            self.keys.remove(primary.bytes());
        }
        // Somebody else may have made up for the same removal.
        self.of(primary) == Debt::Nothing
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.writes.count.fetch_sub(1, Ordering::Relaxed);
        self.writes.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Deadline {
    pub(crate) fn within(span: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(span)), is_over: false }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether that much of it is left, by a timer's own clock.
    fn leaves(&self, span: Duration) -> bool {
        self.sleep.deadline() >= tokio::time::sleep(span).deadline()
    }

    /// What comes of `future`, if it comes in time.
    async fn race<F: Future>(&mut self, future: F) -> Option<F::Output> {
        if self.is_over {
            return None;
        }
        match select(pin!(future), &mut self.sleep).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => {
                self.is_over = true;
                None
            }
        }
    }
}

fn panicked(payload: &(dyn Any + Send)) -> TierError {
    TierError::failed(crate::load::LoadError::panicked(payload))
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    #[test]
    fn a_removal_that_is_owed_again_meanwhile_is_not_forgiven() {
        let mut debts = Debts::default();
        let key = KeyBuf::new("test");
        let key = key.borrowed();
        assert_eq!(debts.of(key), Debt::Nothing);
        debts.note(key);
        debts.note(key);
        assert!(!debts.forgive(key, 1));
        assert_eq!(debts.of(key), Debt::Removal(2));
        assert!(debts.forgive(key, 2));
        assert_eq!(debts.of(key), Debt::Nothing);
    }

    #[test]
    fn what_is_on_its_way_into_tiers_is_bounded_in_number_and_in_bytes() {
        let clock: Arc<dyn Clock> = Arc::new(crate::clock::SystemClock);
        let lower = LowerTiers::new(Vec::new(), (&clock, &(Arc::new(()) as Arc<dyn Observer>)));
        let small: Vec<_> = (0..WRITES_MAX).map(|_| lower.turn(1).expect("room")).collect();
        assert!(lower.turn(1).is_none(), "as many as may");
        drop(small);
        let large = lower.turn(WRITE_BYTES_MAX + 1).expect("alone, it may be as large as it is");
        assert!(lower.turn(1).is_none(), "as much as may");
        drop(large);
        let half = lower.turn(WRITE_BYTES_MAX / 2).expect("room");
        assert!(lower.turn(WRITE_BYTES_MAX).is_none());
        assert!(lower.turn(WRITE_BYTES_MAX / 2).is_some());
        drop(half);
        assert_eq!(lower.writes.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_tier_that_owes_too_much_is_used_no_more() {
        let mut debts = Debts::default();
        for number in 0..=DEBTS_MAX as u64 {
            let key = KeyBuf::new("test").part(&number.to_le_bytes()).clone();
            debts.note(key.borrowed());
        }
        assert_eq!(debts.of(KeyBuf::new("other").borrowed()), Debt::Everything);
    }
}
