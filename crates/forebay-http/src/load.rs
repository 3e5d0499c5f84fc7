//! Loads of the engine over HTTP. `load/fetch.rs` chooses the requests, `load/outgoing.rs`
//! builds and sends them, `load/judge.rs` evaluates the response, `load/part.rs` loads ranges,
//! `load/by_body.rs` loads responses that are stored by request body.
//!
//! This folder uses `compress`, `origin`, `site`, `settings`, `stored`, `client` and `request_guard` (interim
//! responses); it never sees responses to clients.

mod by_body;
mod client_fields;
mod client_request;
mod decision;
mod fetch;
pub(crate) mod invalidate;
mod json_cut;
mod judge;
mod lower_tiers;
mod outgoing;
mod part;
mod pass;
mod received;
mod response_fields;
mod rule_edits;
mod selecting;
mod span;

use std::borrow::Cow;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef};
use forebay_engine::lease::LoadMark;
use forebay_engine::{
    AnswerFor, Audience, Engine, Entry, Extent, Head, HeadCodec, Load, LoadError, LoadOptions,
    Loaded, Outcome, PurgesSoFar, Select, TierCall, UnsharedLoad, Waiting, Watch,
};
use forebay_semantics::partial::ContentRange;
use forebay_semantics::storable::Unstorable;
use forebay_semantics::trace_context::TraceContext;
use http::header::RANGE;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use parking_lot::Mutex;

use crate::origin::OriginBody;
use crate::record::decisions::hash;
use crate::stored::head::Answer;

pub(crate) use by_body::ByBodyLoad;
pub(crate) use client_fields::ClientFields;
pub(crate) use client_request::{ClientRequest, SERVER_TIMING};
pub(crate) use decision::DecisionRecorder;
pub(crate) use judge::PASS_REMEMBER;
pub(crate) use lower_tiers::LowerTiersOnly;
pub(crate) use part::PartLoad;
pub(crate) use pass::{Fetched, HandedRequest, HandedResult, PassedResponse};
pub(crate) use received::{PurgeWatch, ReceivedLoad};
pub(crate) use response_fields::{normalise_fields, write_normalised};
pub(crate) use selecting::selecting;

use self::decision::Judged;
use self::fetch::StoredParts;

/// Load of one request. Cloning is cheap, because the state is shared.
#[derive(Clone)]
pub(crate) struct HttpLoad(Arc<LoadState>);

/// Client request with the state of its load.
struct LoadState {
    request: ClientRequest,
    engine: Arc<Engine>,
    /// Key of the stored response.
    key: Key,
    fetch_mode: FetchMode,
    details: LoadDetails,
}

/// Extent of the fetch for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchMode {
    /// The whole response, shared.
    Whole,
    /// The whole response; for a private one only the client's range, under the client's
    /// conditions.
    AsRequested,
    /// The head only.
    Head,
}

/// Results of a load beside the entry, for the request that started it.
#[derive(Debug, Default)]
pub(crate) struct LoadDetails {
    /// Fields that only the requesting client gets.
    pub(crate) own: OnceLock<HeaderMap>,
    /// Reason why the response was not stored.
    pub(crate) refused: OnceLock<Unstorable>,
    /// Part in the origin's 206, if a range was requested.
    pub(crate) part: OnceLock<SentPart>,
    /// Status code of the origin's response, if it differs from that of the entry.
    pub(crate) status: OnceLock<StatusCode>,
    /// Set if the origin evaluated the client's conditions and answered in full.
    pub(crate) judged_by_origin: OnceLock<()>,
    /// Whole response received instead of a part, for the request that started the load.
    pub(crate) whole: Mutex<Option<Outcome>>,
    /// Evaluation of the response, until the decision is recorded.
    judged: Mutex<Option<Judged>>,
    /// Head of the entry with its decoded form, which the request that started the load takes.
    kept: Mutex<Option<(Head, Answer)>>,
}

impl LoadDetails {
    /// Returns the callers that the answer holds something for, once it has been received.
    pub(crate) fn answer_for(&self) -> AnswerFor {
        if self.own.get().is_some() { AnswerFor::Caller } else { AnswerFor::All }
    }

    /// Returns the decoded form of the head of the response that the client gets. That of the load's
    /// own response is decoded already, the first time.
    pub(crate) fn answer_of(&self, head: &Head) -> Option<Answer> {
        let is_it = |kept: &mut (Head, Answer)| match (kept.0.slice(), head.slice()) {
            (Some(kept), Some(head)) => std::ptr::eq(kept, head),
            _ => false,
        };
        let kept = self.kept.lock().take_if(is_it);
        kept.map_or_else(|| Answer::take(head), |(_, answer)| Some(answer))
    }

    fn keep(&self, head: Head, answer: Answer) {
        *self.kept.lock() = Some((head, answer));
    }

    fn note(&self, judged: Judged) {
        *self.judged.lock() = Some(judged);
    }
}

/// Part in the 206 of an origin.
#[derive(Debug)]
pub(crate) struct SentPart {
    pub(crate) range: ContentRange,
    /// The origin's `Content-Range`.
    pub(crate) stated: HeaderValue,
}

/// Response of an origin, with the duration of the exchange.
pub(crate) struct Received {
    pub(crate) response: Response<OriginBody>,
    pub(crate) delay: Duration,
    /// Purges counted before the request, if the direct path has sent it.
    pub(crate) purges_at_send: Option<PurgesSoFar>,
}

impl HttpLoad {
    pub(crate) fn new(
        request: ClientRequest,
        engine: Arc<Engine>,
        key: Key,
        fetch_mode: FetchMode,
    ) -> Self {
        let details = LoadDetails::default();
        Self(Arc::new(LoadState { request, engine, key, fetch_mode, details }))
    }

    /// Returns the key of the stored response.
    fn key(&self) -> KeyRef<'_> {
        self.0.key.borrowed()
    }

    pub(crate) fn request(&self) -> &ClientRequest {
        &self.0.request
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.0.request.headers()
    }

    /// Returns the results, which are set when the load ends.
    pub(crate) fn details(&self) -> &LoadDetails {
        &self.0.details
    }

    /// Watches for purges of the key.
    fn watch(&self) -> Watch {
        self.0.engine.watch(self.0.key.clone())
    }

    fn set_unshared_fields(&self, own: HeaderMap) {
        self.0.set_unshared_fields(own);
    }
}

impl Select for HttpLoad {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.0.request.field(name)
    }

    fn variants_max(&self) -> usize {
        self.0.request.site.settings.variants_max
    }
}

impl Load for HttpLoad {
    fn begins(&self, waiting: Waiting) {
        self.0.request.urgency.begins(waiting);
    }

    /// Runs all exchanges of the load within one `fetch_timeout`.
    async fn load(
        &self,
        prior: Option<Arc<Entry>>,
        company: Audience,
    ) -> Result<Loaded, LoadError> {
        let method = match self.0.fetch_mode {
            FetchMode::Head => &Method::HEAD,
            FetchMode::Whole | FetchMode::AsRequested => &Method::GET,
        };
        let request = &self.0.request;
        request.note_stale(prior.as_deref());
        let begun = request.clock.exact().saturating_sub(request.sent_ago().unwrap_or_default());
        let loaded = {
            let load = pin!(self.0.load(prior.as_deref(), company));
            request.with_timeout(method, self.0.key.borrowed(), load).await
        };
        request.log_failure(method, prior.as_deref(), &loaded);
        let judged = self.details().judged.lock().take();
        request.record_decision(self.0.key.borrowed(), &loaded, judged, begun);
        loaded
    }

    fn mark(&self, is_refresh: bool) -> Option<LoadMark> {
        let trace = self.0.request.trace.as_ref()?;
        Some(trace.mark(is_refresh)?.to_string().into())
    }

    fn follows(&self, mark: &str) {
        let trace = self.0.request.trace.as_ref();
        if let Some((trace, context)) = trace.zip(TraceContext::parse(mark.as_bytes())) {
            trace.wait_for(hash(self.key()), context);
        }
    }

    fn tier_called(&self, call: TierCall) {
        self.0.request.note_tier_call(call);
    }

    fn options(&self) -> LoadOptions {
        let settings = &self.0.request.site.settings;
        let extent = if self.headers().contains_key(RANGE) { Extent::Part } else { Extent::Whole };
        LoadOptions {
            tier_errors: settings.tier_errors,
            lease_wait_max: Some(settings.lease_wait_max),
            extent,
            answer_for: self.details().answer_for(),
            // As for the requests that bypass the cache.
            unshared: UnsharedLoad::EndsWithCaller,
            sent_ago: self.0.request.sent_ago(),
            ..LoadOptions::default()
        }
    }
}

impl HeadCodec for HttpLoad {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        Answer::decode(bytes).map(|mut answer| self.0.request.stored_head(&mut answer, None))
    }
}
