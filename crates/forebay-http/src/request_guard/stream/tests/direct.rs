//! Responses without hyper: their order among those of hyper, partial writes, split heads.

use super::super::super::direct::DirectOutput;
use super::*;
use crate::record::{ConnectionEnd, Record};
use crate::request_guard::PlainHead;

/// Answers requests for `/direct` with a body of this length.
struct Direct(usize);

impl DirectResponder for Direct {
    fn respond(&self, received: &[u8], output: &mut DirectOutput) -> Option<usize> {
        let head = PlainHead::read(received, |_| true)?;
        if head.target != "/direct" {
            return None;
        }
        let body = Bytes::from(vec![b'd'; self.0]);
        output.write(
            format!("HTTP/1.1 200 OK\r\nx-ours: d\r\ncontent-length: {}", self.0).as_bytes(),
        );
        output.write(b"\r\n\r\n");
        output.write_body(&body, || Some(body.clone()));
        Some(head.length)
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
