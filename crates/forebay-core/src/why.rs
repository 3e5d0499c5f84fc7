//! The closed list of reasons why an answer was not a fresh hit.

/// Why something other than a fresh hit happened. It travels with the answer from the judge to
/// `Cache-Status`, to the metrics and to `explain`: nobody has to guess at night.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// Nothing is stored under this key.
    UriMiss,
    /// Something is stored under this key, but not for these selecting fields.
    VaryMiss,
    /// The entry is past its freshness lifetime.
    Stale,
    /// The entry is fresh, and was refreshed before its end so that nobody would have to wait.
    EarlyRefresh,
    /// The caller asked for a validated answer.
    RequestRevalidate,
    /// The caller asked for a younger answer.
    RequestMaxAge,
    /// The caller asked for an answer that stays fresh for longer.
    RequestMinFresh,
    /// The caller asked that nothing be kept.
    RequestNoStore,
    /// The entry was purged.
    Purged,
    /// The entry was made stale by a soft purge.
    SoftPurged,
    /// The key is remembered as one whose answers may not be shared.
    PassMarked,
    /// The answer that others waited for may not be shared with this caller.
    NotShareable,
    /// The request method is not one whose answer may be stored.
    Method,
    /// The site, or the form of the request, keeps it away from the cache.
    Bypass,
    /// The load failed, and what was stored was served instead.
    LoadFailed,
    /// The load takes long, and what was stored was served meanwhile.
    SoftTimeout,
    /// A load failed a moment ago, so none was begun.
    BackOff,
    /// Some of it is stored, but not all that was asked for.
    Partial,
    /// Another instance may have purged it while none was heard.
    Suspect,
    /// Another instance has loaded it.
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

    /// The stable code that users, logs and dashboards see.
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
    fn every_reason_stands_at_its_place_and_has_its_own_code() {
        let mut codes: Vec<_> = Why::ALL.iter().map(|why| why.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Why::ALL.len());
        for (place, why) in Why::ALL.iter().enumerate() {
            assert_eq!(*why as usize, place);
        }
    }
}
