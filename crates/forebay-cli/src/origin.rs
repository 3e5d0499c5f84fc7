//! The sample origin: an HTTP server that answers as its URLs tell it to, and counts.
//!
//! It stands behind `serve --demo` and the `origin` command, and is meant for trying out a cache,
//! by hand or in a test: whatever a real origin does slowly or wrongly can be asked for.
//!
//! | room | holds |
//! |---|---|
//! | `parameters` | what a URL asks for |
//! | `answer` | the answer to it |
//! | `body` | bodies that are made while they are sent, at a pace |
//! | `counts` | what `/stats` tells |
//! | `etag` | entity tags and `If-None-Match` |
//!
//! Absent by design: ranges, compression, TLS, HTTP/2, and any state but the counts.

mod answer;
mod body;
pub(crate) mod command;
mod counts;
mod etag;
mod parameters;

use crate::socket::listen;
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

/// More than a crowd of a stampede test, and within the usual limit of open files.
const CONNECTIONS_MAX: usize = 4096;
/// Longer than caches keep an idle connection, so that this side is not the first to close it.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(75);
/// Ends a connection whose peer has stopped reading; the slowest answer fits in several times.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(3600);
/// What running answers get to end in after `stop`.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Without a pause, a lack of file descriptors would turn the accept loop into a busy one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A sample origin that is bound to its address and waits to be run.
#[derive(Debug)]
pub(crate) struct SampleOrigin {
    listener: TcpListener,
    address: SocketAddr,
    counts: Arc<Counts>,
}

impl SampleOrigin {
    /// Listens on an address; port 0 takes a free one. Connections wait until [`Self::run`].
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, counts: Arc::default() })
    }

    /// The address it listens on.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is ready, then lets running answers end, for two seconds at most.
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
        // What has not ended by then is aborted when the set is dropped.
        let _ =
            timeout(DRAIN_MAX, async { while connections.join_next().await.is_some() {} }).await;
    }
}

async fn connection(stream: TcpStream, counts: Arc<Counts>, mut stopped: watch::Receiver<()>) {
    // Pieces of a dripping body must leave when they are due; where it fails they leave later.
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
    // A peer that breaks off is no failure of the origin, and there is nobody to tell.
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
