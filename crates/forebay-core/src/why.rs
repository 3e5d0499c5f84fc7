//! The closed list of reasons for answers that are not fresh hits.

/// Reason for an answer that is not a fresh hit. It appears in `Cache-Status`, in the metrics and in
/// `explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// No entry is stored under this key.
    UriMiss,
    /// Variants are stored under this key, but none for the selecting fields of this request.
    VaryMiss,
    /// The entry is past its freshness lifetime.
    Stale,
    /// The entry is fresh, and is refreshed before it expires, so that no caller waits later.
    EarlyRefresh,
    /// The caller requires an answer that was loaded or validated after its request (HTTP:
    /// `no-cache`).
    RequestRevalidate,
    /// The entry is older than the caller's maximum age.
    RequestMaxAge,
    /// The entry's remaining freshness is below the caller's minimum.
    RequestMinFresh,
    /// The caller forbids storing the answer.
    RequestNoStore,
    /// The stored entry was removed by a hard purge.
    Purged,
    /// The entry was made stale by a soft purge.
    SoftPurged,
    /// A pass marker says that answers for this key may not be shared.
    PassMarked,
    /// The answer of the load that this caller waited for may not be shared with it.
    NotShareable,
    /// Answers to this request method are not stored.
    Method,
    /// The site's configuration or the form of the request bypasses the cache.
    Bypass,
    /// The load failed, and the stored entry was served instead.
    LoadFailed,
    /// The load exceeded the soft timeout, and the stored entry was served meanwhile.
    SoftTimeout,
    /// No load was started, because the last loads of the key failed.
    BackOff,
    /// Only a part of the requested byte range is stored.
    Partial,
    /// A purge by another instance may have invalidated the entry while the bus was disconnected.
    Suspect,
    /// Another instance loaded the answer, while this one waited for it.
    Elsewhere,
}

impl Why {
    /// Every reason, in the order of declaration; for tables and metrics.
    pub const ALL: [Self; 20] = [
        Self::UriMiss,
        Self::VaryMiss,
        Self::Stale,
        Self::EarlyRefresh,
        Self::RequestRevalidate,
        Self::RequestMaxAge,
        Self::RequestMinFresh,
        Self::RequestNoStore,
        Self::Purged,
        Self::SoftPurged,
        Self::PassMarked,
        Self::NotShareable,
        Self::Method,
        Self::Bypass,
        Self::LoadFailed,
        Self::SoftTimeout,
        Self::BackOff,
        Self::Partial,
        Self::Suspect,
        Self::Elsewhere,
    ];

    /// Returns the stable code of the reason why an answer is not a fresh hit, such as `uri-miss`.
    /// `Cache-Status` has it as `detail` where the registered `fwd` value is coarser; metrics and logs
    /// have it as is.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Stale => "stale",
            Self::EarlyRefresh => "early-refresh",
            Self::RequestRevalidate => "request-revalidate",
            Self::RequestMaxAge => "request-max-age",
            Self::RequestMinFresh => "request-min-fresh",
            Self::RequestNoStore => "request-no-store",
            Self::Purged => "purged",
            Self::SoftPurged => "soft-purged",
            Self::PassMarked => "pass-marked",
            Self::NotShareable => "not-shareable",
            Self::Method => "method",
            Self::Bypass => "bypass",
            Self::LoadFailed => "load-failed",
            Self::SoftTimeout => "soft-timeout",
            Self::BackOff => "back-off",
            Self::Partial => "partial",
            Self::Suspect => "suspect",
            Self::Elsewhere => "elsewhere",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_every_reason_in_order_and_codes_are_unique() {
        let mut codes: Vec<_> = Why::ALL.iter().map(|why| why.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Why::ALL.len());
        for (place, why) in Why::ALL.iter().enumerate() {
            assert_eq!(*why as usize, place);
        }
    }
}
