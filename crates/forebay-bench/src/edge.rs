//! CPU time of hits over TLS and HTTP/2, and of new connections, beside nginx and HAProxy.
//!
//! Each server has one core, h2load another; the servers take turns. A measurement counts only if
//! its server was at least 90 % busy: otherwise the load generator was the limit, and its wake-ups
//! are measured too.

mod servers;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::param::clock_ticks_per_second;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::environment::{Options, median};
use crate::report::{Table, Verdict};
use servers::Server;

/// Share of its core that a server must use for a measurement to count.
const BUSY_MIN: f64 = 0.9;

/// One kind of load.
struct Load {
    name: &'static str,
    /// Length of the body in bytes.
    bytes: usize,
    /// Arguments of h2load, without duration and URL.
    arguments: &'static [&'static str],
    /// Measures for a number of seconds; otherwise `arguments` have a number of requests.
    is_timed: bool,
    /// Largest CPU time as a multiple of that of nginx.
    nginx_max: f64,
    /// Largest CPU time as a multiple of that of HAProxy.
    haproxy_max: Option<f64>,
}

const LOADS: &[Load] = &[
    Load {
        name: "HTTP/1.1, 1 KiB, 64 connections",
        bytes: 1 << 10,
        arguments: &["-c64", "--h1"],
        is_timed: true,
        nginx_max: 0.95,
        haproxy_max: Some(0.75),
    },
    Load {
        name: "HTTP/2, 1 KiB, 64 connections with 1 stream",
        bytes: 1 << 10,
        arguments: &["-c64", "-m1"],
        is_timed: true,
        nginx_max: 1.0,
        haproxy_max: None,
    },
    Load {
        name: "HTTP/2, 1 KiB, 8 connections with 32 streams",
        bytes: 1 << 10,
        arguments: &["-c8", "-m32"],
        is_timed: true,
        nginx_max: 1.0,
        haproxy_max: None,
    },
    Load {
        name: "HTTP/1.1, 1 MiB, 16 connections",
        bytes: 1 << 20,
        arguments: &["-c16", "--h1"],
        is_timed: true,
        nginx_max: 0.80,
        haproxy_max: None,
    },
    Load {
        name: "HTTP/2, 1 MiB, 16 connections with 1 stream",
        bytes: 1 << 20,
        arguments: &["-c16", "-m1", "-w20", "-W20"],
        is_timed: true,
        nginx_max: 0.75,
        haproxy_max: None,
    },
    Load {
        name: "new connection with 1 request",
        bytes: 1 << 10,
        arguments: &["-n3000", "-c3000", "--rate=800", "--h1"],
        is_timed: false,
        nginx_max: 0.70,
        haproxy_max: None,
    },
];

/// One measurement.
struct Sample {
    cpu_us: f64,
    busy: f64,
    rate: f64,
}

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 1));
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let (server, load) = (cores.next(), cores.next());
    let (server, load) = server.zip(load).context("two cores are needed")?;
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let (_origin, servers) = runtime.block_on(servers::start(server, load, folder.path()))?;
    let columns = ["server", "req/s", "CPU us/req", "CPU", "x nginx", "x HAProxy"];
    let mut tables = Vec::new();
    for one in LOADS {
        servers.iter().try_for_each(|server| server.warm(one.bytes))?;
        let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (server, samples) in servers.iter().zip(&mut samples) {
                samples.push(one.sample(server, seconds, load)?);
            }
        }
        let mut table = Table::new(format!("{} over TLS 1.3", one.name), &columns)
            .note("medians over the rounds; a server below 90 % of its core is not judged");
        let of = |index: usize, figure: fn(&Sample) -> f64| {
            median(&samples[index].iter().map(figure).collect::<Vec<f64>>())
        };
        let cpu = |index: usize| of(index, |sample| sample.cpu_us);
        let busy = |index: usize| of(index, |sample| sample.busy);
        for (index, server) in servers.iter().enumerate() {
            let (to_nginx, to_haproxy) = (cpu(index) / cpu(1), cpu(index) / cpu(2));
            let cells = vec![
                server.name.to_owned(),
                format!("{:.0}", of(index, |sample| sample.rate)),
                format!("{:.1}", cpu(index)),
                format!("{:.0} %", 100.0 * busy(index)),
                format!("{to_nginx:.2}"),
                format!("{to_haproxy:.2}"),
            ];
            let is_judged = index == 0 && busy(0) >= BUSY_MIN && busy(1) >= BUSY_MIN;
            let holds =
                to_nginx <= one.nginx_max && one.haproxy_max.is_none_or(|max| to_haproxy <= max);
            let bound = match (index, one.haproxy_max) {
                (0, Some(max)) => format!("≤ {:.2} x nginx, ≤ {max:.2} x HAProxy", one.nginx_max),
                (0, None) => format!("≤ {:.2} x nginx", one.nginx_max),
                _ => String::new(),
            };
            table.row(cells, bound, if is_judged { Verdict::of(holds) } else { Verdict::Shown });
        }
        tables.push(table);
    }
    Ok(tables)
}

impl Load {
    fn sample(&self, server: &Server, seconds: u32, core: usize) -> Result<Sample> {
        let (before, begun) = (server.cpu_ticks()?, Instant::now());
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string(), "h2load", "-t1"]).args(self.arguments);
        if self.is_timed {
            command.args(["-D", &seconds.to_string()]);
        }
        let output = command.arg(server.url(self.bytes)).output().context("start h2load")?;
        let took = begun.elapsed().as_secs_f64();
        let ticks = server.cpu_ticks()? - before;
        let text = String::from_utf8_lossy(&output.stdout);
        let done = number_before(&text, " succeeded").with_context(|| text.clone().into_owned())?;
        ensure!(done > 0.0, "{}: no request of {} succeeded: {text}", server.name, self.name);
        let cpu = ticks as f64 / clock_ticks_per_second() as f64;
        Ok(Sample { cpu_us: cpu * 1e6 / done, busy: cpu / took, rate: done / took })
    }
}

/// Number before a word in the output of h2load.
fn number_before(text: &str, word: &str) -> Option<f64> {
    text.split_once(word)?.0.rsplit(' ').next()?.parse().ok()
}
