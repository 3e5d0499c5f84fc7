//! Pieces of any size, made into segments of one size.

use bytes::Bytes;

/// What one allocation holds of a body: small, so that a connection that stands still pins little
/// and memory that is given back fits whatever comes next; large enough that a body of 1 MiB takes
/// a few writes only.
pub(crate) const SEGMENT: usize = 64 << 10;

/// What a segment costs beside its bytes: its handle, and what the allocator keeps about it.
pub(super) const SEGMENT_OVERHEAD: u64 = 96;

/// As many full segments as there are, copied, and the rest as it came.
pub(super) fn cut(pieces: &[Bytes]) -> (Vec<Bytes>, Vec<Bytes>) {
    let total: usize = pieces.iter().map(Bytes::len).sum();
    let mut full = Vec::with_capacity(total / SEGMENT + 1);
    let mut pieces = pieces.iter().cloned();
    let mut piece = Bytes::new();
    for _ in 0..total / SEGMENT {
        let mut segment = Vec::with_capacity(SEGMENT);
        while segment.len() < SEGMENT {
            if piece.is_empty() {
                piece = pieces.next().unwrap_or_default();
            }
            let wanted = (SEGMENT - segment.len()).min(piece.len());
            segment.extend_from_slice(&piece.split_to(wanted));
        }
        full.push(Bytes::from(segment));
    }
    let rest = std::iter::once(piece).chain(pieces).filter(|piece| !piece.is_empty());
    (full, rest.collect())
}

/// All in one, exact in size, so that nothing else stays pinned by it.
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
            let (full, rest) = cut(&pieces);
            assert!(full.iter().all(|segment| segment.len() == SEGMENT), "{sizes:?}");
            assert_eq!(full.len(), bytes.len() / SEGMENT, "{sizes:?}");
            assert_eq!([full, rest].concat().concat(), bytes, "{sizes:?}");
        }
    }
}
