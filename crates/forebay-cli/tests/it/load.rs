//! Steady load on a server, with the number of its failures.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use forebay_testkit::client::{Client, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

/// Maximum duration of one attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(15);

/// Load that runs in the background.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<Tally>,
}

/// Attempts of a load.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: usize,
    /// Errors of the others, with the time since the start of the load.
    pub(crate) failures: Vec<(Duration, String)>,
    /// Longest duration of an attempt that was answered.
    pub(crate) longest: Duration,
}

impl Load {
    /// Starts `rate` attempts per second. Their number does not depend on the answers.
    pub(crate) fn start<F>(rate: u32, attempt: impl Fn(usize) -> F + Send + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let task = tokio::spawn(async move {
            let (begun, mut attempts, mut tally) =
                (Instant::now(), JoinSet::new(), Tally::default());
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                ticks.tick().await;
                let (attempt, at) = (attempt(number), begun.elapsed());
                number += 1;
                attempts.spawn(async move {
                    let started = Instant::now();
                    let result = tokio::time::timeout(ATTEMPT_MAX, attempt).await;
                    (at, started.elapsed(), result.unwrap_or_else(|_| Err(anyhow::anyhow!("late"))))
                });
                while let Some(ended) = attempts.try_join_next() {
                    tally.add(ended);
                }
            }
            while let Some(ended) = attempts.join_next().await {
                tally.add(ended);
            }
            tally
        });
        Self { is_over, task }
    }

    /// Starts `rate` requests per second, each on a connection of its own.
    pub(crate) fn of_connections(rate: u32, address: SocketAddr) -> Self {
        Self::start(rate, move |number| request(address, number))
    }

    /// Ends the load, and waits for the attempts under way.
    pub(crate) async fn end(self) -> anyhow::Result<Tally> {
        self.is_over.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}

impl Tally {
    fn add(
        &mut self,
        ended: Result<(Duration, Duration, anyhow::Result<()>), tokio::task::JoinError>,
    ) {
        match ended {
            Ok((_, took, Ok(()))) => {
                self.answered += 1;
                self.longest = self.longest.max(took);
            }
            Ok((at, _, Err(error))) => self.failures.push((at, format!("{error:#}"))),
            Err(error) => self.failures.push((Duration::ZERO, error.to_string())),
        }
    }

    /// Asserts that no attempt failed, and that there were some.
    pub(crate) fn assert_none_failed(&self) {
        assert!(self.failures.is_empty() && self.answered > 0, "{self:#?}");
    }
}

/// Sends one request on a new connection, and expects status 200.
pub(crate) async fn request(address: SocketAddr, number: usize) -> anyhow::Result<()> {
    let mut client = Client::connect(address).await?;
    let reply = client.ask(&Request::get(&path(number))).await?;
    ensure!(reply.status == 200 && reply.ended_cleanly(), "{reply:?}");
    Ok(())
}

/// One of a hundred paths, so that there are misses and hits.
fn path(number: usize) -> String {
    format!("/{}", number % 100)
}

/// Connections over HTTP/2 without TLS. One that the server ends gracefully is replaced, as clients do.
#[derive(Clone, Default)]
pub(crate) struct Http2 {
    sender: Arc<tokio::sync::Mutex<Option<http2::SendRequest<Empty<Bytes>>>>>,
}

impl Http2 {
    /// Sends one request, and expects status 200 and a whole body.
    pub(crate) async fn request(self, address: SocketAddr, number: usize) -> anyhow::Result<()> {
        let body = self.get(address, &path(number)).await?;
        ensure!(!body.is_empty(), "no body");
        Ok(())
    }

    /// Sends one request, and returns the body of its response, which must have status 200. A request
    /// that the connection did not take is sent on a new one (RFC 9113 section 6.8).
    pub(crate) async fn get(&self, address: SocketAddr, path: &str) -> anyhow::Result<Bytes> {
        let uri = format!("http://{address}{path}");
        for _ in 0..ROUNDS {
            let request = http::Request::get(&uri).body(Empty::new())?;
            let mut sender = self.sender(address).await?;
            match sender.try_send_request(request).await {
                Ok(response) => {
                    ensure!(response.status() == 200, "{response:?}");
                    return Ok(response.into_body().collect().await?.to_bytes());
                }
                Err(mut error) => {
                    if error.take_message().is_none() {
                        return Err(error.into_error().into());
                    }
                    *self.sender.lock().await = None;
                }
            }
        }
        anyhow::bail!("no connection took the request")
    }

    async fn sender(
        &self,
        address: SocketAddr,
    ) -> anyhow::Result<http2::SendRequest<Empty<Bytes>>> {
        let mut kept = self.sender.lock().await;
        if let Some(sender) = kept.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = TcpStream::connect(address).await.context("connect")?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // Errors of the connection are errors of its requests.
        tokio::spawn(connection);
        *kept = Some(sender.clone());
        Ok(sender)
    }
}

/// Maximum number of connections that one request tries.
const ROUNDS: usize = 3;
