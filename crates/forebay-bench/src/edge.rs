//! CPU time of hits over TLS and HTTP/2, and of new connections, beside nginx and HAProxy; memory of
//! idle TLS connections; floods of HTTP/2 frames.
//!
//! Each server has one core, h2load another; the servers take turns. A measurement counts only if
//! its server was at least 90 % busy: otherwise the load generator was the limit, and its wake-ups
//! are measured too.

mod floods;
mod idle;
pub(crate) mod servers;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::param::clock_ticks_per_second;

use crate::environment::{Options, median};
use crate::proxy::load::{Cores, allowed_cores};
use crate::report::{Table, Verdict};
use servers::{BARE, HAPROXY, NGINX, Server};

/// Share of its core that a server must use for a measurement to count.
const BUSY_MIN: f64 = 0.9;

/// One kind of load.
struct Load {
    name: &'static str,
    /// Length of the body in bytes.
    bytes: usize,
    /// Arguments of h2load, without duration and URL.
    arguments: &'static [&'static str],
    /// Measures for a number of seconds; otherwise `arguments` have a number of requests and a rate,
    /// so that the server need not be busy.
    is_timed: bool,
    /// Largest CPU time as a multiple of that of other servers.
    most: &'static [(&'static str, f64)],
}

const LOADS: &[Load] = &[
    Load {
        name: "HTTP/1.1, 1 KiB, 64 connections",
        bytes: 1 << 10,
        arguments: &["-c64", "--h1"],
        is_timed: true,
        most: &[(NGINX, 0.95), (HAPROXY, 0.75), (BARE, 1.30)],
    },
    Load {
        name: "HTTP/2, 1 KiB, 64 connections with 1 stream",
        bytes: 1 << 10,
        arguments: &["-c64", "-m1"],
        is_timed: true,
        most: &[(NGINX, 1.0)],
    },
    Load {
        name: "HTTP/2, 1 KiB, 8 connections with 32 streams",
        bytes: 1 << 10,
        arguments: &["-c8", "-m32"],
        is_timed: true,
        most: &[(NGINX, 1.0)],
    },
    Load {
        name: "HTTP/1.1, 1 MiB, 16 connections",
        bytes: 1 << 20,
        arguments: &["-c16", "--h1"],
        is_timed: true,
        most: &[(NGINX, 0.80)],
    },
    Load {
        name: "HTTP/2, 1 MiB, 16 connections with 1 stream",
        bytes: 1 << 20,
        arguments: &["-c16", "-m1", "-w20", "-W20"],
        is_timed: true,
        most: &[(NGINX, 0.75)],
    },
    Load {
        name: "new connection with 1 request",
        bytes: 1 << 10,
        arguments: &["-n3000", "-c3000", "--rate=800", "--h1"],
        is_timed: false,
        most: &[(NGINX, 0.70)],
    },
];

/// One measurement.
struct Sample {
    cpu_us: f64,
    busy: f64,
    rate: f64,
}

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let cores = allowed_cores()?;
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let (_origin, servers) = runtime.block_on(servers::start(cores, folder.path()))?;
    let mut tables = Vec::new();
    for load in LOADS {
        tables.push(load.measure(&servers, options, cores)?);
    }
    drop(servers);
    tables.push(runtime.block_on(idle::measure(cores, folder.path()))?);
    tables.push(runtime.block_on(floods::measure(options, cores, folder.path()))?);
    Ok(tables)
}

impl Load {
    /// Measures the servers in turn. Bare hyper speaks HTTP/1.1 only.
    fn measure(&self, servers: &[Server], options: &Options, cores: Cores) -> Result<Table> {
        let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 1));
        let is_h1 = self.arguments.contains(&"--h1");
        let servers: Vec<_> =
            servers.iter().filter(|server| is_h1 || server.name != BARE).collect();
        servers.iter().try_for_each(|server| server.warm(self.bytes))?;
        let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (server, samples) in servers.iter().zip(&mut samples) {
                samples.push(self.sample(server, seconds, cores.load)?);
            }
        }
        let of = |index: usize, figure: fn(&Sample) -> f64| {
            median(&samples[index].iter().map(figure).collect::<Vec<f64>>())
        };
        let cpu = |index: usize| of(index, |sample| sample.cpu_us);
        let busy = |index: usize| of(index, |sample| sample.busy);
        let title = format!("{} over TLS 1.3", self.name);
        let columns = ["server", "req/s", "CPU us/req", "CPU", "forebay, x its CPU"];
        let mut table = Table::new(title, &columns).note("medians over the rounds");
        for (index, server) in servers.iter().enumerate() {
            let ratio = cpu(0) / cpu(index);
            let cells = vec![
                server.name.to_owned(),
                format!("{:.0}", of(index, |sample| sample.rate)),
                format!("{:.1}", cpu(index)),
                format!("{:.0} %", 100.0 * busy(index)),
                format!("{ratio:.2}"),
            ];
            let most = self.most.iter().find(|(name, _)| *name == server.name);
            let is_judged = !self.is_timed || busy(0).min(busy(index)) >= BUSY_MIN;
            let (bound, verdict) = match most {
                None => (String::new(), Verdict::Shown),
                Some((_, most)) if is_judged => {
                    (format!("≤ {most:.2}"), Verdict::of(ratio <= *most))
                }
                Some((_, most)) => (format!("≤ {most:.2}"), Verdict::NotBusy),
            };
            table.row(cells, bound, verdict);
        }
        Ok(table)
    }

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
