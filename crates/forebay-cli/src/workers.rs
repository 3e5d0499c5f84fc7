//! The threads that serve connections: one single-threaded runtime each, all on one engine.
//!
//! Connections are dealt out in turn by whoever accepts them. A connection stays with its thread,
//! so nothing on the hit path crosses threads but the cache itself.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use forebay_http::connection::{Connections, told_to_stop};
use tokio::runtime;
use tokio::sync::{Barrier, OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// Accepted connections that may wait for one thread; beyond it the acceptor waits.
const QUEUE_MAX: usize = 1_024;

/// What answers under way get to end in after the process was told to stop.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How often it is asked whether all that was fetched has been written.
const WRITES_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A connection, not yet part of any runtime.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    /// Held until the connection ends.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// The threads.
pub(crate) struct Workers {
    queues: Vec<mpsc::Sender<Accepted>>,
    threads: Vec<JoinHandle<()>>,
    next: usize,
    connections: Connections,
}

impl Workers {
    /// Starts `count` threads that serve `connections`.
    pub(crate) fn start(count: usize, connections: &Connections) -> anyhow::Result<Self> {
        let mut workers = Self {
            queues: Vec::new(),
            threads: Vec::new(),
            next: 0,
            connections: connections.clone(),
        };
        let drained = Arc::new(Barrier::new(count));
        for number in 0..count {
            let (queue, accepted) = mpsc::channel(QUEUE_MAX);
            let connections = connections.clone();
            let drained = drained.clone();
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("a runtime cannot be started")?;
            let thread = std::thread::Builder::new()
                .name(format!("forebay-{number}"))
                .spawn(move || {
                    runtime.block_on(serve(accepted, connections, &drained));
                    // A name that is still being looked up does not hold the end.
                    runtime.shutdown_background();
                })
                .context("a thread cannot be started")?;
            workers.queues.push(queue);
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// What all connections share, also those that no thread takes.
    pub(crate) fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Hands a connection to the next thread.
    pub(crate) async fn dispatch(&mut self, accepted: Accepted) {
        let queue = &self.queues[self.next];
        self.next = (self.next + 1) % self.queues.len();
        // A thread that is gone has been told to stop, and so have we.
        let _ = queue.send(accepted).await;
    }

    /// Waits until every thread has drained; each takes `DRAIN_MAX` at most.
    pub(crate) fn join(self) {
        drop(self.queues);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}

async fn serve(
    mut accepted: mpsc::Receiver<Accepted>,
    connections: Connections,
    drained: &Barrier,
) {
    let mut serving = JoinSet::new();
    let mut stop = connections.stop.clone();
    loop {
        tokio::select! {
            connection = accepted.recv() => match connection {
                Some(accepted) => {
                    serving.spawn(serve_one(accepted, connections.clone()));
                }
                None => break,
            },
            Some(_) = serving.join_next() => {}
            () = told_to_stop(&mut stop) => break,
        }
    }
    let deadline = Instant::now() + DRAIN_MAX;
    let drain = async { while serving.join_next().await.is_some() {} };
    if timeout_at(deadline, drain).await.is_err() {
        tracing::warn!(
            cut = serving.len(),
            "answers or tunnels were still open at the end of the drain"
        );
    }
    // Loads and connections to origins live on the thread that began them, and serve clients of
    // the others too: no thread ends before all have drained.
    let _ = timeout_at(deadline, drained.wait()).await;
    if timeout_at(deadline, wait_for_writes(&connections)).await.is_err() {
        let cut = connections.service.engine().traffic().writes;
        tracing::warn!(cut, "entries were still on their way into tiers at the end of the drain");
    }
}

/// Resolves when nothing is on its way into the tiers below memory any more. The tasks that write
/// are on any of the threads, and nobody waits for them but here.
async fn wait_for_writes(connections: &Connections) {
    while connections.service.engine().traffic().writes > 0 {
        sleep(WRITES_POLL_INTERVAL).await;
    }
}

async fn serve_one(accepted: Accepted, connections: Connections) {
    let Accepted { stream, peer, permit } = accepted;
    match tokio::net::TcpStream::from_std(stream) {
        Ok(stream) => connections.serve(stream, peer).await,
        Err(error) => tracing::warn!(%peer, %error, "a connection could not be taken over"),
    }
    drop(permit);
}
