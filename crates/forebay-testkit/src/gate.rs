//! Barrier that a test opens.

use std::sync::Arc;

use tokio::sync::watch;

/// Barrier to wait at until the test opens it. Clones are handles to one gate; it never closes again.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let gate = forebay_testkit::gate::Gate::new();
/// let waiter = tokio::spawn({
///     let gate = gate.clone();
///     async move { gate.wait().await }
/// });
/// gate.wait_waiters(1).await;
/// gate.open();
/// waiter.await.unwrap();
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug)]
struct State {
    needed: usize,
    arrived: usize,
    waiters: usize,
}

impl Gate {
    /// Closed gate that opens at the first [`arrive`](Self::arrive) or [`open`](Self::open).
    pub fn new() -> Self {
        Self::of(1)
    }

    /// Closed gate that opens at the `needed`-th arrival; with 0 it is open from the start.
    pub fn of(needed: usize) -> Self {
        Self(Arc::new(watch::Sender::new(State { needed, arrived: 0, waiters: 0 })))
    }

    /// Opens the gate regardless of arrivals.
    pub fn open(&self) {
        self.0.send_modify(|state| state.arrived = state.arrived.max(state.needed));
    }

    /// Counts one arrival.
    pub fn arrive(&self) {
        self.0.send_modify(|state| state.arrived += 1);
    }

    /// Returns whether the gate is open.
    pub fn is_open(&self) -> bool {
        self.0.borrow().is_open()
    }

    /// Number of arrivals so far, and number that opens the gate.
    pub fn arrivals(&self) -> (usize, usize) {
        let state = *self.0.borrow();
        (state.arrived, state.needed)
    }

    /// Number of tasks that wait now.
    pub fn waiters(&self) -> usize {
        self.0.borrow().waiters
    }

    /// Waits until the gate is open. The caller must limit the time.
    pub async fn wait(&self) {
        if self.is_open() {
            return;
        }
        let _waiter = Waiter::at(&self.0);
        self.until(State::is_open).await;
    }

    /// Waits until at least `count` tasks wait at the gate. The caller must limit the time.
    pub async fn wait_waiters(&self, count: usize) {
        self.until(|state| state.waiters >= count).await;
    }

    async fn until(&self, condition: impl Fn(&State) -> bool) {
        // The gate holds the sender, so the channel cannot close during the wait.
        let _ = self.0.subscribe().wait_for(condition).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn is_open(&self) -> bool {
        self.arrived >= self.needed
    }
}

/// Counts one waiting task, also if its future is dropped.
struct Waiter<'a>(&'a watch::Sender<State>);

impl<'a> Waiter<'a> {
    fn at(gate: &'a watch::Sender<State>) -> Self {
        gate.send_modify(|state| state.waiters += 1);
        Self(gate)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.waiters -= 1);
    }
}
