//! `cargo xtask instructions`: instructions of the hit path, of a pass and of a miss, against the
//! recorded counts.
//!
//! The benchmark `hit_path` of forebay-http runs them. Each piece runs twice under
//! callgrind, [`SHORT`] and [`LONG`] times; the difference of both counts, divided by the difference
//! of repetitions, is its cost without setup. Counts of two runs of one build differ by less than
//! 0.2 %: hash seeds and tokio's random branches change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{needs, process, workspace};

/// Repetitions in the two runs: whole rounds through the keys, and through the service's sample of
/// every 64th hit.
const SHORT: u64 = 1_024;
const LONG: u64 = 3_072;

/// Largest change in percent that is green. The compiler lays out code anew when code elsewhere
/// changes, which moved no piece by more than 1 %.
const TOLERANCE_PERCENT: u64 = 3;

const RECORD: &str = "docs/instructions.json";
const PAGE: &str = "docs/instructions.md";
const AGAIN: &str = "if the change is intended, run `cargo xtask instructions --record` and give the reason in the \
     commit message";

/// Function of the benchmark in which callgrind counts.
const COUNTED: &str = "hit_path::measured*";
/// Time limit of one piece, which takes about a second.
const PIECE_MAX: Duration = Duration::from_secs(120);

/// Pieces with a description for the page.
const PIECES: [(&str, &str); 19] = [
    ("answer", "the service answers a parsed request with a stored 1 KiB; both are dropped"),
    ("answer-rules", "like `answer`, in a site with 100 rules, of which 3 match"),
    ("bare-hyper", "the same request and answer with hyper and tokio only, without a cache"),
    (
        "connection",
        "from the bytes of a request to the bytes of its answer, by the direct path below hyper",
    ),
    ("connection-form", "like `connection`, for a page that is sent in its gzip form"),
    (
        "connection-plain",
        "like `connection`, for an unencoded body as long as that of `connection-form`, in a site \
         that does not compress",
    ),
    (
        "connection-purged",
        "like `connection`, for an entry older than 64 purges by expression and 1,000 by tag",
    ),
    ("guard-scan", "the guard reads one request head: 269 bytes, six fields"),
    ("judge", "the verdict on a fresh entry"),
    ("key", "normal form of authority and target, and the key of both"),
    ("look", "the engine finds a fresh entry: memory, clock, purges, verdict"),
    ("look-variant", "like `look`, with two request fields that select a variant"),
    ("memory-get", "the memory tier finds an entry; its reference is dropped"),
    (
        "miss",
        "from the bytes of a request to the bytes of its answer, which the origin sends and memory \
         stores; both connections are kept",
    ),
    (
        "pass",
        "from the bytes of a request to the bytes of its answer, which the origin sends and \
         forbids to store; both connections are kept",
    ),
    ("rules-0", "matching and merging in a site without rules"),
    ("rules-4", "matching and merging of 4 rules, of which 3 match"),
    (
        "rules-100",
        "matching and merging of 100 rules, 40 of them with regular expressions; 3 match",
    ),
    (
        "rules-250",
        "matching and merging of 250 rules, 40 of them with regular expressions; 3 match",
    ),
];

/// Arguments of `cargo xtask instructions`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Writes the counts to docs/instructions.json and docs/instructions.md.
    #[arg(long, conflicts_with = "if_possible")]
    record: bool,
    /// Succeeds where nothing can be compared, unless the variable CI is set.
    #[arg(long)]
    if_possible: bool,
    /// Prints the functions of one request by their inclusive cost (callgrind_annotate).
    #[arg(long)]
    profile: bool,
}

/// Counts by piece, and the machine that they hold for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    ground: Ground,
    instructions: BTreeMap<String, u64>,
}

/// Compiler and machine of a record. The C library and its vector code decide the cost of copying
/// and allocating.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ground {
    libc: String,
    target: String,
    toolchain: String,
    vectors: String,
}

/// Counts each piece, then compares with the record or replaces it.
pub(crate) fn run(options: Options) -> Result<()> {
    if let Err(error) = needs::ensure_for("instructions") {
        return skip(options, &format!("{error:#}"));
    }
    let program = build()?;
    let folder = tempfile::tempdir()?;
    if options.profile {
        return profile(&program, folder.path());
    }
    let mut instructions = BTreeMap::new();
    for (piece, _) in PIECES {
        let count = |times| count(&program, piece, times, folder.path());
        let cost = (count(LONG)?.saturating_sub(count(SHORT)?)) / (LONG - SHORT);
        ensure!(cost > 0, "`{piece}` costs no instructions");
        instructions.insert(piece.to_owned(), cost);
    }
    let now = Record { ground: Ground::here()?, instructions };
    if options.record {
        return now.write();
    }
    let before = Record::read()?;
    if before.ground.toolchain != now.ground.toolchain {
        bail!("recorded with {}, found {}; {AGAIN}", before.ground.toolchain, now.ground.toolchain);
    }
    if before.ground != now.ground {
        return skip(options, &format!("recorded on {:?}, found {:?}", before.ground, now.ground));
    }
    let (table, is_green) = compare(&before, &now);
    print!("{table}");
    ensure!(is_green, "the hit path differs from {RECORD}; {AGAIN}");
    println!("{} pieces within {TOLERANCE_PERCENT} % of the record", PIECES.len());
    Ok(())
}

fn skip(options: Options, reason: &str) -> Result<()> {
    let is_ci = std::env::var("CI").is_ok_and(|value| !matches!(&*value, "" | "0" | "false"));
    ensure!(options.if_possible && !is_ci, "{reason}");
    println!("not compared: {}", reason.lines().next().unwrap_or_default());
    Ok(())
}

/// Builds the benchmark with the profile of the product and returns its path.
fn build() -> Result<PathBuf> {
    let printed = workspace::run_cargo(&[
        "bench",
        "--no-run",
        "--profile=release",
        "--locked",
        "--quiet",
        "--message-format=json",
        "--package=forebay-http",
        "--bench=hit_path",
    ])?;
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs =
        messages.filter_map(|message| message["executable"].as_str().map(Into::into));
    programs.next().context("cargo built no benchmark `hit_path`")
}

/// Total of callgrind for a piece that runs so many times.
fn count(program: &Path, piece: &str, times: u64, folder: &Path) -> Result<u64> {
    let file = folder.join(format!("{piece}.{times}"));
    let mut command = Command::new(needs::find("valgrind")?);
    command
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args([piece, &times.to_string()]);
    let captured = process::capture(&mut command, PIECE_MAX)?;
    let is_done = captured.status.is_some_and(|status| status.success());
    ensure!(is_done, "`{piece}` failed under callgrind:\n{}", captured.text);
    let written = std::fs::read_to_string(&file).context("cannot read the output of callgrind")?;
    let total = written.lines().find_map(|line| line.strip_prefix("totals: "));
    total
        .context("callgrind wrote no total")?
        .trim()
        .parse()
        .context("cannot read callgrind's total")
}

fn profile(program: &Path, folder: &Path) -> Result<()> {
    count(program, "connection", LONG, folder)?;
    let mut annotate = Command::new(needs::find("callgrind_annotate")?);
    annotate.arg("--inclusive=yes").arg(folder.join(format!("connection.{LONG}")));
    process::lines(&mut annotate, |line| println!("{line}"))?;
    Ok(())
}

impl Ground {
    fn here() -> Result<Self> {
        let rustc = output("rustc", &["-vV"])?;
        let part = |name| rustc.lines().find_map(|line| line.strip_prefix(name));
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let has_avx2 = flags.split_whitespace().any(|flag| flag == "avx2");
        Ok(Self {
            libc: output("getconf", &["GNU_LIBC_VERSION"])?.trim().to_owned(),
            target: part("host: ").context("rustc prints no host")?.to_owned(),
            toolchain: format!("rustc {}", part("release: ").context("rustc prints no release")?),
            // valgrind knows no vectors beyond these.
            vectors: if has_avx2 { "avx2" } else { "no avx2" }.to_owned(),
        })
    }
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).current_dir(workspace::root()).output();
    let output = output.with_context(|| format!("cannot start `{program}`"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Record {
    fn read() -> Result<Self> {
        let text = std::fs::read(workspace::root().join(RECORD))
            .context("cannot read the recorded results")?;
        serde_json::from_slice(&text).context("cannot read the recorded results")
    }

    fn write(&self) -> Result<()> {
        let page = workspace::root().join(PAGE);
        let old =
            std::fs::read_to_string(&page).context("cannot read the page of instruction counts")?;
        let counts = Self::read()?.table();
        let (start, end) = old.split_once(&counts).context("the page does not show the record")?;
        std::fs::write(page, [start, &self.table(), end].concat())
            .context("cannot write the page")?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(workspace::root().join(RECORD), text)
            .context("cannot write the recorded results")?;
        println!("recorded in {RECORD} and {PAGE}");
        Ok(())
    }

    /// The part of the page that the counts decide.
    fn table(&self) -> String {
        let Ground { libc, target, toolchain, vectors } = &self.ground;
        let mut text = format!(
            "Counted with {toolchain}, on {target} with {libc} and {vectors}.\n\n\
             | piece | instructions | what it does |\n|---|--:|---|\n"
        );
        for (name, count) in &self.instructions {
            let does = PIECES.iter().find(|(piece, _)| piece == name).map_or("", |(_, does)| does);
            text.push_str(&format!("| `{name}` | {count} | {does} |\n"));
        }
        text
    }
}

/// A row per piece, and whether each is at most [`TOLERANCE_PERCENT`] above its record.
fn compare(before: &Record, now: &Record) -> (String, bool) {
    let mut table = String::new();
    let mut is_green = before.instructions.len() == now.instructions.len();
    for (piece, &count) in &now.instructions {
        let recorded = before.instructions.get(piece).copied().unwrap_or(0);
        let verdict = if count * 100 > recorded * (100 + TOLERANCE_PERCENT) {
            is_green = false;
            "more than recorded"
        } else if count * 100 < recorded * (100 - TOLERANCE_PERCENT) {
            "less than recorded: run with --record"
        } else {
            ""
        };
        table.push_str(&format!("{piece:<14}{recorded:>10}{count:>10}  {verdict}\n"));
    }
    (table, is_green)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(look: u64) -> Record {
        let instructions = [("look".to_owned(), look)].into();
        Record { instructions, ..Record::read().unwrap() }
    }

    #[test]
    fn more_than_three_percent_above_the_record_is_red() {
        for (now, is_green, says) in
            [(1_030, true, ""), (1_031, false, "more"), (969, true, "less")]
        {
            let (table, green) = compare(&record(1_000), &record(now));
            assert!(green == is_green && table.contains(says), "{table}");
        }
        let none = Record { instructions: BTreeMap::new(), ..record(1) };
        assert!(!compare(&none, &record(1)).1 && !compare(&record(1), &none).1);
    }

    #[test]
    fn the_page_shows_the_record() {
        let page = std::fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        let record = Record::read().unwrap();
        assert!(page.contains(&record.table()), "{}", record.table());
    }
}
