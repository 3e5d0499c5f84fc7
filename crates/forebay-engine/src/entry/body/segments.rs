//! Segments: pieces of any size, collected into blocks of one size.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::runtime::sync::Mutex;

/// Size of the memory of a segment: small, so that a stalled connection keeps little; large enough
/// that a body takes few writes. In segments of 64 KiB, 1 MiB costs nearly twice the kernel time of
/// one write; in these, a tenth more at most.
const MEMORY: usize = 256 << 10;

/// Offset of the bytes of a segment in its memory. Allocators place large blocks at the start of a
/// page, and a TLS record has its content a few bytes behind the start of a block. Processors with
/// the Zen architecture copy at a tenth of their speed to an address that is up to 15 bytes above
/// that of the source, modulo the page size.
const OFFSET: usize = 64;

/// Length of a full segment in bytes.
pub(crate) const SEGMENT: usize = MEMORY - OFFSET;

/// Overhead of a segment: its handle, and the allocator's record.
pub(super) const SEGMENT_OVERHEAD: u64 = 96 + OFFSET as u64;

/// Maximum memory kept for later segments.
const IDLE_MAX: u64 = 16 << 20;

/// Memory of dropped segments, for later ones: at most [`IDLE_MAX`], and at most half of the memory
/// that the bodies in flight leave free, so that there is memory for a body that grows.
///
/// An allocator keeps memory that one thread frees for that thread. With bodies on several threads,
/// each thread would keep memory that another one needs, and the process would hold twice the
/// memory in use.
pub(crate) struct Idle {
    segments: Mutex<Vec<Vec<u8>>>,
    /// Number of segments. A thread that adds one stores the number and then reads `segments_max`.
    /// A thread that lowers `segments_max` stores it and then reads the number. So at least one of
    /// them sees an excess.
    count: AtomicUsize,
    segments_max: AtomicUsize,
}

impl Idle {
    /// Creates a pool for this free memory, in bytes.
    pub(crate) fn new(free: u64) -> Arc<Self> {
        let (segments, count) = (Mutex::default(), AtomicUsize::new(0));
        let idle = Self { segments, count, segments_max: AtomicUsize::new(0) };
        idle.limit(free);
        Arc::new(idle)
    }

    /// Sets the memory that the bodies in flight leave free, in bytes. [`trim`](Self::trim) must
    /// follow.
    pub(crate) fn limit(&self, free: u64) {
        let segments_max = usize::try_from((free / 2).min(IDLE_MAX)).unwrap_or(0) / MEMORY;
        self.segments_max.store(segments_max, Ordering::SeqCst);
    }

    /// Frees the segments that exceed the limit. This takes a while; the caller must not hold the
    /// lock of the bodies in flight.
    pub(crate) fn trim(&self) {
        if self.count.load(Ordering::SeqCst) > self.segments_max.load(Ordering::SeqCst) {
            let excess = self.take_excess(&mut self.segments.lock());
            drop(excess);
        }
    }

    fn take_excess(&self, segments: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.count.store(segments.len(), Ordering::SeqCst);
        let kept = self.segments_max.load(Ordering::SeqCst).min(segments.len());
        self.count.store(kept, Ordering::SeqCst);
        segments.split_off(kept)
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.segments.lock().len()
    }

    #[cfg(test)]
    pub(crate) fn fill(&self) {
        (0..=IDLE_MAX / MEMORY as u64).for_each(|_| self.give_back(Vec::with_capacity(MEMORY)));
    }

    /// Returns memory that is filled up to [`OFFSET`].
    fn take(&self) -> Vec<u8> {
        let mut segments = self.segments.lock();
        let idle = segments.pop();
        self.count.store(segments.len(), Ordering::SeqCst);
        drop(segments);
        let mut memory = idle.unwrap_or_else(|| Vec::with_capacity(MEMORY));
        memory.resize(OFFSET, 0);
        memory
    }

    fn give_back(&self, mut memory: Vec<u8>) {
        memory.clear();
        let mut segments = self.segments.lock();
        segments.push(memory);
        let excess = self.take_excess(&mut segments);
        drop(segments);
        drop(excess);
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Idle({} segments)", self.segments.lock().len())
    }
}

/// Memory of one segment while a part of it is in use.
struct Segment {
    memory: Vec<u8>,
    idle: Arc<Idle>,
}

impl AsRef<[u8]> for Segment {
    fn as_ref(&self) -> &[u8] {
        &self.memory[OFFSET..]
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.idle.give_back(std::mem::take(&mut self.memory));
    }
}

/// Copies the pieces into full segments, and returns the rest unchanged.
pub(super) fn cut(pieces: &[Bytes], idle: &Arc<Idle>) -> (Vec<Bytes>, Vec<Bytes>) {
    let total: usize = pieces.iter().map(Bytes::len).sum();
    let mut full = Vec::with_capacity(total / SEGMENT + 1);
    let mut pieces = pieces.iter().cloned();
    let mut piece = Bytes::new();
    for _ in 0..total / SEGMENT {
        let mut segment = idle.take();
        while segment.len() < MEMORY {
            if piece.is_empty() {
                piece = pieces.next().unwrap_or_default();
            }
            let wanted = (MEMORY - segment.len()).min(piece.len());
            segment.extend_from_slice(&piece.split_to(wanted));
        }
        full.push(Bytes::from_owner(Segment { memory: segment, idle: idle.clone() }));
    }
    let rest = std::iter::once(piece).chain(pieces).filter(|piece| !piece.is_empty());
    (full, rest.collect())
}

/// Joins the pieces into one of exact size, so that no other memory is kept by it.
pub(super) fn join(pieces: &[Bytes]) -> Bytes {
    let mut all = Vec::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    Bytes::from(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_full_and_nothing_is_lost_or_moved() {
        for sizes in [&[1, 2, 3][..], &[SEGMENT], &[SEGMENT + 1, SEGMENT - 1], &[5 * SEGMENT + 7]] {
            let total = sizes.iter().sum::<usize>();
            let bytes: Vec<u8> = (0..total).map(|at| (at / 251).to_le_bytes()[0]).collect();
            let mut left = Bytes::from(bytes.clone());
            let pieces: Vec<_> = sizes.iter().map(|size| left.split_to(*size)).collect();
            let idle = Idle::new(8 * MEMORY as u64);
            let (full, rest) = cut(&pieces, &idle);
            assert!(full.iter().all(|segment| segment.len() == SEGMENT), "{sizes:?}");
            assert_eq!(full.len(), bytes.len() / SEGMENT, "{sizes:?}");
            assert_eq!([&full[..], &rest].concat().concat(), bytes, "{sizes:?}");
            let count = full.len();
            drop(full);
            assert_eq!(idle.count(), count.min(4), "{sizes:?}");
            let again = cut(&pieces, &idle).0;
            assert!(again.concat() == bytes[..count * SEGMENT], "used again");
            drop(again);
            idle.limit(2 * MEMORY as u64);
            idle.trim();
            assert_eq!(idle.count(), count.min(1), "{sizes:?}");
            drop(cut(&pieces, &idle));
            assert_eq!(idle.count(), count.min(1), "{sizes:?}");
        }
    }
}
