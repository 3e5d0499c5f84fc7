//! The tiers below memory as the engine reaches them: within a time, past a panic, and without
//! what they could not be purged of.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::{Key, KeyRef};
use futures_util::FutureExt;
use futures_util::future::{Either, join_all, select};
use tokio::time::Sleep;

use super::{Tier, TierError};
use crate::event::{Event, Observer};
use crate::sync::Mutex;

/// What one operation may take that changes a tier; far more than a healthy one needs.
pub(crate) const WRITE_MAX: Duration = Duration::from_millis(100);

/// How many entries may be on their way into tiers at once. Beyond it they are not stored there:
/// a slow tier must not collect bodies.
const WRITES_MAX: usize = 256;

/// How many keys a tier may owe the removal of. Beyond it the tier is used no more.
const DEBTS_MAX: usize = 10_000;

/// All tiers below memory, from the uppermost on.
pub(crate) struct LowerTiers {
    tiers: Box<[LowerTier]>,
    writes: Arc<AtomicUsize>,
}

/// One of them.
pub(crate) struct LowerTier {
    pub(crate) tier: Arc<dyn Tier>,
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

/// A write under way; dropping it makes room for another.
pub(crate) struct Turn(Arc<AtomicUsize>);

/// The end of the time for something, shared by all its steps.
pub(crate) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    is_over: bool,
}

impl LowerTiers {
    pub(crate) fn new(tiers: Vec<Arc<dyn Tier>>, observer: &Arc<dyn Observer>) -> Self {
        let lower = |tier| LowerTier { tier, debts: Mutex::default(), observer: observer.clone() };
        Self { tiers: tiers.into_iter().map(lower).collect(), writes: Arc::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    pub(crate) fn all(&self) -> &[LowerTier] {
        &self.tiers
    }

    /// The right to write to a tier; nothing if as many as allowed are writing.
    pub(crate) fn turn(&self) -> Option<Turn> {
        let room = |count: usize| (count < WRITES_MAX).then_some(count + 1);
        self.writes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Turn(self.writes.clone()))
    }

    /// Removes a primary key from every tier, or remembers that it has to be. `true` if any had
    /// something.
    pub(crate) async fn remove(&self, primary: KeyRef<'_>) -> bool {
        let removed = join_all(self.tiers.iter().map(|lower| lower.purge(primary))).await;
        removed.into_iter().any(|removed| removed)
    }
}

impl LowerTier {
    pub(crate) fn name(&self) -> &'static str {
        self.tier.name()
    }

    /// Notes a failure where it is one.
    fn failed(&self, op: &'static str, error: &TierError) {
        if !matches!(error, TierError::TooLarge) {
            self.observer.observe(Event::TierFailed { tier: self.name(), op });
        }
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
        // A tier may panic before it has made its future, too.
        let operation = AssertUnwindSafe(async { begin().await }).catch_unwind();
        let result = match deadline.race(operation).await {
            None => Err(TierError::TimedOut),
            Some(Err(panic)) => Err(panicked(&*panic)),
            Some(Ok(result)) => result,
        };
        result.inspect_err(|error| self.failed(op, error)).ok()
    }

    async fn purge(&self, primary: KeyRef<'_>) -> bool {
        let mut deadline = Deadline::within(WRITE_MAX);
        let removed = self.run("remove", &mut deadline, || self.tier.remove(primary)).await;
        if removed.is_none() {
            self.debts.lock().note(primary);
        }
        removed.unwrap_or(false)
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
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deadline {
    pub(crate) fn within(span: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(span)), is_over: false }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
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
    fn a_tier_that_owes_too_much_is_used_no_more() {
        let mut debts = Debts::default();
        for number in 0..=DEBTS_MAX as u64 {
            let key = KeyBuf::new("test").part(&number.to_le_bytes()).clone();
            debts.note(key.borrowed());
        }
        assert_eq!(debts.of(KeyBuf::new("other").borrowed()), Debt::Everything);
    }
}
