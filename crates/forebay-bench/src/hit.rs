//! CPU time of an HTTP hit, beside bare hyper and nginx.
//!
//! Each server has one core, the load generator another; the servers take turns, so that other load
//! of the machine falls on all of them. The CPU time per request does not depend on the speed of
//! the load generator. A second bare hyper shows the spread of the baseline against itself.

use std::any::Any;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use forebay_testkit::launch::{Launched, Signal, signal};
use rustix::param::clock_ticks_per_second;
use rustix::system::uname;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::environment::{Options, build, cores, median, pinned, quantile, root};
use crate::http::Client;
use crate::report::{Table, Verdict};

/// Connections of the load generator: enough for one core, few enough that none waits long.
const CONNECTIONS: &str = "32";
/// Output of wrk: requests, microseconds, median and 99th percentile of the latency in
/// microseconds, errors.
const SCRIPT: &str = "done = function(summary, latency)
    local e = summary.errors
    io.write(string.format('\\nresult: %d %d %d %d %d\\n', summary.requests, summary.duration,
        latency:percentile(50), latency:percentile(99),
        e.connect + e.read + e.write + e.status + e.timeout))
end";
/// Attempts until an answer is a hit: a cache may store it shortly after the first answer.
const TRIES_MAX: u32 = 5;
/// Time limit for nginx to accept connections.
const READY_MAX: Duration = Duration::from_secs(20);

/// Field of a response and the part of its value that mark a hit.
type Mark = Option<(&'static str, &'static str)>;

/// A server under test.
struct Subject {
    name: &'static str,
    address: SocketAddr,
    hit: Mark,
    pid: u32,
    /// Stops the server when dropped.
    _server: Box<dyn Any>,
}

/// One round of one server.
struct Sample {
    rate: f64,
    user_us: f64,
    system_us: f64,
    busy_percent: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Core of the servers and core of the load generator.
#[derive(Clone, Copy)]
struct Cores {
    server: usize,
    load: usize,
}

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 1));
    let cores = allowed_cores()?;
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let (_origin, subjects) = runtime.block_on(start(cores, folder.path()))?;
    let columns = [
        "server",
        "req/s (min-max)",
        "CPU us/req (min-max)",
        "user+sys",
        "p50",
        "p99",
        "CPU",
        "x rate",
        "x CPU",
    ];
    let mut tables = Vec::new();
    for (size, bytes) in [("1 KiB", 1024), ("1 MiB", 1024 * 1024)] {
        for subject in &subjects {
            runtime.block_on(subject.until_hit(bytes))?;
        }
        let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (subject, samples) in subjects.iter().zip(&mut samples) {
                samples.push(subject.sample(bytes, seconds, cores.load)?);
            }
        }
        let note = "medians over the rounds; x: ratio to the first bare hyper";
        let mut table =
            Table::new(format!("hit of {size}; {}", machine(cores)), &columns).note(note);
        for (subject, measured) in subjects.iter().zip(&samples) {
            runtime.block_on(subject.until_hit(bytes)).context("after the measurement")?;
            table.row(cells(subject.name, measured, &samples[0]), "", Verdict::Shown);
        }
        tables.push(table);
    }
    Ok(tables)
}

fn cells(name: &str, samples: &[Sample], baseline: &[Sample]) -> Vec<String> {
    let of = |figure: fn(&Sample) -> f64| samples.iter().map(figure).collect::<Vec<f64>>();
    let ratio = |figure: fn(&Sample) -> f64| {
        let baseline: Vec<f64> = baseline.iter().map(figure).collect();
        format!("{:.2}", median(&of(figure)) / median(&baseline))
    };
    let (rate, cpu) = (of(|one| one.rate), of(Sample::cpu_us));
    let span = |us: f64| match us < 1e3 {
        true => format!("{us:.0} us"),
        false => format!("{:.2} ms", us / 1e3),
    };
    let [low, high] = [0.0, 1.0];
    vec![
        name.to_owned(),
        format!("{:.0} ({:.0}-{:.0})", median(&rate), quantile(&rate, low), quantile(&rate, high)),
        format!("{:.2} ({:.2}-{:.2})", median(&cpu), quantile(&cpu, low), quantile(&cpu, high)),
        format!("{:.1}+{:.1}", median(&of(|one| one.user_us)), median(&of(|one| one.system_us))),
        span(median(&of(|one| one.p50_us))),
        span(median(&of(|one| one.p99_us))),
        format!("{:.0}%", median(&of(|one| one.busy_percent))),
        ratio(|one| one.rate),
        ratio(Sample::cpu_us),
    ]
}

impl Sample {
    fn cpu_us(&self) -> f64 {
        self.user_us + self.system_us
    }
}

/// Starts the origin on the core of the load generator, and the servers on theirs.
async fn start(cores: Cores, folder: &Path) -> Result<(Launched, Vec<Subject>)> {
    let forebay = build("dist", &["-p", "forebay-cli", "--bin", "forebay"])?;
    let bare = build("dist", &["-p", "forebay-http", "--bench", "bare_hyper"])?;
    let origin = pinned(cores.load, &forebay, &["origin", "--listen", "127.0.0.1:0"]).await?;
    let origin_address = origin.address();
    let mut subjects = Vec::new();
    for name in ["bare hyper", "bare hyper, again"] {
        subjects.push(Subject::new(name, pinned(cores.server, &bare, &[]).await?, None));
    }
    let file = folder.join("forebay.toml");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\n\
         [[site]]\nid = \"bench\"\norigin = \"http://{origin_address}\"\n"
    );
    std::fs::write(&file, config)?;
    let serve = ["serve", "--config", &file.to_string_lossy()];
    let server = pinned(cores.server, &forebay, &serve).await?;
    subjects.push(Subject::new("forebay", server, Some(("cache-status", "hit"))));
    let kept = "open_file_cache max=100 inactive=1h; open_file_cache_valid 1h;";
    for (name, option) in [("nginx", ""), ("nginx, files kept open", kept)] {
        let folder = folder.join(format!("nginx-{}", option.len()));
        subjects.push(start_nginx(name, option, &folder, origin_address, cores)?);
    }
    Ok((origin, subjects))
}

/// nginx as a cache with one worker and no log; `option` is a line of its configuration.
fn start_nginx(
    name: &'static str,
    option: &str,
    folder: &Path,
    origin: SocketAddr,
    cores: Cores,
) -> Result<Subject> {
    std::fs::create_dir(folder)?;
    // nginx does not print its port, so a free one is chosen for it.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let file = folder.join("nginx.conf");
    let config = format!(
        "daemon off; worker_processes 1; pid pid; error_log errors warn;
        events {{ worker_connections 512; }}
        http {{
            access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; {option}
            keepalive_timeout 300s; keepalive_requests 1000000000; client_body_temp_path client;
            proxy_temp_path proxy; fastcgi_temp_path fcgi; uwsgi_temp_path uwsgi; scgi_temp_path s;
            proxy_cache_path cache keys_zone=hits:1m inactive=1h max_size=64m use_temp_path=off;
            server {{
                listen {address};
                location / {{
                    proxy_pass http://{origin}; proxy_cache hits;
                    add_header X-Cache $upstream_cache_status;
                }}
            }}
        }}"
    );
    std::fs::write(&file, config)?;
    let program = Path::new("/usr/sbin/nginx");
    let (place, file) = (folder.to_string_lossy(), file.to_string_lossy());
    let arguments = ["-p", &place, "-c", &file, "-e", "errors"];
    let mut server = Command::new("taskset");
    server.args(["-c", &cores.server.to_string()]).arg(program).args(arguments);
    let server = Terminated(server.spawn().context("start nginx")?);
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(begun.elapsed() < READY_MAX, "{name} does not accept connections");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (hit, pid) = (Some(("x-cache", "HIT")), server.0.id());
    Ok(Subject { name, address, hit, pid, _server: Box::new(server) })
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
    fn new(name: &'static str, server: Launched, hit: Mark) -> Self {
        let (address, pid) = (server.address(), server.pid());
        Self { name, address, hit, pid, _server: Box::new(server) }
    }

    fn target(&self, bytes: usize) -> String {
        match self.hit {
            None if bytes == 1024 => "/1k".to_owned(),
            None => "/1m".to_owned(),
            Some(_) => format!("/items/a?size={bytes}&cc=max-age%3D3600"),
        }
    }

    /// Requests the body until it is a hit; fails if it never is or has another length.
    async fn until_hit(&self, bytes: usize) -> Result<()> {
        let mut client = Client::connect(self.address).await?;
        for _ in 0..TRIES_MAX {
            let (head, length) = client.get(&self.target(bytes)).await?;
            let is_right = head.status() == 200 && length == bytes as u64;
            ensure!(is_right, "{} answers {head:?} and {length} bytes", self.name);
            let marked = |field, mark| {
                head.headers()
                    .get(field)
                    .is_some_and(|value| value.to_str().is_ok_and(|value| value.contains(mark)))
            };
            if self.hit.is_none_or(|(field, mark)| marked(field, mark)) {
                return Ok(());
            }
        }
        bail!("{} never answers from its cache", self.name)
    }

    fn sample(&self, bytes: usize, seconds: u32, core: usize) -> Result<Sample> {
        let url = format!("http://{}{}", self.address, self.target(bytes));
        let script = tempfile::NamedTempFile::new()?;
        std::fs::write(&script, SCRIPT)?;
        let before = cpu_ticks(self.pid)?;
        let output = Command::new("taskset")
            .args(["-c", &core.to_string(), "timeout", &(seconds + 20).to_string(), "wrk"])
            .args(["--threads", "1", "--connections", CONNECTIONS])
            .args(["--duration", &format!("{seconds}s"), &url, "--script"])
            .arg(script.path())
            .output()
            .context("start wrk")?;
        let after = cpu_ticks(self.pid)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let result = text.lines().find_map(|line| line.strip_prefix("result: "));
        let result = result.unwrap_or_default().split(' ').map(str::parse::<f64>);
        let result = result.collect::<Result<Vec<_>, _>>().unwrap_or_default();
        let [requests, span, p50_us, p99_us, errors] = result[..] else {
            bail!("wrk against {url} printed\n{text}");
        };
        ensure!(requests > 0.0 && errors == 0.0, "{errors} errors of {url}");
        let tick_us = 1e6 / clock_ticks_per_second() as f64;
        let [user, system] = [0, 1].map(|at| (after[at] - before[at]) * tick_us / requests);
        Ok(Sample {
            rate: requests * 1e6 / span,
            user_us: user,
            system_us: system,
            busy_percent: (user + system) * requests * 100.0 / span,
            p50_us,
            p99_us,
        })
    }
}

/// CPU time in user and in system mode of a process and its children, in clock ticks.
fn cpu_ticks(pid: u32) -> Result<[f64; 2]> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let mut ticks = [0.0; 2];
    for pid in children.split_whitespace().map(str::to_owned).chain([pid.to_string()]) {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may contain spaces.
        let (_, rest) = stat.rsplit_once(')').context("read the CPU time")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        for (sum, at) in ticks.iter_mut().zip([11, 12]) {
            *sum += fields.get(at).context("read the CPU time")?.parse::<f64>()?;
        }
    }
    Ok(ticks)
}

/// The first two cores that this program may use; with one core, both are that one.
fn allowed_cores() -> Result<Cores> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let server = cores.next().context("no core")?;
    Ok(Cores { server, load: cores.next().unwrap_or(server) })
}

fn machine(used: Cores) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = model.map_or("unknown CPU", |(_, name)| name);
    let kernel = uname().release().to_string_lossy().into_owned();
    let git = Command::new("git").args(["describe", "--always"]).current_dir(root()).output();
    let commit = git.map(|git| String::from_utf8_lossy(&git.stdout).trim().to_owned());
    let commit = commit.unwrap_or_default();
    let shared = match used.server == used.load {
        true => "\nONE CORE for server and load: only CPU us/req can be compared",
        false => "",
    };
    format!("{cpu}, {} cores, Linux {kernel}, commit {commit}{shared}", cores())
}
