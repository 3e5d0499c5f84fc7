//! Size limits of a disk tier.

use std::time::Duration;

use crate::format::layout::ALIGN;

/// Maximum time that a program waits for [`Disk::loaded`](crate::Disk::loaded) before it serves. It
/// is usually shorter; the limit keeps a large directory from delaying the start of a service.
/// Loading continues after it.
pub const INDEX_WAIT_MAX: Duration = Duration::from_secs(5);

/// Usual number of segments, so that one eviction frees a small part.
const SEGMENTS: u64 = 64;

/// Usual maximum bytes of a segment.
const SEGMENT_USUAL_MAX: u64 = 64 << 20;

/// Maximum number of segments of a very large directory; each is an open file.
const SEGMENTS_MAX: u64 = 1_024;

/// Minimum bytes of a segment, so that every entry with an inline body fits.
const SEGMENT_MIN: u64 = 4 << 20;

/// Minimum number of segments, so that one eviction never frees everything.
const SEGMENTS_MIN: u64 = 4;

/// Maximum bytes of a segment: offsets have 32 bits, and a footer follows.
const SEGMENT_MAX: u64 = 2 << 30;

/// Size limits of a disk tier, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum total bytes of all files; at least 16 MiB. For a short time, up to one segment more
    /// can be in use. A segment has a 64th of this size, but at least 4 MiB and at most 64 MiB; if
    /// this size is above 64 GiB, a 1,024th, at most 2 GiB.
    pub size: u64,
    /// Maximum size of a body that is stored, in bytes.
    pub object_max: u64,
}

impl Limits {
    /// Returns limits of `size` bytes for all files, and a quarter of that for one body.
    #[must_use]
    pub const fn of(size: u64) -> Self {
        Self { size, object_max: size / 4 }
    }

    pub(crate) fn segment_max(self) -> u32 {
        let usual = (self.size / SEGMENTS).min(SEGMENT_USUAL_MAX);
        let len = usual.max(self.size / SEGMENTS_MAX).clamp(SEGMENT_MIN, SEGMENT_MAX);
        let len = len.min(self.size / SEGMENTS_MIN);
        u32::try_from(len).unwrap_or(u32::MAX) / ALIGN * ALIGN
    }
}
