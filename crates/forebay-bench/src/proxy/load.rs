//! Load generator, and the CPU times of the processes.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::param::clock_ticks_per_second;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::environment::{median, quantile};
use crate::report::record;

/// Connections of the load generator: enough for one core, few enough that none waits long.
pub(crate) const CONNECTIONS: usize = 32;

/// Share of a core, in percent, from which on a process counts as busy.
pub(crate) const BUSY_PERCENT: f64 = 90.0;

/// Output of wrk: requests, microseconds, median and 99th percentile of the latency in
/// microseconds, errors.
const SUMMARY: &str = "done = function(summary, latency)
    local e = summary.errors
    io.write(string.format('\\nresult: %d %d %d %d %d\\n', summary.requests, summary.duration,
        latency:percentile(50), latency:percentile(99),
        e.connect + e.read + e.write + e.status + e.timeout))
end\n";

/// Core of the servers and core of the load generator.
#[derive(Clone, Copy)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

/// Load on one server.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) url: String,
    pub(crate) connections: usize,
    pub(crate) seconds: u32,
    /// Field of each request.
    pub(crate) field: Option<&'static str>,
    /// Functions of wrk's script.
    pub(crate) script: String,
}

/// One round of one server.
pub(crate) struct Sample {
    pub(crate) rate: f64,
    pub(crate) user_us: f64,
    pub(crate) system_us: f64,
    pub(crate) busy_percent: f64,
    /// Share of a core that the load generator used.
    pub(crate) load_percent: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Sample {
    pub(crate) fn cpu_us(&self) -> f64 {
        self.user_us + self.system_us
    }
}

impl Load {
    pub(crate) fn new(url: String, seconds: u32) -> Self {
        Self { url, connections: CONNECTIONS, seconds, field: None, script: String::new() }
    }

    /// Runs the load on the server with this process id.
    pub(crate) fn run(&self, pid: u32, core: usize) -> Result<Sample> {
        let script = tempfile::NamedTempFile::new()?;
        std::fs::write(&script, format!("{SUMMARY}{}", self.script))?;
        let mut wrk = Command::new("taskset");
        let limit = (self.seconds + 20).to_string();
        wrk.args(["-c", &core.to_string(), "timeout", &limit, "wrk", "--threads", "1"]);
        wrk.args(["--connections", &self.connections.to_string()]);
        wrk.args(["--duration", &format!("{}s", self.seconds), &self.url]);
        wrk.args(self.field.iter().flat_map(|field| ["--header", field]));
        wrk.arg("--script").arg(script.path());
        let (before, children, begun) = (cpu_ticks(pid)?, children_ticks()?, Instant::now());
        let output = wrk.output().context("start wrk")?;
        let (after, took) = (cpu_ticks(pid)?, begun.elapsed());
        let load = children_ticks()? - children;
        let text = String::from_utf8_lossy(&output.stdout);
        let result = text.lines().find_map(|line| line.strip_prefix("result: "));
        let result = result.unwrap_or_default().split(' ').map(str::parse::<f64>);
        let result = result.collect::<Result<Vec<_>, _>>().unwrap_or_default();
        let [requests, span, p50_us, p99_us, errors] = result[..] else {
            bail!("wrk against {} printed\n{text}", self.url);
        };
        ensure!(requests > 0.0 && errors == 0.0, "{errors} errors of {}", self.url);
        let tick_us = 1e6 / clock_ticks_per_second() as f64;
        let [user, system] = [0, 1].map(|at| (after[at] - before[at]) * tick_us / requests);
        Ok(Sample {
            rate: requests * 1e6 / span,
            user_us: user,
            system_us: system,
            busy_percent: (user + system) * requests * 100.0 / span,
            load_percent: load * tick_us * 100.0 / took.as_micros() as f64,
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
        let fields = stat(&pid)?;
        for (sum, at) in ticks.iter_mut().zip([11, 12]) {
            *sum += fields.get(at).context("read the CPU time")?;
        }
    }
    Ok(ticks)
}

/// CPU time of the ended children of this process, in clock ticks.
fn children_ticks() -> Result<f64> {
    let fields = stat("self")?;
    Ok(fields.get(13).context("read the CPU time")? + fields.get(14).context("read it")?)
}

/// Fields of the status of a process, from its state on; 0 for those that are no numbers.
fn stat(process: &str) -> Result<Vec<f64>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may contain spaces.
    let (_, rest) = stat.rsplit_once(')').context("read the CPU time")?;
    Ok(rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect())
}

/// Columns of [`cells`], after the name.
pub(crate) const COLUMNS: [&str; 9] = [
    "server",
    "req/s (min-max)",
    "CPU us/req (min-max)",
    "user+sys",
    "p50",
    "p99",
    "CPU",
    "load",
    "x CPU",
];

/// Cells of a server, whose CPU time is compared with that of `baseline`.
pub(crate) fn cells(name: &str, samples: &[Sample], baseline: &[Sample]) -> Vec<String> {
    let of = |figure: fn(&Sample) -> f64| samples.iter().map(figure).collect::<Vec<f64>>();
    let (rate, cpu) = (of(|one| one.rate), of(Sample::cpu_us));
    let span = |us: f64| match us {
        // The load generator has no time of a request in a pipeline.
        0.0 => "-".to_owned(),
        _ if us < 1e3 => format!("{us:.0} us"),
        _ => format!("{:.2} ms", us / 1e3),
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
        format!("{:.0}%", median(&of(|one| one.load_percent))),
        format!("{:.2}", ratio(samples, baseline)),
    ]
}

/// Median of the ratios of CPU time per request, round by round.
pub(crate) fn ratio(samples: &[Sample], baseline: &[Sample]) -> f64 {
    let rounds = samples.iter().zip(baseline);
    median(&rounds.map(|(one, other)| one.cpu_us() / other.cpu_us()).collect::<Vec<_>>())
}

/// Text that names the processes that were busy.
pub(crate) fn busy<'a>(rows: impl Iterator<Item = (&'a str, &'a [Sample])>) -> String {
    let is_busy = |of: &[f64]| median(of) >= BUSY_PERCENT;
    let (mut servers, mut loads) = (Vec::new(), Vec::new());
    for (name, samples) in rows {
        if is_busy(&samples.iter().map(|one| one.busy_percent).collect::<Vec<_>>()) {
            servers.push(name);
        }
        if is_busy(&samples.iter().map(|one| one.load_percent).collect::<Vec<_>>()) {
            loads.push(name);
        }
    }
    let list = |names: &[&str]| match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    format!(
        "at least {BUSY_PERCENT} % of a core: servers: {}; load generator against: {}",
        list(&servers),
        list(&loads)
    )
}

/// The first two cores that this program may use; with one core, both are that one.
pub(crate) fn allowed_cores() -> Result<Cores> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let server = cores.next().context("no core")?;
    Ok(Cores { server, load: cores.next().unwrap_or(server) })
}

/// The machine, for a title.
pub(crate) fn machine(used: Cores) -> String {
    let shared = match used.server == used.load {
        true => "\nONE CORE for server and load: only CPU us/req can be compared",
        false => "",
    };
    format!("{}{shared}", record::machine())
}
