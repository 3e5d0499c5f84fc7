use super::*;
use crate::client::{Client, Request};

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
