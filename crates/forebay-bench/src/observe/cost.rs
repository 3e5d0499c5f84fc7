//! Cost of records: hits of 1 KiB without them and with each of their consumers.
//!
//! The product has no switch for metrics, history and curve, so the baseline is a build without
//! them (feature `unrecorded` of forebay-http).

use anyhow::Result;
use forebay_testkit::launch::Launched;

use super::viewers::{Collector, Viewers};
use super::{Ground, TARGET, json_log, pinned, tracing};
use crate::environment::{Options, median, quantile};
use crate::proxy::load::{BUSY_PERCENT, COLUMNS, Load, Sample, busy, cells, machine};
use crate::proxy::servers::raw;
use crate::report::{Table, Verdict};

/// Rounds, and seconds of each; the quick ones decide by fewer samples.
const ROUNDS: usize = 10;
const ROUNDS_QUICK: usize = 5;
const SECONDS: u32 = 3;
const SECONDS_QUICK: u32 = 1;

/// Share of requests that are traced.
const TRACED: f64 = 0.01;

const OFF: &str = "no records";
const OFF_AGAIN: &str = "no records, again";
const DEFAULT: &str = "metrics, history, curve";
const LIVE: &str = "the same, top, tail without lines, 1 % traced";
const LOGGED: &str = "the same, JSON log to a file";

/// Bounds: subject, baseline, and the largest share of hits that it may cost, in percent.
const BOUNDS: [(&str, &str, f64); 4] = [
    (OFF_AGAIN, OFF, f64::INFINITY),
    (DEFAULT, OFF, 3.0),
    (LIVE, OFF, 5.0),
    (LOGGED, DEFAULT, 6.0),
];

/// Server, and its rounds.
struct Subject {
    name: &'static str,
    server: Launched,
    samples: Vec<Sample>,
}

pub(super) async fn measure(options: &Options, ground: &Ground) -> Result<Vec<Table>> {
    let rounds = options.pick(ROUNDS, ROUNDS_QUICK);
    let seconds = options.pick(SECONDS, SECONDS_QUICK);
    let (origin, collector) = (raw(ground.cores.load).await?, Collector::start(false).await?);
    let mut subjects = Vec::new();
    for (name, tables) in [
        (OFF, String::new()),
        (OFF_AGAIN, String::new()),
        (DEFAULT, String::new()),
        (LIVE, tracing(collector.address, TRACED)),
        (LOGGED, json_log(&ground.folder.join("cost.log"))),
    ] {
        let is_off = name == OFF || name == OFF_AGAIN;
        let program = if is_off { &ground.unrecorded } else { &ground.program };
        let server = pinned(program, ground.cores, origin.address(), &tables).await?;
        subjects.push(Subject { name, server, samples: Vec::new() });
    }
    for _ in 0..rounds {
        for subject in &mut subjects {
            let sample = subject.round(seconds, ground.cores.load).await?;
            subject.samples.push(sample);
        }
    }
    anyhow::ensure!(collector.requests() > 0, "no spans were exported");
    let rows = || subjects.iter().map(|one| (one.name, &*one.samples));
    let note = format!("medians over the rounds; x: to {OFF}; {}", busy(rows()));
    let title = format!("hits of 1 KiB; {}", machine(ground.cores));
    let mut table = Table::new(title, &COLUMNS).note(note);
    for (name, samples) in rows() {
        table.row(cells(name, samples, &subjects[0].samples), "", Verdict::Shown);
    }
    Ok(vec![table, bounds(&subjects)])
}

impl Subject {
    async fn round(&self, seconds: u32, core: usize) -> Result<Sample> {
        let mut viewers = Viewers::default();
        if let Some(admin) = self.server.admin().filter(|_| self.name == LIVE) {
            viewers.watch_top(admin).await?;
            viewers.read(admin, "/tail?where=status%3D599", 1).await?;
        }
        let load = Load::new(format!("http://{}{TARGET}", self.server.address()), seconds);
        let sample = load.run(self.server.pid(), core)?;
        viewers.check()?;
        Ok(sample)
    }

    fn is_busy(&self) -> bool {
        let busy: Vec<f64> = self.samples.iter().map(|one| one.busy_percent).collect();
        median(&busy) >= BUSY_PERCENT
    }
}

fn bounds(subjects: &[Subject]) -> Table {
    let of = |wanted: &str| subjects.iter().find(|one| one.name == wanted);
    let columns = ["", "fewer hits", "fewer for the same CPU time", "decides"];
    let mut table = Table::new("share of the hits that records cost", &columns).note(
        "Fewer hits: median of the rounds, and the middle half of them; CPU time decides where the \
         middle half of the baseline against itself is wider than the bound.",
    );
    let mut spread = 0.0;
    for (name, baseline, most) in BOUNDS {
        let Some((one, other)) = of(name).zip(of(baseline)) else { continue };
        let rounds = || one.samples.iter().zip(&other.samples);
        let fewer: Vec<f64> = rounds().map(|(one, other)| share(one.rate, other.rate)).collect();
        let cpu = |one: &Sample, other: &Sample| share(other.cpu_us(), one.cpu_us());
        let more: Vec<f64> = rounds().map(|(one, other)| cpu(one, other)).collect();
        let [low, high] = [0.25, 0.75].map(|at| quantile(&fewer, at));
        if name == OFF_AGAIN {
            spread = high - low;
        }
        let by_hits = spread <= most;
        let decides = if by_hits { "hits" } else { "CPU time" };
        let figure = if by_hits { median(&fewer) } else { median(&more) };
        let cells = vec![
            format!("{name}; to {baseline}"),
            format!("{:.1} % ({low:.1} to {high:.1})", median(&fewer)),
            format!("{:.1} %", median(&more)),
            decides.to_owned(),
        ];
        match most.is_finite() {
            false => table.row(cells, "", Verdict::Shown),
            true if !(one.is_busy() && other.is_busy()) => {
                table.row(cells, format!("≤ {most} %"), Verdict::NotBusy);
            }
            true => table.row(cells, format!("≤ {most} %"), Verdict::of(figure <= most)),
        }
    }
    table
}

/// Share in percent by which `one` is below `other`.
fn share(one: f64, other: f64) -> f64 {
    100.0 * (1.0 - one / other)
}
