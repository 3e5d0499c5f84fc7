//! Request bodies that wait to be asked for, or come while their answer is on its way.

use std::net::SocketAddr;
use std::time::Duration;

use forebay_testkit::client::{Client, PATIENCE};
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::door::Door;

const EXPECTING: &[u8] = b"POST /x HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 4\r\n\
                           Expect: 100-continue\r\nConnection: close\r\n\r\n";

/// Sends a head, and waits for an answer to it before the body would be sent.
async fn first_answer(address: SocketAddr) -> anyhow::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(EXPECTING).await?;
    let mut room = [0; 1_024];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut room)).await??;
    Ok((stream, String::from_utf8_lossy(&room[..read]).into_owned()))
}

#[tokio::test]
async fn a_client_that_waits_with_its_body_is_told_to_go_on() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("done")).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let (mut stream, first) = first_answer(door.address).await?;
    assert_eq!(first, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"data").await?;
    let mut rest = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut rest)).await??;
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("\r\n\r\ndone"), "{rest}");
    assert_eq!(&origin.first()?.body[..], b"data");
    Ok(())
}

#[tokio::test]
async fn a_client_that_waits_with_a_body_nobody_wants_is_told_so() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("done")).await?;
    let door = Door::open(origin.address(), &[("hosts", "[\"other.example\"]")]).await?;
    let (_, first) = first_answer(door.address).await?;
    assert!(first.starts_with("HTTP/1.1 404 Not Found\r\n"), "{first}");
    assert_eq!(origin.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn a_large_body_is_streamed_both_ways_without_being_held() -> anyhow::Result<()> {
    const PIECES: usize = 64;
    let origin = Origin::start(|received| Answer::ok(received.body_length.to_string())).await?;
    let door = Door::open(origin.address(), &[("memory", "\"1MiB\"")]).await?;
    let mut client = Client::connect(door.address).await?;
    let length = PIECES << 20;
    let head = format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send_raw(head.as_bytes()).await?;
    for _ in 0..PIECES {
        client.send_raw(&vec![7; 1 << 20]).await?;
    }
    assert_eq!(client.reply().await?.text(), length.to_string());
    Ok(())
}

/// An origin may answer before it has read everything; the connection to the client then ends,
/// since the rest of the body is still on its way.
#[tokio::test]
async fn an_answer_that_comes_before_the_body_has_ended_is_passed_on() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let door = Door::open(listener.local_addr()?, &[]).await?;
    let origin = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut room = [0; 4_096];
        let _ = stream.read(&mut room).await?;
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await?;
        stream.shutdown().await?;
        anyhow::Ok(stream)
    });
    let mut client = Client::connect(door.address).await?;
    client.send_raw(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\ndata").await?;
    assert_eq!(client.reply().await?.status, 413);
    client.read_to_close().await?;
    origin.await??;
    Ok(())
}

/// The door bounds how slow a client may be; the origin's own time does not run meanwhile.
#[tokio::test]
async fn an_upload_may_take_longer_than_the_origin_may() -> anyhow::Result<()> {
    let origin = Origin::start(|received| match received.path() {
        "/hang" => Answer::hang(),
        _ => Answer::ok(received.body_length.to_string()),
    })
    .await?;
    let door = Door::open(origin.address(), &[("fetch_timeout", "\"400ms\"")]).await?;
    let mut client = Client::connect(door.address).await?;
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
