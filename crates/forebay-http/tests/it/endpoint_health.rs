//! Tests of the health of endpoints: ejection, checks, and the panic rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use forebay_http::{Balance, EjectionSettings, HealthCheckSettings, SiteSettings};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin, Received};
use http::uri::PathAndQuery;

use crate::endpoints::{answer, balanced, server_of};
use crate::server::TestServer;

/// Path of the checks.
const CHECK: &str = "/healthz?deep";

const EJECTION: EjectionSettings = EjectionSettings {
    failures: 5,
    duration: Duration::from_secs(600),
    percent_max: 50,
    slow_start: Duration::ZERO,
};

fn checks() -> HealthCheckSettings {
    HealthCheckSettings {
        path: PathAndQuery::from_static(CHECK),
        every: Duration::from_millis(20),
        timeout: Duration::from_secs(10),
        healthy_after: 2,
        unhealthy_after: 3,
        statuses: vec![200..=299],
    }
}

/// Origin that answers 503 while a flag is set, and its flag.
async fn switchable(name: &'static str) -> anyhow::Result<(Origin, Arc<AtomicBool>)> {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let origin = Origin::start(move |_| match failing.load(Ordering::Relaxed) {
        true => Answer::status(503),
        false => answer(name),
    });
    Ok((origin.await?, fails))
}

/// Returns the number of requests that are not checks.
fn asked(origin: &Origin) -> usize {
    origin.received().iter().filter(|received| received.target != CHECK).count()
}

/// Sends GETs, and returns how many were answered with 200.
async fn ask(server: &TestServer, count: usize) -> anyhow::Result<usize> {
    let mut client = Client::connect(server.address).await?;
    let mut worked = 0;
    for number in 0..count {
        let reply = client.ask(&Request::get(&format!("/{number}"))).await?;
        worked += usize::from(reply.status == 200);
    }
    Ok(worked)
}

fn labels(origin: &Origin) -> String {
    format!("site=\"default\",endpoint=\"{}\"", origin.address())
}

async fn wait_state(server: &TestServer, origin: &Origin, state: u32) -> anyhow::Result<()> {
    server.wait_metric(&format!("forebay_endpoint_state{{{}}} {state}", labels(origin))).await
}

fn ejecting(origins: &[&Origin]) -> anyhow::Result<SiteSettings> {
    let mut settings = balanced(origins, Balance::Least)?;
    settings.origin.eject = EJECTION;
    Ok(settings)
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_ejected_after_five_failures() -> anyhow::Result<()> {
    let (a, _) = switchable("a").await?;
    let (b, _) = switchable("b").await?;
    let (gone, _) = switchable("gone").await?;
    let server = server_of(ejecting(&[&a, &b, &gone])?).await?;
    assert_eq!(ask(&server, 50).await?, 50);
    let labels = labels(&gone);
    drop(gone);
    assert_eq!(ask(&server, 200).await?, 195);
    let metrics = server.metrics();
    for line in [
        format!("forebay_origin_up{{{labels}}} 0"),
        format!("forebay_endpoint_state{{{labels}}} 2"),
        format!("forebay_endpoint_ejections_total{{{labels},reason=\"requests\"}} 1"),
        format!("forebay_origin_requests_total{{{labels},result=\"failed\"}} 5"),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
    Ok(())
}

#[tokio::test]
async fn an_ejection_survives_a_reload_and_ends() -> anyhow::Result<()> {
    let (a, _) = switchable("a").await?;
    let (b, fails) = switchable("b").await?;
    let server = server_of(ejecting(&[&a, &b])?).await?;
    fails.store(true, Ordering::Relaxed);
    assert_eq!(ask(&server, 100).await?, 95);
    assert_eq!(asked(&b), 5);
    let mut settings = ejecting(&[&b, &a])?;
    settings.origin.endpoints[1].weight = 2;
    server.service.reload(&[settings.clone()]);
    assert_eq!(ask(&server, 50).await?, 50);
    wait_state(&server, &b, 2).await?;
    assert_eq!(asked(&b), 5);
    // Removed and added again, it begins anew.
    fails.store(false, Ordering::Relaxed);
    server.service.reload(&[ejecting(&[&a])?]);
    server.service.reload(&[settings]);
    assert_eq!(ask(&server, 50).await?, 50);
    assert!(asked(&b) > 5);
    Ok(())
}

#[tokio::test]
async fn an_ejected_server_is_used_again_after_its_time() -> anyhow::Result<()> {
    let (a, _) = switchable("a").await?;
    let (b, fails) = switchable("b").await?;
    let mut settings = ejecting(&[&a, &b])?;
    let short = Duration::from_millis(200);
    settings.origin.eject = EjectionSettings { duration: short, slow_start: short, ..EJECTION };
    let server = server_of(settings).await?;
    fails.store(true, Ordering::Relaxed);
    while !server.metrics().contains("reason=\"requests\"} 1") {
        ask(&server, 1).await?;
    }
    fails.store(false, Ordering::Relaxed);
    wait_state(&server, &b, 0).await?;
    let before = asked(&b);
    assert_eq!(ask(&server, 100).await?, 100);
    assert!(asked(&b) > before + 20, "{}", asked(&b));
    Ok(())
}

#[tokio::test]
async fn a_failed_check_stops_requests_until_checks_pass_again() -> anyhow::Result<()> {
    let (a, _) = switchable("a").await?;
    let (b, fails) = switchable("b").await?;
    let mut settings = ejecting(&[&a, &b])?;
    settings.origin.health = Some(checks());
    let server = server_of(settings).await?;
    fails.store(true, Ordering::Relaxed);
    wait_state(&server, &b, 3).await?;
    let before = asked(&b);
    assert_eq!(ask(&server, 50).await?, 50);
    assert_eq!(asked(&b), before);
    let metrics = server.metrics();
    assert!(metrics.contains(&format!("forebay_origin_up{{{}}} 0", labels(&b))), "{metrics}");
    assert!(metrics.contains(&format!("{},reason=\"checks\"}} 1", labels(&b))), "{metrics}");
    fails.store(false, Ordering::Relaxed);
    wait_state(&server, &b, 0).await?;
    assert_eq!(ask(&server, 50).await?, 50);
    assert!(asked(&b) > before + 5, "{}", asked(&b));
    let received = b.received();
    let check = received.iter().find(|received| received.target == CHECK);
    let check = check.context("no check arrived")?;
    let host = b.address().to_string();
    assert_eq!(check.fields.first("host"), Some(&*host));
    assert_eq!(check.fields.first("user-agent"), Some("forebay-health-check"));
    Ok(())
}

/// The rest would be overloaded.
#[tokio::test]
async fn if_fewer_than_half_are_usable_all_get_requests() -> anyhow::Result<()> {
    let check_fails = |received: &Received| received.target == CHECK;
    let mut origins = Vec::new();
    for is_healthy in [true, false, false] {
        origins.push(
            Origin::start(move |received| match check_fails(received) && !is_healthy {
                true => Answer::status(500),
                false => answer("any"),
            })
            .await?,
        );
    }
    let [a, b, c] = &*origins else { unreachable!() };
    let mut settings = ejecting(&[a, b, c])?;
    settings.origin.health = Some(checks());
    let server = server_of(settings.clone()).await?;
    wait_state(&server, b, 3).await?;
    wait_state(&server, c, 3).await?;
    assert_eq!(ask(&server, 90).await?, 90);
    assert!([a, b, c].iter().all(|origin| asked(origin) > 10));
    // One usable server is enough if it is the only one that gets requests anyway.
    settings.origin.balance = Balance::First;
    settings.origin.endpoints.reverse();
    server.service.reload(&[settings]);
    let before = asked(b) + asked(c);
    assert_eq!(ask(&server, 20).await?, 20);
    assert_eq!(asked(b) + asked(c), before);
    Ok(())
}

#[tokio::test]
async fn a_single_server_gets_requests_although_its_checks_fail() -> anyhow::Result<()> {
    let (only, fails) = switchable("only").await?;
    let mut settings = ejecting(&[&only])?;
    let server = server_of(settings.clone()).await?;
    assert!(!server.metrics().contains("forebay_origin_up{"), "its state is not known");
    settings.origin.health = Some(checks());
    server.service.reload(&[settings]);
    fails.store(true, Ordering::Relaxed);
    wait_state(&server, &only, 3).await?;
    fails.store(false, Ordering::Relaxed);
    assert_eq!(ask(&server, 10).await?, 10);
    Ok(())
}

/// A server that accepts connections and does not answer fails its checks, too.
#[tokio::test]
async fn a_hung_server_fails_its_checks() -> anyhow::Result<()> {
    let (a, _) = switchable("a").await?;
    let hung = Origin::always(Answer::hang()).await?;
    let mut settings = ejecting(&[&a, &hung])?;
    let timeout = Duration::from_millis(100);
    settings.origin.health = Some(HealthCheckSettings { timeout, ..checks() });
    let server = server_of(settings).await?;
    wait_state(&server, &hung, 3).await?;
    assert_eq!(ask(&server, 20).await?, 20);
    assert_eq!(asked(&hung), 0);
    Ok(())
}
