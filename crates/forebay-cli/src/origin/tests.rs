use super::*;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Maximum wait for any event; a hang fails the test.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Origin that runs until `stop` is sent.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn start() -> Running {
    let origin = SampleOrigin::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = origin.local_addr();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(origin.run(async { drop(stopped.await) }));
    Running { address, stop, task }
}

/// Response as received.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

async fn connect(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads one response and leaves the rest of the connection unread. A response to HEAD has no body.
async fn read_reply(stream: &mut TcpStream, is_head: bool) -> Reply {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(WAIT_MAX, stream.read_u8()).await.unwrap().unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let status = head[9..12].parse().unwrap();
    let mut reply = Reply { status, head, body: String::new() };
    let length: usize = reply.field("content-length").map_or(0, |value| value.parse().unwrap());
    if !is_head {
        let mut body = vec![0; length];
        timeout(WAIT_MAX, stream.read_exact(&mut body)).await.unwrap().unwrap();
        reply.body = String::from_utf8(body).unwrap();
    }
    reply
}

impl Running {
    async fn send(&self, method: &str, target: &str, fields: &str) -> Reply {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: o\r\n{fields}\r\n");
        let mut stream = connect(self.address, &request).await;
        read_reply(&mut stream, method == "HEAD").await
    }

    async fn fetch(&self, target: &str) -> Reply {
        self.send("GET", target, "").await
    }

    async fn stats(&self) -> serde_json::Value {
        let reply = self.fetch("/stats").await;
        assert_eq!((reply.status, reply.field("cache-control")), (200, Some("no-store")));
        serde_json::from_str(&reply.body).unwrap()
    }

    /// Polls `/stats` until `reached` is true.
    async fn wait_until(&self, reached: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let waiting = async {
            loop {
                let stats = self.stats().await;
                if reached(&stats) {
                    return stats;
                }
            }
        };
        timeout(WAIT_MAX, waiting).await.expect("the counts never came")
    }
}

#[tokio::test]
async fn an_item_without_parameters_is_a_sentence_that_shows_each_fetch() {
    let origin = start().await;
    let first = origin.fetch("/items/tea").await;
    assert_eq!(first.status, 200);
    assert_eq!(first.field("cache-control"), Some("max-age=60"));
    assert_eq!(first.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(first.field("x-fetch"), Some("1"));
    assert!(first.field("date").is_some() && first.field("etag").is_none());
    assert!(first.body.starts_with("This is item \"tea\", made on "), "{}", first.body);
    assert!(first.body.contains("fetch number 1 "), "{}", first.body);
    let second = origin.fetch("/any/prefix/items/tea?unknown=1").await;
    assert_eq!(second.field("x-fetch"), Some("2"));
    assert!(second.body.contains("fetch number 2 "), "{}", second.body);
    let stats = origin.stats().await;
    assert_eq!((&stats["total"], &stats["items"]["tea"]), (&2.into(), &2.into()));
    assert_eq!(stats["bytes"], first.body.len() + second.body.len());
}

#[tokio::test]
async fn an_item_is_answered_as_its_parameters_tell() {
    let origin = start().await;
    let target = "/items/a?status=404&cc=&etag=v1&vary=Accept-Language&tag=x,y&cookie=id%3D1";
    let reply = origin.send("GET", target, "Accept-Language: de\r\n").await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.field("cache-control"), None);
    assert_eq!(reply.field("etag"), Some("\"v1\""));
    assert_eq!(reply.field("vary"), Some("Accept-Language"));
    assert_eq!(reply.field("surrogate-key"), Some("x y"));
    assert_eq!(reply.field("set-cookie"), Some("id=1"));
    // The tag is strong, so the body may not depend on the individual request.
    let text = "This is item \"a\", version \"v1\".\nIt varies: accept-language is de.\n";
    assert_eq!(reply.body, text);
    let empty = origin.fetch("/items/a?status=204").await;
    assert_eq!((empty.status, empty.field("content-length")), (204, None));
}

#[tokio::test]
async fn a_known_tag_is_answered_with_304() {
    let origin = start().await;
    let target = "/items/a?etag=v1&cc=max-age%3D5";
    let reply = origin.send("GET", target, "If-None-Match: \"v0\", W/\"v1\"\r\n").await;
    assert_eq!((reply.status, reply.field("content-length")), (304, None));
    assert_eq!(reply.field("etag"), Some("\"v1\""));
    assert_eq!(reply.field("cache-control"), Some("max-age=5"));
    let other = origin.send("GET", target, "If-None-Match: \"v2\"\r\n").await;
    assert_eq!(other.status, 200);
    for (method, target) in [("POST", target), ("GET", "/items/a?etag=v1&status=500")] {
        let fields = "If-None-Match: *\r\nContent-Length: 0\r\n";
        assert_ne!(origin.send(method, target, fields).await.status, 304, "{method} {target}");
    }
    let stats = origin.stats().await;
    assert_eq!((&stats["conditional"], &stats["not_modified"]), (&4.into(), &1.into()));
}

#[tokio::test]
async fn a_sized_body_is_the_same_each_time_and_follows_what_it_varies_on() {
    let origin = start().await;
    let size = 5 << 20;
    let target = format!("/items/big?size={size}&vary=X-A");
    let plain = origin.fetch(&target).await;
    assert_eq!(plain.body.len(), size);
    assert_eq!(origin.fetch(&target).await.body, plain.body);
    let varied = origin.send("GET", &target, "X-A: 1\r\n").await;
    assert_eq!(varied.body.len(), size);
    assert_ne!(varied.body, plain.body);
    let unvaried = origin.send("GET", "/items/a?size=100", "X-A: 1\r\n").await;
    assert_eq!(unvaried.body, origin.fetch("/items/a?size=100").await.body);
    assert_ne!(unvaried.body, origin.fetch("/items/b?size=100").await.body);
    assert_eq!(origin.stats().await["bytes"], 3 * size + 300);
}

#[tokio::test]
async fn head_has_the_fields_of_get_and_no_body_on_a_reusable_connection() {
    let origin = start().await;
    let request = "HEAD /items/a?size=77 HTTP/1.1\r\nHost: o\r\n\r\n";
    let mut stream = connect(origin.address, request).await;
    let reply = read_reply(&mut stream, true).await;
    assert_eq!((reply.status, reply.field("content-length")), (200, Some("77")));
    let post = "POST /items/a HTTP/1.1\r\nHost: o\r\nContent-Length: 3\r\n\r\nabc";
    stream.write_all(post.as_bytes()).await.unwrap();
    let answer = read_reply(&mut stream, false).await;
    assert_eq!(answer.field("x-fetch"), Some("2"));
    stream.write_all(b"GET /items/a?size=7 HTTP/1.1\r\nHost: o\r\n\r\n").await.unwrap();
    assert_eq!(read_reply(&mut stream, false).await.body.len(), 7);
    assert_eq!(origin.stats().await["bytes"], answer.body.len() + 7);
}

#[tokio::test]
async fn an_invalid_request_is_refused_and_its_answer_is_not_storable() {
    let origin = start().await;
    for (method, target, status, text) in [
        ("GET", "/items/a?cc=%0d%0aX:%201", 400, "cc: control characters are not allowed"),
        ("GET", "/items/a?status=99", 400, "status: it must be a number from 200 to 599"),
        ("GET", "/", 404, "GET /items/NAME"),
        ("GET", "/items/", 404, "GET /stats"),
        ("DELETE", "/stats", 405, "GET and HEAD only"),
    ] {
        let reply = origin.send(method, target, "").await;
        assert_eq!(reply.status, status, "{target}");
        assert!(reply.body.contains(text), "{}", reply.body);
        assert_eq!(reply.field("cache-control"), Some("no-store"));
    }
    assert_eq!(origin.stats().await["total"], 2);
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_body_or_its_connection_ends() {
    let origin = start().await;
    let slow = "GET /items/slow?size=64&drip=600000 HTTP/1.1\r\nHost: o\r\n\r\n";
    let late = "GET /items/late?delay=600000 HTTP/1.1\r\nHost: o\r\n\r\n";
    let (one, other) = (connect(origin.address, slow).await, connect(origin.address, late).await);
    let stats = origin.wait_until(|stats| stats["in_flight"] == 2).await;
    assert_eq!(stats["max_in_flight"], 2);
    drop((one, other));
    let stats = origin.wait_until(|stats| stats["in_flight"] == 0).await;
    assert_eq!((&stats["max_in_flight"], &stats["total"]), (&2.into(), &2.into()));
}

#[tokio::test]
async fn delay_and_drip_take_the_requested_time() {
    let origin = start().await;
    let start = Instant::now();
    let reply = origin.fetch("/items/a?delay=60&drip=60&size=1000").await;
    assert!(start.elapsed() >= Duration::from_millis(120), "{:?}", start.elapsed());
    assert_eq!(reply.body.len(), 1000);
}

#[tokio::test]
async fn stopping_ends_idle_connections_and_lets_running_answers_end() {
    let origin = start().await;
    let get = "GET /items/a HTTP/1.1\r\nHost: o\r\n\r\n";
    let mut idle = connect(origin.address, get).await;
    read_reply(&mut idle, false).await;
    let slow = "GET /items/slow?size=1000&drip=300 HTTP/1.1\r\nHost: o\r\n\r\n";
    let mut running = connect(origin.address, slow).await;
    origin.wait_until(|stats| stats["in_flight"] == 1).await;
    origin.stop.send(()).unwrap();
    assert_eq!(read_reply(&mut running, false).await.body.len(), 1000);
    assert_eq!(timeout(WAIT_MAX, idle.read(&mut [0; 1])).await.unwrap().unwrap(), 0);
    timeout(WAIT_MAX, origin.task).await.expect("it never ended").unwrap();
    assert!(TcpStream::connect(origin.address).await.is_err());
}

#[tokio::test]
async fn stopping_does_not_wait_for_an_answer_that_takes_minutes() {
    let origin = start().await;
    let mut idle = connect(origin.address, "GET /items/a HTTP/1.1\r\nHost: o\r\n\r\n").await;
    read_reply(&mut idle, false).await;
    let slow = "GET /items/slow?delay=600000 HTTP/1.1\r\nHost: o\r\n\r\n";
    let mut running = connect(origin.address, slow).await;
    origin.wait_until(|stats| stats["in_flight"] == 1).await;
    origin.stop.send(()).unwrap();
    // The idle connection is closed at once, not at the end of the drain.
    assert_eq!(timeout(WAIT_MAX, idle.read(&mut [0; 1])).await.unwrap().unwrap(), 0);
    assert!(!origin.task.is_finished());
    timeout(WAIT_MAX, origin.task).await.expect("it never ended").unwrap();
    let mut rest = Vec::new();
    let read = timeout(WAIT_MAX, running.read_to_end(&mut rest)).await.unwrap();
    assert!(read.is_err() || rest.is_empty());
}

#[tokio::test]
async fn a_taken_address_is_an_error() {
    let origin = start().await;
    let error = SampleOrigin::bind(origin.address).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
