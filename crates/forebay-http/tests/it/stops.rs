//! What becomes of connections when the service is told to stop.

use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin};

use crate::door::Door;

#[tokio::test]
async fn idle_connections_end_at_once_and_others_with_their_answer() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = Origin::always(Answer::ok("hello").wait(&gate)).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut idle = Client::connect(door.address).await?;
    let mut busy = Client::connect(door.address).await?;
    busy.send(&Request::get("/a")).await?;
    origin.wait_requests(1).await?;
    door.stop();
    assert_eq!(&idle.read_to_close().await?.bytes[..], b"");
    gate.open();
    let reply = busy.reply().await?;
    assert_eq!((&*reply.text(), reply.field("connection")), ("hello", Some("close")));
    assert_eq!(busy.read_to_close().await?.broke, None);
    Ok(())
}
