//! Cost of a warm hit.
//!
//! 10,000 keys, asked for by Zipf's law; values of 1 KiB. The subjects take turns, round by round,
//! and every ratio is the median of the ratios of the rounds: what the machine does meanwhile is
//! done to all of them.

use std::hint::black_box;
use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::runtime::Runtime;

use super::subjects::{
    ALL, Hit, Kind, OURS, OURS_BESIDE, OURS_TIERED, QUICK_GET, QUICK_LOAD, Subject, runtime,
};
use super::zipf::zipf;
use crate::environment::{Options, median, quantile};
use crate::report::{Better, Bound, Comparison, Table, Unit, Verdict};

const KEYS: usize = 10_000;

/// As many as one round asks for: milliseconds.
const QUESTIONS: usize = 1 << 16;

const ROUNDS: usize = 31;
const ROUNDS_QUICK: usize = 7;

/// Hits among which allocations are counted, and instructions.
const COUNTED: u64 = 20_000;

/// Argument that makes this program a subject under callgrind.
pub(crate) const CHILD: &str = "one";

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let measured = Measured::new(options.pick(ROUNDS, ROUNDS_QUICK));
    Ok(vec![measured.compared(), measured.costs(), measured.bounds()])
}

/// Runs one subject so many times, under callgrind.
pub(crate) fn run_subject(name: &str, times: &str) -> Result<()> {
    let subject = ALL.iter().find(|subject| subject.name == name);
    let times: usize = times.parse().context("how many hits?")?;
    let world = World::new();
    let _entered = world.runtime.enter();
    let hit = subject.context("there is no subject of this name")?.filled(&world.keys);
    measured(|| world.questions.iter().cycle().take(times).for_each(|at| hit(&world.keys[*at])));
    Ok(())
}

/// callgrind knows this function by its name. The hint keeps the call from being a jump, whose
/// return callgrind would not see.
#[inline(never)]
fn measured<T>(piece: impl FnOnce() -> T) -> T {
    black_box(piece())
}

struct World {
    keys: Vec<String>,
    questions: Vec<usize>,
    /// Some look for it with every hit.
    runtime: Runtime,
}

impl World {
    fn new() -> Self {
        let keys = (0..KEYS).map(|number| format!("user:{number}")).collect();
        let questions = zipf(KEYS, 1).take(QUESTIONS).collect();
        Self { keys, questions, runtime: runtime() }
    }

    /// Nanoseconds for each hit of a round that begins with this question.
    fn round(&self, hit: &Hit, first: usize) -> f64 {
        let (front, back) = self.questions.split_at(first);
        let begun = Instant::now();
        back.iter().chain(front).for_each(|at| hit(&self.keys[*at]));
        begun.elapsed().as_secs_f64() * 1e9 / QUESTIONS as f64
    }

    /// Cost of a hit with two concurrent threads.
    fn together(&self, hit: &Hit) -> f64 {
        let barrier = Barrier::new(2);
        let round = |first| {
            let _entered = self.runtime.enter();
            barrier.wait();
            self.round(hit, first)
        };
        std::thread::scope(|scope| {
            let threads = [0, QUESTIONS / 2].map(|first| scope.spawn(move || round(first)));
            let took = threads.map(|thread| thread.join().expect("a hit does not panic"));
            // Both have done as much by the end of the slower one.
            took[0].max(took[1]) / 2.0
        })
    }
}

struct Row {
    subject: &'static Subject,
    /// Nanoseconds by round.
    alone: Vec<f64>,
    together: Vec<f64>,
    allocations: f64,
    instructions: Option<u64>,
}

struct Measured {
    rows: Vec<Row>,
    took: Duration,
}

impl Measured {
    fn new(rounds: usize) -> Self {
        let (begun, world) = (Instant::now(), World::new());
        let _entered = world.runtime.enter();
        let hits: Vec<Hit> = ALL.iter().map(|subject| subject.filled(&world.keys)).collect();
        let mut rows: Vec<Row> = ALL.iter().map(Row::of).collect();
        for _ in 0..rounds {
            for (row, hit) in rows.iter_mut().zip(&hits) {
                row.alone.push(world.round(hit, 0));
            }
            for (row, hit) in rows.iter_mut().zip(&hits) {
                row.together.push(world.together(hit));
            }
        }
        for (row, hit) in rows.iter_mut().zip(&hits) {
            row.count(&world, hit);
        }
        Self { rows, took: begun.elapsed() }
    }

    fn row(&self, name: &str) -> &Row {
        self.rows.iter().find(|row| row.subject.name == name).expect("it is in the table")
    }

    /// The call with a loader beside that of other libraries.
    fn compared(&self) -> Table {
        let beside = |row: &&Row| row.subject.kind != Kind::Ours && row.subject.name != QUICK_GET;
        let of = |row: Comparison, figure: &dyn Fn(&Row) -> Vec<f64>| {
            let row = row.ours(figure(self.row(OURS)));
            self.rows
                .iter()
                .filter(beside)
                .fold(row, |row, one| row.rival(one.subject.name, figure(one)))
        };
        let mut table =
            Table::comparisons("a warm hit, 10,000 keys by Zipf's law, values of 1 KiB");
        let time = Comparison::new("time of a hit", Unit::Seconds, Better::Lower)
            .published("layercache", 5e-6)
            .published("Go article", 48e-9);
        table.compare(of(time, &|row| row.alone.iter().map(|nanos| nanos / 1e9).collect()));
        let name = "time of a hit, two threads at once";
        let time = Comparison::new(name, Unit::Seconds, Better::Lower);
        table.compare(of(time, &|row| row.together.iter().map(|nanos| nanos / 1e9).collect()));
        let allocations = Comparison::new("allocations", Unit::Count, Better::Lower);
        let allocations = allocations.bound(Bound::AtMost(0.0));
        table.compare(of(allocations, &|row| vec![row.allocations]));
        table
    }

    fn costs(&self) -> Table {
        let quick = self.row(QUICK_LOAD);
        let columns = ["", "ns a hit", "spread", "ratio", "2 thr.", "instructions", "allocations"];
        let title = format!("a warm hit; {} rounds in turns, {:?}", quick.alone.len(), self.took);
        let mut table = Table::new(title, &columns).note(format!(
            "ratio, 2 thr.: time to that of {QUICK_LOAD}, on one and on two threads; spread: quartiles"
        ));
        for row in &self.rows {
            let (low, high) = (quantile(&row.alone, 0.25), quantile(&row.alone, 0.75));
            let instructions = row.instructions.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let cells = vec![
                row.subject.name.to_owned(),
                format!("{:.1}", median(&row.alone)),
                format!("{low:.0}-{high:.0}"),
                format!("{:.2}", ratio(&row.alone, &quick.alone)),
                format!("{:.2}", ratio(&row.together, &quick.together)),
                instructions,
                format!("{:.2}", row.allocations),
            ];
            table.row(cells, "", Verdict::Shown);
        }
        table
    }

    fn bounds(&self) -> Table {
        let (ours, quick) = (self.row(OURS), self.row(QUICK_LOAD));
        let (tiered, beside) = (self.row(OURS_TIERED), self.row(OURS_BESIDE));
        let mut table = Table::figures("bounds");
        let hit = ratio(&ours.alone, &quick.alone);
        table.count("a hit, to quick_cache's get_or_insert_async", hit, 1.3);
        let hit = ratio(&tiered.alone, &beside.alone);
        table.count("the same with disk and Redis, filled by turns", hit, 1.05);
        let together = ratio(&ours.together, &quick.together);
        table.count("time on two threads, to quick_cache's", together, 1.0 / 0.9);
        table.count("allocations of a hit", ours.allocations, 0.0);
        if let (Some(ours), Some(get)) = (ours.instructions, self.row(QUICK_GET).instructions) {
            table.count("instructions, to quick_cache's get", ours as f64 / get as f64, 2.2);
        }
        for rival in self.rows.iter().filter(|row| row.subject.kind == Kind::Rival) {
            let name = format!("a hit, to {}", rival.subject.name);
            table.count(name, ratio(&ours.alone, &rival.alone), 0.5);
        }
        table
    }
}

impl Row {
    fn of(subject: &'static Subject) -> Self {
        let (alone, together) = (Vec::new(), Vec::new());
        Self { subject, alone, together, allocations: 0.0, instructions: None }
    }

    fn count(&mut self, world: &World, hit: &Hit) {
        let asked = world.questions.iter().take(COUNTED as usize);
        let counted = allocation_counter::measure(|| asked.for_each(|at| hit(&world.keys[*at])));
        self.allocations = counted.count_total as f64 / COUNTED as f64;
        match instructions(self.subject.name, COUNTED) {
            Ok(instructions) => self.instructions = Some(instructions),
            Err(error) => eprintln!("{}: {error:#}", self.subject.name),
        }
    }
}

/// Median of the ratios of the rounds.
fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(&of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>())
}

/// Instructions of one hit of a subject, the average of `times`.
fn instructions(subject: &str, times: u64) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("counts");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg("--toggle-collect=forebay_bench::library::hits::measured*")
        .arg(std::env::current_exe()?)
        .args([CHILD, subject, &times.to_string()])
        .output()
        .context("start valgrind")?;
    ensure!(output.status.success(), "callgrind failed with `{subject}`");
    let written = std::fs::read_to_string(&file).context("read the output of callgrind")?;
    let total = written.lines().find_map(|line| line.strip_prefix("summary: "));
    let total: u64 = total.context("callgrind wrote no summary")?.trim().parse()?;
    ensure!(total > 0, "callgrind counted nothing of `{subject}`");
    Ok(total / times)
}
