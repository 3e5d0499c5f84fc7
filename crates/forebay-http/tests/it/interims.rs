//! Tests of interim responses from an origin to a client (RFC 9110 section 15.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::TestServer;

const HINT: (&str, &str) = ("Link", "</style.css>; rel=preload");

fn fresh(body: &str) -> Answer {
    Answer::ok(body.to_owned()).field("Cache-Control", "max-age=60")
}

/// Returns the status codes of the interim responses before a reply.
fn statuses(reply: &Reply) -> Vec<u16> {
    reply.interim.iter().map(|interim| interim.status).collect()
}

/// Reads to the end of the next head.
async fn head(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let byte = tokio::time::timeout(forebay_testkit::client::PATIENCE, stream.read_u8());
        text.push(char::from(byte.await??));
    }
    Ok(text)
}

#[tokio::test]
async fn an_interim_response_arrives_before_the_final_one_is_ready() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |_| fresh("late").interim(103, &[HINT]).wait(&held)).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    for path in ["/load", "/forward?no-store"] {
        let mut stream = TcpStream::connect(server.address).await?;
        let method = if path == "/load" { "GET" } else { "POST" };
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: test.example\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let hint = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\
                    via: 1.1 forebay\r\n\r\n";
        assert_eq!(head(&mut stream).await?, hint);
    }
    assert!(!gate.is_open(), "neither answer was there");
    Ok(())
}

#[tokio::test]
async fn an_interim_response_arrives_before_a_response_that_is_not_shared() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let asked = AtomicUsize::new(0);
    let origin = Origin::start(move |_| {
        let own = Answer::ok("own").field("Cache-Control", "no-store").interim(103, &[HINT]);
        if asked.fetch_add(1, Ordering::Relaxed) == 3 { own.wait(&held) } else { own }
    });
    let origin = origin.await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    for _ in 0..3 {
        let reply = client.ask(&Request::get("/a")).await?;
        assert_eq!((statuses(&reply), &*reply.text()), (vec![103], "own"));
    }
    let mut stream = TcpStream::connect(server.address).await?;
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: test.example\r\n\r\n").await?;
    assert!(head(&mut stream).await?.starts_with("HTTP/1.1 103 "));
    gate.open();
    assert!(head(&mut stream).await?.starts_with("HTTP/1.1 200 OK\r\n"));
    Ok(())
}

#[tokio::test]
async fn interim_responses_have_no_hop_by_hop_or_framing_fields() -> anyhow::Result<()> {
    let fields = [
        ("Connection", "x-hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "5"),
        ("X-End", "to end"),
    ];
    let origin = Origin::start(move |_| fresh("body").interim(199, &fields)).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut stream = TcpStream::connect(server.address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test.example\r\n\r\n").await?;
    let expected = "HTTP/1.1 199 \r\nx-end: to end\r\nvia: 1.1 forebay\r\n\r\n";
    assert_eq!(head(&mut stream).await?, expected);
    assert!(head(&mut stream).await?.starts_with("HTTP/1.1 200 OK\r\n"));
    Ok(())
}

#[tokio::test]
async fn hits_and_http_1_0_clients_get_no_interim_responses() -> anyhow::Result<()> {
    let origin = Origin::start(|_| fresh("x").interim(102, &[]).interim(103, &[HINT])).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    let miss = client.ask(&Request::get("/a")).await?;
    assert_eq!((statuses(&miss), &*miss.text()), (vec![102, 103], "x"));
    let hit = client.ask(&Request::get("/a")).await?;
    assert_eq!((statuses(&hit), &*hit.text()), (vec![], "x"));
    let mut old = Client::connect(server.address).await?;
    old.send_raw(b"GET /b HTTP/1.0\r\nHost: test.example\r\n\r\n").await?;
    let reply = old.reply().await?;
    assert_eq!((statuses(&reply), &*reply.text()), (vec![], "x"));
    assert_eq!(origin.requests(), 2);
    Ok(())
}

/// Responses before and after an interim response stay complete.
#[tokio::test]
async fn pipelined_responses_and_their_interim_responses_are_in_order() -> anyhow::Result<()> {
    const LARGE: usize = 3 << 20;
    let origin = Origin::start(|received| match received.path() {
        "/large" => fresh(&"l".repeat(LARGE)),
        path => fresh(path).interim(103, &[("Link", path)]).interim(102, &[]),
    })
    .await?;
    let server = TestServer::start(origin.address(), &[("memory", "\"64MiB\"")]).await?;
    Client::connect(server.address).await?.ask(&Request::get("/large")).await?;
    let mut client = Client::connect(server.address).await?;
    for round in 0..8 {
        client.send(&Request::get("/large")).await?;
        client.send(&Request::get(&format!("/{round}"))).await?;
        client.send(&Request::get(&format!("/{round}"))).await?;
    }
    for round in 0..8 {
        let large = client.reply().await?;
        assert_eq!((statuses(&large), large.body_length()), (vec![], LARGE as u64));
        let miss = client.reply().await?;
        let path = format!("/{round}");
        assert_eq!((statuses(&miss), &*miss.text()), (vec![103, 102], &*path));
        assert_eq!(miss.interim[0].fields.first("link"), Some(&*path));
        let hit = client.reply().await?;
        assert_eq!((statuses(&hit), &*hit.text()), (vec![], &*path));
    }
    Ok(())
}

#[tokio::test]
async fn an_expecting_client_gets_100_continue_once() -> anyhow::Result<()> {
    let origin = Origin::start(|_| {
        Answer::ok("done").interim(100, &[]).interim(103, &[HINT]).interim(100, &[])
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut stream = TcpStream::connect(server.address).await?;
    let expecting = b"POST /x HTTP/1.1\r\nHost: test.example\r\nContent-Length: 4\r\n\
                      Expect: 100-continue\r\n\r\n";
    stream.write_all(expecting).await?;
    assert_eq!(head(&mut stream).await?, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"data").await?;
    assert!(head(&mut stream).await?.starts_with("HTTP/1.1 103 Early Hints\r\n"));
    assert!(head(&mut stream).await?.starts_with("HTTP/1.1 200 OK\r\n"));
    Ok(())
}

/// A load continues after its client has a stale response. Its interim responses must not reach
/// that client, nor the next response on the connection.
#[tokio::test]
async fn interim_responses_after_the_final_response_are_discarded() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |received| match (received.path(), received.serial) {
        ("/stale", 1) => {
            Answer::ok("old").field("Cache-Control", "max-age=1, stale-while-revalidate=99")
        }
        ("/stale", _) => fresh("new").wait(&held).interim(103, &[HINT]),
        _ => fresh("next").wait(&held),
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    client.ask(&Request::get("/stale")).await?;
    server.clock.step(std::time::Duration::from_secs(5));
    let stale = client.ask(&Request::get("/stale")).await?;
    assert_eq!((statuses(&stale), &*stale.text()), (vec![], "old"));
    client.send(&Request::get("/next")).await?;
    origin.wait_requests(3).await?;
    gate.open();
    let next = client.reply().await?;
    assert_eq!((statuses(&next), &*next.text()), (vec![], "next"));
    Ok(())
}

/// A flight continues if its leader disconnects between an interim response and the final one.
#[tokio::test]
async fn a_leader_that_disconnects_after_an_interim_response_does_not_affect_followers()
-> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        fresh("shared").interim(103, &[HINT]).wait(&held).interim(103, &[HINT])
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut leader = TcpStream::connect(server.address).await?;
    leader.write_all(b"GET / HTTP/1.1\r\nHost: test.example\r\n\r\n").await?;
    assert!(head(&mut leader).await?.starts_with("HTTP/1.1 103"));
    let mut follower = Client::connect(server.address).await?;
    follower.send(&Request::get("/")).await?;
    server.wait_in_flight(2).await?;
    leader.set_zero_linger()?;
    drop(leader);
    server.wait_in_flight(1).await?;
    gate.open();
    let reply = follower.reply().await?;
    assert_eq!(&*reply.text(), "shared");
    assert_eq!(origin.requests(), 1);
    Ok(())
}

/// At most 64 KiB of interim responses are queued; the others are discarded and counted, and the
/// final response follows.
#[tokio::test]
async fn interim_responses_above_64_kib_are_discarded() -> anyhow::Result<()> {
    let large = Arc::new("l".repeat(6_000));
    let origin = Origin::start(move |_| {
        (0..16).fold(fresh("body"), |answer, _| answer.interim(103, &[("Link", &*large)]))
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    let reply = client.ask(&Request::get("/")).await?;
    assert_eq!((statuses(&reply), &*reply.text()), (vec![103; 10], "body"));
    assert_eq!(server.counters.dropped_interims(), 6);
    server.wait_metric("forebay_refused_total{limit=\"interims\"} 6").await
}

/// A client that does not read is disconnected; the load continues for other clients.
#[tokio::test]
async fn a_client_that_reads_no_interim_response_is_disconnected_and_delays_no_other_client()
-> anyhow::Result<()> {
    let origin = Origin::start(|received| match received.path() {
        "/large" => fresh(&"l".repeat(16 << 20)),
        _ => fresh("shared").interim(103, &[HINT]),
    })
    .await?;
    let settings = [("write_window", "\"300ms\""), ("memory", "\"64MiB\"")];
    let server = TestServer::start(origin.address(), &settings).await?;
    Client::connect(server.address).await?.ask(&Request::get("/large")).await?;
    let mut deaf = TcpStream::connect(server.address).await?;
    for target in ["/large", "/"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n");
        deaf.write_all(request.as_bytes()).await?;
    }
    server.wait_metric("forebay_refused_total{limit=\"slow-reader\"} 1").await?;
    let mut other = Client::connect(server.address).await?;
    assert_eq!(other.ask(&Request::get("/")).await?.text(), "shared");
    assert_eq!(server.counters.dropped_interims(), 0);
    Ok(())
}
