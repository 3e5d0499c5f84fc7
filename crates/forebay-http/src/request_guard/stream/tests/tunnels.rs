//! Requests for another protocol, and what comes behind them.

use super::*;

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
