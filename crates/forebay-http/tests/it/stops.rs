//! Tests of connections during a shutdown.

use forebay_http::Phase;
use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin};

use crate::server::TestServer;

#[tokio::test]
async fn a_stop_closes_idle_connections_at_once_and_others_after_their_response()
-> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = Origin::always(Answer::ok("hello").wait(&gate)).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut idle = Client::connect(server.address).await?;
    let mut busy = Client::connect(server.address).await?;
    busy.send(&Request::get("/a")).await?;
    origin.wait_requests(1).await?;
    server.stop();
    assert_eq!(&idle.read_to_close().await?.bytes[..], b"");
    gate.open();
    let reply = busy.reply().await?;
    assert_eq!((&*reply.text(), reply.field("connection")), ("hello", Some("close")));
    assert_eq!(busy.read_to_close().await?.broke, None);
    Ok(())
}

#[tokio::test]
async fn a_response_that_is_not_shared_arrives_after_the_stop() -> anyhow::Result<()> {
    for (second, status) in [("no-store", 200), ("max-age=60", 200), ("no-store", 503)] {
        let gate = Gate::new();
        let own =
            |said: &str, status| Answer::status(status).body("own").field("Cache-Control", said);
        let answers = vec![own("no-store", 200), own(second, status).wait(&gate)];
        let origin = Origin::in_turn(answers).await?;
        let server = TestServer::start(origin.address(), &[]).await?;
        let mut client = Client::connect(server.address).await?;
        client.ask(&Request::get("/a")).await?;
        client.send(&Request::get("/a")).await?;
        origin.wait_requests(2).await?;
        server.service.enter(Phase::Draining);
        server.stop();
        tokio::task::yield_now().await;
        gate.open();
        let reply = client.reply().await?;
        assert_eq!((reply.status, &*reply.text()), (status, "own"), "{second}");
        assert_eq!(reply.field("connection"), Some("close"));
        assert_eq!(client.read_to_close().await?.broke, None);
    }
    Ok(())
}
