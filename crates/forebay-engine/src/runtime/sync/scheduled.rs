//! Locks, atomics and tasks under a scheduler that explores interleavings: each operation is a
//! point at which another task may run.

use std::cell::Cell;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::PoisonError;
use std::time::Duration;

use quick_cache::{Lifecycle, Options, Weighter};
use shuttle::future::JoinHandle;
use shuttle::sync as scheduled;

pub(crate) use shuttle::sync::{MutexGuard, atomic};

thread_local! {
    /// The tasks of the schedule that this thread runs.
    static TASKS: Cell<usize> = const { Cell::new(0) };
}

/// Spawns a task, which the schedule has to wait for: see [`schedule`].
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    TASKS.set(TASKS.get() + 1);
    shuttle::future::spawn(async {
        let output = task.await;
        TASKS.set(TASKS.get() - 1);
        output
    })
}

/// Time does not pass under the scheduler: a wait that does not end is reported as a deadlock.
pub(crate) async fn timeout<F: Future>(_: Duration, future: F) -> Result<F::Output, ()> {
    Ok(future.await)
}

/// Runs all of a schedule, to the end of every task.
pub(crate) fn schedule(scenario: impl FnOnce()) {
    TASKS.set(0);
    scenario();
    finish_tasks();
}

/// Waits until all tasks have ended for which no other task waits. A schedule must not end before:
/// the futures of cancelled tasks could not be dropped.
pub(crate) fn finish_tasks() {
    while TASKS.get() > 0 {
        shuttle::thread::yield_now();
    }
}

/// Always the same, so that a schedule can be repeated.
pub(crate) fn hasher() -> ahash::RandomState {
    ahash::RandomState::with_seeds(1, 2, 3, 4)
}

/// A lock that no panic poisons, as the one in its place.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(scheduled::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(scheduled::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that no panic poisons, as the one in its place.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(scheduled::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(scheduled::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> scheduled::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> scheduled::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store itself, unchanged. Each of its operations is one step to those who use it, so it is
/// enough that another task may run before each.
#[derive(Debug)]
pub(crate) struct Cache<K, V, W, B, L> {
    store: quick_cache::sync::Cache<K, V, W, B, L>,
    before_each: atomic::AtomicBool,
}

impl<K, V, W, B, L> Cache<K, V, W, B, L>
where
    K: Eq + Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
    B: BuildHasher + Clone,
    L: Lifecycle<K, V> + Clone,
{
    pub(crate) fn with_options(options: Options, weighter: W, hasher: B, lifecycle: L) -> Self {
        let store = quick_cache::sync::Cache::with_options(options, weighter, hasher, lifecycle);
        Self { store, before_each: atomic::AtomicBool::new(false) }
    }
}

impl<K, V, W, B, L> Deref for Cache<K, V, W, B, L> {
    type Target = quick_cache::sync::Cache<K, V, W, B, L>;

    fn deref(&self) -> &Self::Target {
        self.before_each.load(atomic::Ordering::SeqCst);
        &self.store
    }
}
