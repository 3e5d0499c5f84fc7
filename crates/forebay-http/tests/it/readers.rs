//! Tests of clients that do not read their responses.

use std::sync::Arc;
use std::time::Duration;

use forebay_http::edge::accept::AcceptRules;
use forebay_http::edge::address_limits::AddressLimits;
use forebay_http::edge::connection::Connections;
use forebay_http::request_guard::{ClientTimeouts, ExpiredTimeout};
use forebay_semantics::PeerAddress;
use forebay_testkit::client::{Client, Request};
use forebay_testkit::http2::{HEADERS, PREFACE, SETTINGS, frame, head};
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::server::TestServer;

/// More bytes than the sockets between server and client buffer.
const LARGE: usize = 12 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_does_not_delay_other_clients() -> anyhow::Result<()> {
    let answer = Answer::ok(vec![7; LARGE]).field("Cache-Control", "max-age=60");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut lazy = Client::connect(server.address).await?;
    lazy.send(&Request::get("/a")).await?;
    let mut unread = lazy.head().await?;

    let mut eager = Client::connect(server.address).await?;
    for _ in 0..2 {
        let reply = eager.ask(&Request::get("/a")).await?;
        assert!(reply.ended_cleanly());
        assert_eq!(reply.body_length(), LARGE as u64);
    }
    assert_eq!(origin.requests(), 1);
    server.wait_metric("forebay_tier_entries{tier=\"memory\"} 1").await?;

    lazy.read_body(&mut unread).await?;
    assert!(unread.ended_cleanly());
    assert_eq!(unread.body_length(), LARGE as u64);
    Ok(())
}

/// The connection would keep the pieces that it has taken of the body for four minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_disconnected_once_others_need_the_memory_of_its_body()
-> anyhow::Result<()> {
    let origin = Origin::start(|asked| {
        let length = if asked.target.starts_with("/small") { 10 } else { LARGE };
        Answer::ok(vec![7; length]).field("Cache-Control", "max-age=60")
    })
    .await?;
    let server = TestServer::start(origin.address(), &[("memory", "\"64MiB\"")]).await?;
    let mut lazy = Vec::new();
    for number in 0..12 {
        let mut client = Client::connect(server.address).await?;
        client.send(&Request::get(&format!("/large/{number}"))).await?;
        lazy.push(client);
    }
    origin.wait_requests(12).await?;
    let mut eager = Client::connect(server.address).await?;
    for number in 0.. {
        if server.counters.timed_out(ExpiredTimeout::Write) > 0 {
            break;
        }
        assert!(number < 1_000, "{}", server.metrics());
        let reply = eager.ask(&Request::get(&format!("/small?{number}"))).await?;
        assert!([200, 503].contains(&reply.status), "{}", reply.status);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disconnects_during_an_unshared_response_frees_the_origin_connection()
-> anyhow::Result<()> {
    let answer = Answer::ok(vec![7; LARGE]).field("Cache-Control", "no-store");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[("connections_max", "1")]).await?;
    for _ in 0..2 {
        let mut client = Client::connect(server.address).await?;
        client.send(&Request::get("/a")).await?;
        assert_eq!(client.head().await?.status, 200);
        drop(client);
    }
    origin.wait_for("two abandoned answers", |counts| counts.abandoned == 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_of_unshared_responses_leave_connections_for_shared_ones() -> anyhow::Result<()>
{
    let origin = Origin::start(|asked| {
        let (body, said) = match asked.target.as_str() {
            "/shared" => (1, "max-age=60"),
            _ => (LARGE, "no-store"),
        };
        Answer::ok(vec![7; body]).field("Cache-Control", said)
    })
    .await?;
    // Three of four connections may carry unshared responses.
    let server = TestServer::start(origin.address(), &[("connections_max", "4")]).await?;
    let mut lazy = Vec::new();
    for number in 0..3 {
        let mut client = Client::connect(server.address).await?;
        client.send(&Request::get(&format!("/own/{number}"))).await?;
        assert_eq!(client.head().await?.status, 200);
        lazy.push(client);
    }
    let mut eager = Client::connect(server.address).await?;
    let refused = eager.ask(&Request::get("/own/3")).await?;
    assert_eq!(refused.status, 503, "it was not known to be for one client, so it did not wait");
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(eager.ask(&Request::get("/shared")).await?.status, 200);
    lazy.pop();
    origin.wait_for("one abandoned answer", |counts| counts.abandoned >= 1).await?;
    let mut reply = eager.ask(&Request::get("/own/3")).await?;
    while reply.status == 503 {
        reply = eager.ask(&Request::get("/own/3")).await?;
    }
    assert_eq!((reply.status, reply.body_length()), (200, LARGE as u64));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_unshared_response_frees_its_origin_connection_before_it_is_read()
-> anyhow::Result<()> {
    let answer = Answer::ok(vec![7; 10 << 10]).field("Cache-Control", "no-store");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[("connections_max", "1")]).await?;
    let mut lazy = Vec::new();
    for number in 0..20 {
        let mut client = Client::connect(server.address).await?;
        client.send(&Request::get(&format!("/own/{number}"))).await?;
        assert_eq!(client.head().await?.status, 200);
        lazy.push(client);
    }
    assert_eq!(origin.requests(), 20);
    Ok(())
}

#[tokio::test]
async fn an_http2_client_whose_window_stays_shut_is_disconnected_after_240_s() -> anyhow::Result<()>
{
    let answer = Answer::ok(vec![7; 1_000]).field("Cache-Control", "max-age=60");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let first = Request::get("/a").without_host().field("Host", "a.example");
    Client::connect(server.address).await?.ask(&first).await?;
    server.wait_metric("forebay_tier_entries{tier=\"memory\"} 1").await?;

    let (stop, stopped) = watch::channel(false);
    let (service, counters) = (server.service.clone(), server.counters.clone());
    let timeouts = ClientTimeouts::default();
    let connections = Connections { service, timeouts, counters, stop: stopped };
    let rules = Arc::new(AcceptRules::cleartext("test", AddressLimits::new(0)));
    let (mut client, io) = duplex(64 << 10);
    // From here on, all is in memory, so that the time passes at once.
    tokio::time::pause();
    let begun = Instant::now();
    tokio::spawn(connections.accept(io, PeerAddress::Unix, rules));
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let request = frame(HEADERS, 5, 1, &head("/a", &[]));
    client.write_all(&[PREFACE, &settings, &request].concat()).await?;
    let mut received = Vec::new();
    client.read_to_end(&mut received).await?;
    let took = begun.elapsed();
    let expected = Duration::from_secs(240)..Duration::from_secs(250);
    assert!(expected.contains(&took), "{took:?}");
    assert!(!received.windows(100).any(|bytes| bytes == [7; 100]), "the body was sent");
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Write), 1);
    assert_eq!(origin.requests(), 1);
    drop(stop);
    Ok(())
}
