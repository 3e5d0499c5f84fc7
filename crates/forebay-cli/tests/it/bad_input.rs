//! Malformed and hostile input of clients and origins.

use forebay_testkit::client::Client;
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Cut, Framing, Origin};

use crate::world::{ConfigFile, fresh_origin, get, is_hit, metric, nowhere, serve, wait_requests};

/// Requests that are malformed or ambiguous.
const MALFORMED: [(&str, &str); 25] = [
    ("no request", "nonsense\r\n\r\n"),
    ("no host", "GET / HTTP/1.1\r\n\r\n"),
    ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    ("a host that is none", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ("an empty target", "GET  HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("another version", "GET / HTTP/9.9\r\nHost: a\r\n\r\n"),
    ("a version in small letters", "GET / http/1.1\r\nHost: a\r\n\r\n"),
    ("bare line feeds", "GET / HTTP/1.1\nHost: a\n\n"),
    ("a bare carriage return", "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"),
    ("a zero byte", "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n"),
    ("a folded line", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
    ("space before the colon", "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n"),
    ("no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"),
    ("an empty name", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"),
    (
        "two lengths",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    ),
    ("the same length twice", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\na"),
    ("a signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na"),
    (
        "a length beyond all numbers",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\na",
    ),
    (
        "length and chunks",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("an unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"),
    (
        "chunked twice",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunks in HTTP/1.0",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a chunk without a length",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
    ),
];

/// Number of connections that carry random bytes.
const NOISY: usize = 200;

/// Maximum number of random bytes on one connection.
const NOISE_MAX: u64 = 700;

/// Sends bytes and returns everything received until the connection ends.
async fn send(cache: &Launched, bytes: &[u8]) -> anyhow::Result<String> {
    let mut client = Client::connect(cache.address()).await?;
    client.send_raw(bytes).await?;
    let closed = client.read_to_close().await?;
    Ok(String::from_utf8_lossy(&closed.bytes).into_owned())
}

fn no_panic(cache: &Launched) {
    assert!(!cache.stderr().iter().any(|line| line.contains("panicked")), "{:#?}", cache.stderr());
}

#[tokio::test]
async fn malformed_requests_are_refused_and_end_the_connection() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    for (what, bytes) in MALFORMED {
        // Bytes after a malformed request must never be parsed as a request.
        let smuggled = format!("{bytes}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = send(&cache, smuggled.as_bytes()).await?;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
    }
    assert!(origin.received().iter().all(|received| !received.complete));
    assert_eq!(origin.requests_to("/smuggled"), 0);
    assert_eq!(get(&cache, "/").await?.status, 200);
    assert!(metric(&cache, "forebay_refused_total", "").await? >= 20);
    no_panic(&cache);
    Ok(())
}

#[tokio::test]
async fn a_request_above_a_size_limit_is_refused() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(17 << 10));
    assert!(send(&cache, target.as_bytes()).await?.starts_with("HTTP/1.1 414 "));
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(128 << 10));
    assert!(send(&cache, head.as_bytes()).await?.starts_with("HTTP/1.1 431 "));
    let fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: a\r\n".repeat(200));
    assert!(send(&cache, fields.as_bytes()).await?.starts_with("HTTP/1.1 431 "));
    assert_eq!((origin.requests(), get(&cache, "/").await?.status), (0, 200));
    Ok(())
}

/// Pseudo-random generator with a fixed seed.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.next() % NOISE_MAX;
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

#[tokio::test]
async fn random_bytes_do_not_disturb_other_clients() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let beginnings: [&[u8]; 5] = [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET http://",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for number in 0..NOISY {
        let mut bytes = beginnings[number % beginnings.len()].to_vec();
        bytes.extend(noise.bytes());
        let mut client = Client::connect(cache.address()).await?;
        client.send_raw(&bytes).await?;
        // The cache may have closed the connection already.
        let _ = client.finish().await;
        client.read_to_close().await?;
    }
    assert_eq!(get(&cache, "/after").await?.text(), "hello");
    assert!(is_hit(&get(&cache, "/after").await?));
    no_panic(&cache);
    Ok(())
}

#[tokio::test]
async fn a_malformed_origin_response_gives_502() -> anyhow::Result<()> {
    let answers = [
        Answer::raw("nonsense\r\n\r\n"),
        Answer::raw("HTTP/1.1 999999 What\r\n\r\n"),
        Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        Answer::raw("HTTP/1.1 200 OK\r\nX"),
        Answer::raw(vec![0_u8; 300]),
        Answer::raw(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(1 << 20))),
        Answer::close(),
        Answer::reset(),
    ];
    for answer in answers {
        let shown = format!("{answer:?}").chars().take(120).collect::<String>();
        let origin = Origin::always(answer).await?;
        let cache = serve(&origin).await?;
        let reply = get(&cache, "/").await?;
        assert_eq!(reply.status, 502, "{shown}");
        assert!(reply.text().contains("request: "), "{}", reply.text());
        assert!(reply.ended_cleanly() && reply.field("cache-control") == Some("no-store"));
        no_panic(&cache);
    }
    Ok(())
}

#[tokio::test]
async fn an_unreachable_origin_gives_502_and_a_slow_one_504() -> anyhow::Result<()> {
    let refusing = ConfigFile::serving(&format!("http://{}", nowhere()?), "", "")?;
    let cache = refusing.serve().await?;
    assert_eq!(get(&cache, "/").await?.status, 502);
    wait_requests(&cache, "status=\"502\"", 1).await?;

    let origin = Origin::always(Answer::hang()).await?;
    let file = ConfigFile::serving(&origin.url(), "", "fetch_timeout = \"100ms\"")?;
    let cache = file.serve().await?;
    assert_eq!(get(&cache, "/").await?.status, 504);
    wait_requests(&cache, "status=\"504\"", 1).await?;
    origin.wait_for("the fetch to be given up", |counts| counts.abandoned == 1).await?;
    Ok(())
}

#[tokio::test]
async fn a_truncated_body_is_never_completed() -> anyhow::Result<()> {
    for framing in [Framing::Length, Framing::Chunked] {
        for cut in [Cut::Close, Cut::Reset] {
            let answer = Answer::ok("never whole").framing(framing).truncate(5, cut);
            let answer = answer.field("Cache-Control", "max-age=60");
            let origin = Origin::always(answer).await?;
            let cache = serve(&origin).await?;
            for fetches in 1..=2 {
                let reply = get(&cache, "/").await;
                // If the origin breaks off early, the response head may not have been sent.
                assert!(reply.is_ok_and(|reply| reply.status == 502 || !reply.ended_cleanly()));
                assert_eq!(origin.requests(), fetches, "{framing:?} {cut:?}");
            }
        }
    }
    Ok(())
}
