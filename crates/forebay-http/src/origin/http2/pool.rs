//! HTTP/2 connections of one endpoint, by worker.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::shared::{SharedConnection, StreamLease};
use crate::origin::fault::ConnectError;
use crate::origin::pool::{LISTS, list_index};

/// Maximum number of connections of one endpoint and worker that take requests.
const CONNECTIONS_MAX: usize = 4;

/// Connections of all workers.
#[derive(Debug)]
pub(in crate::origin) struct Http2Pool {
    lists: Box<[Arc<Http2List>]>,
}

/// Connections of one worker.
#[derive(Debug, Default)]
pub(in crate::origin) struct Http2List {
    connections: Mutex<Vec<Arc<SharedConnection>>>,
    /// Wakes a request when another has ended.
    freed: Notify,
    /// Locked while a connection is opened, so that requests wait for it instead of opening more. Has
    /// the last failure.
    opening: tokio::sync::Mutex<Option<FailedOpening>>,
}

#[derive(Clone, Debug)]
struct FailedOpening {
    at: Instant,
    error: Arc<ConnectError>,
}

/// Result of a search for a connection.
#[derive(Debug)]
pub(in crate::origin) enum Found<T> {
    /// A place on an HTTP/2 connection.
    Stream(StreamLease),
    /// The connection that was opened has another protocol.
    Other(T),
}

/// Connection that was opened.
pub(in crate::origin) enum Opened<T> {
    Http2(Arc<SharedConnection>),
    Other(T),
}

impl Http2Pool {
    pub(in crate::origin) fn new() -> Self {
        Self { lists: (0..LISTS).map(|_| Arc::default()).collect() }
    }

    /// Returns the connections of this worker.
    pub(in crate::origin) fn list(&self) -> &Arc<Http2List> {
        &self.lists[list_index()]
    }

    /// Ends the use of all connections.
    pub(in crate::origin) fn retire_all(&self) {
        for list in &self.lists {
            let retired = std::mem::take(&mut *list.connections.lock());
            retired.iter().for_each(|connection| connection.retire());
        }
    }
}

impl Http2List {
    /// Returns a place on a connection that was idle for at most `idle_max`, and was opened in this
    /// generation or later. Opens a connection if all are full and there are fewer than
    /// [`CONNECTIONS_MAX`]; otherwise waits, without a time limit, for the end of another response.
    pub(in crate::origin) async fn find<T, F>(
        self: &Arc<Self>,
        idle_max: Duration,
        generation: u32,
        open: impl Fn() -> F,
    ) -> Result<Found<T>, ConnectError>
    where
        F: Future<Output = Result<Opened<T>, ConnectError>>,
    {
        let asked = Instant::now();
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            let count = match self.take(idle_max, generation) {
                Ok(lease) => return Ok(Found::Stream(lease)),
                Err(count) => count,
            };
            if count >= CONNECTIONS_MAX {
                freed.await;
                continue;
            }
            let mut opening = self.opening.lock().await;
            match self.take(idle_max, generation) {
                Ok(lease) => return Ok(Found::Stream(lease)),
                Err(count) if count >= CONNECTIONS_MAX => continue,
                Err(_) => {}
            }
            // A failure since this request began is its failure, too.
            if let Some(failed) = opening.as_ref().filter(|failed| failed.at >= asked) {
                return Err(ConnectError::Shared(failed.error.clone()));
            }
            match open().await {
                Ok(Opened::Other(other)) => return Ok(Found::Other(other)),
                Ok(Opened::Http2(connection)) => {
                    return Ok(Found::Stream(self.add(connection)));
                }
                Err(error) => {
                    let error = Arc::new(error);
                    *opening = Some(FailedOpening { at: Instant::now(), error: error.clone() });
                    return Err(ConnectError::Shared(error));
                }
            }
        }
    }

    /// Adds a connection, and returns a place on it.
    pub(in crate::origin) fn add(
        self: &Arc<Self>,
        connection: Arc<SharedConnection>,
    ) -> StreamLease {
        self.connections.lock().push(connection.clone());
        let lease = StreamLease::new(connection, Some(self.clone()));
        // Other requests may find a free stream on it.
        self.freed.notify_waiters();
        lease
    }

    /// Returns a place on the first connection that is not full, or the number of connections.
    fn take(self: &Arc<Self>, idle_max: Duration, generation: u32) -> Result<StreamLease, usize> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| {
            let is_good = connection.is_open()
                && connection.generation() == generation
                && connection.idle() <= idle_max;
            if !is_good {
                connection.retire();
            }
            is_good
        });
        match connections.iter().find(|connection| connection.has_room()) {
            Some(connection) => Ok(StreamLease::new(connection.clone(), Some(self.clone()))),
            None => Err(connections.len()),
        }
    }

    /// Wakes a request that waits for a free stream.
    pub(super) fn freed(&self) {
        self.freed.notify_one();
    }

    /// Removes connections that take no further requests.
    pub(super) fn prune(&self) {
        self.connections.lock().retain(|connection| connection.is_open());
        self.freed.notify_waiters();
    }
}
