//! Load at a fixed rate, which does not wait for responses, and clients without a pause.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use http::header::{ACCEPT_ENCODING, HeaderName};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::environment::quantile;
use crate::http::Client;

/// Maximum time of a request, above `fetch_timeout`.
const REPLY_MAX: Duration = Duration::from_secs(60);

/// Result of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// Time at which it was sent.
    pub(crate) at: Instant,
    /// Time until the end of the response in seconds.
    pub(crate) took: f64,
    /// Status; 0 without a response.
    pub(crate) status: u16,
}

/// Servers in use, which a scenario may change.
pub(crate) type Servers = Arc<Mutex<Vec<SocketAddr>>>;

/// Idle connections by server.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<HashMap<SocketAddr, Vec<Client>>>>);

impl Connections {
    /// Sends a GET; a kept connection that the server has closed is replaced, as browsers do.
    pub(crate) async fn get(
        &self,
        to: SocketAddr,
        path: &str,
        field: Option<(HeaderName, &'static str)>,
    ) -> Reply {
        let at = Instant::now();
        let exchange = async {
            let kept = self.0.lock().get_mut(&to).and_then(Vec::pop);
            if let Some(mut client) = kept
                && let Ok((head, _)) = client.get_with(path, field.clone()).await
            {
                return anyhow::Ok((client, head.status().as_u16()));
            }
            let mut client = Client::connect(to).await?;
            let (head, _) = client.get_with(path, field.clone()).await?;
            Ok((client, head.status().as_u16()))
        };
        let status = match timeout(REPLY_MAX, exchange).await {
            Ok(Ok((client, status))) => {
                self.0.lock().entry(to).or_default().push(client);
                status
            }
            _ => 0,
        };
        Reply { at, took: at.elapsed().as_secs_f64(), status }
    }
}

/// Load that runs in the background.
pub(crate) struct Traffic {
    replies: Arc<Mutex<Vec<Reply>>>,
    is_over: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Traffic {
    /// Sends this many requests per second to the servers in turn.
    pub(crate) fn start(
        rate: u32,
        to: &Servers,
        path: impl Fn(u64) -> String + Send + 'static,
    ) -> Self {
        Self::with_field(rate, to, None, path)
    }

    /// Sends requests with `Accept-Encoding: gzip` at this rate, to the servers in turn.
    pub(crate) fn with_gzip(
        rate: u32,
        to: &Servers,
        path: impl Fn(u64) -> String + Send + 'static,
    ) -> Self {
        Self::with_field(rate, to, Some((ACCEPT_ENCODING, "gzip")), path)
    }

    fn with_field(
        rate: u32,
        to: &Servers,
        field: Option<(HeaderName, &'static str)>,
        path: impl Fn(u64) -> String + Send + 'static,
    ) -> Self {
        let (replies, is_over) =
            (Arc::<Mutex<Vec<Reply>>>::default(), Arc::<AtomicBool>::default());
        let (received, over, to) = (replies.clone(), is_over.clone(), to.clone());
        let task = tokio::spawn(async move {
            let (connections, mut requests) = (Connections::default(), JoinSet::new());
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                ticks.tick().await;
                let server = {
                    let servers = to.lock();
                    servers[number as usize % servers.len()]
                };
                let (connections, received) = (connections.clone(), received.clone());
                let (path, field) = (path(number), field.clone());
                requests.spawn(async move {
                    let reply = connections.get(server, &path, field).await;
                    received.lock().push(reply);
                });
                number += 1;
                while requests.try_join_next().is_some() {}
            }
            while requests.join_next().await.is_some() {}
        });
        Self { replies, is_over, task }
    }

    /// Ends the load, waits for all responses, and returns them.
    pub(crate) async fn end(self) -> Result<Vec<Reply>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await?;
        Ok(std::mem::take(&mut *self.replies.lock()))
    }

    /// Ends the load after a time.
    pub(crate) async fn end_after(self, span: Duration) -> Result<Vec<Reply>> {
        tokio::time::sleep(span).await;
        self.end().await
    }
}

/// Requests without a pause by this many clients until `is_over`, each path once.
pub(crate) async fn closed_loop(
    clients: u64,
    to: SocketAddr,
    is_over: &Arc<AtomicBool>,
) -> Result<Vec<Reply>> {
    let number = Arc::<AtomicU64>::default();
    let connections = Connections::default();
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (number, connections, is_over) = (number.clone(), connections.clone(), is_over.clone());
        tasks.spawn(async move {
            let mut replies = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let path = format!("/{}", number.fetch_add(1, Ordering::Relaxed));
                replies.push(connections.get(to, &path, None).await);
            }
            replies
        });
    }
    Ok(tasks.join_all().await.into_iter().flatten().collect())
}

/// Requests each path once; none may fail.
pub(crate) async fn fill(to: SocketAddr, paths: impl Iterator<Item = String>) -> Result<()> {
    let connections = Connections::default();
    for path in paths {
        let reply = connections.get(to, &path, None).await;
        anyhow::ensure!(reply.status == 200, "{path}: status {}", reply.status);
    }
    Ok(())
}

/// Quantile of the times of responses, in milliseconds.
pub(crate) fn latency_ms<'a>(replies: impl IntoIterator<Item = &'a Reply>, at: f64) -> f64 {
    let times: Vec<f64> = replies.into_iter().map(|reply| reply.took * 1e3).collect();
    quantile(&times, at)
}

/// Number of responses with another status.
pub(crate) fn count_other<'a>(replies: impl IntoIterator<Item = &'a Reply>, status: u16) -> f64 {
    replies.into_iter().filter(|reply| reply.status != status).count() as f64
}
