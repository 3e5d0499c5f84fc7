//! Consumer of the records of responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use forebay_engine::Clock;

use crate::metrics::Metrics;
use crate::phase::{CurrentPhase, Phase};
use crate::record::{
    AccessEntry, AccessLog, ConnectionEnd, End, Feed, IS_RECORDED, Record, Recorder, RequestTrace,
    Tracer,
};

/// Need of the access log or the feed: the fields of every request.
const FIELDS: u8 = 1;

/// Need of the tracer: the fields of traced requests.
const TRACES: u8 = 1 << 1;

/// Counts responses, and writes the access log, when they end.
pub(super) struct ResponseRecorder {
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// Phase of the process, which tells why a response was cut off.
    pub(super) phase: CurrentPhase,
    /// [`FIELDS`] and [`TRACES`]. A request reads only this number while there is no need.
    needs: AtomicU8,
    feed: Arc<Feed>,
    access_log: ArcSwapOption<Box<dyn AccessLog>>,
    tracer: ArcSwapOption<Tracer>,
}

impl ResponseRecorder {
    pub(super) fn new(metrics: Arc<Metrics>, clock: Arc<dyn Clock>) -> Self {
        let (phase, needs) = (CurrentPhase::default(), AtomicU8::new(0));
        let (feed, access_log) = (Arc::default(), ArcSwapOption::empty());
        let tracer = ArcSwapOption::empty();
        Self { metrics, clock, phase, needs, feed, access_log, tracer }
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
        let fields = if needs_fields { FIELDS } else { 0 };
        let traces = if self.tracer.load().is_some() { TRACES } else { 0 };
        self.needs.store(fields | traces, Ordering::Relaxed);
    }

    /// Traces the requests that begin from now on.
    pub(super) fn trace(&self, tracer: Option<Arc<Tracer>>) {
        self.tracer.store(tracer);
        self.update_needs();
    }

    /// Begins the trace of a request with this `traceparent`, if requests are traced.
    pub(super) fn begin_trace(&self, traceparent: Option<&[u8]>) -> Option<Arc<RequestTrace>> {
        let tracer = self.tracer.load();
        tracer.as_ref().map(|tracer| tracer.begin(traceparent, self.now()))
    }

    /// Begins the trace of a hit with this `traceparent`, if it is traced.
    pub(super) fn begin_hit_trace<'a>(
        &self,
        traceparent: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Option<Arc<RequestTrace>> {
        if !self.is_traced() {
            return None;
        }
        let tracer = self.tracer.load();
        tracer.as_ref().and_then(|tracer| tracer.begin_hit(traceparent, self.now()))
    }

    /// Returns the feed.
    pub(super) fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// Returns `true` if the access log, the feed or the tracer may need the fields of a request.
    pub(super) fn may_need_fields(&self) -> bool {
        self.needs.load(Ordering::Relaxed) != 0
    }

    /// Returns `true` if requests are traced.
    pub(super) fn is_traced(&self) -> bool {
        self.needs.load(Ordering::Relaxed) & TRACES != 0
    }

    /// Returns `true` if the access log or the feed needs the fields of every request.
    pub(super) fn needs_fields(&self) -> bool {
        self.needs.load(Ordering::Relaxed) & FIELDS != 0
    }

    /// Records responses that ended together.
    pub(super) fn record_all(&self, records: &mut [Record], by: ConnectionEnd) {
        let recorder: &dyn Recorder = self;
        let (now, end) = (self.now(), recorder.end_by(by));
        records.iter_mut().for_each(|record| self.record(record, now, end));
    }
}

impl Recorder for ResponseRecorder {
    fn now(&self) -> Duration {
        if IS_RECORDED { self.clock.exact() } else { Duration::ZERO }
    }

    fn record(&self, record: &mut Record, now: Duration, end: End) {
        let total = now.saturating_sub(record.begun);
        self.metrics.count_response(record, total, end);
        let Some(request) = record.access.take() else { return };
        let site = self.metrics.site_of_slot(record.labels.site);
        let entry = AccessEntry::of(record, &request, site, total, end);
        if let Some(log) = &*self.access_log.load() {
            log.write(&entry);
        }
        if let Some(trace) = &request.trace {
            trace.end(&entry, record.begun);
        }
        if self.feed.is_open() {
            self.feed.push(record, request, site, total, end);
        }
    }

    fn is_stopping(&self) -> bool {
        self.phase.get() == Phase::Draining
    }
}
