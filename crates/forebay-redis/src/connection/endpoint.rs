//! State of one endpoint, and its operations with their timeouts.

mod cluster_state;
mod read;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use forebay_core::Timestamp;
use forebay_engine::Clock;
use futures_util::future::join;
use parking_lot::Mutex;
use redis::RedisResult;
use tokio::sync::Notify;

use self::cluster_state::ClusterState;
use crate::connection::CONNECT_MAX;
use crate::connection::link::{Fill, FillResult, Link, WritePermission};
use crate::connection::server_clock::Reading;
use crate::connection::target::Target;
use crate::connection::wakeups::Wakeups;
use crate::counts::{Counters, EndpointState, Notice, NoticeListener, count};
use crate::entry::names::Names;
use crate::error::Error;
use crate::purges::pending_purges::PendingPurges;
use crate::purges::pending_removals::{PendingRemoval, PendingRemovals, Reason};
use crate::purges::tombstones::{Tombstone, Tombstones};
use crate::settings::{EndpointSettings, SettingsError};

/// Pause before the next write attempt on a server that refused one. It may become a master or have
/// free memory by then.
const READ_ONLY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Endpoint {
    pub(crate) target: Target,
    pub(crate) read_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) pending_removals: PendingRemovals,
    pub(crate) pending_purges: PendingPurges,
    pub(crate) tombstones: Tombstones,
    pub(crate) counters: Arc<Counters>,
    /// Wakes the watcher to check the connection.
    pub(crate) nudge: Notify,
    clock: Arc<dyn Clock>,
    link: ArcSwapOption<Link>,
    /// Clock reading of the connected server.
    reading: Mutex<Option<Reading>>,
    is_up: AtomicBool,
    is_read_only: AtomicBool,
    /// Time of the next write attempt, in milliseconds of the process's clock.
    writes_from: AtomicI64,
    wants_reconnect: AtomicBool,
    notice_listener: Arc<dyn NoticeListener>,
    last_error: Mutex<Option<String>>,
    channel: Option<Channel>,
    receives_wakeups: AtomicBool,
    cluster_state: ClusterState,
}

/// Channel on which this instance receives wake-ups.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) wakeups: Arc<Wakeups>,
    /// Signals that another endpoint may be in use now.
    pub(crate) endpoint_changed: Arc<Notify>,
}

impl Endpoint {
    pub(crate) fn new(
        settings: &EndpointSettings,
        counters: &Arc<Counters>,
        clock: &Arc<dyn Clock>,
        notice_listener: &Arc<dyn NoticeListener>,
        channel: Option<Channel>,
    ) -> Result<Arc<Self>, SettingsError> {
        Ok(Arc::new(Self {
            target: Target::new(settings, counters)?,
            read_timeout: settings.read_timeout,
            write_timeout: settings.write_timeout,
            pending_removals: PendingRemovals::default(),
            pending_purges: PendingPurges::default(),
            tombstones: Tombstones::default(),
            counters: counters.clone(),
            nudge: Notify::new(),
            clock: clock.clone(),
            link: ArcSwapOption::empty(),
            reading: Mutex::default(),
            is_up: AtomicBool::new(false),
            is_read_only: AtomicBool::new(false),
            writes_from: AtomicI64::new(i64::MIN),
            wants_reconnect: AtomicBool::new(false),
            notice_listener: notice_listener.clone(),
            last_error: Mutex::default(),
            channel,
            receives_wakeups: AtomicBool::new(false),
            cluster_state: ClusterState::default(),
        }))
    }

    pub(crate) async fn open(&self) -> RedisResult<Link> {
        self.target.open(self.channel.as_ref().map(|channel| &channel.wakeups)).await
    }

    /// Subscribes to this instance's channel and loads the scripts that a miss needs. All current
    /// waiters are woken, since messages may have been missed.
    pub(crate) async fn subscribe(&self, link: &Link) {
        let Some(Channel { name, wakeups, .. }) = &self.channel else { return };
        let both = async { join(link.subscribe(name), link.load_scripts()).await.0 };
        let is_subscribed = match tokio::time::timeout(CONNECT_MAX, both).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                self.counters.failure(&error.into());
                false
            }
            Err(_) => false,
        };
        self.receives_wakeups.store(is_subscribed, Ordering::Release);
        wakeups.wake_all();
    }

    /// Returns whether wake-ups arrive. If not, a wait ends with its timeout.
    pub(crate) fn receives_wakeups(&self) -> bool {
        self.receives_wakeups.load(Ordering::Acquire)
    }

    /// Returns whether the endpoint answers and its entries can be trusted.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_up.load(Ordering::Acquire) && !self.pending_removals.has_overflowed()
    }

    pub(crate) async fn claim(
        &self,
        names: &Names,
        right: &WritePermission,
    ) -> Result<bool, Error> {
        self.run(self.write_timeout, |link| async move { link.claim(names, right).await }).await
    }

    pub(crate) async fn fill(&self, fill: &Fill<'_>) -> Result<FillResult, Error> {
        let filled = self.run(fill.wait_max, |link| async move { link.fill(fill).await }).await?;
        self.is_read_only.store(false, Ordering::Release);
        Ok(filled)
    }

    pub(crate) async fn remove(&self, names: &Names) -> Result<bool, Error> {
        self.run(self.write_timeout, |link| async move { link.remove(names).await }).await
    }

    /// Records that an entry must be removed. It is removed in the background unless the holder of
    /// the guard does so.
    pub(crate) fn begin_removal(
        self: &Arc<Self>,
        names: &Arc<Names>,
        reason: Reason,
    ) -> RemovalGuard {
        RemovalGuard {
            endpoint: self.clone(),
            removal: Some(self.pending_removals.add(names, reason)),
        }
    }

    /// Remembers a purge that was published here.
    pub(crate) fn remember(&self, tombstone: Tombstone) {
        self.tombstones.note(tombstone, self.clock.now());
    }

    /// Schedules all remembered purges again, since another server may have taken over without
    /// them.
    pub(crate) fn republish_all(&self) {
        self.pending_purges.republish_all(self.tombstones.all());
    }

    /// Runs one operation with a timeout. A timeout, or a caller that gives up, triggers a check of
    /// the connection.
    ///
    /// # Errors
    /// [`Error`] if no connection is usable, the timeout passes, or the server fails the operation.
    pub(crate) async fn run<T, F>(
        &self,
        timeout: Duration,
        operation: impl FnOnce(Arc<Link>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let link = self.link.load_full().filter(|_| self.is_usable());
        let Some(link) = link else { return Err(self.failed(Error::Unavailable)) };
        let pending = FailOnDrop(Some(self));
        let result = match tokio::time::timeout(timeout, operation(link)).await {
            Err(_) => Err(Error::TimedOut),
            Ok(result) => result.map_err(Error::from),
        };
        pending.finish();
        result.map_err(|error| self.failed(error))
    }

    /// Counts and reports a failure.
    fn failed(&self, error: Error) -> Error {
        self.counters.failure(&error);
        match &error {
            // These errors concern the connection. The watcher checks it and reports the cause.
            Error::Unavailable | Error::TimedOut | Error::ConnectionLost(_) => {
                self.nudge.notify_one();
            }
            other => self.report(other),
        }
        error
    }

    pub(crate) fn report(&self, error: &Error) {
        let why = error.to_string();
        let mut last_error = self.last_error.lock();
        if last_error.as_ref() == Some(&why) {
            return;
        }
        *last_error = Some(why.clone());
        drop(last_error);
        self.notice_listener.notice(&Notice::Failure { address: self.target.address.clone(), why });
    }

    /// Installs a new connection, which has not answered yet.
    pub(crate) fn set_link(&self, link: &Link) {
        count(&self.counters.connected);
        self.wants_reconnect.store(false, Ordering::Release);
        // Before the link, so that the old server's clock is not applied to the new server.
        *self.reading.lock() = None;
        self.link.store(Some(Arc::new(link.clone())));
    }

    pub(crate) fn clear_link(&self) {
        self.mark_down();
        self.link.store(None);
        self.receives_wakeups.store(false, Ordering::Release);
        if let Some(channel) = &self.channel {
            channel.wakeups.wake_all();
        }
    }

    /// Marks the endpoint as answering in time.
    pub(crate) fn mark_up(&self) {
        if self.is_up.swap(true, Ordering::AcqRel) {
            return;
        }
        self.notify_change();
        *self.last_error.lock() = None;
        self.notice_listener.notice(&Notice::Up { address: self.target.address.clone() });
    }

    /// Marks the endpoint as not answering in time.
    pub(crate) fn mark_down(&self) {
        if self.is_up.swap(false, Ordering::AcqRel) {
            self.notify_change();
        }
    }

    fn notify_change(&self) {
        if let Some(channel) = &self.channel {
            channel.endpoint_changed.notify_one();
        }
    }

    /// Suspends writes for a while. If another server may have taken over, a reconnect is
    /// requested.
    pub(crate) fn takes_no_writes(&self, now: Timestamp) {
        self.is_read_only.store(true, Ordering::Release);
        self.writes_from.store(now.plus(READ_ONLY_PAUSE).as_millis(), Ordering::Release);
        if self.target.may_find_another_server() {
            self.wants_reconnect.store(true, Ordering::Release);
            self.nudge.notify_one();
        }
    }

    /// Returns whether a write should be attempted.
    pub(crate) fn may_take_writes(&self, now: Timestamp) -> bool {
        !self.is_read_only.load(Ordering::Acquire)
            || now.as_millis() >= self.writes_from.load(Ordering::Acquire)
    }

    pub(crate) fn wants_reconnect(&self) -> bool {
        self.wants_reconnect.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self, is_used: bool) -> EndpointState {
        EndpointState {
            address: self.target.address.clone(),
            is_up: self.is_usable(),
            is_used,
            is_read_only: self.is_read_only.load(Ordering::Acquire),
            pending: self.pending_removals.count() + self.pending_purges.count(),
            error: self.last_error.lock().clone(),
            receives_wakeups: self.receives_wakeups(),
            bus_error: self.cluster_state.bus_error(),
            tracking_error: self.cluster_state.tracking_error(),
            lease_error: self.cluster_state.lease_error(),
        }
    }
}

/// Guard of an entry that must be removed. Dropping it schedules the removal.
pub(crate) struct RemovalGuard {
    endpoint: Arc<Endpoint>,
    removal: Option<PendingRemoval>,
}

impl RemovalGuard {
    /// Ends the guard after the entry was removed or replaced.
    pub(crate) fn complete(mut self) {
        if let Some(removal) = self.removal.take() {
            self.endpoint.pending_removals.complete(&removal);
        }
    }
}

impl Drop for RemovalGuard {
    fn drop(&mut self) {
        if let Some(removal) = &self.removal {
            self.endpoint.pending_removals.schedule(removal);
            self.endpoint.nudge.notify_one();
        }
    }
}

/// Guard of a running operation. Dropping it counts as a timeout.
struct FailOnDrop<'a>(Option<&'a Endpoint>);

impl FailOnDrop<'_> {
    fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(endpoint) = self.0 {
            let _ = endpoint.failed(Error::TimedOut);
        }
    }
}
