//! The parent's handles of several [peer](crate::peer) processes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use forebay_testkit::launch::{Launch, Launched, Signal};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, oneshot, watch};
use tokio::time::timeout;

use super::peer::{Notes, Outcome};

/// Maximum time that a process takes to answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Processes that share one Redis and are connected by its bus.
pub(crate) struct PeerGroup(Vec<PeerProcess>);

/// One peer process.
pub(crate) struct PeerProcess {
    process: Launched,
    to: AsyncMutex<OwnedWriteHalf>,
    next_number: AtomicU64,
    output: Arc<Output>,
}

/// The output of one peer process.
#[derive(Default)]
struct Output {
    /// The pending commands by number. `None` once the process has ended.
    pending: Mutex<Option<HashMap<u64, oneshot::Sender<String>>>>,
    /// Numbers of started loads, by key.
    loads: watch::Sender<HashMap<String, usize>>,
}

/// The outcome of a call, with its start and end as times since 1970.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) outcome: Outcome,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
}

impl Called {
    pub(crate) fn took(&self) -> Duration {
        self.ended.saturating_sub(self.began)
    }

    fn read(word: &str) -> anyhow::Result<Self> {
        let (rest, ended) = word.rsplit_once('@').context("the end of the call is missing")?;
        let (outcome, began) = rest.rsplit_once('@').context("the start of the call is missing")?;
        let [began, ended] = [began, ended].map(|micros| micros.parse().map(Duration::from_micros));
        Ok(Self { outcome: Outcome::read(outcome)?, began: began?, ended: ended? })
    }
}

impl PeerGroup {
    /// Starts `count` processes with `launch`, and waits until they are connected.
    pub(crate) async fn start(
        count: usize,
        launch: impl Fn() -> anyhow::Result<Launch>,
    ) -> anyhow::Result<Self> {
        let starting = (0..count).map(|_| async { PeerProcess::start(launch()?).await });
        let peers = Self(try_join_all(starting).await?);
        for process in &peers.0 {
            process.command("bus-connected").await?;
        }
        Ok(peers)
    }

    pub(crate) fn processes(&self) -> &[PeerProcess] {
        &self.0
    }

    /// Runs calls in all processes at once, and returns the outcomes of all callers.
    pub(crate) async fn ask(&self, what: &str) -> anyhow::Result<Vec<Called>> {
        let asked = try_join_all(self.0.iter().map(|process| process.ask(what))).await?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// Returns the notes of all processes since the last time.
    pub(crate) async fn take_notes(&self) -> anyhow::Result<Notes> {
        let mut all = Notes::default();
        for process in &self.0 {
            let Notes { loads, fills } = Notes::read(&process.command("notes").await?)?;
            all.loads.extend(loads);
            all.fills.extend(fills);
        }
        Ok(all)
    }

    /// Returns the number of started loads of a key in all processes.
    pub(crate) fn loads(&self, key: &str) -> usize {
        self.0.iter().map(|process| process.loads(key)).sum()
    }
}

impl PeerProcess {
    async fn start(launch: Launch) -> anyhow::Result<Self> {
        let process = launch.start().await?;
        let stream = TcpStream::connect(process.address()).await?;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        let output = Arc::new(Output::default());
        *output.pending.lock() = Some(HashMap::new());
        tokio::spawn(output.clone().read_lines(from));
        Ok(Self { process, to: AsyncMutex::new(to), next_number: AtomicU64::new(0), output })
    }

    /// Sends a command, and returns its answer.
    pub(crate) async fn command(&self, command: &str) -> anyhow::Result<String> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let ended = "the process has ended";
        self.output.pending.lock().as_mut().context(ended)?.insert(number, reply);
        self.to.lock().await.write_all(format!("{number} {command}\n").as_bytes()).await?;
        let answer = timeout(ANSWER_MAX, answer).await;
        let answer = answer.with_context(|| format!("no answer to: {command}"))?;
        let answer = answer.context("the process ended before its answer")?;
        anyhow::ensure!(!answer.starts_with("error:"), "{command}: {answer}");
        Ok(answer)
    }

    /// Sends a command whose answer is success or failure and the time since 1970.
    pub(crate) async fn done(&self, command: &str) -> anyhow::Result<(bool, Duration)> {
        let answer = self.command(command).await?;
        let (done, micros) = answer.split_once(' ').context("the time is missing")?;
        Ok((done.parse()?, Duration::from_micros(micros.parse()?)))
    }

    /// Runs calls, and returns the outcomes of all callers.
    pub(crate) async fn ask(&self, calls: &str) -> anyhow::Result<Vec<Called>> {
        let answer = self.command(&format!("ask {calls}")).await?;
        answer.split(' ').map(Called::read).collect()
    }

    pub(crate) async fn get(&self, key: &str) -> anyhow::Result<Outcome> {
        Outcome::read(&self.command(&format!("get {key}")).await?)
    }

    pub(crate) fn loads(&self, key: &str) -> usize {
        self.output.loads.borrow().get(key).copied().unwrap_or_default()
    }

    /// Waits until the process has started this many loads of a key.
    pub(crate) async fn loading(&self, key: &str, count: usize) -> anyhow::Result<()> {
        let mut loads = self.output.loads.subscribe();
        let begun = |loads: &HashMap<String, usize>| loads.get(key).is_some_and(|n| *n >= count);
        let waited = timeout(ANSWER_MAX, loads.wait_for(begun)).await;
        waited.with_context(|| format!("no load of {key}"))??;
        Ok(())
    }

    pub(crate) async fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.process.signal(signal).await
    }
}

impl Output {
    async fn read_lines(self: Arc<Self>, from: OwnedReadHalf) {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let (number, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match number.parse::<u64>() {
                Ok(number) => {
                    let reply = self.pending.lock().as_mut().and_then(|all| all.remove(&number));
                    // The caller of the command may be dropped.
                    reply.map(|reply| reply.send(rest.to_owned()));
                }
                Err(_) => self.loads.send_modify(|loads| {
                    *loads.entry(rest.to_owned()).or_default() += 1;
                }),
            }
        }
        // Drops the pending commands, so that they fail.
        self.pending.lock().take();
    }
}
