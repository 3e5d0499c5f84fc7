//! Servers under test, each with one thread on one core.

use std::any::Any;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use forebay_testkit::launch::{Launched, Signal, signal};

use super::load::Cores;
use super::raw;
use crate::environment::{build, pinned};
use crate::http::Client;
use crate::rivals::Rival;

/// Time limit for a server to accept connections.
const READY_MAX: Duration = Duration::from_secs(20);

/// Attempts until an answer is a hit: a cache may store it shortly after the first answer.
const TRIES_MAX: u32 = 5;

/// Field of a response and the part of its value that mark a hit.
type Mark = Option<(&'static str, &'static str)>;

/// A server under test.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    hit: Mark,
    /// Configuration, for a report.
    settings: String,
    /// Stops the server when dropped.
    _server: Box<dyn Any>,
}

/// Folder, origin and cores of the servers.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) folder: PathBuf,
    pub(crate) origin: SocketAddr,
    pub(crate) cores: Cores,
}

/// A process that is ended by SIGTERM, so that it ends its workers.
struct Terminated(Child);

impl Drop for Terminated {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = signal(self.0.id(), Signal::Term);
        let _ = self.0.wait();
    }
}

impl Subject {
    pub(crate) fn new(name: &'static str, server: Launched, hit: Mark) -> Self {
        let (address, pid) = (server.address(), server.pid());
        Self { name, address, hit, pid, settings: String::new(), _server: Box::new(server) }
    }

    pub(super) fn configured(self, settings: String) -> Self {
        Self { settings, ..self }
    }

    /// URL of a response with a body of this many bytes that may be stored.
    pub(crate) fn url(&self, bytes: usize) -> String {
        format!("http://{}{}", self.address, self.target(bytes))
    }

    pub(crate) fn target(&self, bytes: usize) -> String {
        match self.name {
            BARE | BARE_AGAIN if bytes == 1024 => "/1k".to_owned(),
            BARE | BARE_AGAIN => "/1m".to_owned(),
            _ => format!("/items/a?size={bytes}&cc=max-age=3600"),
        }
    }

    /// Requests the body until it is a hit; fails if it never is or has another length.
    pub(crate) async fn until_hit(&self, bytes: usize) -> Result<()> {
        let mut client = Client::connect(self.address).await?;
        for _ in 0..TRIES_MAX {
            let (head, length) = client.get(&self.target(bytes)).await?;
            let is_right = head.status() == 200 && length == bytes as u64;
            ensure!(is_right, "{} answers {head:?} and {length} bytes", self.name);
            let marked = |field, mark| {
                let value = head.headers().get(field).and_then(|value| value.to_str().ok());
                value.is_some_and(|value| value.contains(mark))
            };
            if self.hit.is_none_or(|(field, mark)| marked(field, mark)) {
                return Ok(());
            }
        }
        bail!("{} never answers from its cache", self.name)
    }
}

pub(crate) const BARE: &str = "bare hyper";
pub(crate) const BARE_AGAIN: &str = "bare hyper, again";
pub(crate) const BARE_PROXY: &str = "bare hyper as a proxy";
pub(crate) const RAW: &str = "raw epoll";
pub(crate) const FOREBAY: &str = "forebay";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const NGINX_LOCK: &str = "nginx, lock and stale update";
pub(crate) const NGINX_KEPT: &str = "nginx, files kept open";
pub(crate) const HAPROXY: &str = "HAProxy";
pub(crate) const VARNISH: &str = "Varnish";
pub(crate) const TRAFFIC_SERVER: &str = "Traffic Server";

/// Names and programs of the caches that take part if they are installed.
pub(crate) const PEERS: [(&str, &str); 3] =
    [(HAPROXY, "haproxy"), (VARNISH, "varnishd"), (TRAFFIC_SERVER, "traffic_server")];

const NGINX_CACHE: &str = "proxy_cache hits; add_header X-Cache $upstream_cache_status;";

/// Starts the raw server on a core.
pub(crate) async fn raw(core: usize) -> Result<Launched> {
    pinned(core, &std::env::current_exe()?, &[raw::CHILD]).await
}

/// Builds the program of bare hyper.
fn bare_program() -> Result<PathBuf> {
    build("release", &["-p", "forebay-http", "--bench", "bare_hyper"])
}

/// Starts bare hyper twice; the second one shows the spread of the baseline.
pub(crate) async fn bare(cores: Cores) -> Result<Vec<Subject>> {
    let program = bare_program()?;
    let mut subjects = Vec::new();
    for name in [BARE, BARE_AGAIN] {
        subjects.push(Subject::new(name, pinned(cores.server, &program, &[]).await?, None));
    }
    Ok(subjects)
}

impl Ground {
    pub(crate) async fn forebay(&self) -> Result<Subject> {
        self.forebay_with("").await
    }

    /// Bare hyper that forwards each request: no proxy on hyper costs less.
    pub(crate) async fn bare_proxy(&self) -> Result<Subject> {
        let (program, origin) = (bare_program()?, self.origin.to_string());
        let server = pinned(self.cores.server, &program, &[&origin]).await?;
        Ok(Subject::new(BARE_PROXY, server, None))
    }

    /// forebay with further tables of the configuration.
    pub(crate) async fn forebay_with(&self, tables: &str) -> Result<Subject> {
        self.forebay_site(tables, &format!("origin = \"http://{}\"\n", self.origin)).await
    }

    /// forebay with further tables of the configuration, and lines of its site.
    pub(crate) async fn forebay_site(&self, tables: &str, site: &str) -> Result<Subject> {
        let program = crate::environment::forebay()?;
        let file = self.folder.join("forebay.toml");
        let config = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\
             {tables}[[site]]\nid = \"bench\"\n{site}"
        );
        std::fs::write(&file, &config)?;
        let serve = ["serve", "--config", &file.to_string_lossy()];
        let server = pinned(self.cores.server, &program, &serve).await?;
        Ok(Subject::new(FOREBAY, server, Some(("cache-status", "hit"))).configured(config))
    }

    /// nginx as a cache with one worker and no log; `option` is a line of its configuration.
    pub(crate) fn nginx(&self, name: &'static str, option: &str) -> Result<Subject> {
        self.start_nginx(name, option, NGINX_CACHE)
    }

    /// nginx with request coalescing and, behind a stale response, its background update.
    pub(crate) fn nginx_lock(&self) -> Result<Subject> {
        let lock = "proxy_cache_lock on; proxy_cache_lock_timeout 30s; proxy_cache_lock_age 30s; \
                    proxy_cache_use_stale updating; proxy_cache_background_update on;";
        self.start_nginx(NGINX_LOCK, "", &format!("{NGINX_CACHE} {lock}"))
    }

    /// Every cache that is installed, with its settings against stampedes.
    pub(crate) async fn caches(&self) -> Result<Vec<Subject>> {
        let mut subjects = vec![self.forebay().await?, self.nginx(NGINX, "")?, self.nginx_lock()?];
        subjects.extend(self.installed_peers()?);
        Ok(subjects)
    }

    /// The other caches that are installed.
    pub(crate) fn installed_peers(&self) -> Result<Vec<Subject>> {
        let installed = PEERS.into_iter().filter(|(_, program)| is_installed(program));
        installed.map(|(name, _)| self.peer(name)).collect()
    }

    /// A cache other than forebay and nginx.
    pub(crate) fn peer(&self, name: &str) -> Result<Subject> {
        match name {
            HAPROXY => self.haproxy(),
            VARNISH => self.varnish(),
            TRAFFIC_SERVER => self.traffic_server(),
            _ => bail!("no cache is named {name}"),
        }
    }

    /// nginx with connections to the origin that are kept, and no cache.
    pub(crate) fn nginx_pass(&self) -> Result<Subject> {
        self.start_nginx(NGINX, "", "")
    }

    fn start_nginx(&self, name: &'static str, option: &str, location: &str) -> Result<Subject> {
        let location = format!(
            "listen ADDRESS;
                    location / {{
                        proxy_pass http://origin; proxy_http_version 1.1;
                        proxy_set_header Connection \"\"; {location}
                    }}"
        );
        self.nginx_with(name, option, &location)
    }

    /// nginx with this server block, in which `ADDRESS` is the address, and the upstream `origin`.
    pub(crate) fn nginx_server(&self, name: &'static str, server: &str) -> Result<Subject> {
        self.nginx_with(name, "", server)
    }

    fn nginx_with(&self, name: &'static str, option: &str, server: &str) -> Result<Subject> {
        let (folder, address) = (self.folder.join(name), free_address()?);
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("nginx.conf");
        let origin = self.origin;
        let server = server.replace("ADDRESS", &address.to_string());
        let config = format!(
            "daemon off; worker_processes 1; pid pid; error_log errors warn;
            events {{ worker_connections 2048; }}
            http {{
                access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; {option}
                keepalive_timeout 300s; keepalive_requests 1000000000; client_body_temp_path client;
                proxy_temp_path proxy; fastcgi_temp_path fcgi; uwsgi_temp_path uwsgi; scgi_temp_path s;
                proxy_cache_path cache keys_zone=hits:64m inactive=1h max_size=512m use_temp_path=off;
                upstream origin {{
                    server {origin}; keepalive 64; keepalive_requests 1000000000;
                }}
                server {{ {server} }}
            }}"
        );
        std::fs::write(&file, &config)?;
        let (place, file) = (folder.to_string_lossy(), file.to_string_lossy());
        let mut command = self.pinned("/usr/sbin/nginx");
        command.args(["-p", &place, "-c", &file, "-e", "errors"]);
        let mark = Some(("x-cache", "HIT"));
        Ok(started(name, address, mark, command)?.configured(config))
    }

    /// HAProxy with its cache, which holds objects of up to 2 MiB here.
    pub(crate) fn haproxy(&self) -> Result<Subject> {
        let (file, address) = (self.folder.join("haproxy.cfg"), free_address()?);
        let origin = self.origin;
        let config = format!(
            "global\n  nbthread 1\n  maxconn 4096\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 300s\n  \
             timeout server 30s\n\
             cache hits\n  total-max-size 256\n  max-object-size 2097152\n  max-age 3600\n\
             frontend front\n  bind {address}\n  http-request cache-use hits\n  \
             http-response cache-store hits\n  default_backend origin\n\
             backend origin\n  http-reuse always\n  server origin {origin}\n"
        );
        std::fs::write(&file, &config)?;
        let mut command = self.pinned("/usr/sbin/haproxy");
        command.arg("-q").arg("-db").arg("-f").arg(&file);
        Ok(started(HAPROXY, address, Some(("age", "")), command)?.configured(config))
    }

    /// Varnish with one pool of threads and its store in memory.
    pub(crate) fn varnish(&self) -> Result<Subject> {
        let (file, address) = (self.folder.join("varnish.vcl"), free_address()?);
        let (host, port) = (self.origin.ip(), self.origin.port());
        let config = format!(
            "vcl 4.1;\nbackend origin {{ .host = \"{host}\"; .port = \"{port}\"; }}\n\
             sub vcl_deliver {{ if (obj.hits > 0) {{ set resp.http.X-Cache = \"HIT\"; }} }}\n"
        );
        std::fs::write(&file, &config)?;
        let folder = self.folder.join("varnish");
        let mut command = self.pinned("/usr/sbin/varnishd");
        command.args(["-F", "-j", "none", "-a", &address.to_string()]).args(VARNISH_ARGUMENTS);
        command.arg("-n").arg(&folder).arg("-f").arg(&file);
        let config = format!("{config}arguments: {VARNISH_ARGUMENTS:?}\n");
        Ok(started(VARNISH, address, Some(("x-cache", "HIT")), command)?.configured(config))
    }

    pub(super) fn pinned(&self, program: &str) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.cores.server.to_string(), program]);
        command
    }
}

const VARNISH_ARGUMENTS: [&str; 6] =
    ["-s", "malloc,256m", "-p", "thread_pools=1", "-p", "timeout_idle=300"];

/// The servers of measured subjects as rivals of a report, and those that are missing.
pub(crate) fn described<T>(all: &[T], subject: impl Fn(&T) -> &Subject) -> Vec<Rival> {
    let mut rivals: Vec<Rival> = Vec::new();
    for subject in all.iter().map(subject).filter(|subject| subject.name != FOREBAY) {
        let Some((_, program, why, page)) = REASONS.iter().find(|one| one.0 == subject.name) else {
            continue;
        };
        rivals.push(Rival {
            name: subject.name.to_owned(),
            version: version(program),
            settings: subject.settings.clone(),
            why,
            documentation: page,
            missing: None,
        });
    }
    for (name, ..) in REASONS.iter().filter(|(_, program, ..)| !is_installed(program)) {
        rivals.push(Rival::missing(name, "its Debian package is not installed"));
    }
    rivals
}

/// Name, program, reason for the settings, and documentation.
const REASONS: [(&str, &str, &str, &str); 6] = [
    (
        NGINX_KEPT,
        "nginx",
        "the same with open_file_cache, which its documentation offers for files that are read often",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#open_file_cache",
    ),
    (
        NGINX,
        "nginx",
        "one worker on one core, no log, kept connections to the origin, cache on disk as by default",
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache",
    ),
    (
        NGINX_LOCK,
        "nginx",
        "the same with proxy_cache_lock for cold keys, and a stale response with a background update for \
         expired ones, to which the lock does not apply; its times are longer than the origin needs",
        "https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache_lock",
    ),
    (
        HAPROXY,
        "haproxy",
        "one thread; its cache has no coalescing, so that no option could add it",
        "https://docs.haproxy.org/2.6/configuration.html#6",
    ),
    (
        VARNISH,
        "varnishd",
        "one thread pool and a store in memory; it coalesces by default, and its default grace of 10 s \
         answers stale",
        "https://varnish-cache.org/docs/7.1/reference/varnishd.html",
    ),
    (
        TRAFFIC_SERVER,
        "traffic_server",
        "one network thread, memory before its store on disk, and the settings that its documentation \
         gives against many requests for one page: readers of an arriving response, and waits for it",
        "https://docs.trafficserver.apache.org/en/9.2.x/admin-guide/configuration/cache-basics.en.html",
    ),
];

/// First line that a program prints about its version.
fn version(program: &str) -> String {
    let flag = if matches!(program, "varnishd" | "traffic_server") { "-V" } else { "-v" };
    let output = path_of(program).map(|path| Command::new(path).arg(flag).output());
    let Some(Ok(output)) = output else { return String::new() };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned()
}

/// Returns true if the program of a peer is installed. nginx is required.
pub(crate) fn is_installed(program: &str) -> bool {
    path_of(program).is_some()
}

fn path_of(program: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/usr/bin"].into_iter();
    folders.map(|folder| Path::new(folder).join(program)).find(|path| path.exists())
}

/// Chooses a free address for a server that does not print its own.
pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

pub(super) fn started(
    name: &'static str,
    address: SocketAddr,
    hit: Mark,
    mut command: Command,
) -> Result<Subject> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Terminated(command.spawn().with_context(|| format!("start {name}"))?);
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(server.0.try_wait()?.is_none(), "{name} has ended");
        ensure!(begun.elapsed() < READY_MAX, "{name} does not accept connections");
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = server.0.id();
    let settings = String::new();
    Ok(Subject { name, address, hit, pid, settings, _server: Box::new(server) })
}
