//! Threads that serve connections: one single-threaded runtime each, all on one engine.
//!
//! The acceptor distributes connections round-robin. A connection stays on its thread, so on the
//! hit path threads share only the cache itself.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use forebay_http::DrainCut;
use forebay_http::edge::accept::AcceptRules;
use forebay_http::edge::connection::{Connections, stop_requested};
use forebay_semantics::PeerAddress;
use tokio::runtime;
use tokio::sync::{Barrier, OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::listener::AcceptedStream;
use crate::service_manager::{self, Pulse, beat};
use crate::stop::CurrentStopTimes;

/// Maximum number of accepted connections queued for one thread; then the acceptor waits.
const QUEUE_MAX: usize = 1_024;

/// Interval at which the drain checks whether all tier writes have ended.
const WRITES_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Accepted connection that is not yet registered with a runtime.
pub(crate) struct Accepted {
    pub(crate) stream: AcceptedStream,
    pub(crate) peer: PeerAddress,
    /// Rules of the listener.
    pub(crate) rules: Arc<AcceptRules>,
    /// Slot in the client connection limit, held until the connection ends.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Pool of threads that serve connections.
pub(crate) struct Workers {
    queues: Vec<mpsc::Sender<Accepted>>,
    threads: Vec<JoinHandle<()>>,
    next: usize,
    connections: Connections,
    pulses: Vec<Pulse>,
}

impl Workers {
    /// Starts `count` threads that serve `connections`. `times` has the maximum time for responses in
    /// progress to complete after the stop.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be started.
    pub(crate) fn start(
        count: usize,
        connections: &Connections,
        times: &Arc<CurrentStopTimes>,
    ) -> anyhow::Result<Self> {
        let mut workers = Self {
            queues: Vec::new(),
            threads: Vec::new(),
            next: 0,
            connections: connections.clone(),
            pulses: Vec::new(),
        };
        let drained = Arc::new(Barrier::new(count));
        let watchdog = service_manager::watchdog_interval();
        for number in 0..count {
            let pulse = Pulse::default();
            workers.pulses.push(pulse.clone());
            let (queue, accepted) = mpsc::channel(QUEUE_MAX);
            let connections = connections.clone();
            let (drained, times) = (drained.clone(), times.clone());
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("the runtime of a thread that serves connections cannot be started")?;
            let thread = std::thread::Builder::new()
                .name(format!("forebay-{number}"))
                .spawn(move || {
                    if let Some(interval) = watchdog {
                        runtime.spawn(beat(interval, pulse));
                    }
                    runtime.block_on(serve(accepted, connections, &drained, &times));
                    // A pending name lookup must not delay the exit.
                    runtime.shutdown_background();
                })
                .context("a thread that serves connections cannot be started")?;
            workers.queues.push(queue);
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Pulses of all threads, which beat if the service manager has a watchdog.
    pub(crate) fn pulses(&self) -> Vec<Pulse> {
        self.pulses.clone()
    }

    /// State that all connections share.
    pub(crate) fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Hands a connection to the next thread.
    pub(crate) async fn dispatch(&mut self, accepted: Accepted) {
        let queue = &self.queues[self.next];
        self.next = (self.next + 1) % self.queues.len();
        // Sending fails only after the thread has stopped, and then this process is stopping.
        let _ = queue.send(accepted).await;
    }

    /// Waits until every thread has drained; each takes at most the time limit of the
    /// drain.
    pub(crate) fn join(self) {
        drop(self.queues);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!(
                    "a thread that served client connections panicked before or during this stop, \
                     so its connections were closed; this is a bug in forebay, please report it"
                );
            }
        }
    }
}

async fn serve(
    mut accepted: mpsc::Receiver<Accepted>,
    connections: Connections,
    drained: &Barrier,
    times: &CurrentStopTimes,
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
            () = stop_requested(&mut stop) => break,
        }
    }
    // Connections that were accepted before the stop.
    while let Ok(accepted) = accepted.try_recv() {
        serving.spawn(serve_one(accepted, connections.clone()));
    }
    let metrics = connections.service.metrics();
    let drain_max = times.get().drain_max;
    let deadline = Instant::now() + drain_max;
    let drain = async { while serving.join_next().await.is_some() {} };
    if timeout_at(deadline, drain).await.is_err() {
        metrics.count_drain_cut(DrainCut::Connection, serving.len());
        tracing::warn!(
            connections = serving.len(),
            limit = ?drain_max,
            "time limit of the stop (drain_max) reached: client connections of this thread that \
             are still open are cut"
        );
    }
    // Loads and origin connections live on the thread that started them and serve clients of other
    // threads as well, so every thread waits until all have drained.
    let _ = timeout_at(deadline, drained.wait()).await;
    if timeout_at(deadline, wait_for_writes(&connections)).await.is_err() {
        let cut = connections.service.engine().traffic().writes;
        metrics.count_drain_cut(DrainCut::Write, cut);
        tracing::warn!(
            writes = cut,
            "time limit of the stop (drain_max) reached: pending writes to lower tiers are dropped"
        );
    }
}

/// Resolves when no write to a lower tier is pending. Write tasks run on any thread, and only this
/// function waits for them.
async fn wait_for_writes(connections: &Connections) {
    while connections.service.engine().traffic().writes > 0 {
        sleep(WRITES_POLL_INTERVAL).await;
    }
}

async fn serve_one(accepted: Accepted, connections: Connections) {
    let Accepted { stream, peer, rules, permit } = accepted;
    let registered = match stream {
        AcceptedStream::Tcp(stream) => match tokio::net::TcpStream::from_std(stream) {
            Ok(stream) => {
                connections.accept(stream, peer, rules).await;
                Ok(())
            }
            Err(error) => Err(error),
        },
        AcceptedStream::Unix(stream) => match tokio::net::UnixStream::from_std(stream) {
            Ok(stream) => {
                Box::pin(connections.accept(stream, peer, rules)).await;
                Ok(())
            }
            Err(error) => Err(error),
        },
    };
    if let Err(error) = registered {
        tracing::warn!(%peer, %error, "client connection closed unanswered: the runtime cannot \
                                       register its socket");
    }
    drop(permit);
}
