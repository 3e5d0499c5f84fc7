//! Tests of incomplete request bodies: the client disconnects, or the origin responds early.

use std::net::SocketAddr;

use anyhow::Context as _;
use forebay_testkit::client::{Client, PATIENCE, Request};
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::server::TestServer;

/// Number of concurrent uploads.
const CLIENTS: usize = 120;

/// Length of one upload in bytes: more than the sockets between client and origin buffer.
const UPLOAD: usize = 8 << 20;

const REFUSAL: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nlogin";

/// A client that disconnects during its upload is counted as a rejected request, and neither as a
/// failure of the origin nor as a miss.
#[tokio::test]
async fn a_client_that_disconnects_during_its_upload_is_no_origin_failure() -> anyhow::Result<()> {
    let by_body = [("cache_methods", "[\"POST\"]"), ("cache_body_max", "\"64KiB\"")];
    for (settings, head) in [
        (&[][..], "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
        (&[][..], "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc"),
        (&[][..], "GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
        (&by_body[..], "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
    ] {
        for resets in [false, true] {
            let origin = Origin::always(Answer::ok("done")).await?;
            let server = TestServer::start(origin.address(), settings).await?;
            let mut client = Client::connect(server.address).await?;
            client.send_raw(head.as_bytes()).await?;
            // A request keyed by its body waits for the body before it is in flight.
            if settings.is_empty() {
                server.wait_in_flight(1).await?;
            }
            if resets {
                client.reset()?;
            } else {
                drop(client);
            }
            let method = head.split(' ').next().unwrap_or_default();
            let labels = format!("method=\"{method}\",status=\"400\",cache=\"refused\"");
            let counted = format!("forebay_requests_total{{site=\"default\",{labels}}} 1");
            server
                .wait_metric(&counted)
                .await
                .with_context(|| format!("{head} resets={resets}"))?;
            let metrics = server.metrics();
            let against = |line: &&str| {
                let is_error = line.contains("status=\"5") || line.contains("cache=\"error\"");
                let is_miss = line.starts_with("forebay_misses_total{");
                let is_load = line.starts_with("forebay_loads_total{");
                let is_zero = line.ends_with(" 0") || line.ends_with(" 0.0");
                (is_error || is_miss || is_load) && !is_zero
            };
            let against: Vec<_> = metrics.lines().filter(against).collect();
            assert!(against.is_empty(), "{head} resets={resets}: {against:#?}");
            let mut other = Client::connect(server.address).await?;
            let whole = Request::new("POST", "/x").body("123456789");
            assert_eq!(other.ask(&whole).await?.status, 200);
        }
    }
    Ok(())
}

/// Starts an origin that responds as soon as the head of a request has arrived, and closes with the
/// body unread, so that the kernel sends a reset after the response.
async fn early_origin() -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let accepting = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
                    head.push(byte[0]);
                }
                // Part of the body has arrived, and stays unread.
                let _ = stream.readable().await;
                let _ = stream.write_all(REFUSAL.as_bytes()).await;
            });
        }
    });
    Ok((address, accepting))
}

/// Uploads and reads at the same time, as curl does; returns everything received.
async fn upload(address: SocketAddr) -> anyhow::Result<String> {
    let (mut reader, mut writer) = TcpStream::connect(address).await?.into_split();
    let sending = tokio::spawn(async move {
        let head = format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n");
        writer.write_all(head.as_bytes()).await?;
        let piece = vec![7; 64 << 10];
        for _ in 0..UPLOAD / piece.len() {
            writer.write_all(&piece).await?;
        }
        std::io::Result::Ok(writer)
    });
    let mut received = Vec::new();
    let mut buffer = [0; 4_096];
    let reading = async {
        while let Ok(read @ 1..) = reader.read(&mut buffer).await {
            received.extend_from_slice(&buffer[..read]);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.context("the connection does not end")?;
    sending.abort();
    Ok(String::from_utf8_lossy(&received).into_owned())
}

fn is_whole_refusal(received: &str) -> bool {
    received.starts_with("HTTP/1.1 401 ") && received.ends_with("login")
}

/// Returns the number of clients that did not read the complete 401.
async fn failures(address: SocketAddr) -> usize {
    let mut uploads = JoinSet::new();
    for _ in 0..CLIENTS {
        uploads.spawn(upload(address));
    }
    let received = uploads.join_all().await;
    received.iter().filter(|got| !got.as_ref().is_ok_and(|text| is_whole_refusal(text))).count()
}

/// RFC 9112 section 9.5: a client whose write fails reads a response first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_response_is_read_after_a_failed_write() -> anyhow::Result<()> {
    let (address, accepting) = early_origin().await?;
    let server = TestServer::start(address, &[]).await?;
    let (direct, through) = (failures(address).await, failures(server.address).await);
    accepting.abort();
    let metrics = server.metrics();
    let errors =
        "forebay_requests_total{site=\"default\",method=\"GET\",status=\"502\",cache=\"error\"}";
    let failed = metrics.lines().filter(|line| line.contains("status=\"502\""));
    assert!(failed.clone().eq([format!("{errors} 0")]), "{:?}", failed.collect::<Vec<_>>());
    assert!(through <= direct, "of {CLIENTS} failed: {direct} directly, {through} through");
    Ok(())
}

/// A body delimited by its connection may have been truncated by the reset, unless the connection
/// was ended regularly before.
#[tokio::test]
async fn an_early_response_without_a_length_is_complete_only_after_a_regular_end()
-> anyhow::Result<()> {
    for is_ended in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = TestServer::start(listener.local_addr()?, &[]).await?;
        let origin = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let _ = stream.read(&mut [0; 64]).await?;
            stream.readable().await?;
            stream.write_all(b"HTTP/1.1 401 Unauthorized\r\n\r\nlogin").await?;
            if is_ended {
                stream.shutdown().await?;
            }
            // Closed with unread bytes, so that the kernel sends a reset.
            anyhow::Ok(())
        });
        let received = upload(server.address).await?;
        origin.await??;
        assert!(received.starts_with("HTTP/1.1 401 "), "is_ended={is_ended}: {received}");
        let has_end = received.ends_with("5\r\nlogin\r\n0\r\n\r\n");
        assert_eq!(has_end, is_ended, "{received}");
    }
    Ok(())
}
