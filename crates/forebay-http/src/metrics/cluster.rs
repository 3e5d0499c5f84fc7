//! Metrics of the cluster and of purges: leases, purges by other instances, the invalidation bus, and
//! recorded purges.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay_core::Recorded;
use forebay_engine::{BusStatus, Engine, Event, LeaseEvent};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{KindLabel, PURGES, ResultLabel};

#[derive(Debug, Default)]
pub(super) struct ClusterMetrics {
    leases: Family<ResultLabel, Counter>,
    received: Family<KindLabel, Counter>,
    unpublished: Family<KindLabel, Counter>,
    revalidations: Family<ResultLabel, Counter>,
    bus: Family<ResultLabel, Counter>,
    bus_state: Gauge,
    bus_lag: Gauge<f64, AtomicU64>,
    pending: Gauge,
    instances: Gauge,
    standing: Family<KindLabel, Gauge>,
    inconsistent: Counter,
}

impl ClusterMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let leases = "Leases (rights of one instance to fetch a key): requests (granted, filled, \
                      elsewhere, failed), ends of waits (woken, released, freed, overdue) and \
                      losses (withdrawn), by result";
        registry.register("lease", leases, self.leases.clone());
        let received =
            "Purges by other instances or programs that were received and applied, by kind";
        registry.register("invalidations_received", received, self.received.clone());
        let unpublished = "Purges whose first publication to the other instances failed, and which \
                           are retried, by kind";
        registry.register("invalidations_unpublished", unpublished, self.unpublished.clone());
        let revalidations = "Entries in memory that lower tiers were asked about because a purge \
                             may have been missed, by result: a valid entry is there (confirmed) \
                             or not (gone)";
        registry.register("revalidations_after_gap", revalidations, self.revalidations.clone());
        let bus = "Gaps (gap), disconnections (lost) and connections (heard) of the invalidation bus, \
                   which carries purges between instances";
        registry.register("bus_events", bus, self.bus.clone());
        let state = "State of the invalidation bus: 0 connected or not used, 1 connected with purges \
                     to publish, 2 disconnected";
        registry.register("bus_state", state, self.bus_state.clone());
        let lag = "Seconds since this instance last confirmed that it had missed no purge of another \
                   instance, or since its start; 0 if no purges are shared";
        registry.register("bus_lag_seconds", lag, self.bus_lag.clone());
        let pending = "Purges that wait to be published to other instances";
        registry.register("invalidations_pending", pending, self.pending.clone());
        let instances = "Instances that share the tier and are alive, including this one";
        registry.register("instances", instances, self.instances.clone());
        let standing =
            "Recorded purges that older entries are compared with at their next use, by kind";
        registry.register("purges_standing", standing, self.standing.clone());
        let inconsistent = "Purged entries that the self-check found valid 1 s or 60 s after their \
                            purge; must stay 0";
        registry.register("inconsistent", inconsistent, self.inconsistent.clone());
        self.begin();
    }

    /// Creates every label value at zero, so that an alert sees the first increase.
    fn begin(&self) {
        for came in LeaseEvent::ALL {
            drop(self.leases.get_or_create(&ResultLabel { result: came.code() }));
        }
        for result in ["gap", "lost", "heard"] {
            drop(self.bus.get_or_create(&ResultLabel { result }));
        }
        for result in ["confirmed", "gone"] {
            drop(self.revalidations.get_or_create(&ResultLabel { result }));
        }
        for kind in PURGES {
            drop(self.received.get_or_create(&KindLabel { kind }));
            drop(self.unpublished.get_or_create(&KindLabel { kind }));
        }
        for kind in ["site", "tag", "prefix"] {
            drop(self.standing.get_or_create(&KindLabel { kind }));
        }
        self.instances.set(1);
    }

    pub(super) fn observe(&self, event: Event<'_>) {
        let bus = |result| _ = self.bus.get_or_create(&ResultLabel { result }).inc();
        match event {
            Event::Lease { event: came, .. } => {
                self.leases.get_or_create(&ResultLabel { result: came.code() }).inc();
            }
            Event::PurgeReceived(kind) => {
                _ = self.received.get_or_create(&KindLabel { kind }).inc();
            }
            Event::PublishFailed(kind) => {
                self.unpublished.get_or_create(&KindLabel { kind }).inc();
            }
            Event::PurgedEntryFound(_) => _ = self.inconsistent.inc(),
            Event::BusGap => bus("gap"),
            Event::BusDisconnected => bus("lost"),
            Event::BusConnected => bus("heard"),
            Event::UnverifiedChecked(_, exists) => {
                let result = if exists { "confirmed" } else { "gone" };
                self.revalidations.get_or_create(&ResultLabel { result }).inc();
            }
            _ => {}
        }
    }

    pub(super) fn refresh(&self, engine: &Engine) {
        let Recorded { sites, tags, prefixes } = engine.purges_on_record();
        for (kind, count) in [("site", sites), ("tag", tags), ("prefix", prefixes)] {
            let gauge = self.standing.get_or_create(&KindLabel { kind }).clone();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let Some(BusStatus { connected, unpublished }) = engine.bus_status() else { return };
        self.pending.set(i64::try_from(unpublished).unwrap_or(i64::MAX));
        self.bus_state.set(match (connected, unpublished) {
            (false, _) => 2,
            (true, 0) => 0,
            (true, _) => 1,
        });
    }

    pub(super) fn sharing(&self, instances: usize, lag: Duration) {
        self.instances.set(i64::try_from(instances.max(1)).unwrap_or(i64::MAX));
        self.bus_lag.set(lag.as_secs_f64());
    }
}
