//! Configuration file as typed: table and option names are checked, values are raw.
//!
//! The walk over the parser's tree keeps the position of each key and value, and reports every
//! error. Values are interpreted later, by `resolved`.

use super::options::LATER;
use super::problem::{Place, Problems};
use super::suggestion::nearest;
use super::table::Table;
use super::typed::{Lines, Typed};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One table of the file: its values by option name.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub(crate) table: Table,
    /// Path of the table, such as `site[0]`; empty for the top of the file.
    pub(crate) path: String,
    /// Position of the table's header.
    pub(crate) place: Place,
    values: BTreeMap<&'static str, Typed>,
}

/// One `[[site]]` with its subtables.
#[derive(Debug, Clone)]
pub(crate) struct SiteFile {
    pub(crate) site: Section,
    pub(crate) origin: Option<Section>,
    /// `[site.origin.health]`
    pub(crate) health: Option<Section>,
    /// `[site.origin.eject]`
    pub(crate) eject: Option<Section>,
    /// `[site.origin.retry]`
    pub(crate) retry: Option<Section>,
    /// `[site.origin.budget]`
    pub(crate) budget: Option<Section>,
    pub(crate) redis: Option<RedisFile>,
    pub(crate) lease: Option<Section>,
    /// `[[site.rule]]`: list of tables.
    pub(crate) rules: Option<Typed>,
    /// `[[site.transform]]`: list of tables.
    pub(crate) transforms: Option<Typed>,
    pub(crate) breaker: Option<Section>,
    pub(crate) fallback: Option<Section>,
    pub(crate) rate_limit: Option<Section>,
    pub(crate) compress: Option<Section>,
}

/// `[tls]` with its certificates.
#[derive(Debug, Clone)]
pub(crate) struct TlsFile {
    pub(crate) tls: Section,
    pub(crate) certificates: Vec<Section>,
    pub(crate) acme: Option<AcmeFile>,
}

/// `[tls.acme]` with its subtable.
#[derive(Debug, Clone)]
pub(crate) struct AcmeFile {
    pub(crate) acme: Section,
    pub(crate) external_account: Option<Section>,
}

/// `[redis]` or `[site.redis]` with its subtables.
#[derive(Debug, Clone)]
pub(crate) struct RedisFile {
    pub(crate) redis: Section,
    pub(crate) sentinel: Option<Section>,
    pub(crate) fallback: Vec<Section>,
}

/// Whole configuration as typed.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) top: Section,
    pub(crate) listeners: Vec<Section>,
    pub(crate) tls: Option<TlsFile>,
    pub(crate) memory: Section,
    pub(crate) redis: Option<RedisFile>,
    pub(crate) disk: Section,
    pub(crate) access: Section,
    pub(crate) trace: Section,
    pub(crate) sites: Vec<SiteFile>,
    /// `[[rule]]`: rules of every site, before its own.
    pub(crate) rules: Option<Typed>,
    /// True if the parser read the whole file; if not, an absent value may be a lost one.
    pub(crate) whole: bool,
}

impl File {
    /// Configuration without any value.
    pub(crate) fn empty(place: Place) -> Self {
        Self {
            top: Section::empty(Table::Top, "", place),
            listeners: Vec::new(),
            tls: None,
            memory: Section::empty(Table::Memory, "memory", place),
            redis: None,
            disk: Section::empty(Table::Disk, "disk", place),
            access: Section::empty(Table::Access, "access", place),
            trace: Section::empty(Table::Trace, "trace", place),
            sites: Vec::new(),
            rules: None,
            whole: true,
        }
    }

    /// Parses a file. Errors in its syntax and names are added to `problems`.
    pub(crate) fn parse(text: &str, problems: &mut Problems) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let lines = Lines::new(text);
        for error in &errors {
            let place = lines.place(error.span().map_or(0, |span| span.start));
            problems.report_syntax(place, format!("not TOML: {}", error.message()));
        }
        let mut file = Walk { lines, problems }.top(root.get_ref());
        file.whole = errors.is_empty();
        file
    }
}

impl Section {
    /// Table without any value.
    pub(crate) fn empty(table: Table, path: &str, place: Place) -> Self {
        Self { table, path: path.to_owned(), place, values: BTreeMap::new() }
    }

    /// Full path of one of its options.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Value typed for an option.
    pub(crate) fn value(&self, name: &str) -> Option<&Typed> {
        self.values.get(name)
    }

    /// Replaces the value of an option, for example by a flag's.
    pub(crate) fn put(&mut self, name: &'static str, typed: Typed) {
        self.values.insert(name, typed);
    }

    /// Removes the value of an option.
    pub(crate) fn remove(&mut self, name: &str) {
        self.values.remove(name);
    }

    /// Copies the values of `base` that are absent here, except those named in `except`.
    fn inherit(&mut self, base: &Self, except: &[&str]) {
        let inherited = base.values.iter().filter(|(name, _)| !except.contains(*name));
        for (name, typed) in inherited {
            self.values.entry(name).or_insert_with(|| typed.clone());
        }
    }
}

impl RedisFile {
    /// Table without any value.
    pub(crate) fn empty(path: &str, place: Place) -> Self {
        let redis = Section::empty(Table::Redis, path, place);
        Self { redis, sentinel: None, fallback: Vec::new() }
    }

    /// Completes a site's own table from `[redis]`. If the site names its own server, the options
    /// that name servers or authenticate to them are not inherited.
    pub(crate) fn over(mut self, base: &Self) -> Self {
        if SERVERS.iter().any(|name| self.redis.value(name).is_some()) || self.sentinel.is_some() {
            self.redis.inherit(&base.redis, &[&SERVERS[..], &ENTRANCE].concat());
            return self;
        }
        self.redis.inherit(&base.redis, &[]);
        self.sentinel.clone_from(&base.sentinel);
        if self.fallback.is_empty() {
            self.fallback.clone_from(&base.fallback);
        }
        self
    }
}

/// Options of `[redis]` that name servers.
const SERVERS: [&str; 2] = ["url", "cluster"];
/// Options of `[redis]` that authenticate to a server.
const ENTRANCE: [&str; 5] = ["user", "password_file", "ca", "client_certificate", "client_key"];

struct Walk<'a> {
    lines: Lines<'a>,
    problems: &'a mut Problems,
}

impl Walk<'_> {
    fn top(&mut self, root: &DeTable<'_>) -> File {
        let mut file = File::empty(self.lines.place(0));
        for (key, value) in root {
            match key.get_ref().as_ref() {
                "listener" => {
                    file.listeners = self.list_of(Table::Listener, "listener", value);
                }
                "tls" => file.tls = self.tls(value),
                "memory" => self.table(value, &mut file.memory),
                "disk" => self.table(value, &mut file.disk),
                "access" => self.table(value, &mut file.access),
                "trace" => self.table(value, &mut file.trace),
                "redis" => file.redis = self.redis(Table::Redis.path(), value),
                "site" => file.sites = self.sites(value),
                "rule" => {
                    file.rules = Some(Typed::from_toml("rule".to_owned(), value, &self.lines));
                }
                _ => self.field(&mut file.top, key, value),
            }
        }
        file
    }

    fn table(&mut self, value: &Spanned<DeValue<'_>>, section: &mut Section) {
        match value.get_ref() {
            DeValue::Table(table) => {
                section.place = self.lines.place(value.span().start);
                table.iter().for_each(|(key, value)| self.field(section, key, value));
            }
            _ => {
                let (name, header) = (section.table.path(), section.table.header());
                let says = format!("must be a table; write {header} above its fields");
                self.report(value, name, &says);
            }
        }
    }

    fn redis(&mut self, path: &str, value: &Spanned<DeValue<'_>>) -> Option<RedisFile> {
        let DeValue::Table(table) = value.get_ref() else {
            let header = if path == Table::Redis.path() { path } else { "site.redis" };
            self.report(
                value,
                path,
                &format!("must be a table; write [{header}] above its fields"),
            );
            return None;
        };
        let mut file = RedisFile::empty(path, self.lines.place(value.span().start));
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "sentinel" => {
                    const SHAPE: &str =
                        "must be a table, such as { master = \"main\", nodes = [\"redis://…\"] }";
                    let path = file.redis.path_of("sentinel");
                    file.sentinel = self.section(Table::RedisSentinel, &path, value, SHAPE);
                }
                "fallback" => {
                    file.fallback = self.fallbacks(&file.redis.path_of("fallback"), value);
                }
                _ => self.field(&mut file.redis, key, value),
            }
        }
        Some(file)
    }

    fn tls(&mut self, value: &Spanned<DeValue<'_>>) -> Option<TlsFile> {
        let DeValue::Table(table) = value.get_ref() else {
            self.report(value, "tls", "must be a table; write [tls] above its fields");
            return None;
        };
        let mut tls = Section::empty(Table::Tls, "tls", self.lines.place(value.span().start));
        let (mut certificates, mut acme) = (Vec::new(), None);
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "certificates" => {
                    certificates = self.list_of(Table::TlsCertificate, "tls.certificates", value);
                }
                "acme" => acme = self.acme(value),
                _ => self.field(&mut tls, key, value),
            }
        }
        Some(TlsFile { tls, certificates, acme })
    }

    fn acme(&mut self, value: &Spanned<DeValue<'_>>) -> Option<AcmeFile> {
        let DeValue::Table(table) = value.get_ref() else {
            self.report(value, "tls.acme", "must be a table; write [tls.acme] above its fields");
            return None;
        };
        let place = self.lines.place(value.span().start);
        let mut acme = Section::empty(Table::TlsAcme, "tls.acme", place);
        let mut external_account = None;
        for (key, value) in table {
            if key.get_ref() == "external_account" {
                const SHAPE: &str =
                    "must be a table, such as { id = \"…\", hmac_key_file = \"…\" }";
                let path = acme.path_of("external_account");
                external_account = self.section(Table::TlsAcmeAccount, &path, value, SHAPE);
            } else {
                self.field(&mut acme, key, value);
            }
        }
        Some(AcmeFile { acme, external_account })
    }

    /// List of tables that have no tables in them.
    fn list_of(&mut self, table: Table, path: &str, value: &Spanned<DeValue<'_>>) -> Vec<Section> {
        let header = table.header();
        let says = format!("must be a list of tables; write {header} above each one's fields");
        let DeValue::Array(items) = value.get_ref() else {
            self.report(value, path, &says);
            return Vec::new();
        };
        let section = |(n, item)| self.section(table, &format!("{path}[{n}]"), item, &says);
        items.iter().enumerate().filter_map(section).collect()
    }

    fn fallbacks(&mut self, path: &str, value: &Spanned<DeValue<'_>>) -> Vec<Section> {
        let DeValue::Array(items) = value.get_ref() else {
            let says = "must be a list of tables, such as [{ url = \"redis://…\" }]";
            self.report(value, path, says);
            return Vec::new();
        };
        let section = |(n, item)| {
            let path = format!("{path}[{n}]");
            let says = "must be a table, such as { url = \"redis://…\" }";
            self.section(Table::RedisFallback, &path, item, says)
        };
        items.iter().enumerate().filter_map(section).collect()
    }

    /// A table that has no tables in it; `shape` says what it should be where it is none.
    fn section(
        &mut self,
        table: Table,
        path: &str,
        value: &Spanned<DeValue<'_>>,
        shape: &str,
    ) -> Option<Section> {
        let DeValue::Table(fields) = value.get_ref() else {
            self.report(value, path, shape);
            return None;
        };
        let mut section = Section::empty(table, path, self.lines.place(value.span().start));
        fields.iter().for_each(|(key, value)| self.field(&mut section, key, value));
        Some(section)
    }

    fn sites(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<SiteFile> {
        const BRACKETS: &str = "must be a list of tables; write [[site]] above each site's fields";
        match value.get_ref() {
            DeValue::Array(items) => {
                let site = |(n, item)| self.site(n, item);
                items.iter().enumerate().filter_map(site).collect()
            }
            // A single pair of brackets is one error; the site is read nevertheless, so that its
            // other errors are reported in the same run.
            DeValue::Table(_) => {
                self.report(value, "site", BRACKETS);
                self.site(0, value).into_iter().collect()
            }
            _ => {
                self.report(value, "site", BRACKETS);
                Vec::new()
            }
        }
    }

    fn site(&mut self, n: usize, value: &Spanned<DeValue<'_>>) -> Option<SiteFile> {
        let path = format!("site[{n}]");
        let DeValue::Table(table) = value.get_ref() else {
            self.report(value, &path, "must be a table; write [[site]] above its fields");
            return None;
        };
        let place = self.lines.place(value.span().start);
        let mut site = Section::empty(Table::Site, &path, place);
        let (mut origin, mut redis, mut lease, mut rate_limit) = (None, None, None, None);
        let (mut rules, mut transforms) = (None, None);
        let (mut breaker, mut fallback, mut compress) = (None, None, None);
        let (mut health, mut eject, mut retry, mut budget) = (None, None, None, None);
        for (key, value) in table {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("origin", DeValue::Table(fields)) => {
                    let place = self.lines.place(value.span().start);
                    let path = site.path_of("origin");
                    let mut section = Section::empty(Table::SiteOrigin, &path, place);
                    for (key, value) in fields {
                        match key.get_ref().as_ref() {
                            "health" => {
                                health = self.subtable(Table::OriginHealth, &section, value);
                            }
                            "eject" => eject = self.subtable(Table::OriginEject, &section, value),
                            "retry" => retry = self.subtable(Table::OriginRetry, &section, value),
                            "budget" => {
                                budget = self.subtable(Table::OriginBudget, &section, value);
                            }
                            _ => self.field(&mut section, key, value),
                        }
                    }
                    origin = Some(section);
                }
                ("redis", _) => redis = self.redis(&site.path_of("redis"), value),
                ("rule", _) => {
                    rules = Some(Typed::from_toml(site.path_of("rule"), value, &self.lines));
                }
                ("transform", _) => {
                    let path = site.path_of("transform");
                    transforms = Some(Typed::from_toml(path, value, &self.lines));
                }
                ("lease", _) => lease = self.subtable(Table::SiteLease, &site, value),
                ("breaker", _) => breaker = self.subtable(Table::SiteBreaker, &site, value),
                ("fallback", _) => fallback = self.subtable(Table::SiteFallback, &site, value),
                ("compress", _) => compress = self.subtable(Table::SiteCompress, &site, value),
                ("rate_limit", _) => {
                    rate_limit = self.subtable(Table::SiteRateLimit, &site, value);
                }
                _ => self.field(&mut site, key, value),
            }
        }
        Some(SiteFile {
            site,
            origin,
            health,
            eject,
            retry,
            budget,
            redis,
            lease,
            rate_limit,
            breaker,
            fallback,
            compress,
            rules,
            transforms,
        })
    }

    /// Subtable of a site or of its origin.
    fn subtable(
        &mut self,
        table: Table,
        parent: &Section,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Section> {
        let name = table.path().rsplit('.').next().unwrap_or_default();
        let says = format!("must be a table; write {} above its fields", table.header());
        self.section(table, &parent.path_of(name), value, &says)
    }

    fn field(
        &mut self,
        section: &mut Section,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let name = key.get_ref().as_ref();
        let path = section.path_of(name);
        match section.table.options().find(|spec| spec.name == name) {
            Some(spec) => section.put(spec.name, Typed::from_toml(path, value, &self.lines)),
            None => {
                let place = self.lines.place(key.span().start);
                self.problems.report(place, &path, unknown_field(section.table, name));
            }
        }
    }

    fn report(&mut self, value: &Spanned<DeValue<'_>>, path: &str, message: &str) {
        self.problems.report(self.lines.place(value.span().start), path, message);
    }
}

/// Error message for a name that is not an option of its table.
fn unknown_field(table: Table, name: &str) -> String {
    let prefix = table.path();
    let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    if let Some((_, missing)) = LATER.iter().find(|(later, _)| *later == path) {
        return format!("`{name}` is not supported: this version {missing}; remove it");
    }
    if let Some(near) = nearest(table.names(), name) {
        return format!("unknown field; did you mean \"{near}\"?");
    }
    let elsewhere = Table::ALL.iter().find(|other| other.options().any(|spec| spec.name == name));
    match elsewhere {
        Some(other) => format!("unknown field here; it belongs to {}", other.header()),
        None => {
            let names: Vec<&str> = table.names().collect();
            format!("unknown field; the fields of {} are {}", table.header(), names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
