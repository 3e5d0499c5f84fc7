use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Collected};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::*;
use crate::origin::no_body;
use crate::origin::progress::Progress;
use crate::origin::stream::Transport;
use crate::settings::OriginSettings;

/// Response as a client of the connection sees it: its body is absent if it broke off.
#[derive(Debug, PartialEq)]
struct Seen {
    status: StatusCode,
    headers: HeaderMap,
    body: Option<Bytes>,
}

fn limits() -> HeadLimits {
    HeadLimits::of(&OriginSettings::new(Authority::from_static("origin.example")))
}

fn pair() -> (Connection, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let stream = OriginStream::new(Transport::Unix(near));
    (Connection::new(stream, limits(), OpenConnection::count(&Arc::default())), far)
}

/// Lets hyper do all exchanges of a connection.
async fn with_hyper(mut connection: Connection) -> Connection {
    let stream = connection.http.take_idle().unwrap();
    let driven = Driven::begin(stream, limits()).await.unwrap();
    connection.http = Http::Hyper(Box::new(driven));
    connection
}

fn request(method: &Method) -> Box<Request<TrackedBody>> {
    let mut request =
        Box::new(Request::new(Progress::begin(Instant::now(), true).track(no_body())));
    *request.method_mut() = method.clone();
    *request.uri_mut() = "/a?b=1".parse().unwrap();
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_static("h"));
    headers.append("x-a", HeaderValue::from_static("1"));
    headers.append("x-a", HeaderValue::from_static("2"));
    request
}

/// Sends a request, and reads the whole response.
async fn exchange(connection: &mut Connection, method: &Method) -> Option<Seen> {
    let response = connection.send(Message::Built(request(method)), &Arc::default()).await.ok()?;
    let (parts, body) = match response {
        OriginResponse::Plain(plain) => {
            let PlainResponse { status, fields, body } = *plain;
            return Some(Seen { status, headers: fields.to_map(), body: Some(body) });
        }
        OriginResponse::Hyper(response) => response.into_parts(),
    };
    let mut collected = pin!(body.collect());
    let body = poll_fn(|cx| {
        connection.drive(cx);
        collected.as_mut().poll(cx)
    });
    let body = body.await.ok().map(Collected::to_bytes);
    Some(Seen { status: parts.status, headers: parts.headers, body })
}

/// Reads a request head, and answers in these pieces.
async fn answer(far: &mut UnixStream, pieces: &[&[u8]]) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(far.read_u8().await.unwrap());
    }
    for piece in pieces {
        far.write_all(piece).await.unwrap();
        // So that each piece is one read.
        tokio::task::yield_now().await;
    }
    head
}

/// Exchanges one request on a connection that ends after the response. Returns it with the head of
/// the request.
async fn once(
    mut connection: Connection,
    mut far: UnixStream,
    method: &Method,
    pieces: &[&[u8]],
) -> (Option<Seen>, Vec<u8>) {
    let origin = async {
        let head = answer(&mut far, pieces).await;
        drop(far);
        head
    };
    tokio::join!(exchange(&mut connection, method), origin)
}

fn line(choices: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(choices).prop_map(str::to_owned)
}

/// Responses of all kinds: plain ones, and those with one or more faults.
fn responses() -> impl Strategy<Value = Vec<u8>> {
    let status = line(&[
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 404 Not Found",
        "HTTP/1.1 304 Not Modified",
        "HTTP/1.1 204 No Content",
        "HTTP/1.1 200 Fine",
        "HTTP/1.0 200 OK",
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK",
        "HTTP/1.1 099 Low",
        "ICY 200 OK",
    ]);
    let length = line(&[
        "content-length: 5\r\n",
        "Content-Length:5\r\n",
        "content-length: 5\r\ncontent-length: 5\r\n",
        "content-length: 5, 5\r\n",
        "content-length: +5\r\n",
        "content-length: 9\r\n",
        "content-length: 0\r\n",
        "transfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "",
    ]);
    let other = line(&[
        "",
        "connection: keep-alive\r\n",
        "connection: close\r\n",
        "connection: x-b\r\nx-b: 1\r\n",
        "x-empty:\r\n",
        "x-tab: \ta b\t \r\n",
        "x-\u{e9}: 1\r\n",
        "x-utf: \u{e9}\r\n",
        "x: a\r\n b\r\n",
        "set-cookie: a=1\r\nset-cookie: b=2\r\n",
    ]);
    let body = line(&["", "12345", "123456789", "5\r\n12345\r\n0\r\n\r\n"]);
    let long = prop::bool::weighted(0.1);
    (status, length, other, body, long).prop_map(|(status, length, other, body, long)| {
        let long = if long { format!("x-long: {}\r\n", "a".repeat(20_000)) } else { String::new() };
        format!("{status}\r\n{length}{other}{long}\r\n{body}").into_bytes()
    })
}

proptest! {
    /// Every response, split at a random byte, is read as hyper alone reads it.
    #[test]
    fn a_response_is_read_as_hyper_reads_it(
        response in responses(),
        cut in 0_usize..400,
        is_head in any::<bool>(),
    ) {
        let method = if is_head { Method::HEAD } else { Method::GET };
        let (first, rest) = response.split_at(cut.min(response.len()));
        let pieces = [first, rest];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (connection, far) = pair();
            let seen = once(connection, far, &method, &pieces).await;
            let (connection, far) = pair();
            let by_hyper = once(with_hyper(connection).await, far, &method, &pieces).await;
            prop_assert_eq!(seen, by_hyper);
            Ok(())
        })?;
    }
}

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";

async fn is_answered(connection: &mut Connection, far: &mut UnixStream, response: &[u8]) {
    let pieces = [response];
    let (seen, _) = tokio::join!(exchange(connection, &Method::GET), answer(far, &pieces));
    assert_eq!(seen.unwrap().body.unwrap(), "ok");
    assert!(connection.is_reusable());
    connection.rest();
}

#[tokio::test]
async fn hyper_takes_over_a_response_that_is_not_plain_and_gives_the_connection_back() {
    let (mut connection, mut far) = pair();
    for response in [PLAIN, PLAIN] {
        is_answered(&mut connection, &mut far, response).await;
        assert!(matches!(connection.http, Http::Idle(_)));
    }
    is_answered(&mut connection, &mut far, CHUNKED).await;
    for needless in 0..NEEDLESS_MAX {
        assert!(matches!(connection.http, Http::Hyper(_)), "{needless}");
        is_answered(&mut connection, &mut far, PLAIN).await;
    }
    assert!(matches!(connection.http, Http::Idle(_)));
    is_answered(&mut connection, &mut far, PLAIN).await;
}

#[tokio::test]
async fn a_connection_with_an_unexpected_byte_or_an_abandoned_exchange_is_not_used_again() {
    let (mut connection, mut far) = pair();
    is_answered(&mut connection, &mut far, PLAIN).await;
    far.write_all(b"x").await.unwrap();
    tokio::task::yield_now().await;
    assert!(!connection.is_reusable());

    let (mut connection, _far) = pair();
    {
        let mut abandoned = pin!(exchange(&mut connection, &Method::GET));
        let is_pending = poll_fn(|cx| Poll::Ready(abandoned.as_mut().poll(cx).is_pending()));
        assert!(is_pending.await);
    }
    assert!(!connection.is_reusable());

    let (mut connection, far) = pair();
    drop(far);
    tokio::task::yield_now().await;
    assert!(!connection.is_reusable());
}
