//! Tests of requests for another protocol, and of the bytes after them.

use super::*;

/// Request for another protocol.
const ASKING: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n";

/// Returns a guard that has passed on a request for another protocol, followed by `early`.
async fn asked(early: &[u8]) -> (Guarded<DuplexStream>, DuplexStream, Arc<GuardCounters>) {
    let (mut client, io) = duplex(WHOLE);
    let counters = Arc::new(GuardCounters::default());
    let mut guarded = Guarded::new(io, ClientTimeouts::default(), Arc::clone(&counters));
    client.write_all(&[ASKING, early].concat()).await.unwrap();
    let mut buffer = [0; 1024];
    let read = guarded.read(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..read], ASKING);
    (guarded, client, counters)
}

#[tokio::test(start_paused = true)]
async fn bytes_after_an_upgrade_request_wait_for_its_response() {
    for early in [PLAIN.as_bytes(), b"\0"] {
        for comes_at_once in [true, false] {
            let at_once = if comes_at_once { early } else { b"" };
            let (mut guarded, mut client, counters) = asked(at_once).await;
            let exchange = guarded.exchanges().open();
            let mut buffer = [0; 1024];
            assert!(timeout(LONG, guarded.read(&mut buffer)).await.is_err(), "read too early");
            if !comes_at_once {
                client.write_all(early).await.unwrap();
                assert!(timeout(LONG, guarded.read(&mut buffer)).await.is_err(), "read too early");
            }
            let reading = tokio::spawn(async move { (guarded.read(&mut buffer).await, buffer) });
            sleep(Duration::ZERO).await;
            assert!(!reading.is_finished());
            drop(exchange);
            let (read, buffer) = reading.await.unwrap();
            let expected = if early == b"\0" { SUBSTITUTE_GET } else { early };
            assert_eq!(&buffer[..read.unwrap()], expected);
            assert_eq!(counters.framing_errors(FramingError::Nul), u64::from(early == b"\0"));
        }
    }
}

#[tokio::test]
async fn upgrade_requests_are_released_one_by_one() {
    let (mut guarded, _client, _) = asked(&[ASKING, ASKING, PLAIN.as_bytes()].concat()).await;
    let mut buffer = [0; 1024];
    for expected in [ASKING, ASKING, PLAIN.as_bytes()] {
        drop(guarded.exchanges().open());
        let read = guarded.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..read], expected);
    }
}

#[tokio::test]
async fn a_disconnect_before_the_response_to_an_upgrade_request_is_detected() {
    let (mut guarded, client, _) = asked(b"").await;
    let _exchange = guarded.exchanges().open();
    drop(client);
    assert_eq!(guarded.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_has_no_checks_and_no_client_timeouts() {
    let (mut guarded, mut client, counters) = asked(b"\0early").await;
    let exchange = guarded.exchanges().open();
    guarded.set_tunnel();
    let mut buffer = [0; 1024];
    let read = guarded.read(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..read], b"\0early");
    assert!(timeout(LONG, guarded.read(&mut buffer)).await.is_err(), "cut while idle");
    let large = vec![7; 2 * WHOLE];
    assert!(timeout(LONG, guarded.write_all(&large)).await.is_err(), "more than the pipe holds");
    client.write_all(b"\n").await.unwrap();
    assert_eq!(guarded.read(&mut buffer).await.unwrap(), 1);
    drop(exchange);
    guarded.shutdown().await.unwrap();
    assert!(ExpiredTimeout::ALL.iter().all(|lapse| counters.timed_out(*lapse) == 0));
    assert!(FramingError::ALL.iter().all(|why| counters.framing_errors(*why) == 0));
}

/// The upgrade request is answered in HTTP, and an invalid head follows in pieces.
#[tokio::test(start_paused = true)]
async fn an_invalid_head_after_an_upgrade_request_gets_400_however_it_is_split() {
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
