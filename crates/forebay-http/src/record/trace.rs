//! Spans of requests and of loads, for distributed tracing.
//!
//! A request has a trace from its begin: a hit only if it is sampled, because its ids would be made for
//! nothing otherwise. Its span is made from its record, when it ends. A load has a span of its own,
//! which becomes known to requests that wait for it by the key. A span that nothing needs yet is kept
//! with the key, because a request that waited may still refer to it. Instances that wait for the
//! lease of a load get its ids as the mark of the load.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use forebay_engine::TierCall;
use forebay_semantics::trace_context::TraceContext;
use http::Method;
use parking_lot::Mutex;

use super::AccessEntry;

/// Number of keys whose last load is known. Of two keys in one place, the later load is known.
const LOADS_MAX: usize = 4_096;

/// Maximum number of lookups in lower tiers that a span has; a search of two tiers has six.
const TIER_EVENTS_MAX: usize = 16;

/// Selection of the requests that are traced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceSettings {
    /// Share of requests that are traced, from 0 to 1.
    pub sample: f64,
    /// Time to the head from which a response is traced in any case, like every error.
    pub slow: Duration,
    /// True if traces of clients are continued, with their decision whether they are recorded.
    pub trusts_incoming: bool,
}

/// Consumer of spans. Neither method may wait.
pub trait SpanExporter: Send + Sync {
    /// Exports the span of a request.
    fn request(&self, span: &RequestSpan<'_>);

    /// Exports the span of a load.
    fn load(&self, span: &LoadSpan);
}

/// Span of a request, from its head to the end of its response.
#[derive(Clone, Copy, Debug)]
pub struct RequestSpan<'a> {
    /// Ids of the span.
    pub context: TraceContext,
    /// Span of the client.
    pub parent: Option<u64>,
    /// Span of the load for which the request waited, if another request started it.
    pub link: Option<TraceContext>,
    /// Time of its begin.
    pub begun: SystemTime,
    /// Lookups in lower tiers for this request, in their order.
    pub tiers: &'a [TierEvent],
    /// Response of the request.
    pub entry: &'a AccessEntry<'a>,
}

/// Lookup in a lower tier, as an event of a span.
#[derive(Clone, Copy, Debug)]
pub struct TierEvent {
    /// Time of its end.
    pub at: SystemTime,
    /// Tier, operation, result and duration.
    pub call: TierCall,
}

/// Span of a load, from its begin to the head of the response, or of a request that is forwarded.
#[derive(Clone, Debug)]
pub struct LoadSpan {
    /// Ids of the span.
    pub context: TraceContext,
    /// Span of the request that started the load, unless the load is a refresh in the background.
    pub parent: Option<u64>,
    /// Span of the request that caused a refresh.
    pub link: Option<TraceContext>,
    /// Lookups in lower tiers for a refresh, which its request did not wait for.
    pub tiers: Vec<TierEvent>,
    /// Request to the origin, and its result.
    pub exchange: LoadExchange,
}

/// Request of a load to the origin, and its result.
#[derive(Clone, Debug)]
pub struct LoadExchange {
    /// Time of its begin.
    pub begun: SystemTime,
    /// Duration.
    pub took: Duration,
    /// Id of the site.
    pub site: Box<str>,
    /// Method of the request to the origin.
    pub method: Method,
    /// Authority of the request.
    pub authority: Box<str>,
    /// Target of the request.
    pub target: Box<str>,
    /// Status code of the response.
    pub status: Option<u16>,
    /// Code of the failure.
    pub error: Option<&'static str>,
}

/// Place of the last load of a key.
type Place = Mutex<Option<KnownLoad>>;

/// Load of a key, by the hash of the key.
struct KnownLoad {
    key: u64,
    load: Arc<LoadTrace>,
}

/// Maker of spans.
pub struct Tracer {
    settings: TraceSettings,
    exporter: Box<dyn SpanExporter>,
    loads: Box<[Place]>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Creates a tracer that gives its spans to `exporter`.
    #[must_use]
    pub fn new(settings: TraceSettings, exporter: Box<dyn SpanExporter>) -> Arc<Self> {
        let loads = (0..LOADS_MAX).map(|_| Mutex::new(None)).collect();
        Arc::new(Self { settings, exporter, loads })
    }

    /// Begins the trace of a request with this `traceparent`. `now` is the time on the clock of the
    /// engine.
    pub(crate) fn begin(
        self: &Arc<Self>,
        traceparent: Option<&[u8]>,
        now: Duration,
    ) -> Arc<RequestTrace> {
        let incoming = self.incoming(traceparent);
        self.trace(incoming, self.is_sampled(incoming), now)
    }

    /// Begins the trace of a hit with this `traceparent`, if it is sampled.
    pub(crate) fn begin_hit<'a>(
        self: &Arc<Self>,
        traceparent: impl FnOnce() -> Option<&'a [u8]>,
        now: Duration,
    ) -> Option<Arc<RequestTrace>> {
        let incoming = if self.settings.trusts_incoming { traceparent() } else { None };
        let incoming = self.incoming(incoming);
        self.is_sampled(incoming).then(|| self.trace(incoming, true, now))
    }

    fn incoming(&self, traceparent: Option<&[u8]>) -> Option<TraceContext> {
        traceparent.filter(|_| self.settings.trusts_incoming).and_then(TraceContext::parse)
    }

    fn is_sampled(&self, incoming: Option<TraceContext>) -> bool {
        let is_drawn = || fastrand::f64() < self.settings.sample;
        incoming.map_or_else(is_drawn, |incoming| incoming.is_sampled)
    }

    fn trace(
        self: &Arc<Self>,
        incoming: Option<TraceContext>,
        is_sampled: bool,
        now: Duration,
    ) -> Arc<RequestTrace> {
        let trace = incoming.map_or_else(new_trace, |incoming| incoming.trace);
        let context = TraceContext { trace, span: new_span(), is_sampled };
        let parent = incoming.map(|incoming| incoming.span);
        let epoch = Epoch { wall: SystemTime::now(), exact: now };
        let load = Arc::new(LoadTrace::of(self, context, parent.is_some(), epoch));
        let followed = OnceLock::new();
        Arc::new(RequestTrace { tracer: self.clone(), context, parent, load, followed })
    }

    fn place(&self, key: u64) -> &Place {
        &self.loads[usize::try_from(key % LOADS_MAX as u64).unwrap_or_default()]
    }

    /// Returns the last load of a key, given the hash of the key.
    fn load_of(&self, key: u64) -> Option<Arc<LoadTrace>> {
        let place = self.place(key).lock();
        place.as_ref().filter(|known| known.key == key).map(|known| known.load.clone())
    }
}

/// Trace of one request.
pub(crate) struct RequestTrace {
    tracer: Arc<Tracer>,
    context: TraceContext,
    /// Span of the client.
    parent: Option<u64>,
    /// Load that the request starts, if it does.
    load: Arc<LoadTrace>,
    /// Load of another request, which answered this one.
    followed: OnceLock<Arc<LoadTrace>>,
}

impl fmt::Debug for RequestTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestTrace").field(&self.context).finish()
    }
}

impl RequestTrace {
    /// Returns the id of the trace, if it is recorded.
    pub(crate) fn recorded_id(&self) -> Option<u128> {
        self.context.is_sampled.then_some(self.context.trace)
    }

    /// Returns the load that the request may start.
    pub(crate) fn load(&self) -> &Arc<LoadTrace> {
        &self.load
    }

    /// Refers to the last load of a key, unless the request started a load itself. `key` is the hash
    /// of the key.
    pub(crate) fn follow(&self, key: u64) {
        if self.load.context().is_none()
            && let Some(load) = self.tracer.load_of(key)
        {
            let _ = self.followed.set(load);
        }
    }

    /// Exports the span of the request if it is sampled, failed or slow. `begun` is its begin on the
    /// clock of the engine.
    pub(crate) fn end(&self, entry: &AccessEntry<'_>, begun: Duration) {
        let is_failed = entry.status >= 500;
        if !(self.context.is_sampled || is_failed || entry.head >= self.tracer.settings.slow) {
            return;
        }
        self.load.want();
        let followed = self.followed.get().or_else(|| self.load.remote.get());
        followed.into_iter().for_each(|load| load.want());
        let tiers = self.load.tiers.lock();
        self.tracer.exporter.request(&RequestSpan {
            context: self.context,
            parent: self.parent,
            link: followed.and_then(|load| load.context()),
            begun: self.load.epoch.at(begun),
            tiers: &tiers,
            entry,
        });
    }
}

/// One moment on both clocks. All spans of a request are placed by the clock of the engine, so that
/// their order is right even if the wall clock is set meanwhile.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    wall: SystemTime,
    exact: Duration,
}

impl Epoch {
    /// Returns the wall time of a moment on the clock of the engine.
    fn at(self, exact: Duration) -> SystemTime {
        let moved = match exact.checked_sub(self.exact) {
            Some(later) => self.wall.checked_add(later),
            None => self.wall.checked_sub(self.exact - exact),
        };
        moved.unwrap_or(self.wall)
    }
}

/// Trace of a load that a request may start.
pub(crate) struct LoadTrace {
    tracer: Arc<Tracer>,
    epoch: Epoch,
    /// Span of the request.
    cause: TraceContext,
    /// True if the trace began at the client.
    is_continued: bool,
    /// Ids that instances got which wait for the lease of the load.
    marked: OnceLock<BegunLoad>,
    /// Ids of the span, once the load has begun.
    begun: OnceLock<BegunLoad>,
    /// Load of another instance, for which this one waited.
    remote: OnceLock<Arc<Self>>,
    is_wanted: AtomicBool,
    /// Lookups in lower tiers, up to [`TIER_EVENTS_MAX`].
    tiers: Mutex<Vec<TierEvent>>,
    /// Span of a load that has ended, while nothing needs it.
    ended: Mutex<Option<Box<LoadSpan>>>,
}

/// Ids of a load that has begun.
#[derive(Clone, Copy, Debug)]
struct BegunLoad {
    context: TraceContext,
    is_refresh: bool,
}

impl fmt::Debug for LoadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadTrace").field(&self.begun).finish()
    }
}

impl LoadTrace {
    fn of(tracer: &Arc<Tracer>, cause: TraceContext, is_continued: bool, epoch: Epoch) -> Self {
        Self {
            tracer: tracer.clone(),
            epoch,
            cause,
            is_continued,
            marked: OnceLock::new(),
            begun: OnceLock::new(),
            remote: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
            tiers: Mutex::default(),
            ended: Mutex::new(None),
        }
    }

    /// Returns the wall time of a moment on the clock of the engine.
    pub(crate) fn wall_time(&self, exact: Duration) -> SystemTime {
        self.epoch.at(exact)
    }

    /// Adds a lookup in a lower tier that ended at `exact` on the clock of the engine.
    pub(crate) fn add_tier_call(&self, call: TierCall, exact: Duration) {
        let mut tiers = self.tiers.lock();
        if tiers.len() < TIER_EVENTS_MAX {
            tiers.push(TierEvent { at: self.epoch.at(exact), call });
        }
    }

    /// Returns the ids of the load for other instances, unless it may not be exported.
    pub(crate) fn mark(&self, is_refresh: bool) -> Option<TraceContext> {
        let context = self.marked.get_or_init(|| self.new_load(is_refresh)).context;
        context.is_sampled.then_some(context)
    }

    /// Refers to a load of another instance for which this one waits, and lets further requests that
    /// wait refer to it. `key` is the hash of its key.
    pub(crate) fn wait_for(&self, key: u64, context: TraceContext) {
        if !context.is_sampled {
            return;
        }
        let load = Arc::new(Self::of(&self.tracer, context, false, self.epoch));
        let _ = load.begun.set(BegunLoad { context, is_refresh: false });
        *self.tracer.place(key).lock() = Some(KnownLoad { key, load: load.clone() });
        let _ = self.remote.set(load);
    }

    fn new_load(&self, is_refresh: bool) -> BegunLoad {
        let trace = if is_refresh { new_trace() } else { self.cause.trace };
        let context = TraceContext { trace, span: new_span(), ..self.cause };
        BegunLoad { context, is_refresh }
    }

    /// Returns the ids of the span, once the load has begun.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.begun.get().map(|begun| begun.context)
    }

    /// Returns true if the load belongs to the trace of the client.
    pub(crate) fn is_of_client(&self) -> bool {
        self.is_continued && self.begun.get().is_some_and(|begun| !begun.is_refresh)
    }

    /// Begins the load. `key` is the hash of its key, if requests may wait for it. A refresh in the
    /// background has a trace of its own.
    pub(crate) fn begin(self: &Arc<Self>, key: Option<u64>, is_refresh: bool) {
        let marked = self.marked.get().filter(|marked| marked.is_refresh == is_refresh);
        // A second load of the request has the span of the first one.
        let _ = self.begun.set(marked.copied().unwrap_or_else(|| self.new_load(is_refresh)));
        if let Some(key) = key {
            *self.tracer.place(key).lock() = Some(KnownLoad { key, load: self.clone() });
        }
    }

    /// Ends the load: its span is exported now, or when it is wanted.
    pub(crate) fn end(&self, exchange: LoadExchange) {
        let Some(BegunLoad { context, is_refresh }) = self.begun.get().copied() else { return };
        let parent = (!is_refresh).then_some(self.cause.span);
        let link = is_refresh.then_some(self.cause);
        let tiers = if is_refresh { std::mem::take(&mut *self.tiers.lock()) } else { Vec::new() };
        let span = LoadSpan { context, parent, link, tiers, exchange };
        let mut ended = self.ended.lock();
        // Read under the lock, so that one of both sides exports the span.
        if self.is_wanted.load(Ordering::Relaxed) {
            drop(ended);
            self.tracer.exporter.load(&span);
        } else {
            *ended = Some(Box::new(span));
        }
    }

    /// Lets the span be exported.
    fn want(&self) {
        let span = {
            let mut ended = self.ended.lock();
            self.is_wanted.store(true, Ordering::Relaxed);
            ended.take()
        };
        span.into_iter().for_each(|span| self.tracer.exporter.load(&span));
    }
}

fn new_trace() -> u128 {
    fastrand::u128(1..)
}

fn new_span() -> u64 {
    fastrand::u64(1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids and causes of exported loads.
    #[derive(Clone, Default)]
    struct Exported(Arc<Mutex<Vec<LoadSpan>>>);

    impl SpanExporter for Exported {
        fn request(&self, _: &RequestSpan<'_>) {}

        fn load(&self, span: &LoadSpan) {
            self.0.lock().push(span.clone());
        }
    }

    const INCOMING: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    const NOW: Duration = Duration::from_secs(9);

    fn tracer(sample: f64, trusts_incoming: bool) -> (Arc<Tracer>, Exported) {
        let exported = Exported::default();
        let slow = Duration::from_secs(1);
        let settings = TraceSettings { sample, slow, trusts_incoming };
        (Tracer::new(settings, Box::new(exported.clone())), exported)
    }

    fn exchange() -> LoadExchange {
        LoadExchange {
            begun: SystemTime::UNIX_EPOCH,
            took: Duration::ZERO,
            site: "shop".into(),
            method: Method::GET,
            authority: "shop.example".into(),
            target: "/a".into(),
            status: Some(200),
            error: None,
        }
    }

    #[test]
    fn a_trace_is_continued_only_if_clients_are_trusted() {
        let (trusting, _) = tracer(0.0, true);
        let trace = trusting.begin(Some(INCOMING), NOW);
        assert_eq!(trace.recorded_id(), Some(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c));
        assert_eq!(trace.parent, Some(0xb7ad_6b71_6920_3331));
        assert!(
            trusting.begin_hit(|| Some(INCOMING), NOW).is_some()
                && trusting.begin_hit(|| None, NOW).is_none()
        );
        let (careful, _) = tracer(0.0, false);
        let trace = careful.begin(Some(INCOMING), NOW);
        assert_eq!((trace.recorded_id(), trace.parent), (None, None));
        assert!(careful.begin_hit(|| Some(INCOMING), NOW).is_none());
        let (sampling, _) = tracer(1.0, false);
        assert!(sampling.begin_hit(|| None, NOW).is_some());
    }

    #[test]
    fn a_load_is_exported_once_when_a_request_needs_it() {
        let (tracer, exported) = tracer(0.0, false);
        let leader = tracer.begin(None, NOW);
        leader.load().begin(Some(7), false);
        leader.load().end(exchange());
        assert!(exported.0.lock().is_empty(), "nothing needs it yet");
        let follower = tracer.begin(None, NOW);
        follower.follow(8);
        assert!(follower.followed.get().is_none(), "another key");
        follower.follow(7);
        let followed = follower.followed.get().expect("the load of the leader");
        followed.want();
        followed.want();
        let spans = exported.0.lock();
        assert_eq!(spans.len(), 1);
        assert_eq!(Some(spans[0].context), leader.load().context());
        assert_eq!(
            (spans[0].context.trace, spans[0].parent),
            (leader.context.trace, Some(leader.context.span))
        );
    }

    #[test]
    fn requests_refer_to_the_load_of_another_instance() {
        let (tracer, exported) = tracer(1.0, false);
        let elsewhere = tracer.begin(None, NOW);
        let mark = elsewhere.load().mark(false).expect("the load may be exported");
        elsewhere.load().begin(None, false);
        assert_eq!(elsewhere.load().context(), Some(mark));
        let leader = tracer.begin(None, NOW);
        leader.load().wait_for(7, mark);
        let follower = tracer.begin(None, NOW);
        follower.follow(7);
        let followed = [leader.load().remote.get(), follower.followed.get()];
        for load in followed {
            let load = load.expect("the load of the other instance");
            load.want();
            assert_eq!(load.context(), Some(mark));
        }
        assert!(exported.0.lock().is_empty(), "the other instance exports it");
        let (quiet, _) = self::tracer(0.0, false);
        assert_eq!(quiet.begin(None, NOW).load().mark(false), None, "it may not be exported");
    }

    #[test]
    fn a_refresh_has_a_trace_of_its_own_that_refers_to_its_cause() {
        let (tracer, exported) = tracer(0.0, true);
        let cause = tracer.begin(Some(INCOMING), NOW);
        cause.load().want();
        cause.load().begin(Some(1), true);
        assert!(!cause.load().is_of_client());
        cause.load().end(exchange());
        let span = exported.0.lock().pop().expect("a span");
        assert_ne!(span.context.trace, cause.context.trace);
        assert_eq!((span.parent, span.link), (None, Some(cause.context)));
        cause.follow(1);
        assert!(cause.followed.get().is_none(), "it started the load itself");
    }

    #[test]
    fn spans_are_placed_by_one_clock() {
        let (tracer, _) = tracer(1.0, false);
        let load = tracer.begin(None, NOW).load().clone();
        let at = |exact| load.wall_time(exact);
        let second = Duration::from_secs(1);
        assert_eq!(at(NOW + second).duration_since(at(NOW)).ok(), Some(second));
        assert_eq!(at(NOW).duration_since(at(NOW - second)).ok(), Some(second));
    }

    #[test]
    fn lookups_in_tiers_belong_to_the_request_and_those_of_a_refresh_to_its_load() {
        let (tracer, exported) = tracer(1.0, false);
        let took = Duration::from_millis(1);
        let call = TierCall { tier: "disk", op: "open", result: "miss", took };
        let leader = tracer.begin(None, NOW);
        (0..=TIER_EVENTS_MAX).for_each(|_| leader.load().add_tier_call(call, NOW));
        leader.load().want();
        leader.load().begin(Some(7), false);
        leader.load().end(exchange());
        assert_eq!(leader.load().tiers.lock().len(), TIER_EVENTS_MAX);
        let cause = tracer.begin(None, NOW);
        cause.load().want();
        cause.load().begin(Some(8), true);
        cause.load().add_tier_call(call, NOW);
        cause.load().end(exchange());
        let counts = exported.0.lock().iter().map(|span| span.tiers.len()).collect::<Vec<_>>();
        assert_eq!(counts, [0, 1]);
    }
}
