//! Starts the real binary, reads its ready line, signals it, and stops it.

mod lines;

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

pub(crate) use lines::Lines;

use crate::client::{Client, Reply, Request};
use crate::scenario::Selector;

/// Maximum duration of a start; a cold debug binary on a loaded machine is slow.
const READY_WAIT: Duration = Duration::from_secs(20);

/// Maximum wait for a line of output of a running process.
const LINE_WAIT: Duration = Duration::from_secs(10);

/// Maximum wait for the exit of a process that failed to start.
const EXPLAIN_WAIT: Duration = Duration::from_secs(2);

/// Prefix of the ready line.
const READY: &str = "forebay ready";

/// Signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Term = 15,
    /// SIGINT.
    Int = 2,
    /// SIGHUP.
    Hup = 1,
    /// SIGUSR1.
    Usr1 = 10,
    /// SIGSTOP, which suspends the process.
    Stop = 19,
    /// SIGCONT, which resumes it.
    Cont = 18,
    /// SIGKILL, which cannot be handled.
    Kill = 9,
}

/// Command to start.
#[derive(Clone, Debug)]
pub struct Launch {
    path: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    folder: Option<Arc<TempDir>>,
}

impl Launch {
    /// Command with the path of a binary.
    pub fn binary(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), args: Vec::new(), env: Vec::new(), folder: None }
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds `--config` with a file of this text, which exists as long as the process.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn config(mut self, text: &str) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let file = folder.path().join("forebay.toml");
        std::fs::write(&file, text)?;
        self.folder = Some(Arc::new(folder));
        Ok(self.args(["--config".into(), file.into_os_string()]))
    }

    /// Sets an environment variable. Variables named `FOREBAY_…` are not inherited, because they
    /// would change the test.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts the process and waits at most 20 s for a line on stdout that begins with `forebay
    /// ready`.
    ///
    /// # Errors
    /// If the process cannot be started or prints no such line; the error contains the exit status
    /// and the output.
    pub async fn start(self) -> anyhow::Result<Launched> {
        let mut launched = self.spawn()?;
        let line = match launched.ready_line().await {
            Ok(line) => line,
            Err(error) => return Err(launched.explain(error).await),
        };
        launched.ready = parse_ready(&line)?;
        Ok(launched)
    }

    /// Starts the process and waits at most 20 s for its exit.
    ///
    /// # Errors
    /// If the process cannot be started or does not exit.
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
        // Messages as text: tests compare their fields as they are written there.
        command.env("FOREBAY_LOG_FORMAT", "text");
        command.args(self.args).envs(self.env).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("start {}", self.path.display()))?;
        let pid = child.id().context("a process that has just been started has no id")?;
        let stdout = Lines::of(child.stdout.take().context("no stdout")?);
        let stderr = Lines::of(child.stderr.take().context("no stderr")?);
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let ready = Ready { address: unknown, admin: None, probe: None };
        Ok(Launched { child, pid, stdout, stderr, ready, _folder: self.folder })
    }
}

/// Result of a command that exited.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Lines of stdout.
    pub stdout: Vec<String>,
    /// Lines of stderr.
    pub stderr: Vec<String>,
}

/// Running process; dropping it kills it.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    pid: u32,
    stdout: Lines,
    stderr: Lines,
    ready: Ready,
    _folder: Option<Arc<TempDir>>,
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    probe: Option<SocketAddr>,
}

impl Launched {
    /// First address in the ready line, on which the process serves clients.
    pub fn address(&self) -> SocketAddr {
        self.ready.address
    }

    /// Address of its admin listener, if the ready line names one.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.ready.admin
    }

    /// Address of its first probe listener, if the ready line names one.
    pub fn probe(&self) -> Option<SocketAddr> {
        self.ready.probe
    }

    /// Requests a page of the admin listener.
    ///
    /// # Errors
    /// If there is no admin listener, or it does not answer.
    pub async fn get_admin(&self, path: &str) -> anyhow::Result<Reply> {
        let admin = self.admin().context("the ready line names no admin listener")?;
        let request = Request::get(path).field("Host", admin.to_string());
        Client::connect(admin).await?.ask(&request).await
    }

    /// Sum of the samples of a metric, such as `name` or `name{label="value"}`, without its
    /// fraction; 0 without any sample.
    ///
    /// # Errors
    /// If the metrics cannot be read.
    pub async fn metric(&self, selector: &str) -> anyhow::Result<u64> {
        let (selector, _) = Selector::read(selector).context("not a metric")?;
        let text = self.get_admin("/metrics").await?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        Ok(selector.sum(&text.text()).unwrap_or_default() as u64)
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lines of stdout so far.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.so_far()
    }

    /// Lines of stderr so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.so_far()
    }

    /// Waits for the first line of stderr that contains `part`.
    ///
    /// # Errors
    /// If there is none within 10 s.
    pub async fn wait_stderr(&self, part: &str) -> anyhow::Result<String> {
        self.stderr.find(LINE_WAIT, |line| line.contains(part)).await.with_context(|| {
            format!("no line of stderr contains {part:?}; it has {:#?}", self.stderr())
        })
    }

    /// Waits for the first line of stdout that contains `part`.
    ///
    /// # Errors
    /// If there is none within 10 s.
    pub async fn wait_stdout(&self, part: &str) -> anyhow::Result<String> {
        self.stdout.find(LINE_WAIT, |line| line.contains(part)).await.with_context(|| {
            format!("no line of stdout contains {part:?}; it has {:#?}", self.stdout())
        })
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If the exit of the process has been awaited: its id may belong to another process by now.
    pub async fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self::signal(self.child.id().context("the process has ended")?, signal)
    }

    /// Waits for the exit of the process.
    ///
    /// # Errors
    /// If it does not exit within `bound`.
    pub async fn wait_exit(&mut self, bound: Duration) -> anyhow::Result<ExitStatus> {
        let waited = tokio::time::timeout(bound, self.child.wait()).await;
        Ok(waited.with_context(|| format!("process {} runs on after {bound:?}", self.pid))??)
    }

    async fn ready_line(&self) -> anyhow::Result<String> {
        let found = self.stdout.find(READY_WAIT, |line| line.starts_with(READY)).await;
        found.with_context(|| format!("no line that begins with {READY:?} on stdout"))
    }

    /// Adds the exit status and the output to an error.
    async fn explain(mut self, error: anyhow::Error) -> anyhow::Error {
        // A process that closed its stdout is about to exit, and its output has the cause.
        let state = match self.wait_exit(EXPLAIN_WAIT).await {
            Ok(status) => format!("it ended with {status}"),
            Err(_) => "it still runs".to_owned(),
        };
        let (stdout, stderr) = (self.stdout.all().await, self.stderr.all().await);
        error.context(format!("{state}; stdout {stdout:#?}, stderr {stderr:#?}"))
    }
}

/// Memory of a process in bytes, by the name of the field in its status: `VmRSS` or `VmHWM`.
///
/// # Errors
/// If there is no such process.
pub fn memory(pid: u32, field: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.context(field.to_owned())?.trim().trim_end_matches(" kB");
    Ok(kib.parse::<u64>()? << 10)
}

/// Sends a signal to a process.
///
/// # Errors
/// If there is no such process.
pub fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("not a process id")?;
    let number =
        rustix::process::Signal::from_named_raw(signal as i32).context("no such signal")?;
    Ok(kill_process(pid, number)?)
}

/// Reads `forebay ready: http://ADDR (probe http://ADDR, admin http://ADDR)`; the part in parentheses
/// is optional, and there may be several client addresses.
fn parse_ready(line: &str) -> anyhow::Result<Ready> {
    let address_after = |name: &str| {
        let text = line.split_once(&format!("{name}http://"))?.1;
        let text = text.split([' ', ')', ',', '/']).next().unwrap_or_default();
        Some(text.parse().with_context(|| format!("{text:?} is not an address, in {line:?}")))
    };
    let address = address_after("").with_context(|| format!("no address in {line:?}"))??;
    let admin = address_after("admin ").transpose()?;
    Ok(Ready { address, admin, probe: address_after("probe ").transpose()? })
}
