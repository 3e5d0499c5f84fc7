//! What a warm hit costs.
//!
//! 10,000 keys, asked for by Zipf's law; values of 1 KiB. The subjects take turns, round by round,
//! and every ratio is the median of the ratios of the rounds: what the machine does meanwhile is
//! done to all of them.

use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::runtime::Runtime;

use crate::callgrind;
use crate::subjects::{
    ALL, Hit, Kind, OURS, OURS_BESIDE, OURS_TIERED, QUICK_GET, QUICK_LOAD, Subject, runtime,
};
use crate::zipf::Zipf;

const KEYS: usize = 10_000;

/// As many as one round asks for: milliseconds.
const QUESTIONS: usize = 1 << 16;

const ROUNDS: usize = 31;
const ROUNDS_QUICK: usize = 7;

/// Hits among which allocations are counted, and instructions.
const COUNTED: u64 = 20_000;

pub(crate) fn run(flags: &[&str]) -> Result<ExitCode> {
    let (rounds, json) = match *flags {
        [] => (ROUNDS, None),
        ["--quick"] => (ROUNDS_QUICK, None),
        ["--json", file] => (ROUNDS, Some(file)),
        ["--quick", "--json", file] | ["--json", file, "--quick"] => (ROUNDS_QUICK, Some(file)),
        _ => bail!("`hits` takes --quick and --json FILE"),
    };
    let table = Table::measured(rounds);
    print!("{}", table.text());
    if let Some(file) = json {
        std::fs::write(file, table.json()).with_context(|| format!("write {file}"))?;
    }
    let holds = table.bounds().iter().all(|bound| bound.holds());
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// So many hits of one subject: what callgrind runs.
pub(crate) fn one(name: &str, times: &str) -> Result<()> {
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
        let questions = Zipf::new(KEYS, 0x9e37_79b9_7f4a_7c15).take(QUESTIONS).collect();
        Self { keys, questions, runtime: runtime() }
    }

    /// Nanoseconds for each hit of a round that begins with this question.
    fn round(&self, hit: &Hit, first: usize) -> f64 {
        let (front, back) = self.questions.split_at(first);
        let begun = Instant::now();
        back.iter().chain(front).for_each(|at| hit(&self.keys[*at]));
        begun.elapsed().as_secs_f64() * 1e9 / QUESTIONS as f64
    }

    /// The same where two threads ask at the same time.
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

struct Table {
    rows: Vec<Row>,
    took: Duration,
}

struct Bound {
    name: String,
    came: f64,
    /// Not more than this.
    most: f64,
}

impl Bound {
    fn holds(&self) -> bool {
        self.came <= self.most
    }
}

impl Table {
    fn measured(rounds: usize) -> Self {
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

    fn bounds(&self) -> Vec<Bound> {
        let (ours, quick) = (self.row(OURS), self.row(QUICK_LOAD));
        let (tiered, beside) = (self.row(OURS_TIERED), self.row(OURS_BESIDE));
        let of = |name: &str, came, most| Bound { name: name.to_owned(), came, most };
        let mut bounds = vec![
            of(
                "a hit, to quick_cache's get_or_insert_async",
                ratio(&ours.alone, &quick.alone),
                1.3,
            ),
            of(
                "the same with disk and Redis below, filled by turns",
                ratio(&tiered.alone, &beside.alone),
                1.05,
            ),
            of(
                "time on two threads, to quick_cache's",
                ratio(&ours.together, &quick.together),
                1.0 / 0.9,
            ),
            of("allocations of a hit", ours.allocations, 0.0),
        ];
        if let (Some(ours), Some(get)) = (ours.instructions, self.row(QUICK_GET).instructions) {
            bounds.push(of("instructions, to quick_cache's get", ours as f64 / get as f64, 2.2));
        }
        for rival in self.rows.iter().filter(|row| row.subject.kind == Kind::Rival) {
            let name = format!("a hit, to {}", rival.subject.name);
            bounds.push(of(&name, ratio(&ours.alone, &rival.alone), 0.5));
        }
        bounds
    }

    fn text(&self) -> String {
        let quick = self.row(QUICK_LOAD);
        let mut text = format!(
            "{:<34}{:>9}{:>8}{:>8}{:>9}{:>14}{:>13}\n",
            "", "ns a hit", "spread", "ratio", "2 thr.", "instructions", "allocations"
        );
        for row in &self.rows {
            let instructions = row.instructions.map_or_else(|| "-".to_owned(), |n| n.to_string());
            line(
                &mut text,
                format_args!(
                    "{:<34}{:>9.1}{:>8}{:>8.2}{:>9.2}{:>14}{:>13.2}",
                    row.subject.name,
                    median(&row.alone),
                    spread(&row.alone),
                    ratio(&row.alone, &quick.alone),
                    ratio(&row.together, &quick.together),
                    instructions,
                    row.allocations,
                ),
            );
        }
        line(
            &mut text,
            format_args!("ratio, 2 thr.: time to that of {QUICK_LOAD}, on one and on two threads;"),
        );
        line(
            &mut text,
            format_args!(
                "spread: quartiles; {} rounds in turns, {:.0} s\n",
                quick.alone.len(),
                self.took.as_secs_f64()
            ),
        );
        for bound in self.bounds() {
            let Bound { name, came, most } = &bound;
            let holds = if bound.holds() { "yes" } else { "NO" };
            line(&mut text, format_args!("{name:<52}{came:>7.2}  at most {most:<5.2}{holds:>4}"));
        }
        text
    }

    fn json(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            let instructions =
                row.instructions.map_or_else(|| "null".to_owned(), |n| n.to_string());
            format!(
                "  \"{}\": {{\"ns\": {:.2}, \"two_threads_ns\": {:.2}, \"instructions\": {}, \
                 \"allocations\": {}}}",
                row.subject.name,
                median(&row.alone),
                median(&row.together),
                instructions,
                row.allocations
            )
        });
        format!("{{\n{}\n}}\n", rows.collect::<Vec<_>>().join(",\n"))
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
        match callgrind::count(self.subject.name, COUNTED) {
            Ok(instructions) => self.instructions = Some(instructions),
            Err(error) => eprintln!("{}: {error:#}", self.subject.name),
        }
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // To write into a text cannot fail.
    let _ = writeln!(text, "{line}");
}

fn quantile(of: &[f64], at: f64) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}

fn median(of: &[f64]) -> f64 {
    quantile(of, 0.5)
}

fn spread(of: &[f64]) -> String {
    format!("{:.0}-{:.0}", quantile(of, 0.25), quantile(of, 0.75))
}

/// The median of what the rounds say.
fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(&of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>())
}
