//! What a configuration means: fully resolved, immutable, valid by construction.
//!
//! A plan is made in one pass from what was typed in the file and on the command line. Whoever
//! holds one need not ask again whether its parts agree; a reload makes a new one.

mod admin;
mod disk;
mod redis;
mod sites;

use super::file::File;
use super::host::HostPattern;
use super::options;
use super::problem::{Place, Problems};
use super::provenance::{Provenance, Row};
use super::reader::AccessLog;
use super::typed::Typed;
use forebay_engine::TierErrors;
use forebay_semantics::groups::GroupLimits;
use http::Method;
use http::uri::{Authority, Scheme};
use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::Level;

pub(crate) use redis::ResolvedRedis;

/// A configuration for a thousand sites is a tenth of this; more is some other file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Each address is a socket and a task of its own.
const LISTEN_MAX: usize = 64;
/// Where nobody says otherwise: no page comes near it, and few downloads.
const OBJECT_MAX_DEFAULT: u64 = 16 << 20;
/// Where nobody says otherwise, bodies in flight get one part in four of what is stored.
const IN_FLIGHT_SHARE: u64 = 4;

/// What `serve` does, in every respect that a configuration can decide.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedConfig {
    /// Where clients are answered; at least one address, none twice.
    pub(crate) listen: Vec<SocketAddr>,
    /// Where the admin listener is; not one of `listen`.
    pub(crate) admin: SocketAddr,
    /// The admin listener's bearer token; there is one unless `admin` is a loopback address.
    pub(crate) admin_token: Option<String>,
    /// Threads that serve requests; at least one.
    pub(crate) threads: usize,
    /// The least severe messages that are logged.
    pub(crate) log: Level,
    /// Whether and how requests are logged.
    pub(crate) access_log: AccessLog,
    /// The memory tier.
    pub(crate) memory: ResolvedMemory,
    /// The shared tier, if there is one.
    pub(crate) redis: Option<ResolvedRedis>,
    /// The disk tier, if there is one.
    pub(crate) disk: Option<ResolvedDisk>,
    /// The sites; at least one, and no two with one id or one claim.
    pub(crate) sites: Vec<ResolvedSite>,
}

/// Bounds of the memory tier, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResolvedMemory {
    /// Everything that is stored.
    pub(crate) size: u64,
    /// One stored body; at most `size`.
    pub(crate) object_max: u64,
    /// All bodies on their way.
    pub(crate) in_flight_max: u64,
}

/// Place and bounds of the disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedDisk {
    /// The directory.
    pub(crate) path: PathBuf,
    /// All its files, in bytes.
    pub(crate) size: u64,
    /// One stored body; at most half of `size`.
    pub(crate) object_max: u64,
}

/// One site.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedSite {
    /// Unique; 1 to 64 of a-z, 0-9 and `-`.
    pub(crate) id: String,
    /// Hosts that it answers for; empty is every host.
    pub(crate) hosts: Vec<HostPattern>,
    /// Path prefix that it answers for: begins with a slash and does not end with one.
    pub(crate) prefix: Option<String>,
    /// Where its answers come from.
    pub(crate) origin: ResolvedOrigin,
    /// How long the origin may take until its answer begins.
    pub(crate) fetch_timeout: Duration,
    /// How long a fetch may take until a stale answer is served.
    pub(crate) soft_timeout: Duration,
    /// How long past its lifetime an answer is served without an origin.
    pub(crate) stale_on_disconnect_max: Duration,
    /// How early entries are refreshed; 0 is never.
    pub(crate) early_refresh_beta: f64,
    /// Freshness lifetime of answers that name none.
    pub(crate) default_ttl: Duration,
    pub(crate) negative_ttl: Duration,
    pub(crate) variants_max: usize,
    /// Names of query parameters to remove; one that ends in `*` stands for any ending.
    pub(crate) ignore_query: Vec<String>,
    /// Whether query parameters are put in order.
    pub(crate) sort_query: bool,
    /// Whether simultaneous requests share a fetch.
    pub(crate) coalesce: bool,
    /// Whether that holds between caches that share a tier.
    pub(crate) coalesce_cluster: bool,
    /// Who fetches of those, and how long the others wait.
    pub(crate) lease: ResolvedLease,
    /// Whether answers that set cookies may be stored.
    pub(crate) store_set_cookie: bool,
    /// Whether a coded response without `Vary: Accept-Encoding` is served to every client.
    pub(crate) share_codings: bool,
    /// Methods beside GET and HEAD whose answers are stored, each once.
    pub(crate) cache_methods: Vec<Method>,
    /// The largest body of such a request.
    pub(crate) cache_body_max: usize,
    /// What is heeded of groups; nothing where they are not.
    pub(crate) cache_groups: Option<GroupLimits>,
    /// Whether error answers tell the cause.
    pub(crate) expose_errors: bool,
    /// What a tier below memory means that cannot be read.
    pub(crate) tier_errors: TierErrors,
    /// The shared tier of this site alone, if it has one.
    pub(crate) redis: Option<ResolvedRedis>,
}

/// How one site's fetches are shared between caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResolvedLease {
    /// How long one that fetches is counted on without a sign of life.
    pub(crate) duration: Duration,
    /// How often it gives one; at most half of that.
    pub(crate) heartbeat: Duration,
    /// How long another one waits for it.
    pub(crate) wait_max: Duration,
}

/// One site's origin.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedOrigin {
    /// `http`.
    pub(crate) scheme: Scheme,
    /// Host and port as they were written.
    pub(crate) authority: Authority,
    /// Host and port to connect to, the port always there.
    pub(crate) address: String,
    /// The `Host` to send instead of the client's.
    pub(crate) host: Option<String>,
    /// Connections at the same time; at least one.
    pub(crate) connections_max: usize,
    /// How long an idle connection is kept; zero keeps none.
    pub(crate) keep_alive: Duration,
    /// Maximum number of fields in the head of one response.
    pub(crate) fields_max: usize,
    /// Maximum number of bytes of the head of one response.
    pub(crate) head_max: usize,
}

/// What the flags of `serve` (or their environment twins) say, each over the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// `--listen`: an address, or several with commas between them.
    pub(crate) listen: Option<String>,
    /// `--admin`: an address.
    pub(crate) admin: Option<String>,
    /// `--origin`: a URL; alone it is a complete configuration, of one site for every host.
    pub(crate) origin: Option<String>,
    /// `--memory`: a size.
    pub(crate) memory: Option<String>,
    /// `--redis`: the URL of a server, in the place of the file's servers.
    pub(crate) redis: Option<String>,
    /// `--disk`: a directory.
    pub(crate) disk: Option<String>,
    /// `--disk-size`: a size.
    pub(crate) disk_size: Option<String>,
}

impl ResolvedConfig {
    /// Makes the plan of a file, of flags, or of both; all mistakes are reported together.
    pub(crate) fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, Problems> {
        resolve(path, overrides).map(|(config, _)| config)
    }

    /// The options that cannot change while a process runs, and that are not the same in `other`.
    pub(crate) fn changed_fixed_options(&self, other: &Self) -> Vec<&'static str> {
        let (memory, wanted) = (self.memory, other.memory);
        let options = [
            (options::LISTEN.spec.name, self.listen != other.listen),
            (options::ADMIN.spec.name, self.admin != other.admin),
            (options::THREADS.spec.name, self.threads != other.threads),
            ("memory.size", memory.size != wanted.size),
            ("memory.object_max", memory.object_max != wanted.object_max),
            ("memory.in_flight_max", memory.in_flight_max != wanted.in_flight_max),
            ("redis", self.redis != other.redis),
            ("site.redis", self.sites_share_otherwise(other)),
            ("site.lease", self.leases_differ_in(other)),
            ("disk", self.disk != other.disk),
        ];
        options.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

impl ResolvedConfig {
    /// Whether some site of `other` has another tier of its own than it has here.
    fn sites_share_otherwise(&self, other: &Self) -> bool {
        let own = |id: &str| self.sites.iter().find(|site| site.id == id)?.redis.as_ref();
        other.sites.iter().any(|site| own(&site.id) != site.redis.as_ref())
    }

    /// Whether some site of `other` has leases of other lengths than it has here. How long they are
    /// waited for can change at any time.
    fn leases_differ_in(&self, other: &Self) -> bool {
        let lengths = |site: &ResolvedSite| (site.lease.duration, site.lease.heartbeat);
        let own = |id: &str| self.sites.iter().find(|site| site.id == id).map(lengths);
        let differs = |site: &ResolvedSite| own(&site.id).is_some_and(|own| own != lengths(site));
        other.sites.iter().any(differs)
    }
}

/// As [`ResolvedConfig::load`], with what each option came to and who decided it.
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
    // A flag speaks of where the command runs.
    let disk_folder = if overrides.disk.is_some() { Path::new("") } else { folder };
    let config = build(&file, (folder, disk_folder), &mut provenance);
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

/// Reads a file that is expected to be small.
fn read_bounded(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(std::io::Error::other(format!("it is larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}

impl Overrides {
    fn apply(&self, file: &mut File, problems: &mut Problems) {
        if let Some(listen) = &self.listen {
            file.top.put(options::LISTEN.spec.name, Typed::flag("--listen", listen));
        }
        if let Some(admin) = &self.admin {
            file.top.put(options::ADMIN.spec.name, Typed::flag("--admin", admin));
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
    }
}

/// The one pass. Each part is read before any is asked for, so that all of them report.
fn build(
    file: &File,
    (folder, disk_folder): (&Path, &Path),
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedConfig> {
    let top = &file.top;
    let listen = listen(file, provenance);
    let admin = provenance.read(top, &options::ADMIN);
    if let (Some(listen), Some(admin)) = (&listen, admin) {
        admin::stands_apart(file, (listen, admin), provenance);
    }
    let admin_token = admin::token(file, (folder, admin), provenance);
    let threads = threads(file, provenance);
    let log = provenance.read(top, &options::LOG);
    let access_log = provenance.read(top, &options::ACCESS_LOG);
    let memory = memory(file, provenance);
    let redis = redis::redis(file, folder, provenance);
    let disk = disk::disk(file, disk_folder, provenance);
    let sites = sites::sites(file, folder, provenance);
    Some(ResolvedConfig {
        listen: listen?,
        admin: admin?,
        admin_token,
        threads: threads?,
        log: log?,
        access_log: access_log?,
        memory: memory?,
        redis,
        disk: disk?,
        sites: sites?,
    })
}

fn listen(file: &File, provenance: &mut Provenance<'_>) -> Option<Vec<SocketAddr>> {
    let name = options::LISTEN.spec.name;
    let addresses = provenance.read(&file.top, &options::LISTEN)?;
    if addresses.is_empty() {
        provenance.refuse(&file.top, name, "must name at least one address");
    }
    if addresses.len() > LISTEN_MAX {
        provenance.refuse(&file.top, name, format!("must name at most {LISTEN_MAX} addresses"));
    }
    for (n, address) in addresses.iter().enumerate() {
        if address.port() != 0 && addresses[..n].contains(address) {
            provenance.refuse(&file.top, name, format!("names {address} twice"));
        }
    }
    Some(addresses)
}

fn threads(file: &File, provenance: &mut Provenance<'_>) -> Option<usize> {
    let typed = provenance.read(&file.top, &options::THREADS)?;
    if typed > 0 {
        return usize::try_from(typed).ok();
    }
    // Where the system does not tell its cores, one thread is what is certainly there.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    provenance.amend(&format!("{cores}, one per core"));
    Some(cores)
}

fn memory(file: &File, provenance: &mut Provenance<'_>) -> Option<ResolvedMemory> {
    let section = &file.memory;
    let size = provenance.read(section, &options::MEMORY_SIZE);
    let object_max = default_from(
        size.map(|size| size.min(OBJECT_MAX_DEFAULT)),
        (section, &options::MEMORY_OBJECT_MAX),
        provenance,
    );
    let in_flight_max = default_from(
        size.map(|size| size / IN_FLIGHT_SHARE),
        (section, &options::MEMORY_IN_FLIGHT_MAX),
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

/// What was typed for an option, or else the `derived` value.
fn default_from<T>(
    derived: Option<T>,
    (section, field): (&super::file::Section, &options::Field<T>),
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
