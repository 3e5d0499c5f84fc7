//! Several [peers](crate::peer), each in a process of its own, as their parent sees them.

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

/// No answer takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Processes that share one Redis, and hear each other.
pub(crate) struct Crew(Vec<Hand>);

/// One of them.
pub(crate) struct Hand {
    process: Launched,
    to: AsyncMutex<OwnedWriteHalf>,
    numbered: AtomicU64,
    heard: Arc<Heard>,
}

/// What it has said.
#[derive(Default)]
struct Heard {
    /// Who waits for an answer; nobody any more once it is gone.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<String>>>>,
    /// How many loads it has begun, by key.
    loads: watch::Sender<HashMap<String, usize>>,
}

/// What came of a call, and when, since the machine counts.
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
        let (front, ended) = word.rsplit_once('@').context("it says not when it ended")?;
        let (outcome, began) = front.rsplit_once('@').context("it says not when it began")?;
        let [began, ended] = [began, ended].map(|micros| micros.parse().map(Duration::from_micros));
        Ok(Self { outcome: Outcome::read(outcome)?, began: began?, ended: ended? })
    }
}

impl Crew {
    /// As many processes, started as `launch` says.
    pub(crate) async fn start(
        count: usize,
        launch: impl Fn() -> anyhow::Result<Launch>,
    ) -> anyhow::Result<Self> {
        let starting = (0..count).map(|_| async { Hand::start(launch()?).await });
        let crew = Self(try_join_all(starting).await?);
        for hand in &crew.0 {
            hand.tell("hears").await?;
        }
        Ok(crew)
    }

    pub(crate) fn hands(&self) -> &[Hand] {
        &self.0
    }

    /// Asks all of them at once, and gathers what all callers were told.
    pub(crate) async fn ask(&self, what: &str) -> anyhow::Result<Vec<Called>> {
        let asked = try_join_all(self.0.iter().map(|hand| hand.ask(what))).await?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// What all of them have noted since they were asked last.
    pub(crate) async fn told(&self) -> anyhow::Result<Notes> {
        let mut all = Notes::default();
        for hand in &self.0 {
            let Notes { loads, fills } = Notes::read(&hand.tell("told").await?)?;
            all.loads.extend(loads);
            all.fills.extend(fills);
        }
        Ok(all)
    }

    /// How many loads of a key all of them have begun.
    pub(crate) fn loads(&self, key: &str) -> usize {
        self.0.iter().map(|hand| hand.loads(key)).sum()
    }
}

impl Hand {
    async fn start(launch: Launch) -> anyhow::Result<Self> {
        let process = launch.start().await?;
        let stream = TcpStream::connect(process.address()).await?;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        let heard = Arc::new(Heard::default());
        *heard.waiting.lock() = Some(HashMap::new());
        tokio::spawn(heard.clone().listen(from));
        Ok(Self { process, to: AsyncMutex::new(to), numbered: AtomicU64::new(0), heard })
    }

    /// Tells it to do something, and waits for its answer.
    pub(crate) async fn tell(&self, what: &str) -> anyhow::Result<String> {
        let number = self.numbered.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        self.heard.waiting.lock().as_mut().context("it has ended")?.insert(number, tell);
        self.to.lock().await.write_all(format!("{number} {what}\n").as_bytes()).await?;
        let told = timeout(PATIENCE, told).await.with_context(|| format!("no answer: {what}"))?;
        let told = told.context("it has ended before it answered")?;
        anyhow::ensure!(!told.starts_with("error:"), "{what}: {told}");
        Ok(told)
    }

    /// The same, where the answer is whether it was done and when, since the machine counts.
    pub(crate) async fn done(&self, what: &str) -> anyhow::Result<(bool, Duration)> {
        let told = self.tell(what).await?;
        let (done, micros) = told.split_once(' ').context("it says not when")?;
        Ok((done.parse()?, Duration::from_micros(micros.parse()?)))
    }

    /// What its callers are told.
    pub(crate) async fn ask(&self, what: &str) -> anyhow::Result<Vec<Called>> {
        let told = self.tell(&format!("ask {what}")).await?;
        told.split(' ').map(Called::read).collect()
    }

    pub(crate) async fn get(&self, key: &str) -> anyhow::Result<Outcome> {
        Outcome::read(&self.tell(&format!("get {key}")).await?)
    }

    pub(crate) fn loads(&self, key: &str) -> usize {
        self.heard.loads.borrow().get(key).copied().unwrap_or_default()
    }

    /// Until it has begun so many loads of a key.
    pub(crate) async fn loading(&self, key: &str, count: usize) -> anyhow::Result<()> {
        let mut loads = self.heard.loads.subscribe();
        let begun = |loads: &HashMap<String, usize>| loads.get(key).is_some_and(|n| *n >= count);
        let waited = timeout(PATIENCE, loads.wait_for(begun)).await;
        waited.with_context(|| format!("no load of {key}"))??;
        Ok(())
    }

    pub(crate) async fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.process.signal(signal).await
    }
}

impl Heard {
    async fn listen(self: Arc<Self>, from: OwnedReadHalf) {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let (front, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match front.parse::<u64>() {
                Ok(number) => {
                    let waiting = self.waiting.lock().as_mut().and_then(|all| all.remove(&number));
                    // Whoever asked may have gone away.
                    waiting.map(|tell| tell.send(rest.to_owned()));
                }
                Err(_) => self.loads.send_modify(|loads| {
                    *loads.entry(rest.to_owned()).or_default() += 1;
                }),
            }
        }
        // Nobody is answered any more.
        self.waiting.lock().take();
    }
}
