//! Minimal HTTP/1.1 server on hyper: the baseline of `cargo xtask bench hit`, `edge` and `pass`.
//!
//! One thread, no cache, no lookup: `/1k` and `/1m` are answered from two shared byte strings with
//! the seven response fields of a cache hit (`Date` and `Content-Length` are hyper's own). With the
//! PEM files of a certificate and its key as arguments, it serves TLS. With an address as its only
//! argument, it is a proxy: each connection of a client has one to this origin, and requests and
//! responses pass unchanged. It runs until it is killed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let served = match &arguments[..] {
        [_, certificate, key] => Served::Tls(acceptor(certificate, key)?),
        [_, origin] => Served::Proxy(origin.parse()?),
        _ => Served::Cleartext,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    Ok(LocalSet::new().block_on(&runtime, accept(served))?)
}

/// Kind of service for the connections.
#[derive(Clone)]
enum Served {
    Cleartext,
    Tls(TlsAcceptor),
    /// Responses of this origin.
    Proxy(SocketAddr),
}

fn acceptor(certificate: &str, key: &str) -> anyhow::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(served: Served) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    // The form that the launcher of the test kit reads.
    println!("forebay ready: http://{}", listener.local_addr()?);
    let bodies = [1 << 10, 1 << 20].map(|size| Bytes::from(vec![b'x'; size]));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (served, bodies) = (served.clone(), bodies.clone());
        tokio::task::spawn_local(async move {
            match served {
                Served::Cleartext => serve(stream, bodies).await,
                Served::Tls(tls) => match tls.accept(stream).await {
                    Ok(stream) => serve(stream, bodies).await,
                    Err(error) => eprintln!("a handshake failed: {error}"),
                },
                Served::Proxy(origin) => {
                    if let Err(error) = forward(stream, origin).await {
                        eprintln!("a proxied connection ended early: {error}");
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, bodies: [Bytes; 2]) {
    let service = service_fn(|request| {
        let response = answer(&request, &bodies);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        eprintln!("a connection ended early: {error}");
    }
}

/// Forwards the requests of a client connection over one connection to the origin.
async fn forward(client: TcpStream, origin: SocketAddr) -> anyhow::Result<()> {
    let origin = TcpStream::connect(origin).await?;
    origin.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(origin)).await?;
    tokio::task::spawn_local(connection);
    let sender: Arc<Mutex<SendRequest<Incoming>>> = Arc::new(Mutex::new(sender));
    let service = service_fn(move |request| {
        let sender = sender.clone();
        async move {
            let mut sender = sender.lock().await;
            sender.ready().await?;
            sender.send_request(request).await
        }
    });
    Ok(http1::Builder::new().serve_connection(TokioIo::new(client), service).await?)
}

fn answer(request: &Request<Incoming>, [small, large]: &[Bytes; 2]) -> Response<Full<Bytes>> {
    let (status, body) = match request.uri().path() {
        "/1k" => (StatusCode::OK, small.clone()),
        "/1m" => (StatusCode::OK, large.clone()),
        _ => (StatusCode::NOT_FOUND, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CACHE_CONTROL, "max-age=3600"),
        (header::AGE, "1"),
        (header::VIA, "1.1 forebay"),
        (header::HeaderName::from_static("cache-status"), "forebay; hit; ttl=3599"),
    ] {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}
