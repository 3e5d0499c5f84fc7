//! Tests with many concurrent clients of one key.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_testkit::client::{Client, Reply, Request, crowd};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::server::TestServer;

/// Number of clients, each with its own cookie.
const CROWD: usize = 500;

/// Response that repeats the cookie of the request.
fn personal(received: &Received) -> Answer {
    Answer::ok(received.fields.first("cookie").unwrap_or("nobody").to_owned())
}

fn with_cookie(number: usize) -> Request {
    Request::get("/a").field("Cookie", format!("id={number}"))
}

async fn assert_responses_are_not_shared(
    answer: impl Fn(Answer) -> Answer + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let origin = Origin::start(move |received| answer(personal(received))).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let replies = crowd(CROWD, server.address, with_cookie).await?;
    for (number, reply) in replies.iter().enumerate() {
        assert_eq!((reply.status, &*reply.text()), (200, &*format!("id={number}")));
        assert_eq!(reply.field("age"), None);
    }
    assert_eq!(origin.requests(), CROWD as u64);
    assert_eq!(server.service.engine().memory().entries(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_store_responses_are_not_shared() -> anyhow::Result<()> {
    assert_responses_are_not_shared(|answer| answer.field("Cache-Control", "no-store")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_responses_are_not_shared() -> anyhow::Result<()> {
    assert_responses_are_not_shared(|answer| answer.field("Cache-Control", "private, max-age=60"))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_with_a_cookie_are_not_shared() -> anyhow::Result<()> {
    assert_responses_are_not_shared(|answer| {
        answer.field("Cache-Control", "max-age=60").field("Set-Cookie", "id=new")
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_an_uncacheable_key_do_not_wait_for_each_other() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = Origin::start({
        let gate = gate.clone();
        move |received| {
            let answer = personal(received).field("Cache-Control", "private");
            if received.serial == 1 { answer } else { answer.wait(&gate) }
        }
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    Client::connect(server.address).await?.ask(&with_cookie(0)).await?;
    let all_at_the_origin = async {
        origin.wait_requests(51).await?;
        gate.open();
        anyhow::Ok(())
    };
    let (replies, met) = tokio::join!(crowd(50, server.address, with_cookie), all_at_the_origin);
    met?;
    let bodies: BTreeSet<String> = replies?.iter().map(|reply| reply.text().into()).collect();
    assert_eq!(bodies.len(), 50);
    assert_eq!(origin.counts().in_flight_max, 50);
    Ok(())
}

/// Number of clients per variant.
const PER_VARIANT: usize = 10;

fn in_language(number: usize) -> Request {
    Request::get("/a").field("Accept-Language", format!("l{}", number % 10))
}

fn assert_languages(replies: &[Reply]) {
    for (number, reply) in replies.iter().enumerate() {
        assert_eq!((reply.status, &*reply.text()), (200, &*format!("l{}", number % 10)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_variants_are_ten_fetches_whether_or_not_vary_is_known() -> anyhow::Result<()> {
    const ALL: usize = 10 * PER_VARIANT;
    let gates = [Gate::new(), Gate::new()];
    let origin = Origin::start({
        let gates = gates.clone();
        move |received| {
            let language = received.fields.first("accept-language").unwrap_or("-").to_owned();
            let answer = Answer::ok(language)
                .field("Cache-Control", "max-age=60")
                .field("Vary", "Accept-Language");
            let round = usize::from(received.serial > 10);
            answer.wait(&gates[round])
        }
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    for (round, gate) in gates.iter().enumerate() {
        let open = async {
            server.wait_in_flight(ALL).await?;
            gate.open();
            anyhow::Ok(())
        };
        let (replies, opened) = tokio::join!(crowd(ALL, server.address, in_language), open);
        opened?;
        assert_languages(&replies?);
        assert_eq!(origin.requests(), 10 * (round as u64 + 1));
        server.clock.step(Duration::from_secs(61));
    }
    Ok(())
}
