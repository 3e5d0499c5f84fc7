//! A child process that runs one library and answers commands.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::Rival;
use super::catalog::Library;
use super::install;

/// Maximum time of an answer: the slowest rival waits for several timeouts of a frozen Redis.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Memory bound of a library where memory is not what is measured.
pub(crate) const AMPLE: u64 = 256 << 20;

/// A running library.
pub(crate) struct Peer {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    pub(crate) rival: Rival,
    pub(crate) pid: u32,
    /// Ends the process when dropped.
    _child: Child,
}

/// Settings of a peer.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) ttl: Duration,
    pub(crate) memory: u64,
    /// URL of a Redis, for libraries with one.
    pub(crate) redis: String,
}

/// Results of simultaneous calls.
pub(crate) struct Loaded {
    pub(crate) loads: u64,
    pub(crate) errors: u64,
    /// Seconds of each call.
    pub(crate) times: Vec<f64>,
}

impl Setup {
    pub(crate) fn new(redis: &str) -> Self {
        Self { ttl: Duration::from_secs(600), memory: AMPLE, redis: redis.to_owned() }
    }
}

impl Peer {
    /// Installs and starts a library.
    pub(crate) async fn start(library: &Library, setup: &Setup) -> Result<Self> {
        let mut command = tokio::process::Command::from(install::command(library.runs)?);
        if library.runs == super::catalog::Runs::Rust {
            command.arg(super::own::CHILD);
        }
        command.args([library.name, &setup.ttl.as_millis().to_string()]);
        command.arg(setup.memory.to_string());
        if library.is_shared {
            command.arg(&setup.redis);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("start {}", library.name))?;
        let input = child.stdin.take().context("no input")?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?).lines();
        let first = timeout(ANSWER_MAX, output.next_line()).await.context("no first line")??;
        let first = first.with_context(|| format!("{} ended at its start", library.name))?;
        let first: Value = serde_json::from_str(&first).context("the first line is no JSON")?;
        let version = first["version"].as_str().unwrap_or_default();
        let rival = library.rival(version, &first["settings"].to_string());
        let pid = child.id().context("the process has ended")?;
        Ok(Self { input, output, rival, pid, _child: child })
    }

    /// Sends a command and returns its answer.
    pub(crate) async fn ask(&mut self, command: &str) -> Result<Value> {
        self.input.write_all(format!("{command}\n").as_bytes()).await?;
        let name = &self.rival.name;
        let line = timeout(ANSWER_MAX, self.output.next_line()).await;
        let line = line.with_context(|| format!("{name} does not answer `{command}`"))??;
        let line = line.with_context(|| format!("{name} ended during `{command}`"))?;
        let answer: Value = serde_json::from_str(&line)?;
        match answer["failed"].as_str() {
            Some(error) => bail!("{name} answered `{command}`: {error}"),
            None => Ok(answer),
        }
    }

    /// Simultaneous reads of a key, whose load takes this long.
    pub(crate) async fn load(
        &mut self,
        key: &str,
        callers: usize,
        load: Duration,
        size: usize,
    ) -> Result<Loaded> {
        let command = format!("load {key} {callers} {} {size}", load.as_millis());
        Loaded::read(&self.ask(&command).await?)
    }
}

impl Loaded {
    fn read(answer: &Value) -> Result<Self> {
        let number = |name: &str| answer[name].as_u64().with_context(|| format!("no {name}"));
        let times = seconds(answer)?;
        Ok(Self { loads: number("loads")?, errors: number("errors")?, times })
    }
}

/// Seconds of the times of an answer.
pub(crate) fn seconds(answer: &Value) -> Result<Vec<f64>> {
    let micros = answer["micros"].as_array().context("no times")?;
    Ok(micros.iter().filter_map(Value::as_f64).map(|micros| micros / 1e6).collect())
}
