//! Compression of responses: forms of stored ones, and responses that are not stored.

use std::io::Read;

use anyhow::Result;
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Framing, Origin, Received};

use crate::server::{TestServer, site};

const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// Compression of stored responses, with direct hits and without.
const FRONTS: [&[(&str, &str)]; 2] =
    [&[("compress", "\"stored\"")], &[("compress", "\"stored\""), ("direct_hits", "false")]];

fn page(length: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|n: usize| format!("line {n} of {}\n", n * n).into_bytes());
    lines.take(length).collect()
}

fn answer(body: Vec<u8>) -> Answer {
    Answer::ok(body)
        .field("Content-Type", "text/html; charset=utf-8")
        .field("Cache-Control", "max-age=60")
        .field("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
        .field("ETag", "\"t\"")
}

fn decoded(reply: &Reply) -> Vec<u8> {
    let (mut plain, body) = (Vec::new(), reply.body());
    let read = match reply.field("content-encoding") {
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut plain),
        Some("br") => brotli::Decompressor::new(body, 4_096).read_to_end(&mut plain),
        Some("zstd") => zstd::stream::read::Decoder::new(body)
            .and_then(|mut decoder| decoder.read_to_end(&mut plain)),
        _ => return body.to_vec(),
    };
    read.map(|_| plain).unwrap_or_default()
}

fn get(path: &str, coding: &str) -> Request {
    Request::get(path).field("Accept-Encoding", coding)
}

fn made(coding: &str, count: usize) -> String {
    result(coding, "made", count)
}

fn result(coding: &str, result: &str, count: usize) -> String {
    let labels = format!("site=\"default\",coding=\"{coding}\",result=\"{result}\"");
    format!("forebay_compressions_total{{{labels}}} {count}")
}

/// Requests a page until memory has its form: once from the origin, and two hits.
async fn make_form(
    server: &TestServer,
    client: &mut Client,
    path: &str,
    coding: &str,
) -> Result<()> {
    for _ in 0..3 {
        let reply = client.ask(&get(path, coding)).await?;
        assert_eq!(reply.field("content-encoding"), None, "nobody waits for a form");
    }
    server.wait_metric(&made(coding, 1)).await
}

#[tokio::test]
async fn a_thousand_hits_in_three_codings_are_three_compressions() -> Result<()> {
    for front in FRONTS {
        let origin = Origin::start(|_| answer(page(100_000))).await?;
        let server = TestServer::start(origin.address(), front).await?;
        let mut client = Client::connect(server.address).await?;
        let mut encoded = 0;
        for number in 0..1_000 {
            let coding = CODINGS[number % 3];
            let reply = client.ask(&get("/page", coding)).await?;
            assert_eq!(decoded(&reply), page(100_000), "{coding}");
            encoded += usize::from(reply.field("content-encoding") == Some(coding));
            if number == 8 {
                for coding in CODINGS {
                    server.wait_metric(&made(coding, 1)).await?;
                }
            }
        }
        for coding in CODINGS {
            server.wait_metric(&made(coding, 1)).await?;
        }
        assert!(encoded >= 985, "{encoded}");
        assert_eq!(origin.requests(), 1);
        let sent = origin.first()?;
        assert_eq!(sent.fields.first("accept-encoding"), Some("identity"));
    }
    Ok(())
}

#[tokio::test]
async fn a_form_has_its_own_fields_and_validates_as_the_stored_response() -> Result<()> {
    for front in FRONTS {
        let origin = Origin::start(|_| {
            answer(page(9_000)).field("Content-MD5", "x").field("Accept-Ranges", "bytes")
        })
        .await?;
        let server = TestServer::start(origin.address(), front).await?;
        let mut client = Client::connect(server.address).await?;
        client.ask(&Request::get("/")).await?;
        // The first client that accepts the coding has the stored response already.
        let known = client.ask(&get("/", "br").field("If-None-Match", "\"t\"")).await?;
        assert_eq!((known.status, known.field("etag")), (304, Some("W/\"t\"")));
        make_form(&server, &mut client, "/", "br").await?;

        let form = client.ask(&get("/", "gzip;q=0.1, br")).await?;
        assert_eq!(form.field("content-encoding"), Some("br"));
        assert_eq!(form.field("etag"), Some("W/\"t\""));
        assert_eq!(form.field("vary"), Some("accept-encoding"));
        assert_eq!((form.field("content-md5"), form.field("accept-ranges")), (None, None));
        assert_eq!(form.field("content-length"), Some(&*form.body().len().to_string()));
        assert_eq!(form.field("cache-status"), Some("forebay; hit; ttl=60"));
        assert!(form.body().len() < 3_000);

        let plain = client.ask(&Request::get("/")).await?;
        assert_eq!((plain.field("content-encoding"), plain.field("etag")), (None, Some("\"t\"")));
        assert_eq!(plain.field("vary"), Some("accept-encoding"));
        assert_eq!((plain.field("content-md5"), plain.body().len()), (Some("x"), 9_000));
        for refusal in ["identity", "br;q=0", "deflate", "identity;q=0", "br;q=0.5, identity"] {
            let reply = client.ask(&get("/", refusal)).await?;
            assert_eq!((reply.status, reply.field("content-encoding")), (200, None), "{refusal}");
        }

        let head = Request::new("HEAD", "/").field("Accept-Encoding", "br");
        let head = client.ask(&head).await?;
        assert_eq!(head.field("content-length"), form.field("content-length"));
        assert_eq!(head.field("content-encoding"), Some("br"));

        for (coding, tag, expected) in [
            ("br", "\"t\"", "W/\"t\""),
            ("br", "W/\"t\"", "W/\"t\""),
            ("identity", "W/\"t\"", "\"t\""),
        ] {
            let reply = client.ask(&get("/", coding).field("If-None-Match", tag)).await?;
            assert_eq!(
                (reply.status, reply.field("etag")),
                (304, Some(expected)),
                "{coding} {tag}"
            );
            assert_eq!(reply.field("vary"), Some("accept-encoding"));
            assert_eq!(reply.field("content-encoding"), None);
        }

        let part = get("/", "br").field("Range", "bytes=0-9").field("If-Range", "\"t\"");
        let part = client.ask(&part).await?;
        assert_eq!((part.status, part.field("content-encoding")), (206, None));
        assert_eq!((part.field("etag"), part.body()), (Some("\"t\""), &page(10)[..]));
        assert_eq!(part.field("vary"), Some("accept-encoding"));
        assert_eq!(origin.requests(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn responses_that_may_not_be_encoded_stay_as_they_are() -> Result<()> {
    let origin = Origin::start(|received: &Received| match received.path() {
        "/transformed" => answer(page(9_000)).field("Cache-Control", "no-transform"),
        "/encoded" => answer(page(9_000)).field("Content-Encoding", "gzip"),
        "/image" => Answer::ok(page(9_000))
            .field("Content-Type", "image/png")
            .field("Cache-Control", "max-age=60"),
        "/short" => answer(page(1_000)),
        _ => answer(page((8 << 20) + 1)),
    })
    .await?;
    let server = TestServer::start(origin.address(), FRONTS[0]).await?;
    let mut client = Client::connect(server.address).await?;
    let rows = [
        ("/transformed", None, None),
        ("/encoded", Some("gzip"), None),
        ("/image", None, None),
        ("/short", None, Some("accept-encoding")),
        ("/long", None, Some("accept-encoding")),
    ];
    for (path, encoding, vary) in rows {
        for _ in 0..5 {
            let reply = client.ask(&get(path, "br")).await?;
            assert_eq!(reply.field("content-encoding"), encoding, "{path}");
            assert_eq!(reply.field("vary"), vary, "{path}");
            assert_eq!(reply.field("etag").unwrap_or("\"t\""), "\"t\"", "{path}");
        }
    }
    assert!(!server.metrics().contains("forebay_compressions_total{"));
    Ok(())
}

#[tokio::test]
async fn a_form_that_is_hardly_smaller_is_not_kept() -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(3);
    let noise: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(9_000).collect();
    let body = noise.clone();
    let origin = Origin::start(move |_| answer(body.clone())).await?;
    let server = TestServer::start(origin.address(), FRONTS[0]).await?;
    let mut client = Client::connect(server.address).await?;
    for _ in 0..9 {
        let reply = client.ask(&get("/", "gzip")).await?;
        assert_eq!((reply.field("content-encoding"), reply.body()), (None, &noise[..]));
    }
    server.wait_metric(&result("gzip", "larger", 1)).await
}

#[tokio::test]
async fn forms_stay_with_a_body_that_the_origin_confirms() -> Result<()> {
    let origin = Origin::start(|received: &Received| {
        if received.is_conditional() {
            return Answer::status(304).field("ETag", "\"t\"").field("X-Version", "2");
        }
        answer(page(9_000)).field("X-Version", "1")
    })
    .await?;
    let server = TestServer::start(origin.address(), FRONTS[0]).await?;
    let mut client = Client::connect(server.address).await?;
    make_form(&server, &mut client, "/", "gzip").await?;
    let bytes = server.service.engine().memory().bytes();
    server.clock.step(std::time::Duration::from_secs(61));
    for _ in 0..4 {
        let reply = client.ask(&get("/", "gzip")).await?;
        assert_eq!(reply.field("content-encoding"), Some("gzip"));
        assert_eq!(reply.field("x-version"), Some("2"));
        assert_eq!(decoded(&reply), page(9_000));
    }
    assert!(server.metrics().contains(&made("gzip", 1)));
    let now = server.service.engine().memory().bytes();
    assert!(now.abs_diff(bytes) < 100, "{bytes} {now}");
    Ok(())
}

#[tokio::test]
async fn variants_have_forms_of_their_own() -> Result<()> {
    let origin = Origin::start(|received: &Received| {
        let language = received.fields.first("accept-language").unwrap_or("-");
        let body = language.repeat(4_000).into_bytes();
        answer(body).field("Vary", "Accept-Language, Accept-Encoding")
    })
    .await?;
    let server = TestServer::start(origin.address(), FRONTS[0]).await?;
    let mut client = Client::connect(server.address).await?;
    for (number, language) in ["de", "en"].into_iter().enumerate() {
        let request = |coding| get("/", coding).field("Accept-Language", language);
        for _ in 0..3 {
            client.ask(&request("gzip")).await?;
        }
        server.wait_metric(&made("gzip", number + 1)).await?;
    }
    for language in ["de", "en"] {
        for (coding, encoding) in [("gzip", Some("gzip")), ("x", None)] {
            let request = get("/", coding).field("Accept-Language", language);
            let reply = client.ask(&request).await?;
            assert_eq!(reply.field("content-encoding"), encoding);
            assert_eq!(reply.field("vary"), Some("Accept-Language, Accept-Encoding"));
            assert_eq!(decoded(&reply), language.repeat(4_000).into_bytes());
        }
    }
    assert_eq!(origin.requests(), 2, "codings are no variants");
    Ok(())
}

#[tokio::test]
async fn long_forms_are_charged_to_memory_and_leave_with_their_entry() -> Result<()> {
    // Not compressible to less than a segment.
    let mut rng = fastrand::Rng::with_seed(5);
    let body: Vec<u8> = std::iter::repeat_with(|| rng.u8(b'a'..b'q')).take(1_000_000).collect();
    let expected = body.clone();
    let origin = Origin::start(move |_| answer(body.clone())).await?;
    let server = TestServer::start(origin.address(), FRONTS[0]).await?;
    let memory = || server.service.engine().memory().bytes();
    let mut client = Client::connect(server.address).await?;
    let empty = memory();
    for _ in 0..2 {
        client.ask(&get("/", "gzip")).await?;
    }
    let before = memory();
    client.ask(&get("/", "gzip")).await?;
    server.wait_metric(&made("gzip", 1)).await?;
    let reply = client.ask(&get("/", "gzip")).await?;
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
    assert_eq!(decoded(&reply), expected);
    let length = reply.body().len() as u64;
    assert!((300_000..600_000).contains(&length), "{length}");
    let form = memory() - before;
    assert!((length..length + 2_000).contains(&form), "{form} bytes for {length}");
    // A reader that has begun keeps the form after a purge; it is charged as a body in flight.
    let mut slow = Client::connect(server.address).await?;
    slow.send(&get("/", "gzip")).await?;
    let mut begun = slow.head().await?;
    server.service.engine().purge(&forebay_core::Purge::All, forebay_core::Reach::Hard).await;
    let plain = client.ask(&get("/", "gzip")).await?;
    assert_eq!(plain.field("content-encoding"), None, "the form left with its entry");
    slow.read_body(&mut begun).await?;
    assert_eq!(decoded(&begun), expected);
    assert!(memory() < before + 1_000 + empty, "{} {before}", memory());
    Ok(())
}

#[tokio::test]
async fn a_reload_turns_compression_off_and_on_at_once() -> Result<()> {
    let origin = Origin::start(|_| answer(page(9_000))).await?;
    let server = TestServer::start(origin.address(), FRONTS[0]).await?;
    let mut client = Client::connect(server.address).await?;
    make_form(&server, &mut client, "/", "zstd").await?;
    let on = server.service.sites()[0].settings.clone();
    server.service.reload(&[site(origin.address())?]);
    let reply = client.ask(&get("/", "zstd")).await?;
    assert_eq!((reply.field("content-encoding"), reply.field("etag")), (None, Some("\"t\"")));
    server.service.reload(&[on]);
    let reply = client.ask(&get("/", "zstd")).await?;
    assert_eq!(reply.field("content-encoding"), Some("zstd"));
    assert_eq!(origin.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn responses_that_are_not_stored_are_encoded_only_with_pass() -> Result<()> {
    let private = |received: &Received| {
        let answer = Answer::ok(page(30_000))
            .field("Content-Type", "application/json")
            .field("ETag", "\"p\"")
            .framing(if received.path() == "/chunked" {
                Framing::Chunked
            } else {
                Framing::Length
            });
        match received.path() {
            "/posted" => answer,
            _ => answer.field("Cache-Control", "private"),
        }
    };
    for (value, encoding) in [("\"stored\"", None), ("\"pass\"", Some("br"))] {
        let origin = Origin::start(private).await?;
        let server = TestServer::start(origin.address(), &[("compress", value)]).await?;
        let mut client = Client::connect(server.address).await?;
        for path in ["/private", "/chunked", "/posted"] {
            let method = if path == "/posted" { "POST" } else { "GET" };
            let request = Request::new(method, path).field("Accept-Encoding", "br, gzip;q=0.5");
            let reply = client.ask(&request).await?;
            assert_eq!(reply.field("content-encoding"), encoding, "{path}");
            assert_eq!(reply.field("vary"), Some("accept-encoding"), "{path}");
            let tag = if encoding.is_some() { "W/\"p\"" } else { "\"p\"" };
            assert_eq!(reply.field("etag"), Some(tag), "{path}");
            assert_eq!(decoded(&reply), page(30_000), "{path}");
            let plain = client.ask(&Request::new(method, path)).await?;
            assert_eq!((plain.field("content-encoding"), plain.body().len()), (None, 30_000));
        }
        let head = Request::new("HEAD", "/private").field("Accept-Encoding", "br");
        assert_eq!(client.ask(&head).await?.field("content-encoding"), encoding);
        if encoding.is_some() {
            server.wait_metric(&made("br", 3)).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_event_is_sent_before_the_next_one() -> Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        Answer::ok("data: 1\n\ndata: 2\n\n")
            .field("Content-Type", "text/event-stream")
            .field("Cache-Control", "no-store")
            .framing(Framing::Chunked)
            .hold_at(9, &held)
    })
    .await?;
    let server = TestServer::start(origin.address(), &[("compress", "\"pass\"")]).await?;
    let mut client = Client::connect(server.address).await?;
    client.send(&get("/events", "gzip")).await?;
    let mut reply = client.head().await?;
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
    // A flushed gzip stream of one event is longer than the header of gzip, 10 bytes.
    client.read_body_until(&mut reply, 11).await?;
    let mut first = [0; 9];
    flate2::read::GzDecoder::new(reply.body()).read_exact(&mut first)?;
    assert_eq!(&first, b"data: 1\n\n");
    gate.open();
    client.read_body(&mut reply).await?;
    assert_eq!(decoded(&reply), b"data: 1\n\ndata: 2\n\n");
    Ok(())
}
