//! Instructions, which do not depend on what else the machine does.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// What is counted: all that runs within this function.
const COUNTED: &str = "forebay_bench::hits::measured*";

/// Instructions of one hit of a subject, on average over `times`.
pub(crate) fn count(subject: &str, times: u64) -> Result<u64> {
    let folder = tempfile::tempdir().context("a folder for callgrind")?;
    let file = folder.path().join("counts");
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(std::env::current_exe()?)
        .args(["one", subject, &times.to_string()])
        .stderr(Stdio::null())
        .status()
        .context("valgrind is needed to count instructions")?;
    ensure!(status.success(), "callgrind failed with `{subject}`");
    let counted = summary(&file)?;
    ensure!(counted > 0, "callgrind saw nothing of `{subject}`");
    Ok(counted / times)
}

fn summary(file: &Path) -> Result<u64> {
    let written = std::fs::read_to_string(file).context("what callgrind wrote")?;
    let line = written.lines().find_map(|line| line.strip_prefix("summary: "));
    let counted = line.context("callgrind wrote no summary")?;
    counted.trim().parse().context("a count")
}
