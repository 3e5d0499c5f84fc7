//! A process with one cache over a Redis, which reads commands from its parent, one on each line.
//!
//! | command | effect and answer |
//! |---|---|
//! | `ask KEY CALLERS HOW WHEN` | simultaneous calls, each with a loader; an [`Outcome`] of each |
//! | `get KEY` | the stored value, as an outcome |
//! | `see KEY VALUE` | waits until the key has the value; the time |
//! | `set KEY VALUE`, `set-tagged KEY VALUE TAG` | stores a value; success and time |
//! | `set-version KEY VALUE VERSION` | stores a version of a value; success and time |
//! | `remove-version KEY VERSION` | removes a version; success and time |
//! | `remove KEY`, `tag TAG`, `all` | invalidates; success and time |
//! | `release KEY` | opens the gate of the key's loads |
//! | `bus-connected`, `bus-lost` | waits until the bus is connected, or is not |
//! | `notes` | the [`Notes`] since the last time |
//!
//! HOW a loader answers: `say:VALUE`, `version:NUMBER:VALUE`, `absent`, `pass:VALUE` or `fail`.
//! WHEN: after this many milliseconds, or `held`: when the gate of its key opens. Each started load
//! is reported as `* KEY`.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use forebay::{Answer, Builder, Cache, Error, Memory, Options, Prior};
use forebay_redis::{EndpointSettings, Settings, SharingSettings};
use forebay_testkit::gate::Gate;
use forebay_testkit::pause::exactly;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;

/// Timeouts of Redis operations, long enough that a busy machine does not look like a failed Redis.
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time until an effect in another process is visible.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// Interval for polling the state of the bus.
const BUS_POLL: Duration = Duration::from_millis(2);

/// Delay of the answer after the last caller, so that writing it does not disturb callers in other
/// processes that still wait.
const ANSWER_DELAY: Duration = Duration::from_millis(5);

/// Capacity of the queue of output lines: more than a test produces at once.
const OUTPUT_QUEUE: usize = 4_096;

/// The result of one call, written as one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A value: `=VALUE`.
    Value(String),
    /// An absent value: `-`.
    Absent,
    /// An error: `!` and its message.
    Failed(String),
}

impl Outcome {
    fn of(found: Result<Option<Arc<String>>, Error>) -> Self {
        match found {
            Ok(Some(value)) => Self::Value(value.to_string()),
            Ok(None) => Self::Absent,
            Err(error) => Self::Failed(error.to_string().replace(' ', "_")),
        }
    }

    pub(crate) fn read(word: &str) -> anyhow::Result<Self> {
        match (word, word.strip_prefix('='), word.strip_prefix('!')) {
            ("-", ..) => Ok(Self::Absent),
            (_, Some(value), _) => Ok(Self::Value(value.to_owned())),
            (_, _, Some(error)) => Ok(Self::Failed(error.to_owned())),
            _ => anyhow::bail!("not an outcome: {word:?}"),
        }
    }

    fn written(&self) -> String {
        match self {
            Self::Value(value) => format!("={value}"),
            Self::Absent => "-".to_owned(),
            Self::Failed(error) => format!("!{error}"),
        }
    }
}

/// The notes of a process, shared with its loads.
#[derive(Clone, Default)]
pub(crate) struct SharedNotes(pub(crate) Arc<parking_lot::Mutex<Notes>>);

/// Times that a process records without output, so that output does not disturb its callers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// Durations of loads.
    pub(crate) loads: Vec<Duration>,
    /// Times since 1970 at which Redis acknowledged a fill.
    pub(crate) fills: Vec<Duration>,
}

impl SharedNotes {
    fn take(&self) -> String {
        let Notes { loads, fills } = std::mem::take(&mut *self.0.lock());
        let written = |all: Vec<Duration>| {
            let all = all.into_iter().map(|one| one.as_micros().to_string());
            all.collect::<Vec<_>>().join(",")
        };
        format!("{} {}", written(loads), written(fills))
    }
}

impl Notes {
    pub(crate) fn read(line: &str) -> anyhow::Result<Self> {
        let (loads, fills) = line.split_once(' ').context("notes have two fields")?;
        let read = |all: &str| -> anyhow::Result<Vec<Duration>> {
            let all = all.split(',').filter(|one| !one.is_empty());
            all.map(|one| Ok(Duration::from_micros(one.parse()?))).collect()
        };
        Ok(Self { loads: read(loads)?, fills: read(fills)? })
    }
}

/// Returns the time since 1970, which all processes of the machine share.
pub(crate) fn machine_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Sleeps between two polls, or before an answer. No assertion depends on its end.
async fn pause(span: Duration) {
    let ends = Instant::now() + span;
    tokio::time::interval_at(ends.into(), SETTLE_MAX).tick().await;
}

/// Serves one parent until it disconnects.
pub(crate) async fn run(cache: Cache<String>, noted: SharedNotes) -> anyhow::Result<()> {
    let peer = Arc::new(Peer { cache, gates: parking_lot::Mutex::default(), noted });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    // Begins with a line break, because a test runner may have written an incomplete line.
    let ready = format!("\nforebay ready: http://{}\n", listener.local_addr()?);
    std::io::stdout().write_all(ready.as_bytes())?;
    std::io::stdout().flush()?;
    peer.serve(listener.accept().await?.0).await
}

/// Returns the Redis settings of all processes.
pub(crate) fn settings(url: &str) -> Settings {
    let nearest = EndpointSettings {
        read_timeout: REDIS_TIMEOUT,
        write_timeout: REDIS_TIMEOUT,
        ..EndpointSettings::at(url)
    };
    let sharing = Some(SharingSettings::default());
    Settings { sharing, ..Settings::new(nearest) }
}

/// Returns the settings of the cache, without tiers.
pub(crate) fn builder() -> Builder<String> {
    Cache::builder("texts").memory(Memory::entries(10_000)).ttl(Duration::from_secs(600))
}

struct Peer {
    cache: Cache<String>,
    gates: parking_lot::Mutex<HashMap<String, Gate>>,
    noted: SharedNotes,
}

impl Peer {
    async fn serve(self: Arc<Self>, stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let (from, mut to) = stream.into_split();
        let mut lines = BufReader::new(from).lines();
        let (output, mut queued) = channel::<String>(OUTPUT_QUEUE);
        tokio::spawn(async move {
            while let Some(line) = queued.recv().await {
                // Fails if the parent has disconnected.
                let _ = to.write_all(line.as_bytes()).await;
            }
        });
        while let Some(line) = lines.next_line().await? {
            let (peer, output) = (self.clone(), output.clone());
            tokio::spawn(async move {
                let (number, command) = line.split_once(' ').unwrap_or((&line, ""));
                let answer = peer.run_command(command, &output).await;
                let answer = answer.unwrap_or_else(|error| format!("error: {error:#}"));
                let _ = output.send(format!("{number} {answer}\n")).await;
            });
        }
        Ok(())
    }

    async fn run_command(&self, command: &str, output: &Sender<String>) -> anyhow::Result<String> {
        let words: Vec<&str> = command.split(' ').collect();
        let cache = &self.cache;
        let done = match words[..] {
            ["ask", key, callers, how, when] => {
                let script = Script::read(how, when, self.gate(key))?;
                return self.ask(key, callers.parse()?, &script, output).await;
            }
            ["get", key] => return Ok(Outcome::of(Ok(cache.get(key).await)).written()),
            ["see", key, value] => return self.see(key, value).await,
            ["notes"] => return Ok(self.noted.take()),
            ["bus-connected"] => return self.wait_for_bus(true).await,
            ["bus-lost"] => return self.wait_for_bus(false).await,
            ["release", key] => {
                self.gate(key).open();
                true
            }
            ["set", key, value] => cache.set(key, value.to_owned()).await,
            ["set-tagged", key, value, tag] => {
                cache.with(Options::new().tags([tag])).set(key, value.to_owned()).await
            }
            ["set-version", key, value, version] => {
                cache.set_versioned(key, value.to_owned(), version.parse()?).await
            }
            ["remove-version", key, version] => cache.remove_versioned(key, version.parse()?).await,
            ["remove", key] => cache.remove(key).await,
            ["tag", tag] => {
                cache.invalidate_tag(tag).await;
                true
            }
            ["all"] => {
                cache.invalidate_all().await;
                true
            }
            _ => anyhow::bail!("unknown command {command:?}"),
        };
        Ok(format!("{done} {}", machine_now().as_micros()))
    }

    fn gate(&self, key: &str) -> Gate {
        self.gates.lock().entry(key.to_owned()).or_default().clone()
    }

    /// Returns each call as `OUTCOME@BEGAN@ENDED`, with times in microseconds since 1970.
    async fn ask(
        &self,
        key: &str,
        callers: usize,
        script: &Script,
        output: &Sender<String>,
    ) -> anyhow::Result<String> {
        let mut calls = JoinSet::new();
        for _ in 0..callers {
            let (cache, key) = (self.cache.clone(), key.to_owned());
            let (script, output, noted) = (script.clone(), output.clone(), self.noted.clone());
            calls.spawn(async move {
                let began = machine_now().as_micros();
                let begins = format!("* {key}\n");
                let load = |_: Prior<String>| async move {
                    let _ = output.send(begins).await;
                    let begun = Instant::now();
                    let answer = script.run().await;
                    noted.0.lock().loads.push(begun.elapsed());
                    answer
                };
                let found = cache.get_or_load_with(&key, load).await;
                let outcome = Outcome::of(found).written();
                format!("{outcome}@{began}@{}", machine_now().as_micros())
            });
        }
        let mut all = Vec::with_capacity(callers);
        while let Some(call) = calls.join_next().await {
            all.push(call?);
        }
        pause(ANSWER_DELAY).await;
        Ok(all.join(" "))
    }

    async fn see(&self, key: &str, value: &str) -> anyhow::Result<String> {
        let begun = Instant::now();
        while self.cache.get(key).await.as_deref().map(String::as_str) != Some(value) {
            anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{key} does not have the value {value}");
            tokio::task::yield_now().await;
        }
        Ok(format!("true {}", machine_now().as_micros()))
    }

    async fn wait_for_bus(&self, wanted: bool) -> anyhow::Result<String> {
        let begun = Instant::now();
        while self.cache.bus_status().context("the cache has no bus")?.connected != wanted {
            anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "bus connected is not {wanted}");
            pause(BUS_POLL).await;
        }
        Ok(format!("true {}", machine_now().as_micros()))
    }
}

/// The behaviour of a loader.
#[derive(Clone)]
struct Script {
    how: How,
    when: When,
}

#[derive(Clone)]
enum How {
    Say(String),
    Version(u64, String),
    Absent,
    Pass(String),
    Fail,
}

#[derive(Clone)]
enum When {
    After(Duration),
    Held(Gate),
}

impl Script {
    fn read(how: &str, when: &str, gate: Gate) -> anyhow::Result<Self> {
        let how = match how.split_once(':') {
            Some(("say", value)) => How::Say(value.to_owned()),
            Some(("version", rest)) => {
                let (version, value) =
                    rest.split_once(':').context("the value after the version is missing")?;
                How::Version(version.parse()?, value.to_owned())
            }
            Some(("pass", value)) => How::Pass(value.to_owned()),
            None if how == "absent" => How::Absent,
            None if how == "fail" => How::Fail,
            _ => anyhow::bail!("unknown answer of a loader: {how:?}"),
        };
        let when = match when {
            "held" => When::Held(gate),
            millis => When::After(Duration::from_millis(millis.parse()?)),
        };
        Ok(Self { how, when })
    }

    async fn run(self) -> Result<Answer<String>, String> {
        match self.when {
            When::After(delay) => exactly(delay).await,
            When::Held(gate) => gate.wait().await,
        }
        match self.how {
            How::Say(value) => Ok(Answer::value(value).tags(["loaded"])),
            How::Version(version, value) => Ok(Answer::value(value).version(version)),
            How::Absent => Ok(Answer::absent()),
            How::Pass(value) => Ok(Answer::pass(Some(value))),
            How::Fail => Err("it failed".to_owned()),
        }
    }
}
