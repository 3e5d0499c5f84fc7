//! Direct hits and passes give the responses of the ordinary path: random requests to two caches, one
//! of which has direct responses disabled.

use std::time::Duration;

use fastrand::Rng;
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::origin::{Answer, Framing, Origin, Received};

use crate::server::TestServer;

/// Requests to each cache.
const REQUESTS: usize = 2_000;

const PAGES: [&str; 29] = [
    "/plain",
    "/tag",
    "/date",
    "/both",
    "/two-tags",
    "/two-dates",
    "/vary",
    "/chunked",
    "/old",
    "/none",
    "/big",
    "/no",
    "/own",
    "/own-tag",
    "/own-empty",
    "/own-chunked",
    "/own-big",
    "/own-none",
    "/own-error",
    "/own-cookie",
    "/own-echo",
    "/own-type.css",
    "/own-any",
    "/own-redirect",
    "/own-targeted",
    "/own-part",
    "/no-date",
    "/unstated",
    "/turns",
];

/// Fields of requests, each with the values that clients send.
const FIELDS: [(&str, &[&str]); 16] = [
    ("Accept-Encoding", &["gzip", "br, gzip", "identity"]),
    ("accept-language", &["de", "DE , en"]),
    ("COOKIE", &["id=1"]),
    ("Cache-Control", &["max-age=0", "only-if-cached", "no-cache", "min-fresh=5", "x"]),
    ("Pragma", &["no-cache"]),
    ("If-None-Match", &["\"t\"", "W/\"t\"", "*", "\"x\", \"t\"", "t"]),
    ("If-Modified-Since", &["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1993 08:49:37 GMT", "x"]),
    ("Range", &["bytes=0-1", "bytes=9999-"]),
    ("Connection", &["keep-alive", "Keep-Alive", "accept-language", "keep-alive, x-a"]),
    ("X-A", &["1"]),
    ("x-a", &["2"]),
    ("X_Real_IP", &["192.0.2.1"]),
    ("X-Forwarded-For", &["192.0.2.1"]),
    ("TE", &["trailers"]),
    ("Via", &["1.0 other", "1.0 other, 1.1 another"]),
    ("Authorization", &["Basic eA=="]),
];

/// Fields of a request to the origin whose values differ between two caches.
const OF_ONE_CACHE: [&str; 4] = ["host", "x-forwarded-host", "x-request-id", "cdn-loop"];

fn answer(received: &Received) -> Answer {
    let ok = |body: &[u8]| {
        let date = "Thu, 01 Jan 2026 00:00:00 GMT";
        Answer::ok(body.to_vec()).field("Date", date).field("Cache-Control", "max-age=60")
    };
    let own = |body: &[u8]| {
        let date = "Thu, 01 Jan 2026 00:00:00 GMT";
        Answer::ok(body.to_vec()).field("Date", date).field("Cache-Control", "private, no-store")
    };
    match received.path() {
        "/own" => own(b"own").field("Server-Timing", "db;dur=1").field("Alt-Svc", "clear"),
        "/own-tag" => own(b"tagged").field("ETag", "\"t\"").field("Connection", "keep-alive"),
        "/own-empty" => own(b""),
        "/own-echo" => {
            let lines = received.fields.iter().filter(|(name, _)| !OF_ONE_CACHE.contains(name));
            let mut lines: Vec<_> = lines.map(|(name, value)| format!("{name}: {value}")).collect();
            lines.sort();
            own(lines.join(", ").as_bytes())
        }
        "/own-type.css" => ok(b"<p>").field("Content-Type", "Text/HTML; charset=utf-8"),
        "/own-any" => ok(b"any").field("Vary", "Accept, *"),
        "/own-redirect" => Answer::status(302).body("there").field("Location", "/plain"),
        "/own-targeted" => ok(b"targeted").field("CDN-Cache-Control", "no-store"),
        "/own-part" => Answer::status(206).body("part").field("Cache-Control", "max-age=60"),
        "/no-date" => Answer::ok("own").field("Cache-Control", "private"),
        // May be stored unless the request has a cookie or credentials.
        "/unstated" => Answer::ok("page")
            .field("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
            .field("Last-Modified", "Wed, 31 Dec 2025 23:58:20 GMT"),
        "/own-chunked" => own(b"in chunks").framing(Framing::Chunked),
        "/own-big" => own(&vec![b'b'; 40_000]),
        "/own-none" => Answer::status(404).body("none").field("Cache-Control", "no-store"),
        "/own-error" => Answer::status(503).body("error").field("Cache-Control", "no-store"),
        "/own-cookie" => own(b"cookie").field("Set-Cookie", "a=1").field("Set-Cookie", "b=2"),
        // One response may be stored, the other may not.
        "/turns" if received.fields.first("x-a").is_some() => ok(b"for all"),
        "/turns" => own(b"for one"),
        "/tag" => ok(b"tagged").field("ETag", "\"t\"").field("Access-Control-Allow-Origin", "*"),
        "/both" => ok(b"both")
            .field("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
            .field("ETag", "\"t\""),
        "/two-tags" => ok(b"tags").field("ETag", "\"t\"").field("ETag", "\"u\""),
        "/two-dates" => ok(b"dates").field("Date", "Thu, 01 Jan 2026 00:00:01 GMT"),
        "/date" => ok(b"dated").field("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        "/vary" => {
            let language = received.fields.first("accept-language").unwrap_or("-").to_owned();
            ok(language.as_bytes())
                .field("Vary", "Accept-Language, Cookie")
                .field("ETag", "W/\"t\"")
        }
        "/chunked" => ok(b"in chunks").framing(Framing::Chunked),
        "/old" => ok(b"old").field("Age", "7").field("Cache-Status", "upstream; hit"),
        "/none" => Answer::status(404).body("none").field("Cache-Control", "max-age=60"),
        "/big" => ok(&vec![b'b'; 40_000]),
        "/no" => Answer::status(204).field("Cache-Control", "max-age=60"),
        _ => ok(b"plain"),
    }
}

fn request(rng: &mut Rng) -> Request {
    let method = if rng.u8(..5) == 0 { "HEAD" } else { "GET" };
    let mut request = Request::new(method, PAGES[rng.usize(..PAGES.len())]);
    for (name, values) in FIELDS {
        if rng.u8(..6) == 0 {
            request = request.field(name, values[rng.usize(..values.len())]);
        }
    }
    request
}

/// Status, sorted fields and body of a response.
fn contents(reply: &Reply) -> (u16, Vec<String>, Vec<u8>) {
    let head = String::from_utf8_lossy(&reply.raw_head).into_owned();
    // The date of an error page is the time of the machine, and ids differ between two caches.
    let line = |line: &str| if line.starts_with("date: ") { "date" } else { line }.to_owned();
    let mut fields: Vec<String> = head.lines().skip(1).map(line).collect();
    fields.sort();
    let body = reply.body().split(|byte| *byte == b'\n');
    let body: Vec<_> = body.filter(|line| !line.starts_with(b"request: ")).collect();
    (reply.status, fields, body.concat())
}

/// Counters of requests, loads and lookups.
fn counted(server: &TestServer) -> Vec<String> {
    let names = [
        "forebay_requests_total",
        "forebay_misses_total",
        "forebay_loads_total",
        "forebay_body_bytes_total",
        "forebay_tier_lookups_total",
        "forebay_origin_requests_total",
    ];
    let metrics = server.metrics();
    let is_one = |line: &&str| names.iter().any(|name| line.starts_with(name));
    let mut counted: Vec<_> = metrics.lines().filter(is_one).map(str::to_owned).collect();
    counted.sort();
    counted
}

#[tokio::test]
async fn direct_responses_are_those_of_the_ordinary_path() -> anyhow::Result<()> {
    let origin = Origin::start(answer).await?;
    let direct = TestServer::start(origin.address(), &[]).await?;
    let ordinary = TestServer::start(origin.address(), &[("direct_hits", "false")]).await?;
    let mut clients =
        [Client::connect(direct.address).await?, Client::connect(ordinary.address).await?];
    let mut rng = Rng::with_seed(7);
    for number in 0..REQUESTS {
        let request = request(&mut rng);
        let mut replies = Vec::new();
        for client in &mut clients {
            replies.push(contents(&client.ask(&request).await?));
        }
        assert_eq!(replies[0], replies[1], "{number}: {request:?}");
        if rng.u8(..20) == 0 {
            let step = Duration::from_secs(rng.u64(1..40));
            direct.clock.step(step);
            ordinary.clock.step(step);
        }
    }
    assert_eq!(counted(&direct), counted(&ordinary));
    Ok(())
}
