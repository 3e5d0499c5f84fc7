//! Tests that interim responses are written before their own final response and between complete
//! ones.

use proptest::prelude::*;

use super::*;
use crate::request_guard::interims::Interims;

/// Response plan of one request: its interim responses, `true` for one sent from another task after
/// a yield, and the length of its body.
#[derive(Clone, Debug)]
struct ResponsePlan {
    hints: Vec<bool>,
    length: usize,
}

fn plan() -> impl Strategy<Value = ResponsePlan> {
    let hints = proptest::collection::vec(any::<bool>(), 0..5);
    (hints, 0..40_000_usize).prop_map(|(hints, length)| ResponsePlan { hints, length })
}

/// Returns the bytes that the client must read for these plans, with a fixed date.
fn expected(plans: &[ResponsePlan]) -> String {
    let mut text = String::new();
    for (number, ResponsePlan { hints, length }) in plans.iter().enumerate() {
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

async fn respond_to_plan(
    interims: Interims,
    number: usize,
    plan: ResponsePlan,
) -> Response<Full<Bytes>> {
    let status = http::StatusCode::EARLY_HINTS;
    for (at, is_late) in plan.hints.into_iter().enumerate() {
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
    response.body(Full::new(Bytes::from(vec![b'x'; plan.length]))).unwrap()
}

/// Pipelines one request per plan over a pipe of `capacity` bytes, and returns all received text.
async fn run_plans(plans: Vec<ResponsePlan>, capacity: usize) -> String {
    let (client, io) = duplex(capacity);
    let guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
    let exchanges = guarded.exchanges();
    let requests: String = (0..plans.len())
        .map(|at| {
            let last = if at + 1 == plans.len() { "Connection: close\r\n" } else { "" };
            format!("GET /{at} HTTP/1.1\r\nHost: a\r\n{last}\r\n")
        })
        .collect();
    let service = service_fn(move |request: Request<Incoming>| {
        let number: usize = request.uri().path()[1..].parse().unwrap();
        let (exchange, plan) = (exchanges.open(), plans[number].clone());
        async move {
            let interims = exchange.interims();
            let answer = respond_to_plan(interims.clone(), number, plan);
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
    fn interim_responses_are_written_between_complete_responses_and_before_their_own(
        plans in proptest::collection::vec(plan(), 1..6),
        capacity in prop_oneof![1..64_usize, 1_000..100_000_usize],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let wanted = expected(&plans);
        let came = runtime.block_on(async {
            timeout(Duration::from_secs(20), run_plans(plans, capacity)).await.unwrap()
        });
        prop_assert!(came == wanted, "{came}");
    }
}

/// Each exchange has its own channel; a sender of an earlier exchange finds its channel closed.
#[tokio::test]
async fn a_closed_interim_channel_discards_everything() {
    let (_client, io) = duplex(WHOLE);
    let guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
    let (first, second) = (guarded.exchanges().open(), guarded.exchanges().open());
    let (late, fields) = (first.interims(), hint(0, 0));
    late.clone().before(std::future::ready(())).await;
    let status = http::StatusCode::EARLY_HINTS;
    late.send(status, &fields);
    assert!(!guarded.timer.exchanges.interims().any(), "its final response is complete");
    let current = second.interims();
    late.send(status, &fields);
    assert!(!guarded.timer.exchanges.interims().any(), "another response is in progress");
    current.send(status, &fields);
    let waits = guarded.timer.exchanges.interims().take().unwrap();
    assert_eq!(waits, &b"HTTP/1.1 103 Early Hints\r\nlink: 0-0\r\n\r\n"[..]);
    assert!(polled(current.clone().before(std::future::pending::<()>())).await.is_pending());
    current.send(status, &fields);
    assert_eq!(guarded.timer.exchanges.interims().take(), None, "no response is awaited");
}

/// The limits apply whether or not the client reads, and discarded interim responses are counted.
#[tokio::test]
async fn interim_responses_above_the_limits_are_discarded() {
    let (_client, io) = duplex(WHOLE);
    let guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
    let interims = guarded.exchanges().open().interims();
    let status = http::StatusCode::EARLY_HINTS;
    (0..20).for_each(|at| interims.send(status, &hint(0, at)));
    assert_eq!(guarded.counters.dropped_interims(), 4);
    let interims = guarded.exchanges().open().interims();
    let value = http::HeaderValue::try_from("x".repeat(30_000)).unwrap();
    let large = [(http::header::LINK, value)].into_iter().collect();
    (0..3).for_each(|_| interims.send(status, &large));
    interims.send(status, &hint(0, 0));
    assert_eq!(guarded.counters.dropped_interims(), 5, "a small response fits");
}
