//! Loads of the engine over HTTP. `load/judge.rs` evaluates the response, `load/part.rs` loads
//! ranges, `load/by_body.rs` loads responses that are stored by request body.
//!
//! This folder uses `origin`, `site`, `settings`, `stored`, `client` and `request_guard` (interim
//! responses); it never sees responses to clients.

mod by_body;
pub(crate) mod invalidate;
mod judge;
mod lower_tiers;
mod part;
mod received;
mod rule_edits;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Key, WallTime, may_fall_back};
use forebay_engine::{
    AnswerFor, Audience, Clock, Coalesce, Credentials, Engine, Entry, Extent, Head, HeadCodec,
    Load, LoadError, LoadOptions, Loaded, Lookup, LookupResult, Outcome, Select, Watch,
};
use forebay_semantics::partial::{ContentRange, Span, request_missing};
use forebay_semantics::storable::Unstorable;
use forebay_semantics::vary::selecting_value;
use forebay_semantics::{FieldLines, cdn_loop, forwarding, hop, validate};
use http::header::{ALT_SVC, CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HOST, IF_RANGE, RANGE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use parking_lot::Mutex;

use crate::client::peer::Peer;
use crate::client::{credentials, logged_path};
use crate::origin::{FetchRequest, OriginBody, is_idle_close, no_body};
use crate::request_guard::Interims;
use crate::rules::{RequestRules, RuleChanges, Values};
use crate::site::Site;
use crate::site::tags::HostOrigin;
use crate::stored::head::Answer;
use crate::stored::partial::{self, Partial};

pub(crate) use by_body::ByBodyLoad;
pub(crate) use lower_tiers::LowerTiersOnly;
pub(crate) use part::PartLoad;
pub(crate) use received::{PurgeWatch, ReceivedLoad};

/// Addition to `fetch_timeout` for a whole load. The timeout of a single exchange has a more
/// precise error message and gets the time to report it.
const TIMEOUT_MARGIN: Duration = Duration::from_millis(5);

/// Maximum number of unconditional requests in one load. A single 304 to one may be a confusion of
/// the origin; a second is an error.
const ATTEMPTS_MAX: usize = 2;

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
}

impl LoadDetails {
    /// Returns the callers that the answer holds something for, once it has been received.
    pub(crate) fn answer_for(&self) -> AnswerFor {
        if self.own.get().is_some() { AnswerFor::Caller } else { AnswerFor::All }
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
}

/// Stored parts of a body, with their bytes in ascending order.
struct StoredParts {
    partial: Partial,
    bytes: Bytes,
}

/// Client's request with its site, as needed for requests to the origin.
pub(crate) struct ClientRequest {
    pub(crate) site: Arc<Site>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Target of the key, which the origin gets too.
    pub(crate) target: PathAndQuery,
    /// Normalised authority of the key.
    pub(crate) authority: Box<str>,
    /// Header fields of the client's request.
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Peer,
    /// Channel of interim responses to the client that started the load.
    pub(crate) interims: Interims,
    /// Rules of the site that match the request.
    pub(crate) rules: RequestRules,
    /// Changes by rules that affect whether the response is stored.
    pub(crate) changes: RuleChanges,
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

    pub(crate) fn request(&self) -> &ClientRequest {
        &self.0.request
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.0.request.headers
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

/// Returns the value of a selecting field in the form that the origin receives. The client's own
/// value could differ: a claimed address, or a hop-by-hop field that is not forwarded.
pub(crate) fn selecting<'a>(
    headers: &'a impl FieldLines,
    peer: &Peer,
    name: &str,
) -> Option<Cow<'a, [u8]>> {
    match name {
        "x-forwarded-for" | "forwarded" => {
            let addresses = peer.sender(false).forwarded_for().unwrap_or_default();
            Some(Cow::Owned(addresses.into_bytes()))
        }
        // Equal for all requests with one key, unless the site ignores the scheme.
        "x-forwarded-proto" => Some(Cow::Borrowed(peer.scheme.as_str().as_bytes())),
        // Equal for all requests with one key.
        "x-forwarded-host" => None,
        "client-cert" => {
            let certificate = peer.certificate()?;
            Some(Cow::Owned(certificate.as_bytes().to_vec()))
        }
        _ if !headers.has(&CONNECTION) => selecting_value(headers, name),
        _ => sent_value(headers, name),
    }
}

/// Returns the value that remains after the removal of the fields which `Connection` names.
fn sent_value<'a>(headers: &'a impl FieldLines, name: &str) -> Option<Cow<'a, [u8]>> {
    let names_it = |line: &[u8]| {
        let mut options = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        options.any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    };
    let is_removed = !hop::is_end_to_end(name) && headers.lines(&CONNECTION).any(names_it);
    if is_removed { None } else { selecting_value(headers, name) }
}

impl Load for HttpLoad {
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
        let loaded = request.with_timeout(self.0.load(prior.as_deref(), company)).await;
        request.log_failure(method, prior.as_deref(), &loaded);
        loaded
    }

    fn options(&self) -> LoadOptions {
        let settings = &self.0.request.site.settings;
        let extent = if self.headers().contains_key(RANGE) { Extent::Part } else { Extent::Whole };
        LoadOptions {
            tier_errors: settings.tier_errors,
            lease_wait_max: Some(settings.lease_wait_max),
            extent,
            answer_for: self.details().answer_for(),
            ..LoadOptions::default()
        }
    }
}

impl HeadCodec for HttpLoad {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        Answer::decode(bytes).map(Answer::into_head)
    }
}

impl LoadState {
    async fn load(&self, prior: Option<&Entry>, company: Audience) -> Result<Loaded, LoadError> {
        let is_for_one = self.fetch_mode == FetchMode::AsRequested && company == Audience::Single;
        match prior {
            // A private response is not the one that is stored.
            Some(_) if is_for_one && self.is_known_private() => {
                self.fetch_as_requested(prior).await
            }
            None if is_for_one => self.fetch_as_requested(None).await,
            Some(prior) => self.revalidate(prior, company).await,
            None => self.fetch_missing(company).await,
        }
    }

    fn is_known_private(&self) -> bool {
        let credentials = credentials(&self.request.headers);
        self.engine.is_known_private(self.key.borrowed(), credentials)
    }

    /// Validates the stored response.
    async fn revalidate(&self, prior: &Entry, company: Audience) -> Result<Loaded, LoadError> {
        let stored = prior.meta.validator().and_then(|_| Answer::of(prior));
        let Some(validator) = stored.and_then(|stored| validate::validator(&stored.headers)) else {
            return match self.fetch_mode {
                FetchMode::Head => self.revalidate_by_head(prior, company).await,
                FetchMode::Whole | FetchMode::AsRequested => {
                    self.fetch_whole(Some(prior), company).await
                }
            };
        };
        let question = || {
            self.request.question(|fields| {
                validate::make_conditional(fields, &validator);
            })
        };
        let received = self.request.ask(question, company).await?;
        if received.response.status() != StatusCode::NOT_MODIFIED {
            return self.judge(received, Some(prior));
        }
        if let Some(unchanged) = self.unchanged(&received, prior) {
            return Ok(unchanged);
        }
        // RFC 9111 section 4.3.3: a 304 with another validator does not apply; the whole response
        // is requested.
        drop(received);
        self.fetch_whole(Some(prior), company).await
    }

    /// Fetches a response of which nothing or only parts are stored.
    async fn fetch_missing(&self, company: Audience) -> Result<Loaded, LoadError> {
        if let Some(loaded) = self.fetch_missing_part(company).await? {
            return Ok(loaded);
        }
        self.fetch_whole(None, company).await
    }

    /// RFC 9111 section 3.4: requests only the missing range if exactly one is missing. Parts that
    /// were purged before this load are not found.
    async fn fetch_missing_part(&self, company: Audience) -> Result<Option<Loaded>, LoadError> {
        let Some(stored) = self.stored_parts().await else { return Ok(None) };
        let ask = |fields: &mut HeaderMap| {
            request_missing(fields, &stored.partial.headers, &stored.partial.parts)
        };
        if !ask(&mut HeaderMap::new()) {
            return Ok(None);
        }
        let question = || {
            self.request.question(|fields| {
                ask(fields);
            })
        };
        let received = self.request.ask(question, company).await?;
        if received.response.status() != StatusCode::PARTIAL_CONTENT {
            return self.judge(received, None).map(Some);
        }
        self.complete_parts(received, &stored).await
    }

    async fn stored_parts(&self) -> Option<StoredParts> {
        let key = partial::key_of(self.key.borrowed());
        let select = &self.request;
        let (demand, credentials) = (&Demand::default(), Credentials::Anonymous);
        let ask = Lookup {
            key: key.borrowed(),
            demand,
            select,
            credentials,
            coalesce: Coalesce::Instance,
        };
        let entry = match self.engine.lookup(&ask) {
            LookupResult::Hit(obtained) => obtained.entry,
            LookupResult::Miss(wanting) => wanting.prior()?.clone(),
        };
        let stored = Partial::of(&entry)?.into_owned();
        // Several range requests would cost the origin more than the whole body.
        let mut all = stored.parts.clone();
        let (from, to) = all.missing()?;
        let complete = stored.parts.complete()?;
        let last = to.unwrap_or(complete.checked_sub(1)?);
        let gap = ContentRange { span: Span { first: from, last }, complete: Some(complete) };
        if stored.parts.spans().is_empty() || !all.insert(gap) || !all.is_whole() {
            return None;
        }
        let bytes = entry.body.reader().collect().await.ok()?;
        Some(StoredParts { partial: stored, bytes })
    }

    async fn fetch_whole(
        &self,
        prior: Option<&Entry>,
        company: Audience,
    ) -> Result<Loaded, LoadError> {
        for _ in 0..ATTEMPTS_MAX {
            let question = || self.request.question(|_| {});
            let received = self.request.ask(question, company).await?;
            if received.response.status() != StatusCode::NOT_MODIFIED {
                return self.judge(received, prior);
            }
        }
        Err(LoadError::origin(
            "the origin answered 304 (not modified) twice to a request without conditions",
        ))
    }

    /// Requests the response under the client's range and conditions, because a private response is
    /// for this client only. Such conditions are evaluated by the origin (RFC 9110 section 13.2.1).
    async fn fetch_as_requested(&self, prior: Option<&Entry>) -> Result<Loaded, LoadError> {
        let client = &self.request.headers;
        let question = || {
            self.request.question(|fields| {
                self.request.take_range(fields);
                validate::copy_conditions(fields, client);
            })
        };
        let received = self.request.ask(question, Audience::Single).await?;
        if received.response.status() != StatusCode::NOT_MODIFIED {
            let _ = self.details.judged_by_origin.set(());
            return self.judge(received, prior);
        }
        if validate::has_cache_conditions(client) {
            return self.judge_not_modified(received.response);
        }
        self.fetch_whole(prior, Audience::Single).await
    }

    /// Sends a HEAD about a stored response without a validator, for which a GET would transfer the
    /// whole body again.
    async fn revalidate_by_head(
        &self,
        prior: &Entry,
        company: Audience,
    ) -> Result<Loaded, LoadError> {
        let question = || FetchRequest { method: Method::HEAD, ..self.request.question(|_| {}) };
        let received = self.request.ask(question, company).await?;
        self.judge_head(received, prior).await
    }
}

impl Select for ClientRequest {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        selecting(&self.headers, &self.peer, name)
    }
}

impl ClientRequest {
    /// Limits a load to `fetch_timeout` plus [`TIMEOUT_MARGIN`].
    async fn with_timeout(
        &self,
        load: impl Future<Output = Result<Loaded, LoadError>>,
    ) -> Result<Loaded, LoadError> {
        let patience = self.rules.fetch_timeout(&self.site);
        let loaded = tokio::time::timeout(patience + TIMEOUT_MARGIN, load).await;
        loaded.unwrap_or(Err(LoadError::TimedOut(patience)))
    }

    /// Logs a failed load whose stored response may be served stale instead. Other failures are
    /// logged with the error response that the client gets.
    fn log_failure(
        &self,
        method: &Method,
        prior: Option<&Entry>,
        loaded: &Result<Loaded, LoadError>,
    ) {
        let (Some(prior), Err(error) | Ok(Loaded::Failed { error, .. })) = (prior, loaded) else {
            return;
        };
        let (now, settings) = (self.clock.now(), &self.site.settings);
        let failure = error.trouble(&settings.demand);
        let is_refreshed_in_background = prior.meta.is_fresh(now)
            || prior.meta.staleness(now) <= prior.meta.lifetime().stale_while_revalidate;
        if !is_refreshed_in_background && !may_fall_back(&prior.meta, failure, now) {
            return;
        }
        let Some(suppressed) = self.site.warnings.admit(now) else { return };
        tracing::warn!(
            site = &*settings.id,
            %method,
            host = &*self.authority,
            path = logged_path(self.target.as_str()),
            code = crate::origin::code(error),
            cause = %error,
            suppressed,
            "origin fetch failed: clients get the stored response"
        );
    }

    /// Returns the scheme and the authority of the key.
    pub(crate) fn host_origin(&self) -> HostOrigin<'_> {
        HostOrigin { scheme: self.peer.scheme, authority: &self.authority }
    }

    /// Returns the header fields for the origin: hop-by-hop fields removed, `Via` and the
    /// forwarding fields generated.
    pub(crate) fn outgoing_fields(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        let authority = HeaderValue::from_str(&self.authority).ok();
        hop::strip_hop_by_hop(&mut headers);
        let sender = self.peer.sender(self.site.settings.is_forwarded_added);
        forwarding::replace_forwarding(&mut headers, &sender, authority.as_ref());
        let host = self.site.settings.origin.host.clone().or(authority);
        if let Some(host) = host {
            headers.insert(HOST, host);
        }
        if !self.site.settings.rule_set.is_empty() {
            let values = self.values();
            if !self.rules.edit_origin_request(&self.site, &mut headers, &values) {
                self.changes.fail();
            }
        }
        hop::add_via(&mut headers, http::Version::HTTP_11);
        cdn_loop::add(&mut headers, &self.site.loop_marker);
        headers
    }

    /// Returns the target that the origin gets.
    pub(crate) fn origin_target(&self) -> PathAndQuery {
        let edited = self.rules.origin_target(&self.site, self.target.as_str());
        edited.unwrap_or_else(|| self.target.clone())
    }

    /// Returns the values of placeholders.
    pub(crate) fn values(&self) -> Values<'_> {
        Values {
            id: &self.site.settings.id,
            authority: &self.authority,
            target: self.target.as_str(),
            headers: Some(&self.headers),
            peer: Some(&self.peer),
            response: None,
        }
    }

    /// Sends a request that may be retried.
    async fn ask(
        &self,
        question: impl Fn() -> FetchRequest,
        company: Audience,
    ) -> Result<Received, LoadError> {
        match self.ask_once(question(), company).await {
            // RFC 9112 section 9.3.1: a safe request may be retried.
            Err(error) if is_idle_close(&error) => self.ask_once(question(), company).await,
            answered => answered,
        }
    }

    /// Sends a request without a retry.
    async fn ask_once(
        &self,
        question: FetchRequest,
        company: Audience,
    ) -> Result<Received, LoadError> {
        let sent = self.clock.exact();
        let mut response = self.site.origin.fetch(question, company).await?;
        let delay = self.clock.exact().saturating_sub(sent);
        tidy_fields(response.headers_mut(), self.clock.wall());
        self.edit_response(&mut response);
        Ok(Received { response, delay })
    }

    /// Builds a GET whose response may be stored, without the client's conditions and range. `with`
    /// adds the cache's own.
    fn question(&self, with: impl FnOnce(&mut HeaderMap)) -> FetchRequest {
        let mut headers = self.outgoing_fields();
        validate::strip_conditions(&mut headers);
        // An expectation (RFC 9110 section 10.1.1) and the length of an empty body belong to one
        // client's request.
        headers.remove(EXPECT);
        headers.remove(CONTENT_LENGTH);
        with(&mut headers);
        let (target, interims) = (self.origin_target(), self.interims.clone());
        FetchRequest { method: Method::GET, target, headers, body: no_body(), interims }
    }

    /// Adds the client's `Range` and `If-Range`.
    fn take_range(&self, fields: &mut HeaderMap) {
        for name in [RANGE, IF_RANGE] {
            for value in self.headers.get_all(&name) {
                fields.append(name.clone(), value.clone());
            }
        }
    }
}

/// Normalises the fields of a response before it is evaluated: removes hop-by-hop fields, adds
/// `Via` and a missing `Date`.
pub(crate) fn tidy_fields(headers: &mut HeaderMap, received: WallTime) {
    hop::strip_hop_by_hop(headers);
    hop::add_via(headers, http::Version::HTTP_11);
    // RFC 7838 section 3: another server of the origin would bypass this cache.
    headers.remove(ALT_SVC);
    // RFC 9110 section 6.6.1: a recipient with a clock adds the time of receipt as Date.
    if !headers.contains_key(DATE) {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(received.as_secs());
        if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(at)) {
            headers.insert(DATE, date);
        }
    }
}
