//! Samples the state of the cache once a second, for the history and the live streams.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_core::Condition;
use forebay_http::metrics::TierTotals;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use super::curve::{Curve, FACTORS, Lookups, Sampled};
use super::history::{GlobalTotals, History};
use super::reasons::{self, Since};
use super::{AdminState, health, origins, usage};
use crate::tiers::because::Because;
use crate::tiers::{disk, shared};

/// Maximum number of open live streams.
pub(super) const STREAMS_MAX: usize = 64;

/// Maximum length of one event, in bytes.
const EVENT_MAX: usize = 4 << 10;

/// Maximum number of reasons in one event.
const REASONS_SHOWN: usize = 8;

/// Maximum number of tiers in one event.
const TIERS_SHOWN: usize = 8;

/// Parts of an event that are equal for all streams.
#[derive(Clone)]
struct EventParts {
    /// Members of a JSON object.
    members: Arc<str>,
    /// True if there is no reason why the cache is degraded.
    is_healthy: bool,
}

/// State of the sampling.
pub(crate) struct Monitor {
    history: Mutex<History>,
    curve: Mutex<Curve>,
    pub(super) since: Since,
    /// Newest second, counted since 1970.
    tick: watch::Sender<u64>,
    common: Mutex<EventParts>,
    pub(super) streams: Arc<Semaphore>,
}

impl Monitor {
    /// Creates a monitor that has not sampled anything.
    pub(crate) fn new() -> Self {
        let now = since_1970();
        Self {
            history: Mutex::new(History::new(now)),
            curve: Mutex::new(Curve::new()),
            since: Since::default(),
            tick: watch::Sender::new(now),
            common: Mutex::new(EventParts { members: "".into(), is_healthy: true }),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }

    /// Returns the history.
    pub(super) fn history(&self) -> &Mutex<History> {
        &self.history
    }

    /// Returns a receiver of the seconds that are sampled.
    pub(super) fn ticks(&self) -> watch::Receiver<u64> {
        self.tick.subscribe()
    }
}

/// Samples once a second in a thread of its own, until the state is dropped.
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn start(state: &Arc<AdminState>) -> std::io::Result<()> {
    // The first event may be asked for before the first second has passed.
    sample(state, since_1970());
    let state = Arc::downgrade(state);
    thread::Builder::new().name("forebay-history".to_owned()).spawn(move || run(&state))?;
    Ok(())
}

fn run(state: &Weak<AdminState>) {
    // The monotonic clock counts the seconds, so that a change of the date makes no gap.
    let (first, started) = (since_1970(), Instant::now());
    let mut next = Duration::from_secs(1);
    loop {
        thread::sleep(next.saturating_sub(started.elapsed()));
        let Some(state) = state.upgrade() else { return };
        let passed = started.elapsed().as_secs();
        sample(&state, first + passed);
        next = Duration::from_secs(passed + 1);
    }
}

fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn sample(state: &AdminState, now: u64) {
    state.refresh_metrics();
    let metrics = state.service.metrics();
    let sites = metrics.site_totals();
    let tiers = metrics.tier_totals(state.service.engine());
    let waiting = sites.iter().map(|site| site.waiting).sum();
    let global = GlobalTotals { waiting, cpu_seconds: usage::of_process().cpu_seconds, tiers };
    let tiers = shown_tiers(state, &global);
    let curve = predict(state, &global);
    let common = common(state, tiers, &curve);
    state.monitor.history.lock().add(now, sites, global);
    *state.monitor.common.lock() = common;
    let _ = state.monitor.tick.send_replace(now);
}

/// Names of the [`FACTORS`].
const FACTOR_NAMES: [&str; FACTORS.len()] = ["0.5", "1", "2", "4"];

/// Adds the samples of the last second to the models of memory. Returns the estimates for an event.
fn predict(state: &AdminState, global: &GlobalTotals) -> Value {
    let (metrics, engine) = (state.service.metrics(), state.service.engine());
    let (samples, share) = (metrics.samples().drain(), metrics.samples().share());
    let Some(memory) = global.tiers.first() else { return Value::Null };
    let size = state.bounds.memory.saturating_sub(engine.traffic().in_flight_limit);
    let sampled = Sampled { size, share, entries: memory.entries };
    let lookups = Lookups { hits: memory.hits, all: memory.lookups };
    let mut curve = state.monitor.curve.lock();
    if curve.add(&samples, state.started.elapsed(), lookups, sampled) {
        metrics.samples().halve();
    }
    let predicted = curve.predicted(share);
    let ratios = predicted.map(|ratios| {
        std::array::from_fn::<_, { FACTORS.len() }, _>(|at| (FACTOR_NAMES[at], ratios[at]))
    });
    metrics.set_predicted(ratios.as_ref().map_or(&[], |ratios| &ratios[..]));
    json!({ "size": size, "missing": curve.missing(), "ratios": predicted })
}

/// Returns the parts of an event that are equal for all streams.
fn common(state: &AdminState, tiers: Vec<Value>, curve: &Value) -> EventParts {
    let reasons = state.monitor.since.note(reasons::current(state));
    for because in Because::ALL {
        let is_degraded = reasons.iter().any(|(reason, _)| reason.because == because);
        state.service.metrics().set_degraded(because.code(), is_degraded);
    }
    let instances = shared::sharing(&state.shared, state.started).map(|cluster| cluster.instances);
    let common = json!({
        "reasons": health::shown_reasons(&reasons[..reasons.len().min(REASONS_SHOWN)]),
        "instances": instances,
        "uptime_seconds": state.started.elapsed().as_secs(),
        "version": env!("CARGO_PKG_VERSION"),
        "notices": state.log.notices.total(),
        "url": state.url,
        "paths": super::PATHS,
        "tiers": tiers,
        "curve": curve,
    });
    let common = common.to_string();
    let members = Arc::from(&common[1..common.len() - 1]);
    EventParts { members, is_healthy: reasons.is_empty() }
}

fn shown_tiers(state: &AdminState, global: &GlobalTotals) -> Vec<Value> {
    let conditions: Vec<_> = state.service.engine().lower_tiers().collect();
    // A server that does not answer makes a tier bypassed before enough operations have failed.
    let bypassed: Vec<_> = reasons::current(state)
        .into_iter()
        .filter(|reason| reason.because == Because::TierBypassed)
        .map(|reason| reason.name)
        .collect();
    let history = state.monitor.history.lock();
    let shown = |(place, tier): (usize, &TierTotals)| {
        let condition = conditions.iter().find(|(name, _)| *name == tier.tier);
        let word = condition
            .map_or(health::OK, |(_, condition): &(_, Condition)| health::state_word(*condition));
        let is_bypassed = word == health::OK && bypassed.iter().any(|name| **name == *tier.tier);
        let word = if is_bypassed { health::state_word(Condition::Open) } else { word };
        let limit = match tier.tier {
            "memory" => Some(state.bounds.memory),
            disk::NAME => state.bounds.disk,
            _ => None,
        };
        // A tier in Redis does not tell its size.
        let size = limit.map(|_| (tier.bytes, tier.entries));
        json!({
            "name": tier.tier,
            "state": word,
            "bytes": size.map(|(bytes, _)| bytes),
            "limit_bytes": limit,
            "entries": size.map(|(_, entries)| entries),
            "read_p99_us": history.reads_p99(place),
        })
    };
    global.tiers.iter().take(TIERS_SHOWN).enumerate().map(shown).collect()
}

/// Returns one event for the viewer of a site, or of all sites, as JSON of at most 4 KiB.
pub(super) fn event(state: &AdminState, site: Option<&str>) -> String {
    let newest = state.monitor.history.lock().newest(site);
    let EventParts { members, is_healthy } = state.monitor.common.lock().clone();
    // The phase of this moment: a stream may begin before the first second has passed.
    let word = health::overall_word(state, is_healthy);
    let mut origins = origins::of(&state.service, site);
    loop {
        let listed = Value::from(origins.clone());
        let event = format!("{{{newest},\"state\":\"{word}\",{members},\"origins\":{listed}}}");
        if event.len() <= EVENT_MAX || origins.pop().is_none() {
            return event;
        }
    }
}
