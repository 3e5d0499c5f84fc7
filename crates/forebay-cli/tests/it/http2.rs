//! HTTP/2 over TLS and cleartext: one key for all protocols, rules, floods.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use forebay_testkit::client::Request;
use forebay_testkit::gate::Gate;
use forebay_testkit::http2::{CONTINUATION, GOAWAY, HEADERS, RST_STREAM, START, frame, head};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::world::{ConfigFile, ask, get, metric, serve, written};

/// Maximum wait for a connection to be closed.
const CLOSE_MAX: Duration = Duration::from_secs(20);

/// Maximum number of frames after which a flood must have been ended.
pub(crate) const FLOOD: usize = 2_000;

/// Sends bytes on a new connection until it is closed; returns the frames that came.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> anyhow::Result<Vec<(u8, Vec<u8>)>> {
    let stream = TcpStream::connect(address).await?;
    let (mut reading, mut writing) = stream.into_split();
    let bytes = [START, bytes].concat();
    let write = tokio::spawn(async move {
        // The connection may be closed before all bytes are sent.
        let _ = writing.write_all(&bytes).await;
        writing
    });
    let mut received = Vec::new();
    let read = tokio::time::timeout(CLOSE_MAX, async {
        let mut piece = [0; 16 << 10];
        while let Ok(length @ 1..) = reading.read(&mut piece).await {
            received.extend_from_slice(&piece[..length]);
        }
    });
    let ended = read.await;
    drop(write.await);
    ensure!(ended.is_ok(), "the connection stays open");
    Ok(frames(&received))
}

fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length =
            (usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c)).min(rest.len());
        frames.push((*kind, rest[..length].to_vec()));
        bytes = &rest[length..];
    }
    frames
}

/// Returns the error code of the last GOAWAY.
pub(crate) fn goaway(frames: &[(u8, Vec<u8>)]) -> Option<u8> {
    let last = frames.iter().rev().find(|(kind, _)| *kind == GOAWAY);
    last.and_then(|(_, payload)| payload.get(7).copied())
}

async fn curl(
    cache: &Launched,
    protocol: &str,
    path: &str,
    more: &[&str],
) -> anyhow::Result<String> {
    let mut command = Command::new("curl");
    command.args(["-sS", "-i", "--max-time", "20", protocol]).args(more);
    let output = command.arg(format!("http://{}{path}", cache.address())).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const H2C: &str = "--http2-prior-knowledge";

#[tokio::test]
async fn both_protocols_share_one_key_and_one_fetch() -> anyhow::Result<()> {
    let gate = Gate::new();
    let answer = Answer::ok("hello").field("Cache-Control", "max-age=60").wait(&gate);
    let origin = Origin::always(answer).await?;
    let cache = serve(&origin).await?;
    let crowd = async {
        let mut asked = Vec::new();
        for number in 0..8 {
            let protocol = if number % 2 == 0 { H2C } else { "--http1.1" };
            asked.push(curl(&cache, protocol, "/a", &[]));
        }
        futures_util::future::try_join_all(asked).await
    };
    let opened = async {
        origin.wait_requests(1).await?;
        let begun = Instant::now();
        while metric(&cache, "forebay_in_flight", "").await? < 8 {
            ensure!(begun.elapsed() < CLOSE_MAX, "not all clients wait");
        }
        gate.open();
        anyhow::Ok(())
    };
    let (replies, ()) = tokio::try_join!(crowd, opened)?;
    for (number, reply) in replies.iter().enumerate() {
        let version = if number % 2 == 0 { "HTTP/2 200" } else { "HTTP/1.1 200" };
        assert!(reply.starts_with(version) && reply.ends_with("hello"), "{reply}");
    }
    assert_eq!(origin.requests(), 1);
    let hit = curl(&cache, H2C, "/a", &[]).await?;
    assert!(hit.contains("cache-status: forebay; hit"), "{hit}");
    assert!(metric(&cache, "forebay_connections_total", "protocol=\"h2\"").await? >= 5);
    Ok(())
}

#[tokio::test]
async fn bodies_of_any_size_pass_in_both_directions() -> anyhow::Result<()> {
    let body: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let sent = body.clone();
    let origin = Origin::start(move |asked| match asked.method.as_str() {
        "POST" => Answer::ok(asked.body_length.to_string()),
        _ => Answer::ok(sent.clone()).field("Cache-Control", "max-age=60"),
    });
    let origin = origin.await?;
    let cache = serve(&origin).await?;
    let folder = tempfile::tempdir()?;
    let (up, down) = (folder.path().join("up"), folder.path().join("down"));
    std::fs::write(&up, &body)?;
    let down_name = down.to_str().unwrap_or_default();
    // A miss that streams, then a hit from memory.
    for _ in 0..2 {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "20", H2C, "-o", down_name]);
        let url = format!("http://{}/big", cache.address());
        ensure!(command.arg(url).status().await?.success(), "curl failed");
        assert!(std::fs::read(&down)? == body, "the body differs");
        written(&cache).await?;
    }
    assert_eq!(origin.requests(), 1);
    let data = format!("@{}", up.display());
    let posted = curl(&cache, H2C, "/up", &["--data-binary", &data]).await?;
    assert!(posted.ends_with("\r\n\r\n5000000"), "{posted}");
    Ok(())
}

#[tokio::test]
async fn requests_that_http1_refuses_are_refused() -> anyhow::Result<()> {
    let origin = Origin::start(|asked| {
        let cookies: Vec<&str> = asked.fields.all("cookie").collect();
        Answer::ok(cookies.join("|")).field("Cache-Control", "no-store")
    });
    let origin = origin.await?;
    let cache = serve(&origin).await?;
    let status = |reply: String| reply.split(' ').nth(1).unwrap_or_default().to_owned();
    let other_host = curl(&cache, H2C, "/", &["-H", "Host: a.example"]).await?;
    assert_eq!(status(other_host), "200");
    let many: Vec<String> = (0..120).map(|n| format!("X-{n}: y")).collect();
    let many: Vec<&str> = many.iter().flat_map(|line| ["-H", line]).collect();
    assert_eq!(status(curl(&cache, H2C, "/", &many).await?), "431");
    let long = format!("/{}", "a".repeat(17 << 10));
    assert_eq!(status(curl(&cache, H2C, &long, &[]).await?), "414");
    // RFC 9113 section 8.2.3: the pieces of a cookie field are joined.
    let fields = [("cookie", "a=1"), ("cookie", "b=2")];
    let fetched = origin.requests();
    let head_frame = frame(HEADERS, 5, 1, &head("/c", &fields));
    let bytes = [head_frame, frame(GOAWAY, 0, 0, &[0; 8])].concat();
    let replies = send(cache.address(), &bytes).await?;
    assert!(replies.iter().any(|(_, payload)| payload == b"a=1; b=2"), "{replies:?}");
    assert_eq!(origin.requests(), fetched + 1);
    // Each of these must not reach the origin.
    let fetched = origin.requests();
    let rows: [&[(&str, &str)]; 10] = [
        // CVE-2021-21295 and its like: framing fields of HTTP/1 in HTTP/2.
        &[("transfer-encoding", "chunked")],
        &[("connection", "keep-alive")],
        &[("upgrade", "h2c")],
        &[("te", "gzip")],
        &[("content-length", "5")],
        &[("host", "b.example")],
        &[("host", "a.example"), ("host", "a.example")],
        &[("X-Upper", "a")],
        &[(":path", "/other")],
        &[("x", "a\r\ny: b")],
    ];
    for fields in rows {
        let head_frame = frame(HEADERS, 5, 1, &head("/bad", fields));
        let bytes = [head_frame, frame(GOAWAY, 0, 0, &[0; 8])].concat();
        let replies = send(cache.address(), &bytes).await?;
        assert!(!replies.is_empty(), "{fields:?}");
        assert_eq!(origin.requests(), fetched, "{fields:?}");
    }
    assert_eq!(metric(&cache, "forebay_refused_total", "limit=\"host\"").await?, 2);
    Ok(())
}

#[tokio::test]
async fn floods_of_frames_are_ended() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "max-age=60")).await?;
    let cache = serve(&origin).await?;
    let address = cache.address();
    let control = [
        ("PING", frame(6, 0, 0, &[0; 8])),
        ("SETTINGS", frame(4, 0, 0, &[])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 3, 1])),
        ("unknown", frame(0xf0, 0, 0, b"x")),
        ("WINDOW_UPDATE", frame(8, 0, 0, &[0, 0, 0, 1])),
    ];
    for (number, (name, flood)) in control.iter().enumerate() {
        let frames = send(address, &flood.repeat(FLOOD)).await?;
        assert_eq!(goaway(&frames), Some(0x0b), "{name}: ENHANCE_YOUR_CALM");
        let ended = metric(&cache, "forebay_refused_total", "limit=\"h2-control\"").await?;
        assert_eq!(ended, number as u64 + 1, "{name}");
    }
    // The h2 crate ends these.
    let empty = frame(0, 0, 1, &[]).repeat(FLOOD);
    let post = frame(HEADERS, 4, 1, &head("/x", &[]));
    let data = send(address, &[post, empty].concat()).await?;
    assert!(goaway(&data).is_some_and(|code| code != 0), "empty DATA: {data:?}");
    let start = frame(HEADERS, 1, 1, &head("/x", &[]));
    let flood = frame(CONTINUATION, 0, 1, &[]).repeat(FLOOD);
    let continued = send(address, &[start, flood].concat()).await?;
    assert!(goaway(&continued).is_some_and(|code| code != 0), "CONTINUATION: {continued:?}");
    assert_eq!(get(&cache, "/after").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn early_resets_are_limited() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = Origin::always(Answer::ok("a").wait(&gate)).await?;
    let cache = serve(&origin).await?;
    let mut stream = TcpStream::connect(cache.address()).await?;
    stream.write_all(START).await?;
    let (mut reading, mut writing) = stream.into_split();
    let drain = tokio::spawn(async move {
        let mut received = Vec::new();
        let _ = reading.read_to_end(&mut received).await;
        received
    });
    let mut sent = 0;
    for number in 0..10_000_u32 {
        let stream = number * 2 + 1;
        let request = frame(HEADERS, 5, stream, &head(&format!("/cold/{number}"), &[]));
        if writing.write_all(&request).await.is_err() {
            break;
        }
        // Each stream is accepted before it is reset.
        if number < 200 && number % 20 == 19 {
            let begun = Instant::now();
            let before = origin.requests();
            while origin.requests() <= before && begun.elapsed() < Duration::from_millis(20) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        if writing.write_all(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])).await.is_err() {
            break;
        }
        sent += 1;
    }
    let received = tokio::time::timeout(CLOSE_MAX, drain).await??;
    assert!(goaway(&frames(&received)).is_some_and(|code| code == 0x0b), "after {sent} resets");
    let loads = metric(&cache, "forebay_loads_total", "").await?;
    gate.open();
    ensure!(origin.requests() <= 150 && loads <= 150, "{} loads", origin.requests());
    Ok(())
}

#[tokio::test]
async fn a_listener_can_be_limited_to_http1() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a")).await?;
    let file = ConfigFile::of(&format!(
        "admin = \"127.0.0.1:0\"\n[[listener]]\naddress = \"127.0.0.1:0\"\nprotocols = [\"http/1.1\"]\n\
         [[site]]\nid = \"shop\"\norigin = \"{}\"\n",
        origin.url()
    ))?;
    let cache = file.serve().await?;
    assert!(curl(&cache, H2C, "/", &[]).await.is_err());
    assert_eq!(ask(cache.address(), &Request::get("/")).await?.status, 200);
    Ok(())
}
