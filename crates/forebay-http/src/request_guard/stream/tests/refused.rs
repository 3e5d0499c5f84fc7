//! Tests of rejected messages: the first invalid byte, the response, and that hyper never reads
//! them.

use proptest::prelude::*;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::request_guard::framing::Scanner;
use crate::request_guard::{FIELDS_MAX, HEAD_MAX, samples};

#[tokio::test(start_paused = true)]
async fn invalid_requests_get_their_status_after_the_valid_one_and_never_reach_the_service() {
    for bad in samples::bad() {
        let bytes = [PLAIN.as_bytes(), &bad.bytes(), PLAIN.as_bytes()].concat();
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        let (client, io) = duplex(WHOLE);
        let server = serve(io, Origin::default());
        let received =
            timeout(Duration::from_secs(2), exchange(client, &bytes)).await.expect("close");

        // hyper's first read is 8 KiB, so an error in a larger body is found after its head was
        // passed on.
        let seen_whole = bytes.len() < 8192;
        let refusal = Failure::Refused(bad.why).status().as_u16();
        assert_eq!(statuses(&received), [200, refusal], "{shown}");
        assert!(!seen_whole || server.origin.paths() == ["/plain"], "{shown}");
        assert_eq!(server.counters.framing_errors(bad.why), 1, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_get_their_status_when_sent_byte_by_byte() {
    for bad in samples::bad() {
        let bytes = [PLAIN.as_bytes(), &bad.bytes(), PLAIN.as_bytes()].concat();
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        let (client, io) = duplex(1);
        let server = serve(io, Origin::default());
        let received =
            timeout(Duration::from_secs(2), exchange(client, &bytes)).await.expect("close");

        let refusal = Failure::Refused(bad.why).status().as_u16();
        assert_eq!(statuses(&received), [200, refusal], "{shown}");
        let seen: &[&str] = if bad.in_body() { &["/plain", "/bad"] } else { &["/plain"] };
        assert_eq!(server.origin.paths(), seen, "{shown}");
        assert_eq!(server.counters.framing_errors(bad.why), 1, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn valid_requests_pass_whole_and_byte_by_byte() {
    for good in samples::good() {
        for capacity in [WHOLE, 1] {
            let bytes = [&good.bytes, "GET /end HTTP/1.0\r\n\r\n".as_bytes()].concat();
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
            let keeps = !shown.contains("HTTP/1.0\r\n\r\nGET");
            let (client, io) = duplex(capacity);
            let server = serve(io, Origin::default());
            let statuses = statuses(&exchange(client, &bytes).await);
            assert!(statuses.iter().all(|&status| status == 200), "{statuses:?} {shown}");
            let expected = good.requests + u64::from(keeps);
            assert_eq!(statuses.len() as u64, expected, "{shown}");
            assert_eq!(server.origin.paths().len() as u64, expected, "{shown}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_follows_the_response_in_progress() {
    let (mut client, io) = duplex(WHOLE);
    let delay = Some(Duration::from_secs(5));
    let server = serve(io, Origin { delay, ..Origin::default() });
    client.write_all(PLAIN.as_bytes()).await.unwrap();
    // The service is busy now, and hyper reads on to detect a disconnect.
    sleep(Duration::from_secs(1)).await;
    let received = exchange(client, b"GET /bad HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n").await;
    assert_eq!(statuses(&received), [200, 400]);
    assert_eq!(server.origin.paths(), ["/plain"]);
    assert!(server.task.await.unwrap().is_ok(), "a refusal is a regular end");
}

#[tokio::test(start_paused = true)]
async fn more_fields_than_the_maximum_get_431() {
    for (fields, status) in [(FIELDS_MAX, 200), (FIELDS_MAX + 1, 431)] {
        let (client, io) = duplex(WHOLE);
        let _server = serve(io, Origin::default());
        let more = "X: y\r\n".repeat(fields - 1);
        let head = format!("GET / HTTP/1.0\r\nHost: a\r\n{more}\r\n");
        assert_eq!(statuses(&exchange(client, head.as_bytes()).await), [status]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_of_the_largest_size_passes_and_one_byte_more_gets_431() {
    for (size, status) in [(HEAD_MAX, 200), (HEAD_MAX + 1, 431)] {
        for capacity in [WHOLE, 1] {
            let (client, io) = duplex(capacity);
            let _server = serve(io, Origin::default());
            let mut head = samples::filled_head(size);
            // HTTP/1.0, so that the connection of the valid request is closed as well.
            head[13] = b'0';
            assert_eq!(head[6..14], *b"HTTP/1.0");
            assert_eq!(statuses(&exchange(client, &head).await), [status], "{size} {capacity}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_after_a_rejection_are_discarded_up_to_a_limit() {
    let early = format!("POST /early HTTP/1.0\r\nContent-Length: {}\r\n\r\n", 1 << 30);
    for (start, status) in [("GET /bad HTTP/1.1\r\n\r\n", 400), (&early, 413)] {
        for (size, all_taken) in [(LINGER_BYTES_MAX / 2, true), (2 * LINGER_BYTES_MAX, false)] {
            let (client, io) = duplex(1024);
            let _server = serve(io, Origin { ignores_body: true, ..Origin::default() });
            let (mut reader, mut writer) = tokio::io::split(client);
            let bytes = [start.as_bytes(), &vec![b'x'; size]].concat();
            let mut received = Vec::new();
            let (sent, read) =
                tokio::join!(writer.write_all(&bytes), reader.read_to_end(&mut received));
            read.unwrap();
            assert_eq!(statuses(&received), [status]);
            assert_eq!(sent.is_ok(), all_taken, "{size} bytes after {start}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stays_connected_after_a_rejection_is_closed_after_a_second() {
    let (mut client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let begun = Instant::now();
    client.write_all(b"GET /bad HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(server.task.await.unwrap().is_ok());
    assert_eq!(begun.elapsed().as_secs(), 1);

    // A regular end has no linger timeout.
    let (mut client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let begun = Instant::now();
    client.write_all(b"GET /good HTTP/1.0\r\n\r\n").await.unwrap();
    assert!(server.task.await.unwrap().is_ok());
    assert!(begun.elapsed().is_zero());
}

/// Reads through a guard with buffers of `size` bytes, to the end or the first error.
async fn read_by(bytes: &[u8], size: usize) -> (Vec<u8>, Option<io::ErrorKind>) {
    let stream = tokio::io::join(bytes, tokio::io::sink());
    let mut guarded = Guarded::new(stream, ClientTimeouts::default(), Arc::default());
    let (mut received, mut buffer) = (Vec::new(), vec![0; size]);
    loop {
        // After a substitute request, the reader waits for its response.
        let Poll::Ready(read) = polled(guarded.read(&mut buffer)).await else {
            return (received, None);
        };
        match read {
            Ok(0) => return (received, None),
            Ok(length) => received.extend_from_slice(&buffer[..length]),
            Err(error) => return (received, Some(error.kind())),
        }
    }
}

#[tokio::test]
async fn buffers_of_any_size_get_the_valid_part_and_the_substitute() {
    for bad in samples::bad() {
        let shown = String::from_utf8_lossy(&bad.until[..bad.until.len().min(200)]).into_owned();
        for size in if bad.in_body() { 1..2 } else { 1..9 } {
            let (received, error) = read_by(&bad.bytes(), size).await;
            let expected = if bad.in_body() { &bad.until[..] } else { SUBSTITUTE_GET };
            assert!(received == expected, "{shown}");
            let failed = bad.in_body().then_some(io::ErrorKind::InvalidData);
            assert_eq!(error, failed, "{shown}");
        }
    }
}

#[tokio::test]
async fn an_incomplete_head_is_withheld() {
    for split in 1..PLAIN.len() {
        let (mut client, io) = duplex(WHOLE);
        let mut guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
        let (begun, rest) = PLAIN.as_bytes().split_at(split);
        client.write_all(begun).await.unwrap();
        let mut buffer = [0; 1024];
        assert!(polled(guarded.read(&mut buffer)).await.is_pending(), "{split}");
        client.write_all(&[rest, PLAIN.as_bytes(), begun].concat()).await.unwrap();
        let mut received = Vec::new();
        while received.len() < 2 * PLAIN.len() {
            let read = guarded.read(&mut buffer).await.unwrap();
            received.extend_from_slice(&buffer[..read]);
        }
        assert_eq!(received, PLAIN.repeat(2).as_bytes(), "{split}");
        drop(client);
        // An incomplete head is discarded at the end of the stream.
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_head_request_gets_a_response_without_a_body() {
    for (bad, substitute) in [
        ("HEAD /bad HTTP/1.1\r\n\r\n", SUBSTITUTE_HEAD),
        ("\r\nHEAD /bad HTTP/1.1\r\n\r\n", SUBSTITUTE_HEAD),
        ("HEADER /bad HTTP/1.1\r\n\r\n", SUBSTITUTE_GET),
    ] {
        for size in 1..60 {
            let bytes = [PLAIN, bad].concat();
            let (received, error) = read_by(bytes.as_bytes(), size).await;
            assert_eq!(received, [PLAIN.as_bytes(), substitute].concat(), "{bad} by {size}");
            assert_eq!(error, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_above_the_maximum_is_answered_before_its_request() {
    let (mut client, io) = duplex(WHOLE);
    let counters = Arc::new(GuardCounters::default());
    let mut guarded = Guarded::rejecting(io, ClientTimeouts::default(), Arc::clone(&counters));
    let exchanges = guarded.exchanges();
    client.write_all(PLAIN.as_bytes()).await.unwrap();
    let mut buffer = [0; 1024];
    let read = guarded.read(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..read], SUBSTITUTE_GET);
    assert!(timeout(LONG, guarded.read(&mut buffer)).await.is_err(), "nothing of the client");
    let _open = exchanges.open();
    assert_eq!(exchanges.rejection(), Some(Rejection::TooManyConnections));
    assert_eq!(counters.connections_rejected(), 1);
}

#[tokio::test]
async fn a_rejection_is_delivered_although_the_client_sends_on() {
    let junk = "x".repeat(100_000);
    let early = format!("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{junk}");
    let bad = format!("GET /bad HTTP/1.1\r\n\r\n{junk}");
    for (bytes, status) in [(bad, 400), (early, 413)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = serve(
            listener.accept().await.unwrap().0,
            Origin { ignores_body: true, ..Origin::default() },
        );
        client.write_all(bytes.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.expect("an answer and no reset");
        assert_eq!(statuses(&received), [status]);
        drop(client);
        let _ = server.task.await.unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// hyper stops at every byte that the scanner rejects, and reads accepted bytes in the same
    /// way.
    #[test]
    fn hyper_never_sees_more_requests_than_the_scanner(
        bytes in crate::request_guard::framing::tests::modified_stream(),
        capacity in 1_usize..300,
    ) {
        let mut scanner = Scanner::default();
        // No response here accepts another protocol, so HTTP continues after each upgrade request.
        let refused = bytes.chunks(1).any(|byte| {
            scanner.resume_http();
            scanner.feed(byte).is_err()
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (received, paths) = runtime.block_on(async {
            let (client, io) = duplex(capacity);
            let server = serve(io, Origin::default());
            let received = timeout(LONG, exchange(client, &bytes)).await.expect("closed in time");
            (received, server.origin.paths())
        });
        let statuses = statuses(&received);
        prop_assert!(paths.len() as u64 <= scanner.heads(), "{:?}", paths);
        let good = statuses.iter().filter(|&&status| status == 200).count();
        prop_assert!(good as u64 <= scanner.heads(), "{:?}", statuses);
        // Only the last response may have another status: the connection is closed after it.
        prop_assert!(statuses.iter().rev().skip(1).all(|&status| status == 200), "{:?}", statuses);
        let stopped = statuses.last().is_some_and(|&status| status != 200);
        let closes = memchr::memmem::find(&bytes, b"HTTP/1.0").is_some();
        prop_assert!(!refused || stopped || closes, "{:?} for a refused stream", statuses);
    }
}
