//! Runs one page from top to bottom in an empty folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::compare;
use super::markdown::{Block, Call};
use crate::background::Background;
use crate::process;

/// Time limit for one command.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// Time limit for a background command to print its ready line; it may have to build first.
const READY_MAX: Duration = Duration::from_secs(180);
/// Time limit for the output after the ready line.
const REST_MAX: Duration = Duration::from_secs(10);

/// Start of the product as a page prints it, for readers who have nothing installed.
const CARGO_RUN: &str = "cargo run --release -- ";

/// Checks all blocks of a page with this binary; returns the number of commands and
/// configurations.
pub(super) fn play(name: &str, blocks: &[Block], binary: &Path) -> Result<usize> {
    let scratch = tempfile::tempdir()?;
    // Without a terminal curl prints a progress meter into its output.
    std::fs::write(scratch.path().join(".curlrc"), "no-progress-meter\n")
        .context("cannot write .curlrc")?;
    let mut run = Run { binary, folder: scratch.path(), staying: Vec::new() };
    let mut count = 0;
    for block in blocks {
        count += run.block(block).with_context(|| name.to_owned())?;
    }
    run.end().with_context(|| name.to_owned())?;
    Ok(count)
}

struct Run<'a> {
    binary: &'a Path,
    folder: &'a Path,
    staying: Vec<(usize, Background)>,
}

impl Run<'_> {
    fn block(&mut self, block: &Block) -> Result<usize> {
        match block {
            Block::Run { calls, exit } => {
                for call in calls {
                    self.call(call, *exit)?;
                }
                Ok(calls.len())
            }
            Block::Stay(call) => self.stay(call).map(|()| 1),
            Block::Configuration { line, text } => self.configuration(*line, text).map(|()| 1),
        }
    }

    fn call(&self, call: &Call, exit: i32) -> Result<()> {
        let line = call.line;
        let mut command = self.shell(&self.real(&call.command));
        let captured = process::capture(&mut command, COMMAND_MAX)?;
        let text = &captured.text;
        let Some(status) = captured.status else {
            bail!("line {line}: still running after {COMMAND_MAX:?}:\n{text}");
        };
        ensure!(
            status.code() == Some(exit),
            "line {line}: `{}` ended with {status}, not {exit}:\n{text}",
            call.command
        );
        check(call, text)
    }

    /// Starts a background command, waits until it is ready, and checks its output.
    fn stay(&mut self, call: &Call) -> Result<()> {
        let line = call.line;
        // `exec` makes the pid that of the command; `env` accepts assignments before it.
        let script = format!("exec env {}", self.real(&call.command));
        let log = self.folder.join(format!(".background-{line}"));
        let mut running = Background::start(&call.command, &mut self.shell(&script), &log)?;
        running
            .wait_for(READY_MAX, |text| text.starts_with("forebay ready").then_some(()))
            .with_context(|| format!("line {line}"))?;
        let printed = || -> Result<String> { Ok(without_root_warning(&running.text()?)) };
        process::poll(REST_MAX, || Ok(check(call, &printed()?).is_ok().then_some(())))?;
        check(call, &printed()?)?;
        self.staying.push((line, running));
        Ok(())
    }

    fn configuration(&self, line: usize, text: &str) -> Result<()> {
        std::fs::write(self.folder.join("forebay.toml"), text)
            .context("cannot write forebay.toml")?;
        let command = "forebay check forebay.toml".to_owned();
        self.call(&Call { line, command, expected: Vec::new() }, 0)
    }

    /// Stops the background commands, last first; each must end with status 0.
    fn end(mut self) -> Result<()> {
        while let Some((line, mut running)) = self.staying.pop() {
            let printed = running.text()?;
            if let Some(status) = running.ended()? {
                bail!("line {line}: ended early with {status}:\n{printed}");
            }
            let status = running.stop()?;
            ensure!(status.success(), "line {line}: ended with {status} after SIGTERM:\n{printed}");
        }
        Ok(())
    }

    /// The command with the built binary instead of `cargo run`.
    fn real(&self, command: &str) -> String {
        match command.strip_prefix(CARGO_RUN) {
            Some(arguments) => format!("forebay {arguments}"),
            None => command.to_owned(),
        }
    }

    fn shell(&self, script: &str) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            self.binary.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&path));
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(self.folder);
        command.env("CURL_HOME", self.folder).env("NO_COLOR", "1");
        command.env("PATH", std::env::join_paths(folders).unwrap_or(path));
        process::forget_package(&mut command);
        command
    }
}

/// Output without the warning of a process that runs as root: pages show what other users see.
fn without_root_warning(printed: &str) -> String {
    let is_shown = |line: &&str| !line.contains("forebay runs as root");
    printed.split_inclusive('\n').filter(is_shown).collect()
}

fn check(call: &Call, printed: &str) -> Result<()> {
    ensure!(
        call.expected.is_empty() || compare::agrees(&call.expected, printed),
        "line {}: `{}` should print\n{}\nbut printed\n{printed}",
        call.line,
        call.command,
        call.expected.join("\n")
    );
    Ok(())
}
