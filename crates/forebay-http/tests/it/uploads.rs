//! Request bodies that do not reach their end: the client goes away, or the origin answers early.

use std::net::SocketAddr;

use anyhow::Context as _;
use forebay_testkit::client::{Client, PATIENCE, Request};
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::door::Door;

/// Clients that upload at the same time.
const CLIENTS: usize = 120;

/// Bytes of one upload: more than the sockets between client and origin hold.
const UPLOAD: usize = 8 << 20;

const REFUSAL: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nlogin";

/// Waits until the metrics hold a line that contains all of these texts.
async fn wait_counted(door: &Door, texts: &[&str]) -> anyhow::Result<()> {
    for _ in 0..1_000 {
        let metrics = door.metrics();
        if metrics.lines().any(|line| texts.iter().all(|text| line.contains(text))) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    anyhow::bail!("waited 10 s for {texts:?} in {}", door.metrics())
}

/// A client that leaves before its body has ended is counted as a refused request, and neither as a
/// failure of the origin nor as a miss.
#[tokio::test]
async fn a_client_that_leaves_during_its_upload_is_no_failure_of_the_origin() -> anyhow::Result<()>
{
    let by_body = [("cache_methods", "[\"POST\"]"), ("cache_body_max", "\"64KiB\"")];
    for (settings, head) in [
        (&[][..], "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
        (&[][..], "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc"),
        (&[][..], "GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
        (&by_body[..], "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
    ] {
        for resets in [false, true] {
            let origin = Origin::always(Answer::ok("done")).await?;
            let door = Door::open(origin.address(), settings).await?;
            let mut client = Client::connect(door.address).await?;
            client.send_raw(head.as_bytes()).await?;
            // A request that is looked up by its body waits for that before it is in flight.
            if settings.is_empty() {
                door.wait_in_flight(1).await?;
            }
            if resets {
                client.reset()?;
            } else {
                drop(client);
            }
            wait_counted(&door, &["forebay_requests_total{", "400", "cache=\"refused\"} 1"])
                .await
                .with_context(|| format!("{head} resets={resets}"))?;
            let metrics = door.metrics();
            let against = |line: &&str| {
                let is_error = line.contains("status=\"5") || line.contains("cache=\"error\"");
                let is_miss = line.starts_with("forebay_misses_total{");
                let is_load = line.starts_with("forebay_loads_total{");
                (is_error || is_miss || is_load) && !line.ends_with(" 0")
            };
            let against: Vec<_> = metrics.lines().filter(against).collect();
            assert!(against.is_empty(), "{head} resets={resets}: {against:#?}");
            let mut other = Client::connect(door.address).await?;
            let whole = Request::new("POST", "/x").body("123456789");
            assert_eq!(other.ask(&whole).await?.status, 200);
        }
    }
    Ok(())
}

/// Answers as soon as the head of a request has come, and closes with the body unread: the system
/// follows the response with a reset.
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
                // Some of the body is there, and stays unread.
                let _ = stream.readable().await;
                let _ = stream.write_all(REFUSAL.as_bytes()).await;
            });
        }
    });
    Ok((address, accepting))
}

/// Uploads and reads at the same time, as curl does. `None`: the response was not whole.
async fn upload(address: SocketAddr) -> Option<String> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut reader, mut writer) = stream.into_split();
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
    let mut room = [0; 4_096];
    let reading = async {
        while let Ok(read @ 1..) = reader.read(&mut room).await {
            received.extend_from_slice(&room[..read]);
        }
    };
    let _ = tokio::time::timeout(PATIENCE, reading).await;
    sending.abort();
    let text = String::from_utf8_lossy(&received).into_owned();
    (text.starts_with("HTTP/1.1 401 ") && text.ends_with("login")).then_some(text)
}

/// Number of the clients that did not read the whole 401.
async fn failures(address: SocketAddr) -> usize {
    let mut uploads = JoinSet::new();
    for _ in 0..CLIENTS {
        uploads.spawn(upload(address));
    }
    uploads.join_all().await.into_iter().filter(Option::is_none).count()
}

/// RFC 9112 section 9.5: a client that sees a write fail looks for a response first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_answer_is_read_although_the_upload_fails() -> anyhow::Result<()> {
    let (address, accepting) = early_origin().await?;
    let door = Door::open(address, &[]).await?;
    let (direct, through) = (failures(address).await, failures(door.address).await);
    accepting.abort();
    let metrics = door.metrics();
    assert!(!metrics.contains("status=\"502\""), "{metrics}");
    assert!(through <= direct, "of {CLIENTS} failed: {direct} directly, {through} through");
    Ok(())
}

/// A body that ends with its connection may have been cut off by the reset, unless the connection
/// was ended before.
#[tokio::test]
async fn an_early_answer_without_a_length_is_whole_only_behind_a_regular_end() -> anyhow::Result<()>
{
    for (ends, whole) in [(true, true), (false, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let door = Door::open(listener.local_addr()?, &[]).await?;
        let origin = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let _ = stream.read(&mut [0; 64]).await?;
            stream.readable().await?;
            stream.write_all(b"HTTP/1.1 401 Unauthorized\r\n\r\nlogin").await?;
            if ends {
                stream.shutdown().await?;
            }
            // More of the body comes, which the system answers with a reset.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            drop(stream);
            anyhow::Ok(())
        });
        let mut client = Client::connect(door.address).await?;
        let head = format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n");
        client.send_raw(head.as_bytes()).await?;
        client.send_raw(&vec![7; 128 << 10]).await?;
        let reply = client.reply().await?;
        origin.await??;
        assert_eq!((reply.status, reply.ended_cleanly()), (401, whole), "ends={ends}");
    }
    Ok(())
}
