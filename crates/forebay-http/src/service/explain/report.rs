//! Stored entries, state of the key, and last decisions.

use std::time::Duration;

use forebay_core::{CallState, Condition, Lifetime, Meta, Presence, PurgeState, Stale, Timestamp};
use forebay_engine::{LookupResult, RunningLoad, StoredVariant, TierReport};
use forebay_semantics::advice;
use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE,
    DATE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED, PRAGMA, SET_COOKIE, VARY,
};

use super::Subject;
use super::forecast::Course;
use crate::explanation::{
    BackOffReport, BreakerReport, DecisionReport, LiveReport, LoadReport, NowReport,
    PassMarkerReport, StoredReport, Text, TierState,
};
use crate::record::decisions::{Decided, Decision};
use crate::stored::head::Answer;

/// Maximum number of variants in a report.
const VARIANTS_MAX: usize = 64;

/// Fields of a response that control caching.
static CACHING: [HeaderName; 14] = [
    CACHE_CONTROL,
    HeaderName::from_static("forebay-cache-control"),
    HeaderName::from_static("cdn-cache-control"),
    PRAGMA,
    EXPIRES,
    AGE,
    DATE,
    LAST_MODIFIED,
    ETAG,
    VARY,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    HeaderName::from_static("surrogate-key"),
];

/// Stored entry of any tier.
struct StoredEntry<'a> {
    tier: &'static str,
    meta: &'a Meta,
    answer: Option<Answer>,
    bytes: Option<u64>,
    purge: PurgeState,
}

impl Subject<'_> {
    /// Returns the entries under the key, of memory and of lower tiers.
    pub(super) fn stored(&self) -> Vec<StoredReport> {
        let variants = self.engine.stored_variants(&self.lookup());
        let in_memory = variants.iter().take(VARIANTS_MAX).map(|variant| self.in_memory(variant));
        let below = self.tiers.iter().filter_map(|report| {
            let entry = report.entry.as_ref()?;
            let stored = StoredEntry {
                tier: report.name,
                meta: &entry.meta,
                answer: Answer::decode(entry.head.clone()),
                bytes: None,
                purge: entry.purge,
            };
            Some(StoredReport { selected: true, ..self.entry(stored) })
        });
        in_memory.chain(below).collect()
    }

    fn in_memory(&self, variant: &StoredVariant) -> StoredReport {
        let entry = &*variant.entry;
        let stored = StoredEntry {
            tier: "memory",
            meta: &entry.meta,
            answer: Answer::of(entry),
            bytes: entry.body.length(),
            purge: variant.purge,
        };
        let fields = variant.fields.iter().map(|(name, value)| {
            let shown = value.as_ref().map(|value| shown_value(name, value));
            (name.clone(), shown)
        });
        let (selected, variant) = (variant.is_selected, fields.collect());
        StoredReport { selected, variant, ..self.entry(stored) }
    }

    fn entry(&self, stored: StoredEntry<'_>) -> StoredReport {
        let StoredEntry { tier, meta, answer, bytes, purge } = stored;
        let now = self.engine.clock().now();
        let Lifetime { fresh, stale_while_revalidate, stale_if_error, stale } = meta.lifetime();
        let staleness = meta.staleness(now);
        let left = |window: Duration| millis(window.saturating_sub(staleness));
        let setter = answer.as_ref().map(|answer| self.request.lifetime_by(answer));
        let validator = answer.as_ref().and_then(|answer| {
            [ETAG, LAST_MODIFIED].iter().find_map(|name| advice::line(&answer.headers, name))
        });
        let stated = || answer.as_ref()?.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
        StoredReport {
            tier: tier.into(),
            selected: false,
            variant: Vec::new(),
            status: answer.as_ref().map_or(0, |answer| answer.status.as_u16()),
            bytes: bytes.or_else(stated),
            age_ms: millis(meta.age(now)),
            lifetime_ms: millis(fresh),
            set_by: setter.as_ref().map_or_else(Text::default, |setter| setter.by.code().into()),
            set_by_line: setter.map_or_else(String::new, |setter| setter.line),
            fresh_left_ms: fresh_left(meta, now),
            stale_while_revalidate_left_ms: left(stale_while_revalidate),
            stale_if_error_left_ms: left(stale_if_error),
            must_revalidate: stale == Stale::Forbidden,
            tags: meta.tags().iter().map(str::to_owned).collect(),
            validator,
            purge: purge_word(purge).into(),
        }
    }

    /// Returns the state of the key and of the origin.
    pub(super) fn now(&self, course: &Course) -> NowReport {
        let lookup = self.lookup();
        let miss = match self.engine.peek(&lookup) {
            LookupResult::Miss(miss) => Some(miss),
            LookupResult::Hit(_) => None,
        };
        let marker = self.engine.pass_marker(&lookup).map(|marker| PassMarkerReport {
            left_ms: millis(marker.left),
            because: if marker.is_private { "not-shareable" } else { "never-fresh" }.into(),
        });
        let back_off = miss.as_ref().and_then(|miss| self.engine.back_off_of(&lookup, miss));
        let running = match course {
            Course::Waits(running, _) => Some(*running),
            _ => miss.as_ref().and_then(|miss| self.engine.running_load(&lookup, miss)),
        };
        NowReport {
            pass_marker: marker,
            back_off: back_off.map(|pause| BackOffReport {
                left_ms: millis(pause.left),
                error: pause.error.to_string(),
            }),
            load: running.map(load_report),
            breaker: self.breaker(),
            tiers: self.tiers.iter().map(tier_state).collect(),
        }
    }

    fn breaker(&self) -> Option<BreakerReport> {
        let state = match self.site.origin.breaker_state()? {
            CallState::Closed => "closed",
            CallState::HalfOpen => "half-open",
            CallState::Open => "open",
        };
        let left_ms = millis(self.site.origin.breaker_time_left());
        Some(BreakerReport { state: state.into(), left_ms })
    }

    /// Returns the last decisions.
    pub(super) fn decisions(&self, decisions: &[Decision]) -> Vec<DecisionReport> {
        let now = self.engine.clock().now();
        let report = |decision: &Decision| {
            let is_too_large = self.is_too_large(decision);
            let result = if is_too_large { "too-large" } else { decision.decided.code() };
            DecisionReport {
                ago_ms: millis(now.since(decision.at)),
                took_ms: millis(decision.took),
                why: decision.why.code().into(),
                result: result.into(),
                status: (decision.status != 0).then_some(decision.status),
                line: decision.line.as_str().to_owned(),
                objections: decision.objections.iter().map(|it| it.code().into()).collect(),
            }
        };
        decisions.iter().map(report).collect()
    }

    /// Returns true if the response could be stored but for its size, and no lower tier has it.
    pub(super) fn is_too_large(&self, decision: &Decision) -> bool {
        let limit = self.engine.memory().object_max(Presence::Present);
        let is_over = decision.length.is_some_and(|length| u64::from(length) > limit);
        let is_below = self.tiers.iter().any(|report| report.entry.is_some());
        decision.decided == Decided::Stored && (decision.is_outgrown || is_over) && !is_below
    }

    /// Returns the report about a response of the origin.
    pub(super) fn live_report(&self, answer: &Answer) -> LiveReport {
        let lines = CACHING.iter().filter_map(|name| advice::line(&answer.headers, name));
        let cookie = answer.headers.contains_key(SET_COOKIE).then(|| "Set-Cookie".to_owned());
        LiveReport {
            status: Some(answer.status.as_u16()),
            fields: lines.chain(cookie).collect(),
            set_by_line: self.request.lifetime_by(answer).line,
            lifetime_ms: millis(self.request.lifetime_of(answer)),
            error: None,
        }
    }
}

fn load_report(running: RunningLoad) -> LoadReport {
    LoadReport {
        waiting: running.followers,
        running_ms: millis(running.running),
        lease: if running.waits_for_instance { "other-instance" } else { "this-instance" }.into(),
    }
}

fn tier_state(report: &TierReport) -> TierState {
    let state = match report.condition {
        Condition::Closed => "ok",
        Condition::HalfOpen => "probing",
        Condition::Open => "bypassed",
    };
    let failure = report.failure.as_ref().map(ToString::to_string);
    TierState { name: report.name.into(), state: state.into(), failure }
}

/// Returns the value of a selecting field. Credentials are not shown.
fn shown_value(name: &str, value: &[u8]) -> String {
    if name == COOKIE.as_str() || name == AUTHORIZATION.as_str() {
        return "(hidden)".to_owned();
    }
    let mut text = String::from_utf8_lossy(value).into_owned();
    text.truncate(text.floor_char_boundary(advice::LINE_MAX));
    text
}

const fn purge_word(purge: PurgeState) -> &'static str {
    match purge {
        PurgeState::Valid => "none",
        PurgeState::SoftPurged => "soft",
        PurgeState::Unverified => "unverified",
        PurgeState::Removed => "hard",
    }
}

fn fresh_left(meta: &Meta, now: Timestamp) -> i64 {
    let signed = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    if meta.is_fresh(now) { signed(meta.fresh_left(now)) } else { -signed(meta.staleness(now)) }
}

/// Returns whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
