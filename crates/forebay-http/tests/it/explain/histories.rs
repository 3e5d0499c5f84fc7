//! Generated histories: before each request, its explanation foretells its course, and changes no
//! counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::{Purge, Reach};
use forebay_http::explanation::Explanation;
use forebay_testkit::client::Reply;
use forebay_testkit::origin::{Answer, Origin, Received};

use super::{Fields, asked, send, settled};
use crate::server::TestServer;

/// Number of histories, unless the environment variable of this name states another.
const HISTORIES: (&str, u64) = ("FOREBAY_EXPLAIN_HISTORIES", 400);

/// Number of steps of a history.
const STEPS: usize = 10;

/// Responses of the origin, by the first segment of the path.
const PAGES: [(&str, &[(&str, &str)]); 10] = [
    ("fresh", &[("Cache-Control", "max-age=60")]),
    ("tagged", &[("Cache-Control", "max-age=10, stale-if-error=60"), ("Cache-Tag", "tag")]),
    ("swr", &[("Cache-Control", "max-age=5, stale-while-revalidate=30"), ("ETag", "\"v\"")]),
    ("bound", &[("Cache-Control", "max-age=5, must-revalidate"), ("ETag", "\"v\"")]),
    ("private", &[("Cache-Control", "private")]),
    ("zero", &[("Cache-Control", "max-age=0"), ("ETag", "\"v\"")]),
    ("vary", &[("Cache-Control", "max-age=30"), ("Vary", "Accept-Language")]),
    ("cookie", &[("Cache-Control", "max-age=30"), ("Set-Cookie", "a=b")]),
    ("shared", &[("Cache-Control", "s-maxage=20, immutable")]),
    ("nothing", &[]),
];

/// Header fields of requests.
const FIELDS: [Fields<'static>; 14] = [
    &[],
    &[],
    &[],
    &[("cache-control", "no-cache")],
    &[("cache-control", "max-age=0")],
    &[("cache-control", "max-age=3")],
    &[("cache-control", "min-fresh=8")],
    &[("cache-control", "max-stale=20")],
    &[("cache-control", "only-if-cached")],
    &[("cache-control", "no-store")],
    &[("authorization", "Bearer x")],
    &[("cookie", "a=b")],
    &[("accept-language", "de")],
    &[("if-none-match", "\"v\"")],
];

/// Steps of the clock in milliseconds.
const WAITS: [u64; 6] = [500, 2_000, 4_000, 9_000, 31_000, 61_000];

fn page(received: &Received, fails: bool) -> Answer {
    if fails {
        return Answer::status(503);
    }
    let name = received.path().split('/').nth(1).unwrap_or_default();
    let page = PAGES.iter().find(|(known, _)| *known == name);
    let fields = page.map_or(&[][..], |(_, fields)| fields);
    let is_current = received.fields.first("if-none-match") == Some("\"v\"");
    let has_tag = fields.iter().any(|(name, _)| *name == "ETag");
    let answer = if is_current && has_tag { Answer::status(304) } else { Answer::ok("body") };
    fields.iter().fold(answer, |answer, (name, value)| answer.field(name, *value))
}

/// Part of the metrics that requests and explanations could change.
fn counters(server: &TestServer) -> String {
    let metrics = server.metrics();
    let lines = metrics.lines().filter(|line| !line.starts_with("process_"));
    lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Returns the value of a parameter of `Cache-Status`.
fn parameter<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.split("; ").find_map(|member| member.strip_prefix(name)?.strip_prefix('='))
}

/// Compares an explanation with the request that followed it. `asked` is the number of requests that
/// the origin got.
fn compare(explanation: &Explanation, reply: &Reply, asked: u64) -> Result<(), String> {
    let would = &explanation.would;
    let came = reply.field("cache-status").unwrap_or_default();
    let check = |holds: bool, what: &str| {
        let text = || format!("{what}: came {} {came}, {asked} requests, {would:#?}", reply.status);
        if holds { Ok(()) } else { Err(text()) }
    };
    match &*would.outcome {
        "served" | "served-while-renewed" | "refused" => {
            check(came == would.cache_status, "other Cache-Status")?;
            check(Some(reply.status) == would.status, "other status")?;
            let loads = u64::from(would.outcome == "served-while-renewed");
            check(asked == loads, "other number of requests to the origin")
        }
        "loads" | "forwarded" => {
            check(asked >= 1, "the origin was not asked")?;
            // The load may fail, which no explanation can know.
            if came.contains("; hit") {
                return check(came.contains("detail=load-failed"), "a hit");
            }
            let foretold = parameter(&would.cache_status, "fwd");
            check(parameter(came, "fwd") == foretold, "other reason")?;
            let detail = parameter(&would.cache_status, "detail");
            check(detail.is_none() || parameter(came, "detail") == detail, "other detail")
        }
        other => Err(format!("unexpected outcome {other}")),
    }
}

#[tokio::test]
async fn an_explanation_foretells_the_next_request_and_changes_no_counter() -> anyhow::Result<()> {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let origin = Origin::start(move |received| page(received, failing.load(Ordering::Relaxed)));
    let origin = origin.await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let (name, default) = HISTORIES;
    let histories = std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let mut compared = 0_u64;
    for seed in 0..histories {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut story = Vec::new();
        for _ in 0..STEPS {
            match rng.u8(0..10) {
                0 | 1 => {
                    let wait = WAITS[rng.usize(..WAITS.len())];
                    server.clock.step(Duration::from_millis(wait));
                    story.push(format!("wait {wait}"));
                }
                2 => {
                    let reach = if rng.bool() { Reach::Soft } else { Reach::Hard };
                    let what =
                        [Purge::Tag("tag".into()), Purge::All, Purge::Site("default".into())];
                    server.service.engine().purge(&what[rng.usize(..3)], reach).await;
                    story.push(format!("purge {reach:?}"));
                }
                3 => {
                    let is_failing = rng.u8(0..3) == 0;
                    fails.store(is_failing, Ordering::Relaxed);
                    story.push(format!("fails {is_failing}"));
                }
                _ => {
                    let (page, _) = PAGES[rng.usize(..PAGES.len())];
                    let target = format!("/{page}/{seed}/{}", rng.u8(0..2));
                    let method = ["GET", "GET", "GET", "HEAD", "POST"][rng.usize(..5)];
                    let fields = FIELDS[rng.usize(..FIELDS.len())];
                    story.push(format!("{method} {target} {fields:?}"));
                    let before = counters(&server);
                    let request = asked(method, &target, fields);
                    let explanation = server.service.explain(&request).await;
                    assert_eq!(before, counters(&server), "seed {seed}: {story:#?}");
                    let requests = origin.requests();
                    let reply = send(&server, method, &target, fields).await?;
                    settled(&server).await;
                    let came = compare(&explanation, &reply, origin.requests() - requests);
                    assert_eq!(came, Ok(()), "seed {seed}: {story:#?}\n{explanation:#?}");
                    compared += 1;
                }
            }
        }
        fails.store(false, Ordering::Relaxed);
    }
    assert!(compared >= histories, "too few requests: {compared}");
    Ok(())
}
