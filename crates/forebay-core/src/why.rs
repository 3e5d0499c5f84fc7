//! The closed list of reasons for answers that are not fresh hits.

/// Reason why a request was not answered by a plain hit: a fresh entry of memory, without a load.
/// It appears in `Cache-Status`, in the metrics and in `explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// Memory has no entry under this key. A lower tier may have one, and may answer.
    UriMiss,
    /// Memory has variants under this key, but none for the selecting fields of this request. A
    /// lower tier may have one, and may answer.
    VaryMiss,
    /// The entry in memory is past its freshness lifetime.
    Stale,
    /// The entry is fresh and was served. A load refreshes it before it expires, so that no caller
    /// waits later.
    EarlyRefresh,
    /// The caller requires an answer that was loaded or validated after its request (HTTP:
    /// `no-cache`).
    RequestRevalidate,
    /// The entry is older than the caller's maximum age.
    RequestMaxAge,
    /// The entry's remaining freshness is below the caller's minimum.
    RequestMinFresh,
    /// The caller requires a younger or validated answer, but the site's limit on such requests
    /// (`client_reloads_max`) is exceeded: it got the fresh entry of memory.
    ReloadLimited,
    /// Memory did not answer, and the caller forbids storing the answer: it got a load of its own.
    RequestNoStore,
    /// The entry in memory was removed by a hard purge by tag, prefix or site, or of everything.
    /// After a purge by key, the reason is [`UriMiss`](Self::UriMiss).
    Purged,
    /// The entry in memory was made stale by a soft purge.
    SoftPurged,
    /// A pass marker says that answers for this key may not be shared, or are never fresh: the
    /// caller got a load of its own.
    PassMarked,
    /// The loads that this caller waited for gave no answer that it may get: it got a load of its
    /// own.
    NotShareable,
    /// The request method is neither GET nor HEAD, and the request was forwarded without a lookup.
    Method,
    /// The form of the request bypasses the cache: a body in a GET, a protocol switch, `If-Match`
    /// or `If-Unmodified-Since`. Or the caller shares no load (`coalesce = false`), and memory did
    /// not answer.
    Bypass,
    /// A rule of the site bypasses the cache, or answers the request itself.
    Rule,
    /// The load failed, and the stored entry was served instead.
    LoadFailed,
    /// The load exceeded the soft timeout, or the wait for another instance its limit. The stored
    /// entry was served meanwhile.
    SoftTimeout,
    /// No load was started, because the last loads of the key failed. The stored entry was served.
    BackOff,
    /// Byte ranges of the body are stored, but they do not contain the whole requested range.
    Partial,
    /// A purge by another instance that this instance may have missed may have invalidated the
    /// entry. It was revalidated, or served during its grace period.
    Suspect,
    /// Another instance loaded the answer, while this one waited for it. Only a detail in
    /// `Cache-Status`: metrics have the reason why memory did not answer.
    Elsewhere,
}

impl Why {
    /// Every reason, in the order of declaration; for tables and metrics.
    pub const ALL: [Self; 22] = [
        Self::UriMiss,
        Self::VaryMiss,
        Self::Stale,
        Self::EarlyRefresh,
        Self::RequestRevalidate,
        Self::RequestMaxAge,
        Self::RequestMinFresh,
        Self::ReloadLimited,
        Self::RequestNoStore,
        Self::Purged,
        Self::SoftPurged,
        Self::PassMarked,
        Self::NotShareable,
        Self::Method,
        Self::Bypass,
        Self::Rule,
        Self::LoadFailed,
        Self::SoftTimeout,
        Self::BackOff,
        Self::Partial,
        Self::Suspect,
        Self::Elsewhere,
    ];

    /// Returns the stable code of the reason why an answer is not a fresh hit, such as `uri-miss`.
    /// `Cache-Status` has it as `detail` where the registered `fwd` value is coarser; metrics and
    /// `explain` have it as is.
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
            Self::ReloadLimited => "reload-limited",
            Self::RequestNoStore => "request-no-store",
            Self::Purged => "purged",
            Self::SoftPurged => "soft-purged",
            Self::PassMarked => "pass-marked",
            Self::NotShareable => "not-shareable",
            Self::Method => "method",
            Self::Bypass => "bypass",
            Self::Rule => "rule",
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
