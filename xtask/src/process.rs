//! Runs child processes to their end: line by line or within a time limit; stops them by pid.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Interval between two looks at a child: too short to notice, too long to cost a core.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Time limit for a child to end after SIGTERM: `forebay serve` drains for 10 s at most.
const STOP_WAIT: Duration = Duration::from_secs(15);

/// Runs `command` to its end and passes each line of stdout and stderr, in order, to `each`.
///
/// It has no time limit: compilers and test suites end by themselves.
pub(crate) fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    let (mut child, reader) = spawn_merged(command)?;
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("cannot read the output")? > 0 {
        each(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
        line.clear();
    }
    child.wait().context("wait for the command")
}

/// Runs `command` to its end and returns its exit status and its output on stdout and stderr.
pub(crate) fn run(command: &mut Command) -> Result<(ExitStatus, String)> {
    let mut printed = String::new();
    let status = lines(command, |line| printed.extend([line, "\n"]))?;
    Ok((status, printed))
}

/// Result of a command that ran with a time limit.
pub(crate) struct Captured {
    /// Exit status; none if the command exceeded its time limit and was killed.
    pub(crate) status: Option<ExitStatus>,
    /// Output on stdout and stderr, in order.
    pub(crate) text: String,
}

/// Runs `command`; after `limit` kills it with every process of its group.
pub(crate) fn capture(command: &mut Command, limit: Duration) -> Result<Captured> {
    command.process_group(0);
    let (mut child, mut reader) = spawn_merged(command)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes);
        // The receiver is gone only when this function has returned early.
        let _ = sender.send(read.map(|_| bytes));
    });
    let received = receiver.recv_timeout(limit);
    let in_time = received.is_ok();
    if !in_time {
        signal(&format!("-{}", child.id()), "KILL");
    }
    let read = received.or_else(|_| receiver.recv_timeout(STOP_WAIT));
    let bytes = read.context("the output did not end")?.context("cannot read the output")?;
    let status = child.wait().context("wait for the command")?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Captured { status: in_time.then_some(status), text })
}

/// Removes the variables about this package that `cargo run` sets. The build script of ring depends on
/// them, so that a build in `command` and one from a shell would each compile ring's dependents again.
pub(crate) fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Sends SIGTERM to a child, waits [`STOP_WAIT`], then kills it.
pub(crate) fn stop(child: &mut Child) -> Result<ExitStatus> {
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    signal(&child.id().to_string(), "TERM");
    let asked = Instant::now();
    while asked.elapsed() < STOP_WAIT {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(POLL_EVERY);
    }
    child.kill().context("kill a command that did not end")?;
    child.wait().context("wait for a killed command")
}

/// Repeats `attempt` until it returns a value or `limit` has passed.
pub(crate) fn poll<T>(
    limit: Duration,
    mut attempt: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let started = Instant::now();
    loop {
        if let Some(value) = attempt()? {
            return Ok(Some(value));
        }
        if started.elapsed() >= limit {
            return Ok(None);
        }
        std::thread::sleep(POLL_EVERY);
    }
}

fn spawn_merged(command: &mut Command) -> Result<(Child, PipeReader)> {
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    let copy = writer.try_clone().context("cannot copy a pipe")?;
    command.stdin(Stdio::null()).stdout(copy).stderr(writer);
    let started = command.spawn();
    // The command holds copies of the write end; while they exist the reader sees no end of file.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let program = command.get_program().to_string_lossy().into_owned();
    Ok((started.with_context(|| format!("cannot start `{program}`"))?, reader))
}

/// Sends a signal to a pid or, with a leading `-`, to a process group.
fn signal(target: &str, name: &str) {
    let script = "kill -s \"$1\" -- \"$0\"";
    // An error means that the target has ended; the caller waits for it in any case.
    let _ = Command::new("sh").args(["-c", script, target, name]).stderr(Stdio::null()).status();
}
