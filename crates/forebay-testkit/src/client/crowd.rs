//! Many clients at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Client, Reply, Request};

/// Opens `count` connections, then writes all requests at once, and reads all replies.
///
/// The replies stand in the order of their number, which `request` is given. One connection that
/// gets no reply at all is an error; a body that broke off is not.
pub async fn crowd(
    count: usize,
    address: SocketAddr,
    request: impl Fn(usize) -> Request,
) -> anyhow::Result<Vec<Reply>> {
    let start = Arc::new(Barrier::new(count));
    let mut asking = JoinSet::new();
    for number in 0..count {
        let client = Client::connect(address).await?;
        asking.spawn(ask_at(start.clone(), client, number, request(number)));
    }
    let mut replies: Vec<Option<Reply>> = (0..count).map(|_| None).collect();
    while let Some(asked) = asking.join_next().await {
        let (number, reply) = asked.context("a client of the crowd panicked")?;
        replies[number] = Some(reply.with_context(|| format!("client {number} of {count}"))?);
    }
    Ok(replies.into_iter().flatten().collect())
}

async fn ask_at(
    start: Arc<Barrier>,
    mut client: Client,
    number: usize,
    request: Request,
) -> (usize, anyhow::Result<Reply>) {
    start.wait().await;
    (number, client.ask(&request).await)
}

/// A distribution of durations.
#[derive(Clone, Debug)]
pub struct Timings(Vec<Duration>);

impl Timings {
    /// Of any durations.
    pub fn new(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = durations.into_iter().collect();
        sorted.sort_unstable();
        Self(sorted)
    }

    /// Of the times from request to head.
    pub fn of_heads(replies: &[Reply]) -> Self {
        Self::new(replies.iter().map(|reply| reply.head_after))
    }

    /// Of the times from request to the body's end, as far as it was reached.
    pub fn of_ends(replies: &[Reply]) -> Self {
        Self::new(replies.iter().filter_map(Reply::end_after))
    }

    /// The median.
    pub fn p50(&self) -> Duration {
        self.percentile(50)
    }

    /// What 99 of 100 do not exceed.
    pub fn p99(&self) -> Duration {
        self.percentile(99)
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.percentile(100)
    }

    /// What `percent` of 100 do not exceed, by nearest rank; zero without any duration.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent.min(100)).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }
}
