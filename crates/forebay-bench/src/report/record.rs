//! The record of all benchmarks: one JSON file, in which a run replaces what it measured again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::system::uname;
use serde_json::{Map, Value, json};

use super::{Table, page};
use crate::environment::{cores, root};

/// Name of the record in the folder of a report.
const RECORD: &str = "benchmarks.json";
/// Name of the page in the folder of a report.
const PAGE: &str = "benchmarks.html";

/// Circumstances of one benchmark.
pub(crate) struct Run<'a> {
    pub(crate) name: &'a str,
    pub(crate) shows: &'a str,
    /// Arguments of the command.
    pub(crate) arguments: &'a [String],
    pub(crate) quick: bool,
    pub(crate) began: Instant,
}

/// Record of a folder.
pub(crate) struct Record {
    folder: PathBuf,
    benchmarks: Map<String, Value>,
}

impl Record {
    /// Reads the record of a folder; an absent one is empty.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let file = folder.join(RECORD);
        let mut benchmarks = Map::new();
        if file.exists() {
            let text = std::fs::read_to_string(&file)?;
            let record: Value = serde_json::from_str(&text)
                .with_context(|| format!("{} is no record of benchmarks", file.display()))?;
            benchmarks = record["benchmarks"].as_object().cloned().unwrap_or_default();
        }
        Ok(Self { folder: folder.to_owned(), benchmarks })
    }

    /// Replaces the tables of one benchmark, and writes the record and its page.
    pub(crate) fn add(&mut self, run: &Run<'_>, tables: &[Table]) -> Result<()> {
        let tables: Vec<Value> = tables.iter().map(Table::json).collect();
        let entry = json!({
            "shows": run.shows,
            "command": format!("cargo xtask bench {}", shown(run.arguments).join(" ")),
            "quick": run.quick,
            "date": printed("date", &["-u", "+%F"])?,
            "commit": printed("git", &["describe", "--always", "--dirty", "--abbrev=12"])?,
            "version": version()?,
            "machine": machine(),
            "seconds": run.began.elapsed().as_secs(),
            "tables": tables,
        });
        self.benchmarks.insert(run.name.to_owned(), entry);
        let record = json!({ "benchmarks": self.benchmarks });
        std::fs::write(self.folder.join(RECORD), format!("{record:#}\n"))?;
        std::fs::write(self.folder.join(PAGE), page::render(&self.benchmarks))?;
        Ok(())
    }

    /// Path of the page.
    pub(crate) fn page(&self) -> PathBuf {
        self.folder.join(PAGE)
    }
}

/// The arguments that change what is measured.
fn shown(arguments: &[String]) -> Vec<&str> {
    let mut words = arguments.iter().map(String::as_str);
    let mut shown = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--report" => drop(words.next()),
            word if word.starts_with("--report=") => {}
            word => shown.push(word),
        }
    }
    shown
}

/// Version of forebay in the manifest of its workspace.
fn version() -> Result<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    Ok(version.context("the manifest has no version")?.trim_end_matches('"').to_owned())
}

/// Processor, number of cores and kernel.
pub(crate) fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or("unknown processor", |(_, name)| name);
    format!("{}, {} cores, Linux {}", name, cores(), uname().release().to_string_lossy())
}

fn printed(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).current_dir(root()).output()?;
    ensure!(output.status.success(), "`{program}` failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
