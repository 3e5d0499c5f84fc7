//! Resolved configuration: complete, immutable, valid by construction.
//!
//! It is built in one pass from the file and the flags. A reload builds a new one.

mod access;
mod acme;
mod admin;
mod compress;
mod disk;
mod endpoint_health;
mod listeners;
mod origin;
mod redis;
mod sites;
mod tls;
mod trace;

use super::file::{File, Section};
use super::host::HostPattern;
use super::listen_address::ListenAddress;
use super::options;
use super::problem::{Place, Problems};
use super::provenance::{Provenance, Row};
use super::reader::{AccessLog, ListenerRole, LogFormat};
use super::rules::ResolvedRules;
use super::typed::{Raw, Typed};
use crate::config::bounded_file::read_bounded;
pub(crate) use access::{Privacy, ResolvedAccess, Rotation};
use forebay_engine::TierErrors;
use forebay_http::{ClientAccess, RateLimitSettings};
use forebay_semantics::client_address::ProxyTrust;
use forebay_semantics::groups::GroupLimits;
use http::{HeaderValue, Method};
pub(crate) use origin::{ResolvedEndpoint, ResolvedOrigin, authorities};
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::Level;

pub(crate) use listeners::ResolvedListener;
use listeners::Surroundings;
pub(crate) use redis::ResolvedRedis;
pub(crate) use tls::ResolvedTls;
pub(crate) use trace::ResolvedTrace;

/// Maximum size of a configuration file in bytes; a thousand sites need a tenth of it.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of listen addresses; each is a socket with its own task.
const LISTEN_MAX: usize = 64;
/// Default limit of one body in memory, in bytes, above common pages and below most downloads.
const OBJECT_MAX_DEFAULT: u64 = 16 << 20;
/// Divisor of the memory size that gives the default limit of bodies in flight.
const IN_FLIGHT_SHARE: u64 = 4;

/// Warm-up of a process that is not ready before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedWarmUp {
    /// File with one URL per line.
    pub(crate) file: PathBuf,
    /// Maximum duration; then the process is ready nevertheless.
    pub(crate) time_max: Duration,
}

/// Configuration of `serve`, resolved.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedConfig {
    /// Listeners for clients; at least one. Their addresses are unique.
    pub(crate) listeners: Vec<ResolvedListener>,
    /// Certificates and options of TLS; `Some` if the file has them.
    pub(crate) tls: Option<ResolvedTls>,
    /// Proxies that may name the client of a request.
    pub(crate) trust: ProxyTrust,
    /// Maximum number of connections per client address; 0 means no limit.
    pub(crate) connections_per_address_max: usize,
    /// Address of the admin listener; not one of `listen`.
    pub(crate) admin: SocketAddr,
    /// Bearer token of the admin listener; `Some` unless `admin` is a loopback address.
    pub(crate) admin_token: Option<String>,
    /// Addresses of probe listeners; none is that of another listener.
    pub(crate) probes: Vec<ListenAddress>,
    /// Further admin listeners.
    pub(crate) admins: Vec<ResolvedListener>,
    /// Warm-up before the process is ready, if there is one.
    pub(crate) warm_up: Option<ResolvedWarmUp>,
    /// Time after SIGTERM during which connections are still accepted.
    pub(crate) shutdown_delay: Duration,
    /// Maximum time for requests in progress when the process stops.
    pub(crate) drain_max: Duration,
    /// Number of threads that serve requests; at least one.
    pub(crate) threads: usize,
    /// Minimum severity of logged messages.
    pub(crate) log: Level,
    /// Format of messages.
    pub(crate) log_format: LogFormat,
    /// Access log.
    pub(crate) access: ResolvedAccess,
    /// Export of traces, if there is one.
    pub(crate) trace: Option<ResolvedTrace>,
    /// Memory tier.
    pub(crate) memory: ResolvedMemory,
    /// Shared tier of all sites, if any.
    pub(crate) redis: Option<ResolvedRedis>,
    /// Disk tier, if any.
    pub(crate) disk: Option<ResolvedDisk>,
    /// Sites; at least one. Ids are unique, and so are pairs of host and prefix.
    pub(crate) sites: Vec<ResolvedSite>,
}

/// Limits of the memory tier, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResolvedMemory {
    /// Maximum of everything stored or in flight.
    pub(crate) size: u64,
    /// Maximum of one stored body; at most `size`.
    pub(crate) object_max: u64,
    /// Maximum of all bodies in flight.
    pub(crate) in_flight_max: u64,
}

/// Directory and limits of the disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedDisk {
    /// Directory of the tier.
    pub(crate) path: PathBuf,
    /// Maximum size of all its files in bytes.
    pub(crate) size: u64,
    /// Maximum size of one stored body in bytes; at most half of `size`.
    pub(crate) object_max: u64,
}

/// Configuration of one site.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedSite {
    /// Unique id: 1 to 64 of a-z, 0-9 and `-`.
    pub(crate) id: String,
    /// Hosts that it answers for; empty means every host.
    pub(crate) hosts: Vec<HostPattern>,
    /// Path prefix that it answers for; it begins with a slash and does not end with one.
    pub(crate) prefix: Option<String>,
    /// Origin server.
    pub(crate) origin: ResolvedOrigin,
    /// Timeout until the head of the origin's response.
    pub(crate) fetch_timeout: Duration,
    /// Time of a fetch after which a stale entry is served.
    pub(crate) soft_timeout: Duration,
    /// Maximum staleness of entries that are served while the origin is unreachable.
    pub(crate) stale_on_disconnect_max: Duration,
    /// Factor of early refresh; 0 turns it off.
    pub(crate) early_refresh_beta: f64,
    /// Freshness lifetime of responses without an explicit one.
    pub(crate) default_ttl: Duration,
    /// Freshness lifetime of negative responses without an explicit one.
    pub(crate) negative_ttl: Duration,
    /// Maximum number of variants per URL.
    pub(crate) variants_max: usize,
    /// Query parameters to remove; a trailing `*` matches any ending.
    pub(crate) ignore_query: Vec<String>,
    /// True if query parameters are sorted.
    pub(crate) sort_query: bool,
    /// True if simultaneous requests share a fetch.
    pub(crate) coalesce: bool,
    /// True if instances that share a tier share a fetch.
    pub(crate) coalesce_cluster: bool,
    /// Answers plain hits on the shorter path.
    pub(crate) direct_hits: bool,
    /// Maximum number of forced fetches per second; `None` is no limit.
    pub(crate) client_reloads_max: Option<u32>,
    /// Durations of cluster leases.
    pub(crate) lease: ResolvedLease,
    /// True if responses with `Set-Cookie` may be stored.
    pub(crate) store_set_cookie: bool,
    /// Serves a coded response without `Vary: Accept-Encoding` to every client.
    pub(crate) share_codings: bool,
    /// Gives lifetimes to answers to requests with cookies that state none.
    pub(crate) heuristics_with_cookie: bool,
    /// Methods besides GET and HEAD whose responses are stored, without duplicates.
    pub(crate) cache_methods: Vec<Method>,
    /// Maximum size in bytes of a request body that is used for lookup.
    pub(crate) cache_body_max: usize,
    /// Limits of cache groups (RFC 9875); `None` if groups are ignored.
    pub(crate) cache_groups: Option<GroupLimits>,
    /// True if http and https have one key.
    pub(crate) ignore_scheme: bool,
    /// Clients that may use the site.
    pub(crate) access: ClientAccess,
    /// Format of the site's access log; `None` means that of the process.
    pub(crate) access_log: Option<AccessLog>,
    /// Maximum rate of requests per client.
    pub(crate) rate_limit: Option<RateLimitSettings>,
    /// Value of `Strict-Transport-Security`.
    pub(crate) hsts: Option<HeaderValue>,
    /// True if requests to the origin get `Forwarded`.
    pub(crate) forwarded: bool,
    /// True if stored `Link` fields are sent as 103 Early Hints while the origin is asked.
    pub(crate) early_hints: bool,
    /// True if stored responses answer the queries that `No-Vary-Search` names.
    pub(crate) no_vary_search: bool,
    /// True if responses get `Server-Timing`.
    pub(crate) server_timing: bool,
    /// True if error responses contain the cause.
    pub(crate) expose_errors: bool,
    /// Effect of a failing lower tier on a request.
    pub(crate) tier_errors: TierErrors,
    /// Rules of the site.
    pub(crate) rules: ResolvedRules,
    /// Shared tier of this site alone, if it has one.
    pub(crate) redis: Option<ResolvedRedis>,
}

/// Durations of a site's cluster leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResolvedLease {
    /// Duration of a lease without a heartbeat.
    pub(crate) duration: Duration,
    /// Interval between heartbeats; at most half of `duration`.
    pub(crate) heartbeat: Duration,
    /// Maximum wait for the fetch of another instance.
    pub(crate) wait_max: Duration,
}

/// Values of the flags of `serve` or their environment variables. Each overrides the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// `--listen`: addresses, separated by commas.
    pub(crate) listen: Option<String>,
    /// `--admin`: an address.
    pub(crate) admin: Option<String>,
    /// `--origin`: a URL. Without a file it makes one site for every host.
    pub(crate) origin: Option<String>,
    /// `--memory`: a size.
    pub(crate) memory: Option<String>,
    /// `--redis`: the URL of a server, which replaces those of the file.
    pub(crate) redis: Option<String>,
    /// `--disk`: a directory.
    pub(crate) disk: Option<String>,
    /// `--disk-size`: a size.
    pub(crate) disk_size: Option<String>,
    /// `--domain`: names, separated by commas.
    pub(crate) domain: Option<String>,
    /// `--agree-to-terms`.
    pub(crate) agree_to_terms: bool,
    /// `--log-format`: a format of messages.
    pub(crate) log_format: Option<String>,
    /// `--access-log`: a format of the access log.
    pub(crate) access_log: Option<String>,
}

impl ResolvedConfig {
    /// Resolves the configuration of a file, of flags, or of both.
    ///
    /// # Errors
    /// Every error in the file and the flags.
    pub(crate) fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, Problems> {
        resolve(path, overrides).map(|(config, _)| config)
    }

    /// Options that cannot change while a process runs and whose values differ in `other`.
    pub(crate) fn changed_fixed_options(&self, other: &Self) -> Vec<&'static str> {
        let (memory, wanted) = (self.memory, other.memory);
        let options = [
            ("tls", self.tls_differs_in(other)),
            (options::THREADS.spec.name, self.threads != other.threads),
            (options::LOG_FORMAT.spec.name, self.log_format != other.log_format),
            ("memory.size", memory.size != wanted.size),
            ("memory.object_max", memory.object_max != wanted.object_max),
            ("memory.in_flight_max", memory.in_flight_max != wanted.in_flight_max),
            ("redis", self.redis != other.redis),
            ("site.redis", self.sites_share_otherwise(other)),
            ("site.lease", self.leases_differ_in(other)),
            ("disk", self.disk != other.disk),
            ("trace", self.trace != other.trace),
        ];
        options.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

impl ResolvedConfig {
    /// Returns whether a site of `other` has a different `[site.redis]` than here.
    fn sites_share_otherwise(&self, other: &Self) -> bool {
        let own = |id: &str| self.sites.iter().find(|site| site.id == id)?.redis.as_ref();
        other.sites.iter().any(|site| own(&site.id) != site.redis.as_ref())
    }

    /// Returns whether an option of `[tls]` differs that cannot change: all but certificates and the
    /// options of `[tls.acme]`.
    fn tls_differs_in(&self, other: &Self) -> bool {
        let fixed = |config: &Self| {
            let tls = config.tls.as_ref()?;
            let limits = (tls.watch, tls.handshake_timeout);
            Some((tls.min_version, tls.authority.clone(), limits, tls.acme.is_some()))
        };
        fixed(self) != fixed(other)
    }

    /// Returns whether a site of `other` has a different lease duration or heartbeat than here.
    /// `wait_max` can change at any time.
    fn leases_differ_in(&self, other: &Self) -> bool {
        let lengths = |site: &ResolvedSite| (site.lease.duration, site.lease.heartbeat);
        let own = |id: &str| self.sites.iter().find(|site| site.id == id).map(lengths);
        let differs = |site: &ResolvedSite| own(&site.id).is_some_and(|own| own != lengths(site));
        other.sites.iter().any(differs)
    }
}

/// Resolves a configuration like [`ResolvedConfig::load`], with the value and source of each option.
pub(super) fn resolve(
    path: Option<&Path>,
    overrides: &Overrides,
) -> Result<(ResolvedConfig, Vec<Row>), Problems> {
    let mut problems = Problems::new(path);
    let Some(mut file) = read(path, &mut problems) else {
        return problems.into_result(None);
    };
    overrides.apply(&mut file, &mut problems);
    let mut provenance = Provenance::new(&file, &mut problems);
    let folder = path.and_then(Path::parent).unwrap_or_else(|| Path::new(""));
    // A relative path in a flag starts at the working directory.
    let disk_folder = if overrides.disk.is_some() { Path::new("") } else { folder };
    let config = build(&file, folder, disk_folder, &mut provenance);
    let rows = provenance.rows;
    problems.into_result(config.map(|config| (config, rows)))
}

fn read(path: Option<&Path>, problems: &mut Problems) -> Option<File> {
    let Some(path) = path else { return Some(File::empty(Place::Whole)) };
    match read_bounded(path, FILE_BYTES_MAX) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Some(File::parse(&text, problems)),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                problems.report(Place::Whole, "", format!("is not UTF-8 text (byte {at})"));
                None
            }
        },
        Err(error) => {
            problems.report(Place::Whole, "", format!("cannot be read: {error}"));
            None
        }
    }
}

impl Overrides {
    fn apply(&self, file: &mut File, problems: &mut Problems) {
        if let Some(listen) = &self.listen {
            file.top.put(options::LISTEN.spec.name, Typed::flag("--listen", listen));
        }
        if let Some(admin) = &self.admin {
            file.top.put(options::ADMIN.spec.name, Typed::flag("--admin", admin));
        }
        if let Some(format) = &self.log_format {
            file.top.put(options::LOG_FORMAT.spec.name, Typed::flag("--log-format", format));
        }
        if let Some(format) = &self.access_log {
            file.top.put(options::ACCESS_LOG.spec.name, Typed::flag("--access-log", format));
        }
        if let Some(memory) = &self.memory {
            file.memory.put(options::MEMORY_SIZE.spec.name, Typed::flag("--memory", memory));
        }
        if let Some(url) = &self.redis {
            redis::override_url(file, Typed::flag("--redis", url));
        }
        if let Some(disk) = &self.disk {
            file.disk.put(options::DISK_PATH.spec.name, Typed::flag("--disk", disk));
        }
        if let Some(size) = &self.disk_size {
            file.disk.put(options::DISK_SIZE.spec.name, Typed::flag("--disk-size", size));
        }
        if let Some(origin) = &self.origin {
            sites::override_origin(file, Typed::flag("--origin", origin), problems);
        }
        if let Some(domain) = &self.domain {
            acme::override_domains(file, &Typed::flag("--domain", domain), self.listen.is_some());
        }
        if self.agree_to_terms {
            acme::override_agreement(file, Typed::flag("--agree-to-terms", ""), problems);
        }
    }
}

/// Builds the configuration. Every part is read before the first `?`, so that all errors are
/// reported.
fn build(
    file: &File,
    folder: &Path,
    disk_folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedConfig> {
    let top = &file.top;
    let trusted_proxies = provenance.read(top, &options::TRUSTED_PROXIES);
    let client_address_from = provenance.read(top, &options::CLIENT_ADDRESS_FROM);
    let connections_per_address_max = provenance.read(top, &options::CONNECTIONS_PER_ADDRESS_MAX);
    let sites = sites::sites(file, folder, provenance);
    let tls = tls::tls(file, sites.as_deref(), folder, provenance);
    let around = Surroundings {
        trusted: trusted_proxies.as_ref(),
        tls: tls.as_ref().map(Option::as_ref),
        sites: sites.as_deref(),
    };
    let listeners = listeners::listeners(file, &around, provenance);
    let admin = provenance.read(top, &options::ADMIN);
    if let (Some(listeners), Some(admin)) = (&listeners, admin) {
        admin::check_separate(file, listeners, admin, provenance);
    }
    let probes = probes(top, listeners.as_deref(), admin, provenance);
    let admin_token = admin::token(file, folder, admin, provenance);
    if let Some(listeners) = &listeners {
        admin::check_further(file, listeners, admin_token.as_deref(), provenance);
    }
    let of_role = |role| {
        let listeners = listeners.iter().flatten();
        listeners.filter(move |listener| listener.role == role).cloned()
    };
    let admins: Vec<_> = of_role(ListenerRole::Admin).collect();
    let further = of_role(ListenerRole::Probe).map(|listener| listener.address);
    let probes = probes.map(|probes| probes.into_iter().chain(further).collect());
    let of_clients = |listener: &ResolvedListener| {
        matches!(listener.role, ListenerRole::Serve | ListenerRole::Redirect)
    };
    let listeners = listeners.map(|all| all.into_iter().filter(of_clients).collect::<Vec<_>>());
    let is_for_operators =
        !admins.is_empty() || probes.as_ref().is_some_and(|p: &Vec<_>| !p.is_empty());
    if is_for_operators && listeners.as_ref().is_some_and(Vec::is_empty) {
        let message = "at least one listener must serve clients";
        provenance.refuse(top, options::LISTEN.spec.name, message);
    }
    let shutdown_delay = provenance.read(top, &options::SHUTDOWN_DELAY);
    let drain_max = provenance.read(top, &options::DRAIN_MAX);
    let threads = threads(file, provenance);
    let log = provenance.read(top, &options::LOG);
    let log_format = provenance.read(top, &options::LOG_FORMAT);
    let access = access::access(file, folder, provenance);
    let trace = trace::trace(file, provenance);
    let memory = memory(file, provenance);
    let disk = disk::disk(file, disk_folder, provenance);
    Some(ResolvedConfig {
        redis: redis::redis(file, folder, provenance),
        warm_up: warm_up(file, folder, provenance)?,
        listeners: listeners?,
        tls: tls?.map(|table| table.tls),
        trust: ProxyTrust { proxies: trusted_proxies?, field: client_address_from? },
        connections_per_address_max: usize::try_from(connections_per_address_max?).ok()?,
        admin: admin?,
        admin_token,
        probes: probes?,
        admins,
        shutdown_delay: shutdown_delay?,
        drain_max: drain_max?,
        threads: threads?,
        log: log?,
        log_format: log_format?,
        access: access?,
        trace: trace?,
        memory: memory?,
        disk: disk?,
        sites: sites?,
    })
}

/// Addresses of the probe listeners. One that another listener has is an error.
fn probes(
    top: &Section,
    listeners: Option<&[ResolvedListener]>,
    admin: Option<SocketAddr>,
    provenance: &mut Provenance<'_>,
) -> Option<Vec<ListenAddress>> {
    let probe = provenance.read(top, &options::PROBE)?;
    let clients = listeners.into_iter().flatten().filter_map(|listener| listener.address.tcp());
    let mut others = clients.chain(admin);
    if probe.is_some_and(|probe| others.any(|other| admin::collide(probe, other))) {
        let message = "is the address of another listener; the probe listener needs its own";
        provenance.refuse(top, options::PROBE.spec.name, message);
    }
    Some(probe.map(ListenAddress::Tcp).into_iter().collect())
}

/// Warm-up at the start. The outer `None` means that there are errors.
#[expect(clippy::option_option, reason = "an error differs from an absent option")]
fn warm_up(
    file: &File,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Option<ResolvedWarmUp>> {
    let (top, name) = (&file.top, options::READY_AFTER_WARM.spec.name);
    let list = provenance.read(top, &options::READY_AFTER_WARM);
    let time_max = provenance.read(top, &options::READY_AFTER_WARM_MAX);
    if top.value(name).is_none() {
        provenance.derived(top.path_of(name), "no warm-up");
        return Some(None);
    }
    let list = folder.join(list?);
    if let Err(error) = std::fs::File::open(&list) {
        provenance.refuse(top, name, format!("{} cannot be read: {error}", list.display()));
        return None;
    }
    Some(Some(ResolvedWarmUp { file: list, time_max: time_max? }))
}

fn threads(file: &File, provenance: &mut Provenance<'_>) -> Option<usize> {
    let typed = provenance.read(&file.top, &options::THREADS)?;
    if typed > 0 {
        return usize::try_from(typed).ok();
    }
    // If the number of cores is unknown, one thread is used.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    provenance.amend(&format!("{cores}, one per core"));
    Some(cores)
}

fn memory(file: &File, provenance: &mut Provenance<'_>) -> Option<ResolvedMemory> {
    let section = &file.memory;
    let size = provenance.read(section, &options::MEMORY_SIZE);
    let typed = section.value(options::MEMORY_SIZE.spec.name).map(|typed| &typed.raw);
    if let (Some(Raw::Text(typed)), Some(_)) = (typed, size)
        && typed.ends_with('%')
    {
        provenance.amend(typed);
    }
    let object_max = default_from(
        size.map(|size| size.min(OBJECT_MAX_DEFAULT)),
        section,
        &options::MEMORY_OBJECT_MAX,
        provenance,
    );
    let in_flight_max = default_from(
        size.map(|size| size / IN_FLIGHT_SHARE),
        section,
        &options::MEMORY_IN_FLIGHT_MAX,
        provenance,
    );
    let (size, object_max, in_flight_max) = (size?, object_max?, in_flight_max?);
    if object_max > size {
        let size_shown = (options::MEMORY_SIZE.reader.show)(&size);
        let message = format!("must be at most the size of the memory tier, {size_shown}");
        provenance.refuse(section, options::MEMORY_OBJECT_MAX.spec.name, message);
    }
    Some(ResolvedMemory { size, object_max, in_flight_max })
}

/// Value typed for an option, or else `derived`.
fn default_from<T>(
    derived: Option<T>,
    section: &Section,
    field: &options::Field<T>,
    provenance: &mut Provenance<'_>,
) -> Option<T> {
    if section.value(field.spec.name).is_some() {
        return provenance.read(section, field);
    }
    let value = derived?;
    provenance.derived(section.path_of(field.spec.name), (field.reader.show)(&value));
    Some(value)
}

#[cfg(test)]
mod tests;
