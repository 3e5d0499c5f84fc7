use std::time::Duration;

use super::*;
use crate::client::{Client, Request};
use crate::gate::Gate;

async fn ask(origin: &Origin, request: &Request) -> crate::client::Reply {
    Client::connect(origin.address()).await.unwrap().ask(request).await.unwrap()
}

#[tokio::test]
async fn requests_are_kept_and_counted() {
    let origin = Origin::in_turn(vec![Answer::ok("one"), Answer::ok("two")]).await.unwrap();
    let mut client = Client::connect(origin.address()).await.unwrap();
    let put = Request::new("PUT", "/a?b=1").field("X-One", "1").body("12345").chunked();
    assert_eq!(client.ask(&put).await.unwrap().text(), "one");
    let conditional = Request::get("/a").field("If-None-Match", "\"x\"");
    assert_eq!(client.ask(&conditional).await.unwrap().text(), "two");
    assert_eq!(client.ask(&Request::get("/c")).await.unwrap().text(), "two");
    origin.wait_idle().await.unwrap();
    let counts = Counts {
        requests: 3,
        conditional: 1,
        connections: 1,
        in_flight_max: 1,
        ..Counts::default()
    };
    assert_eq!(origin.counts(), counts);
    assert_eq!((origin.requests_to("/a"), origin.requests_to("/x")), (2, 0));
    let first = origin.first().unwrap();
    assert_eq!((first.method.as_str(), first.target.as_str()), ("PUT", "/a?b=1"));
    assert_eq!((&first.body[..], first.body_length), (&b"12345"[..], 5));
    let names: Vec<&str> = first.fields.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Host", "X-One", "Transfer-Encoding"]);
    assert!(first.raw_head.starts_with(b"PUT /a?b=1 HTTP/1.1\r\nHost: "));
}

#[tokio::test]
async fn each_framing_arrives_whole() {
    for framing in [Framing::Length, Framing::Chunked, Framing::UntilClose] {
        let answer = Answer::ok("hello").framing(framing).field("X-A", "1").field("x-a", "2");
        let origin = Origin::always(answer.drip(3, Duration::ZERO)).await.unwrap();
        let reply = ask(&origin, &Request::get("/")).await;
        assert_eq!((reply.text().as_ref(), reply.ended_cleanly()), ("hello", true), "{framing:?}");
        assert_eq!(reply.fields.joined("X-A").unwrap(), "1, 2");
    }
    let given = Answer::ok("hello").framing(Framing::AsGiven).field("Content-Length", "3");
    let origin = Origin::always(given).await.unwrap();
    assert_eq!(ask(&origin, &Request::get("/")).await.text(), "hel");
}

#[tokio::test]
async fn answers_without_content_have_no_body() {
    let origin = Origin::in_turn(vec![
        Answer::ok("hello"),
        Answer::status(304).body("no"),
        Answer::ok("end").trailer("X-Sum", "3").interim(103, &[("Link", "</a>")]),
    ]);
    let origin = origin.await.unwrap();
    let mut client = Client::connect(origin.address()).await.unwrap();
    let head = client.ask(&Request::new("HEAD", "/")).await.unwrap();
    assert_eq!((head.field("content-length"), head.body_length()), (Some("5"), 0));
    let unchanged = client.ask(&Request::get("/")).await.unwrap();
    assert_eq!((unchanged.field("content-length"), unchanged.body_length()), (None, 0));
    let last = client.ask(&Request::get("/")).await.unwrap();
    assert_eq!((last.text().as_ref(), last.trailers().first("x-sum")), ("end", Some("3")));
    assert_eq!((last.interim.len(), last.interim[0].status), (1, 103));
    assert_eq!(last.interim[0].fields.first("link"), Some("</a>"));
}

#[tokio::test]
async fn truncates_by_close_and_by_reset() {
    for cut in [Cut::Close, Cut::Reset] {
        for framing in [Framing::Length, Framing::Chunked] {
            let answer = Answer::ok("hello").framing(framing).truncate(2, cut);
            let origin = Origin::always(answer).await.unwrap();
            let reply = ask(&origin, &Request::get("/")).await;
            assert!(!reply.ended_cleanly(), "{cut:?} {framing:?}");
            // A reset may overtake bytes that were sent before it.
            assert!(cut == Cut::Reset || reply.text() == "he");
            assert!(reply.broke().is_some());
        }
    }
}

#[tokio::test]
async fn malformed_and_missing_answers() {
    for (answer, raw) in [
        (Answer::raw("HTTP/9 nonsense\r\n"), "HTTP/9 nonsense\r\n"),
        (Answer::close(), ""),
        (Answer::reset(), ""),
    ] {
        let origin = Origin::always(answer).await.unwrap();
        let mut client = Client::connect(origin.address()).await.unwrap();
        client.send(&Request::get("/")).await.unwrap();
        assert_eq!(client.read_to_close().await.unwrap().bytes, raw);
    }
}

#[tokio::test]
async fn gates_hold_the_head_and_the_body() {
    let (head, body) = (Gate::new(), Gate::new());
    let answer = Answer::ok("hello").wait(&head).hold_at(2, &body);
    let origin = Origin::always(answer).await.unwrap();
    let mut client = Client::connect(origin.address()).await.unwrap();
    client.send(&Request::get("/")).await.unwrap();
    head.wait_waiters(1).await;
    assert_eq!(origin.counts().in_flight, 1);
    head.open();
    let mut reply = client.head().await.unwrap();
    client.read_body_until(&mut reply, 2).await.unwrap();
    body.wait_waiters(1).await;
    assert_eq!((reply.text().as_ref(), reply.ended_cleanly()), ("he", false));
    body.open();
    client.read_body(&mut reply).await.unwrap();
    assert_eq!((reply.text().as_ref(), reply.ended_cleanly()), ("hello", true));
}

#[tokio::test]
async fn a_client_that_closes_is_counted() {
    let origin = Origin::always(Answer::hang()).await.unwrap();
    let mut client = Client::connect(origin.address()).await.unwrap();
    client.send(&Request::get("/")).await.unwrap();
    origin.wait_requests(1).await.unwrap();
    drop(client);
    origin.wait_for("the hang-up", |counts| counts.abandoned == 1).await.unwrap();

    let mut client = Client::connect(origin.address()).await.unwrap();
    client.send_raw(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
    drop(client);
    origin.wait_for("the broken body", |counts| counts.broken_off == 1).await.unwrap();
    assert!(!origin.received()[1].complete);

    let mut client = Client::connect(origin.address()).await.unwrap();
    client.send_raw(b"nonsense\r\n\r\n").await.unwrap();
    origin.wait_for("the nonsense", |counts| counts.malformed == 1).await.unwrap();
}

#[tokio::test]
async fn a_request_with_expect_gets_100_continue() {
    let origin = Origin::start(|received| Answer::ok(received.body.clone())).await.unwrap();
    let mut client = Client::connect(origin.address()).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    client.send_raw(head).await.unwrap();
    client.wait_interim().await;
    client.send_raw(b"ok").await.unwrap();
    assert_eq!(client.reply().await.unwrap().text(), "ok");
}

#[tokio::test]
async fn a_dropped_origin_closes_its_connections() {
    let origin = Origin::always(Answer::hang()).await.unwrap();
    let mut client = Client::connect(origin.address()).await.unwrap();
    client.send(&Request::get("/")).await.unwrap();
    origin.wait_requests(1).await.unwrap();
    let address = origin.address();
    drop(origin);
    assert!(client.read_to_close().await.unwrap().bytes.is_empty());
    assert!(Client::connect(address).await.is_err());
}

#[tokio::test]
async fn a_stopped_origin_keeps_its_counters() {
    let origin = Origin::always(Answer::ok("here")).await.unwrap();
    let mut client = Client::connect(origin.address()).await.unwrap();
    client.ask(&Request::get("/")).await.unwrap();
    origin.shut().await.unwrap();
    assert!(Client::connect(origin.address()).await.is_err());
    assert!(client.read_to_close().await.unwrap().bytes.is_empty());
    assert_eq!(origin.requests(), 1);
    origin.shut().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_reports_the_requests() {
    let origin = Origin::always(Answer::ok("")).await.unwrap();
    ask(&origin, &Request::get("/seen")).await;
    let error = origin.wait_requests(2).await.unwrap_err().to_string();
    assert!(error.contains("for 2 requests") && error.contains("GET /seen"), "{error}");
}
