//! What keeps an endpoint from being shared by loads, or from being heard, and who is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Timestamp;
use parking_lot::Mutex;

use super::Endpoint;
use crate::counts::{Notice, count};
use crate::error::Error;
use crate::link::Link;

/// How long loads are not shared through a server that did not do what it takes.
const LEASE_PAUSE: Duration = Duration::from_secs(1);

/// The same for one that drops leases for want of room: that does not pass in a second.
const EVICTING_PAUSE: Duration = Duration::from_secs(10);

/// What was found out last.
#[derive(Default)]
pub(super) struct ClusterState {
    suspension: Mutex<Option<LeaseSuspension>>,
    /// How many names it has dropped for want of room, when that was asked last.
    evicted: AtomicU64,
    /// Why the bus is not heard.
    bus_error: Mutex<Option<String>>,
    /// Why it is not heard what other programs write.
    tracking_error: Mutex<Option<String>>,
}

/// Why loads are not shared.
struct LeaseSuspension {
    why: Error,
    /// When it is tried retry_at.
    retry_at: Timestamp,
}

impl Endpoint {
    /// Whether loads are shared through it.
    pub(crate) fn check_leases(&self, now: Timestamp) -> Result<(), Error> {
        let suspension = self.cluster_state.suspension.lock();
        let reason = suspension.as_ref().filter(|suspension| now < suspension.retry_at);
        reason.map_or(Ok(()), |suspension| Err(suspension.why.clone()))
    }

    /// It does not do what it takes. For a while it is not asked to.
    pub(crate) fn suspend_leases(&self, why: &Error, now: Timestamp) {
        count(&self.counters.leases_failed);
        // Of a connection others tell; one that is busy is not of another mind.
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

    /// A lease is gone that nobody has withdrawn: perhaps for want of room.
    pub(crate) async fn check_evictions(&self, leases: &str) {
        let asking = |link: Arc<Link>| async move { link.evicted(leases).await };
        // Whoever does not tell has other troubles, and names them.
        let Ok(evicted) = self.run(self.read_timeout, asking).await else { return };
        if evicted > 0 && self.cluster_state.evicted.swap(evicted, Ordering::AcqRel) != evicted {
            self.suspend_leases(&Error::EvictsLeases, self.clock.now());
        }
    }

    /// Why the bus is not heard there, or that it is.
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

    /// Why what other programs write is not heard there, or that it is.
    pub(crate) fn set_tracking_error(&self, error: Option<&Error>) {
        let why = error.map(ToString::to_string);
        let before = std::mem::replace(&mut *self.cluster_state.tracking_error.lock(), why.clone());
        if let Some(why) = why.filter(|why| before.as_ref() != Some(why)) {
            self.notice_listener
                .notice(&Notice::TrackingUnavailable { address: self.target.address.clone(), why });
        }
    }

    /// It has just granted, or refused, a lease.
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
