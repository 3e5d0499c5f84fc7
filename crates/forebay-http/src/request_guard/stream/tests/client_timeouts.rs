//! Tests of the client timeouts, and of the number of wake-ups while waiting.

use super::*;
use crate::request_guard::RATE_MIN;

#[tokio::test(start_paused = true)]
async fn a_slow_head_times_out_ten_seconds_after_its_first_byte() {
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
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Head), 1);
    assert_eq!(server.origin.paths().len(), 0);
    drip.abort();
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_a_minute_after_its_last_response() {
    for pause in [0, 30, 59] {
        let (mut client, io) = duplex(WHOLE);
        let server = serve(io, Origin::default());
        for _ in 0..3 {
            client.write_all(PLAIN.as_bytes()).await.unwrap();
            sleep(Duration::from_secs(pause)).await;
        }
        client.write_all(PLAIN.as_bytes()).await.unwrap();
        sleep(Duration::ZERO).await;
        let begun = Instant::now();
        let received = exchange(client, b"").await;
        let waited = begun.elapsed();
        assert!((59_990..60_010).contains(&waited.as_millis()), "{waited:?} after {pause}");
        assert_eq!(statuses(&received), [200; 4]);
        assert_eq!(server.counters.timed_out(ExpiredTimeout::Idle), 1);
        assert!(server.task.await.unwrap().is_ok(), "an idle end is a regular one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_first_byte_is_closed_after_half_a_minute() {
    let (client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    let begun = Instant::now();
    assert!(exchange(client, b"").await.is_empty());
    assert_eq!(begun.elapsed().as_secs(), 30);
    assert_eq!(server.counters.timed_out(ExpiredTimeout::FirstByte), 1);
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Idle), 0);
    assert!(server.task.await.unwrap().is_ok(), "an idle end is a regular one");
}

#[tokio::test(start_paused = true)]
async fn a_first_byte_after_29_seconds_begins_a_request() {
    let (mut client, io) = duplex(WHOLE);
    let server = serve(io, Origin::default());
    sleep(Duration::from_secs(29)).await;
    client.write_all(PLAIN.as_bytes()).await.unwrap();
    let begun = Instant::now();
    assert_eq!(statuses(&exchange(client, b"").await), [200]);
    assert!((59_990..60_010).contains(&begun.elapsed().as_millis()));
    assert_eq!(server.counters.timed_out(ExpiredTimeout::FirstByte), 0);
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Idle), 1);
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
    // One wake-up for each idle timeout, and a few for the request itself.
    let polls = server.origin.polls.load(Ordering::Relaxed);
    assert!(polls < 30, "{polls} polls in eleven minutes");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_fails_the_read_of_the_service() {
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
        // One second more for the linger timeout.
        let waited = begun.elapsed().as_secs();
        assert!((seconds..=seconds + 1).contains(&waited), "{waited} s with {dripped} bytes");
        assert_eq!(server.counters.timed_out(ExpiredTimeout::Body), 1);
        drip.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_at_the_minimum_rate_does_not_time_out() {
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
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Body), 0);
    assert_eq!(begun.elapsed().as_secs(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_body_below_the_minimum_rate_times_out_when_it_is_a_window_behind() {
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
    // The client falls behind by half a second per second; one second more for the linger timeout.
    let waited = begun.elapsed().as_secs();
    assert!((58..=61).contains(&waited), "{waited} s");
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Body), 1);
    sender.abort();
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_read_times_out_after_the_write_window() {
    let (mut client, io) = duplex(1024);
    let body = Bytes::from(vec![b'x'; 1 << 20]);
    let server = serve(io, Origin { body, ..Origin::default() });
    let begun = Instant::now();
    client.write_all(PLAIN.as_bytes()).await.unwrap();
    let ended = timeout(LONG, server.task).await.expect("given up").unwrap();
    assert!(ended.is_err());
    assert_eq!(begun.elapsed().as_secs(), 240);
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Write), 1);
    drop(client);
}

/// Reads a response of 1 MiB at `bytes` per second. Returns the number of received bytes, the
/// elapsed time and the server.
async fn take_slowly(bytes: usize) -> (usize, Duration, Server) {
    const ANSWER: usize = 1 << 20;
    let (mut client, io) = duplex(1024);
    let body = Bytes::from(vec![b'x'; ANSWER]);
    let server = serve(io, Origin { body, ..Origin::default() });
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let (begun, mut taken, mut buffer) = (Instant::now(), 0, vec![0; bytes]);
    loop {
        sleep(Duration::from_secs(1)).await;
        let Ok(length) = client.read(&mut buffer).await else { break };
        taken += length;
        if length == 0 {
            break;
        }
    }
    (taken, begun.elapsed(), server)
}

#[tokio::test(start_paused = true)]
async fn a_response_read_at_the_minimum_rate_is_delivered() {
    let (taken, waited, server) = take_slowly(RATE_MIN as usize).await;
    assert!(taken > 1 << 20, "{taken}");
    assert!((1020..1040).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Write), 0);
    assert_eq!(server.counters.timed_out(ExpiredTimeout::Idle), 0);
}

#[tokio::test(start_paused = true)]
async fn a_response_read_below_the_minimum_rate_times_out_when_it_is_a_window_behind() {
    for (bytes, seconds) in [(1, 240), (RATE_MIN as usize / 4, 320), (RATE_MIN as usize / 2, 480)] {
        let (taken, waited, server) = take_slowly(bytes).await;
        assert!(taken < 1 << 18, "{taken}");
        // The client still reads the content of the pipe after the server has closed.
        let still = 1024 / bytes as u64 + 1;
        let expected = seconds..=seconds + 2 + still;
        assert!(expected.contains(&waited.as_secs()), "{waited:?} for {bytes}");
        assert_eq!(server.counters.timed_out(ExpiredTimeout::Write), 1);
    }
}
