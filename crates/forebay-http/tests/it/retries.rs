//! Tests of retries and of their budget.

use std::time::Duration;

use forebay_http::{Balance, EjectionSettings, RetryOn, RetrySettings, SiteSettings};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};

use crate::endpoints::{answer, balanced, server_of};

/// Retries with the defaults of `forebay serve`.
fn retries() -> RetrySettings {
    RetrySettings { attempts: 1, on: vec![RetryOn::Connect, RetryOn::Closed], budget_percent: 10 }
}

/// Settings in which the first server gets all requests that are not retries.
fn retrying(origins: &[&Origin], retry: RetrySettings) -> anyhow::Result<SiteSettings> {
    let mut settings = balanced(origins, Balance::First)?;
    settings.origin.eject = EjectionSettings { failures: 0, ..EjectionSettings::default() };
    settings.origin.retry = Some(retry);
    Ok(settings)
}

/// Answer without a byte: the connection is closed after the request.
fn closing() -> Answer {
    Answer::raw("")
}

#[tokio::test]
async fn a_request_without_a_connection_is_sent_to_another_server() -> anyhow::Result<()> {
    let (gone, works) = (Origin::always(answer("gone")).await?, Origin::always(answer("b")).await?);
    let settings = retrying(&[&gone, &works], retries())?;
    drop(gone);
    let server = server_of(settings).await?;
    let mut client = Client::connect(server.address).await?;
    // Nothing was sent, so that the method does not matter.
    for request in [
        Request::get("/a"),
        Request::new("POST", "/b").body("data"),
        Request::new("PUT", "/c").body("data"),
    ] {
        let reply = client.ask(&request).await?;
        assert_eq!((reply.status, &*reply.text()), (200, "b"));
    }
    let bodies: Vec<_> = works.received().iter().map(|received| received.body.clone()).collect();
    assert_eq!(bodies, ["", "data", "data"]);
    let metrics = server.metrics();
    assert!(
        metrics.contains("forebay_retries_total{site=\"default\",result=\"ok\"} 3"),
        "{metrics}"
    );
    Ok(())
}

#[tokio::test]
async fn only_idempotent_requests_without_a_body_are_repeated_after_a_close() -> anyhow::Result<()>
{
    let (closes, works) = (Origin::always(closing()).await?, Origin::always(answer("b")).await?);
    let server = server_of(retrying(&[&closes, &works], retries())?).await?;
    for (request, status) in [
        (Request::get("/a"), 200),
        (Request::new("HEAD", "/a"), 200),
        (Request::new("DELETE", "/a"), 200),
        (Request::new("OPTIONS", "/a"), 200),
        (Request::new("POST", "/a"), 502),
        (Request::new("POST", "/a").body("data"), 502),
        (Request::new("PUT", "/a").body("data"), 502),
    ] {
        let reply = Client::connect(server.address).await?.ask(&request).await?;
        assert_eq!(reply.status, status, "{request:?}");
    }
    assert_eq!((closes.requests(), works.requests()), (7, 4));
    Ok(())
}

/// A POST that may have taken effect is never sent twice, whatever the origin does.
#[tokio::test]
async fn no_post_arrives_twice_from_a_server_that_closes_at_random() -> anyhow::Result<()> {
    let unsteady = || {
        Origin::start(|_| match fastrand::u8(0..3) {
            0 => closing(),
            1 => Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"),
            _ => answer("b"),
        })
    };
    let (a, b) = (unsteady().await?, unsteady().await?);
    let mut settings = retrying(&[&a, &b], retries())?;
    settings.origin.balance = Balance::Least;
    let server = server_of(settings).await?;
    let mut client = Client::connect(server.address).await?;
    for number in 0..1_000 {
        client.ask(&Request::new("POST", &format!("/{number}")).body("data")).await?;
    }
    let received = [a.received(), b.received()].concat();
    let mut targets: Vec<_> = received.iter().map(|received| &received.target).collect();
    let count = targets.len();
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), count);
    Ok(())
}

#[tokio::test]
async fn statuses_and_timeouts_are_retried_if_the_settings_say_so() -> anyhow::Result<()> {
    let works = Origin::always(answer("b")).await?;
    let busy = Origin::always(Answer::status(503)).await?;
    let hung = Origin::always(Answer::hang()).await?;
    let on = |cause| RetrySettings { on: vec![cause], ..retries() };
    let rows = [
        (&busy, RetryOn::Status(503), 200),
        (&busy, RetryOn::Status(502), 503),
        (&hung, RetryOn::Timeout, 200),
    ];
    for (first, cause, status) in rows {
        let mut settings = retrying(&[first, &works], on(cause))?;
        settings.fetch_timeout = Duration::from_secs(1);
        let server = server_of(settings).await?;
        let reply = Client::connect(server.address).await?.ask(&Request::get("/a")).await?;
        assert_eq!(reply.status, status, "{cause:?}");
    }
    // Without other servers, the last response counts.
    let server = server_of(retrying(&[&busy], on(RetryOn::Status(503)))?).await?;
    let asked = busy.requests();
    let reply = Client::connect(server.address).await?.ask(&Request::get("/a")).await?;
    assert_eq!((reply.status, busy.requests()), (503, asked + 2));
    Ok(())
}

#[tokio::test]
async fn a_single_server_is_asked_again_after_a_moment() -> anyhow::Result<()> {
    let origin = Origin::in_turn(vec![closing(), answer("a")]).await?;
    let server = server_of(retrying(&[&origin], retries())?).await?;
    let reply = Client::connect(server.address).await?.ask(&Request::get("/a")).await?;
    assert_eq!((reply.status, origin.requests()), (200, 2));
    Ok(())
}

/// At the beginning, the budget has 30 retries: 3 per second for 10 seconds.
#[tokio::test]
async fn the_budget_bounds_the_retries() -> anyhow::Result<()> {
    let (a, b) = (Origin::always(closing()).await?, Origin::always(closing()).await?);
    let server = server_of(retrying(&[&a, &b], retries())?).await?;
    let mut client = Client::connect(server.address).await?;
    let begun = std::time::Instant::now();
    for number in 0..300 {
        assert_eq!(client.ask(&Request::get(&format!("/{number}"))).await?.status, 502);
    }
    let most = 300 / 10 + 3 * (begun.elapsed().as_secs() + 1) + 30;
    let retries = a.requests() + b.requests() - 300;
    assert!(retries >= 30 && retries <= most, "{retries} of at most {most}");
    assert!(server.metrics().contains("forebay_retries_total{site=\"default\",result=\"budget\"}"));
    Ok(())
}

/// Servers that are killed cost no request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_get_fails_when_one_of_three_servers_is_killed() -> anyhow::Result<()> {
    let [a, b] = [Origin::always(answer("a")).await?, Origin::always(answer("b")).await?];
    let killed = Origin::always(answer("c")).await?;
    let mut settings = balanced(&[&a, &b, &killed], Balance::Least)?;
    settings.origin.retry = Some(retries());
    let server = server_of(settings).await?;
    let address = server.address;
    let mut clients = tokio::task::JoinSet::new();
    for client_number in 0..8 {
        clients.spawn(async move {
            let mut client = Client::connect(address).await?;
            let mut failed = 0;
            for number in 0..200 {
                let reply =
                    client.ask(&Request::get(&format!("/{client_number}/{number}"))).await?;
                failed += u32::from(reply.status != 200);
            }
            anyhow::Ok(failed)
        });
    }
    while killed.requests() < 50 {
        tokio::task::yield_now().await;
    }
    let label = format!("site=\"default\",endpoint=\"{}\"", killed.address());
    drop(killed);
    while let Some(failed) = clients.join_next().await {
        assert_eq!(failed??, 0);
    }
    server.wait_metric(&format!("forebay_origin_up{{{label}}} 0")).await?;
    Ok(())
}
