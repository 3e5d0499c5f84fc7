//! Distributed traces: what a collector and the origin get.

use std::time::Duration;

use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::RedisLaunch;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;

use crate::cluster;
use crate::world::{ConfigFile, ask, end, get, metric, written};

const SECRET: &str = "hunter2";

/// Maximum time until a collector has what a test expects.
const EXPORT_MAX: Duration = Duration::from_secs(20);

/// Number of times a metric is read before a wait fails.
const ASKED_MAX: usize = 1_000;

/// Trace context of a client.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Configuration of a trace to this collector; `rest` has further options of `[trace]`.
fn traced(origin: &Origin, collector: &str, rest: &str) -> anyhow::Result<ConfigFile> {
    let trace = format!("[trace]\nendpoint = \"{collector}\"\n{rest}\n");
    ConfigFile::serving(&origin.url(), "", &trace)
}

/// Spans that a collector has received.
fn spans(collector: &Origin) -> anyhow::Result<Vec<Span>> {
    let mut all = Vec::new();
    for request in collector.received() {
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/traces"));
        let request = ExportTraceServiceRequest::decode(request.body)?;
        for resource in request.resource_spans {
            let facts = resource.resource.unwrap_or_default().attributes;
            assert_eq!(text(&facts, "service.name"), "forebay");
            all.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    Ok(all)
}

/// Waits until a collector has this number of spans, and returns them.
async fn wait_spans(collector: &Origin, count: usize) -> anyhow::Result<Vec<Span>> {
    let deadline = tokio::time::Instant::now() + EXPORT_MAX;
    let mut requests = 0;
    loop {
        let spans = spans(collector)?;
        if spans.len() >= count {
            return Ok(spans);
        }
        requests = collector.requests().max(requests) + 1;
        let waited = tokio::time::timeout_at(deadline, collector.wait_requests(requests)).await;
        anyhow::ensure!(waited.is_ok(), "{} of {count} spans: {spans:#?}", spans.len());
    }
}

fn value<'a>(facts: &'a [KeyValue], name: &str) -> Option<&'a Value> {
    facts.iter().find(|fact| fact.key == name)?.value.as_ref()?.value.as_ref()
}

fn text<'a>(facts: &'a [KeyValue], name: &str) -> &'a str {
    match value(facts, name) {
        Some(Value::StringValue(text)) => text,
        _ => "",
    }
}

fn number(facts: &[KeyValue], name: &str) -> Option<i64> {
    match value(facts, name) {
        Some(Value::IntValue(number)) => Some(*number),
        _ => None,
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_kind(spans: &[Span], kind: SpanKind) -> Vec<&Span> {
    spans.iter().filter(|span| span.kind() == kind).collect()
}

/// A trace of a trusted client continues at the origin; secrets are in no span.
#[tokio::test]
async fn a_trace_goes_from_the_client_over_the_load_to_the_origin() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("hello").field("Cache-Control", "max-age=60")).await?;
    let collector = Origin::always(Answer::ok("")).await?;
    let rest = "sample = 0.0\ntrust_incoming = true";
    let cache = traced(&origin, &collector.url(), rest)?.serve().await?;
    let request = Request::get(&format!("/a?token={SECRET}&b=1"))
        .field("Host", "test.example")
        .field("Authorization", format!("Bearer {SECRET}"))
        .field("Cookie", format!("sid={SECRET}"))
        .field("Referer", format!("http://me:{SECRET}@other.example/c?{SECRET}"))
        .field("User-Agent", "agent")
        .field("traceparent", format!("00-{TRACE}-{PARENT}-01"))
        .field("tracestate", "vendor=1");
    assert_eq!(ask(cache.address(), &request).await?.status, 200);
    let spans = wait_spans(&collector, 2).await?;
    let server = of_kind(&spans, SpanKind::Server)[0];
    let client = of_kind(&spans, SpanKind::Client)[0];
    assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.into(), PARENT.into()));
    assert_eq!((server.name.as_str(), client.name.as_str()), ("GET shop", "GET"));
    assert_eq!((&client.trace_id, &client.parent_span_id), (&server.trace_id, &server.span_id));
    let facts = &server.attributes;
    for (name, expected) in [
        ("http.request.method", "GET"),
        ("url.scheme", "http"),
        ("url.path", "/a"),
        ("url.query", "token=REDACTED&b=1"),
        ("server.address", "test.example"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "agent"),
        ("forebay.site", "shop"),
    ] {
        assert_eq!(text(facts, name), expected, "{name}");
    }
    assert_eq!(number(facts, "http.response.status_code"), Some(200));
    assert_eq!(number(&client.attributes, "http.response.status_code"), Some(200));
    // Both are placed by one clock of the cache.
    assert!(server.start_time_unix_nano <= client.start_time_unix_nano);
    assert!(client.end_time_unix_nano <= server.end_time_unix_nano);
    let received = origin.first()?;
    let expected = format!("00-{TRACE}-{}-01", hex(&client.span_id));
    assert_eq!(received.fields.first("traceparent"), Some(expected.as_str()));
    assert_eq!(received.fields.first("tracestate"), Some("vendor=1"));
    for request in collector.received() {
        assert!(!String::from_utf8_lossy(&request.body).contains(SECRET));
    }
    Ok(())
}

/// The context of a client that is not trusted, or without tracing, is not continued.
#[tokio::test]
async fn a_trace_of_any_client_is_replaced_and_passes_without_tracing() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a")).await?;
    let collector = Origin::always(Answer::ok("")).await?;
    let context = format!("00-{TRACE}-{PARENT}-01");
    let request =
        Request::get("/a").field("traceparent", context.clone()).field("tracestate", "vendor=1");
    let cache = traced(&origin, &collector.url(), "sample = 0.0")?.serve().await?;
    ask(cache.address(), &request).await?;
    let received = origin.received();
    let sent = received[0].fields.first("traceparent").unwrap_or_default();
    assert!(sent.starts_with("00-") && sent.ends_with("-00") && !sent.contains(TRACE), "{sent}");
    assert_eq!(received[0].fields.first("tracestate"), None);
    let plain = ConfigFile::serving(&origin.url(), "", "")?.serve().await?;
    ask(plain.address(), &request).await?;
    let received = origin.received();
    assert_eq!(received[1].fields.first("traceparent"), Some(context.as_str()));
    assert_eq!(received[1].fields.first("tracestate"), Some("vendor=1"));
    Ok(())
}

/// Events of a span: tier, operation, result.
fn tier_events(span: &Span) -> Vec<[&str; 3]> {
    let names = ["forebay.tier", "forebay.tier.operation", "forebay.tier.result"];
    for event in &span.events {
        assert_eq!(event.name, "forebay.tier");
        assert!(number(&event.attributes, "forebay.tier.duration_us").is_some());
        let times = span.start_time_unix_nano..=span.end_time_unix_nano;
        assert!(times.contains(&event.time_unix_nano), "{span:#?}");
    }
    span.events.iter().map(|event| names.map(|name| text(&event.attributes, name))).collect()
}

/// Lookups in lower tiers are events of the span that waited for them.
#[tokio::test]
async fn lookups_in_lower_tiers_are_events() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "max-age=600")).await?;
    let collector = Origin::always(Answer::ok("")).await?;
    let disk = tempfile::tempdir()?;
    let top = format!(
        "[trace]\nendpoint = \"{}\"\nsample = 1.0\n[disk]\npath = \"{}\"\nsize = \"64MiB\"",
        collector.url(),
        disk.path().display()
    );
    let file = ConfigFile::serving(&origin.url(), &top, "")?;
    let cache = file.serve().await?;
    get(&cache, "/a").await?;
    written(&cache).await?;
    wait_spans(&collector, 2).await?;
    end(cache, Signal::Term).await?;
    let cache = file.serve().await?;
    get(&cache, "/a").await?;
    get(&cache, "/a").await?;
    let spans = wait_spans(&collector, 4).await?;
    let mut requests = of_kind(&spans, SpanKind::Server);
    // Spans are exported when their responses have ended, each by its thread.
    requests.sort_by_key(|span| span.start_time_unix_nano);
    let events: Vec<_> = requests.iter().map(|span| tier_events(span)).collect();
    let expected =
        [vec![["disk", "open", "miss"]], vec![["disk", "open", "hit"], ["disk", "read", "hit"]]];
    assert_eq!(events, [&expected[..], &[Vec::new()]].concat(), "{spans:#?}");
    Ok(())
}

/// Waits until this number of requests wait for the origin.
async fn wait_in_flight(cache: &Launched, expected: u64) -> anyhow::Result<()> {
    let mut waiting = 0;
    for _ in 0..ASKED_MAX {
        waiting = metric(cache, "forebay_in_flight", "").await?;
        if waiting == expected {
            return Ok(());
        }
    }
    anyhow::bail!("{waiting} of {expected} requests wait");
}

/// One load answers 51 requests: it has one span, and the 50 others refer to it.
#[tokio::test]
async fn followers_refer_to_the_span_of_the_load() -> anyhow::Result<()> {
    const FOLLOWERS: usize = 50;
    let gate = Gate::new();
    let answer = Answer::ok("hello").field("Cache-Control", "max-age=60").wait(&gate);
    let origin = Origin::always(answer).await?;
    let collector = Origin::always(Answer::ok("")).await?;
    let cache = traced(&origin, &collector.url(), "sample = 1.0")?.serve().await?;
    let mut clients = Vec::new();
    for _ in 0..=FOLLOWERS {
        let mut client = Client::connect(cache.address()).await?;
        client.send(&Request::get("/a").field("Host", "test.example")).await?;
        clients.push(client);
    }
    let waiting = FOLLOWERS as u64 + 1;
    wait_in_flight(&cache, waiting).await?;
    gate.open();
    for client in &mut clients {
        assert_eq!(client.reply().await?.status, 200);
    }
    // A plain hit is traced as well.
    assert_eq!(get(&cache, "/a").await?.status, 200);
    let spans = wait_spans(&collector, FOLLOWERS + 3).await?;
    let loads = of_kind(&spans, SpanKind::Client);
    assert_eq!((loads.len(), origin.requests()), (1, 1));
    let requests = of_kind(&spans, SpanKind::Server);
    let links: Vec<_> = requests.iter().flat_map(|span| &span.links).collect();
    assert_eq!((requests.len(), links.len()), (FOLLOWERS + 2, FOLLOWERS));
    let load = loads[0];
    let resolve = |link: &&&opentelemetry_proto::tonic::trace::v1::span::Link| {
        (&link.trace_id, &link.span_id) == (&load.trace_id, &load.span_id)
    };
    assert_eq!(links.iter().filter(resolve).count(), FOLLOWERS);
    let leader = requests.iter().find(|span| span.span_id == load.parent_span_id);
    assert!(leader.is_some_and(|leader| leader.links.is_empty()));
    let hits = requests.iter().filter(|span| text(&span.attributes, "forebay.cache") == "hit");
    assert_eq!(hits.count(), 1);
    Ok(())
}

/// One load answers 51 requests of two instances: it has one span, and the 50 others refer to it.
#[tokio::test]
async fn followers_of_another_instance_refer_to_the_span_of_the_load() -> anyhow::Result<()> {
    // One of them leads, and 25 wait on each instance.
    const CLIENTS: [usize; 2] = [26, 25];
    let gate = Gate::new();
    let answer = Answer::ok("hello").field("Cache-Control", "max-age=60").wait(&gate);
    let origin = Origin::always(answer).await?;
    let collector = Origin::always(Answer::ok("")).await?;
    let redis = RedisLaunch::new().start().await?;
    let top = format!(
        "[trace]\nendpoint = \"{}\"\nsample = 1.0\n[redis]\nurl = \"{}\"",
        collector.url(),
        redis.url()
    );
    let file = ConfigFile::serving(&origin.url(), &top, "")?;
    let caches = [file.serve().await?, file.serve().await?];
    for cache in &caches {
        cluster::wait_ready(cache, 2).await?;
    }
    let mut clients = Vec::new();
    for (cache, count) in caches.iter().zip(CLIENTS) {
        for _ in 0..count {
            let mut client = Client::connect(cache.address()).await?;
            client.send(&Request::get("/a").field("Host", "test.example")).await?;
            clients.push(client);
        }
        wait_in_flight(cache, count as u64).await?;
        // The first instance has the lease before the other one asks for it.
        origin.wait_requests(1).await?;
    }
    let mut waiting = 0;
    for _ in 0..ASKED_MAX {
        waiting = metric(&caches[1], "forebay_lease_total", "elsewhere").await?;
        if waiting > 0 {
            break;
        }
    }
    assert!(waiting > 0, "the second instance does not wait");
    gate.open();
    for client in &mut clients {
        assert_eq!(client.reply().await?.status, 200);
    }
    let spans = wait_spans(&collector, CLIENTS.iter().sum::<usize>() + 1).await?;
    let loads = of_kind(&spans, SpanKind::Client);
    assert_eq!((loads.len(), origin.requests()), (1, 1));
    let requests = of_kind(&spans, SpanKind::Server);
    let links: Vec<_> = requests.iter().flat_map(|span| &span.links).collect();
    let resolved = links
        .iter()
        .filter(|link| (&link.trace_id, &link.span_id) == (&loads[0].trace_id, &loads[0].span_id));
    assert_eq!((requests.len(), resolved.count(), links.len()), (51, 50, 50));
    Ok(())
}

/// A refresh in the background has a trace of its own, which refers to the request that caused it.
#[tokio::test]
async fn a_refresh_has_its_own_trace() -> anyhow::Result<()> {
    let stale = "max-age=0, stale-while-revalidate=600";
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", stale)).await?;
    let collector = Origin::always(Answer::ok("")).await?;
    let cache = traced(&origin, &collector.url(), "sample = 1.0")?.serve().await?;
    get(&cache, "/a").await?;
    get(&cache, "/a").await?;
    let spans = wait_spans(&collector, 4).await?;
    let requests = of_kind(&spans, SpanKind::Server);
    let cause = requests.iter().find(|span| text(&span.attributes, "forebay.cache") == "stale");
    let cause = cause.ok_or_else(|| anyhow::anyhow!("{spans:#?}"))?;
    let loads = of_kind(&spans, SpanKind::Client);
    let refresh = loads.iter().find(|span| span.parent_span_id.is_empty());
    let refresh = refresh.ok_or_else(|| anyhow::anyhow!("{spans:#?}"))?;
    assert_ne!(refresh.trace_id, cause.trace_id);
    assert_eq!(refresh.links.len(), 1);
    assert_eq!(
        (&refresh.links[0].trace_id, &refresh.links[0].span_id),
        (&cause.trace_id, &cause.span_id)
    );
    Ok(())
}

/// Errors are traced although nothing is sampled; a successful request is not.
#[tokio::test]
async fn errors_are_traced_in_any_case() -> anyhow::Result<()> {
    let origin = Origin::in_turn(vec![Answer::ok("a"), Answer::close()]).await?;
    let collector = Origin::always(Answer::ok("")).await?;
    let cache = traced(&origin, &collector.url(), "sample = 0.0")?.serve().await?;
    assert_eq!(get(&cache, "/good").await?.status, 200);
    assert_eq!(get(&cache, "/bad").await?.status, 502);
    let spans = wait_spans(&collector, 2).await?;
    assert!(spans.iter().all(|span| text(&span.attributes, "url.path") == "/bad"), "{spans:#?}");
    let errors: Vec<_> = spans.iter().map(|span| text(&span.attributes, "error.type")).collect();
    assert!(errors.iter().all(|error| !error.is_empty()), "{spans:#?}");
    assert!(spans.iter().all(|span| span.status.as_ref().is_some_and(|status| status.code == 2)));
    Ok(())
}

/// A collector that does not answer delays no request; spans above the bound are counted.
#[tokio::test]
async fn a_collector_that_hangs_delays_nothing() -> anyhow::Result<()> {
    const REQUESTS: usize = 6_000;
    let origin = Origin::always(Answer::ok("a").field("Cache-Control", "max-age=600")).await?;
    let collector = Origin::always(Answer::hang()).await?;
    let cache = traced(&origin, &collector.url(), "sample = 1.0")?.serve().await?;
    let mut client = Client::connect(cache.address()).await?;
    for _ in 0..REQUESTS {
        let reply = client.ask(&Request::get("/a").field("Host", "test.example")).await?;
        assert_eq!(reply.status, 200);
    }
    let dropped = metric(&cache, "forebay_spans_total", "result=\"dropped\"").await?;
    let accepted = REQUESTS as u64 + 1 - dropped;
    assert!((4_096..=4_096 + 512 * 2).contains(&accepted), "{dropped} of {REQUESTS} dropped");
    Ok(())
}
