//! Command line, programs, servers and statistics that the benchmarks share.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use forebay_testkit::launch::{Launch, Launched};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

/// Benchmarks of forebay.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
pub(crate) struct Options {
    /// Benchmarks to run.
    #[arg(required_unless_present_any = ["list", "quick"])]
    #[arg(value_parser = crate::all().map(|one| one.0).collect::<Vec<_>>())]
    pub(crate) benchmarks: Vec<String>,
    /// Lists the benchmarks.
    #[arg(long)]
    pub(crate) list: bool,
    /// Fewer rounds; without names, all tables.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Folder of the record and of the page; the target folder by default.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Rounds of `hit`, `pass` and `miss`.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Seconds of a round of `hit`, `pass` and `miss`.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
    /// Duration of each churn of `memory-per-object` in minutes, instead of four turnovers.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    pub(crate) minutes: Option<u64>,
    /// Seed of the requests of `early`.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Options {
    pub(crate) fn report_dir(&self) -> Result<PathBuf> {
        let folder = self.report.clone().map_or_else(target_dir, Ok)?;
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// `full`, or `quick` with the option `--quick`.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Root of the checkout.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is in the folder `crates`")
}

fn cargo(arguments: &[&str]) -> Result<Vec<u8>> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    // `cargo run` sets these for this package. The build script of ring depends on them, so that a build
    // from a shell would compile ring's dependents again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let output = command.output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`cargo {}` failed:\n{error}", arguments.join(" "));
    Ok(output.stdout)
}

pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    metadata["target_directory"].as_str().map(PathBuf::from).context("no target directory")
}

/// Builds a program of the workspace with this profile and returns its path.
pub(crate) fn build(profile: &str, target: &[&str]) -> Result<PathBuf> {
    let how = ["build", "--locked", "--message-format=json", "--profile", profile];
    let printed = String::from_utf8(cargo(&[&how[..], target].concat())?)?;
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs =
        messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().context("cargo built no program")
}

/// Builds the binary `forebay` as a release, at the first call.
pub(crate) fn forebay() -> Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT.lock().expect("no build panics");
    if let Some(path) = &*built {
        return Ok(path.clone());
    }
    let path = build("release", &["-p", "forebay-cli", "--bin", "forebay"])?;
    Ok(built.insert(path).clone())
}

/// Raises the limit of open files to its maximum: client and server ends of thousands of
/// connections are in few processes.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // With a lower limit a connection fails with an error that says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Starts a program on one core.
pub(crate) async fn pinned(core: usize, program: &Path, arguments: &[&str]) -> Result<Launched> {
    let launch = Launch::binary("taskset").args(["-c", &core.to_string()]).args([program]);
    launch.args(arguments).start().await
}

/// Number of cores that this program may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Value below which this part of the numbers lies.
pub(crate) fn quantile(of: &[f64], at: f64) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let index = (sorted.len().saturating_sub(1) as f64 * at).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

pub(crate) fn median(of: &[f64]) -> f64 {
    quantile(of, 0.5)
}

pub(crate) fn millis(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1e3)
}

pub(crate) fn seconds(span: Duration) -> String {
    format!("{:.3} s", span.as_secs_f64())
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
