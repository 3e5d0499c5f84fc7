//! Number of the running thread, which selects its stripe of counters and its ring of the live feed.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the number of this thread. Threads get numbers from 0, in the order of their first call.
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
