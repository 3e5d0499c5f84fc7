//! The servers of the benchmark: forebay, nginx and HAProxy as caches with TLS, and bare hyper.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use forebay_testkit::launch::{Launched, Signal, signal};

use crate::environment::{build, forebay, pinned};
use crate::proxy::load::Cores;

/// Time limit for a server to accept connections.
const READY_MAX: Duration = Duration::from_secs(20);

/// Requests after which a response is stored by every server.
const WARM_REQUESTS: u32 = 3;

/// Maximum number of connections to HAProxy. It needs two open files for each, and does not start
/// beyond the limit of the system.
const HAPROXY_CONNECTIONS: u32 = 8_000;

/// Server under test.
pub(super) struct Server {
    pub(super) name: &'static str,
    address: SocketAddr,
    process: Process,
}

enum Process {
    Launched(Box<Launched>),
    Child(Terminated),
}

/// Process that is ended by SIGTERM, so that it ends its workers.
struct Terminated(Child);

impl Drop for Terminated {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = signal(self.0.id(), Signal::Term);
        let _ = self.0.wait();
    }
}

pub(super) const NGINX: &str = "nginx";
pub(super) const HAPROXY: &str = "HAProxy";
pub(super) const BARE: &str = "bare hyper";

/// Starts the origin on the core of the load generator, and the servers on theirs; forebay is the
/// first one.
pub(super) async fn start(cores: Cores, folder: &Path) -> Result<(Launched, Vec<Server>)> {
    let (origin, forebay) = start_forebay(cores, folder).await?;
    let bare = build("release", &["-p", "forebay-http", "--bench", "bare_hyper"])?;
    let files = ["a.pem", "a.key"].map(|name| folder.join(name).to_string_lossy().into_owned());
    let bare = pinned(cores.server, &bare, &files.each_ref().map(String::as_str)).await?;
    let servers = vec![
        forebay,
        nginx(cores.server, folder, origin.address())?,
        haproxy(cores.server, folder, origin.address())?,
        Server { name: BARE, address: bare.address(), process: Process::Launched(Box::new(bare)) },
    ];
    Ok((origin, servers))
}

/// Starts the origin, and forebay with a TLS listener and a cleartext one.
pub(super) async fn start_forebay(cores: Cores, folder: &Path) -> Result<(Launched, Server)> {
    let program = forebay()?;
    let origin = pinned(cores.load, &program, &["origin", "--listen", "127.0.0.1:0"]).await?;
    certificate(folder)?;
    let address = free_address()?;
    let file = folder.join("forebay.toml");
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\
         [tls]\nlisten = \"{address}\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
         [[site]]\nid = \"bench\"\norigin = \"http://{}\"\n",
        origin.address()
    );
    std::fs::write(&file, config)?;
    let serve = ["serve", "--config", &file.to_string_lossy()];
    let server = pinned(cores.server, &program, &serve).await?;
    let process = Process::Launched(Box::new(server));
    Ok((origin, Server { name: "forebay", address, process }))
}

/// Writes a certificate with a P-256 key: `a.pem`, `a.key`, and both in `both.pem`.
pub(crate) fn certificate(folder: &Path) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt"]);
    command.args(["ec_paramgen_curve:prime256v1", "-days", "30", "-subj", "/CN=bench"]);
    command.args(["-addext", "subjectAltName=DNS:bench.example"]);
    command.args(["-keyout", "a.key", "-out", "a.pem"]).current_dir(folder);
    let output = command.output().context("start openssl")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.join(name));
    std::fs::write(folder.join("both.pem"), read("a.pem")? + &read("a.key")?)?;
    Ok(())
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// nginx as a cache with one worker, no log, and open files kept. Run by root, the worker keeps that
/// user: another one could not enter the folder.
fn nginx(core: usize, folder: &Path, origin: SocketAddr) -> Result<Server> {
    let (address, place) = (free_address()?, folder.join("nginx"));
    std::fs::create_dir(&place)?;
    let file = place.join("nginx.conf");
    let config = format!(
        "user root; daemon off; worker_processes 1; pid pid; error_log errors warn;
        events {{ worker_connections 8192; }}
        http {{
            access_log off; sendfile on; tcp_nopush on; tcp_nodelay on;
            open_file_cache max=100 inactive=1h; open_file_cache_valid 1h;
            keepalive_timeout 300s; keepalive_requests 1000000000; client_body_temp_path client;
            proxy_temp_path proxy; fastcgi_temp_path fcgi; uwsgi_temp_path uwsgi; scgi_temp_path s;
            proxy_cache_path cache keys_zone=hits:1m inactive=1h max_size=64m use_temp_path=off;
            server {{
                listen {address} ssl http2; ssl_protocols TLSv1.2 TLSv1.3;
                ssl_certificate ../a.pem; ssl_certificate_key ../a.key;
                location / {{ proxy_pass http://{origin}; proxy_cache hits; }}
            }}
        }}"
    );
    std::fs::write(&file, config)?;
    let (place, file) = (place.to_string_lossy(), file.to_string_lossy());
    let arguments = ["/usr/sbin/nginx", "-p", &place, "-c", &file, "-e", "errors"];
    Server::spawn(NGINX, core, address, &arguments)
}

/// HAProxy as a cache with one thread.
fn haproxy(core: usize, folder: &Path, origin: SocketAddr) -> Result<Server> {
    let address = free_address()?;
    let file = folder.join("haproxy.cfg");
    let certificate = folder.join("both.pem");
    let config = format!(
        "global\n  nbthread 1\n  maxconn {HAPROXY_CONNECTIONS}\n  tune.bufsize 16384\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n\
         cache hits\n  total-max-size 64\n  max-object-size 8000000\n  max-age 3600\n\
         frontend clients\n  bind {address} ssl crt {} alpn h2,http/1.1\n\
         \x20 http-request cache-use hits\n  http-response cache-store hits\n\
         \x20 default_backend origin\nbackend origin\n  server origin {origin}\n",
        certificate.display()
    );
    std::fs::write(&file, config)?;
    let arguments = ["/usr/sbin/haproxy", "-db", "-q", "-f", &file.to_string_lossy()];
    Server::spawn(HAPROXY, core, address, &arguments)
}

impl Server {
    fn spawn(
        name: &'static str,
        core: usize,
        address: SocketAddr,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).args(arguments).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        let process = Process::Child(Terminated(child));
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(begun.elapsed() < READY_MAX, "{name} does not accept connections");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { name, address, process })
    }

    /// URL of a body of this length, which the origin allows to be stored for an hour.
    pub(super) fn url(&self, bytes: usize) -> String {
        let path = match (self.name, bytes) {
            (BARE, 1_024) => "1k".to_owned(),
            (BARE, _) => "1m".to_owned(),
            _ => format!("items/a?size={bytes}&cc=max-age%3D3600"),
        };
        format!("https://{}/{path}", self.address)
    }

    /// Returns forebay itself.
    pub(super) fn launched(&self) -> Result<&Launched> {
        match &self.process {
            Process::Launched(server) => Ok(server),
            Process::Child(_) => bail!("{} is another server", self.name),
        }
    }

    /// Requests a body until it is stored.
    pub(super) fn warm(&self, bytes: usize) -> Result<()> {
        for _ in 0..WARM_REQUESTS {
            let mut command = Command::new("curl");
            command.args(["-sSk", "-o", "/dev/null", "-w", "%{http_code} %{size_download}"]);
            let output = command.arg(self.url(bytes)).output().context("start curl")?;
            let text = String::from_utf8_lossy(&output.stdout);
            let expected = format!("200 {bytes}");
            ensure!(text == expected, "{}: {text} instead of {expected}", self.name);
        }
        Ok(())
    }

    /// CPU time of the server and its workers in ticks of the system's clock.
    pub(super) fn cpu_ticks(&self) -> Result<u64> {
        let pid = match &self.process {
            Process::Launched(server) => server.pid(),
            Process::Child(server) => server.0.id(),
        };
        let mut ticks = 0;
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // A process may end in between.
            let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
            let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
            let fields: Vec<&str> = fields.split(' ').collect();
            let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
            if id == pid || field(1) == Some(u64::from(pid)) {
                ticks += field(11).unwrap_or_default() + field(12).unwrap_or_default();
            }
        }
        Ok(ticks)
    }
}
