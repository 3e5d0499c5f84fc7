//! Consumer of the records of responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use forebay_engine::Clock;

use crate::metrics::Metrics;
use crate::phase::{CurrentPhase, Phase};
use crate::record::{AccessEntry, AccessLog, ConnectionEnd, End, Record, Recorder};

/// Counts responses, and writes the access log, when they end.
pub(super) struct ResponseRecorder {
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// Phase of the process, which tells why a response was cut off.
    pub(super) phase: CurrentPhase,
    /// Set while there is an access log. A request without one reads only this flag.
    is_logging: AtomicBool,
    access_log: ArcSwapOption<Box<dyn AccessLog>>,
}

impl ResponseRecorder {
    pub(super) fn new(metrics: Arc<Metrics>, clock: Arc<dyn Clock>) -> Self {
        let (phase, is_logging) = (CurrentPhase::default(), AtomicBool::new(false));
        Self { metrics, clock, phase, is_logging, access_log: ArcSwapOption::empty() }
    }

    /// Writes an entry for each response that begins from now on.
    pub(super) fn log_access(&self, log: Option<Box<dyn AccessLog>>) {
        self.is_logging.store(log.is_some(), Ordering::Relaxed);
        self.access_log.store(log.map(Arc::new));
    }

    /// Returns `true` if there is an access log.
    pub(super) fn is_logging(&self) -> bool {
        self.is_logging.load(Ordering::Relaxed)
    }

    /// Records responses that ended together.
    pub(super) fn record_all(&self, records: &[Record], by: ConnectionEnd) {
        let recorder: &dyn Recorder = self;
        let (now, end) = (self.now(), recorder.end_by(by));
        records.iter().for_each(|record| self.record(record, now, end));
    }
}

impl Recorder for ResponseRecorder {
    fn now(&self) -> Duration {
        self.clock.exact()
    }

    fn record(&self, record: &Record, now: Duration, end: End) {
        let total = now.saturating_sub(record.begun);
        self.metrics.count_response(record, total, end);
        if let Some(request) = &record.access
            && let Some(log) = &*self.access_log.load()
        {
            let site = self.metrics.site_of_slot(record.labels.site);
            log.write(&AccessEntry::of(record, request, site, total, end));
        }
    }

    fn is_stopping(&self) -> bool {
        self.phase.get() == Phase::Draining
    }
}
