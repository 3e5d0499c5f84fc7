//! Tests of `Expect: 100-continue`, and of responses during an upload.

use std::net::SocketAddr;
use std::time::Duration;

use forebay_testkit::client::{Client, PATIENCE};
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::TestServer;

const EXPECTING: &[u8] = b"POST /x HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 4\r\n\
                           Expect: 100-continue\r\nConnection: close\r\n\r\n";

/// Sends a head, and returns the connection with the first response to it.
async fn first_answer(address: SocketAddr) -> anyhow::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(EXPECTING).await?;
    let mut buffer = [0; 1_024];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await??;
    Ok((stream, String::from_utf8_lossy(&buffer[..read]).into_owned()))
}

#[tokio::test]
async fn an_expecting_client_gets_100_continue() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("done")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let (mut stream, first) = first_answer(server.address).await?;
    assert_eq!(first, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"data").await?;
    let mut rest = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut rest)).await??;
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("\r\n\r\ndone"), "{rest}");
    assert_eq!(&origin.first()?.body[..], b"data");
    Ok(())
}

#[tokio::test]
async fn an_expectation_for_a_rejected_request_gets_the_final_response() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("done")).await?;
    let server = TestServer::start(origin.address(), &[("hosts", "[\"other.example\"]")]).await?;
    let (_, first) = first_answer(server.address).await?;
    assert!(first.starts_with("HTTP/1.1 404 Not Found\r\n"), "{first}");
    assert_eq!(origin.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn a_large_upload_is_streamed_without_buffering() -> anyhow::Result<()> {
    const PIECES: usize = 64;
    let origin = Origin::start(|received| Answer::ok(received.body_length.to_string())).await?;
    let server = TestServer::start(origin.address(), &[("memory", "\"1MiB\"")]).await?;
    let mut client = Client::connect(server.address).await?;
    let length = PIECES << 20;
    let head = format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send_raw(head.as_bytes()).await?;
    for _ in 0..PIECES {
        client.send_raw(&vec![7; 1 << 20]).await?;
    }
    assert_eq!(client.reply().await?.text(), length.to_string());
    Ok(())
}

/// An origin may respond before it has read the whole body. The connection to the client then
/// closes, because the rest of the body is still arriving.
#[tokio::test]
async fn a_response_before_the_end_of_the_upload_is_forwarded() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = TestServer::start(listener.local_addr()?, &[]).await?;
    let origin = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut buffer = [0; 4_096];
        let _ = stream.read(&mut buffer).await?;
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await?;
        stream.shutdown().await?;
        anyhow::Ok(stream)
    });
    let mut client = Client::connect(server.address).await?;
    client.send_raw(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\ndata").await?;
    assert_eq!(client.reply().await?.status, 413);
    client.read_to_close().await?;
    origin.await??;
    Ok(())
}

/// The client timeouts bound a slow upload; the fetch timeout does not run meanwhile.
#[tokio::test]
async fn an_upload_may_take_longer_than_the_fetch_timeout() -> anyhow::Result<()> {
    let origin = Origin::start(|received| match received.path() {
        "/hang" => Answer::hang(),
        _ => Answer::ok(received.body_length.to_string()),
    })
    .await?;
    let server = TestServer::start(origin.address(), &[("fetch_timeout", "\"400ms\"")]).await?;
    let mut client = Client::connect(server.address).await?;
    client.send_raw(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n").await?;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.send_raw(b"x").await?;
    }
    let reply = client.reply().await?;
    assert_eq!((reply.status, &*reply.text()), (200, "4"));
    client.send_raw(b"PUT /hang HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").await?;
    assert_eq!(client.reply().await?.status, 504);
    Ok(())
}
