//! Tests of the circuit breaker of a site.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{CallRules, CallWindow};
use forebay_http::{BreakerSettings, Fallback, SiteSettings};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};
use http::{HeaderValue, StatusCode};
use tokio::task::JoinSet;

use crate::server::{TestServer, site};

/// Limit of each wait, far below `fetch_timeout`.
const PROMPT: Duration = Duration::from_secs(10);

const RULES: CallRules = CallRules {
    failed_percent: 50,
    calls_min: 3,
    window: CallWindow::Time(Duration::from_secs(60)),
    slow_call: Duration::from_millis(200),
    slow_percent: 80,
    open_for: Duration::from_secs(600),
    trials: 1,
};

async fn server_with(origin: &Origin, rules: CallRules) -> anyhow::Result<TestServer> {
    let server = TestServer::start(origin.address(), &[]).await?;
    server.service.reload(&[with_breaker(site(origin.address())?, rules)]);
    Ok(server)
}

fn with_breaker(mut settings: SiteSettings, rules: CallRules) -> SiteSettings {
    let failure_statuses = vec![502, 503, 504];
    settings.origin.breaker = Some(BreakerSettings { rules, failure_statuses });
    settings.fetch_timeout = Duration::from_secs(60);
    settings
}

/// A hung origin would cost each URL its whole `fetch_timeout`. All who wait for it are released,
/// those who follow a load as well.
#[tokio::test]
async fn a_hung_origin_opens_the_breaker_while_its_calls_still_run() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let server = server_with(&origin, RULES).await?;
    let mut clients = JoinSet::new();
    for number in 0..12 {
        let address = server.address;
        clients.spawn(async move {
            let target = format!("/{}", number % 4);
            Client::connect(address).await?.ask(&Request::get(&target)).await
        });
    }
    while let Some(reply) = tokio::time::timeout(PROMPT, clients.join_next()).await? {
        let reply = reply??;
        let fields = reply.field("cache-status").unwrap_or_default().to_owned();
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("600")), "{fields}");
        assert!(fields.ends_with("detail=breaker-open"), "{fields}");
    }
    assert!(server.metrics().contains("forebay_origin_state{site=\"default\"} 2"));
    let asked = origin.requests();
    let mut client = Client::connect(server.address).await?;
    for request in [Request::get("/new"), Request::new("POST", "/post").body("data")] {
        let reply = tokio::time::timeout(PROMPT, client.ask(&request)).await??;
        assert_eq!(reply.status, 503);
    }
    assert_eq!(origin.requests(), asked, "an open breaker rejects without asking");
    Ok(())
}

#[tokio::test]
async fn an_open_breaker_serves_stale_responses_and_the_fallback() -> anyhow::Result<()> {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let origin = Origin::start(move |_| match failing.load(Ordering::Relaxed) {
        true => Answer::status(503),
        false => Answer::ok("old").field("Cache-Control", "max-age=60, stale-if-error=600"),
    })
    .await?;
    let server = server_with(&origin, RULES).await?;
    let mut client = Client::connect(server.address).await?;
    assert_eq!(client.ask(&Request::get("/stored")).await?.status, 200);
    server.clock.step(Duration::from_secs(61));
    fails.store(true, Ordering::Relaxed);
    for target in ["/a", "/b", "/c"] {
        assert_eq!(client.ask(&Request::get(target)).await?.status, 503);
    }
    let asked = origin.requests();
    let reply = client.ask(&Request::get("/stored")).await?;
    assert_eq!((reply.status, &*reply.text()), (200, "old"));
    let mut settings = with_breaker(site(origin.address())?, RULES);
    settings.fallback = Some(Fallback {
        status: StatusCode::OK,
        body: Bytes::from_static(b"soon"),
        content_type: HeaderValue::from_static("text/html"),
        retry_after: Duration::from_secs(7),
    });
    // The breaker survives the reload.
    server.service.reload(&[settings]);
    let reply = client.ask(&Request::get("/d")).await?;
    assert_eq!((reply.status, &*reply.text()), (200, "soon"));
    let fields = (reply.field("content-type"), reply.field("retry-after"));
    assert_eq!(fields, (Some("text/html"), Some("7")));
    assert_eq!(origin.requests(), asked);
    Ok(())
}

#[tokio::test]
async fn a_trial_closes_the_breaker_when_the_origin_works_again() -> anyhow::Result<()> {
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let origin = Origin::start(move |_| match failing.load(Ordering::Relaxed) {
        true => Answer::status(503),
        false => Answer::ok("new").field("Cache-Control", "no-store"),
    })
    .await?;
    let rules = CallRules { open_for: Duration::from_millis(300), ..RULES };
    let server = server_with(&origin, rules).await?;
    let mut client = Client::connect(server.address).await?;
    for target in ["/a", "/b", "/c"] {
        assert_eq!(client.ask(&Request::get(target)).await?.status, 503);
    }
    assert_eq!(origin.requests(), 3);
    fails.store(false, Ordering::Relaxed);
    let recovered = async {
        for number in 0.. {
            let reply = client.ask(&Request::get(&format!("/again/{number}"))).await?;
            if reply.status == 200 {
                break;
            }
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PROMPT, recovered).await??;
    assert_eq!(origin.requests(), 5, "three failures, one trial, one answer");
    assert!(server.metrics().contains("forebay_origin_state{site=\"default\"} 0"));
    Ok(())
}
