//! Tests of clients that shut down their write side after the request.

use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin};
use tokio::time::Duration;

use crate::server::TestServer;

#[tokio::test]
async fn a_client_that_sends_no_more_gets_all_responses() -> anyhow::Result<()> {
    let gate = Gate::new();
    let shown = gate.clone();
    let origin = Origin::start(move |received| {
        let answer = Answer::ok(vec![b'x'; 300_000]).wait(&shown);
        match received.path() {
            "/pass" => answer.field("Cache-Control", "no-store"),
            _ => answer.field("Cache-Control", "max-age=60"),
        }
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let requests = [
        vec![Request::get("/miss")],
        vec![Request::get("/pass")],
        vec![Request::new("POST", "/pass").body("data")],
        vec![Request::get("/first"), Request::get("/pass"), Request::get("/second")],
    ];
    let mut clients = Vec::new();
    for requests in &requests {
        let mut client = Client::connect(server.address).await?;
        for request in requests {
            client.send(request).await?;
        }
        client.finish().await?;
        clients.push(client);
    }
    origin.wait_requests(4).await?;
    // The ends of the connections arrive before the responses.
    tokio::time::sleep(Duration::from_millis(50)).await;
    gate.open();
    for (client, requests) in clients.iter_mut().zip(&requests) {
        for request in requests {
            let reply = client.reply().await?;
            assert_eq!((reply.status, reply.body_length()), (200, 300_000), "{request:?}");
        }
        let closed = client.read_to_close().await?;
        assert_eq!((closed.bytes.len(), closed.broke), (0, None), "{requests:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_has_gone_after_its_half_close_frees_the_origin_connection()
-> anyhow::Result<()> {
    let answer = Answer::ok(vec![7; 12 << 20]).field("Cache-Control", "no-store");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    client.send(&Request::get("/a")).await?;
    client.finish().await?;
    assert_eq!(client.head().await?.status, 200);
    drop(client);
    origin.wait_for("an abandoned answer", |counts| counts.abandoned == 1).await
}

#[tokio::test]
async fn a_request_that_ends_early_ends_the_connection() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a")).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    for bytes in ["\r\n", "GET / HT", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"] {
        let mut client = Client::connect(server.address).await?;
        client.send_raw(bytes.as_bytes()).await?;
        client.finish().await?;
        let closed = client.read_to_close().await?;
        assert!(!closed.bytes.starts_with(b"HTTP/1.1 200"), "{bytes:?}: {:?}", closed.bytes);
    }
    Ok(())
}
