//! Tests of the limit on concurrent requests to an origin, and of the order of those that wait.

use std::time::Duration;

use forebay_core::{Allowance, CallRules, CallWindow};
use forebay_http::{BreakerSettings, BudgetSettings};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin, Received};
use tokio::task::JoinHandle;

use crate::endpoints::server_of;
use crate::server::{TestServer, site};

/// Origin whose answers for paths that begin with `/busy` wait for the gate.
async fn gated(gate: &Gate) -> anyhow::Result<Origin> {
    let gate = gate.clone();
    let origin = Origin::start(move |received| {
        let soft = "max-age=0, stale-while-revalidate=600";
        match received.path() {
            path if path.starts_with("/busy") => {
                Answer::ok("busy").field("Cache-Control", "no-store").wait(&gate)
            }
            "/stale" => Answer::ok("stale").field("Cache-Control", soft),
            _ => Answer::ok("fresh").field("Cache-Control", "max-age=600"),
        }
    });
    Ok(origin.await?)
}

/// Sends a request on a connection of its own; the task returns the status.
fn ask(server: &TestServer, request: Request) -> JoinHandle<anyhow::Result<u16>> {
    let address = server.address;
    tokio::spawn(async move { Ok(Client::connect(address).await?.ask(&request).await?.status) })
}

/// Waits until the metrics have this line.
async fn wait_for_metric(server: &TestServer, line: &str) -> anyhow::Result<()> {
    let waiting = async {
        while !server.metrics().lines().any(|have| have == line) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    waited.map_err(|_| anyhow::anyhow!("no metric {line}:\n{}", server.metrics()))
}

async fn wait_for_queue(server: &TestServer, length: usize) -> anyhow::Result<()> {
    wait_for_metric(server, &format!("forebay_origin_waiting{{site=\"default\"}} {length}")).await
}

#[tokio::test]
async fn concurrent_requests_are_bounded_and_the_others_wait() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = gated(&gate).await?;
    let server = TestServer::start(origin.address(), &[("requests_max", "2")]).await?;
    let busy = |number| Request::get(&format!("/busy/{number}"));
    let asked: Vec<_> = (0..6).map(|number| ask(&server, busy(number))).collect();
    origin.wait_requests(2).await?;
    wait_for_queue(&server, 4).await?;
    let metrics = server.metrics();
    for line in [
        "forebay_origin_limit{site=\"default\"} 2",
        "forebay_origin_in_flight{site=\"default\"} 2",
        "forebay_origin_admissions_total{site=\"default\",result=\"at-once\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    gate.open();
    for status in asked {
        assert_eq!(status.await??, 200);
    }
    assert_eq!(origin.requests(), 6);
    assert!(origin.counts().in_flight_max <= 2, "{:?}", origin.counts());
    wait_for_metric(
        &server,
        "forebay_origin_admissions_total{site=\"default\",result=\"queued\"} 4",
    )
    .await?;
    wait_for_metric(&server, "forebay_origin_in_flight{site=\"default\"} 0").await
}

#[tokio::test]
async fn a_request_that_is_not_admitted_in_time_gets_503() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = gated(&gate).await?;
    let settings = [("requests_max", "1"), ("fetch_timeout", "\"100ms\"")];
    let server = TestServer::start(origin.address(), &settings).await?;
    let busy = ask(&server, Request::get("/busy"));
    origin.wait_requests(1).await?;
    assert_eq!(ask(&server, Request::get("/other")).await??, 503);
    gate.open();
    let _ = busy.await?;
    assert_eq!(origin.requests_to("/other"), 0);
    assert!(
        server
            .metrics()
            .contains("forebay_origin_admissions_total{site=\"default\",result=\"timed-out\"} 1")
    );
    // The request that gave up does not hold a place.
    assert_eq!(ask(&server, Request::get("/third")).await??, 200);
    Ok(())
}

#[tokio::test]
async fn requests_of_waiting_clients_go_before_refreshes_and_warm_ups() -> anyhow::Result<()> {
    let gate = Gate::new();
    let origin = gated(&gate).await?;
    let server = TestServer::start(origin.address(), &[("requests_max", "1")]).await?;
    assert_eq!(ask(&server, Request::get("/stale")).await??, 200);
    let busy = ask(&server, Request::get("/busy"));
    origin.wait_requests(2).await?;
    let mut asked = Vec::new();
    let background = |path| Request::get(path).field("Priority", "u=7");
    for (waiting, request) in [
        background("/warm"),
        background("/warm-and-wanted"),
        Request::get("/stale"),
        Request::get("/wanted"),
    ]
    .into_iter()
    .enumerate()
    {
        asked.push(ask(&server, request));
        wait_for_queue(&server, waiting + 1).await?;
    }
    // A second client waits for this load, which then goes before all others.
    asked.push(ask(&server, Request::get("/warm-and-wanted")));
    wait_for_metric(&server, "forebay_in_flight{site=\"default\"} 5").await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    gate.open();
    for status in asked.into_iter().chain([busy]) {
        assert_eq!(status.await??, 200);
    }
    origin.wait_requests(6).await?;
    let received = origin.received();
    let order: Vec<&str> = received.iter().skip(2).map(Received::path).collect();
    assert_eq!(order, ["/warm-and-wanted", "/wanted", "/stale", "/warm"]);
    Ok(())
}

#[tokio::test]
async fn an_overloaded_origin_lowers_the_adaptive_limit() -> anyhow::Result<()> {
    let busy = Answer::status(503).field("Cache-Control", "no-store");
    let origin = Origin::always(busy).await?;
    let server = TestServer::start(origin.address(), &[("adaptive", "true")]).await?;
    assert!(server.metrics().contains("forebay_origin_limit{site=\"default\"} 32"));
    assert_eq!(ask(&server, Request::get("/a")).await??, 503);
    assert!(server.metrics().contains("forebay_origin_limit{site=\"default\"} 28"));
    Ok(())
}

/// Server whose budget is one request at a time, without other instances.
async fn with_one_slot(origin: &Origin) -> anyhow::Result<TestServer> {
    let mut settings = site(origin.address())?;
    let total = Allowance { slots: 1, ..Allowance::UNBOUNDED };
    settings.origin.budget = Some(BudgetSettings { total, shared: None });
    settings.fetch_timeout = Duration::from_millis(300);
    server_of(settings).await
}

#[tokio::test]
async fn over_budget_clients_get_stale_responses_at_once() -> anyhow::Result<()> {
    let gate = Gate::new();
    let waits = gate.clone();
    let origin = Origin::start(move |received| match received.path() {
        "/busy" => Answer::ok("busy").field("Cache-Control", "no-store").wait(&waits),
        _ => Answer::ok("usable").field("Cache-Control", "max-age=1, stale-if-error=600"),
    });
    let origin = origin.await?;
    let server = with_one_slot(&origin).await?;
    assert_eq!(ask(&server, Request::get("/usable")).await??, 200);
    server.clock.step(Duration::from_secs(2));
    let busy = ask(&server, Request::get("/busy"));
    origin.wait_requests(2).await?;
    let mut client = Client::connect(server.address).await?;
    let stale = client.ask(&Request::get("/usable")).await?;
    assert_eq!((stale.status, stale.body()), (200, &b"usable"[..]));
    let status = stale.field("cache-status").unwrap_or_default();
    assert!(status.contains("detail=load-failed"), "{status}");
    let label = "forebay_origin_admissions_total{site=\"default\",result=\"over-budget\"}";
    assert!(server.metrics().contains(&format!("{label} 1")), "no wait");
    let metrics = server.metrics();
    for line in [
        &format!("{label} 1"),
        "forebay_origin_budget{site=\"default\",part=\"in_flight\"} 1.0",
        "forebay_loads_total{site=\"default\",result=\"over-budget\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    gate.open();
    let _ = busy.await?;
    assert_eq!(ask(&server, Request::get("/new")).await??, 200);
    assert_eq!(origin.counts().in_flight_max, 1);
    Ok(())
}

/// A request that waits for its turn says nothing about the origin.
#[tokio::test]
async fn a_wait_for_the_limit_does_not_open_the_breaker() -> anyhow::Result<()> {
    let answer = Answer::ok("x").field("Cache-Control", "no-store");
    let origin = Origin::always(answer.delay(Duration::from_millis(50))).await?;
    let mut settings = site(origin.address())?;
    settings.origin.in_flight_max = Some(1);
    settings.origin.breaker = Some(BreakerSettings {
        rules: CallRules {
            failed_percent: 50,
            calls_min: 3,
            window: CallWindow::Time(Duration::from_secs(600)),
            slow_call: Duration::from_millis(400),
            slow_percent: 50,
            open_for: Duration::from_secs(600),
            trials: 1,
        },
        failure_statuses: vec![503],
    });
    let server = server_of(settings).await?;
    // The last of them waits for a second.
    let asked: Vec<_> =
        (0..20).map(|number| ask(&server, Request::get(&format!("/{number}")))).collect();
    for status in asked {
        assert_eq!(status.await??, 200);
    }
    assert_eq!(origin.requests(), 20);
    Ok(())
}
