//! Size of heap allocations, as an allocator makes them.
//!
//! The bound of a cache is a bound on resident memory, so an entry is charged the memory that its
//! allocations take, not the bytes that it asked for.

/// Bytes of the two reference counts in an `Arc` allocation.
pub const ARC_OVERHEAD: usize = 2 * size_of::<usize>();

/// Distance between two sizes of small allocations, which are at most [`SMALL_MAX`].
const STEP: usize = 16;

const SMALL_MAX: usize = 128;

/// Number of sizes between one power of two and the next, beyond the small ones.
const PER_DOUBLING: usize = 4;

/// Returns the memory that an allocation of this many bytes takes. mimalloc and jemalloc have these
/// sizes; the GNU C library has sizes in steps of 16 and adds 8 bytes.
#[must_use]
pub const fn allocated(bytes: usize) -> usize {
    if bytes <= SMALL_MAX {
        return bytes.next_multiple_of(STEP);
    }
    let step = 1 << ((bytes - 1).ilog2() - PER_DOUBLING.ilog2());
    match bytes.checked_next_multiple_of(step) {
        Some(taken) => taken,
        None => usize::MAX,
    }
}

/// Returns the memory of a value of this size in an `Arc`.
#[must_use]
pub const fn shared(bytes: usize) -> usize {
    allocated(bytes.saturating_add(ARC_OVERHEAD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_takes_the_next_size() {
        let rows = [
            (0, 0),
            (1, 16),
            (24, 32),
            (40, 48),
            (128, 128),
            (129, 160),
            (250, 256),
            (257, 320),
            (1_025, 1_280),
            (262_144, 262_144),
            (usize::MAX, usize::MAX),
        ];
        for (bytes, expected) in rows {
            assert_eq!(allocated(bytes), expected, "{bytes}");
        }
        assert_eq!(shared(24), 48);
    }
}
