//! Interim responses, each before its own answer and between whole ones.

use proptest::prelude::*;

use super::*;
use crate::request_guard::interims::Interims;

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
