//! Target: the request scanner together with hyper's server, as behind a listener. hyper must see
//! exactly the messages that the scanner accepted, with exactly their bodies.

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_http::request_guard::{
    ClientTimeouts, GuardCounters, Guarded, Phase, Scanner, http1_builder,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

use crate::run::{Outcome, Target};

/// Capacity of the pipe between client and server in bytes, above any input and its responses.
const PIPE: usize = 1024 * 1024;

/// Maximum duration of a connection; no peer delays it.
const CONNECTION_TIME: Duration = Duration::from_secs(20);

/// Fuzz target for the request scanner together with hyper's server.
pub const TARGET: Target = Target { check, outcomes_min: 15 };

/// Message as the scanner delimits it.
#[derive(Debug)]
struct Passed<'a> {
    head: &'a [u8],
    body: Vec<u8>,
}

/// Request as hyper read it.
#[derive(Debug)]
struct Served {
    method: Method,
    target: String,
    /// Body; `None` if reading it failed.
    body: Option<Bytes>,
    is_last: bool,
}

/// Requests that hyper read from a connection.
#[derive(Debug)]
struct Connection {
    requests: Vec<Served>,
    /// True if it ended because bytes could not be parsed as a request.
    broken: bool,
}

fn check(input: &[u8]) -> Outcome {
    let (passed, end) = passed(input);
    let connection = serve(input);
    for (at, request) in connection.requests.iter().enumerate() {
        match (&request.body, passed.get(at)) {
            (Some(body), Some(message)) => assert_same(request, body, message),
            (Some(_), None) => panic!("hyper read a request that was not let through: {request:?}"),
            // hyper stopped within a message, so this is the last one.
            (None, _) => assert_eq!(at + 1, connection.requests.len(), "{request:?}"),
        }
    }
    let whole = connection.requests.iter().filter(|request| request.body.is_some()).count();
    let asked_to_end = connection.requests.last().is_some_and(|request| request.is_last);
    // hyper refuses no accepted message, and skips none.
    assert!(
        whole == passed.len() || asked_to_end,
        "{} messages let through, {connection:?}",
        passed.len()
    );
    assert_unmoved(input, end, whole);
    Outcome::of((whole.min(3), passed.len().min(3), end.mark, asked_to_end, connection.broken))
}

/// Asserts that bytes after the last accepted message do not change earlier messages.
fn assert_unmoved(input: &[u8], end: End, whole: usize) {
    if end.whole == input.len() {
        return;
    }
    let alone = serve(&input[..end.whole]).requests;
    let whole_alone = alone.iter().filter(|request| request.body.is_some()).count();
    assert_eq!(whole, whole_alone, "with and without what follows");
}

fn assert_same(request: &Served, body: &Bytes, message: &Passed<'_>) {
    assert_eq!(*body, message.body, "{request:?} and {message:?}");
    let line = request_line(message.head);
    let mut words = line.split(|byte| *byte == b' ');
    assert_eq!(words.next(), Some(request.method.as_str().as_bytes()), "{request:?}");
    // hyper adds a path to a target without one (`http://a` becomes `http://a/`).
    let target = words.next().unwrap_or_default();
    let with_path = [target, b"/"].concat();
    let same = [target, &with_path].contains(&request.target.as_bytes());
    assert!(same || without_case(target, &request.target), "{request:?} and {message:?}");
}

/// Compares targets; scheme and host of an absolute target are case-insensitive.
fn without_case(target: &[u8], read: &str) -> bool {
    let read = read.trim_end_matches('/').as_bytes();
    let target = target.strip_suffix(b"/").unwrap_or(target);
    target.eq_ignore_ascii_case(read) || rooted(target).eq_ignore_ascii_case(read)
}

/// Absolute target with a path added: `http://a/?b` for `http://a?b`.
fn rooted(target: &[u8]) -> Vec<u8> {
    let query = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    [&target[..query], b"/", &target[query..]].concat()
}

fn request_line(head: &[u8]) -> &[u8] {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.find(|line| !line.is_empty()).unwrap_or_default()
}

/// End of the last whole message, and the scanner's result there.
#[derive(Clone, Copy, Debug)]
struct End {
    whole: usize,
    mark: &'static str,
}

/// Messages that the scanner accepts as a whole. Bytes are fed one by one to find the end of each
/// head and body.
fn passed(input: &[u8]) -> (Vec<Passed<'_>>, End) {
    let mut scanner = Scanner::default();
    let (mut messages, mut start, mut head_end) = (Vec::new(), 0, None);
    for (at, byte) in input.iter().enumerate() {
        let heads = scanner.heads();
        if let Err(refused) = scanner.feed(&[*byte]) {
            return (messages, End { whole: start, mark: refused.why.label() });
        }
        if scanner.heads() > heads {
            head_end = Some(at + 1);
        }
        if let (Phase::Idle, Some(end)) = (scanner.phase(), head_end) {
            messages.push(message(&input[start..end], &input[end..=at]));
            (start, head_end) = (at + 1, None);
            if scanner.is_switching() {
                // No response switches protocols here, so HTTP continues.
                scanner = Scanner::default();
            }
        }
    }
    let mark = if start == input.len() { "whole" } else { "open" };
    (messages, End { whole: start, mark })
}

/// Message with its body parsed by a second, simple parser.
fn message<'a>(head: &'a [u8], raw: &[u8]) -> Passed<'a> {
    let lines = || head.split(|byte| *byte == b'\n').map(<[u8]>::to_ascii_lowercase);
    let value = |name: &[u8]| lines().find_map(|line| line.strip_prefix(name).map(<[u8]>::to_vec));
    if value(b"transfer-encoding:").is_some() {
        return Passed { head, body: unchunked(raw) };
    }
    let length = value(b"content-length:").map_or(0, |value| {
        let digits = value.trim_ascii().iter();
        digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
    });
    assert_eq!(length, raw.len(), "the scanner's idea of a body");
    Passed { head, body: raw.to_vec() }
}

/// Body without chunk framing and trailers.
fn unchunked(raw: &[u8]) -> Vec<u8> {
    let (mut body, mut rest) = (Vec::new(), raw);
    loop {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit());
        let size = digits.fold(0, |size, digit| {
            size << 4 | char::from(*digit).to_digit(16).map_or(0, |digit| digit as usize)
        });
        let line = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[line..line + size]);
        rest = &rest[line + size + b"\r\n".len()..];
    }
}

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O needs nothing that could be missing");
}

fn serve(input: &[u8]) -> Connection {
    RUNTIME.with(|runtime| {
        let over = async { tokio::time::timeout(CONNECTION_TIME, connect(input)).await };
        runtime.block_on(over).unwrap_or_else(|_| panic!("the connection is not over"))
    })
}

async fn connect(input: &[u8]) -> Connection {
    let (mut client, server) = tokio::io::duplex(PIPE);
    let guarded =
        Guarded::new(server, ClientTimeouts::default(), Arc::new(GuardCounters::default()));
    let requests = RefCell::new(Vec::new());
    let exchanges = guarded.exchanges();
    let service = service_fn(|request| {
        // The exchange ends with the response head, because no response here has a body.
        let exchange = exchanges.open();
        let rejection = exchanges.rejection();
        let answered = answer(request, &requests);
        async move {
            let _open = exchange;
            match rejection {
                None => answered.await,
                // This request stands for what the scanner refused.
                Some(_) => Ok(refusal()),
            }
        }
    });
    // The client sends everything and then closes its sending side.
    let mut builder = http1_builder();
    let connection = builder.half_close(true).serve_connection(TokioIo::new(guarded), service);
    let talk = async {
        // The server may close before it has read everything; the rest is lost.
        let _ = client.write_all(input).await;
        let _ = client.shutdown().await;
        let mut answers = Vec::new();
        let _ = client.read_to_end(&mut answers).await;
    };
    let (ended, ()) = tokio::join!(connection, talk);
    Connection { requests: requests.into_inner(), broken: ended.is_err() }
}

fn refusal() -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

async fn answer(
    request: Request<Incoming>,
    requests: &RefCell<Vec<Served>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.ok().map(http_body_util::Collected::to_bytes);
    let is_last = head.version != http::Version::HTTP_11
        || head.headers.get_all("connection").into_iter().any(|value| {
            let value = value.as_bytes().to_ascii_lowercase();
            value.windows(5).any(|window| window == b"close")
        });
    let is_tunnel = head.method == Method::CONNECT;
    let target = head.uri.to_string();
    requests.borrow_mut().push(Served { method: head.method, target, body, is_last });
    let mut response = Response::new(Empty::new());
    if is_tunnel {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    }
    Ok(response)
}
