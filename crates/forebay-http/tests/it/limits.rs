//! Tests of every limit on clients: the status, the closed connection and the counter.

use std::collections::BTreeSet;

use forebay_http::request_guard::{BODY_MAX, FIELDS_MAX, GuardCounters, HEAD_MAX, TARGET_MAX};
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::origin::{Answer, Origin};

use crate::server::TestServer;

const POST: &str = "POST /x HTTP/1.1\r\nHost: a\r\n";
const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n";
const CHUNKED: &str = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// More bytes than the sockets between server and client buffer.
const LARGE: usize = 12 << 20;

/// Limits on time and number, which a single message cannot exceed; each has its own test.
const OF_TIME_AND_NUMBER: [&str; 12] = [
    "h2-control",
    "h2-resets",
    "address-connections",
    "proxy-header",
    "first-byte",
    "slow-head",
    "idle",
    "slow-body",
    "slow-reader",
    "connections",
    "idle-tunnel",
    "interims",
];

/// Returns limit, expected status and the bytes of a message that exceeds the limit.
fn rows() -> Vec<(&'static str, u16, String)> {
    let of = |start: &str, rest: &str| format!("{start}{rest}");
    let fields = "X:\r\n".repeat(FIELDS_MAX);
    let target = "a".repeat(TARGET_MAX);
    let value = "a".repeat(HEAD_MAX);
    let large = format!("Content-Length: {}\r\n\r\n", BODY_MAX + 1);
    let both = "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extension = ";".repeat(9_000);
    vec![
        ("request-line", 400, "GET /x\r\n\r\n".into()),
        ("request-line", 400, "GET x/y HTTP/1.1\r\nHost: a\r\n\r\n".into()),
        ("line-ending", 400, of(GET, "X: y\n\r\n")),
        ("nul", 400, of(GET, "X: \0\r\n\r\n")),
        ("fold", 400, of(GET, "X: y\r\n z\r\n\r\n")),
        ("field-name", 400, of(GET, "X : y\r\n\r\n")),
        ("field-value", 400, of(GET, "X: \u{1}\r\n\r\n")),
        ("host", 400, "GET /x HTTP/1.1\r\n\r\n".into()),
        ("content-length", 400, of(POST, "Content-Length: 1,1\r\n\r\n")),
        ("transfer-encoding", 400, of(POST, "Transfer-Encoding: gzip\r\n\r\n")),
        ("both-framings", 400, of(POST, both)),
        ("chunk", 400, of(CHUNKED, "x\r\n\r\n")),
        ("trailer", 400, of(CHUNKED, "0\r\nHost: b\r\n\r\n")),
        ("body-overhead", 400, format!("{CHUNKED}0{extension}\r\n\r\n")),
        ("head-too-large", 431, format!("{GET}X: {value}\r\n\r\n")),
        ("too-many-fields", 431, format!("{GET}{fields}\r\n")),
        ("target-too-long", 414, format!("GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n")),
        ("body-too-large", 413, format!("{POST}{large}")),
        ("body-too-large", 413, of(CHUNKED, "1000000001\r\n")),
    ]
}

fn line(limit: &str, count: u64) -> String {
    format!("forebay_refused_total{{limit=\"{limit}\"}} {count}")
}

/// Returns the counters of all limits, as lines of the metrics.
fn shown(server: &TestServer) -> Vec<String> {
    let metrics = server.metrics();
    let lines = metrics.lines().filter(|line| line.starts_with("forebay_refused_total{"));
    lines.map(str::to_owned).collect()
}

fn assert_only(server: &TestServer, limit: &str) {
    let expected: BTreeSet<_> =
        server.counters.limits().map(|(label, _)| line(label, u64::from(label == limit))).collect();
    assert_eq!(shown(server).into_iter().collect::<BTreeSet<_>>(), expected);
}

/// Checks that a rejection has the fields of an error response, and a request id for the log.
fn assert_ours(reply: &Reply, detail: &str) {
    assert_eq!(reply.field("connection"), Some("close"), "{detail}");
    assert_eq!(reply.field("cache-control"), Some("no-store"), "{detail}");
    let status = reply.field("cache-status").unwrap_or_default();
    assert!(status.starts_with("forebay; fwd="), "{status}");
    assert!(status.ends_with(&format!("; detail={detail}")), "{status}");
    let text = reply.text().into_owned();
    assert!(text.contains("\nrequest: "), "{text}");
}

#[tokio::test]
async fn each_limit_of_a_message_has_a_status_and_a_counter() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("reached")).await?;
    for (limit, status, bytes) in rows() {
        for behind in ["", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let server = TestServer::start(origin.address(), &[]).await?;
            let mut client = Client::connect(server.address).await?;
            client.send_raw(format!("{bytes}{behind}").as_bytes()).await?;
            let reply = client.reply().await?;
            // A head in an earlier read was passed on before its body became invalid.
            let seen = limit == "body-overhead";
            assert_eq!(reply.status, status, "{limit}");
            assert_ours(&reply, limit);
            let closed = client.read_to_close().await?;
            assert_eq!((&closed.bytes[..], closed.broke), (&b""[..], None), "{limit}");
            assert_only(&server, limit);
            let answered = "forebay_requests_total{site=\"-\",method=\"-\",status=\"";
            let counted = server.metrics().lines().any(|line| line.starts_with(answered));
            assert_eq!(counted, !seen, "{limit}");
        }
    }
    assert_eq!(origin.requests_to("/smuggled"), 0);
    assert!(origin.received().iter().all(|received| !received.complete));
    Ok(())
}

#[tokio::test]
async fn every_limit_has_a_test() {
    let counters = GuardCounters::default();
    let known: BTreeSet<_> = counters.limits().map(|(label, _)| label).collect();
    let mut tested: BTreeSet<_> = rows().into_iter().map(|(limit, ..)| limit).collect();
    tested.extend(OF_TIME_AND_NUMBER);
    assert_eq!(tested, known);
}

#[tokio::test]
async fn counters_exist_before_the_first_increment() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    assert_only(&server, "none of them");
    assert_eq!(shown(&server).len(), server.counters.limits().count());
    Ok(())
}

#[tokio::test]
async fn a_rejected_head_request_gets_no_body() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    client.send_raw(b"HEAD /x HTTP/1.1\r\n\r\n").await?;
    let reply = client.reply().await?;
    assert_eq!((reply.status, reply.body_length()), (400, 0));
    assert_eq!(&client.read_to_close().await?.bytes[..], b"");
    Ok(())
}

#[tokio::test]
async fn rejections_have_unique_request_ids() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        for bytes in [&b"GET /x HTTP/1.1\r\n\r\n"[..], b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"]
        {
            let mut client = Client::connect(server.address).await?;
            client.send_raw(bytes).await?;
            let text = client.reply().await?.text().into_owned();
            ids.insert(text.lines().last().unwrap_or_default().to_owned());
        }
    }
    assert_eq!(ids.len(), 6, "{ids:?}");
    Ok(())
}

#[tokio::test]
async fn a_head_that_does_not_end_in_time_gets_408() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello")).await?;
    let settings = [("head_timeout", "\"100ms\""), ("idle_timeout", "\"10s\"")];
    for start in ["G", "GET /x HTTP/1.1\r\nHost: a\r\nX: y"] {
        let server = TestServer::start(origin.address(), &settings).await?;
        let mut client = Client::connect(server.address).await?;
        client.send_raw(start.as_bytes()).await?;
        let reply = client.reply().await?;
        assert_eq!(reply.status, 408);
        assert_ours(&reply, "client-too-slow");
        assert_eq!(&client.read_to_close().await?.bytes[..], b"");
        assert_only(&server, "slow-head");
    }
    assert_eq!(origin.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn a_body_that_does_not_arrive_gets_408() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello")).await?;
    let server = TestServer::start(origin.address(), &[("body_window", "\"100ms\"")]).await?;
    let mut client = Client::connect(server.address).await?;
    client.send_raw(format!("{POST}Content-Length: 9\r\n\r\nabc").as_bytes()).await?;
    let reply = client.reply().await?;
    assert_eq!(reply.status, 408);
    assert_ours(&reply, "client-too-slow");
    assert_eq!(&client.read_to_close().await?.bytes[..], b"");
    assert_only(&server, "slow-body");
    assert!(origin.received().iter().all(|received| !received.complete));
    Ok(())
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_response() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello")).await?;
    let server = TestServer::start(origin.address(), &[("idle_timeout", "\"100ms\"")]).await?;
    let mut client = Client::connect(server.address).await?;
    assert_eq!(client.ask(&Request::get("/a")).await?.status, 200);
    assert_eq!(&client.read_to_close().await?.bytes[..], b"");
    assert_only(&server, "idle");
    Ok(())
}

/// The defaults are 30 s until the first byte and 60 s between requests. The tests in
/// `request_guard/stream/tests/client_timeouts.rs` check them with paused time.
#[tokio::test]
async fn a_connection_without_a_first_byte_is_closed_sooner_than_an_idle_one() -> anyhow::Result<()>
{
    let origin = Origin::always(Answer::ok("hello")).await?;
    let server =
        TestServer::start(origin.address(), &[("first_byte_timeout", "\"100ms\"")]).await?;
    let mut used = Client::connect(server.address).await?;
    assert_eq!(used.ask(&Request::get("/a")).await?.status, 200);
    let mut silent = Client::connect(server.address).await?;
    assert_eq!(&silent.read_to_close().await?.bytes[..], b"");
    assert_only(&server, "first-byte");
    assert_eq!(used.ask(&Request::get("/a")).await?.status, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_disconnected_and_frees_its_origin_connection()
-> anyhow::Result<()> {
    // An unshared response, and one from memory.
    for cache in ["no-store", "max-age=60"] {
        let answer = Answer::ok(vec![7; LARGE]).field("Cache-Control", cache);
        let origin = Origin::always(answer).await?;
        let settings = [("write_window", "\"200ms\""), ("connections_max", "1")];
        let server = TestServer::start(origin.address(), &settings).await?;
        let mut lazy = Client::connect(server.address).await?;
        lazy.send(&Request::get("/a")).await?;
        let mut reply = lazy.head().await?;
        server.wait_metric(&line("slow-reader", 1)).await?;
        // The only connection to the origin is free again.
        let mut eager = Client::connect(server.address).await?;
        assert!(eager.ask(&Request::get("/a")).await?.ended_cleanly());
        lazy.read_body(&mut reply).await?;
        assert!(!reply.ended_cleanly(), "cut off, and never whole");
        assert_only(&server, "slow-reader");
    }
    Ok(())
}

#[tokio::test]
async fn connections_above_the_maximum_get_503() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello")).await?;
    let server = TestServer::start(origin.address(), &[("clients_max", "1")]).await?;
    let mut first = Client::connect(server.address).await?;
    assert_eq!(first.ask(&Request::get("/a")).await?.status, 200);
    let mut late = Client::connect(server.address).await?;
    let reply = late.ask(&Request::get("/a")).await?;
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    assert_ours(&reply, "connections");
    assert_eq!(&late.read_to_close().await?.bytes[..], b"");
    assert_only(&server, "connections");
    assert_eq!(origin.requests(), 1);
    assert_eq!(first.ask(&Request::get("/a")).await?.status, 200);
    Ok(())
}
