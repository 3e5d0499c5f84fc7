//! A real hyper server above the guarded stream, and a client that sends raw bytes.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::framing::Scanner;
use super::super::interims::Interims;
use super::super::samples::{self, PLAIN};
use super::super::{FIELDS_MAX, HEAD_MAX, RATE_MIN, http1_builder};
use super::*;
use crate::failure::Failure;

/// What the service saw, and how it is to behave.
#[derive(Default)]
struct Origin {
    paths: Mutex<Vec<String>>,
    polls: AtomicUsize,
    delay: Option<Duration>,
    body: Bytes,
    ignores_body: bool,
}

impl Origin {
    fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.paths.lock().unwrap().push(request.uri().path().to_owned());
        if let Some(delay) = self.delay {
            sleep(delay).await;
        }
        let status = if self.ignores_body {
            413
        } else {
            match request.into_body().collect().await {
                Ok(_) => 200,
                Err(error) if Refusal::in_chain(&error).is_some() => {
                    let why = Refusal::in_chain(&error).unwrap();
                    Failure::Refused(why).status().as_u16()
                }
                Err(error) if Lapse::in_chain(&error).is_some() => 408,
                Err(_) => 500,
            }
        };
        let body = if status == 200 { self.body.clone() } else { Bytes::new() };
        Response::builder().status(status).header(OURS, "1").body(Full::new(body)).unwrap()
    }
}

struct Server {
    origin: Arc<Origin>,
    counters: Arc<FrontCounters>,
    task: JoinHandle<hyper::Result<()>>,
}

fn serve<S>(io: S, origin: Origin) -> Server
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (origin, counters) = (Arc::new(origin), Arc::new(FrontCounters::default()));
    let guarded = Guarded::new(io, Limits::default(), Arc::clone(&counters));
    let exchanges = guarded.exchanges();
    let service = {
        let origin = Arc::clone(&origin);
        service_fn(move |request| {
            let (origin, exchange) = (Arc::clone(&origin), exchanges.open());
            let turned_away = exchanges.turned_away();
            async move {
                let response = match turned_away {
                    None => origin.answer(request).await,
                    Some(why) => {
                        let status = Failure::from(why).status();
                        let answer = Response::builder().status(status).header(OURS, "1");
                        answer.body(Full::default()).unwrap()
                    }
                };
                drop(exchange);
                Ok::<_, Infallible>(response)
            }
        })
    };
    let mut connection = Box::pin(http1_builder().serve_connection(TokioIo::new(guarded), service));
    let task = {
        let origin = Arc::clone(&origin);
        tokio::spawn(std::future::poll_fn(move |cx| {
            origin.polls.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut connection).poll(cx)
        }))
    };
    Server { origin, counters, task }
}

/// Sends everything, keeps its side open, and reads until the server has closed its own.
async fn exchange(client: DuplexStream, bytes: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(client);
    let mut received = Vec::new();
    // The server may close before it has read everything: that is no failure of the client.
    let (_, read) = tokio::join!(writer.write_all(bytes), reader.read_to_end(&mut received));
    read.unwrap();
    received
}

/// A field of every answer that the service gives: hyper is to give none of its own.
const OURS: &str = "x-ours";

fn statuses(received: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(received);
    let answers = text.match_indices("HTTP/1.");
    assert_eq!(answers.clone().count(), text.matches(OURS).count(), "{text}");
    answers.map(|(at, _)| text[at + 9..at + 12].parse().unwrap()).collect()
}

/// Longer than any limit: a connection that is open at this age was not closed.
const LONG: Duration = Duration::from_secs(3600);

/// How much a duplex pipe holds: everything in one read, or one byte.
const WHOLE: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn bad_requests_get_400_after_the_good_one_and_never_reach_the_service() {
    for bad in samples::bad() {
        let bytes = [PLAIN.as_bytes(), &bad.bytes(), PLAIN.as_bytes()].concat();
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        let (client, io) = duplex(WHOLE);
        let server = serve(io, Origin::default());
        let received =
            timeout(Duration::from_secs(2), exchange(client, &bytes)).await.expect("close");

        // hyper reads 8 KiB at first, so a large body fault is found after its head was passed on.
        let seen_whole = bytes.len() < 8192;
        let refusal = Failure::Refused(bad.why).status().as_u16();
        assert_eq!(statuses(&received), [200, refusal], "{shown}");
        assert!(!seen_whole || server.origin.paths() == ["/plain"], "{shown}");
        assert_eq!(server.counters.refused(bad.why), 1, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn bad_requests_that_come_byte_by_byte_get_400_too() {
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
        assert_eq!(server.counters.refused(bad.why), 1, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn good_requests_pass_whole_and_byte_by_byte() {
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
async fn the_answer_under_way_comes_before_the_refusal() {
    let (mut client, io) = duplex(WHOLE);
    let delay = Some(Duration::from_secs(5));
    let server = serve(io, Origin { delay, ..Origin::default() });
    client.write_all(PLAIN.as_bytes()).await.unwrap();
    // The service is busy now, and hyper reads on to notice a client that leaves.
    sleep(Duration::from_secs(1)).await;
    let received = exchange(client, b"GET /bad HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n").await;
    assert_eq!(statuses(&received), [200, 400]);
    assert_eq!(server.origin.paths(), ["/plain"]);
    assert!(server.task.await.unwrap().is_ok(), "a refusal is a regular end");
}

#[tokio::test(start_paused = true)]
async fn more_fields_than_the_bound_get_431() {
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
            // HTTP/1.0, so that the good one is closed as well.
            head[13] = b'0';
            assert_eq!(head[6..14], *b"HTTP/1.0");
            assert_eq!(statuses(&exchange(client, &head).await), [status], "{size} {capacity}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_given_up_ten_seconds_after_its_first_byte() {
    let (client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let (mut reader, mut writer) = tokio::io::split(client);
    sleep(Duration::from_secs(20)).await;
    let begun = Instant::now();
    let drip = tokio::spawn(async move {
        for byte in std::iter::repeat_n(b"G", 1000) {
            if writer.write_all(byte).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(700)).await;
        }
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    let waited = begun.elapsed();
    assert!(
        (Duration::from_secs(10)..Duration::from_millis(11_010)).contains(&waited),
        "{waited:?}"
    );
    assert_eq!(statuses(&received), [408]);
    assert_eq!(server.counters.lapsed(Lapse::Head), 1);
    assert_eq!(server.origin.paths().len(), 0);
    drip.abort();
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_a_minute_after_its_last_answer() {
    for pause in [0, 30, 59] {
        let (mut client, io) = duplex(WHOLE);
        let server = serve(io, Origin::default());
        for _ in 0..3 {
            sleep(Duration::from_secs(pause)).await;
            client.write_all(PLAIN.as_bytes()).await.unwrap();
        }
        sleep(Duration::ZERO).await;
        let begun = Instant::now();
        let received = exchange(client, b"").await;
        let waited = begun.elapsed();
        assert!((59_990..60_010).contains(&waited.as_millis()), "{waited:?} after {pause}");
        assert_eq!(statuses(&received), [200; 3]);
        assert_eq!(server.counters.lapsed(Lapse::Idle), 1);
        assert!(server.task.await.unwrap().is_ok(), "an idle end is a regular one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_any_request_is_closed_after_a_minute() {
    let (client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let begun = Instant::now();
    assert!(exchange(client, b"").await.is_empty());
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(server.counters.lapsed(Lapse::Idle), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_service_is_not_idle_and_costs_few_wake_ups() {
    let (client, io) = duplex(WHOLE);
    let delay = Some(Duration::from_secs(600));
    let server = serve(io, Origin { delay, ..Origin::default() });
    let begun = Instant::now();
    let received = exchange(client, PLAIN.as_bytes()).await;
    assert_eq!(statuses(&received), [200]);
    let waited = begun.elapsed();
    assert!((659..=661).contains(&waited.as_secs()), "{waited:?}");
    // One wake-up for each idle timeout that passes, and a few for the request itself.
    let polls = server.origin.polls.load(Ordering::Relaxed);
    assert!(polls < 30, "{polls} polls in eleven minutes");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_fails_the_read_of_the_service() {
    for (dripped, seconds) in [(0, 30), (1, 35), (1000, 35)] {
        let (client, io) = duplex(WHOLE);
        let server = serve(io, Origin::default());
        let (mut reader, mut writer) = tokio::io::split(client);
        let begun = Instant::now();
        let head = "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\nabc";
        writer.write_all(head.as_bytes()).await.unwrap();
        let drip = tokio::spawn(async move {
            for _ in 0..dripped {
                sleep(Duration::from_secs(20)).await;
                let _ = writer.write_all(b"x").await;
            }
            writer
        });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.unwrap();
        assert_eq!(statuses(&received), [408]);
        // One second more: the connection lingers for the rest of the body.
        let waited = begun.elapsed().as_secs();
        assert!((seconds..=seconds + 1).contains(&waited), "{waited} s with {dripped} bytes");
        assert_eq!(server.counters.lapsed(Lapse::Body), 1);
        drip.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_keeps_the_least_rate_may_take_long() {
    let (client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let (mut reader, mut writer) = tokio::io::split(client);
    let head = "POST /long HTTP/1.0\r\nContent-Length: 614400\r\n\r\n";
    writer.write_all(head.as_bytes()).await.unwrap();
    let begun = Instant::now();
    for _ in 0..600 {
        sleep(Duration::from_secs(1)).await;
        writer.write_all(&[b'x'; RATE_MIN as usize]).await.unwrap();
    }
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    assert_eq!(statuses(&received), [200]);
    assert_eq!(server.counters.lapsed(Lapse::Body), 0);
    assert_eq!(begun.elapsed().as_secs(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_body_below_the_least_rate_is_given_up_when_it_is_a_window_behind() {
    let (client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let (mut reader, mut writer) = tokio::io::split(client);
    let head = "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 614400\r\n\r\n";
    writer.write_all(head.as_bytes()).await.unwrap();
    let begun = Instant::now();
    let sender = tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(1)).await;
            let _ = writer.write_all(&[b'x'; RATE_MIN as usize / 2]).await;
        }
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    assert_eq!(statuses(&received), [408]);
    // Half a second behind with each second, and the linger.
    let waited = begun.elapsed().as_secs();
    assert!((58..=61).contains(&waited), "{waited} s");
    assert_eq!(server.counters.lapsed(Lapse::Body), 1);
    sender.abort();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_is_given_up_after_two_minutes() {
    let (mut client, io) = duplex(1024);
    let body = Bytes::from(vec![b'x'; 1 << 20]);
    let server = serve(io, Origin { body, ..Origin::default() });
    let begun = Instant::now();
    client.write_all(PLAIN.as_bytes()).await.unwrap();
    let ended = timeout(LONG, server.task).await.expect("given up").unwrap();
    assert!(ended.is_err());
    assert_eq!(begun.elapsed().as_secs(), 240);
    assert_eq!(server.counters.lapsed(Lapse::Write), 1);
    drop(client);
}

/// Takes an answer of 1 MiB, so many bytes each second, and tells how many came in how much time.
async fn take_slowly(bytes: usize) -> (usize, Duration, Server) {
    const ANSWER: usize = 1 << 20;
    let (mut client, io) = duplex(1024);
    let body = Bytes::from(vec![b'x'; ANSWER]);
    let server = serve(io, Origin { body, ..Origin::default() });
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let (begun, mut taken, mut room) = (Instant::now(), 0, vec![0; bytes]);
    loop {
        sleep(Duration::from_secs(1)).await;
        let Ok(length) = client.read(&mut room).await else { break };
        taken += length;
        if length == 0 {
            break;
        }
    }
    (taken, begun.elapsed(), server)
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_taken_at_the_least_rate_is_delivered() {
    let (taken, waited, server) = take_slowly(RATE_MIN as usize).await;
    assert!(taken > 1 << 20, "{taken}");
    assert!((1020..1040).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(server.counters.lapsed(Lapse::Write), 0);
    assert_eq!(server.counters.lapsed(Lapse::Idle), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_taken_slower_is_given_up_when_it_is_a_window_behind() {
    for (bytes, seconds) in [(1, 240), (RATE_MIN as usize / 4, 320), (RATE_MIN as usize / 2, 480)] {
        let (taken, waited, server) = take_slowly(bytes).await;
        assert!(taken < 1 << 18, "{taken}");
        // What the pipe holds is still taken when we have given up.
        let still = 1024 / bytes as u64 + 1;
        let expected = seconds..=seconds + 2 + still;
        assert!(expected.contains(&waited.as_secs()), "{waited:?} for {bytes}");
        assert_eq!(server.counters.lapsed(Lapse::Write), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_client_still_sends_is_discarded_within_bounds() {
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
async fn a_client_that_stays_after_its_refusal_is_left_after_a_second() {
    let (mut client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let begun = Instant::now();
    client.write_all(b"GET /bad HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(server.task.await.unwrap().is_ok());
    assert_eq!(begun.elapsed().as_secs(), 1);

    // A regular end owes nobody anything and does not wait.
    let (mut client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let begun = Instant::now();
    client.write_all(b"GET /good HTTP/1.0\r\n\r\n").await.unwrap();
    assert!(server.task.await.unwrap().is_ok());
    assert!(begun.elapsed().is_zero());
}

/// What comes of it without waiting.
async fn polled<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Reads through a guard with buffers of this size, to the end or the first error.
async fn read_by(bytes: &[u8], size: usize) -> (Vec<u8>, Option<io::ErrorKind>) {
    let mut guarded = Guarded::new(bytes, Limits::default(), Arc::default());
    let (mut received, mut room) = (Vec::new(), vec![0; size]);
    loop {
        // Behind a stand-in, the reader waits for its answer to be written.
        let Poll::Ready(read) = polled(guarded.read(&mut room)).await else {
            return (received, None);
        };
        match read {
            Ok(0) => return (received, None),
            Ok(length) => received.extend_from_slice(&room[..length]),
            Err(error) => return (received, Some(error.kind())),
        }
    }
}

#[tokio::test]
async fn buffers_of_any_size_get_the_good_part_and_the_stand_in() {
    for bad in samples::bad() {
        let shown = String::from_utf8_lossy(&bad.until[..bad.until.len().min(200)]).into_owned();
        for size in if bad.in_body() { 1..2 } else { 1..9 } {
            let (received, error) = read_by(&bad.bytes(), size).await;
            let expected = if bad.in_body() { &bad.until[..] } else { STAND_IN };
            assert!(received == expected, "{shown}");
            let failed = bad.in_body().then_some(io::ErrorKind::InvalidData);
            assert_eq!(error, failed, "{shown}");
        }
    }
}

#[tokio::test]
async fn a_head_is_given_out_when_it_is_whole_and_not_before() {
    for split in 1..PLAIN.len() {
        let (mut client, io) = duplex(WHOLE);
        let mut guarded = Guarded::new(io, Limits::default(), Arc::default());
        let (begun, rest) = PLAIN.as_bytes().split_at(split);
        client.write_all(begun).await.unwrap();
        let mut room = [0; 1024];
        assert!(polled(guarded.read(&mut room)).await.is_pending(), "{split}");
        client.write_all(&[rest, PLAIN.as_bytes(), begun].concat()).await.unwrap();
        let mut received = Vec::new();
        while received.len() < 2 * PLAIN.len() {
            let read = guarded.read(&mut room).await.unwrap();
            received.extend_from_slice(&room[..read]);
        }
        assert_eq!(received, PLAIN.repeat(2).as_bytes(), "{split}");
        drop(client);
        // What has no end by then is nothing.
        assert_eq!(guarded.read(&mut room).await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_head_request_gets_an_answer_without_a_body() {
    for (bad, stand_in) in [
        ("HEAD /bad HTTP/1.1\r\n\r\n", STAND_IN_HEAD),
        ("\r\nHEAD /bad HTTP/1.1\r\n\r\n", STAND_IN_HEAD),
        ("HEADER /bad HTTP/1.1\r\n\r\n", STAND_IN),
    ] {
        for size in 1..60 {
            let bytes = [PLAIN, bad].concat();
            let (received, error) = read_by(bytes.as_bytes(), size).await;
            assert_eq!(received, [PLAIN.as_bytes(), stand_in].concat(), "{bad} by {size}");
            assert_eq!(error, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crowded_connection_is_answered_before_it_asks() {
    let (mut client, io) = duplex(WHOLE);
    let counters = Arc::new(FrontCounters::default());
    let mut guarded = Guarded::crowded(io, Limits::default(), Arc::clone(&counters));
    let exchanges = guarded.exchanges();
    client.write_all(PLAIN.as_bytes()).await.unwrap();
    let mut room = [0; 1024];
    let read = guarded.read(&mut room).await.unwrap();
    assert_eq!(&room[..read], STAND_IN);
    assert!(timeout(LONG, guarded.read(&mut room)).await.is_err(), "nothing of the client");
    let _open = exchanges.open();
    assert_eq!(exchanges.turned_away(), Some(TurnedAway::Crowded));
    assert_eq!(counters.crowded(), 1);
}

/// A request for another protocol.
const ASKING: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n";

/// A guard that has given out a request for another protocol, with more behind it.
async fn asked(early: &[u8]) -> (Guarded<DuplexStream>, DuplexStream, Arc<FrontCounters>) {
    let (mut client, io) = duplex(WHOLE);
    let counters = Arc::new(FrontCounters::default());
    let mut guarded = Guarded::new(io, Limits::default(), Arc::clone(&counters));
    client.write_all(&[ASKING, early].concat()).await.unwrap();
    let mut room = [0; 1024];
    let read = guarded.read(&mut room).await.unwrap();
    assert_eq!(&room[..read], ASKING);
    (guarded, client, counters)
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_an_answer_about_the_protocol_waits_for_it() {
    for early in [PLAIN.as_bytes(), b"\0"] {
        for comes_at_once in [true, false] {
            let at_once = if comes_at_once { early } else { b"" };
            let (mut guarded, mut client, counters) = asked(at_once).await;
            let exchange = guarded.exchanges().open();
            let mut room = [0; 1024];
            assert!(timeout(LONG, guarded.read(&mut room)).await.is_err(), "read too early");
            if !comes_at_once {
                client.write_all(early).await.unwrap();
                assert!(timeout(LONG, guarded.read(&mut room)).await.is_err(), "read too early");
            }
            let reading = tokio::spawn(async move { (guarded.read(&mut room).await, room) });
            sleep(Duration::ZERO).await;
            assert!(!reading.is_finished());
            drop(exchange);
            let (read, room) = reading.await.unwrap();
            let expected = if early == b"\0" { STAND_IN } else { early };
            assert_eq!(&room[..read.unwrap()], expected);
            assert_eq!(counters.refused(Refusal::Nul), u64::from(early == b"\0"));
        }
    }
}

#[tokio::test]
async fn requests_for_another_protocol_are_given_out_one_by_one() {
    let (mut guarded, _client, _) = asked(&[ASKING, ASKING, PLAIN.as_bytes()].concat()).await;
    let mut room = [0; 1024];
    for expected in [ASKING, ASKING, PLAIN.as_bytes()] {
        drop(guarded.exchanges().open());
        let read = guarded.read(&mut room).await.unwrap();
        assert_eq!(&room[..read], expected);
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_seen_to_leave() {
    let (mut guarded, client, _) = asked(b"").await;
    let _exchange = guarded.exchanges().open();
    drop(client);
    assert_eq!(guarded.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_is_neither_checked_nor_timed() {
    let (mut guarded, mut client, counters) = asked(b"\0early").await;
    let exchange = guarded.exchanges().open();
    guarded.set_tunnel();
    let mut room = [0; 1024];
    let read = guarded.read(&mut room).await.unwrap();
    assert_eq!(&room[..read], b"\0early");
    assert!(timeout(LONG, guarded.read(&mut room)).await.is_err(), "cut while idle");
    let large = vec![7; 2 * WHOLE];
    assert!(timeout(LONG, guarded.write_all(&large)).await.is_err(), "more than the pipe holds");
    client.write_all(b"\n").await.unwrap();
    assert_eq!(guarded.read(&mut room).await.unwrap(), 1);
    drop(exchange);
    guarded.shutdown().await.unwrap();
    assert!(Lapse::ALL.iter().all(|lapse| counters.lapsed(*lapse) == 0));
    assert!(Refusal::ALL.iter().all(|why| counters.refused(*why) == 0));
}

#[tokio::test]
async fn the_refusal_survives_what_the_client_sends_after_it() {
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

/// A request for another protocol that is answered in HTTP, and a bad head behind it that comes in
/// pieces.
#[tokio::test(start_paused = true)]
async fn a_bad_head_behind_a_request_for_another_protocol_gets_400_in_any_pieces() {
    for asking in [
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nontent-Length: 1\r\n\r\n",
    ] {
        for capacity in 1..200 {
            let bytes = format!("{asking}\raGET /next HTTP/1.1\r\nHost: a\r\n\r\n");
            let (client, io) = duplex(capacity);
            let server = serve(io, Origin::default());
            let received = timeout(LONG, exchange(client, bytes.as_bytes())).await.expect("close");
            assert_eq!(statuses(&received), [200, 400], "{capacity}");
            assert_eq!(server.origin.paths().len(), 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever the scanner refuses, hyper stops at; and what it accepts, hyper reads the same way.
    #[test]
    fn hyper_never_sees_more_requests_than_the_scanner(
        bytes in super::super::framing::tests::spoiled_stream(),
        capacity in 1_usize..300,
    ) {
        let mut scanner = Scanner::default();
        // No answer here agrees to another protocol, so HTTP goes on behind each request for one.
        let refused = bytes.chunks(1).any(|byte| {
            scanner.stay();
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
        // Only the last answer may be another: after it the connection is closed.
        prop_assert!(statuses.iter().rev().skip(1).all(|&status| status == 200), "{:?}", statuses);
        let stopped = statuses.last().is_some_and(|&status| status != 200);
        let closes = memchr::memmem::find(&bytes, b"HTTP/1.0").is_some();
        prop_assert!(!refused || stopped || closes, "{:?} for a refused stream", statuses);
    }
}

/// What a service does with its n-th request: so many interim responses, each from a task of its
/// own and some before the service waits, and a body of that size.
#[derive(Clone, Debug)]
struct Play {
    hints: Vec<bool>,
    length: usize,
}

fn play() -> impl Strategy<Value = Play> {
    let hints = proptest::collection::vec(any::<bool>(), 0..5);
    (hints, 0..40_000_usize).prop_map(|(hints, length)| Play { hints, length })
}

/// What the client of these plays must read, byte for byte, but for the date.
fn expected(plays: &[Play]) -> String {
    let mut text = String::new();
    for (number, Play { hints, length }) in plays.iter().enumerate() {
        for hint in 0..hints.len() {
            text += &format!("HTTP/1.1 103 Early Hints\r\nlink: {number}-{hint}\r\n\r\n");
        }
        text += &format!("HTTP/1.1 200 OK\r\ndate: -\r\ncontent-length: {length}\r\n\r\n");
        text += &"x".repeat(*length);
    }
    text
}

fn hint(number: usize, hint: usize) -> http::HeaderMap {
    let value = http::HeaderValue::try_from(format!("{number}-{hint}")).unwrap();
    [(http::header::LINK, value)].into_iter().collect()
}

async fn perform(interims: Interims, number: usize, play: Play) -> Response<Full<Bytes>> {
    let status = http::StatusCode::EARLY_HINTS;
    for (at, is_late) in play.hints.into_iter().enumerate() {
        let interims = interims.clone();
        if is_late {
            let sent = tokio::spawn(async move {
                tokio::task::yield_now().await;
                interims.send(status, &hint(number, at));
            });
            sent.await.unwrap();
        } else {
            interims.send(status, &hint(number, at));
        }
    }
    let date = http::HeaderValue::from_static("-");
    let response = Response::builder().header(http::header::DATE, date);
    response.body(Full::new(Bytes::from(vec![b'x'; play.length]))).unwrap()
}

/// Pipelines as many requests as there are plays, and reads all that comes through a pipe that
/// holds so many bytes.
async fn played(plays: Vec<Play>, room: usize) -> String {
    let (client, io) = duplex(room);
    let guarded = Guarded::new(io, Limits::default(), Arc::default());
    let exchanges = guarded.exchanges();
    let requests: String = (0..plays.len())
        .map(|at| {
            let last = if at + 1 == plays.len() { "Connection: close\r\n" } else { "" };
            format!("GET /{at} HTTP/1.1\r\nHost: a\r\n{last}\r\n")
        })
        .collect();
    let service = service_fn(move |request: Request<Incoming>| {
        let number: usize = request.uri().path()[1..].parse().unwrap();
        let (exchange, play) = (exchanges.open(), plays[number].clone());
        async move {
            let interims = exchange.interims();
            let answer = perform(interims.clone(), number, play);
            Ok::<_, Infallible>(interims.before(Box::pin(answer)).await)
        }
    });
    let connection = http1_builder().serve_connection(TokioIo::new(guarded), service);
    let task = tokio::spawn(connection);
    let received = exchange(client, requests.as_bytes()).await;
    task.await.unwrap().unwrap();
    String::from_utf8(received).unwrap().replace("connection: close\r\n", "")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn interim_responses_stand_between_whole_answers_and_before_their_own(
        plays in proptest::collection::vec(play(), 1..6),
        room in prop_oneof![1..64_usize, 1_000..100_000_usize],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let wanted = expected(&plays);
        let came = runtime.block_on(async {
            timeout(Duration::from_secs(20), played(plays, room)).await.unwrap()
        });
        prop_assert!(came == wanted, "{came}");
    }
}

/// A way of its own for each exchange: the last one's is closed, whoever still has it.
#[tokio::test]
async fn a_way_that_is_closed_takes_nothing() {
    let (_client, io) = duplex(WHOLE);
    let guarded = Guarded::new(io, Limits::default(), Arc::default());
    let (first, second) = (guarded.exchanges().open(), guarded.exchanges().open());
    let (late, fields) = (first.interims(), hint(0, 0));
    late.clone().before(std::future::ready(())).await;
    let status = http::StatusCode::EARLY_HINTS;
    late.send(status, &fields);
    assert!(!guarded.patience.exchanges.interims().any(), "its answer is made");
    let current = second.interims();
    late.send(status, &fields);
    assert!(!guarded.patience.exchanges.interims().any(), "another is under way");
    current.send(status, &fields);
    let waits = guarded.patience.exchanges.interims().take().unwrap();
    assert_eq!(waits, &b"HTTP/1.1 103 Early Hints\r\nlink: 0-0\r\n\r\n"[..]);
    assert!(polled(current.clone().before(std::future::pending::<()>())).await.is_pending());
    current.send(status, &fields);
    assert_eq!(guarded.patience.exchanges.interims().take(), None, "nobody waits for it");
}

/// The bounds hold whether the client reads or not, and lost ones are counted.
#[tokio::test]
async fn what_is_too_much_for_one_answer_is_left_out() {
    let (_client, io) = duplex(WHOLE);
    let guarded = Guarded::new(io, Limits::default(), Arc::default());
    let interims = guarded.exchanges().open().interims();
    let status = http::StatusCode::EARLY_HINTS;
    (0..20).for_each(|at| interims.send(status, &hint(0, at)));
    assert_eq!(guarded.counters.lost_interims(), 4);
    let interims = guarded.exchanges().open().interims();
    let value = http::HeaderValue::try_from("x".repeat(30_000)).unwrap();
    let large = [(http::header::LINK, value)].into_iter().collect();
    (0..3).for_each(|_| interims.send(status, &large));
    interims.send(status, &hint(0, 0));
    assert_eq!(guarded.counters.lost_interims(), 5, "a small one had room");
}
