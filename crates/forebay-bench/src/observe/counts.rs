//! Counts of the server after requests of every kind, beside those of its clients and of its origin.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin, Received};
use futures_util::future::try_join_all;

use super::{start, wait_metric};
use crate::environment::Options;
use crate::report::{Table, Verdict};

const REQUESTS: usize = 1_000_000;
const REQUESTS_QUICK: usize = 100_000;

/// Clients, whose requests for a crowd's URL come at the same time.
const CLIENTS: usize = 32;

/// Kinds of requests, by the last two digits of their number.
const KINDS: [(usize, Kind); 11] = [
    (56, Kind::Hit),
    (62, Kind::Known),
    (68, Kind::Head),
    (74, Kind::Range),
    (78, Kind::New),
    (84, Kind::Crowd),
    (88, Kind::Private),
    (92, Kind::Post),
    (95, Kind::Stale),
    (99, Kind::NoSite),
    (100, Kind::Cut),
];

/// One request in this many of its kind is cut, because each is a connection of its own.
const CUT_EVERY: usize = 5;

/// Body that sockets do not take as a whole, so that a client can leave within it.
const LARGE: usize = 12 << 20;

/// Time of the origin for a crowd's response, so that the others of the crowd wait.
const CROWD_TIME: Duration = Duration::from_millis(2);

const END_MAX: Duration = Duration::from_secs(30);

/// One kind of request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Fresh hit.
    Hit,
    /// Hit of a client that has the response: 304.
    Known,
    Head,
    Range,
    /// URL that was not requested before.
    New,
    /// URL that all clients request at the same time.
    Crowd,
    /// Response that may not be shared.
    Private,
    /// Forwarded past the cache.
    Post,
    /// Stale response, which is refreshed in the background.
    Stale,
    /// Request that matches no site.
    NoSite,
    /// Client that leaves within the body.
    Cut,
}

/// Counts of the clients.
#[derive(Default)]
struct Seen {
    /// Responses by status.
    statuses: BTreeMap<u16, u64>,
    bytes: u64,
    no_site: u64,
    cut: u64,
}

impl Seen {
    fn add(&mut self, reply: &Reply) {
        *self.statuses.entry(reply.status).or_default() += 1;
        self.bytes += reply.body_length();
    }

    fn and(mut self, other: Self) -> Self {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.bytes += other.bytes;
        self.no_site += other.no_site;
        self.cut += other.cut;
        self
    }

    fn responses(&self) -> u64 {
        self.statuses.values().sum::<u64>() + self.no_site + self.cut
    }
}

fn page(received: &Received) -> Answer {
    let fresh = Answer::ok("hello, hello").field("Cache-Control", "max-age=86400");
    match received.path().split('/').nth(1).unwrap_or_default() {
        "hit" => fresh.field("ETag", "\"v\""),
        "crowd" => fresh.delay(CROWD_TIME),
        "private" => Answer::ok("mine").field("Cache-Control", "private"),
        "post" => Answer::ok("done"),
        "stale" => Answer::ok("old").field("Cache-Control", STALE),
        "large" => Answer::ok(vec![7; LARGE]).field("Cache-Control", "max-age=86400"),
        _ => fresh,
    }
}

const STALE: &str = "max-age=0, stale-while-revalidate=86400";

/// Returns the kind of a request.
fn kind(number: usize) -> Kind {
    // A factor without a common divisor mixes the kinds.
    let place = number.wrapping_mul(37) % 100;
    KINDS.iter().find(|(end, _)| place < *end).map_or(Kind::Hit, |(_, kind)| *kind)
}

fn request(kind: Kind, number: usize, client: usize) -> Request {
    let few = number % 64;
    let (method, path) = match kind {
        Kind::Hit | Kind::Known | Kind::Range => ("GET", format!("/hit/{few}")),
        Kind::Head => ("HEAD", format!("/hit/{few}")),
        Kind::New | Kind::NoSite => ("GET", format!("/new/{number}/{client}")),
        Kind::Crowd => ("GET", format!("/crowd/{number}")),
        Kind::Private => ("GET", format!("/private/{few}")),
        Kind::Post => ("POST", format!("/post/{few}")),
        Kind::Stale => ("GET", format!("/stale/{few}")),
        Kind::Cut => ("GET", "/large".to_owned()),
    };
    let host = match kind {
        Kind::NoSite => "unknown.example",
        Kind::Cut => "cut.example",
        _ => "main.example",
    };
    let request = Request::new(method, &path).field("Host", host);
    match kind {
        Kind::Known => request.field("If-None-Match", "\"v\""),
        Kind::Range => request.field("Range", "bytes=2-5"),
        Kind::Post => request.body("a=b"),
        _ => request,
    }
}

pub(super) async fn run(options: &Options) -> Result<Table> {
    let requests = options.pick(REQUESTS, REQUESTS_QUICK);
    let origin = Origin::start(page).await?;
    let folder = tempfile::tempdir()?;
    let site = |id: &str| {
        format!("[[site]]\nid = \"{id}\"\nhosts = [\"{id}.example\"]\norigin = \"{}\"\n", origin.url())
    };
    let log = folder.path().join("access.log");
    let config = format!(
        "threads = 2\nmemory = \"512MiB\"\naccess_log = \"json\"\n[access]\nfile = \"{}\"\n{}{}",
        log.display(),
        site("main"),
        site("cut")
    );
    let server = start(folder.path(), "counts", &config, None).await?;
    let mut seen = fill(&server).await?;
    let clients = (0..CLIENTS).map(|client| ask_all(&server, client, requests / CLIENTS));
    seen = try_join_all(clients).await?.into_iter().fold(seen, Seen::and);
    wait_metric(&server, "forebay_flights", 0).await?;
    wait_metric(&server, "forebay_requests_total", seen.responses()).await?;
    table(&seen, &origin, server, folder.path()).await
}

/// Requests what later requests hit.
async fn fill(server: &Launched) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut client = Client::connect(server.address()).await?;
    for number in 0..64 {
        seen.add(&client.ask(&request(Kind::Hit, number, 0)).await?);
    }
    client.ask(&request(Kind::Cut, 0, 0)).await?;
    // Its bytes are not compared.
    seen.cut += 1;
    wait_metric(server, "forebay_flights", 0).await?;
    Ok(seen)
}

/// Sends the requests of one client.
async fn ask_all(server: &Launched, number: usize, requests: usize) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut client = Client::connect(server.address()).await?;
    for request_number in 0..requests {
        let kind = kind(request_number);
        let request = request(kind, request_number, number);
        match kind {
            Kind::Cut if request_number / 100 % CUT_EVERY != number % CUT_EVERY => {}
            Kind::Cut => {
                let mut leaving = Client::connect(server.address()).await?;
                leaving.send(&request).await?;
                let head = leaving.head().await?;
                ensure!(head.status == 200, "{}", head.status_line);
                leaving.reset()?;
                seen.cut += 1;
            }
            Kind::NoSite => {
                client.ask(&request).await?;
                seen.no_site += 1;
            }
            _ => seen.add(&client.ask(&request).await.context("a response")?),
        }
    }
    Ok(seen)
}

async fn table(seen: &Seen, origin: &Origin, mut server: Launched, folder: &Path) -> Result<Table> {
    let title = format!("counts of the server after {} requests", seen.responses());
    let mut table = Table::new(title, &["", "server", "clients and origin"]);
    let mut equal = |name: String, server: u64, other: u64| {
        let cells = vec![name, server.to_string(), other.to_string()];
        table.row(cells, "equal", Verdict::of(server == other));
    };
    for (status, count) in &seen.statuses {
        let selector = format!("forebay_requests_total{{site=\"main\",status=\"{status}\"}}");
        equal(format!("responses with {status}"), server.metric(&selector).await?, *count);
    }
    let of = async |selector: &str| server.metric(selector).await;
    let all = of("forebay_requests_total").await?;
    let cut = of("forebay_requests_total{site=\"cut\"}").await?;
    let bytes = of("forebay_body_bytes_total{site=\"main\"}").await?;
    let hits = of("forebay_requests_total{cache=\"hit\"}").await?;
    let refused = of("forebay_requests_total{cache=\"refused\"}").await?;
    let bypassed = of("forebay_requests_total{cache=\"bypass\"}").await?;
    let loads = of("forebay_loads_total").await?;
    let misses = of("forebay_misses_total").await?;
    let gone = of("forebay_responses_truncated_total{site=\"cut\"}").await?;
    equal("requests that clients cut".to_owned(), cut, seen.cut);
    equal("truncated responses".to_owned(), gone, seen.cut - 1);
    equal("requests without a site".to_owned(), refused, seen.no_site);
    equal("bytes of bodies".to_owned(), bytes, seen.bytes);
    equal("loads and forwarded requests".to_owned(), loads + bypassed, origin.requests());
    equal("misses, hits and refused requests".to_owned(), misses + hits + refused, all);
    for histogram in ["request", "response"] {
        let count = of(&format!("forebay_{histogram}_seconds_count")).await?;
        equal(format!("samples of {histogram}_seconds"), count, all);
    }
    let dropped = of("forebay_log_dropped_total").await?;
    server.signal(Signal::Term).await?;
    server.wait_exit(END_MAX).await?;
    equal("lines of the log, with dropped ones".to_owned(), lines(folder)? + dropped, all);
    Ok(table)
}

/// Counts the lines of the access log and of its predecessors.
fn lines(folder: &Path) -> Result<u64> {
    let mut lines = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("access.log") {
            let content = std::fs::read(&path)?;
            lines += memchr::memchr_iter(b'\n', &content).count() as u64;
        }
    }
    Ok(lines)
}
