//! Scripted HTTP/1.1 origin that can misbehave, and counts.
//!
//! [`Origin::start`] takes a closure from [`Received`] to [`Answer`]. The origin runs in the calling
//! runtime; dropping it ends it and its connections. It adds no fields except those for framing,
//! neither `Date` nor `Server`, and sends `100 Continue` on request.

mod answer;
mod recorder;
mod serve;

pub use answer::{Answer, Cut, Framing};
pub use recorder::Counts;

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
use recorder::Recorder;

/// Maximum wait for counters, far above the needs of a loaded machine.
const COUNTS_WAIT: Duration = Duration::from_secs(10);

/// Length of the listen queue. Fetches of a crowd connect at once, and a connection that does not
/// fit retries after a second.
const BACKLOG: u32 = 4_096;

/// Maximum wait for the listener to close, which takes one poll of the runtime.
const SHUT_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of received requests that are kept; later ones are only counted.
pub const RECEIVED_KEPT: usize = 4_096;

/// Maximum number of bytes of a request body that are kept; later ones are only counted.
pub const BODY_KEPT: usize = 1 << 20;

/// Request as the origin received it.
#[derive(Clone, Debug)]
pub struct Received {
    /// Sequence number of the request at this origin, from 1.
    pub serial: u64,
    /// Sequence number of its connection, from 1.
    pub connection: u64,
    /// Method.
    pub method: String,
    /// Request target, unchanged.
    pub target: String,
    /// HTTP version, such as `HTTP/1.1`.
    pub version: String,
    /// Header fields in order.
    pub fields: Fields,
    /// Head byte for byte, with its empty line.
    pub raw_head: Bytes,
    /// First [`BODY_KEPT`] bytes of the body.
    pub body: Bytes,
    /// Number of bytes of the body that arrived.
    pub body_length: u64,
    /// True if the body is complete. An incomplete request is counted but not answered.
    pub complete: bool,
}

impl Received {
    /// Target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns whether the request is conditional.
    pub fn is_conditional(&self) -> bool {
        self.fields.contains("if-none-match") || self.fields.contains("if-modified-since")
    }
}

/// Running origin. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    recorder: Arc<Recorder>,
    task: JoinHandle<()>,
}

impl Origin {
    /// Starts an origin on a free loopback port; `behaviour` answers every request.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn start<B>(behaviour: B) -> io::Result<Self>
    where
        B: Fn(&Received) -> Answer + Send + Sync + 'static,
    {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let recorder = Arc::new(Recorder::default());
        let task = tokio::spawn(serve::accept(listener, recorder.clone(), Arc::new(behaviour)));
        Ok(Self { address, recorder, task })
    }

    /// Starts an origin that always gives one answer.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn always(answer: Answer) -> io::Result<Self> {
        Self::start(move |_| answer.clone()).await
    }

    /// Starts an origin that gives each answer once, in order, and then repeats the last one.
    /// Without any answer it responds with 500.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn in_turn(answers: Vec<Answer>) -> io::Result<Self> {
        let given = AtomicUsize::new(0);
        Self::start(move |_| {
            let turn = given.fetch_add(1, Ordering::SeqCst);
            let answer = answers.get(turn).or_else(|| answers.last());
            answer.cloned().unwrap_or_else(|| Answer::status(500))
        })
        .await
    }

    /// Address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL of its root, such as `http://127.0.0.1:40000`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Counters so far.
    pub fn counts(&self) -> Counts {
        self.recorder.counts()
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.counts().requests
    }

    /// Number of requests for a path, with any query.
    pub fn requests_to(&self, path: &str) -> u64 {
        self.recorder.requests_to(path)
    }

    /// First [`RECEIVED_KEPT`] requests, in order of arrival.
    pub fn received(&self) -> Vec<Received> {
        self.recorder.received()
    }

    /// First request.
    ///
    /// # Errors
    /// If there was none.
    pub fn first(&self) -> anyhow::Result<Received> {
        self.received().into_iter().next().context("the origin received no request")
    }

    /// Waits for `count` requests.
    ///
    /// # Errors
    /// If they do not arrive within 10 s.
    pub async fn wait_requests(&self, count: u64) -> anyhow::Result<()> {
        let what = format!("{count} requests");
        self.wait_for(&what, |counts| counts.requests >= count).await
    }

    /// Waits until no request is being answered.
    ///
    /// # Errors
    /// If that takes more than 10 s.
    pub async fn wait_idle(&self) -> anyhow::Result<()> {
        self.wait_for("no request in flight", |counts| counts.in_flight == 0).await
    }

    /// Stops the origin: afterwards new connections are refused, and open ones are about to end.
    /// Counters stay readable.
    ///
    /// # Errors
    /// If the listener does not close within 5 s.
    pub async fn shut(&self) -> anyhow::Result<()> {
        self.task.abort();
        // The handle is shared, so it cannot be awaited.
        let closed = async {
            while !self.task.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(SHUT_WAIT, closed).await;
        waited.context("the origin does not stop listening")
    }

    /// Waits until the counters satisfy `condition`.
    ///
    /// # Errors
    /// If they do not within 10 s; the error contains `what` and the counters.
    pub async fn wait_for(
        &self,
        what: &str,
        condition: impl Fn(&Counts) -> bool,
    ) -> anyhow::Result<()> {
        let wait = self.recorder.wait_for(condition);
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
        // The accepting task owns the tasks of the connections, so all of them end.
        self.task.abort();
    }
}
