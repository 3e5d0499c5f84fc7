//! List of waiting tasks.
//!
//! It uses no primitive of a runtime: flights and bodies run under any executor, including one that
//! explores their interleavings.

use std::task::Waker;

/// Place of a waiting task. It is void after all tasks have been woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    round: u64,
    place: usize,
}

/// Waiting tasks, bounded by the number of callers that wait at once, each of which has one place.
/// A caller that goes away returns its place: a slow origin and impatient callers must not grow the
/// list.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    round: u64,
    waiting: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Wakers {
    pub(crate) const fn new() -> Self {
        Self { round: 0, waiting: Vec::new(), free: Vec::new() }
    }

    /// Registers a task, or renews its registration.
    pub(crate) fn register(&mut self, ticket: &mut Option<Ticket>, waker: &Waker) {
        if let Some(held) = ticket.filter(|held| held.round == self.round)
            && let Some(registered) = &mut self.waiting[held.place]
        {
            registered.clone_from(waker);
            return;
        }
        let waker = Some(waker.clone());
        let place = self.free.pop().unwrap_or(self.waiting.len());
        if place == self.waiting.len() {
            self.waiting.push(waker);
        } else {
            self.waiting[place] = waker;
        }
        *ticket = Some(Ticket { round: self.round, place });
    }

    /// Returns a place, unless its task has been woken already.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if ticket.round == self.round && self.waiting[ticket.place].take().is_some() {
            self.free.push(ticket.place);
        }
    }

    /// Number of waiting tasks.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len() - self.free.len()
    }

    /// Takes all waiting tasks, to be woken after the lock is released.
    #[must_use]
    pub(crate) fn take(&mut self) -> Vec<Option<Waker>> {
        self.round += 1;
        self.free.clear();
        std::mem::take(&mut self.waiting)
    }
}

/// Wakes tasks. Call it without holding a lock: a woken task may run at once.
pub(crate) fn wake_all(wakers: Vec<Option<Waker>>) {
    wakers.into_iter().flatten().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_goes_away_leaves_nothing_behind_and_is_not_woken() {
        let woken = Arc::new(Counted(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut wakers = Wakers::default();
        let mut stays = None;
        wakers.register(&mut stays, &waker);
        for _ in 0..1_000 {
            let mut goes = None;
            wakers.register(&mut goes, &waker);
            wakers.leave(goes.expect("it has just been registered"));
        }
        assert_eq!((wakers.count(), wakers.waiting.len()), (1, 2));
        wakers.register(&mut stays, &waker);
        wake_all(wakers.take());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&woken), 2, "no waker is kept");
    }

    #[test]
    fn a_ticket_is_void_once_everybody_has_been_woken() {
        let waker = Waker::noop();
        let mut wakers = Wakers::default();
        let (mut old, mut new) = (None, None);
        wakers.register(&mut old, waker);
        wake_all(wakers.take());
        wakers.register(&mut new, waker);
        wakers.leave(old.expect("it was registered"));
        assert_eq!(wakers.count(), 1, "an old ticket does not give a new place away");
        wakers.register(&mut old, waker);
        assert_eq!(wakers.count(), 2);
        assert_ne!(old, new);
    }
}
