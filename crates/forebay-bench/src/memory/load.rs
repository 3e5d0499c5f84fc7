//! Load on the cache.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::join_all;

use crate::http::Client;

/// Clients that churn at once.
const CLIENTS: u64 = 24;

/// Keys that are asked for in turn; what they name together is a hundred times the memory.
const KEYS: u64 = 30_000;

/// One request in this many is for one of a few popular keys.
const POPULAR: u64 = 3;
const POPULAR_KEYS: u64 = 100;

/// The largest object, as a power of two.
const LARGEST_LOG2: u64 = 22;

/// The size of what clients ask for that do not read.
const STILL_SIZE: u64 = 10 << 20;

/// Duration for which other clients are observed while they are idle.
const STILL_FOR: Duration = Duration::from_secs(8);

/// Interval of the small requests of another client.
const PROBE_EVERY: Duration = Duration::from_millis(50);

/// Connections that stand idle after one request each.
const IDLE: usize = 10_000;

/// Number of connections that are opened at the same time.
const OPENED_AT_ONCE: usize = 200;

/// Duration for which idle connections are measured.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// The origin as clients reach it: through the cache.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) cache: SocketAddr,
}

/// Numbers of responses, by kind.
#[derive(Clone, Copy, Default)]
pub(crate) struct Answers {
    pub(crate) whole: u64,
    pub(crate) bytes: u64,
    /// Refused for lack of memory.
    pub(crate) refused: u64,
    /// Broken off, or none.
    pub(crate) broken: u64,
    /// Longest wait for the end of a response.
    pub(crate) slowest: Duration,
}

/// Several clients, many keys, sizes from 1 byte to 4 MiB: as many of 10 KiB as of 1 MiB.
pub(crate) async fn churn(at: Origin, time: Duration) -> anyhow::Result<Answers> {
    let end = Instant::now() + time;
    let clients = (0..CLIENTS).map(|seed| async move {
        let (mut random, mut answers) = (Rng::with_seed(seed), Answers::default());
        while Instant::now() < end {
            answers.add(churn_once(at, &mut random, end).await);
        }
        answers
    });
    Ok(join_all(clients).await.into_iter().fold(Answers::default(), Answers::and))
}

/// One connection, for as long as it lasts.
async fn churn_once(at: Origin, random: &mut Rng, end: Instant) -> Answers {
    let mut answers = Answers::default();
    let Ok(mut client) = Client::connect(at.cache).await else {
        return Answers { broken: 1, ..answers };
    };
    while Instant::now() < end && answers.broken == 0 {
        let popular = random.u64(..POPULAR) == 0;
        let key = random.u64(..if popular { POPULAR_KEYS } else { KEYS });
        answers.add(get(&mut client, &item(key)).await);
    }
    answers
}

/// Each key has a size of its own, always the same.
fn item(key: u64) -> String {
    let mut random = Rng::with_seed(key);
    let most = 1 << random.u64(1..=LARGEST_LOG2);
    let size = random.u64(1..=most);
    format!("/items/churn{key}?size={size}&cc=max-age=600")
}

async fn get(client: &mut Client, path: &str) -> Answers {
    let asked = Instant::now();
    let mut answers = Answers::default();
    match client.get(path).await {
        Ok((head, length)) if head.status() == 200 => (answers.whole, answers.bytes) = (1, length),
        Ok(_) => answers.refused = 1,
        Err(_) => answers.broken = 1,
    }
    answers.slowest = asked.elapsed();
    answers
}

/// Clients that do not read, each of them a body of its own that another client has just read: what
/// stands in memory when they ask must leave it for the next ones.
pub(crate) async fn hold_hits(at: Origin, clients: usize) -> anyhow::Result<Answers> {
    let (mut answers, mut still) = (Answers::default(), Vec::new());
    for number in 0..clients {
        let path = format!("/items/held{number}?size={STILL_SIZE}&cc=max-age=600");
        answers.add(get(&mut Client::connect(at.cache).await?, &path).await);
        let mut client = Client::small(at.cache).await?;
        let response = client.ask(&path).await?;
        still.push((client, response));
    }
    answers.add(probe(at).await?);
    Ok(answers)
}

/// Clients that do not read, all at once, each of them a body of its own that is not stored. What
/// is counted is how others are answered meanwhile.
pub(crate) async fn hold_misses(at: Origin, clients: usize) -> anyhow::Result<Answers> {
    let mut still = Vec::new();
    for number in 0..clients {
        let mut client = Client::small(at.cache).await?;
        let path = format!("/items/still{number}?size={STILL_SIZE}&cc=max-age=600");
        // The head of the last ones may come late.
        still.push(tokio::spawn(async move {
            let response = client.ask(&path).await;
            (client, response)
        }));
    }
    probe(at).await
}

/// Somebody who asks for small bodies, and reads them.
async fn probe(at: Origin) -> anyhow::Result<Answers> {
    let (mut answers, mut random, end) =
        (Answers::default(), Rng::with_seed(99), Instant::now() + STILL_FOR);
    let mut client = Client::connect(at.cache).await?;
    while Instant::now() < end {
        let path = format!("/items/probe{}?size=200000&cc=max-age=600", random.u64(..KEYS));
        answers.add(get(&mut client, &path).await);
        tokio::time::sleep(PROBE_EVERY).await;
    }
    Ok(answers)
}

/// Connections that have been used once and are kept.
pub(crate) async fn idle(at: Origin) -> anyhow::Result<(Answers, usize)> {
    let (mut answers, mut clients) = (Answers::default(), Vec::new());
    while clients.len() < IDLE {
        let opening = (0..OPENED_AT_ONCE).map(|_| async {
            let mut client = Client::connect(at.cache).await?;
            let answers = get(&mut client, "/items/idle?size=1000&cc=max-age=600").await;
            anyhow::Ok((client, answers))
        });
        for opened in join_all(opening).await {
            let (client, one) = opened?;
            clients.push(client);
            answers.add(one);
        }
    }
    tokio::time::sleep(IDLE_FOR).await;
    Ok((answers, clients.len()))
}

impl Answers {
    fn add(&mut self, other: Self) {
        *self = self.and(other);
    }

    fn and(self, other: Self) -> Self {
        Self {
            whole: self.whole + other.whole,
            bytes: self.bytes + other.bytes,
            refused: self.refused + other.refused,
            broken: self.broken + other.broken,
            slowest: self.slowest.max(other.slowest),
        }
    }
}
