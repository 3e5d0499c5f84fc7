//! Purges while answers are on their way.

use forebay_core::Reach;
use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin};

use crate::door::Door;

fn fresh(body: &'static str) -> Answer {
    Answer::ok(body).field("Cache-Control", "max-age=60").field("ETag", format!("\"{body}\""))
}

#[tokio::test]
async fn what_departed_before_a_purge_is_neither_stored_nor_shared_after_it() -> anyhow::Result<()>
{
    let gate = Gate::new();
    let origin = Origin::in_turn(vec![fresh("old").wait(&gate), fresh("new")]).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut before = Client::connect(door.address).await?;
    before.send(&Request::get("/a")).await?;
    origin.wait_requests(1).await?;
    assert_eq!(
        door.service
            .purge_url("Test.Example:80", "/a", Reach::Hard)
            .await
            .map(|purged| purged.found),
        Some(false)
    );

    let mut after = Client::connect(door.address).await?;
    assert_eq!(after.ask(&Request::get("/a")).await?.text(), "new");
    gate.open();
    assert_eq!(before.reply().await?.text(), "old");
    let reply = after.ask(&Request::get("/a")).await?;
    assert_eq!((&*reply.text(), reply.field("age")), ("new", Some("0")));
    assert_eq!(origin.requests(), 2);
    Ok(())
}

#[tokio::test]
async fn a_body_that_flows_during_a_purge_ends_for_its_readers_only() -> anyhow::Result<()> {
    let gate = Gate::new();
    let flowing = fresh("beginning end").hold_at(9, &gate);
    let origin = Origin::in_turn(vec![flowing, fresh("new")]).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut before = Client::connect(door.address).await?;
    before.send(&Request::get("/a")).await?;
    let mut reply = before.head().await?;
    before.read_body_until(&mut reply, 9).await?;
    assert_eq!(
        door.service.purge_url("test.example", "/a", Reach::Hard).await.map(|purged| purged.found),
        Some(false)
    );

    let mut after = Client::connect(door.address).await?;
    assert_eq!(after.ask(&Request::get("/a")).await?.text(), "new");
    gate.open();
    before.read_body(&mut reply).await?;
    assert!(reply.ended_cleanly());
    assert_eq!(reply.text(), "beginning end");
    assert_eq!(after.ask(&Request::get("/a")).await?.text(), "new");
    assert_eq!(origin.requests(), 2);
    Ok(())
}

#[tokio::test]
async fn after_a_soft_purge_the_origin_is_asked_whether_it_changed() -> anyhow::Result<()> {
    let unchanged = Answer::status(304).field("ETag", "\"a\"").field("Cache-Control", "max-age=60");
    let origin = Origin::in_turn(vec![fresh("a"), unchanged]).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut client = Client::connect(door.address).await?;
    client.ask(&Request::get("/a")).await?;
    assert_eq!(
        door.service.purge_url("test.example", "/a", Reach::Soft).await.map(|purged| purged.found),
        Some(true)
    );
    let reply = client.ask(&Request::get("/a")).await?;
    assert_eq!(
        (&*reply.text(), reply.field("cache-status")),
        ("a", Some("forebay; fwd=stale; fwd-status=304; stored; ttl=60; detail=soft-purged"))
    );
    assert_eq!(origin.counts().conditional, 1);
    assert_eq!(
        door.service.purge_url("test.example", "/a", Reach::Soft).await.map(|purged| purged.found),
        Some(true)
    );
    // Who accepts stale answers has not accepted one that is known to be outdated.
    client.ask(&Request::get("/a").field("Cache-Control", "max-stale")).await?;
    assert_eq!(origin.counts().conditional, 2);
    assert_eq!(client.ask(&Request::get("/a")).await?.field("age"), Some("0"));
    assert_eq!(origin.requests(), 3);
    Ok(())
}

#[tokio::test]
async fn a_whole_answer_to_a_range_that_a_purge_overtook_is_not_stored() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = Origin::in_turn(vec![fresh("old").wait(&gate), fresh("new")]).await?;
    let door = Door::open(origin.address(), &[]).await?;
    let mut before = Client::connect(door.address).await?;
    before.send(&Request::get("/a").field("Range", "bytes=-2")).await?;
    origin.wait_requests(1).await?;
    door.service.purge_url("test.example", "/a", Reach::Hard).await;
    gate.open();
    assert_eq!(before.reply().await?.text(), "ld");
    let mut after = Client::connect(door.address).await?;
    assert_eq!(after.ask(&Request::get("/a")).await?.text(), "new");
    assert_eq!(origin.requests(), 2);
    Ok(())
}
