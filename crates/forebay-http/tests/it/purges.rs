//! Tests of purges during a load.

use forebay_core::{Purge, Reach};
use forebay_semantics::Scheme;
use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::server::TestServer;

fn fresh(body: &'static str) -> Answer {
    Answer::ok(body).field("Cache-Control", "max-age=60").field("ETag", format!("\"{body}\""))
}

#[tokio::test]
async fn a_load_started_before_a_purge_is_neither_stored_nor_shared() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = Origin::in_turn(vec![fresh("old").wait(&gate), fresh("new")]).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut before = Client::connect(server.address).await?;
    before.send(&Request::get("/a")).await?;
    origin.wait_requests(1).await?;
    assert_eq!(
        server
            .service
            .purge_url(Scheme::Http, "Test.Example:80", "/a", Reach::Hard)
            .await
            .map(|purged| purged.found),
        Some(false)
    );

    let mut after = Client::connect(server.address).await?;
    assert_eq!(after.ask(&Request::get("/a")).await?.text(), "new");
    gate.open();
    // A newer stored response replaces the older one for waiting clients.
    assert_eq!(before.reply().await?.text(), "new");
    let reply = after.ask(&Request::get("/a")).await?;
    assert_eq!((&*reply.text(), reply.field("age")), ("new", Some("0")));
    assert_eq!(origin.requests(), 2);
    Ok(())
}

#[tokio::test]
async fn a_body_in_transfer_during_a_purge_is_not_stored() -> anyhow::Result<()> {
    let gate = Gate::new();
    let flowing = fresh("beginning end").hold_at(9, &gate);
    let origin = Origin::in_turn(vec![flowing, fresh("new")]).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut before = Client::connect(server.address).await?;
    before.send(&Request::get("/a")).await?;
    let mut reply = before.head().await?;
    before.read_body_until(&mut reply, 9).await?;
    assert_eq!(
        server
            .service
            .purge_url(Scheme::Http, "test.example", "/a", Reach::Hard)
            .await
            .map(|purged| purged.found),
        Some(false)
    );

    let mut after = Client::connect(server.address).await?;
    assert_eq!(after.ask(&Request::get("/a")).await?.text(), "new");
    gate.open();
    before.read_body(&mut reply).await?;
    assert!(reply.ended_cleanly());
    assert_eq!(reply.text(), "beginning end");
    assert_eq!(after.ask(&Request::get("/a")).await?.text(), "new");
    assert_eq!(origin.requests(), 2);
    Ok(())
}

/// A request for a key whose responses are not shared is sent before its load begins.
#[tokio::test]
async fn a_response_that_may_be_stored_again_is_not_stored_after_a_purge() -> anyhow::Result<()> {
    for (purge, requests) in [(None, 2), (Some("url"), 3), (Some("all"), 3)] {
        let gate = Gate::new();
        let own = Answer::ok("own").field("Cache-Control", "no-store");
        let answers = vec![own, fresh("old").wait(&gate), fresh("new")];
        let origin = Origin::in_turn(answers).await?;
        let server = TestServer::start(origin.address(), &[]).await?;
        let mut client = Client::connect(server.address).await?;
        assert_eq!(client.ask(&Request::get("/a")).await?.text(), "own");
        client.send(&Request::get("/a")).await?;
        origin.wait_requests(2).await?;
        match purge {
            Some("url") => {
                let (scheme, host) = (Scheme::Http, "test.example");
                server.service.purge_url(scheme, host, "/a", Reach::Hard).await;
            }
            Some(_) => {
                server.service.engine().purge(&Purge::All, Reach::Hard).await;
            }
            None => {}
        }
        gate.open();
        assert_eq!(client.reply().await?.text(), "old");
        let expected = if purge.is_some() { "new" } else { "old" };
        for _ in 0..2 {
            assert_eq!(client.ask(&Request::get("/a")).await?.text(), expected, "{purge:?}");
        }
        assert_eq!(origin.requests(), requests, "{purge:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_soft_purged_entry_is_revalidated() -> anyhow::Result<()> {
    let unchanged = Answer::status(304).field("ETag", "\"a\"").field("Cache-Control", "max-age=60");
    let origin = Origin::in_turn(vec![fresh("a"), unchanged]).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    client.ask(&Request::get("/a")).await?;
    assert_eq!(
        server
            .service
            .purge_url(Scheme::Http, "test.example", "/a", Reach::Soft)
            .await
            .map(|purged| purged.found),
        Some(true)
    );
    let reply = client.ask(&Request::get("/a")).await?;
    assert_eq!(
        (&*reply.text(), reply.field("cache-status")),
        ("a", Some("forebay; fwd=stale; fwd-status=304; stored; ttl=60; detail=soft-purged"))
    );
    assert_eq!(origin.counts().conditional, 1);
    assert_eq!(
        server
            .service
            .purge_url(Scheme::Http, "test.example", "/a", Reach::Soft)
            .await
            .map(|purged| purged.found),
        Some(true)
    );
    // `max-stale` does not accept an entry that was soft-purged.
    client.ask(&Request::get("/a").field("Cache-Control", "max-stale")).await?;
    assert_eq!(origin.counts().conditional, 2);
    assert_eq!(client.ask(&Request::get("/a")).await?.field("age"), Some("0"));
    assert_eq!(origin.requests(), 3);
    Ok(())
}

#[tokio::test]
async fn soft_purged_variants_are_revalidated() -> anyhow::Result<()> {
    let of = |received: &Received| {
        let language = received.fields.first("accept-language").unwrap_or("none");
        let (body, tag) = (language.to_owned(), format!("\"{language}\""));
        let answer = match received.fields.first("if-none-match") {
            Some(_) => Answer::status(304),
            None => Answer::ok(body),
        };
        let answer = answer.field("Cache-Control", "max-age=60").field("ETag", tag);
        answer.field("Vary", "Accept-Language")
    };
    let origin = Origin::start(of).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    let in_language = |language| Request::get("/a").field("Accept-Language", language);
    for language in ["de", "fr"] {
        client.ask(&in_language(language)).await?;
    }
    for reach in [Reach::Soft, Reach::Hard] {
        let purged = server.service.purge_url(Scheme::Http, "test.example", "/a", reach).await;
        assert_eq!(purged.map(|purged| purged.found), Some(true), "{reach:?}");
        let before = origin.counts().conditional;
        for language in ["de", "fr"] {
            let reply = client.ask(&in_language(language)).await?;
            assert_eq!((reply.status, &*reply.text()), (200, language), "{reach:?}");
            let status = reply.field("cache-status").unwrap_or_default();
            assert_eq!(status.contains("detail=soft-purged"), reach == Reach::Soft, "{status}");
            let hit = client.ask(&in_language(language)).await?;
            assert_eq!(hit.field("cache-status"), Some("forebay; hit; ttl=60"), "{reach:?}");
        }
        let conditional = if reach == Reach::Soft { 2 } else { 0 };
        assert_eq!(origin.counts().conditional - before, conditional, "{reach:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_complete_response_to_a_range_is_not_stored_after_a_purge() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = Origin::in_turn(vec![fresh("old").wait(&gate), fresh("new")]).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut before = Client::connect(server.address).await?;
    before.send(&Request::get("/a").field("Range", "bytes=-2")).await?;
    origin.wait_requests(1).await?;
    server.service.purge_url(Scheme::Http, "test.example", "/a", Reach::Hard).await;
    gate.open();
    assert_eq!(before.reply().await?.text(), "ld");
    let mut after = Client::connect(server.address).await?;
    assert_eq!(after.ask(&Request::get("/a")).await?.text(), "new");
    assert_eq!(origin.requests(), 2);
    Ok(())
}
