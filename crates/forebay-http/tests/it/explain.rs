//! Explanations: planted faults are named, the next request is foretold, and nothing changes.

mod histories;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::{Allowance, CallRules, CallWindow, Purge, Reach};
use forebay_http::explanation::{Explanation, Finding};
use forebay_http::{BreakerSettings, BudgetSettings, ExplainRequest};
use forebay_semantics::Scheme;
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Framing, Origin};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::server::{TestServer, site};

type Fields<'a> = &'a [(&'static str, &'static str)];

/// Request to explain, as the test client would send it.
fn asked(method: &str, target: &str, fields: Fields<'_>) -> ExplainRequest {
    let fields = fields
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    ExplainRequest {
        scheme: Scheme::Http,
        authority: "test.example".to_owned(),
        path: target.parse().expect("a path"),
        method: Method::from_bytes(method.as_bytes()).expect("a method"),
        headers: fields.collect::<HeaderMap>(),
        client: [127, 0, 0, 1].into(),
    }
}

async fn explain(server: &TestServer, target: &str, fields: Fields<'_>) -> Explanation {
    server.service.explain(&asked("GET", target, fields)).await
}

async fn send(
    server: &TestServer,
    method: &str,
    target: &str,
    fields: Fields<'_>,
) -> anyhow::Result<Reply> {
    let request = Request::new(method, target);
    let request = fields.iter().fold(request, |request, (name, value)| request.field(name, *value));
    Client::connect(server.address).await?.ask(&request).await
}

/// Waits until all loads have ended.
async fn settled(server: &TestServer) {
    for _ in 0..10_000 {
        if server.service.engine().traffic().flights == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("a load does not end");
}

/// Cause with this code.
fn cause<'e>(explanation: &'e Explanation, code: &str) -> &'e Finding {
    let found = explanation.would.causes.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("no {code} in {:#?}", explanation.would))
}

/// Fault of an origin or a client: requests that show it, and its expected name.
struct Fault {
    answer: Answer,
    /// Requests that come before, with their fields.
    before: &'static [(&'static str, Fields<'static>)],
    target: &'static str,
    fields: Fields<'static>,
    code: &'static str,
    because: &'static str,
    advice: &'static str,
}

const LANGUAGE: Fields<'static> = &[("user-agent", "one")];
const TOKEN: Fields<'static> = &[("authorization", "Bearer secret")];

#[expect(clippy::too_many_lines, reason = "one table, a row per fault")]
fn faults() -> Vec<Fault> {
    let fault = |answer, code, because, advice| Fault {
        answer,
        before: &[("/a", &[])],
        target: "/a",
        fields: &[],
        code,
        because,
        advice,
    };
    let page = |said: &str| Answer::ok("page").field("Cache-Control", said);
    vec![
        fault(
            page("max-age=60").field("Set-Cookie", "session=secret"),
            "set-cookie",
            "Set-Cookie",
            "strip_set_cookie",
        ),
        Fault {
            before: &[("/a", LANGUAGE)],
            fields: &[("user-agent", "two")],
            ..fault(
                page("max-age=60").field("Vary", "User-Agent"),
                "vary-miss",
                "Vary: User-Agent; stored variants: 1",
                "fewer fields in `Vary`",
            )
        },
        fault(page("no-store"), "no-store", "Cache-Control: no-store", "max-age=60"),
        fault(page("max-age=0"), "no-freshness", "Cache-Control: max-age=0", "default_ttl"),
        fault(
            page("max-age=0").field("ETag", "\"v1\""),
            "zero-lifetime",
            "Cache-Control: max-age=0",
            "`max-age` above 0",
        ),
        fault(
            Answer::ok(vec![7; 200_000]).field("Cache-Control", "max-age=60"),
            "too-large",
            "Content-Length: 200000, and memory stores up to 65536 bytes",
            "memory.object_max",
        ),
        fault(
            Answer::ok(vec![7; 3 << 20])
                .field("Cache-Control", "max-age=60")
                .framing(Framing::Chunked),
            "too-large",
            "a body of more than 65536 bytes",
            "memory.object_max",
        ),
        Fault {
            before: &[("/a", TOKEN)],
            fields: TOKEN,
            ..fault(
                page("max-age=60"),
                "authorization",
                "Authorization in the request, with Cache-Control: max-age=60",
                "add `public` or `s-maxage`",
            )
        },
        fault(page("private, max-age=60"), "private", "private, max-age=60", "omit `private`"),
        Fault {
            target: "/a?utm_source=mail&utm_medium=x&fbclid=1",
            ..fault(
                page("max-age=60"),
                "query-noise",
                "utm_source, utm_medium, fbclid; the URL without them is stored",
                "`ignore_query = [\"utm_*\", \"fbclid\"]`",
            )
        },
        Fault {
            fields: &[("cache-control", "no-cache")],
            ..fault(
                page("max-age=60"),
                "request-revalidate",
                "Cache-Control: no-cache in the request",
                "client_reloads_max",
            )
        },
        fault(page("private"), "pass-marked", "Cache-Control: private", "ten seconds"),
    ]
}

#[tokio::test]
async fn a_hit_on_the_response_to_another_query_is_foretold() -> anyhow::Result<()> {
    let answer = Answer::ok("page").field("Cache-Control", "max-age=60");
    let origin = Origin::always(answer.field("No-Vary-Search", "params=(\"utm\")")).await?;
    let server = TestServer::start(origin.address(), &[("no_vary_search", "true")]).await?;
    // The response to the first query has an ignored part, and answers no other one.
    let cases = [("/p?id=2&utm=1", "/p?id=2", false), ("/p?id=1", "/p?id=1&utm=1", true)];
    for (stored, asked, expected) in cases {
        send(&server, "GET", stored, &[]).await?;
        settled(&server).await;
        let foretold = explain(&server, asked, &[]).await;
        let is_served = foretold.would.outcome == "served" && foretold.would.why.is_none();
        assert_eq!(is_served, expected, "{asked}: {:?}", foretold.would);
        let reply = send(&server, "GET", asked, &[]).await?;
        let status = reply.field("cache-status").unwrap_or_default();
        assert_eq!(status == foretold.would.cache_status, expected, "{asked}: {status}");
        assert_eq!(status.contains("; hit"), expected, "{asked}: {status}");
    }
    Ok(())
}

#[tokio::test]
async fn planted_faults_are_named_with_the_deciding_field_and_advice() -> anyhow::Result<()> {
    for fault in faults() {
        let origin = Origin::always(fault.answer.clone()).await?;
        let limits = [("object_max", "\"64KiB\"")];
        let server = TestServer::start(origin.address(), &limits).await?;
        for (target, fields) in fault.before {
            send(&server, "GET", target, fields).await?;
        }
        settled(&server).await;
        let explanation = explain(&server, fault.target, fault.fields).await;
        let found = cause(&explanation, fault.code);
        assert!(found.because.contains(fault.because), "{found:#?}");
        assert!(found.advice.contains(fault.advice), "{found:#?}");
        assert!(!found.rule.is_empty(), "{found:#?}");
        let all = format!("{explanation:?}");
        assert!(!all.contains("secret"), "{all}");
    }
    Ok(())
}

#[tokio::test]
async fn a_purge_is_named() -> anyhow::Result<()> {
    let answer = Answer::ok("page").field("Cache-Control", "max-age=60").field("Cache-Tag", "t");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    for (reach, code) in [(Reach::Soft, "soft-purged"), (Reach::Hard, "purged")] {
        send(&server, "GET", "/a", &[]).await?;
        settled(&server).await;
        assert!(explain(&server, "/a", &[]).await.is_hit());
        server.service.engine().purge(&Purge::Tag("t".into()), reach).await;
        let explanation = explain(&server, "/a", &[]).await;
        let found = cause(&explanation, code);
        assert!(found.because.contains("purge"), "{found:?}");
        let word = if reach == Reach::Soft { "soft" } else { "hard" };
        assert_eq!(explanation.stored[0].purge, word);
    }
    send(&server, "GET", "/a", &[]).await?;
    settled(&server).await;
    server.service.purge_url(Scheme::Http, "test.example", "/a", Reach::Hard).await;
    let explanation = explain(&server, "/a", &[]).await;
    assert!(cause(&explanation, "uri-miss").because.contains("purged by its URL"));
    Ok(())
}

#[tokio::test]
async fn an_open_breaker_is_named() -> anyhow::Result<()> {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let origin = Origin::start(move |_| match failing.load(Ordering::Relaxed) {
        true => Answer::status(503),
        false => Answer::ok("old").field("Cache-Control", "max-age=60, stale-if-error=600"),
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut settings = site(origin.address())?;
    let rules = CallRules {
        failed_percent: 50,
        calls_min: 3,
        window: CallWindow::Time(Duration::from_secs(60)),
        slow_call: Duration::ZERO,
        slow_percent: 80,
        open_for: Duration::from_secs(600),
        trials: 1,
    };
    settings.origin.breaker = Some(BreakerSettings { rules, failure_statuses: vec![503] });
    server.service.reload(&[settings]);
    send(&server, "GET", "/stored", &[]).await?;
    server.clock.step(Duration::from_secs(61));
    fails.store(true, Ordering::Relaxed);
    for target in ["/a", "/b", "/c"] {
        send(&server, "GET", target, &[]).await?;
    }
    let explanation = explain(&server, "/d", &[]).await;
    let found = cause(&explanation, "breaker-open");
    assert!(found.because.contains("circuit breaker of the origin is open"), "{found:?}");
    assert!(found.advice.contains("Repair the origin"), "{found:?}");
    assert_eq!(explanation.would.outcome, "refused");
    let breaker = explanation.now.breaker.as_ref().expect("a breaker");
    assert_eq!(breaker.state, "open");
    for target in ["/d", "/stored"] {
        let explanation = explain(&server, target, &[]).await;
        let reply = send(&server, "GET", target, &[]).await?;
        assert_eq!(Some(reply.status), explanation.would.status);
        let status = reply.field("cache-status");
        assert_eq!(status, Some(&*explanation.would.cache_status), "{target}");
    }
    Ok(())
}

#[tokio::test]
async fn a_budget_that_is_used_up_is_named() -> anyhow::Result<()> {
    let gate = Gate::new();
    let waits = gate.clone();
    let origin = Origin::start(move |received| match received.path() {
        "/busy" => Answer::ok("busy").field("Cache-Control", "no-store").wait(&waits),
        _ => Answer::ok("usable").field("Cache-Control", "max-age=1, stale-if-error=600"),
    });
    let origin = origin.await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let mut settings = site(origin.address())?;
    let total = Allowance { slots: 1, ..Allowance::UNBOUNDED };
    settings.origin.budget = Some(BudgetSettings { total, shared: None });
    server.service.reload(&[settings]);
    send(&server, "GET", "/usable", &[]).await?;
    server.clock.step(Duration::from_secs(2));
    let mut busy = Client::connect(server.address).await?;
    busy.send(&Request::get("/busy")).await?;
    origin.wait_requests(2).await?;
    for (target, outcome) in [("/usable", "served"), ("/new", "loads")] {
        let explanation = explain(&server, target, &[]).await;
        assert_eq!(explanation.would.outcome, outcome);
        let found = &explanation.would.causes[0];
        assert_eq!(found.code, "over-budget", "{target}");
        let state = "this instance holds 1 concurrent requests; 1 requests are in flight, 0 wait";
        assert!(found.because.ends_with(state), "{found:?}");
    }
    let foretold = explain(&server, "/usable", &[]).await.would;
    let reply = send(&server, "GET", "/usable", &[]).await?;
    assert_eq!(Some(reply.status), foretold.status);
    assert_eq!(reply.field("cache-status"), Some(&*foretold.cache_status));
    gate.open();
    assert_eq!(busy.reply().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_limit_that_is_reached_is_named() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::hang()).await?;
    let server = TestServer::start(origin.address(), &[("requests_max", "1")]).await?;
    let mut busy = Client::connect(server.address).await?;
    busy.send(&Request::get("/busy")).await?;
    origin.wait_requests(1).await?;
    let explanation = explain(&server, "/new", &[]).await;
    let found = &explanation.would.causes[0];
    assert_eq!((&*found.code, &*explanation.would.outcome), ("overloaded", "loads"));
    assert!(found.because.starts_with("the limit of 1 concurrent requests"), "{found:?}");
    Ok(())
}

#[tokio::test]
async fn a_load_under_way_is_named_with_its_waiting_requests() -> anyhow::Result<()> {
    let gate = Gate::new();
    let answer = Answer::ok("page").field("Cache-Control", "max-age=60").wait(&gate);
    let origin = Origin::always(answer).await?;
    let server = Arc::new(TestServer::start(origin.address(), &[]).await?);
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let server = server.clone();
        clients.spawn(async move { send(&server, "GET", "/a", &[]).await });
    }
    server.wait_in_flight(4).await?;
    let explanation = explain(&server, "/a", &[]).await;
    assert_eq!((&*explanation.would.outcome, explanation.would.waiting), ("waits", Some(3)));
    assert_eq!(explanation.now.load.as_ref().map(|load| load.waiting), Some(3));
    assert_eq!(explanation.would.cache_status, "forebay; fwd=uri-miss; collapsed");
    gate.open();
    while let Some(reply) = clients.join_next().await {
        assert_eq!(reply??.status, 200);
    }
    assert_eq!(origin.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn the_stored_variants_have_their_lifetimes_and_tags() -> anyhow::Result<()> {
    let answer = Answer::ok("hello")
        .field("Cache-Control", "max-age=60, stale-while-revalidate=30")
        .field("Vary", "Accept-Language, Cookie")
        .field("ETag", "\"v1\"")
        .field("Cache-Tag", "red,blue");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[("ignore_query", "[\"utm_*\"]")]).await?;
    let german: Fields<'_> = &[("accept-language", "de"), ("cookie", "id=secret")];
    send(&server, "GET", "/a?utm_source=x&b=1", german).await?;
    send(&server, "GET", "/a?b=1", &[("accept-language", "en")]).await?;
    settled(&server).await;
    server.clock.step(Duration::from_secs(10));
    let explanation = explain(&server, "/a?utm_medium=y&b=1", german).await;
    assert!(explanation.is_hit(), "{explanation:#?}");
    assert_eq!(explanation.would.cache_status, "forebay; hit; ttl=50");
    let key = explanation.key.as_ref().expect("a key");
    assert_eq!(key.target, "/a?b=1");
    assert_eq!(key.changes, ["query parameters dropped: utm_medium"]);
    assert_eq!(explanation.stored.len(), 2);
    let selected: Vec<_> = explanation.stored.iter().filter(|entry| entry.selected).collect();
    let [entry] = &selected[..] else { panic!("{selected:?}") };
    let variant = [
        ("accept-language".to_owned(), Some("de".to_owned())),
        ("cookie".to_owned(), Some("(hidden)".to_owned())),
    ];
    assert_eq!(entry.variant, variant);
    assert_eq!((entry.age_ms, entry.lifetime_ms, entry.fresh_left_ms), (10_000, 60_000, 50_000));
    assert_eq!((entry.status, entry.bytes), (200, Some(5)));
    assert_eq!(entry.set_by, "max-age");
    assert_eq!(entry.set_by_line, "Cache-Control: max-age=60, stale-while-revalidate=30");
    assert_eq!(entry.validator.as_deref(), Some("ETag: \"v1\""));
    assert!(entry.tags.iter().any(|tag| tag == "red"), "{:?}", entry.tags);
    assert_eq!(explanation.storable.judged_from, "stored");
    let results: Vec<_> = explanation.decisions.iter().map(|it| (&*it.why, &*it.result)).collect();
    assert_eq!(results, [("vary-miss", "stored"), ("uri-miss", "stored")]);
    assert!(!format!("{explanation:?}").contains("secret"));
    Ok(())
}

#[tokio::test]
async fn a_live_request_judges_the_response_and_stores_nothing() -> anyhow::Result<()> {
    let answer = Answer::ok("page")
        .field("Cache-Control", "private, no-store")
        .field("Set-Cookie", "id=secret");
    let origin = Origin::always(answer).await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let request = asked("GET", "/a", &[]);
    let live = server.service.ask_for_explanation(&request).await;
    let explanation = server.service.explain_with(&request, live).await;
    assert_eq!((origin.requests(), server.service.engine().memory().entries()), (1, 0));
    assert_eq!(explanation.storable.judged_from, "live");
    let codes: Vec<_> = explanation.storable.objections.iter().map(|it| &*it.code).collect();
    assert_eq!(codes, ["no-store", "private", "set-cookie", "no-freshness"]);
    let live = explanation.live.as_ref().expect("a response");
    assert_eq!(live.status, Some(200));
    assert!(live.fields.iter().any(|field| field == "Set-Cookie"), "{live:?}");
    assert!(!format!("{explanation:?}").contains("secret"));
    origin.shut().await?;
    let live = server.service.ask_for_explanation(&request).await;
    let explanation = server.service.explain_with(&request, live).await;
    assert!(explanation.live.is_some_and(|live| live.error.is_some()));
    Ok(())
}
