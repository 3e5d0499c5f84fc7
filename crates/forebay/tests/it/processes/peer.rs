//! A process of its own with one cache over a Redis, that does what it is told line by line.
//!
//! | told | does, and answers |
//! |---|---|
//! | `ask KEY CALLERS HOW WHEN` | as many calls at once, each with a loader; see [`Outcome`] |
//! | `get KEY` | what is at hand, as an outcome |
//! | `see KEY VALUE` | looks until the value is at hand, and says when that was |
//! | `set KEY VALUE`, `set-tagged KEY VALUE TAG` | stores; says when it was done |
//! | `set-version KEY VALUE VERSION` | the same, as of a version |
//! | `remove-version KEY VERSION` | removes as of a version |
//! | `remove KEY`, `tag TAG`, `all` | invalidates; says when it was done |
//! | `release KEY` | opens the gate of its loads |
//! | `hears`, `deaf` | waits until the others are heard, or are not |
//! | `told` | what it has noted since it was asked last; see [`Noted`] |
//!
//! HOW a loader answers: `say:VALUE`, `version:NUMBER:VALUE`, `absent`, `pass:VALUE` or `fail`.
//! WHEN: after so many milliseconds, or `held`, when its gate is opened. A loader that begins says
//! so: `* KEY`.

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

/// A busy machine is not taken for a Redis that fails: then there would be more loads, and rightly
/// so.
const PATIENT: Duration = Duration::from_secs(5);

/// How long something may take that happens behind the scenes.
const SETTLE_MAX: Duration = Duration::from_secs(20);

/// How often something is looked at that tells nobody when it changes.
const LOOK_GAP: Duration = Duration::from_millis(2);

/// How long after the last of its callers a parent is told of them: it would be in the way of those
/// in other processes that still wait.
const TELL_AFTER: Duration = Duration::from_millis(5);

/// How many lines may wait to be written: more than are ever said at once.
const SAID_MAX: usize = 4_096;

/// What one call came to, in one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A value: `=VALUE`.
    Value(String),
    /// The knowledge that there is nothing: `-`.
    Absent,
    /// An error: `!` and what it says.
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
            _ => anyhow::bail!("no outcome: {word:?}"),
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

/// What a process notes while it must not be disturbed.
#[derive(Clone, Default)]
pub(crate) struct Noted(pub(crate) Arc<parking_lot::Mutex<Notes>>);

/// All in microseconds: spans, or since when the machine counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// How long its loads took.
    pub(crate) loads: Vec<Duration>,
    /// When Redis had acknowledged what it had filled, where somebody looks at that.
    pub(crate) fills: Vec<Duration>,
}

impl Noted {
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
    pub(crate) fn read(told: &str) -> anyhow::Result<Self> {
        let (loads, fills) = told.split_once(' ').context("it notes two things")?;
        let read = |all: &str| -> anyhow::Result<Vec<Duration>> {
            let all = all.split(',').filter(|one| !one.is_empty());
            all.map(|one| Ok(Duration::from_micros(one.parse()?))).collect()
        };
        Ok(Self { loads: read(loads)?, fills: read(fills)? })
    }
}

/// Since when the machine counts: all its processes count alike.
pub(crate) fn machine_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Somebody who looks again, or waits for nobody: nothing is told by its end.
async fn pause(span: Duration) {
    let ends = Instant::now() + span;
    tokio::time::interval_at(ends.into(), SETTLE_MAX).tick().await;
}

/// Serves one parent until that goes away.
pub(crate) async fn run(cache: Cache<String>, noted: Noted) -> anyhow::Result<()> {
    let peer = Arc::new(Peer { cache, gates: parking_lot::Mutex::default(), noted });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    // On a line of its own, whatever a test runner has written before it.
    let ready = format!("\nforebay ready: http://{}\n", listener.local_addr()?);
    std::io::stdout().write_all(ready.as_bytes())?;
    std::io::stdout().flush()?;
    peer.serve(listener.accept().await?.0).await
}

/// How the processes know their Redis.
pub(crate) fn settings(url: &str) -> Settings {
    let nearest = EndpointSettings {
        read_timeout: PATIENT,
        write_timeout: PATIENT,
        ..EndpointSettings::at(url)
    };
    let sharing = Some(SharingSettings::default());
    Settings { sharing, ..Settings::new(nearest) }
}

/// A cache over nothing yet.
pub(crate) fn builder() -> Builder<String> {
    Cache::builder("texts").memory(Memory::entries(10_000)).ttl(Duration::from_secs(600))
}

struct Peer {
    cache: Cache<String>,
    gates: parking_lot::Mutex<HashMap<String, Gate>>,
    noted: Noted,
}

impl Peer {
    async fn serve(self: Arc<Self>, stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let (from, mut to) = stream.into_split();
        let mut lines = BufReader::new(from).lines();
        let (say, mut said) = channel::<String>(SAID_MAX);
        tokio::spawn(async move {
            while let Some(line) = said.recv().await {
                // A parent that has gone away wants nothing any more.
                let _ = to.write_all(line.as_bytes()).await;
            }
        });
        while let Some(line) = lines.next_line().await? {
            let (peer, say) = (self.clone(), say.clone());
            tokio::spawn(async move {
                let (number, told) = line.split_once(' ').unwrap_or((&line, ""));
                let answer = peer.obey(told, &say).await;
                let answer = answer.unwrap_or_else(|error| format!("error: {error:#}"));
                let _ = say.send(format!("{number} {answer}\n")).await;
            });
        }
        Ok(())
    }

    async fn obey(&self, told: &str, say: &Sender<String>) -> anyhow::Result<String> {
        let words: Vec<&str> = told.split(' ').collect();
        let cache = &self.cache;
        let done = match words[..] {
            ["ask", key, callers, how, when] => {
                let script = Script::read((how, when), self.gate(key))?;
                return self.ask((key, callers.parse()?), &script, say).await;
            }
            ["get", key] => return Ok(Outcome::of(Ok(cache.get(key).await)).written()),
            ["see", key, value] => return self.see(key, value).await,
            ["told"] => return Ok(self.noted.take()),
            ["hears"] => return self.hears(true).await,
            ["deaf"] => return self.hears(false).await,
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
            _ => anyhow::bail!("nobody knows how to {told:?}"),
        };
        Ok(format!("{done} {}", machine_now().as_micros()))
    }

    fn gate(&self, key: &str) -> Gate {
        self.gates.lock().entry(key.to_owned()).or_default().clone()
    }

    /// Each call as `OUTCOME@BEGAN@ENDED`, in microseconds since the machine counts.
    async fn ask(
        &self,
        (key, callers): (&str, usize),
        script: &Script,
        say: &Sender<String>,
    ) -> anyhow::Result<String> {
        let mut calls = JoinSet::new();
        for _ in 0..callers {
            let (cache, key) = (self.cache.clone(), key.to_owned());
            let (script, say, noted) = (script.clone(), say.clone(), self.noted.clone());
            calls.spawn(async move {
                let began = machine_now().as_micros();
                let begins = format!("* {key}\n");
                let load = |_: Prior<String>| async move {
                    let _ = say.send(begins).await;
                    let begun = Instant::now();
                    let answer = script.play().await;
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
        pause(TELL_AFTER).await;
        Ok(all.join(" "))
    }

    async fn see(&self, key: &str, value: &str) -> anyhow::Result<String> {
        let begun = Instant::now();
        while self.cache.get(key).await.as_deref().map(String::as_str) != Some(value) {
            anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{value} is not seen under {key}");
            tokio::task::yield_now().await;
        }
        Ok(format!("true {}", machine_now().as_micros()))
    }

    async fn hears(&self, wanted: bool) -> anyhow::Result<String> {
        let begun = Instant::now();
        while self.cache.bus_status().context("it is alone")?.connected != wanted {
            anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "hearing others is not {wanted}");
            pause(LOOK_GAP).await;
        }
        Ok(format!("true {}", machine_now().as_micros()))
    }
}

/// What a loader does.
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
    fn read((how, when): (&str, &str), gate: Gate) -> anyhow::Result<Self> {
        let how = match how.split_once(':') {
            Some(("say", value)) => How::Say(value.to_owned()),
            Some(("version", rest)) => {
                let (version, value) = rest.split_once(':').context("a version of what?")?;
                How::Version(version.parse()?, value.to_owned())
            }
            Some(("pass", value)) => How::Pass(value.to_owned()),
            None if how == "absent" => How::Absent,
            None if how == "fail" => How::Fail,
            _ => anyhow::bail!("no loader answers {how:?}"),
        };
        let when = match when {
            "held" => When::Held(gate),
            millis => When::After(Duration::from_millis(millis.parse()?)),
        };
        Ok(Self { how, when })
    }

    async fn play(self) -> Result<Answer<String>, String> {
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
