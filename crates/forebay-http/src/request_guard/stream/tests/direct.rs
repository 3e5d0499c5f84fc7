//! Responses without hyper: their order among those of hyper, partial writes, split heads, fetches.

use http::{Method, StatusCode};

use super::super::super::direct::{DirectAnswer, DirectFetch, DirectOutput, DirectResponse};
use super::*;
use crate::record::{ConnectionEnd, Labels, Record};
use crate::request_guard::PlainHead;

/// Answers requests for `/direct` with a body of this length, and those for `/fetched` after a second.
/// It leaves those for `/left` to hyper after a second.
struct Direct(usize);

/// Fetches a response, or leaves the request to hyper.
fn fetch(received: &[u8], head: &PlainHead<'_>) -> DirectFetch {
    let response = (head.target == "/fetched").then(|| DirectResponse {
        head: b"HTTP/1.1 200 OK\r\nx-ours: f\r\ncontent-length: 0\r\n\r\n".to_vec(),
        body: Bytes::new(),
        record: Record::new(Labels::REFUSED, &Method::GET, StatusCode::OK, Duration::ZERO),
    });
    let head = Bytes::copy_from_slice(&received[..head.length]);
    let response = Box::pin(async move {
        sleep(Duration::from_secs(1)).await;
        response
    });
    DirectFetch { head, response }
}

impl DirectResponder for Direct {
    fn respond(&self, received: &[u8], output: &mut DirectOutput, _: &Exchanges) -> DirectAnswer {
        let Some(head) = PlainHead::read(received, |_| true) else { return DirectAnswer::Declined };
        if matches!(head.target, "/fetched" | "/left") {
            return DirectAnswer::Begun(Box::new(fetch(received, &head)));
        }
        if head.target != "/direct" {
            return DirectAnswer::Declined;
        }
        let body = Bytes::from(vec![b'd'; self.0]);
        output.write(
            format!("HTTP/1.1 200 OK\r\nx-ours: d\r\ncontent-length: {}", self.0).as_bytes(),
        );
        output.write(b"\r\n\r\n");
        output.write_body(&body, || Some(body.clone()));
        DirectAnswer::Written(head.length)
    }

    fn record(&self, _: &mut [Record], _: ConnectionEnd) {}
}

fn start(capacity: usize, body: usize) -> (DuplexStream, Server) {
    let (client, io) = duplex(capacity);
    let guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
    (client, serve_guarded(guarded.with_responder(Arc::new(Direct(body))), Origin::default()))
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// Reads responses until their end, and returns `d` or `1` for each, by who wrote it.
async fn writers(client: &mut DuplexStream, count: usize) -> String {
    let mut received = Vec::new();
    let marks = |received: &[u8]| -> String {
        let text = String::from_utf8_lossy(received).into_owned();
        text.match_indices(OURS).map(|(at, _)| &text[at + 8..=at + 8]).collect()
    };
    while marks(&received).len() < count || !received.ends_with(b"\r\n\r\n") {
        client.read_buf(&mut received).await.unwrap();
    }
    marks(&received)
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order_by_one_writer_at_a_time() {
    let (mut client, server) = start(WHOLE, 0);
    let text = [get("/direct"), get("/direct"), get("/a"), get("/direct"), get("/b")].concat();
    client.write_all(text.as_bytes()).await.unwrap();
    // While hyper has a request, it gets those after it, too.
    assert_eq!(writers(&mut client, 5).await, "dd111");
    client.write_all(get("/direct").repeat(16).as_bytes()).await.unwrap();
    assert_eq!(writers(&mut client, 16).await, "d".repeat(16));
    assert_eq!(server.origin.paths(), ["/a", "/direct", "/b"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_a_fetch_waits_for_its_response() {
    let (mut client, server) = start(WHOLE, 0);
    let paths = ["/direct", "/fetched", "/direct", "/fetched", "/left", "/direct", "/a"];
    client.write_all(paths.map(get).concat().as_bytes()).await.unwrap();
    // hyper gets the request that is left to it, and those behind it.
    assert_eq!(writers(&mut client, 7).await, "dfdf111");
    client.write_all(get("/fetched").as_bytes()).await.unwrap();
    sleep(Duration::from_millis(500)).await;
    client.write_all([get("/direct"), "GET /fet".to_owned()].concat().as_bytes()).await.unwrap();
    assert_eq!(writers(&mut client, 2).await, "fd");
    client.write_all(b"ched HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    assert_eq!(writers(&mut client, 1).await, "1", "a head in two parts is for hyper");
    assert_eq!(server.origin.paths(), ["/left", "/direct", "/a", "/fetched"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_its_side_during_a_fetch_gets_all_responses() {
    for (paths, expected) in [
        (&["/fetched"][..], &[200][..]),
        (&["/left"], &[200]),
        (&["/fetched", "/left", "/a", "/direct"], &[200; 4]),
    ] {
        let (mut client, _server) = start(WHOLE, 0);
        let text: String = paths.iter().map(|path| get(path)).collect();
        client.write_all(text.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        timeout(LONG, client.read_to_end(&mut received)).await.expect("it ends").unwrap();
        assert_eq!(statuses(&received), expected, "{paths:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_does_not_time_out_during_a_fetch() {
    let (mut client, io) = duplex(WHOLE);
    let idle_timeout = Duration::from_millis(300);
    let timeouts = ClientTimeouts { idle_timeout, ..ClientTimeouts::default() };
    let guarded = Guarded::new(io, timeouts, Arc::default()).with_responder(Arc::new(Direct(0)));
    let server = serve_guarded(guarded, Origin::default());
    client.write_all([get("/direct"), get("/fetched")].concat().as_bytes()).await.unwrap();
    assert_eq!(writers(&mut client, 2).await, "df");
    let ended = timeout(LONG, server.task).await.expect("it is idle now");
    assert!(ended.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn requests_received_before_the_guard_are_answered_like_others() {
    let (mut client, io) = duplex(WHOLE);
    let guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
    let mut guarded = guarded.with_responder(Arc::new(Direct(0)));
    let first = [get("/direct"), get("/direct"), "GET /dir".to_owned()].concat();
    guarded.hold(Bytes::from(first));
    let server = serve_guarded(guarded, Origin::default());
    assert_eq!(writers(&mut client, 2).await, "dd");
    client.write_all(b"ect HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    assert_eq!(writers(&mut client, 1).await, "1");
    client.write_all(get("/direct").as_bytes()).await.unwrap();
    assert_eq!(writers(&mut client, 1).await, "d");
    assert_eq!(server.origin.paths(), ["/direct"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_after_one_with_a_slow_response_waits_for_it() {
    let (mut client, io) = duplex(WHOLE);
    let guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
    let origin = Origin { delay: Some(Duration::from_secs(3)), ..Origin::default() };
    serve_guarded(guarded.with_responder(Arc::new(Direct(0))), origin);
    client.write_all(get("/a").as_bytes()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    client.write_all(get("/direct").as_bytes()).await.unwrap();
    assert_eq!(writers(&mut client, 2).await, "11");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_the_client_reads_slowly_arrives_whole() {
    // Bodies below and above the limit for copies.
    for length in [10_000, 100_000] {
        let (mut client, _server) = start(64, length);
        client.write_all(get("/direct").as_bytes()).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nx-ours: d\r\ncontent-length: {length}\r\n\r\n");
        let mut received = vec![0; head.len() + length];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(received, [head.into_bytes(), vec![b'd'; length]].concat());
        client.write_all(get("/a").as_bytes()).await.unwrap();
        assert_eq!(writers(&mut client, 1).await, "1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_disconnected_by_the_write_timeout() {
    let (mut client, server) = start(64, 100_000);
    client.write_all(get("/direct").as_bytes()).await.unwrap();
    let ended = timeout(LONG, server.task).await.expect("it ends").unwrap();
    assert!(ExpiredTimeout::in_chain(&ended.unwrap_err()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_head_in_two_parts_and_one_with_a_body_are_left_to_hyper() {
    let (mut client, server) = start(WHOLE, 0);
    client.write_all(b"GET /direct HTTP/1.1\r\nHo").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    client.write_all(b"st: h\r\n\r\n").await.unwrap();
    assert_eq!(writers(&mut client, 1).await, "1");
    let post = "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab";
    client.write_all([post, &get("/direct")].concat().as_bytes()).await.unwrap();
    assert_eq!(writers(&mut client, 2).await, "11");
    client.write_all(get("/direct").as_bytes()).await.unwrap();
    assert_eq!(writers(&mut client, 1).await, "d");
    assert_eq!(server.origin.paths(), ["/direct", "/p", "/direct"]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_request_after_direct_ones_is_rejected_after_their_responses() {
    let (client, server) = start(WHOLE, 0);
    let text = [get("/direct"), "GET / HTTP/1.1\r\nHost : h\r\n\r\n".to_owned()].concat();
    assert_eq!(statuses(&exchange(client, text.as_bytes()).await), [200, 400]);
    assert!(server.origin.paths().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_its_side_after_the_request_gets_the_response() {
    let (mut client, _server) = start(64, 10_000);
    client.write_all(get("/direct").as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    assert!(received.starts_with(b"HTTP/1.1 200 OK") && received.ends_with(&[b'd'; 10_000]));
}
