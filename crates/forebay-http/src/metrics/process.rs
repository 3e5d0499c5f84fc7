//! Metrics of the process: its phase, and what it gave up.

use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::raise;
use crate::phase::Phase;

/// Work that is cut when the time limit of a drain is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainCut {
    /// Client connection, also one that carries a tunnel.
    Connection,
    /// Tunnel.
    Tunnel,
    /// Write to a lower tier.
    Write,
}

impl DrainCut {
    const ALL: [Self; 3] = [Self::Connection, Self::Tunnel, Self::Write];

    const fn label(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Tunnel => "tunnel",
            Self::Write => "write",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhatLabel {
    what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LogLabel {
    log: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SpanLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BecauseLabel {
    because: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct ProcessMetrics {
    degraded: Family<BecauseLabel, Gauge>,
    state: Gauge,
    reload_successful: Gauge,
    reload_success: Gauge<f64, AtomicU64>,
    drain_cut: Family<WhatLabel, Counter>,
    log_dropped: Family<LogLabel, Counter<u64>>,
    spans: Family<SpanLabel, Counter<u64>>,
}

impl ProcessMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "state",
            "Phase of the process: 0 starting, 1 ready, 2 draining",
            self.state.clone(),
        );
        registry.register(
            "degraded",
            "1 for each reason why the cache is degraded, otherwise 0",
            self.degraded.clone(),
        );
        registry.register(
            "drain_cut",
            "Connections, tunnels and tier writes cut at the time limit of a drain",
            self.drain_cut.clone(),
        );
        registry.register(
            "log_dropped",
            "Log lines dropped because the queue of the log was full or writing failed",
            self.log_dropped.clone(),
        );
        registry.register(
            "spans",
            "Spans of traces, by result: accepted by the collector, dropped because the queue was full, \
             or not accepted",
            self.spans.clone(),
        );
        registry.register(
            "config_last_reload_successful",
            "1 if the last reload of the configuration was applied, 0 if it was rejected",
            self.reload_successful.clone(),
        );
        registry.register(
            "config_last_reload_success_timestamp_seconds",
            "Time at which the configuration was last applied, in seconds since 1970",
            self.reload_success.clone(),
        );
        // The configuration of the start is applied.
        self.set_reload(true, SystemTime::now());
        for cut in DrainCut::ALL {
            let _ = self.drain_cut_of(cut);
        }
    }

    pub(super) fn set_reload(&self, is_applied: bool, now: SystemTime) {
        self.reload_successful.set(i64::from(is_applied));
        if is_applied {
            let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            self.reload_success.set(now.as_secs_f64());
        }
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.state.set(i64::from(phase as u8));
    }

    pub(super) fn set_degraded(&self, because: &'static str, is_degraded: bool) {
        self.degraded.get_or_create(&BecauseLabel { because }).set(is_degraded.into());
    }

    pub(super) fn drain_cut_of(&self, cut: DrainCut) -> Counter {
        self.drain_cut.get_or_create(&WhatLabel { what: cut.label() }).clone()
    }

    pub(super) fn set_spans(&self, totals: [(&'static str, u64); 3]) {
        for (result, total) in totals {
            raise(&self.spans.get_or_create(&SpanLabel { result }), total);
        }
    }

    pub(super) fn set_log_dropped(&self, log: &'static str, total: u64) {
        raise(&self.log_dropped.get_or_create(&LogLabel { log }), total);
    }
}
