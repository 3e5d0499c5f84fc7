//! Children that are run to their end: line by line, or within a time, and ended by pid.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// How often a child is asked whether it has ended: a person does not notice it, a core neither.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// How long a child may take to end once asked to: `forebay serve` drains for 10 s at most.
const STOP_WAIT: Duration = Duration::from_secs(15);

/// Runs `command` to its end and shows `each` line of its stdout and stderr, in their order.
///
/// There is no time limit: what is run here (compilers, test suites) bounds itself.
pub(crate) fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    let (mut child, reader) = spawn_merged(command)?;
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("read the output")? > 0 {
        each(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
        line.clear();
    }
    child.wait().context("wait for the command")
}

/// What a command that was run within a time left behind.
pub(crate) struct Captured {
    /// None: it was still running when its time was up, and was ended.
    pub(crate) status: Option<ExitStatus>,
    /// Its stdout and stderr, in their order.
    pub(crate) text: String,
}

/// Runs `command` for at most `limit`; then it and all that it started are killed.
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
    let bytes = read.context("the output did not end")?.context("read the output")?;
    let status = child.wait().context("wait for the command")?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Captured { status: in_time.then_some(status), text })
}

/// Asks a child to end, waits for it, and kills it by its pid when it does not listen.
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

/// Tries `attempt` again and again until it gives a value or `limit` has passed.
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
    let copy = writer.try_clone().context("copy a pipe")?;
    command.stdin(Stdio::null()).stdout(copy).stderr(writer);
    let started = command.spawn();
    // The command keeps its own copies of the write end; while they live the reader sees no end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let program = command.get_program().to_string_lossy().into_owned();
    Ok((started.with_context(|| format!("start `{program}`"))?, reader))
}

/// Sends a signal through the shell, whose `kill` is built in, to a pid or (with `-`) a group.
fn signal(target: &str, name: &str) {
    let script = "kill -s \"$1\" -- \"$0\"";
    // A target that has ended meanwhile is what was wanted; the wait that follows tells.
    let _ = Command::new("sh").args(["-c", script, target, name]).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_come_in_order_from_both_streams() {
        let mut seen = Vec::new();
        let status = lines(&mut shell("echo one; echo two >&2; printf three; exit 3"), |line| {
            seen.push(line.to_owned());
        });
        assert_eq!(seen, ["one", "two", "three"]);
        assert_eq!(status.unwrap().code(), Some(3));
    }

    #[test]
    fn a_command_that_ends_in_time_has_a_status() {
        let captured = capture(&mut shell("echo out; exit 4"), Duration::from_secs(60)).unwrap();
        assert_eq!(captured.text, "out\n");
        assert_eq!(captured.status.and_then(|status| status.code()), Some(4));
    }

    #[test]
    fn a_command_that_does_not_end_is_killed_with_all_it_started() {
        let mut command = shell("echo out; sleep 1000 & sleep 1000");
        let captured = capture(&mut command, Duration::from_millis(200)).unwrap();
        assert!(captured.status.is_none());
        assert_eq!(captured.text, "out\n");
    }

    #[test]
    fn stop_asks_first() {
        let mut child = shell("trap 'exit 7' TERM; echo ready; while :; do read -r _; done")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(stop(&mut child).unwrap().code(), Some(7));
        assert_eq!(stop(&mut child).unwrap().code(), Some(7));
    }

    #[test]
    fn poll_gives_up_after_its_limit() {
        let mut turns = 0;
        let found = poll(Duration::from_secs(60), || {
            turns += 1;
            Ok((turns == 3).then_some(turns))
        });
        assert_eq!(found.unwrap(), Some(3));
        assert_eq!(poll(Duration::ZERO, || Ok(None::<u8>)).unwrap(), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = lines(&mut Command::new("no-such-program-here"), |_| {}).unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"));
    }
}
