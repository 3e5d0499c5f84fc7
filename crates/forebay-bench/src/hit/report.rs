//! What came out: a table for people, the same and every sample as JSON.

use std::fmt;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::cpu::{Cores, Spent};
use super::load::Load;
use crate::workspace;

/// The server that the others are compared with.
const YARDSTICK: &str = "bare hyper";

/// One round of one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) load: Load,
    pub(super) cpu: Spent,
}

impl Sample {
    fn per_second(&self) -> f64 {
        self.load.requests / self.load.seconds
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.total_us() / self.load.requests
    }

    fn user_us(&self) -> f64 {
        self.cpu.user_us / self.load.requests
    }

    fn system_us(&self) -> f64 {
        self.cpu.system_us / self.load.requests
    }

    fn busy_percent(&self) -> f64 {
        self.cpu.total_us() / (self.load.seconds * 1e4)
    }

    fn json(&self) -> Value {
        json!({
            "requests": self.load.requests, "seconds": self.load.seconds,
            "p50_us": self.load.p50_us, "p99_us": self.load.p99_us,
            "cpu_user_us": self.cpu.user_us, "cpu_system_us": self.cpu.system_us,
        })
    }
}

/// All rounds of one server at one size.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) size: &'static str,
    pub(super) server: &'static str,
    pub(super) samples: Vec<Sample>,
}

impl Row {
    fn spread(&self, of: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(self.samples.iter().map(of).collect())
    }

    fn json(&self, yardstick: Option<&Self>) -> Value {
        json!({
            "size": self.size,
            "server": self.server,
            "requests_per_second": self.spread(Sample::per_second).json(),
            "cpu_us_per_request": self.spread(Sample::cpu_us).json(),
            "cpu_user_us_per_request": self.spread(Sample::user_us).json(),
            "cpu_system_us_per_request": self.spread(Sample::system_us).json(),
            "server_cpu_percent": self.spread(Sample::busy_percent).json(),
            "p50_us": self.spread(|one| one.load.p50_us).json(),
            "p99_us": self.spread(|one| one.load.p99_us).json(),
            "cpu_ratio_to_bare_hyper": yardstick.map(|other| self.ratio(other, Sample::cpu_us)),
            "rate_ratio_to_bare_hyper":
                yardstick.map(|other| self.ratio(other, Sample::per_second)),
            "samples": self.samples.iter().map(Sample::json).collect::<Vec<_>>(),
        })
    }

    fn ratio(&self, other: &Self, of: impl Fn(&Sample) -> f64 + Copy) -> f64 {
        self.spread(of).median / other.spread(of).median
    }
}

/// The middle of some numbers and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Of no numbers it is not a number.
    fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let at = |index: usize| numbers.get(index).copied().unwrap_or(f64::NAN);
        let last = numbers.len().saturating_sub(1);
        let median = (at(last / 2) + at(last.div_ceil(2))) / 2.0;
        Self { median, min: at(0), max: at(last) }
    }

    fn json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// Everything of one run.
pub(super) struct Report {
    machine: Machine,
    command: String,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(machine: Machine, arguments: &[String]) -> Self {
        let words = ["cargo", "xtask", "bench-hit"].into_iter();
        let words: Vec<&str> = words.chain(arguments.iter().map(String::as_str)).collect();
        Self { machine, command: words.join(" "), rows: Vec::new() }
    }

    pub(super) fn json(&self) -> Result<String> {
        let rows: Vec<Value> = self.rows.iter().map(|row| row.json(self.yardstick(row))).collect();
        let machine = &self.machine;
        let report = json!({
            "command": self.command,
            "machine": {
                "cpu": machine.cpu, "cores": machine.cores, "kernel": machine.kernel,
                "server_and_load_share_a_core": machine.is_shared,
            },
            "commit": machine.commit,
            "rows": rows,
        });
        serde_json::to_string_pretty(&report).context("write the report")
    }

    fn yardstick(&self, row: &Row) -> Option<&Row> {
        self.rows.iter().find(|other| other.size == row.size && other.server == YARDSTICK)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}\n{}\n", self.command, self.machine)?;
        writeln!(
            f,
            "{:<6} {:<23} {:>24} {:>24} {:>13} {:>9} {:>9} {:>5} {:>6} {:>6}",
            "hit",
            "server",
            "req/s (min-max)",
            "CPU us/req (min-max)",
            "user+sys",
            "p50",
            "p99",
            "CPU",
            "x rate",
            "x CPU"
        )?;
        for row in &self.rows {
            self.line(f, row)?;
        }
        writeln!(f, "\nmedians over the rounds; x: ratio to {YARDSTICK}")
    }
}

impl Report {
    fn line(&self, f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
        let rate = row.spread(Sample::per_second);
        let cpu = row.spread(Sample::cpu_us);
        let ratio = |of: fn(&Sample) -> f64| {
            let ratio = self.yardstick(row).map(|other| row.ratio(other, of));
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        writeln!(
            f,
            "{:<6} {:<23} {:>24} {:>24} {:>13} {:>9} {:>9} {:>4.0}% {:>6} {:>6}",
            row.size,
            row.server,
            format!("{:.0} ({:.0}-{:.0})", rate.median, rate.min, rate.max),
            format!("{:.2} ({:.2}-{:.2})", cpu.median, cpu.min, cpu.max),
            format!(
                "{:.1}+{:.1}",
                row.spread(Sample::user_us).median,
                row.spread(Sample::system_us).median
            ),
            span(row.spread(|one| one.load.p50_us).median),
            span(row.spread(|one| one.load.p99_us).median),
            row.spread(Sample::busy_percent).median,
            ratio(Sample::per_second),
            ratio(Sample::cpu_us),
        )
    }
}

fn span(us: f64) -> String {
    if us < 1_000.0 { format!("{us:.0} us") } else { format!("{:.2} ms", us / 1e3) }
}

/// Where it was measured, and what.
pub(super) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    commit: String,
    is_shared: bool,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, kernel, commit, .. } = self;
        write!(f, "{cpu}, {cores} cores, Linux {kernel}, commit {commit}")?;
        if self.is_shared {
            write!(f, "\nONE CORE for server and load: only CPU us/req can be compared")?;
        }
        Ok(())
    }
}

/// Asks this machine; what it does not tell is called unknown.
pub(super) fn machine(used: Cores) -> Machine {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let changes = answer("git", &["status", "--porcelain"]).unwrap_or_default();
    let commit = answer("git", &["rev-parse", "--short", "HEAD"]);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    Machine {
        cpu: model.map_or_else(|| "unknown CPU".to_owned(), |(_, name)| name.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: answer("uname", &["-r"]).unwrap_or_else(|| "unknown".to_owned()),
        commit: if changes.is_empty() { commit } else { format!("{commit} with changes") },
        is_shared: used.are_shared(),
    }
}

fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(workspace::root()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests: f64, cpu_us: f64) -> Sample {
        Sample {
            load: Load { requests, seconds: 2.0, p50_us: 400.0, p99_us: 2_500.0 },
            cpu: Spent { user_us: cpu_us / 4.0, system_us: cpu_us * 3.0 / 4.0 },
        }
    }

    fn report() -> Report {
        let machine = Machine {
            cpu: "A CPU".to_owned(),
            cores: 2,
            kernel: "6.1".to_owned(),
            commit: "abc".to_owned(),
            is_shared: false,
        };
        let mut report = Report::new(machine, &["--quick".to_owned()]);
        let bare = vec![sample(1_000.0, 10_000.0), sample(3_000.0, 30_000.0)];
        let cache = vec![sample(1_000.0, 20_000.0), sample(1_000.0, 40_000.0)];
        report.rows.push(Row { size: "1 KiB", server: YARDSTICK, samples: bare });
        report.rows.push(Row { size: "1 KiB", server: "a cache", samples: cache });
        report
    }

    #[test]
    fn medians_are_of_the_middle() {
        let spread = Spread::of(vec![9.0, 1.0, 3.0]);
        assert_eq!(spread, Spread { median: 3.0, min: 1.0, max: 9.0 });
        assert_eq!(Spread::of(vec![1.0, 3.0]).median, 2.0);
        assert!(Spread::of(Vec::new()).median.is_nan());
    }

    #[test]
    fn the_table_has_a_line_per_row() {
        let text = report().to_string();
        assert!(text.contains("cargo xtask bench-hit --quick\nA CPU, 2 cores, Linux 6.1"));
        let line = text.lines().find(|line| line.contains("a cache")).unwrap();
        for part in ["500 (500-500)", "30.00 (20.00-40.00)", "7.5+22.5", "400 us", "2.50 ms"] {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
        assert!(line.ends_with("0.50   3.00"), "{line}");
    }

    #[test]
    fn one_core_for_both_is_said() {
        let mut report = report();
        report.machine.is_shared = true;
        assert!(report.to_string().contains("ONE CORE"));
    }

    #[test]
    fn the_json_says_the_same() {
        let value: Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        let row = &value["rows"][1];
        assert_eq!(row["cpu_us_per_request"]["median"], 30.0);
        assert_eq!(row["cpu_ratio_to_bare_hyper"], 3.0);
        assert_eq!(row["rate_ratio_to_bare_hyper"], 0.5);
        assert_eq!(row["samples"].as_array().unwrap().len(), 2);
        assert_eq!(value["machine"]["cpu"], "A CPU");
    }
}
