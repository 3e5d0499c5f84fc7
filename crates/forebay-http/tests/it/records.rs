//! Records of responses: they are made when the response ends, with its end and its bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_http::Phase;
use forebay_http::metrics::MetricsFormat;
use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Cut, Origin};

use crate::server::TestServer;

/// More bytes than the sockets between server and client buffer.
const LARGE: usize = 12 << 20;

/// Sum of the samples of a metric of the site.
fn sum(server: &TestServer, name: &str, label: &str) -> u64 {
    let metrics = server.metrics();
    let samples = metrics.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')) && line.contains(label)
    });
    samples
        .map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>().expect("a number"))
        .sum()
}

fn truncated(end: &str) -> String {
    format!("forebay_responses_truncated_total{{site=\"default\",end=\"{end}\"}} 1")
}

fn requests(server: &TestServer) -> u64 {
    sum(server, "forebay_requests_total", "site=\"default\"")
}

/// Origin of large responses that are stored, and server in front of it. The second request is a hit.
async fn large(settings: &[(&str, &str)]) -> anyhow::Result<(Origin, TestServer)> {
    let answer = Answer::ok(vec![7; LARGE]).field("Cache-Control", "max-age=60");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), settings).await?;
    let reply = Client::connect(server.address).await?.ask(&Request::get("/a")).await?;
    assert!(reply.ended_cleanly());
    server.wait_metric("forebay_tier_entries{tier=\"memory\"} 1").await?;
    // A response is recorded after its last byte, which the client may have read before.
    let miss =
        "forebay_requests_total{site=\"default\",method=\"GET\",status=\"200\",cache=\"miss\"} 1";
    server.wait_metric(miss).await?;
    Ok((origin, server))
}

#[tokio::test]
async fn a_response_is_recorded_when_the_client_has_it() -> anyhow::Result<()> {
    for direct in ["true", "false"] {
        let (_origin, server) = large(&[("direct_hits", direct)]).await?;
        let mut client = Client::connect(server.address).await?;
        client.send(&Request::get("/a")).await?;
        let mut reply = client.head().await?;
        assert_eq!(requests(&server), 1, "the client has not read the body");
        client.read_body(&mut reply).await?;
        let hit = "forebay_requests_total{site=\"default\",method=\"GET\",status=\"200\",cache=\"hit\"} 1";
        server.wait_metric(hit).await?;
        assert_eq!(sum(&server, "forebay_body_bytes_total", "cache=\"hit\""), LARGE as u64);
        assert_eq!(sum(&server, "forebay_request_seconds_count", "cache=\"hit\""), 1);
        assert_eq!(sum(&server, "forebay_response_seconds_count", "default"), 2);
        assert_eq!(
            sum(&server, "forebay_responses_truncated_total", ""),
            0,
            "{}",
            server.metrics()
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_disconnects_is_recorded_as_gone_with_the_bytes_that_it_took()
-> anyhow::Result<()> {
    for direct in ["true", "false"] {
        let (_origin, server) = large(&[("direct_hits", direct)]).await?;
        let mut client = Client::connect(server.address).await?;
        client.send(&Request::get("/a")).await?;
        assert_eq!(client.head().await?.status, 200);
        client.reset()?;
        server.wait_metric(&truncated("client-gone")).await?;
        let bytes = sum(&server, "forebay_body_bytes_total", "cache=\"hit\"");
        assert!(0 < bytes && bytes < LARGE as u64, "{bytes} {}", server.metrics());
        assert_eq!(requests(&server), 2);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_too_slowly_is_recorded_as_too_slow() -> anyhow::Result<()> {
    for direct in ["true", "false"] {
        let settings = [("direct_hits", direct), ("write_window", "\"200ms\"")];
        let (_origin, server) = large(&settings).await?;
        let mut client = Client::connect(server.address).await?;
        client.send(&Request::get("/a")).await?;
        assert_eq!(client.head().await?.status, 200);
        server.wait_metric(&truncated("too-slow")).await?;
        assert_eq!(requests(&server), 2);
    }
    Ok(())
}

#[tokio::test]
async fn a_body_that_the_origin_breaks_off_is_recorded_as_such() -> anyhow::Result<()> {
    for said in ["max-age=60", "no-store"] {
        let answer = Answer::ok(vec![7; 100_000]).field("Cache-Control", said);
        let origin = Origin::always(answer.truncate(50_000, Cut::Close)).await?;
        let server = TestServer::start(origin.address(), &[]).await?;
        let reply = Client::connect(server.address).await?.ask(&Request::get("/a")).await?;
        assert!(!reply.ended_cleanly());
        server.wait_metric(&truncated("origin-broke")).await?;
        let bytes = sum(&server, "forebay_body_bytes_total", "");
        assert_eq!(bytes, reply.body_length());
    }
    Ok(())
}

#[tokio::test]
async fn a_response_that_the_stop_cuts_off_is_recorded_as_such() -> anyhow::Result<()> {
    let (_origin, server) = large(&[("direct_hits", "false")]).await?;
    let mut client = Client::connect(server.address).await?;
    client.send(&Request::get("/a")).await?;
    assert_eq!(client.head().await?.status, 200);
    server.service.enter(Phase::Draining);
    let (service, counters) = (server.service.clone(), server.counters.clone());
    drop(server);
    for _ in 0..1_000 {
        if service
            .render_metrics(&counters, MetricsFormat::Prometheus)
            .contains(&truncated("stopped"))
        {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    anyhow::bail!("not recorded")
}

#[tokio::test]
async fn a_pass_is_recorded_and_so_is_one_whose_client_disconnects() -> anyhow::Result<()> {
    for direct in ["true", "false"] {
        let (gate, asked) = (Gate::new(), AtomicUsize::new(0));
        let held = gate.clone();
        let origin = Origin::start(move |_| {
            let own = Answer::ok("own").field("Cache-Control", "no-store");
            if asked.fetch_add(1, Ordering::Relaxed) == 3 { own.wait(&held) } else { own }
        });
        let origin = origin.await?;
        let server = TestServer::start(origin.address(), &[("direct_hits", direct)]).await?;
        let mut client = Client::connect(server.address).await?;
        for _ in 0..3 {
            assert_eq!(client.ask(&Request::get("/a")).await?.text(), "own");
        }
        let passes = "forebay_requests_total{site=\"default\",method=\"GET\",status=\"200\",cache=\"pass\"} 3";
        server.wait_metric(passes).await?;
        assert_eq!(sum(&server, "forebay_body_bytes_total", "cache=\"pass\""), 9);
        assert_eq!(sum(&server, "forebay_misses_total", "pass-marked"), 2, "{}", server.metrics());
        client.send(&Request::get("/a")).await?;
        server.wait_in_flight(1).await?;
        client.reset()?;
        server.wait_metric(&truncated("client-gone")).await?;
        server.wait_in_flight(0).await?;
        assert_eq!(requests(&server), 4);
        assert!(!gate.is_open());
    }
    Ok(())
}

/// Responses without a body, and those of the cache itself, are records like others.
#[tokio::test]
async fn every_response_is_one_record() -> anyhow::Result<()> {
    let answer = Answer::ok("hello").field("Cache-Control", "max-age=60").field("ETag", "\"t\"");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut client = Client::connect(server.address).await?;
    let conditional = Request::get("/a").field("If-None-Match", "\"t\"");
    let ranged = Request::get("/a").field("Range", "bytes=0-1");
    let asked = [
        Request::get("/a"),
        Request::get("/a"),
        Request::new("HEAD", "/a"),
        Request::new("HEAD", "/b"),
        conditional,
        ranged,
        Request::new("DELETE", "/a"),
        Request::new("CONNECT", "/a"),
    ];
    for request in &asked {
        client.ask(request).await?;
    }
    let mut client = Client::connect(server.address).await?;
    client.send_raw(b"nonsense\r\n\r\n").await?;
    client.read_to_close().await?;
    let all = asked.len() as u64 + 1;
    for name in ["forebay_requests_total", "forebay_request_seconds_count"] {
        assert_eq!(sum(&server, name, ""), all, "{name}\n{}", server.metrics());
    }
    assert_eq!(sum(&server, "forebay_response_seconds_count", ""), all);
    assert_eq!(sum(&server, "forebay_responses_truncated_total", ""), 0);
    let hits = sum(&server, "forebay_requests_total", "cache=\"hit\"");
    let refused = sum(&server, "forebay_requests_total", "cache=\"refused\"");
    assert_eq!(sum(&server, "forebay_misses_total", "") + hits + refused, all);
    Ok(())
}
