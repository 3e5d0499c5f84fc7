//! Latency of hits while a consumer of records does not read: a scrape, `tail`, a log, a collector.
//!
//! Each is compared with the same consumer that reads. Servers take turns on one core; requests
//! arrive at a fixed rate, whether or not earlier ones are answered.

use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::Launched;
use parking_lot::Mutex;

use super::viewers::{Collector, Viewers};
use super::{Ground, TARGET, cpu_time, json_log, pinned, tracing};
use crate::environment::{Options, median, quantile};
use crate::origins::traffic::{Servers, Traffic, count_other, latency_ms};
use crate::proxy::servers::raw;
use crate::report::{Table, Verdict};

/// Requests per second: a fraction of what the core can answer, so that no queue hides a wait.
const RATE: u32 = 4_000;

const ROUNDS: usize = 15;
const ROUNDS_QUICK: usize = 4;
const ROUND: Duration = Duration::from_secs(2);
const ROUND_QUICK: Duration = Duration::from_secs(1);

/// Largest growth of the 99th percentile, and of CPU time per request, in percent.
const GROWTH_MAX: f64 = 5.0;

/// Clients that scrape, and the scrapes that each of them asks for at once: more than sockets hold.
const SCRAPERS: usize = 16;
const SCRAPES: usize = 64;

/// Consumers, and the metric that counts what a stuck one loses.
const KINDS: [(&str, Option<&str>); 5] = [
    ("none, beside none", None),
    ("scrapes of /metrics", None),
    ("tail", None),
    ("JSON log", Some("forebay_log_dropped_total")),
    ("collector of all spans", Some("forebay_spans_total{result=\"dropped\"}")),
];

/// Server with one consumer.
struct Subject {
    server: Launched,
    /// Milliseconds and CPU microseconds of each round.
    p99: Vec<f64>,
    cpu: Vec<f64>,
    viewers: Viewers,
    _collector: Option<Collector>,
    /// Reading end of the pipe of the log, which is not read.
    _pipe: Option<File>,
}

pub(super) async fn measure(options: &Options, ground: &Ground) -> Result<Table> {
    let rounds = options.pick(ROUNDS, ROUNDS_QUICK);
    let round = options.pick(ROUND, ROUND_QUICK);
    let origin = raw(ground.cores.load).await?;
    let columns = ["", "p99 of the one that reads", "p99 stuck", "change", "change of CPU time"];
    let title = format!("a stuck consumer of records, {RATE} hits/s");
    let mut table = Table::new(title, &columns).note(
        "Medians of the rounds, which take turns. The bound of p99 is the larger one of 5 % and \
         the spread of two servers without a consumer (middle half of the rounds).",
    );
    let mut spread = 0.0;
    for (kind, lost) in KINDS {
        eprintln!("measuring: stuck: {kind}");
        let mut pair = Vec::new();
        for is_stuck in [false, true] {
            pair.push(Subject::start(ground, origin.address(), kind, is_stuck).await?);
        }
        // The first one fills buffers.
        for number in 0..=rounds {
            for subject in &mut pair {
                subject.round(round, number > 0).await.with_context(|| kind)?;
            }
        }
        let [reads, stuck] = &mut pair[..] else { continue };
        reads.viewers.check()?;
        if let Some(metric) = lost {
            ensure!(stuck.server.metric(metric).await? > 0, "{kind}: nothing was lost");
        }
        let change = changes(&stuck.p99, &reads.p99);
        let by = median(&changes(&stuck.cpu, &reads.cpu));
        if is_first(kind) {
            spread = quantile(&change, 0.75) - quantile(&change, 0.25);
        }
        let most = GROWTH_MAX.max(spread);
        let cells = vec![
            kind.to_owned(),
            format!("{:.3} ms", median(&reads.p99)),
            format!("{:.3} ms", median(&stuck.p99)),
            format!("{:+.1} %", median(&change)),
            format!("{by:+.1} %"),
        ];
        let holds = Verdict::of(median(&change) <= most && by <= GROWTH_MAX);
        let (bound, holds) = match is_first(kind) {
            true => (String::new(), Verdict::Shown),
            false => (format!("p99 ≤ {most:.1} %, CPU ≤ {GROWTH_MAX} %"), holds),
        };
        table.row(cells, bound, holds);
    }
    Ok(table)
}

/// True for the pair without consumers, which shows the spread.
fn is_first(kind: &str) -> bool {
    kind == KINDS[0].0
}

/// Changes round by round, in percent.
fn changes(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(one, other)| 100.0 * (one / other - 1.0)).collect()
}

impl Subject {
    async fn start(
        ground: &Ground,
        origin: std::net::SocketAddr,
        kind: &str,
        is_stuck: bool,
    ) -> Result<Self> {
        let (mut collector, mut pipe, mut tables) = (None, None, String::new());
        if kind.contains("log") {
            let file = ground.folder.join(if is_stuck { "pipe" } else { "stuck.log" });
            if is_stuck {
                ensure!(Command::new("mkfifo").arg(&file).status()?.success(), "mkfifo failed");
                // Opened for both, so that neither side waits for the other.
                pipe = Some(File::options().read(true).write(true).open(&file)?);
            }
            tables = json_log(&file);
        }
        if kind.contains("spans") {
            let started = Collector::start(is_stuck).await?;
            tables = tracing(started.address, 1.0);
            collector = Some(started);
        }
        let server = pinned(&ground.program, ground.cores, origin, &tables).await?;
        let admin = server.admin().context("no admin listener")?;
        let mut viewers = Viewers::default();
        match (kind, is_stuck) {
            ("scrapes of /metrics", true) => {
                for _ in 0..SCRAPERS {
                    viewers.stick(admin, "/metrics", SCRAPES).await?;
                }
            }
            ("tail", true) => viewers.stick(admin, "/tail", 1).await?,
            ("tail", false) => viewers.read(admin, "/tail", 1).await?,
            _ => {}
        }
        let (p99, cpu) = (Vec::new(), Vec::new());
        Ok(Self { server, p99, cpu, viewers, _collector: collector, _pipe: pipe })
    }

    async fn round(&mut self, span: Duration, is_counted: bool) -> Result<()> {
        let to: Servers = Arc::new(Mutex::new(vec![self.server.address()]));
        let before = cpu_time(self.server.pid())?;
        let traffic = Traffic::start(RATE, &to, |_| TARGET.to_owned());
        let replies = traffic.end_after(span).await?;
        let cpu = cpu_time(self.server.pid())? - before;
        ensure!(count_other(&replies, 200) == 0.0, "a hit failed");
        if is_counted {
            self.p99.push(latency_ms(&replies, 0.99));
            self.cpu.push(cpu.as_secs_f64() * 1e6 / replies.len() as f64);
        }
        Ok(())
    }
}
