//! Tables of a configuration file, and the options and subtables of each.

/// Table of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    /// Options before the first header.
    Top,
    /// `[[listener]]`
    Listener,
    /// `[tls]`
    Tls,
    /// `[[tls.certificates]]`
    TlsCertificate,
    /// `[access]`
    Access,
    /// `[trace]`
    Trace,
    /// `[tls.acme]`
    TlsAcme,
    /// `[tls.acme.external_account]`
    TlsAcmeAccount,
    /// `[memory]`
    Memory,
    /// `[disk]`
    Disk,
    /// `[redis]`
    Redis,
    /// `[redis.sentinel]`
    RedisSentinel,
    /// `[[redis.fallback]]`
    RedisFallback,
    /// `[[site]]`
    Site,
    /// `[site.origin]`
    SiteOrigin,
    /// `[site.origin.health]`
    OriginHealth,
    /// `[site.origin.eject]`
    OriginEject,
    /// `[site.origin.retry]`
    OriginRetry,
    /// `[site.origin.budget]`
    OriginBudget,
    /// `[site.lease]`
    SiteLease,
    /// `[site.breaker]`
    SiteBreaker,
    /// `[site.fallback]`
    SiteFallback,
    /// `[site.rate_limit]`
    SiteRateLimit,
    /// `[site.compress]`
    SiteCompress,
}

impl Table {
    /// All tables, in the order of `docs/config.md`.
    pub(crate) const ALL: [Self; 24] = [
        Self::Top,
        Self::Listener,
        Self::Tls,
        Self::TlsCertificate,
        Self::Access,
        Self::Trace,
        Self::TlsAcme,
        Self::TlsAcmeAccount,
        Self::Memory,
        Self::Disk,
        Self::Redis,
        Self::RedisSentinel,
        Self::RedisFallback,
        Self::Site,
        Self::SiteOrigin,
        Self::OriginHealth,
        Self::OriginEject,
        Self::OriginRetry,
        Self::OriginBudget,
        Self::SiteLease,
        Self::SiteBreaker,
        Self::SiteFallback,
        Self::SiteRateLimit,
        Self::SiteCompress,
    ];

    /// Path of the table without indexes, such as `site.origin`.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Top => "",
            Self::Listener => "listener",
            Self::Tls => "tls",
            Self::TlsCertificate => "tls.certificates",
            Self::Access => "access",
            Self::Trace => "trace",
            Self::TlsAcme => "tls.acme",
            Self::TlsAcmeAccount => "tls.acme.external_account",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Redis => "redis",
            Self::RedisSentinel => "redis.sentinel",
            Self::RedisFallback => "redis.fallback",
            Self::Site => "site",
            Self::SiteOrigin => "site.origin",
            Self::OriginHealth => "site.origin.health",
            Self::OriginEject => "site.origin.eject",
            Self::OriginRetry => "site.origin.retry",
            Self::OriginBudget => "site.origin.budget",
            Self::SiteLease => "site.lease",
            Self::SiteBreaker => "site.breaker",
            Self::SiteFallback => "site.fallback",
            Self::SiteRateLimit => "site.rate_limit",
            Self::SiteCompress => "site.compress",
        }
    }

    /// Header as typed.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Top => "the top of the file",
            Self::Listener => "[[listener]]",
            Self::Tls => "[tls]",
            Self::TlsCertificate => "[[tls.certificates]]",
            Self::Access => "[access]",
            Self::Trace => "[trace]",
            Self::TlsAcme => "[tls.acme]",
            Self::TlsAcmeAccount => "[tls.acme.external_account]",
            Self::Memory => "[memory]",
            Self::Disk => "[disk]",
            Self::Redis => "[redis]",
            Self::RedisSentinel => "[redis.sentinel]",
            Self::RedisFallback => "[[redis.fallback]]",
            Self::Site => "[[site]]",
            Self::SiteOrigin => "[site.origin]",
            Self::OriginHealth => "[site.origin.health]",
            Self::OriginEject => "[site.origin.eject]",
            Self::OriginRetry => "[site.origin.retry]",
            Self::OriginBudget => "[site.origin.budget]",
            Self::SiteLease => "[site.lease]",
            Self::SiteBreaker => "[site.breaker]",
            Self::SiteFallback => "[site.fallback]",
            Self::SiteRateLimit => "[site.rate_limit]",
            Self::SiteCompress => "[site.compress]",
        }
    }

    /// Names of its subtables.
    pub(super) fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Top => {
                &["listener", "tls", "access", "trace", "memory", "disk", "redis", "site", "rule"]
            }
            Self::Tls => &["certificates", "acme"],
            Self::TlsAcme => &["external_account"],
            Self::Redis => &["sentinel", "fallback"],
            Self::Site => &[
                "redis",
                "lease",
                "rate_limit",
                "breaker",
                "fallback",
                "compress",
                "rule",
                "transform",
            ],
            Self::SiteOrigin => &["health", "eject", "retry", "budget"],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_a_subtable_of_its_parent() {
        for table in Table::ALL.into_iter().filter(|table| *table != Table::Top) {
            let (above, name) = table.path().rsplit_once('.').unwrap_or_else(|| ("", table.path()));
            let above = Table::ALL.into_iter().find(|other| other.path() == above);
            let above = above.unwrap_or_else(|| panic!("{} stands nowhere", table.path()));
            assert!(above.names().any(|known| known == name), "{name} in {}", above.header());
        }
    }
}
