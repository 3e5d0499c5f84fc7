//! Clients that do not read what they asked for.

use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};

use crate::door::Door;

/// Far more than the sockets between us and a client hold.
const LARGE: usize = 12 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_up_nobody() -> anyhow::Result<()> {
    let answer = Answer::ok(vec![7; LARGE]).field("Cache-Control", "max-age=60");
    let origin = Origin::always(answer).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut lazy = Client::connect(door.address).await?;
    lazy.send(&Request::get("/a")).await?;
    let mut unread = lazy.head().await?;

    let mut eager = Client::connect(door.address).await?;
    for _ in 0..2 {
        let reply = eager.ask(&Request::get("/a")).await?;
        assert!(reply.ended_cleanly());
        assert_eq!(reply.body_length(), LARGE as u64);
    }
    assert_eq!(origin.requests(), 1);
    door.wait_metric("forebay_tier_entries{tier=\"memory\"} 1").await?;

    lazy.read_body(&mut unread).await?;
    assert!(unread.ended_cleanly());
    assert_eq!(unread.body_length(), LARGE as u64);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_within_an_answer_of_its_own_frees_the_origin() -> anyhow::Result<()> {
    let answer = Answer::ok(vec![7; LARGE]).field("Cache-Control", "no-store");
    let origin = Origin::always(answer).await?;
    let door = Door::open(origin.address(), &[("connections_max", "1")]).await?;
    for _ in 0..2 {
        let mut client = Client::connect(door.address).await?;
        client.send(&Request::get("/a")).await?;
        assert_eq!(client.head().await?.status, 200);
        drop(client);
    }
    origin.wait_for("two abandoned answers", |counts| counts.abandoned == 2).await
}
