//! What is counted of other instances: leases, purges, and whether they are heard.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay_engine::{BusStatus, Engine, Event, LeaseCame};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{KindLabel, ResultLabel};

#[derive(Debug, Default)]
pub(super) struct ClusterMetrics {
    leases: Family<ResultLabel, Counter>,
    heard: Family<KindLabel, Counter>,
    untold: Family<KindLabel, Counter>,
    suspects: Family<ResultLabel, Counter>,
    bus: Family<ResultLabel, Counter>,
    bus_state: Gauge,
    bus_lag: Gauge<f64, AtomicU64>,
    waiting: Gauge,
    instances: Gauge,
}

impl ClusterMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let leases = "Flights that asked which instance loads, by what came of it";
        registry.register("lease", leases, self.leases.clone());
        let heard = "Purges of other instances that were heard and applied here";
        registry.register("invalidations_heard", heard, self.heard.clone());
        let untold = "Purges that other instances could not be told of at once";
        registry.register("invalidations_untold", untold, self.untold.clone());
        let suspects = "Entries looked at anew after purges may have been missed";
        registry.register("suspects", suspects, self.suspects.clone());
        let bus = "Times at which purges may have been missed, or others were lost or heard again";
        registry.register("bus_events", bus, self.bus.clone());
        let state = "Whether other instances are heard: 0 (or there are none), 1 heard but not \
                     told of all, 2 not heard";
        registry.register("bus_state", state, self.bus_state.clone());
        let lag =
            "How long ago it was last certain that no purge of others was missed; -1 if never";
        registry.register("bus_lag_seconds", lag, self.bus_lag.clone());
        let waiting = "Purges that other instances still have to be told of";
        registry.register("invalidations_waiting", waiting, self.waiting.clone());
        let instances = "Instances alive a moment ago, this one included";
        registry.register("instances", instances, self.instances.clone());
        self.begin();
    }

    /// From the start, so that an alarm on the first of them sees it rise from zero.
    fn begin(&self) {
        for came in LeaseCame::ALL {
            drop(self.leases.get_or_create(&ResultLabel { result: came.code() }));
        }
        for result in ["gap", "lost", "heard"] {
            drop(self.bus.get_or_create(&ResultLabel { result }));
        }
        for result in ["confirmed", "gone"] {
            drop(self.suspects.get_or_create(&ResultLabel { result }));
        }
        self.instances.set(1);
    }

    pub(super) fn observe(&self, event: Event<'_>) {
        let bus = |result| _ = self.bus.get_or_create(&ResultLabel { result }).inc();
        match event {
            Event::Lease { came, .. } => {
                self.leases.get_or_create(&ResultLabel { result: came.code() }).inc();
            }
            Event::Noticed(kind) => _ = self.heard.get_or_create(&KindLabel { kind }).inc(),
            Event::PublishFailed(kind) => {
                self.untold.get_or_create(&KindLabel { kind }).inc();
            }
            Event::BusGap => bus("gap"),
            Event::BusLost => bus("lost"),
            Event::BusHeard => bus("heard"),
            Event::SuspectChecked(_, stands) => {
                let result = if stands { "confirmed" } else { "gone" };
                self.suspects.get_or_create(&ResultLabel { result }).inc();
            }
            _ => {}
        }
    }

    pub(super) fn refresh(&self, engine: &Engine) {
        let Some(BusStatus { connected, unpublished }) = engine.bus_status() else { return };
        self.waiting.set(i64::try_from(unpublished).unwrap_or(i64::MAX));
        self.bus_state.set(match (connected, unpublished) {
            (false, _) => 2,
            (true, 0) => 0,
            (true, _) => 1,
        });
    }

    pub(super) fn sharing(&self, instances: usize, lag: Option<Duration>) {
        self.instances.set(i64::try_from(instances.max(1)).unwrap_or(i64::MAX));
        self.bus_lag.set(lag.map_or(-1.0, |lag| lag.as_secs_f64()));
    }
}
