//! Kinds of reasons why the cache is degraded.

/// Kind of a reason why the cache is degraded, as in `GET /healthz` and the metric `degraded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Because {
    /// Requests skip a lower tier, because it fails.
    TierBypassed,
    /// A lower tier rejects writes.
    TierReadOnly,
    /// A fallback server is in use in place of the nearest one.
    FallbackServer,
    /// The disk tier cannot write.
    DiskFailing,
    /// Purges of other instances are not received.
    BusLost,
    /// Purges of this instance wait to be published.
    PurgesWaiting,
    /// Loads are not shared with other instances.
    LeasesOff,
    /// A server of an origin gets no requests.
    OriginUnusable,
    /// An automatic certificate is missing or about to expire.
    CertificateOverdue,
}

impl Because {
    /// Every kind.
    pub(crate) const ALL: [Self; 9] = [
        Self::TierBypassed,
        Self::TierReadOnly,
        Self::FallbackServer,
        Self::DiskFailing,
        Self::BusLost,
        Self::PurgesWaiting,
        Self::LeasesOff,
        Self::OriginUnusable,
        Self::CertificateOverdue,
    ];

    /// Returns the word of JSON and metrics.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::TierBypassed => "tier-bypassed",
            Self::TierReadOnly => "tier-read-only",
            Self::FallbackServer => "fallback-server",
            Self::DiskFailing => "disk-failing",
            Self::BusLost => "bus-lost",
            Self::PurgesWaiting => "purges-waiting",
            Self::LeasesOff => "leases-off",
            Self::OriginUnusable => "origin-unusable",
            Self::CertificateOverdue => "certificate-overdue",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_differ() {
        let mut codes = Because::ALL.map(Because::code).to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Because::ALL.len());
    }
}
