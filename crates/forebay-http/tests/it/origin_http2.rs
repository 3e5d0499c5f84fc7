//! HTTP/2 to origins, with real servers of HTTP/2.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use forebay_http::{OriginProtocols, RetryOn, RetrySettings};
use forebay_testkit::client::{Client, Request};
use h2::Reason;
use http::{Method, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::server::{TestServer, site};

/// HTTP/2 server without TLS.
struct Http2Origin {
    address: SocketAddr,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    /// Largest number of requests in progress.
    most: AtomicUsize,
    now: AtomicUsize,
}

impl Counts {
    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Http2Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends each connection gracefully (GOAWAY) after this number of requests; 0 never does.
async fn origin(delay: Duration, requests_per_connection: usize) -> Result<Http2Origin> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let counts = Arc::new(Counts::default());
    let shared = counts.clone();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            shared.connections.fetch_add(1, Ordering::SeqCst);
            let counts = shared.clone();
            connections.spawn(serve(stream, counts, delay, requests_per_connection));
        }
    });
    Ok(Http2Origin { address, counts, task })
}

async fn serve(
    stream: tokio::net::TcpStream,
    counts: Arc<Counts>,
    delay: Duration,
    requests_per_connection: usize,
) {
    let here = Arc::new(AtomicUsize::new(0));
    let (begun, total) = (here.clone(), counts);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (here, counts) = (begun.clone(), total.clone());
        async move {
            here.fetch_add(1, Ordering::SeqCst);
            counts.requests.fetch_add(1, Ordering::SeqCst);
            let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
            counts.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(delay).await;
            counts.now.fetch_sub(1, Ordering::SeqCst);
            answer(request).await
        }
    });
    let connection =
        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = ticks.tick() => {
                let is_spent = here.load(Ordering::SeqCst) >= requests_per_connection;
                if requests_per_connection > 0 && is_spent {
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Answers with what the server received.
async fn answer(request: http::Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let fields = ["host", "transfer-encoding", "connection", "via"];
    let fields = fields.map(|name| parts.headers.contains_key(name));
    let text = format!("{} {} {fields:?} {}", parts.method, parts.uri, body.len());
    let mut response = Response::new(Full::new(text.into()));
    let lifetime = if parts.uri.path() == "/stored" { "max-age=60" } else { "no-store" };
    response.headers_mut().insert("cache-control", http::HeaderValue::from_static(lifetime));
    Ok(response)
}

/// Idle time after which a connection is closed.
const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// Starts a server whose origin speaks HTTP/2 without TLS, with the retries of `forebay serve`.
async fn front(origin: SocketAddr) -> Result<TestServer> {
    let server = TestServer::start(origin, &[]).await?;
    let mut settings = site(origin)?;
    settings.origin.protocols = OriginProtocols::PriorKnowledge;
    let on = vec![RetryOn::Connect, RetryOn::Closed];
    settings.origin.retry = Some(RetrySettings { attempts: 1, on, budget_percent: 10 });
    server.service.reload(&[settings]);
    Ok(server)
}

/// Sends requests at once, each over a connection of its own, and returns the number of each status.
async fn crowd(
    server: &TestServer,
    method: &'static str,
    count: usize,
) -> Result<Vec<(u16, usize)>> {
    let mut clients = JoinSet::new();
    let address = server.address;
    for number in 0..count {
        clients.spawn(async move {
            let mut client = Client::connect(address).await?;
            let reply = client.ask(&Request::new(method, &format!("/{number}"))).await?;
            anyhow::Ok(reply.status)
        });
    }
    let mut statuses: Vec<(u16, usize)> = Vec::new();
    while let Some(status) = clients.join_next().await {
        let status = status??;
        match statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => statuses.push((status, 1)),
        }
    }
    Ok(statuses)
}

#[tokio::test]
async fn a_request_has_the_form_of_http2() -> Result<()> {
    let origin = origin(Duration::ZERO, 0).await?;
    let server = front(origin.address).await?;
    let mut client = Client::connect(server.address).await?;
    let get = Request::get("/stored?a=b").without_host().field("Host", "shop.example:81");
    let reply = client.ask(&get).await?;
    let expected = "GET http://shop.example:81/stored?a=b [false, false, false, true] 0";
    assert_eq!((reply.status, &*reply.text()), (200, expected));
    assert_eq!(
        reply.field("cache-status"),
        Some("forebay; fwd=uri-miss; fwd-status=200; stored; ttl=60")
    );
    assert_eq!(client.ask(&get).await?.field("cache-status"), Some("forebay; hit; ttl=60"));
    let posts = [
        Request::new("POST", "/p").body("12345"),
        Request::new("POST", "/p").body("12345").chunked(),
    ];
    for post in posts {
        let reply = client.ask(&post).await?;
        assert!(reply.text().ends_with("/p [false, false, false, true] 5"), "{}", reply.text());
    }
    assert_eq!(client.ask(&Request::new("HEAD", "/h")).await?.status, 200);
    assert_eq!((origin.counts.requests(), origin.counts.connections()), (4, 1));
    Ok(())
}

#[tokio::test]
async fn many_requests_share_at_most_four_connections() -> Result<()> {
    let origin = origin(Duration::from_millis(500), 0).await?;
    let server = front(origin.address).await?;
    assert_eq!(crowd(&server, "GET", 600).await?, [(200, 600)]);
    let counts = &origin.counts;
    assert_eq!((counts.requests(), counts.connections()), (600, 4));
    let most = counts.most.load(Ordering::SeqCst);
    assert!((201..=400).contains(&most), "{most} at once");
    Ok(())
}

#[tokio::test]
async fn a_connection_that_the_origin_ends_loses_no_request() -> Result<()> {
    let origin = origin(Duration::from_millis(2), 40).await?;
    let server = front(origin.address).await?;
    for _ in 0..10 {
        assert_eq!(crowd(&server, "GET", 100).await?, [(200, 100)]);
        assert_eq!(crowd(&server, "POST", 20).await?, [(200, 20)]);
    }
    assert_eq!(origin.counts.requests(), 1_200, "each was processed once");
    assert!(origin.counts.connections() > 10, "{}", origin.counts.connections());
    Ok(())
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_keep_alive() -> Result<()> {
    let origin = origin(Duration::ZERO, 0).await?;
    let server = TestServer::start(origin.address, &[]).await?;
    let mut settings = site(origin.address)?;
    settings.origin.protocols = OriginProtocols::PriorKnowledge;
    settings.origin.keep_alive = KEEP_ALIVE;
    server.service.reload(&[settings]);
    let mut client = Client::connect(server.address).await?;
    assert_eq!(client.ask(&Request::get("/a")).await?.status, 200);
    assert_eq!(client.ask(&Request::get("/b")).await?.status, 200);
    assert_eq!(origin.counts.connections(), 1);
    tokio::time::sleep(2 * KEEP_ALIVE).await;
    assert_eq!(client.ask(&Request::get("/c")).await?.status, 200);
    assert_eq!(origin.counts.connections(), 2);
    Ok(())
}

/// Behaviour of a server of frames.
#[derive(Clone, Copy)]
enum Refusing {
    /// Refuses this number of streams of each connection (REFUSED_STREAM).
    Streams(usize),
    /// Ends each stream with an error after it was received.
    Broken,
}

/// Server that refuses streams. Returns its address and the number of requests that it received.
async fn refusing(behaviour: Refusing) -> Result<(SocketAddr, Arc<AtomicUsize>, JoinHandle<()>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let received = Arc::new(AtomicUsize::new(0));
    let counted = received.clone();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let received = counted.clone();
            connections.spawn(async move {
                let mut connection = h2::server::handshake(stream).await?;
                let mut refused = 0;
                while let Some(accepted) = connection.accept().await {
                    let (_, mut respond) = accepted?;
                    received.fetch_add(1, Ordering::SeqCst);
                    match behaviour {
                        Refusing::Streams(count) if refused < count => {
                            refused += 1;
                            respond.send_reset(Reason::REFUSED_STREAM);
                        }
                        Refusing::Streams(_) => {
                            respond.send_response(Response::new(()), true)?;
                        }
                        Refusing::Broken => respond.send_reset(Reason::INTERNAL_ERROR),
                    }
                }
                Ok::<_, h2::Error>(())
            });
        }
    });
    Ok((address, received, task))
}

#[tokio::test]
async fn a_refused_request_is_sent_again_unless_its_body_is_used_up() -> Result<()> {
    for (method, body, status, received) in
        [("GET", None, 200, 2), ("POST", None, 200, 2), ("POST", Some("12345"), 502, 1)]
    {
        let (address, seen, task) = refusing(Refusing::Streams(1)).await?;
        let server = front(address).await?;
        let mut client = Client::connect(server.address).await?;
        let mut request = Request::new(method, "/");
        if let Some(body) = body {
            request = request.body(body);
        }
        let reply = client.ask(&request).await?;
        let what = format!("{method} {body:?}");
        assert_eq!((reply.status, seen.load(Ordering::SeqCst)), (status, received), "{what}");
        task.abort();
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_sent_again() -> Result<()> {
    let (address, seen, task) = refusing(Refusing::Broken).await?;
    let server = front(address).await?;
    let mut client = Client::connect(server.address).await?;
    let reply = client.ask(&Request::new(Method::POST.as_str(), "/")).await?;
    assert_eq!((reply.status, seen.load(Ordering::SeqCst)), (502, 1));
    task.abort();
    Ok(())
}
