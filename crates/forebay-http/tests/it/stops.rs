//! Tests of connections during a shutdown.

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
