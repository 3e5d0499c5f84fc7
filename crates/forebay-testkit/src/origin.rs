//! A scripted origin: an HTTP/1.1 server that answers as told, misbehaves on request, and counts.
//!
//! [`Origin::start`] takes a closure from what was [`Received`] to an [`Answer`]; the origin runs
//! in the calling runtime and ends, with all its connections, when it is dropped. It adds no field
//! of its own but the framing: no `Date`, no `Server`. The one thing it says unasked is the
//! `100 Continue` that `Expect: 100-continue` asks for.

mod answer;
mod ledger;
mod serve;

pub use answer::{Answer, Cut, Framing};
pub use ledger::Counts;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use crate::fields::Fields;
use ledger::Ledger;

/// Longest wait for counters: far above what a loaded machine needs, short enough to report.
const COUNTS_WAIT: Duration = Duration::from_secs(10);

/// Connections that the system keeps for us: a crowd's fetches come at once, and one that finds
/// no room is tried again only after a second.
const BACKLOG: u32 = 4_096;

/// Longest wait for the listener to close: it takes one turn of the runtime.
const SHUT_WAIT: Duration = Duration::from_secs(5);

/// How many received requests are kept; later ones are only counted.
pub const RECEIVED_KEPT: usize = 4_096;

/// How many bytes of a request body are kept; later ones are only counted.
pub const BODY_KEPT: usize = 1 << 20;

/// A request as the origin received it.
#[derive(Clone, Debug)]
pub struct Received {
    /// The how-manieth request of this origin, from 1.
    pub serial: u64,
    /// The how-manieth connection it came on, from 1.
    pub connection: u64,
    /// The method.
    pub method: String,
    /// The request target, unchanged.
    pub target: String,
    /// The version, such as `HTTP/1.1`.
    pub version: String,
    /// The fields in order.
    pub fields: Fields,
    /// The head byte for byte, with its empty line.
    pub raw_head: Bytes,
    /// The first [`BODY_KEPT`] bytes of the body.
    pub body: Bytes,
    /// How many bytes the body had, as far as it came.
    pub body_length: u64,
    /// Whether the body came whole. A request that was broken off is counted but not answered.
    pub complete: bool,
}

impl Received {
    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Whether the request asks for an answer only if something changed.
    pub fn is_conditional(&self) -> bool {
        self.fields.contains("if-none-match") || self.fields.contains("if-modified-since")
    }
}

/// A running origin. Dropping it ends the listener and every connection.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    ledger: Arc<Ledger>,
    task: JoinHandle<()>,
}

impl Origin {
    /// Starts an origin on a free loopback port; `behaviour` answers every request.
    pub async fn start<B>(behaviour: B) -> io::Result<Self>
    where
        B: Fn(&Received) -> Answer + Send + Sync + 'static,
    {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let ledger = Arc::new(Ledger::default());
        let task = tokio::spawn(serve::accept(listener, ledger.clone(), Arc::new(behaviour)));
        Ok(Self { address, ledger, task })
    }

    /// Starts an origin that always gives the same answer.
    pub async fn always(answer: Answer) -> io::Result<Self> {
        Self::start(move |_| answer.clone()).await
    }

    /// Starts an origin that gives each answer once, in order, and from then on the last one.
    /// Without any answer it says 500.
    pub async fn in_turn(answers: Vec<Answer>) -> io::Result<Self> {
        let given = AtomicUsize::new(0);
        Self::start(move |_| {
            let turn = given.fetch_add(1, Ordering::SeqCst);
            let answer = answers.get(turn).or_else(|| answers.last());
            answer.cloned().unwrap_or_else(|| Answer::status(500))
        })
        .await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its root, such as `http://127.0.0.1:40000`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Counts {
        self.ledger.counts()
    }

    /// How many requests came in so far.
    pub fn requests(&self) -> u64 {
        self.counts().requests
    }

    /// How many requests came in for that path, its query left aside.
    pub fn requests_to(&self, path: &str) -> u64 {
        self.ledger.requests_to(path)
    }

    /// The first [`RECEIVED_KEPT`] requests, in order of arrival.
    pub fn received(&self) -> Vec<Received> {
        self.ledger.received()
    }

    /// The first request that was kept, or an error without any.
    pub fn first(&self) -> anyhow::Result<Received> {
        self.received().into_iter().next().context("the origin received no request")
    }

    /// Resolves when at least `count` requests have come in; an error after 10 s.
    pub async fn wait_requests(&self, count: u64) -> anyhow::Result<()> {
        let what = format!("{count} requests");
        self.wait_for(&what, |counts| counts.requests >= count).await
    }

    /// Resolves when no request is being answered; an error after 10 s.
    pub async fn wait_idle(&self) -> anyhow::Result<()> {
        self.wait_for("no request in flight", |counts| counts.in_flight == 0).await
    }

    /// Goes away for good: when this resolves, connections are refused, and those that there were
    /// are about to end. What was counted stays; an error after 5 s.
    pub async fn shut(&self) -> anyhow::Result<()> {
        self.task.abort();
        // A handle that others hold, too, cannot be awaited.
        let closed = async {
            while !self.task.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(SHUT_WAIT, closed).await;
        waited.context("the origin does not stop listening")
    }

    /// Resolves when the counts satisfy `condition`; an error that names `what` after 10 s.
    pub async fn wait_for(
        &self,
        what: &str,
        condition: impl Fn(&Counts) -> bool,
    ) -> anyhow::Result<()> {
        let wait = self.ledger.wait_for(condition);
        if tokio::time::timeout(COUNTS_WAIT, wait).await.is_ok() {
            return Ok(());
        }
        let targets: Vec<String> = self
            .received()
            .iter()
            .take(20)
            .map(|received| format!("{} {}", received.method, received.target))
            .collect();
        bail!(
            "waited {COUNTS_WAIT:?} for {what}; the origin has {:?} and saw first {targets:?}",
            self.counts()
        )
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // The accepting task owns the connections' tasks, so all of them end here.
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
