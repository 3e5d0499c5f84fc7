//! Connection of an engine with other instances: leases, the bus, and unpublished purges.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Timestamp, WhenBlind};
use tokio::sync::watch;

use super::unpublished::Unpublished;
use crate::runtime::sync::timeout;
use crate::tiers::bus::Bus;
use crate::tiers::lease::Leases;

/// Maximum wait for the first report of the bus, before a restarted instance uses entries of its
/// lower tiers. A connected bus reports within a few milliseconds.
const FIRST_REPORT_MAX: Duration = Duration::from_millis(250);

/// Default of [`Cluster::wait_max`].
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Connection of an engine to the engines of other instances that share a tier with it. A lease
/// gives one instance the right to load a key and fill the tier; the bus carries purges. An engine
/// without a shared tier uses no leases.
#[derive(Clone)]
pub struct Cluster {
    /// Source of leases: the right of one instance at a time to load a key.
    pub leases: Arc<dyn Leases>,
    /// Bus that carries purges between instances.
    pub bus: Arc<dyn Bus>,
    /// Says how entries are used that another instance may have purged while the bus was
    /// disconnected.
    pub when_blind: WhenBlind,
    /// Maximum time to wait for another instance that loads a key. After that, a call gets a stale
    /// entry if one may be served; otherwise this instance loads the key itself, and stores the
    /// answer in no tier. [`LoadOptions::lease_wait_max`](crate::LoadOptions::lease_wait_max)
    /// replaces the limit for the start of that load.
    pub wait_max: Duration,
}

impl Cluster {
    /// Creates a connection with the default settings: entries that another instance may have
    /// purged are served for at most 30 s, and the wait for another instance's load is at most 10
    /// s.
    #[must_use]
    pub fn new(leases: Arc<dyn Leases>, bus: Arc<dyn Bus>) -> Self {
        Self { leases, bus, when_blind: WhenBlind::default(), wait_max: WAIT_MAX }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({:?}, {:?})", self.when_blind, self.wait_max)
    }
}

/// State of the bus, which carries invalidations (purges) between instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusStatus {
    /// `true` while this instance receives all invalidations of the others.
    pub connected: bool,
    /// Number of invalidations of this instance that are not published yet.
    pub unpublished: usize,
}

/// [`Cluster`] of an engine, with its state.
pub(crate) struct Joined {
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) wait_max: Duration,
    pub(crate) unpublished: Unpublished,
    /// `true` until the bus, which continues from a bookmark of an earlier process, has reported.
    awaits_report: watch::Sender<bool>,
    started: Timestamp,
}

impl Joined {
    /// Creates the state of a connection. With `has_bookmark`, the bus can report which purges came
    /// since an earlier process.
    pub(crate) fn new(cluster: Cluster, started: Timestamp, has_bookmark: bool) -> Self {
        let Cluster { leases, bus, when_blind: _, wait_max } = cluster;
        let awaits_report = watch::Sender::new(has_bookmark);
        Self { leases, bus, wait_max, unpublished: Unpublished::default(), awaits_report, started }
    }

    /// Waits until the bus has reported the purges since an earlier process, for
    /// [`FIRST_REPORT_MAX`] at most. After that, entries count as while the bus is disconnected.
    pub(crate) async fn first_report(&self, now: Timestamp) {
        if !*self.awaits_report.borrow() {
            return;
        }
        let left = FIRST_REPORT_MAX.saturating_sub(now.since(self.started));
        let mut reports = self.awaits_report.subscribe();
        // The sender lives as long as the engine.
        let _ = timeout(left, reports.wait_for(|awaits| !awaits)).await;
        self.awaits_report.send_replace(false);
    }

    /// Ends the wait for the first report.
    pub(crate) fn has_reported(&self) {
        self.awaits_report.send_if_modified(std::mem::take);
    }
}
