//! Crowds of clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::Barrier;

use super::{Client, Reply, Request};

/// Opens `count` connections, sends all requests at once, and reads all responses.
///
/// `request` gets the index of each client; the responses are in the order of the index. A
/// truncated body is not an error.
///
/// # Errors
/// If a connection fails, or a client gets no response.
pub async fn crowd(
    count: usize,
    address: SocketAddr,
    request: impl Fn(usize) -> Request,
) -> anyhow::Result<Vec<Reply>> {
    crowd_of(&vec![address; count], request).await
}

/// Opens a connection to each address, sends all requests at once, and reads all responses.
///
/// # Errors
/// If a connection fails, or a client gets no response.
pub async fn crowd_of(
    addresses: &[SocketAddr],
    request: impl Fn(usize) -> Request,
) -> anyhow::Result<Vec<Reply>> {
    let start = Arc::new(Barrier::new(addresses.len()));
    let mut asking = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        let mut client = Client::connect(*address).await?;
        let (start, request) = (start.clone(), request(number));
        asking.push(tokio::spawn(async move {
            start.wait().await;
            client.ask(&request).await
        }));
    }
    let mut replies = Vec::new();
    for (number, asked) in asking.into_iter().enumerate() {
        replies.push(asked.await?.with_context(|| format!("client {number}"))?);
    }
    Ok(replies)
}

/// Distribution of durations.
#[derive(Clone, Debug)]
pub struct Timings(Vec<Duration>);

impl Timings {
    /// Distribution of `durations`.
    pub fn new(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = durations.into_iter().collect();
        sorted.sort_unstable();
        Self(sorted)
    }

    /// Distribution of the times from request to the end of the body, of bodies that ended.
    pub fn of_ends(replies: &[Reply]) -> Self {
        Self::new(replies.iter().filter_map(Reply::end_after))
    }

    /// Median.
    pub fn p50(&self) -> Duration {
        self.percentile(50)
    }

    /// 99th percentile.
    pub fn p99(&self) -> Duration {
        self.percentile(99)
    }

    /// Maximum.
    pub fn max(&self) -> Duration {
        self.percentile(100)
    }

    /// Percentile by nearest rank; zero for an empty distribution.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent.min(100)).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }
}
