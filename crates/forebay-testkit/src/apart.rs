//! An origin whose responses name the client that they were made for, and random histories of
//! requests in which no client may read the name of another.
//!
//! Every page behaves as its path and its version say: any `Vary`, entity tags that are weak or
//! strong and the same for all variants, any `Cache-Control`, codings with and without `Vary`,
//! ranges, and conditional requests. A body repeats one record, which names each request field
//! that the response depends on. A response depends on the fields in its `Vary`; one that may not
//! be shared depends on all of them.

mod client;
mod pages;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fastrand::Rng;

use crate::client::{Client, Reply};
use crate::origin::Origin;
use client::Caller;
use pages::Versions;

/// Number of pages of one history. Few, so that its clients meet.
const PAGES: u64 = 3;

/// Number of steps of one history.
const STEPS: usize = 24;

/// Maximum number of requests that are under way at once.
const CROWD_MAX: u64 = 4;

/// Origin whose responses name the client that they were made for, and runner of random histories
/// of requests against caches in front of it.
#[derive(Debug)]
pub struct Apart {
    origin: Origin,
    versions: Arc<Versions>,
}

/// Caches in front of the origin of an [`Apart`], as a history uses them: addresses, clock and one
/// idle connection to each.
pub struct Caches {
    addresses: Vec<SocketAddr>,
    advance: Box<dyn Fn(Duration) + Send + Sync>,
    /// One idle connection per cache. A second one could stay idle until the cache closes it.
    connections: Vec<Option<Client>>,
}

impl Apart {
    /// Starts the origin on a free loopback port.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn start() -> anyhow::Result<Self> {
        let versions = Arc::new(Versions::default());
        let shown = versions.clone();
        let origin = Origin::start(move |received| pages::answer(received, &shown)).await?;
        Ok(Self { origin, versions })
    }

    /// Returns the origin, in front of which a test starts its caches.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Runs the history that follows from a seed: 24 steps of requests, and of changes of the pages
    /// or the time.
    ///
    /// # Errors
    /// If a response names another client or another content coding than its request, has an
    /// unexpected status, or does not arrive. The error names the seed and the step.
    pub async fn history(&self, seed: u64, caches: &mut Caches) -> anyhow::Result<()> {
        self.steps(seed, caches).await.with_context(|| format!("history of seed {seed}"))
    }

    async fn steps(&self, seed: u64, caches: &mut Caches) -> anyhow::Result<()> {
        let mut random = Rng::with_seed(seed);
        self.versions.restart();
        for step in 0..STEPS {
            match random.u8(..10) {
                0 => (caches.advance)(Duration::from_secs([1, 2, 61][random.usize(..3)])),
                1 => self.versions.change(random.usize(..pages::PAGES_MAX)),
                _ => {
                    let count = if random.u8(..4) == 0 { random.u64(1..=CROWD_MAX) } else { 1 };
                    let page = format!("/{seed}/{}", random.u64(..PAGES));
                    let callers: Vec<Caller> =
                        (0..count).map(|_| Caller::new(&page, &mut random)).collect();
                    caches
                        .ask(&callers, &mut random)
                        .await
                        .with_context(|| format!("step {step}"))?;
                }
            }
        }
        Ok(())
    }
}

impl Caches {
    /// Describes caches that listen at `addresses`. `advance` moves their clocks; it may do
    /// nothing.
    pub fn new(
        addresses: Vec<SocketAddr>,
        advance: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Self {
        let connections = addresses.iter().map(|_| None).collect();
        Self { addresses, advance: Box::new(advance), connections }
    }

    /// All of them at once, each at one of the caches.
    async fn ask(&mut self, callers: &[Caller], random: &mut Rng) -> anyhow::Result<()> {
        let mut asking = tokio::task::JoinSet::new();
        for caller in callers {
            let cache = random.usize(..self.addresses.len());
            let (address, caller) = (self.addresses[cache], caller.clone());
            let idle = self.connections[cache].take();
            asking.spawn(async move {
                let mut client = match idle {
                    Some(client) => client,
                    None => Client::connect(address).await?,
                };
                let reply = client.ask(caller.request()).await?;
                caller.check(&reply).with_context(|| format!("{caller:?} at {cache}"))?;
                anyhow::Ok((cache, keeps(&reply).then_some(client)))
            });
        }
        while let Some(asked) = asking.join_next().await {
            let (cache, client) = asked??;
            self.connections[cache] = client.or_else(|| self.connections[cache].take());
        }
        Ok(())
    }
}

/// Returns true if the connection can be asked again.
fn keeps(reply: &Reply) -> bool {
    reply.ended_cleanly() && reply.field("connection") != Some("close")
}

/// A request field: its name, its letter in a record, and the values that clients send, with the
/// letter of each.
type Field = (&'static str, char, &'static [(&'static str, char)]);

/// The request fields that a response may depend on. Without the field, the letter of its value
/// is `0`.
const FIELDS: [Field; 5] = [
    ("cookie", 'c', &[("id=ann", 'a'), ("id=bob", 'b')]),
    ("accept-encoding", 'e', &[("gzip", 'g'), ("br", 'b'), ("identity", 'i')]),
    ("accept-language", 'l', &[("de", 'd'), ("en", 'e')]),
    ("origin", 'o', &[("https://x.example", 'x'), ("https://y.example", 'y')]),
    ("authorization", 'u', &[("Bearer ann", 'a')]),
];

/// The place of `accept-encoding` in [`FIELDS`], and of `authorization`.
const CODING: usize = 1;
const AUTHORIZATION: usize = 4;

/// Length of one record: two letters and two marks for each field, and for the coding.
const RECORD: usize = 4 * (FIELDS.len() + 1);

/// The letter of the value that a field has in a request.
fn letter(field: usize, value: Option<&str>) -> char {
    let Some(value) = value else { return '0' };
    FIELDS[field].2.iter().find(|(known, _)| *known == value).map_or('?', |(_, letter)| *letter)
}

/// A record: the letters of the fields that a response depends on, `-` for all others, and the
/// letter of its coding.
fn record(letters: [char; FIELDS.len()], coding: char) -> String {
    let fields = FIELDS.iter().zip(letters).map(|((_, name, _), letter)| (*name, letter));
    fields.chain([('z', coding)]).map(|(name, letter)| format!("{name}={letter};")).collect()
}

/// Checks a record against the letters of the client that read it.
fn check_record(record: &[u8], own: [char; FIELDS.len()], coding: char) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(record);
    let read: Vec<char> = text.split(';').filter_map(|pair| pair.chars().nth(2)).collect();
    ensure!(read.len() == FIELDS.len() + 1, "no record: {text}");
    for (place, (_, name, _)) in FIELDS.iter().enumerate() {
        let is_own = read[place] == '-' || read[place] == own[place];
        ensure!(is_own, "`{name}` is of another client: {text}, own {own:?}");
    }
    ensure!(read[FIELDS.len()] == coding, "another coding than {coding}: {text}");
    Ok(())
}

fn one_of<T: Copy>(all: &[T], random: &mut Rng) -> T {
    all[random.usize(..all.len())]
}
