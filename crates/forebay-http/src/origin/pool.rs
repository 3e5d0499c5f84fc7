//! Idle connections of one endpoint.
//!
//! Each worker has a list of its own, so that the lock of a list is not contended, and the events of
//! a connection arrive at the worker that uses it. The newest connection is used first:
//! the rest reach their idle timeout when the load falls.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::connection::{Connection, OpenConnection};

/// Number of lists of idle connections. Further threads share them.
pub(super) const LISTS: usize = 64;

/// Maximum number of remembered runtimes. When it is reached, indexes are assigned again from 0.
const RUNTIMES_MAX: usize = 1_024;

/// Maximum number of idle connections of one endpoint and worker.
const IDLE_MAX: usize = 128;

/// Interval at which idle connections are checked. Those that the origin has closed are closed, and
/// those that reached their idle timeout.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Idle connections of one endpoint.
#[derive(Debug)]
pub(super) struct Pool {
    lists: Box<[Mutex<IdleList>]>,
    open: Arc<AtomicUsize>,
    open_max: usize,
    keep_alive: Duration,
    /// Incremented when older connections must not be used again.
    generation: AtomicU32,
}

#[derive(Debug, Default)]
struct IdleList {
    /// The newest is the last one.
    idle: Vec<Idle>,
    /// Set while a task sweeps the list.
    is_swept: bool,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    generation: u32,
    connection: Box<Connection>,
}

/// Connection that one exchange uses. When it is dropped, it returns to the pool.
#[derive(Debug)]
pub(super) struct PooledConnection {
    connection: Option<Box<Connection>>,
    generation: u32,
    pool: Arc<Pool>,
}

impl Pool {
    pub(super) fn new(keep_alive: Duration, open_max: usize) -> Arc<Self> {
        Arc::new(Self {
            lists: (0..LISTS).map(|_| Mutex::default()).collect(),
            open: Arc::default(),
            open_max,
            keep_alive,
            generation: AtomicU32::new(0),
        })
    }

    /// Takes the newest connection of this worker that was idle for at most `idle_max` at `now`.
    pub(super) fn take(
        self: &Arc<Self>,
        idle_max: Duration,
        now: Instant,
    ) -> Option<PooledConnection> {
        let idle_max = idle_max.min(self.keep_alive);
        let list = &self.lists[list_index()];
        loop {
            let Idle { generation, mut connection, .. } = {
                let mut list = list.lock();
                if now.saturating_duration_since(list.idle.last()?.since) > idle_max {
                    return None;
                }
                list.idle.pop()?
            };
            if generation == self.generation() && connection.is_reusable() {
                return Some(self.lend(connection, generation));
            }
        }
    }

    /// Counts a new connection. If the endpoint has as many connections as it may have, an idle one
    /// of another worker is closed.
    pub(super) fn make_room(&self) -> OpenConnection {
        if self.open.load(Ordering::Relaxed) >= self.open_max {
            let oldest = |list: &Mutex<IdleList>| {
                let mut list = list.lock();
                (!list.idle.is_empty()).then(|| list.idle.remove(0))
            };
            drop(self.lists.iter().find_map(oldest));
        }
        OpenConnection::count(&self.open)
    }

    /// Numbers of open connections that exchanges use, and of those that are idle. HTTP/2 connections
    /// are never counted as idle.
    pub(super) fn usage(&self) -> [(&'static str, usize); 2] {
        let idle: usize = self.lists.iter().map(|list| list.lock().idle.len()).sum();
        let open = self.open.load(Ordering::Relaxed);
        [("used", open.saturating_sub(idle)), ("idle", idle)]
    }

    /// Wraps a new connection. `generation` is that of the time at which its address was known.
    pub(super) fn wrap(
        self: &Arc<Self>,
        connection: Connection,
        generation: u32,
    ) -> PooledConnection {
        self.lend(Box::new(connection), generation)
    }

    fn lend(self: &Arc<Self>, connection: Box<Connection>, generation: u32) -> PooledConnection {
        PooledConnection { connection: Some(connection), generation, pool: self.clone() }
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Closes the idle connections; those in use are closed after their exchange.
    pub(super) fn retire_all(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        for list in &self.lists {
            let retired = std::mem::take(&mut list.lock().idle);
            drop(retired);
        }
    }

    fn put(self: &Arc<Self>, connection: Box<Connection>, generation: u32) {
        if self.keep_alive.is_zero() || generation != self.generation() {
            return;
        }
        let index = list_index();
        let mut list = self.lists[index].lock();
        if list.idle.len() >= IDLE_MAX {
            return;
        }
        list.idle.push(Idle { since: Instant::now(), generation, connection });
        if !std::mem::replace(&mut list.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self), index));
        }
    }

    /// Closes connections that are of no use. Returns `false` if the list is empty afterwards.
    fn sweep(&self, index: usize) -> bool {
        let mut list = self.lists[index].lock();
        let now = Instant::now();
        list.idle.retain_mut(|idle| {
            now.saturating_duration_since(idle.since) < self.keep_alive
                && idle.connection.is_reusable()
        });
        list.is_swept = !list.idle.is_empty();
        list.is_swept
    }
}

impl PooledConnection {
    /// Returns the connection, which is there until [`detach`](Self::detach).
    pub(super) fn get(&mut self) -> Option<&mut Connection> {
        self.connection.as_deref_mut()
    }

    /// Takes the connection out of the pool for good.
    pub(super) fn detach(&mut self) -> Option<Box<Connection>> {
        self.connection.take()
    }
}

impl Drop for PooledConnection {
    /// Returns the connection to the pool if its exchange is complete.
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && connection.is_complete()
        {
            connection.rest();
            self.pool.put(connection, self.generation);
        }
    }
}

/// Sweeps one list until it is empty or its pool is dropped.
async fn sweep(pool: Weak<Pool>, index: usize) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(pool) = pool.upgrade() else { return };
        if !pool.sweep(index) {
            return;
        }
    }
}

/// Returns the index of this worker's list. A worker is a runtime: its connections wake its tasks.
pub(super) fn list_index() -> usize {
    thread_local! {
        static LAST: Cell<Option<(Id, usize)>> = const { Cell::new(None) };
    }
    let id = Handle::current().id();
    LAST.with(|last| match last.get() {
        Some((known, index)) if known == id => index,
        _ => {
            let index = assigned_index(id);
            last.set(Some((id, index)));
            index
        }
    })
}

/// Returns the index that a runtime gets when it first uses a pool.
fn assigned_index(id: Id) -> usize {
    static RUNTIMES: Mutex<Vec<Id>> = Mutex::new(Vec::new());
    let mut known = RUNTIMES.lock();
    let number = known.iter().position(|other| *other == id).unwrap_or_else(|| {
        if known.len() == RUNTIMES_MAX {
            known.clear();
        }
        known.push(id);
        known.len() - 1
    });
    number % LISTS
}
