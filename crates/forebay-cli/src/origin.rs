//! Sample origin: an HTTP server whose URLs select its responses, and which counts requests.
//!
//! `serve --demo` and `forebay origin` run it. It is for trying out a cache by hand or in a test:
//! its parameters produce slow, large, failing and varying responses.
//!
//! | module | contents |
//! |---|---|
//! | `parameters` | path and query parameters of a URL |
//! | `answer` | response to a request |
//! | `body` | bodies that are generated while they are sent, at a configured rate |
//! | `counts` | counters behind `/stats` |
//! | `etag` | entity tags and `If-None-Match` |
//!
//! Not supported: ranges, compression, TLS, HTTP/2, and state other than the counters.

mod answer;
mod body;
pub(crate) mod command;
mod counts;
mod etag;
mod parameters;

use crate::listener::socket::listen;
use counts::Counts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Maximum number of open connections: above the crowds of stampede tests, below common file limits.
const CONNECTIONS_MAX: usize = 4096;
/// Maximum wait for a request head; above the idle timeout of caches, so that they close first.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(75);
/// Maximum age of a connection, for clients that stop reading; the slowest response takes less.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(3600);
/// Maximum time for responses in progress to complete after `stop`.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Pause after a failed accept; without it, a lack of file descriptors would make the loop spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Sample origin that is bound to an address and not yet running.
#[derive(Debug)]
pub(crate) struct SampleOrigin {
    listener: TcpListener,
    address: SocketAddr,
    counts: Arc<Counts>,
}

impl SampleOrigin {
    /// Listens on an address; port 0 takes a free port. Connections wait until [`Self::run`].
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, counts: Arc::default() })
    }

    /// Address that the origin listens on.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves, then waits at most two seconds for responses in progress.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (stopping, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let accepted = async {
                let permit = Arc::clone(&permits).acquire_owned().await;
                (permit, self.listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = &mut stop => break,
                accepted = accepted => accepted,
            };
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (counts, stopped) = (Arc::clone(&self.counts), stopped.clone());
            connections.spawn(async move {
                let _permit = permit;
                connection(stream, counts, stopped).await;
            });
            while connections.try_join_next().is_some() {}
        }
        drop((stopping, self.listener));
        // Dropping the set aborts connections that are still open.
        let _ =
            timeout(DRAIN_MAX, async { while connections.join_next().await.is_some() {} }).await;
    }
}

async fn connection(stream: TcpStream, counts: Arc<Counts>, mut stopped: watch::Receiver<()>) {
    // Pieces of a slow body must be sent when they are due. If this fails, they are sent later.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let counts = Arc::clone(&counts);
        async move { Ok::<_, std::convert::Infallible>(answer::answer(request, &counts).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    // An aborted connection is the client's decision, so errors are ignored.
    let _ = timeout(CONNECTION_AGE_MAX, async {
        tokio::select! {
            _ = serving.as_mut() => return,
            _ = stopped.changed() => serving.as_mut().graceful_shutdown(),
        }
        let _ = serving.await;
    })
    .await;
}

#[cfg(test)]
mod tests;
