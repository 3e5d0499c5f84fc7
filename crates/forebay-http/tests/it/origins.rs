//! Tests with origins that are unreachable or violate HTTP.

use std::time::Duration;

use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};

use crate::server::TestServer;

fn fresh(body: &'static str) -> Answer {
    Answer::ok(body).field("Cache-Control", "max-age=60, stale-if-error=600")
}

#[tokio::test]
async fn an_unreachable_origin_gives_502_or_a_stale_response() -> anyhow::Result<()> {
    let origin = Origin::always(fresh("old")).await?;
    let server = TestServer::start(origin.address(), &[("expose_errors", "true")]).await?;
    let mut client = Client::connect(server.address).await?;
    client.ask(&Request::get("/a")).await?;
    server.clock.step(Duration::from_secs(61));
    drop(origin);
    let reply = client.ask(&Request::get("/a")).await?;
    assert_eq!(
        (reply.status, reply.field("cache-status"), &*reply.text()),
        (200, Some("forebay; hit; ttl=-1; detail=load-failed"), "old")
    );
    let reply = client.ask(&Request::get("/b")).await?;
    assert_eq!(reply.status, 502);
    assert!(reply.text().contains("cause: "), "{}", reply.text());
    Ok(())
}

#[tokio::test]
async fn more_than_16_interim_responses_are_502() -> anyhow::Result<()> {
    let hinting = |hints: usize| {
        (0..hints).fold(fresh("hello"), |answer, _| answer.interim(103, &[("Link", "</a>")]))
    };
    let origin = Origin::in_turn(vec![hinting(16), hinting(17)]).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    assert_eq!(client.ask(&Request::get("/a")).await?.status, 200);
    let flooded = (0..100_000).fold(Vec::new(), |mut bytes, _| {
        bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n\r\n");
        bytes
    });
    assert_eq!(client.ask(&Request::get("/b")).await?.status, 502);
    drop(origin);
    let flood = Origin::always(Answer::raw(flooded)).await?;
    let server = TestServer::start(flood.address(), &[]).await?;
    assert_eq!(Client::connect(server.address).await?.ask(&Request::get("/b")).await?.status, 502);
    assert_eq!(flood.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn a_head_that_is_too_large_is_a_502() -> anyhow::Result<()> {
    // Including `Cache-Control` and `Content-Length`.
    let fields = |count: usize| (2..count).fold(fresh("a"), |answer, _| answer.field("X-A", "b"));
    let bytes = |kib: usize| fresh("a").field("X-A", "b".repeat(kib << 10));
    let (few, small) = (("origin_fields_max", "8"), ("origin_head_max", "\"16KiB\""));
    let rows = [
        (fields(256), None, 200, ""),
        (fields(257), None, 502, "more than 256 fields"),
        (bytes(250), None, 200, ""),
        (bytes(257), None, 502, "more than 262144 bytes"),
        (bytes(1_024), None, 502, "more than 262144 bytes"),
        (fields(8), Some(few), 200, ""),
        (fields(9), Some(few), 502, "more than 8 fields"),
        (bytes(15), Some(small), 200, ""),
        (bytes(17), Some(small), 502, "more than 16384 bytes"),
    ];
    for (answer, setting, status, cause) in rows {
        let origin = Origin::always(answer).await?;
        let settings: Vec<_> = setting.into_iter().chain([("expose_errors", "true")]).collect();
        let server = TestServer::start(origin.address(), &settings).await?;
        let mut client = Client::connect(server.address).await?;
        let reply = client.ask(&Request::get("/a")).await?;
        assert_eq!(reply.status, status, "{setting:?} {cause}");
        assert!(status == 200 || reply.text().contains(cause), "{cause}: {}", reply.text());
        // An accepted response is also stored and read back.
        let again = client.ask(&Request::get("/a")).await?;
        assert_eq!((again.status, origin.requests()), (status, if status == 200 { 1 } else { 2 }));
    }
    Ok(())
}

/// Each head is measured on its own, whatever was received on the connection before.
#[tokio::test]
async fn the_head_limits_apply_to_each_head_separately() -> anyhow::Result<()> {
    let answer = Answer::ok("a").field("Cache-Control", "no-store");
    let many = (0..300).fold(answer.clone(), |answer, _| answer.field("X-A", "b"));
    let large = answer.field("X-A", "b".repeat(200 << 10));
    let origin = Origin::in_turn(vec![large.clone(), large, many]).await?;
    let server = TestServer::start(origin.address(), &[("expose_errors", "true")]).await?;
    let mut client = Client::connect(server.address).await?;
    for status in [200, 200, 502] {
        let reply = client.ask(&Request::get("/a")).await?;
        assert_eq!(reply.status, status);
        let told = reply.text().contains("more than 256 fields");
        assert_eq!(told, status == 502, "{}", reply.text());
    }
    assert_eq!(origin.counts().connections, 1);
    Ok(())
}

#[tokio::test]
async fn an_origin_connection_is_reused_after_a_complete_response() -> anyhow::Result<()> {
    let origin = Origin::start(|received| match received.path() {
        "/204" => Answer::status(204).field("Cache-Control", "no-store"),
        _ => Answer::ok("hello").field("Cache-Control", "no-store"),
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    for target in ["/a", "/204", "/b", "/c"] {
        client.ask(&Request::get(target)).await?;
        client.ask(&Request::new("HEAD", target)).await?;
        client.ask(&Request::new("POST", target).body("data")).await?;
    }
    // One connection for what may be sent again, and one for what may not.
    assert_eq!((origin.requests(), origin.counts().connections), (12, 2));
    Ok(())
}

/// An idle connection may be closed by the origin at any time; that is nobody's failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_origin_closed_while_idle_is_not_an_error() -> anyhow::Result<()> {
    // The close follows the answer without having been announced.
    let closing = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 1\r\n\r\na";
    let origin = Origin::always(Answer::raw(closing)).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    for round in 0..200 {
        let reply = client.ask(&Request::get("/a")).await?;
        assert_eq!((reply.status, round), (200, round));
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_waits_too_long_for_a_connection_gets_503() -> anyhow::Result<()> {
    // The first answer keeps its place for four seconds, the second request waits for one.
    let slow = Answer::ok(vec![7; 80]).drip(80, Duration::from_millis(50));
    let origin = Origin::always(slow.field("Cache-Control", "no-store")).await?;
    let settings = [("connections_max", "1"), ("fetch_timeout", "\"1s\"")];
    let server = TestServer::start(origin.address(), &settings).await?;
    let mut first = Client::connect(server.address).await?;
    first.send(&Request::get("/a")).await?;
    assert_eq!(first.head().await?.status, 200);
    let reply = Client::connect(server.address).await?.ask(&Request::get("/b")).await?;
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    assert_eq!(reply.field("cache-status"), Some("forebay; fwd=uri-miss; detail=overloaded"));
    assert_eq!(origin.requests(), 1);
    Ok(())
}
