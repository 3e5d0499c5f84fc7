//! Conditions that prevent leases or purges from being shared through an endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Timestamp;
use parking_lot::Mutex;

use super::Endpoint;
use crate::connection::link::Link;
use crate::counts::{Notice, count};
use crate::error::Error;

/// Suspension of leases after a server failed to grant one.
const LEASE_PAUSE: Duration = Duration::from_secs(1);

/// Suspension of leases after a server evicted one. Memory pressure lasts longer than a second.
const EVICTING_PAUSE: Duration = Duration::from_secs(10);

/// Last known condition of the endpoint.
#[derive(Default)]
pub(super) struct ClusterState {
    suspension: Mutex<Option<LeaseSuspension>>,
    /// Number of keys that the server had evicted at the last query.
    evicted: AtomicU64,
    /// Cause why the bus is not received.
    bus_error: Mutex<Option<String>>,
    /// Cause why changes by other programs are not received.
    tracking_error: Mutex<Option<String>>,
}

/// Suspension of leases.
struct LeaseSuspension {
    why: Error,
    /// Time of the next attempt.
    retry_at: Timestamp,
}

impl Endpoint {
    /// Checks whether leases are available.
    ///
    /// # Errors
    /// The cause of the suspension, while it lasts.
    pub(crate) fn check_leases(&self, now: Timestamp) -> Result<(), Error> {
        let suspension = self.cluster_state.suspension.lock();
        let reason = suspension.as_ref().filter(|suspension| now < suspension.retry_at);
        reason.map_or(Ok(()), |suspension| Err(suspension.why.clone()))
    }

    /// Counts a failed lease request, and suspends leases for a while unless the cause is
    /// transient.
    pub(crate) fn suspend_leases(&self, why: &Error, now: Timestamp) {
        count(&self.counters.leases_failed);
        // Connection errors are reported by the watcher, and a busy server recovers by itself.
        if !why.is_refusal()
            && !matches!(why, Error::ForeignData | Error::Unable(_) | Error::EvictsLeases)
        {
            return;
        }
        let pause = if *why == Error::EvictsLeases { EVICTING_PAUSE } else { LEASE_PAUSE };
        let retry_at = now.plus(pause);
        let before = self
            .cluster_state
            .suspension
            .lock()
            .replace(LeaseSuspension { why: why.clone(), retry_at });
        if before.is_none() {
            let (address, why) = (self.target.address.clone(), why.to_string());
            self.notice_listener.notice(&Notice::LeasesUnavailable { address, why });
        }
    }

    /// Suspends leases if the server evicted keys since the last query. Called after a lease
    /// disappeared without a purge.
    pub(crate) async fn check_evictions(&self, leases: &str) {
        let asking = |link: Arc<Link>| async move { link.evicted(leases).await };
        // A server that does not answer is reported by the watcher.
        let Ok(evicted) = self.run(self.read_timeout, asking).await else { return };
        if evicted > 0 && self.cluster_state.evicted.swap(evicted, Ordering::AcqRel) != evicted {
            self.suspend_leases(&Error::EvictsLeases, self.clock.now());
        }
    }

    /// Sets or clears the cause why the bus is not received, and reports a new cause.
    pub(crate) fn set_bus_error(&self, error: Option<&Error>) {
        let is_reported = |error: &&Error| {
            error.is_refusal() || matches!(error, Error::ForeignData | Error::Unable(_))
        };
        let why = error.map(ToString::to_string);
        let before = std::mem::replace(&mut *self.cluster_state.bus_error.lock(), why.clone());
        if let Some(why) = why.filter(|_| error.filter(is_reported).is_some())
            && before.as_ref() != Some(&why)
        {
            self.notice_listener
                .notice(&Notice::BusUnavailable { address: self.target.address.clone(), why });
        }
    }

    /// Sets or clears the cause why changes by other programs are not received, and reports a new
    /// cause.
    pub(crate) fn set_tracking_error(&self, error: Option<&Error>) {
        let why = error.map(ToString::to_string);
        let before = std::mem::replace(&mut *self.cluster_state.tracking_error.lock(), why.clone());
        if let Some(why) = why.filter(|why| before.as_ref() != Some(why)) {
            self.notice_listener
                .notice(&Notice::TrackingUnavailable { address: self.target.address.clone(), why });
        }
    }

    /// Ends the suspension after a reply to a lease request.
    pub(crate) fn resume_leases(&self) {
        if self.cluster_state.suspension.lock().take().is_some() {
            self.notice_listener
                .notice(&Notice::LeasesAvailable { address: self.target.address.clone() });
        }
    }
}

impl ClusterState {
    pub(super) fn lease_error(&self) -> Option<String> {
        self.suspension.lock().as_ref().map(|suspension| suspension.why.to_string())
    }

    pub(super) fn bus_error(&self) -> Option<String> {
        self.bus_error.lock().clone()
    }

    pub(super) fn tracking_error(&self) -> Option<String> {
        self.tracking_error.lock().clone()
    }
}
