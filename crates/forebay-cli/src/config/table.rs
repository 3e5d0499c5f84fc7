//! The tables of a configuration file, and what may stand in which.

use super::options::{ALL, Spec};

/// The tables of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    /// Above the first header.
    Top,
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
    /// `[site.lease]`
    SiteLease,
}

impl Table {
    /// All of them, in the order of the reference.
    pub(crate) const ALL: [Self; 9] = [
        Self::Top,
        Self::Memory,
        Self::Disk,
        Self::Redis,
        Self::RedisSentinel,
        Self::RedisFallback,
        Self::Site,
        Self::SiteOrigin,
        Self::SiteLease,
    ];

    /// The path of its options in general, such as `site.origin`.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Top => "",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Redis => "redis",
            Self::RedisSentinel => "redis.sentinel",
            Self::RedisFallback => "redis.fallback",
            Self::Site => "site",
            Self::SiteOrigin => "site.origin",
            Self::SiteLease => "site.lease",
        }
    }

    /// Its header as it is typed.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Top => "the top of the file",
            Self::Memory => "[memory]",
            Self::Disk => "[disk]",
            Self::Redis => "[redis]",
            Self::RedisSentinel => "[redis.sentinel]",
            Self::RedisFallback => "[[redis.fallback]]",
            Self::Site => "[[site]]",
            Self::SiteOrigin => "[site.origin]",
            Self::SiteLease => "[site.lease]",
        }
    }

    /// The tables that may stand in it.
    fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Top => &["memory", "disk", "redis", "site"],
            Self::Redis => &["sentinel", "fallback"],
            Self::Site => &["redis", "lease"],
            _ => &[],
        }
    }

    /// All that may stand in it, by name.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        self.options().map(|spec| spec.name).chain(self.tables().iter().copied())
    }

    /// The options that may stand in it.
    pub(crate) fn options(self) -> impl Iterator<Item = &'static Spec> {
        ALL.iter().copied().filter(move |spec| spec.table == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_known_where_it_stands() {
        for table in Table::ALL.into_iter().filter(|table| *table != Table::Top) {
            let (above, name) = table.path().rsplit_once('.').unwrap_or_else(|| ("", table.path()));
            let above = Table::ALL.into_iter().find(|other| other.path() == above);
            let above = above.unwrap_or_else(|| panic!("{} stands nowhere", table.path()));
            assert!(above.names().any(|known| known == name), "{name} in {}", above.header());
        }
    }
}
