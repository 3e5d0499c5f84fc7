//! Starts the real binary, reads its ready line, signals it, and ends it.

mod lines;

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

pub(crate) use lines::Lines;

/// How long a start may take: a cold debug binary on a loaded machine is slow.
const READY_WAIT: Duration = Duration::from_secs(20);

/// How long a line of output may take once the process runs.
const LINE_WAIT: Duration = Duration::from_secs(10);

/// How long the end of a process that failed to start may take, before it is called running.
const EXPLAIN_WAIT: Duration = Duration::from_secs(2);

/// What the ready line begins with.
const READY: &str = "forebay ready";

/// A signal for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGINT.
    Int,
    /// SIGHUP.
    Hup,
    /// SIGSTOP, which freezes it.
    Stop,
    /// SIGCONT, which thaws it.
    Cont,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    path: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Launch {
    /// A binary by its path.
    pub fn binary(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), args: Vec::new(), env: Vec::new() }
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment. Those named `FOREBAY_…` are not inherited, because they
    /// would change what is tested.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts it and waits, at most 20 s, for a line on stdout that begins with `forebay ready`.
    /// The error of a process that ended instead shows its status and its stderr.
    pub async fn start(self) -> anyhow::Result<Launched> {
        let mut launched = self.spawn()?;
        let line = match launched.ready_line().await {
            Ok(line) => line,
            Err(error) => return Err(launched.explain(error).await),
        };
        let (address, admin) = parse_ready(&line)?;
        launched.ready = Ready { address, admin };
        Ok(launched)
    }

    /// Starts it and waits, at most 20 s, for its end: for commands that end by themselves, and
    /// for starts that must fail.
    pub async fn finish(self) -> anyhow::Result<Finished> {
        let mut launched = self.spawn()?;
        let status = launched.wait_exit(READY_WAIT).await?;
        let (stdout, stderr) = (launched.stdout.all().await, launched.stderr.all().await);
        Ok(Finished { status, stdout, stderr })
    }

    fn spawn(self) -> anyhow::Result<Launched> {
        let inherited = std::env::vars_os().map(|(name, _)| name);
        let ours = inherited.filter(|name| name.to_string_lossy().starts_with("FOREBAY_"));
        let mut command = Command::new(&self.path);
        ours.for_each(|name| {
            command.env_remove(name);
        });
        command.args(self.args).envs(self.env).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("start {}", self.path.display()))?;
        let pid = child.id().context("a process that has just been started has no id")?;
        let stdout = Lines::of(child.stdout.take().context("no stdout")?);
        let stderr = Lines::of(child.stderr.take().context("no stderr")?);
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let ready = Ready { address: unknown, admin: None };
        Ok(Launched { child, pid, stdout, stderr, ready })
    }
}

/// How a command that ended by itself did.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its status.
    pub status: ExitStatus,
    /// The lines of its stdout.
    pub stdout: Vec<String>,
    /// The lines of its stderr.
    pub stderr: Vec<String>,
}

/// A running process; dropping it kills it.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    pid: u32,
    stdout: Lines,
    stderr: Lines,
    ready: Ready,
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    address: SocketAddr,
    admin: Option<SocketAddr>,
}

impl Launched {
    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.ready.address
    }

    /// Where its admin door is, if its ready line names one.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.ready.admin
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it has written to stdout so far, as lines.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.so_far()
    }

    /// What it has written to stderr so far, as lines.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.so_far()
    }

    /// Resolves to the first line of stderr that contains `part`; an error after 10 s.
    pub async fn wait_stderr(&self, part: &str) -> anyhow::Result<String> {
        self.stderr.find(LINE_WAIT, |line| line.contains(part)).await.with_context(|| {
            format!("no line of stderr contains {part:?}; it has {:#?}", self.stderr())
        })
    }

    /// Resolves to the first line of stdout that contains `part`; an error after 10 s.
    pub async fn wait_stdout(&self, part: &str) -> anyhow::Result<String> {
        self.stdout.find(LINE_WAIT, |line| line.contains(part)).await.with_context(|| {
            format!("no line of stdout contains {part:?}; it has {:#?}", self.stdout())
        })
    }

    /// Sends a signal. A process whose end has been waited for is an error: its id may by now be
    /// another's.
    pub async fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self::signal(self.child.id().context("the process has ended")?, signal).await
    }

    /// Waits for the end of the process; an error after `bound`.
    pub async fn wait_exit(&mut self, bound: Duration) -> anyhow::Result<ExitStatus> {
        let waited = tokio::time::timeout(bound, self.child.wait()).await;
        Ok(waited.with_context(|| format!("process {} runs on after {bound:?}", self.pid))??)
    }

    async fn ready_line(&self) -> anyhow::Result<String> {
        let found = self.stdout.find(READY_WAIT, |line| line.starts_with(READY)).await;
        found.with_context(|| format!("no line that begins with {READY:?} on stdout"))
    }

    /// Adds to an error how the process ended, and what it wrote.
    async fn explain(mut self, error: anyhow::Error) -> anyhow::Error {
        // One that closed its stdout is about to end, and its status and last words are the cause.
        let state = match self.wait_exit(EXPLAIN_WAIT).await {
            Ok(status) => format!("it ended with {status}"),
            Err(_) => "it still runs".to_owned(),
        };
        let (stdout, stderr) = (self.stdout.all().await, self.stderr.all().await);
        error.context(format!("{state}; stdout {stdout:#?}, stderr {stderr:#?}"))
    }
}

/// Sends a signal to a process.
pub(crate) async fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    // The shell's own `kill` is everywhere; the command is not.
    let script = ["-c", "kill -s \"$1\" \"$2\"", "sh", signal.name(), &pid.to_string()];
    let status = Command::new("sh").args(script).status().await?;
    if !status.success() {
        bail!("signal {signal:?} to process {pid} failed: {status}");
    }
    Ok(())
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Hup => "HUP",
            Self::Stop => "STOP",
            Self::Cont => "CONT",
        }
    }
}

/// Reads `forebay ready: http://ADDR (admin http://ADDR)`; the part in parentheses may be absent.
fn parse_ready(line: &str) -> anyhow::Result<(SocketAddr, Option<SocketAddr>)> {
    let mut addresses = line.split("http://").skip(1).map(|rest| {
        let text = rest.split([' ', ')', ',', '/']).next().unwrap_or_default();
        text.parse().with_context(|| format!("{text:?} is not an address, in {line:?}"))
    });
    let address = addresses.next().with_context(|| format!("no address in {line:?}"))??;
    // The listener may have several addresses; the admin's is the one that is named so.
    let admin = line.contains("admin http://").then(|| addresses.last()).flatten();
    Ok((address, admin.transpose()?))
}

#[cfg(test)]
mod tests;
