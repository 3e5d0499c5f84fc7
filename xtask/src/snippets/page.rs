//! Runs one page from top to bottom, in an empty folder, with the built binary at hand.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::compare;
use super::markdown::{Block, Call};
use crate::background::Background;
use crate::process;
use crate::scratch::Scratch;

/// How long one command may take; a reader would have given up.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// How long a command in the background may take to be ready: it may have to build first.
const READY_MAX: Duration = Duration::from_secs(180);
/// How long what follows the readiness line may take to come.
const REST_MAX: Duration = Duration::from_secs(10);

/// How a page writes the start of the product, so that a reader needs nothing installed.
const CARGO_RUN: &str = "cargo run --release -- ";

/// What every page is run with.
pub(super) struct Stage {
    /// The folder of the built programs.
    pub(super) programs: PathBuf,
    /// The one that [`CARGO_RUN`] starts; cargo itself has confirmed that.
    pub(super) binary: String,
}

/// Checks all blocks of a page; tells how many commands and configurations that were.
pub(super) fn play(name: &str, blocks: &[Block], stage: &Stage) -> Result<usize> {
    let scratch = Scratch::new("snippets")?;
    // On a terminal curl draws no progress meter; here it would, in the middle of its answer.
    std::fs::write(scratch.path().join(".curlrc"), "no-progress-meter\n")
        .context("write .curlrc")?;
    let mut run = Run { stage, folder: scratch.path(), staying: Vec::new() };
    let mut count = 0;
    for block in blocks {
        count += run.block(block).with_context(|| name.to_owned())?;
    }
    run.end().with_context(|| name.to_owned())?;
    Ok(count)
}

struct Run<'a> {
    stage: &'a Stage,
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

    /// Starts a command that stays, waits until it is ready, and checks what it has printed.
    fn stay(&mut self, call: &Call) -> Result<()> {
        let line = call.line;
        // Replacing the shell, so that the pid is the command's own; `env` takes assignments.
        let script = format!("exec env {}", self.real(&call.command));
        let log = self.folder.join(format!(".background-{line}"));
        let mut running = Background::start(&call.command, &mut self.shell(&script), &log)?;
        running
            .wait_for(READY_MAX, |text| text.starts_with("forebay ready").then_some(()))
            .with_context(|| format!("line {line}"))?;
        process::poll(REST_MAX, || Ok(check(call, &running.text()?).is_ok().then_some(())))?;
        check(call, &running.text()?)?;
        self.staying.push((line, running));
        Ok(())
    }

    fn configuration(&self, line: usize, text: &str) -> Result<()> {
        std::fs::write(self.folder.join("forebay.toml"), text).context("write forebay.toml")?;
        let command = format!("{} check forebay.toml", self.stage.binary);
        self.call(&Call { line, command, expected: Vec::new() }, 0)
    }

    /// Ends what was started in the background, last first, and expects it to end well.
    fn end(mut self) -> Result<()> {
        while let Some((line, mut running)) = self.staying.pop() {
            let printed = running.text()?;
            if let Some(status) = running.ended()? {
                bail!("line {line}: it should have stayed, but ended with {status}:\n{printed}");
            }
            let status = running.stop()?;
            ensure!(
                status.success(),
                "line {line}: asked to end, it did so with {status}:\n{printed}"
            );
        }
        Ok(())
    }

    /// The command with the built binary in place of a `cargo run` that would start it.
    fn real(&self, command: &str) -> String {
        match command.strip_prefix(CARGO_RUN) {
            Some(arguments) => format!("{} {arguments}", self.stage.binary),
            None => command.to_owned(),
        }
    }

    fn shell(&self, script: &str) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            std::iter::once(self.stage.programs.clone()).chain(std::env::split_paths(&path));
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(self.folder);
        command.env("CURL_HOME", self.folder).env("NO_COLOR", "1");
        // Folders that came out of a search path can be put into one again.
        command.env("PATH", std::env::join_paths(folders).unwrap_or(path));
        command
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snippets::markdown;

    /// A program that stands for the product: knows `serve`, `check` and its arguments.
    const PRODUCT: &str = "#!/bin/sh\ncase $1 in\n\
        serve) trap 'exit 0' TERM; echo 'forebay ready: http://here:1'; touch served; echo try;\n\
        \twhile :; do sleep 0.01; done;;\n\
        check) ! grep bad \"$2\";;\n\
        *) echo \"product $*\";;\nesac\n";

    fn play_text(text: &str) -> Result<usize> {
        let programs = Scratch::new("programs").unwrap();
        let text_of_product = programs.path().join("text");
        std::fs::write(&text_of_product, PRODUCT).unwrap();
        // Copied by another process: a child of a test that runs beside this one could
        // otherwise still hold the file open for writing, and it could not be started.
        let copied = Command::new("install")
            .args(["-m", "755"])
            .args([text_of_product, programs.path().join("product")])
            .status();
        assert!(copied.unwrap().success());
        let stage = Stage { programs: programs.path().to_owned(), binary: "product".to_owned() };
        play("a.md", &markdown::blocks(text).unwrap(), &stage)
    }

    fn says(text: &str) -> String {
        format!("{:#}", play_text(text).unwrap_err())
    }

    #[test]
    fn true_commands_are_counted() {
        let text = "```sh\n$ echo one; echo two >&2\none\ntwo\n$ true\n```\n";
        assert_eq!(play_text(text).unwrap(), 2);
    }

    #[test]
    fn an_untrue_line_names_the_page_and_the_line() {
        let found = says("\n```sh\n$ true\n$ echo one\ntwo\n```\n");
        assert!(found.starts_with("a.md: line 4: `echo one` should print\ntwo\n"), "{found}");
    }

    #[test]
    fn a_status_is_part_of_the_truth() {
        assert!(says("```sh\n$ false\n```\n").contains("not 0"));
        assert!(says("```sh exit=2\n$ false\n```\n").contains("not 2"));
        assert_eq!(play_text("```sh exit=1\n$ false\n```\n").unwrap(), 1);
    }

    #[test]
    fn cargo_run_is_the_built_binary() {
        let text =
            "```sh\n$ cargo run --release -- a b\nproduct a b\n$ product c\nproduct c\n```\n";
        assert_eq!(play_text(text).unwrap(), 2);
    }

    #[test]
    fn the_background_stays_for_the_blocks_that_follow() {
        let text = "```sh background\n$ cargo run --release -- serve\nforebay ready...\ntry\n```\n\
                    ```sh\n$ ls served\nserved\n```\n";
        assert_eq!(play_text(text).unwrap(), 2);
    }

    #[test]
    fn a_background_that_ends_or_says_otherwise_is_untrue() {
        assert!(says("```sh background\n$ echo no\n```\n").contains("ended"));
        // Ended before it is asked to, or by the asking: in neither case well.
        assert!(says("```sh background\n$ echo forebay ready\n```\n").contains("line 2"));
        let text = "```sh background\n$ product other; sleep 1000\nforebay ready\n```\n";
        assert!(says(text).contains("line 2"));
    }

    #[test]
    fn configurations_are_checked_and_left_for_what_follows() {
        let text = "```toml\n# forebay.toml\na = 1\n```\n\
                    ```sh\n$ grep a forebay.toml | tail -1\na = 1\n```\n";
        assert_eq!(play_text(text).unwrap(), 2);
        assert!(says("```toml\n# forebay.toml\nbad = 1\n```\n").contains("line 1"));
    }
}
