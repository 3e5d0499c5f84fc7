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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_read_nothing_of_their_own_answers_leave_room_for_what_is_shared()
-> anyhow::Result<()> {
    let origin = Origin::start(|asked| {
        let (body, said) = match asked.target.as_str() {
            "/shared" => (1, "max-age=60"),
            _ => (LARGE, "no-store"),
        };
        Answer::ok(vec![7; body]).field("Cache-Control", said)
    })
    .await?;
    // Three of four connections may serve a single client each.
    let door = Door::open(origin.address(), &[("connections_max", "4")]).await?;
    let mut lazy = Vec::new();
    for number in 0..3 {
        let mut client = Client::connect(door.address).await?;
        client.send(&Request::get(&format!("/own/{number}"))).await?;
        assert_eq!(client.head().await?.status, 200);
        lazy.push(client);
    }
    let mut eager = Client::connect(door.address).await?;
    let refused = eager.ask(&Request::get("/own/3")).await?;
    assert_eq!(refused.status, 503, "it was not known to be for one client, so it did not wait");
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(eager.ask(&Request::get("/shared")).await?.status, 200);
    lazy.pop();
    origin.wait_for("one abandoned answer", |counts| counts.abandoned >= 1).await?;
    let mut reply = eager.ask(&Request::get("/own/3")).await?;
    while reply.status == 503 {
        reply = eager.ask(&Request::get("/own/3")).await?;
    }
    assert_eq!((reply.status, reply.body_length()), (200, LARGE as u64));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_answer_of_ones_own_holds_no_connection_however_slowly_it_is_read()
-> anyhow::Result<()> {
    let answer = Answer::ok(vec![7; 10 << 10]).field("Cache-Control", "no-store");
    let origin = Origin::always(answer).await?;
    let door = Door::open(origin.address(), &[("connections_max", "1")]).await?;
    let mut lazy = Vec::new();
    for number in 0..20 {
        let mut client = Client::connect(door.address).await?;
        client.send(&Request::get(&format!("/own/{number}"))).await?;
        assert_eq!(client.head().await?.status, 200);
        lazy.push(client);
    }
    assert_eq!(origin.requests(), 20);
    Ok(())
}
