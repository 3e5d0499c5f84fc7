//! Clients that send every kind of request, and note what they received.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::origin::{Answer, Origin, Received};
use tokio::task::JoinSet;

/// Clients at once.
const CLIENTS: u64 = 32;

/// Keys of hits, and of responses that are stale after a second.
const HIT_KEYS: u64 = 64;
const STALE_KEYS: u64 = 256;

/// Requests for one new key: the first one loads, those that come meanwhile wait for it.
const CROWD: u64 = 4;

/// Time of the origin for a new key.
const LOAD: Duration = Duration::from_millis(5);

/// Time of the origin for a client that leaves, and the time after which it leaves.
const SLOW: Duration = Duration::from_millis(200);
const LEAVES_AFTER: Duration = Duration::from_millis(50);

/// Length of a body, of a range of it, and of one that is cut: more than sockets hold.
const BODY: usize = 1_024;
const RANGE: usize = 100;
const LARGE: usize = 8 << 20;

/// Most time for all requests; a slow debug build takes a tenth of it.
const TIME_MAX: Duration = Duration::from_secs(600);

/// Sites, each with its own host, so that clients that leave do not blur the bytes of the others.
pub(super) const SITES: [(&str, &str); 3] =
    [("main", "test.example"), ("cut", "bench"), ("left", "left.example")];

/// Label `site` of requests that match no site.
const NO_SITE: &str = "-";

/// Labels of a response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    pub(super) site: String,
    pub(super) method: String,
    pub(super) status: u16,
    pub(super) cache: String,
}

/// Responses and bytes of bodies, by labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) responses: BTreeMap<Labels, u64>,
    /// By site and cache result.
    pub(super) bytes: BTreeMap<(String, String), u64>,
}

impl Tally {
    pub(super) fn add(&mut self, labels: Labels, bytes: u64) {
        *self.bytes.entry((labels.site.clone(), labels.cache.clone())).or_default() += bytes;
        *self.responses.entry(labels).or_default() += 1;
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (labels, count) in other.responses {
            *self.responses.entry(labels).or_default() += count;
        }
        for (labels, count) in other.bytes {
            *self.bytes.entry(labels).or_default() += count;
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.responses.values().sum()
    }

    /// Number of responses whose labels are selected.
    pub(super) fn count(&self, of: impl Fn(&Labels) -> bool) -> u64 {
        self.responses.iter().filter(|(labels, _)| of(labels)).map(|(_, count)| count).sum()
    }
}

/// Sum of the differences between two maps. The keys that differ are printed.
pub(super) fn difference<K: Ord + std::fmt::Debug>(
    one: &BTreeMap<K, u64>,
    other: &BTreeMap<K, u64>,
) -> u64 {
    let value = |map: &BTreeMap<K, u64>, key: &K| map.get(key).copied().unwrap_or(0);
    let keys: BTreeSet<&K> = one.keys().chain(other.keys()).collect();
    let mut sum = 0;
    for key in keys {
        let (one, other) = (value(one, key), value(other, key));
        if one != other {
            eprintln!("observe: {key:?}: {one} beside {other}");
        }
        sum += one.abs_diff(other);
    }
    sum
}

/// Requests that the origin received.
#[derive(Default)]
pub(super) struct AtOrigin {
    /// GET: loads.
    pub(super) loads: AtomicU64,
    /// Other methods, which are forwarded.
    pub(super) forwarded: AtomicU64,
}

/// Starts the origin.
pub(super) async fn origin(counts: Arc<AtOrigin>) -> Result<Origin> {
    let large = bytes::Bytes::from(vec![b'x'; LARGE]);
    let behaviour = move |asked: &Received| {
        let counter = if asked.method == "GET" { &counts.loads } else { &counts.forwarded };
        counter.fetch_add(1, Ordering::Relaxed);
        let answer = |body: &'static [u8], control: &str| {
            Answer::ok(body).field("Cache-Control", control).field("ETag", "\"1\"")
        };
        let kind = asked.path().split('/').nth(1).unwrap_or_default();
        match kind {
            "stale" => answer(&[b'x'; BODY], "max-age=1, stale-while-revalidate=3600"),
            "pass" | "post" => answer(&[b'x'; BODY], "no-store"),
            "crowd" => answer(&[b'x'; BODY], "max-age=3600").delay(LOAD),
            "left" => answer(&[b'x'; BODY], "max-age=3600").delay(SLOW),
            "cut" => Answer::ok(large.clone()).field("Cache-Control", "max-age=3600"),
            _ => answer(&[b'x'; BODY], "max-age=3600"),
        }
    };
    Ok(Origin::start(behaviour).await?)
}

/// Kind of a request, of a number below 1,000.
fn kind_of(drawn: u64) -> &'static str {
    match drawn {
        0..500 => "hit",
        500..560 => "head",
        560..620 => "range",
        620..680 => "known",
        680..780 => "stale",
        780..880 => "crowd",
        880..940 => "pass",
        940..965 => "post",
        965..975 => "cut",
        975..977 => "left",
        977..988 => "no-host",
        _ => "unknown-host",
    }
}

/// Sends this many requests, and returns what clients received.
pub(super) async fn send(to: SocketAddr, requests: u64) -> Result<Tally> {
    let (next, crowds) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut clients = JoinSet::new();
    for seed in 0..CLIENTS {
        let (next, crowds) = (next.clone(), crowds.clone());
        clients.spawn(async move {
            let mut sender = Sender {
                to,
                client: Client::connect(to).await?,
                random: Rng::with_seed(seed),
                crowds,
                tally: Tally::default(),
            };
            let begun = Instant::now();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    return anyhow::Ok(sender.tally);
                }
                ensure!(begun.elapsed() < TIME_MAX, "{number} of {requests} in {TIME_MAX:?}");
                let kind = kind_of(sender.random.u64(..1_000));
                sender.once(kind, number).await.with_context(|| kind)?;
            }
        });
    }
    let mut tally = Tally::default();
    while let Some(sent) = clients.join_next().await {
        tally.merge(sent??);
    }
    Ok(tally)
}

/// One client.
struct Sender {
    to: SocketAddr,
    client: Client,
    random: Rng,
    /// Number of requests for new keys.
    crowds: Arc<AtomicU64>,
    tally: Tally,
}

impl Sender {
    async fn once(&mut self, kind: &'static str, number: u64) -> Result<()> {
        let hit = format!("/hit/{}", self.random.u64(..HIT_KEYS));
        match kind {
            "hit" => self.ask("GET", Request::get(&hit)).await,
            "head" => self.ask("HEAD", Request::new("HEAD", &hit)).await,
            "range" => {
                let range = format!("bytes=0-{}", RANGE - 1);
                self.ask("GET", Request::get(&hit).field("Range", range)).await
            }
            "known" => self.ask("GET", Request::get(&hit).field("If-None-Match", "\"1\"")).await,
            "stale" => {
                let path = format!("/stale/{}", self.random.u64(..STALE_KEYS));
                self.ask("GET", Request::get(&path)).await
            }
            "crowd" => {
                let crowd = self.crowds.fetch_add(1, Ordering::Relaxed) / CROWD;
                self.ask("GET", Request::get(&format!("/crowd/{crowd}"))).await
            }
            "pass" => self.ask("GET", Request::get(&format!("/pass/{number}"))).await,
            "post" => self.ask("POST", Request::new("POST", "/post").body("data")).await,
            "cut" => self.cut().await,
            "left" => self.leave(number).await,
            "no-host" => self.rejected(NO_METHOD, Request::get("/").without_host()).await,
            _ => self.rejected("GET", Request::get("/").field("Host", "unknown.example")).await,
        }
    }

    /// Sends a request to the site `main`.
    async fn ask(&mut self, method: &str, request: Request) -> Result<()> {
        let reply = self.client.ask(&request).await?;
        ensure!(reply.ended_cleanly(), "the body is not complete");
        self.note(SITES[0].0, method, &reply, cache_result(&reply));
        Ok(())
    }

    /// Sends a request that is rejected before it has a site.
    async fn rejected(&mut self, method: &str, request: Request) -> Result<()> {
        let reply = self.client.ask(&request).await?;
        ensure!(reply.status >= 400 && reply.ended_cleanly(), "status {}", reply.status);
        self.note(NO_SITE, method, &reply, REFUSED);
        if reply.field("connection") == Some("close") {
            self.client = Client::connect(self.to).await?;
        }
        Ok(())
    }

    fn note(&mut self, site: &str, method: &str, reply: &Reply, cache: &str) {
        self.add(site, method, reply.status, cache, reply.body_length());
    }

    fn add(&mut self, site: &str, method: &str, status: u16, cache: &str, bytes: u64) {
        let (site, method, cache) = (site.to_owned(), method.to_owned(), cache.to_owned());
        self.tally.add(Labels { site, method, status, cache }, bytes);
    }

    /// Reads the head of a large response, and closes.
    async fn cut(&mut self) -> Result<()> {
        let mut client = crate::http::Client::small(self.to).await?;
        let response = client.ask("/cut").await?;
        self.add(SITES[1].0, "GET", response.status().as_u16(), "hit", 0);
        Ok(())
    }

    /// Closes before the head of the response.
    async fn leave(&mut self, number: u64) -> Result<()> {
        let mut client = Client::connect(self.to).await?;
        let request = Request::get(&format!("/left/{number}")).field("Host", SITES[2].1);
        client.send(&request).await?;
        tokio::time::sleep(LEAVES_AFTER).await;
        client.reset()?;
        self.add(SITES[2].0, "GET", ABORTED, REFUSED, 0);
        Ok(())
    }
}

/// Stores the responses that are hits, and returns what clients received.
pub(super) async fn warm(to: SocketAddr) -> Result<Tally> {
    let mut tally = Tally::default();
    let add = |tally: &mut Tally, site: usize, bytes| {
        let labels = Labels {
            site: SITES[site].0.to_owned(),
            method: "GET".to_owned(),
            status: 200,
            cache: "miss".to_owned(),
        };
        tally.add(labels, bytes);
    };
    let mut client = Client::connect(to).await?;
    for key in 0..HIT_KEYS {
        let reply = client.ask(&Request::get(&format!("/hit/{key}"))).await?;
        add(&mut tally, 0, reply.body_length());
    }
    let (_, length) = crate::http::Client::connect(to).await?.get("/cut").await?;
    ensure!(length == LARGE as u64, "the large body has {length} bytes");
    add(&mut tally, 1, length);
    Ok(tally)
}

/// Cache result of rejected requests, and of those whose client left.
pub(super) const REFUSED: &str = "refused";

/// Method of a message that is not a valid request.
const NO_METHOD: &str = "-";

/// Status of a request whose client left before the response.
const ABORTED: u16 = 499;

/// Cache result, as the response tells it in `Cache-Status`.
fn cache_result(reply: &Reply) -> &'static str {
    let status = reply.field("cache-status").unwrap_or_default();
    let parameter = |name: &str| {
        let mut all = status.split(';').map(str::trim);
        all.find_map(|one| one.strip_prefix(name)).map(|rest| rest.trim_start_matches('='))
    };
    if parameter("hit").is_some() {
        // There is no lower tier and no failed load: what is not plain is being refreshed.
        return if parameter("detail").is_some() { "stale" } else { "hit" };
    }
    if parameter("collapsed").is_some() {
        return "collapsed";
    }
    match parameter("fwd") {
        Some("method" | "bypass") => "bypass",
        _ if parameter("fwd-status") == Some("304") => "revalidated",
        _ if parameter("stored").is_some() => "miss",
        _ => "pass",
    }
}
