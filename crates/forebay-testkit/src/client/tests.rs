use std::time::Duration;

use super::*;
use crate::gate::Gate;
use crate::origin::{Answer, Origin};

#[tokio::test]
async fn broken_chunks_are_seen() {
    for (body, came, clean) in [
        ("2;ext=1\r\nok\r\n0\r\nX-T: 1\r\n\r\n", "ok", true),
        ("2\r\nok\r\n", "ok", false),
        ("2\r\nok\r\n0\r\n", "ok", false),
        ("2\r\nokay\r\n", "ok", false),
        ("zz\r\nok", "", false),
        ("ffffffffffffffff\r\nok", "ok", false),
    ] {
        let raw = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let origin = Origin::always(Answer::raw(raw)).await.unwrap();
        let mut client = Client::connect(origin.address()).await.unwrap();
        let reply = client.ask(&Request::get("/")).await.unwrap();
        assert_eq!((reply.text().as_ref(), reply.ended_cleanly()), (came, clean), "{body:?}");
    }
}

#[tokio::test]
async fn a_crowd_is_in_flight_together() {
    const COUNT: usize = 64;
    let gate = Gate::new();
    let waiting = gate.clone();
    let answer = move |received: &crate::origin::Received| {
        Answer::ok(received.target.clone()).wait(&waiting)
    };
    let origin = Origin::start(answer).await.unwrap();
    let address = origin.address();
    let asking = tokio::spawn(crowd(COUNT, address, |i| Request::get(&format!("/{i}"))));
    origin.wait_requests(COUNT as u64).await.unwrap();
    gate.open();
    let replies = asking.await.unwrap().unwrap();
    let bodies: Vec<String> = replies.iter().map(|reply| reply.text().into_owned()).collect();
    assert_eq!(bodies, (0..COUNT).map(|i| format!("/{i}")).collect::<Vec<_>>());
    let counts = origin.counts();
    assert_eq!((counts.connections, counts.in_flight_max), (COUNT as u64, COUNT as u64));
    let ends = Timings::of_ends(&replies);
    assert!(ends.p50() <= ends.p99() && ends.p99() <= ends.max());
}

#[test]
fn percentiles_are_by_nearest_rank() {
    let timings = Timings::new((1..=200).rev().map(Duration::from_millis));
    assert_eq!(timings.p50(), Duration::from_millis(100));
    assert_eq!(timings.p99(), Duration::from_millis(198));
    assert_eq!(timings.max(), Duration::from_millis(200));
    assert_eq!(timings.percentile(0), Duration::from_millis(1));
    assert_eq!(Timings::new([]).p99(), Duration::ZERO);
}
