//! The tasks that wait for one thing.
//!
//! No primitive of a runtime: flights and bodies run under any executor, and under one that
//! explores their interleavings.

use std::task::Waker;

/// A waiting task's place. It is void once everybody has been woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    round: u64,
    place: usize,
}

/// The tasks that wait; bounded by the number of callers, each of which holds one place.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    round: u64,
    waiting: Vec<Waker>,
}

impl Wakers {
    /// Registers a task, or renews its registration.
    pub(crate) fn register(&mut self, ticket: &mut Option<Ticket>, waker: &Waker) {
        if let Some(held) = ticket.filter(|held| held.round == self.round) {
            self.waiting[held.place].clone_from(waker);
            return;
        }
        *ticket = Some(Ticket { round: self.round, place: self.waiting.len() });
        self.waiting.push(waker.clone());
    }

    /// Takes all waiting tasks out, to be woken when the lock has been given back.
    #[must_use]
    pub(crate) fn take(&mut self) -> Vec<Waker> {
        self.round += 1;
        std::mem::take(&mut self.waiting)
    }
}

/// Wakes them. Not to be called under a lock: a woken task may run at once.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
