//! Bound on pending writes to tiers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of entries being written. More are not stored in tiers: a slow tier must not
/// collect bodies.
const WRITES_MAX: usize = 256;

/// Maximum total size of complete bodies being written.
const WRITE_BYTES_MAX: u64 = 64 << 20;

/// Entries being written.
#[derive(Default)]
pub(super) struct Writes {
    count: AtomicUsize,
    bytes: AtomicU64,
}

/// Write in progress; dropping it allows another.
pub(crate) struct Turn {
    writes: Arc<Writes>,
    bytes: u64,
}

impl Writes {
    /// Reserves a write. `None` if the bound is reached. A single body may exceed the bound in
    /// bytes.
    pub(super) fn turn(self: &Arc<Self>, bytes: u64) -> Option<Turn> {
        let room = |count: usize| (count < WRITES_MAX).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let turn = Turn { writes: self.clone(), bytes };
        (before == 0 || before.saturating_add(bytes) <= WRITE_BYTES_MAX).then_some(turn)
    }

    /// Number of entries being written.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.writes.count.fetch_sub(1, Ordering::Relaxed);
        self.writes.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_into_tiers_is_bounded_in_number_and_in_bytes() {
        let writes = Arc::new(Writes::default());
        let small: Vec<_> = (0..WRITES_MAX).map(|_| writes.turn(1).expect("room")).collect();
        assert!(writes.turn(1).is_none(), "as many as may");
        drop(small);
        let large = writes.turn(WRITE_BYTES_MAX + 1).expect("alone, it may be as large as it is");
        assert!(writes.turn(1).is_none(), "as much as may");
        drop(large);
        let half = writes.turn(WRITE_BYTES_MAX / 2).expect("room");
        assert!(writes.turn(WRITE_BYTES_MAX).is_none());
        assert!(writes.turn(WRITE_BYTES_MAX / 2).is_some());
        drop(half);
        assert_eq!((writes.count(), writes.bytes.load(Ordering::Relaxed)), (0, 0));
    }
}
