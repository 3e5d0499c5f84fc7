//! Tests with origins that are unreachable or violate HTTP.

use std::net::Ipv4Addr;
use std::time::Duration;

use forebay_http::{EndpointAddress, HostPattern, SiteSettings};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};
use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{TestServer, site};

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
        let is_reported = reply.text().contains("more than 256 fields");
        assert_eq!(is_reported, status == 502, "{}", reply.text());
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
    assert_eq!((origin.requests(), origin.counts().connections), (12, 1));
    let labels = format!("site=\"default\",endpoint=\"{}\"", origin.address());
    server
        .wait_metric(&format!("forebay_origin_connects_total{{{labels},result=\"ok\"}} 1"))
        .await?;
    server.wait_metric(&format!("forebay_origin_connections{{{labels},state=\"idle\"}} 1")).await?;
    server.wait_metric(&format!("forebay_origin_connections{{{labels},state=\"used\"}} 0")).await
}

/// An origin may close an idle connection at any time; that is not a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_origin_closed_while_idle_is_not_an_error() -> anyhow::Result<()> {
    // The origin closes after the response without announcing it.
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
    // The first response uses its connection for four seconds; the second request waits for a
    // connection.
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

/// A request that comes back to its site would wait for itself.
#[tokio::test]
async fn a_site_that_is_its_own_origin_answers_508_at_once() -> anyhow::Result<()> {
    let unused = Origin::always(fresh("never")).await?;
    let server = TestServer::start(unused.address(), &[]).await?;
    server.service.reload(&[site(server.address)?]);
    let mut client = Client::connect(server.address).await?;
    for request in [Request::get("/a"), Request::new("POST", "/b").body("data")] {
        let reply = tokio::time::timeout(Duration::from_secs(10), client.ask(&request)).await??;
        let fields = reply.field("cache-status").unwrap_or_default().to_owned();
        assert_eq!((reply.status, fields.contains("detail=loop")), (508, true), "{fields}");
    }
    assert_eq!(unused.requests(), 0);
    Ok(())
}

/// A site may forward to another one of this process.
#[tokio::test]
async fn a_chain_of_two_sites_is_not_a_loop() -> anyhow::Result<()> {
    let origin = Origin::always(fresh("hello")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let named = |id: &str, host: &str, origin| {
        let hosts = vec![HostPattern::Exact(host.into())];
        anyhow::Ok(SiteSettings { id: id.into(), hosts, ..site(origin)? })
    };
    let mut outer = named("outer", "test.example", server.address)?;
    outer.origin.host = Some(HeaderValue::from_static("inner.example"));
    server.service.reload(&[outer, named("inner", "inner.example", origin.address())?]);
    let reply = Client::connect(server.address).await?.ask(&Request::get("/a")).await?;
    assert_eq!((reply.status, &*reply.text()), (200, "hello"));
    let received = origin.received();
    let marked = received[0].fields.all("cdn-loop").count();
    assert_eq!((origin.requests(), marked), (1, 2));
    Ok(())
}

#[tokio::test]
async fn an_origin_may_listen_on_a_unix_socket() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("app.sock");
    let listener = tokio::net::UnixListener::bind(&path)?;
    let accepted = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut buffer = vec![0; 4096];
        for _ in 0..2 {
            let length = stream.read(&mut buffer).await?;
            assert!(buffer[..length].starts_with(b"GET /"), "{:?}", &buffer[..length]);
            let answer =
                "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nhi";
            stream.write_all(answer.as_bytes()).await?;
        }
        anyhow::Ok(())
    });
    let unused = Origin::always(fresh("never")).await?;
    let server = TestServer::start(unused.address(), &[]).await?;
    let mut settings = site(unused.address())?;
    settings.origin.endpoints[0].address = EndpointAddress::Unix(path);
    server.service.reload(&[settings]);
    let mut client = Client::connect(server.address).await?;
    for _ in 0..2 {
        let reply = client.ask(&Request::get("/a")).await?;
        assert_eq!((reply.status, &*reply.text()), (200, "hi"));
    }
    accepted.await?
}

/// Nobody polls an idle connection, but it is closed all the same.
#[tokio::test]
async fn idle_connections_are_closed_after_keep_alive() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let ended = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut buffer = vec![0; 4096];
        let asked = stream.read(&mut buffer).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await?;
        anyhow::Ok((asked > 0, stream.read(&mut buffer).await?))
    });
    let server = TestServer::start(address, &[]).await?;
    let mut settings = site(address)?;
    settings.origin.keep_alive = Duration::from_millis(100);
    server.service.reload(&[settings]);
    let reply = Client::connect(server.address).await?.ask(&Request::get("/a")).await?;
    assert_eq!(reply.status, 200);
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await???;
    assert_eq!(ended, (true, 0));
    Ok(())
}
