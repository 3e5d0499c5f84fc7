//! Tests of protocol upgrades: tunnelled bytes, and bytes that must not reach the origin.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_http::request_guard::FramingError;
use forebay_http::tunnel::IDLE_MAX;
use forebay_testkit::client::{Client, PATIENCE, Request};
use forebay_testkit::origin::{Answer, Origin};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::server::TestServer;

const AGREED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
    Upgrade: WebSocket\r\nSec-WebSocket-Accept: key\r\nCache-Control: max-age=60\r\n\
    Content-Length: 7\r\nX-Hop: 1\r\nConnection: x-hop\r\n\r\nfirst";

/// Bytes that the origin sends directly after its 101.
const FIRST: &[u8] = b"first";

const REFUSED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
const ORDINARY: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: max-age=60\r\n\r\nok";

/// Origin with a fixed response per path: on `/chat` it echoes after the 101, on `/bye` it closes,
/// on all other paths it continues in HTTP.
struct RawOrigin {
    address: SocketAddr,
    /// Received bytes of each connection.
    came: Arc<Mutex<Vec<Vec<u8>>>>,
    accepting: JoinHandle<()>,
}

impl RawOrigin {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let came = Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn(accept(listener, came.clone()));
        Ok(Self { address, came, accepting })
    }

    fn connections(&self) -> usize {
        self.came.lock().len()
    }

    /// Returns the received bytes of a connection as text.
    fn text(&self, connection: usize) -> String {
        String::from_utf8_lossy(&self.came.lock()[connection]).into_owned()
    }
}

impl Drop for RawOrigin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, came: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = came.lock().len();
        came.lock().push(Vec::new());
        connections.spawn(speak(stream, number, came.clone()));
    }
}

async fn speak(mut stream: TcpStream, number: usize, came: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut answered = 0;
    let mut echoes = false;
    let mut buffer = [0; 4_096];
    while let Ok(read) = stream.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        came.lock()[number].extend_from_slice(&buffer[..read]);
        if echoes {
            if stream.write_all(&buffer[..read]).await.is_err() {
                return;
            }
            continue;
        }
        let text = String::from_utf8_lossy(&came.lock()[number]).into_owned();
        let heads: Vec<_> = text.split_inclusive("\r\n\r\n").collect();
        for head in heads.iter().skip(answered).filter(|head| head.ends_with("\r\n\r\n")) {
            let path = head.split(' ').nth(1).unwrap_or_default();
            answered += 1;
            let answer = match path {
                "/chat" | "/bye" => AGREED,
                "/refuse" => REFUSED,
                "/other" => b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: else\r\n\r\n",
                _ => ORDINARY,
            };
            if stream.write_all(answer).await.is_err() || path == "/bye" {
                return;
            }
            echoes = path == "/chat";
        }
    }
}

fn asking(path: &str, protocol: &str) -> Vec<u8> {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: keep-alive, Upgrade, X-Mine\r\n\
         X-Mine: 1\r\nUpgrade: {protocol}\r\nSec-WebSocket-Key: key\r\n\r\n"
    );
    head.into_bytes()
}

/// Sends a request for another protocol, followed by `early`. Returns the connection and the
/// response head.
async fn switched(
    address: SocketAddr,
    path: &str,
    early: &[u8],
) -> anyhow::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let mut bytes = asking(path, "websocket");
    bytes.extend_from_slice(early);
    stream.write_all(&bytes).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::time::timeout(PATIENCE, stream.read_u8()).await??);
    }
    Ok((stream, String::from_utf8(head)?))
}

async fn expect(stream: &mut TcpStream, bytes: &[u8]) -> anyhow::Result<()> {
    let mut buffer = vec![0; bytes.len()];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut buffer)).await??;
    assert!(buffer == bytes, "{} instead of {}", buffer.escape_ascii(), bytes.escape_ascii());
    Ok(())
}

/// Waits for the end of the connection, regular or not.
async fn ended(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await?;
    Ok(rest)
}

async fn wait_for_tunnels(server: &TestServer, wanted: usize) -> anyhow::Result<()> {
    server.wait_metric(&format!("forebay_tunnels{{site=\"default\"}} {wanted}")).await
}

#[tokio::test]
async fn a_tunnel_carries_bytes_in_both_directions() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let (mut client, head) = switched(server.address, "/chat", b"early \0\r\n").await?;
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 switching protocols\r\n"), "{head}");
    let rows = [
        ("\r\nconnection: upgrade\r\n", 1),
        ("\r\nupgrade: websocket\r\n", 1),
        ("\r\nsec-websocket-accept: key\r\n", 1),
        ("cache-status: forebay; fwd=bypass; fwd-status=101\r\n", 1),
        ("connection:", 1),
        ("upgrade:", 1),
        ("x-hop", 0),
        ("content-length", 0),
    ];
    for (text, times) in rows {
        assert_eq!(head.matches(text).count(), times, "{text} in {head}");
    }
    expect(&mut client, FIRST).await?;
    expect(&mut client, b"early \0\r\n").await?;
    for _ in 0..3 {
        client.write_all(b"GET / HTTP/1.1\r\n\r\n\0").await?;
        expect(&mut client, b"GET / HTTP/1.1\r\n\r\n\0").await?;
    }
    wait_for_tunnels(&server, 1).await?;
    let asked = origin.text(0).to_ascii_lowercase();
    let (asked, _) = asked.split_once("\r\n\r\n").unwrap_or_default();
    let rows = [
        ("\r\nconnection: upgrade", 1),
        ("\r\nupgrade: websocket", 1),
        ("\r\nsec-websocket-key: key", 1),
        ("connection:", 1),
        ("x-mine", 0),
    ];
    for (text, times) in rows {
        assert_eq!(asked.matches(text).count(), times, "{text} in {asked}");
    }
    client.shutdown().await?;
    assert_eq!(ended(&mut client).await?, b"");
    wait_for_tunnels(&server, 0).await?;
    let line = "forebay_requests_total{site=\"default\",method=\"GET\",status=\"101\",\
                cache=\"tunnel\"} 1";
    server.wait_metric(line).await
}

#[tokio::test]
async fn a_tunnel_delivers_a_mebibyte_each_way_to_a_slow_reader() -> anyhow::Result<()> {
    const LENGTH: usize = 1 << 20;
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let (mut client, _) = switched(server.address, "/chat", b"").await?;
    expect(&mut client, FIRST).await?;
    let sent: Vec<u8> = (0..=250_u8).cycle().take(LENGTH).collect();
    let expected = sent.clone();
    let (mut reading, mut writing) = client.into_split();
    let writer = tokio::spawn(async move {
        writing.write_all(&sent).await?;
        writing.shutdown().await
    });
    let mut read = Vec::new();
    let mut buffer = [0; 1_000];
    while read.len() < LENGTH {
        // Other tasks run first, so that unread bytes accumulate on the way.
        tokio::task::yield_now().await;
        let some = tokio::time::timeout(PATIENCE, reading.read(&mut buffer)).await??;
        assert_ne!(some, 0, "ended after {} bytes", read.len());
        read.extend_from_slice(&buffer[..some]);
    }
    assert!(read == expected);
    writer.await??;
    Ok(())
}

#[tokio::test]
async fn early_bytes_are_read_as_http_after_a_declined_upgrade() -> anyhow::Result<()> {
    for path in ["/refuse", "/plain"] {
        let origin = RawOrigin::start().await?;
        let server = TestServer::start(origin.address, &[]).await?;
        let early = b"GET /next HTTP/1.1\r\nHost: shop.example\r\nX-Early: 1\r\n\r\n";
        let (mut client, head) = switched(server.address, path, early).await?;
        let status = if path == "/refuse" { "403" } else { "200" };
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        expect(&mut client, if path == "/refuse" { b"no" } else { b"ok" }).await?;
        // The connection continues with the early bytes and with new ones.
        for _ in 0..2 {
            let mut answer = vec![0; 15];
            tokio::time::timeout(PATIENCE, client.read_exact(&mut answer)).await??;
            assert_eq!(&answer, b"HTTP/1.1 200 OK");
            while !answer.ends_with(b"\r\n\r\nok") {
                answer.push(tokio::time::timeout(PATIENCE, client.read_u8()).await??);
            }
            client.write_all(b"GET /next HTTP/1.1\r\nHost: shop.example\r\n\r\n").await?;
        }
        // The origin received it as a new request, which was parsed and stored.
        let came = origin.text(0);
        assert_eq!(came.matches("\r\n\r\n").count(), 2, "{came}");
        assert!(came.contains("GET /next HTTP/1.1\r\n") && came.contains("x-early: 1"), "{came}");
        assert_eq!(server.service.engine().memory().entries(), 1, "the answer of /next alone");
    }
    Ok(())
}

#[tokio::test]
async fn early_bytes_that_are_not_http_never_reach_the_origin() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    for path in ["/refuse", "/plain", "/other"] {
        let (mut client, head) = switched(server.address, path, b"\x81\x05smuggled").await?;
        assert!(!head.starts_with("HTTP/1.1 101"), "{head}");
        let rest = ended(&mut client).await?;
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(rest.contains("HTTP/1.1 400 Bad Request\r\n"), "{rest}");
    }
    for connection in 0..origin.connections() {
        let came = origin.text(connection);
        assert!(came.ends_with("\r\n\r\n") && !came.contains("smuggled"), "{came}");
    }
    Ok(())
}

#[tokio::test]
async fn bytes_after_a_body_are_checked_even_with_upgrade() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let asking = "POST /post HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\n\
                  Upgrade: websocket\r\nContent-Length: 1\r\n\r\n";
    for (first, second) in [("a\0smuggled", ""), ("a", "\0smuggled"), ("", "a\0smuggled")] {
        let mut client = Client::connect(server.address).await?;
        client.send_raw(format!("{asking}{first}").as_bytes()).await?;
        if !first.is_empty() {
            assert_eq!(client.reply().await?.status, 200, "{first:?}");
        }
        client.send_raw(second.as_bytes()).await?;
        if first.is_empty() {
            assert_eq!(client.reply().await?.status, 200, "{first:?}");
        }
        let refusal = client.reply().await?;
        assert_eq!((refusal.status, refusal.field("connection")), (400, Some("close")));
        assert_eq!(client.read_to_close().await?.bytes, "", "{first:?}");
    }
    assert_eq!(server.counters.framing_errors(FramingError::Nul), 3);
    for connection in 0..origin.connections() {
        assert!(!origin.text(connection).contains("smuggled"));
    }
    Ok(())
}

#[tokio::test]
async fn an_idle_tunnel_is_closed_and_counted() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let (mut client, _) = switched(server.address, "/chat", b"").await?;
    expect(&mut client, FIRST).await?;
    wait_for_tunnels(&server, 1).await?;
    tokio::time::pause();
    tokio::time::advance(IDLE_MAX + Duration::from_secs(1)).await;
    tokio::time::resume();
    assert_eq!(ended(&mut client).await?, b"");
    server.wait_metric("forebay_refused_total{limit=\"idle-tunnel\"} 1").await
}

#[tokio::test]
async fn a_switch_to_a_protocol_that_was_not_requested_is_502() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let (_, head) = switched(server.address, "/other", b"").await?;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    // No upgrade was requested here.
    let mut client = Client::connect(server.address).await?;
    assert_eq!(client.ask(&Request::get("/chat")).await?.status, 502);
    assert_eq!(origin.connections(), 2);
    Ok(())
}

#[tokio::test]
async fn a_request_to_upgrade_to_http_2_is_answered_in_http_1_1() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello").field("Cache-Control", "max-age=60")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    for protocol in ["h2c", "H2C", "HTTP/2.0, TLS/1.2"] {
        let request = Request::get("/a")
            .field("Connection", "Upgrade, HTTP2-Settings")
            .field("Upgrade", protocol)
            .field("HTTP2-Settings", "AAMAAABkAAQAAP__");
        let reply = client.ask(&request).await?;
        assert_eq!((reply.status, &*reply.text()), (200, "hello"));
    }
    assert_eq!(origin.requests(), 1, "the others were hits");
    let fields = origin.first()?.fields;
    assert!(!fields.contains("upgrade") && !fields.contains("http2-settings"));
    Ok(())
}

#[tokio::test]
async fn tunnels_are_neither_shared_nor_stored() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let mut clients = Vec::new();
    for number in 1..=2 {
        let (mut client, head) = switched(server.address, "/chat", b"").await?;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        expect(&mut client, FIRST).await?;
        clients.push(client);
        wait_for_tunnels(&server, number).await?;
    }
    assert_eq!(origin.connections(), 2);
    assert_eq!(server.service.engine().memory().entries(), 0);
    for (client, text) in clients.iter_mut().zip([b"one", b"two"]) {
        client.write_all(text).await?;
        expect(client, text).await?;
    }
    drop(clients);
    wait_for_tunnels(&server, 0).await?;
    // Connections of tunnels are not reused.
    let mut client = Client::connect(server.address).await?;
    assert_eq!(client.ask(&Request::get("/plain")).await?.status, 200);
    assert_eq!(origin.connections(), 3);
    Ok(())
}

#[tokio::test]
async fn a_tunnel_stays_open_until_the_end_of_the_drain() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let (mut client, _) = switched(server.address, "/chat", b"").await?;
    expect(&mut client, FIRST).await?;
    let mut idle = Client::connect(server.address).await?;
    assert_eq!(idle.ask(&Request::get("/plain")).await?.status, 200);
    server.stop();
    assert_eq!(&idle.read_to_close().await?.bytes[..], b"");
    client.write_all(b"still here").await?;
    expect(&mut client, b"still here").await?;
    // At the end of a drain the connection tasks end.
    drop(server);
    assert_eq!(ended(&mut client).await?, b"");
    Ok(())
}

#[tokio::test]
async fn an_origin_that_closes_ends_the_tunnel() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let (mut client, head) = switched(server.address, "/bye", b"").await?;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(ended(&mut client).await?, FIRST);
    drop(client);
    wait_for_tunnels(&server, 0).await
}

#[tokio::test]
async fn tunnels_use_at_most_half_of_the_connections() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let server = TestServer::start(origin.address, &[("connections_max", "2")]).await?;
    let (mut first, _) = switched(server.address, "/chat", b"").await?;
    expect(&mut first, FIRST).await?;
    let (_, head) = switched(server.address, "/chat", b"").await?;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(head.to_ascii_lowercase().contains("\r\nretry-after: 1\r\n"), "{head}");
    let mut client = Client::connect(server.address).await?;
    assert_eq!(client.ask(&Request::get("/plain")).await?.status, 200);
    drop(first);
    wait_for_tunnels(&server, 0).await?;
    let (_, head) = switched(server.address, "/chat", b"").await?;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    Ok(())
}

#[tokio::test]
async fn a_tunnel_holds_a_connection_permit() -> anyhow::Result<()> {
    let origin = RawOrigin::start().await?;
    let settings = [("connections_max", "1"), ("fetch_timeout", "\"100ms\"")];
    let server = TestServer::start(origin.address, &settings).await?;
    let (mut tunnel, _) = switched(server.address, "/chat", b"").await?;
    expect(&mut tunnel, FIRST).await?;
    let mut client = Client::connect(server.address).await?;
    assert_eq!(client.ask(&Request::get("/plain")).await?.status, 503);
    drop(tunnel);
    wait_for_tunnels(&server, 0).await?;
    assert_eq!(client.ask(&Request::get("/plain")).await?.status, 200);
    Ok(())
}
