//! Consumer of the records of responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use forebay_engine::Clock;

use crate::metrics::Metrics;
use crate::phase::{CurrentPhase, Phase};
use crate::record::{AccessEntry, AccessLog, ConnectionEnd, End, Feed, Record, Recorder};

/// Counts responses, and writes the access log, when they end.
pub(super) struct ResponseRecorder {
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// Phase of the process, which tells why a response was cut off.
    pub(super) phase: CurrentPhase,
    /// Set while the access log or the feed needs the fields of requests. A request without them
    /// reads only this flag.
    needs_fields: AtomicBool,
    feed: Arc<Feed>,
    access_log: ArcSwapOption<Box<dyn AccessLog>>,
}

impl ResponseRecorder {
    pub(super) fn new(metrics: Arc<Metrics>, clock: Arc<dyn Clock>) -> Self {
        let (phase, needs_fields) = (CurrentPhase::default(), AtomicBool::new(false));
        let (feed, access_log) = (Arc::default(), ArcSwapOption::empty());
        Self { metrics, clock, phase, needs_fields, feed, access_log }
    }

    /// Writes an entry for each response that begins from now on.
    pub(super) fn log_access(&self, log: Option<Box<dyn AccessLog>>) {
        self.access_log.store(log.map(Arc::new));
        self.update_needs();
    }

    /// Opens or closes the feed, for the responses that begin from now on.
    pub(super) fn open_feed(&self, is_open: bool) {
        self.feed.set_open(is_open);
        self.update_needs();
    }

    fn update_needs(&self) {
        let needs_fields = self.access_log.load().is_some() || self.feed.is_open();
        self.needs_fields.store(needs_fields, Ordering::Relaxed);
    }

    /// Returns the feed.
    pub(super) fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// Returns `true` if the access log or the feed needs the fields of requests.
    pub(super) fn needs_fields(&self) -> bool {
        self.needs_fields.load(Ordering::Relaxed)
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
        let Some(request) = &record.access else { return };
        let site = self.metrics.site_of_slot(record.labels.site);
        if let Some(log) = &*self.access_log.load() {
            log.write(&AccessEntry::of(record, request, site, total, end));
        }
        if self.feed.is_open() {
            self.feed.push(record, request, site, total, end);
        }
    }

    fn is_stopping(&self) -> bool {
        self.phase.get() == Phase::Draining
    }
}
