//! CPU time of an HTTP hit, beside bare hyper and nginx.
//!
//! Each server has one core, the load generator another; the servers take turns, so that other load
//! of the machine falls on all of them. The CPU time per request does not depend on the speed of
//! the load generator. A second bare hyper shows the spread of the baseline against itself.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::environment::{Options, Server, build, cores, median, quantile, root};
use crate::report::{Table, Verdict};

/// Connections of the load generator: enough for one core, few enough that none waits long.
const CONNECTIONS: &str = "32";
/// Attempts until an answer is a hit: a cache may store it shortly after the first answer.
const TRIES_MAX: u32 = 5;
/// Time limit for nginx to accept connections.
const READY_MAX: Duration = Duration::from_secs(20);

/// A server under test.
struct Subject {
    name: &'static str,
    address: SocketAddr,
    /// Field of the response and the part of its value that mark a hit.
    hit: Option<(&'static str, &'static str)>,
    server: Server,
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
    let (_origin, subjects) = start(cores, folder.path())?;
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
            subject.until_hit(bytes)?;
        }
        let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (subject, samples) in subjects.iter().zip(&mut samples) {
                samples.push(subject.sample(bytes, seconds, cores)?);
            }
        }
        let note = "medians over the rounds; x: ratio to the first bare hyper";
        let mut table =
            Table::new(format!("hit of {size}; {}", machine(cores)), &columns).note(note);
        for (subject, measured) in subjects.iter().zip(&samples) {
            subject.until_hit(bytes).context("after the measurement")?;
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
fn start(cores: Cores, folder: &Path) -> Result<(Server, Vec<Subject>)> {
    let forebay = build("dist", &["-p", "forebay-cli", "--bin", "forebay"])?;
    let bare = build("dist", &["-p", "forebay-http", "--bench", "bare_hyper"])?;
    let mut origin = Server::pinned(cores.load, &forebay, &["origin", "--listen", "127.0.0.1:0"])?;
    let origin_address = origin.address()?;
    let mut subjects = Vec::new();
    for name in ["bare hyper", "bare hyper, again"] {
        let mut server = Server::pinned(cores.server, &bare, &[])?;
        subjects.push(Subject { name, address: server.address()?, hit: None, server });
    }
    let file = folder.join("forebay.toml");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\n\
         [[site]]\nid = \"bench\"\norigin = \"http://{origin_address}\"\n"
    );
    std::fs::write(&file, config)?;
    let serve = ["serve", "--config", &file.to_string_lossy()];
    let mut server = Server::pinned(cores.server, &forebay, &serve)?;
    let (address, hit) = (server.address()?, Some(("cache-status", "hit")));
    subjects.push(Subject { name: "forebay", address, hit, server });
    let kept = "open_file_cache max=100 inactive=1h;\n    open_file_cache_valid 1h;\n    ";
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
    let (file, place) = (folder.join("nginx.conf"), folder.display());
    let mut config = format!(
        "daemon off;\nworker_processes 1;\npid {place}/pid;\nerror_log {place}/errors warn;\n\
         events {{ worker_connections 512; }}\nhttp {{\n    access_log off;\n    sendfile on;\n    \
         tcp_nopush on;\n    tcp_nodelay on;\n    keepalive_timeout 300s;\n    \
         keepalive_requests 1000000000;\n    client_body_temp_path {place}/client;\n    "
    );
    for module in ["proxy", "fastcgi", "uwsgi", "scgi"] {
        write!(config, "{module}_temp_path {place}/{module};\n    ")?;
    }
    write!(
        config,
        "proxy_cache_path {place}/cache keys_zone=hits:1m inactive=1h max_size=64m \
         use_temp_path=off;\n    {option}server {{\n        listen {address};\n        \
         location / {{\n            proxy_pass http://{origin};\n            proxy_cache hits;\n\
         add_header X-Cache $upstream_cache_status;\n        }}\n    }}\n}}\n"
    )?;
    std::fs::write(&file, config)?;
    let program = Path::new("/usr/sbin/nginx");
    let (place, file) = (place.to_string(), file.to_string_lossy());
    let arguments = ["-p", &place, "-c", &file, "-e", "errors"];
    let server = Server::pinned(cores.server, program, &arguments)?;
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(begun.elapsed() < READY_MAX, "{name} does not accept connections");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Subject { name, address, hit: Some(("x-cache", "HIT")), server })
}

impl Subject {
    fn target(&self, bytes: usize) -> String {
        match self.hit {
            None if bytes == 1024 => "/1k".to_owned(),
            None => "/1m".to_owned(),
            Some(_) => format!("/items/a?size={bytes}&cc=max-age%3D3600"),
        }
    }

    /// Requests the body until it is a hit; fails if it never is or has another length.
    fn until_hit(&self, bytes: usize) -> Result<()> {
        let mut head = String::new();
        for _ in 0..TRIES_MAX {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let (target, host) = (self.target(bytes), self.address);
            write!(stream, "GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
            head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
            let length = answer.len() - end - 4;
            let is_right = head.starts_with("http/1.1 200 ") && length == bytes;
            ensure!(is_right, "{} answers {length} bytes, expected {bytes}:\n{head}", self.name);
            let is_hit = self.hit.is_none_or(|(field, mark)| {
                let values = head.lines().filter_map(|line| line.strip_prefix(field));
                values.into_iter().any(|value| value.contains(&mark.to_lowercase()))
            });
            if is_hit {
                return Ok(());
            }
        }
        bail!("{} never answers from its cache:\n{head}", self.name)
    }

    fn sample(&self, bytes: usize, seconds: u32, cores: Cores) -> Result<Sample> {
        let url = format!("http://{}{}", self.address, self.target(bytes));
        let before = cpu_ticks(self.server.pid())?;
        let output = Command::new("taskset")
            .args(["-c", &cores.load.to_string(), "timeout", &(seconds + 20).to_string(), "wrk"])
            .args(["--threads", "1", "--connections", CONNECTIONS])
            .args(["--duration", &format!("{seconds}s"), "--latency", &url])
            .output()
            .context("start wrk")?;
        let after = cpu_ticks(self.server.pid())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (requests, span, [p50_us, p99_us]) =
            parse_wrk(&text).with_context(|| format!("wrk against {url} printed\n{text}"))?;
        let tick_us = 1e6 / ticks_per_second()?;
        let [user, system] = [0, 1].map(|at| (after[at] - before[at]) * tick_us / requests);
        Ok(Sample {
            rate: requests / span,
            user_us: user,
            system_us: system,
            busy_percent: (user + system) * requests / (span * 1e4),
            p50_us,
            p99_us,
        })
    }
}

/// Requests, seconds, and the 50th and 99th percentile of the latency in microseconds.
fn parse_wrk(text: &str) -> Result<(f64, f64, [f64; 2])> {
    for error in ["Non-2xx or 3xx responses", "Socket errors"] {
        ensure!(!text.contains(error), "{error}");
    }
    let mut lines = text.lines().map(str::trim);
    let counts = lines.clone().find_map(|line| line.split_once(" requests in "));
    let (requests, rest) = counts.context("no number of requests")?;
    let span = rest.split(',').next().and_then(microseconds).context("no duration")?;
    let mut percentile = |name: &str| {
        let found = lines.find_map(|line| microseconds(line.strip_prefix(name)?));
        found.with_context(|| format!("no percentile {name}"))
    };
    let percentiles = [percentile("50%")?, percentile("99%")?];
    Ok((requests.parse()?, span / 1e6, percentiles))
}

/// Reads a time with its unit: `812.00us`, `1.20ms`, `3.00s`, `1.00m`.
fn microseconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * scale)
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

fn ticks_per_second() -> Result<f64> {
    Ok(output("getconf", &["CLK_TCK"])?.parse()?)
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).current_dir(root()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first two cores that this program may use; with one core, both are that one.
fn allowed_cores() -> Result<Cores> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut cores = Vec::new();
    for range in list.context("no Cpus_allowed_list")?.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(first.parse::<usize>()?..=last.parse()?);
    }
    let server = *cores.first().context("no core")?;
    Ok(Cores { server, load: *cores.get(1).unwrap_or(&server) })
}

fn machine(used: Cores) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = model.map_or("unknown CPU", |(_, name)| name);
    let kernel = output("uname", &["-r"]).unwrap_or_default();
    let commit = output("git", &["describe", "--always", "--dirty"]).unwrap_or_default();
    let shared = match used.server == used.load {
        true => "\nONE CORE for server and load: only CPU us/req can be compared",
        false => "",
    };
    format!("{cpu}, {} cores, Linux {kernel}, commit {commit}{shared}", cores())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_wrk_is_read_and_errors_are_no_hits() {
        let text = "  Latency Distribution\n     50%  812.00us\n     99%    1.20ms\n  \
                    1000 requests in 2.00s, 1.00MB read\n";
        assert_eq!(parse_wrk(text).unwrap(), (1000.0, 2.0, [812.0, 1200.0]));
        assert!(parse_wrk(&format!("{text}  Non-2xx or 3xx responses: 1\n")).is_err());
        assert!(parse_wrk("").is_err());
    }
}
