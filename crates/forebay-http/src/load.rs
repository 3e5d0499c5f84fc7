//! How the engine asks an origin over HTTP; `load/judge.rs` says what the answer means,
//! `load/part.rs` asks for parts of a body alone, and `load/by_body.rs` on behalf of a request's
//! body.

mod by_body;
mod judge;
mod lower_tiers;
mod part;
mod received;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Key, KeyRef, WallTime};
use forebay_engine::{
    Ask, Clock, Coalesce, Company, Credentials, Engine, Entry, Head, Load, LoadError, Loaded, Look,
    Obtained, Select, TierErrors, Watch,
};
use forebay_semantics::partial::{ContentRange, Span, ask_for_missing};
use forebay_semantics::storable::Unstorable;
use forebay_semantics::vary::selecting_value;
use forebay_semantics::{forwarding, hop, validate};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HOST, IF_RANGE, RANGE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use parking_lot::Mutex;

use crate::front::Interims;
use crate::head::Answer;
use crate::key::SCHEME;
use crate::origin::{OriginBody, Question, closed_idle, no_body};
use crate::partial::{self, Partial};
use crate::service::credentials;
use crate::site::Site;

pub(crate) use by_body::ByBodyLoad;
pub(crate) use lower_tiers::LowerTiersOnly;
pub(crate) use part::PartLoad;
pub(crate) use received::{PurgeWatch, ReceivedLoad};

/// A single question has the same time as all together, and knows better what it waited for: it is
/// given the moment to say so.
const LAST_WORD: Duration = Duration::from_millis(5);

/// How often all of an answer is asked for: an origin that once answers with a 304 that nobody
/// asked for may have confused two requests.
const QUESTIONS_MAX: usize = 2;

/// One request's way to its origin. Cheap to clone: the request is shared.
#[derive(Clone)]
pub(crate) struct HttpLoad(Arc<Work>);

/// A request, and what comes of it.
struct Work {
    request: ClientRequest,
    engine: Arc<Engine>,
    /// What the target is stored under.
    key: Key,
    fetch_mode: FetchMode,
    details: LoadDetails,
}

/// What is asked of the origin for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchMode {
    /// The whole, for everybody.
    Whole,
    /// The whole; of what is for one client alone, only what that client asked for, on the
    /// conditions that it named.
    AsRequested,
    /// What is asked for is a head.
    Head,
}

/// What a load tells the one it was for, beside its answer.
#[derive(Debug, Default)]
pub(crate) struct LoadDetails {
    /// Fields that nobody else is given.
    pub(crate) own: OnceLock<HeaderMap>,
    /// Why the answer was not stored.
    pub(crate) refused: OnceLock<Unstorable>,
    /// Which part the origin sent, where it was asked for one, and which it said that it is.
    pub(crate) part: OnceLock<(ContentRange, HeaderValue)>,
    /// With what the origin answered, where that is not the status of what is served.
    pub(crate) status: OnceLock<StatusCode>,
    /// Set if the origin was sent the client's own conditions, and answered in full.
    pub(crate) judged_by_origin: OnceLock<()>,
    /// The whole answer that came in place of a part, for the client whose request brought it.
    pub(crate) whole: Mutex<Option<Obtained>>,
}

/// What is asked, and of whom.
pub(crate) struct ClientRequest {
    pub(crate) site: Arc<Site>,
    pub(crate) clock: Arc<dyn Clock>,
    /// As it stands in the key.
    pub(crate) target: PathAndQuery,
    /// As the key has it.
    pub(crate) authority: Box<str>,
    /// The client's fields.
    pub(crate) headers: HeaderMap,
    pub(crate) peer: IpAddr,
    /// The way of interim responses to the client who asked first.
    pub(crate) interims: Interims,
}

impl HttpLoad {
    pub(crate) fn new(
        request: ClientRequest,
        (engine, key): (Arc<Engine>, Key),
        fetch_mode: FetchMode,
    ) -> Self {
        let details = LoadDetails::default();
        Self(Arc::new(Work { request, engine, key, fetch_mode, details }))
    }

    pub(crate) fn request(&self) -> &ClientRequest {
        &self.0.request
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.0.request.headers
    }

    /// Empty until the load has come to its end.
    pub(crate) fn details(&self) -> &LoadDetails {
        &self.0.details
    }

    /// Where the answer is stored.
    fn place(&self) -> (&Arc<Engine>, KeyRef<'_>) {
        (&self.0.engine, self.0.key.borrowed())
    }

    /// Watches for purges of the place where the answer is stored.
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

/// What a request holds in a selecting field *as the origin is sent it*. Otherwise an answer that
/// was made for one client's address, or for a field that never left here, would be found by those
/// who merely claim it.
pub(crate) fn selecting<'a>(
    headers: &'a HeaderMap,
    peer: IpAddr,
    name: &str,
) -> Option<Cow<'a, [u8]>> {
    match name {
        "x-forwarded-for" => Some(Cow::Owned(peer.to_canonical().to_string().into_bytes())),
        // Of one key, all requests have the same.
        "x-forwarded-host" | "x-forwarded-proto" => None,
        _ if !headers.contains_key(CONNECTION) => selecting_value(headers, name),
        _ => sent_value(headers, name),
    }
}

/// `Connection` can make any field one that goes no further, but for those that are for everybody.
fn sent_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, [u8]>> {
    let names_it = |line: &HeaderValue| {
        let mut options = line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        options.any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    };
    if !headers.get_all(CONNECTION).into_iter().any(names_it) {
        return selecting_value(headers, name);
    }
    let mut sent = headers.clone();
    hop::strip_hop_by_hop(&mut sent);
    selecting_value(&sent, name).map(|value| Cow::Owned(value.into_owned()))
}

impl Load for HttpLoad {
    /// However many questions it takes, all of them together have the time of one.
    async fn load(&self, prior: Option<Arc<Entry>>, company: Company) -> Result<Loaded, LoadError> {
        self.0.request.with_timeout(self.0.load(prior.as_deref(), company)).await
    }

    fn wants_part(&self) -> bool {
        self.headers().contains_key(RANGE)
    }

    fn tier_errors(&self) -> TierErrors {
        self.0.request.site.settings.tier_errors
    }

    fn lease_wait_max(&self) -> Option<Duration> {
        Some(self.0.request.site.settings.lease_wait_max)
    }

    fn revive(&self, head: Bytes) -> Option<Head> {
        Answer::decode(head).map(Answer::into_head)
    }
}

impl Work {
    async fn load(&self, prior: Option<&Entry>, company: Company) -> Result<Loaded, LoadError> {
        let is_for_one = self.fetch_mode == FetchMode::AsRequested && company == Company::Alone;
        match prior {
            // What is stored is not what such a client is going to get.
            Some(_) if is_for_one && self.is_known_private() => {
                self.fetch_as_requested(prior).await
            }
            None if is_for_one => self.fetch_as_requested(None).await,
            Some(prior) => self.about(prior, company).await,
            None => self.anew(company).await,
        }
    }

    fn is_known_private(&self) -> bool {
        let credentials = credentials(&self.request.headers);
        self.engine.is_known_private(self.key.borrowed(), credentials)
    }

    /// Asks whether what is stored is still good.
    async fn about(&self, prior: &Entry, company: Company) -> Result<Loaded, LoadError> {
        let Some(validator) = prior.meta.validator() else {
            return match self.fetch_mode {
                FetchMode::Head => self.revalidate_by_head(prior, company).await,
                FetchMode::Whole | FetchMode::AsRequested => {
                    self.fetch_whole(Some(prior), company).await
                }
            };
        };
        let question = || {
            self.request.question(|fields| {
                validate::make_conditional(fields, validator);
            })
        };
        let (response, delay) = self.request.ask(question, company).await?;
        if response.status() != StatusCode::NOT_MODIFIED {
            return self.judge((response, delay), Some(prior));
        }
        if let Some(unchanged) = self.unchanged((&response, delay), prior) {
            return Ok(unchanged);
        }
        // RFC 9111 section 4.3.3: a 304 about some other response is no answer; ask for all.
        drop(response);
        self.fetch_whole(Some(prior), company).await
    }

    /// Asks for what is not stored at all.
    async fn anew(&self, company: Company) -> Result<Loaded, LoadError> {
        if let Some(loaded) = self.fetch_missing_part(company).await? {
            return Ok(loaded);
        }
        self.fetch_whole(None, company).await
    }

    /// RFC 9111 section 3.4: where only one piece is missing of a body, that is all that is asked
    /// for. What was purged before this load departed is not found here.
    async fn fetch_missing_part(&self, company: Company) -> Result<Option<Loaded>, LoadError> {
        let Some((stored, bytes)) = self.stored_parts().await else { return Ok(None) };
        let ask = |fields: &mut HeaderMap| ask_for_missing(fields, &stored.headers, &stored.parts);
        if !ask(&mut HeaderMap::new()) {
            return Ok(None);
        }
        let question = || {
            self.request.question(|fields| {
                ask(fields);
            })
        };
        let (response, delay) = self.request.ask(question, company).await?;
        if response.status() != StatusCode::PARTIAL_CONTENT {
            return self.judge((response, delay), None).map(Some);
        }
        self.completed((response, delay), (&stored, bytes)).await
    }

    async fn stored_parts(&self) -> Option<(Partial, Bytes)> {
        let key = partial::key_of(self.key.borrowed());
        let select = &self.request;
        let (demand, credentials) = (&Demand::default(), Credentials::Anonymous);
        let ask =
            Ask { key: key.borrowed(), demand, select, credentials, coalesce: Coalesce::Here };
        let entry = match self.engine.look(&ask) {
            Look::Served(obtained) => obtained.entry,
            Look::Wanting(wanting) => wanting.prior()?.clone(),
        };
        let stored = Partial::of(&entry)?.into_owned();
        // Any more questions than one would cost the origin more than the whole does.
        let mut all = stored.parts.clone();
        let (from, to) = all.missing()?;
        let complete = stored.parts.complete()?;
        let last = to.unwrap_or(complete.checked_sub(1)?);
        let gap = ContentRange { span: Span { first: from, last }, complete: Some(complete) };
        if stored.parts.spans().is_empty() || !all.insert(gap) || !all.is_whole() {
            return None;
        }
        let bytes = entry.body.reader().collect().await.ok()?;
        Some((stored, bytes))
    }

    async fn fetch_whole(
        &self,
        prior: Option<&Entry>,
        company: Company,
    ) -> Result<Loaded, LoadError> {
        for _ in 0..QUESTIONS_MAX {
            let question = || self.request.question(|_| {});
            let (response, delay) = self.request.ask(question, company).await?;
            if response.status() != StatusCode::NOT_MODIFIED {
                return self.judge((response, delay), prior);
            }
        }
        Err(LoadError::origin("the origin answered 304 to an unconditional request"))
    }

    /// Of what may not be stored, its client gets what it asked for, and no more is fetched. The
    /// client's conditions are the origin's to judge: it alone knows what this client would get
    /// (RFC 9110 section 13.2.1).
    async fn fetch_as_requested(&self, prior: Option<&Entry>) -> Result<Loaded, LoadError> {
        let client = &self.request.headers;
        let question = || {
            self.request.question(|fields| {
                self.request.take_range(fields);
                validate::take_conditions(fields, client);
            })
        };
        let (response, delay) = self.request.ask(question, Company::Alone).await?;
        if response.status() != StatusCode::NOT_MODIFIED {
            let _ = self.details.judged_by_origin.set(());
            return self.judge((response, delay), prior);
        }
        if validate::asks_whether_modified(client) {
            return self.judge_not_modified(response);
        }
        self.fetch_whole(prior, Company::Alone).await
    }

    /// A HEAD for what is stored and cannot be validated: a GET would bring all of it again.
    async fn revalidate_by_head(
        &self,
        prior: &Entry,
        company: Company,
    ) -> Result<Loaded, LoadError> {
        let question = || Question { method: Method::HEAD, ..self.request.question(|_| {}) };
        let (response, delay) = self.request.ask(question, company).await?;
        self.judge_head((response, delay), prior).await
    }
}

impl Select for ClientRequest {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        selecting(&self.headers, self.peer, name)
    }
}

impl ClientRequest {
    /// See [`HttpLoad::load`].
    async fn with_timeout(
        &self,
        load: impl Future<Output = Result<Loaded, LoadError>>,
    ) -> Result<Loaded, LoadError> {
        let patience = self.site.settings.fetch_timeout;
        let loaded = tokio::time::timeout(patience + LAST_WORD, load).await;
        loaded.unwrap_or(Err(LoadError::TimedOut(patience)))
    }

    /// The client's fields as the origin gets them: re-made, not passed on.
    pub(crate) fn outgoing_fields(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        let authority = HeaderValue::from_str(&self.authority).ok();
        hop::strip_hop_by_hop(&mut headers);
        forwarding::replace_forwarding(&mut headers, self.peer, SCHEME, authority.as_ref());
        let host = self.site.settings.origin.host.clone().or(authority);
        if let Some(host) = host {
            headers.insert(HOST, host);
        }
        hop::add_via(&mut headers, http::Version::HTTP_11);
        headers
    }

    /// Asks a question that is safe to be asked twice.
    async fn ask(
        &self,
        question: impl Fn() -> Question,
        company: Company,
    ) -> Result<(Response<OriginBody>, Duration), LoadError> {
        match self.ask_once(question(), company).await {
            // RFC 9112 section 9.3.1: what is safe may be sent once more.
            Err(error) if closed_idle(&error) => self.ask_once(question(), company).await,
            answered => answered,
        }
    }

    /// Asks a question that may not be asked twice.
    async fn ask_once(
        &self,
        question: Question,
        company: Company,
    ) -> Result<(Response<OriginBody>, Duration), LoadError> {
        let sent = self.clock.exact();
        let mut response = self.site.origin.ask(question, company).await?;
        let delay = self.clock.exact().saturating_sub(sent);
        tidy_fields(response.headers_mut(), self.clock.wall());
        Ok((response, delay))
    }

    /// A GET for what fills the cache: never what one client's conditions happened to select. What
    /// it is to be conditional on, or limited to, is added by `with`.
    fn question(&self, with: impl FnOnce(&mut HeaderMap)) -> Question {
        let mut headers = self.outgoing_fields();
        validate::strip_conditions(&mut headers);
        // One client's expectation (RFC 9110 section 10.1.1), or the length of its empty body, is
        // no part of what everybody asks for.
        headers.remove(EXPECT);
        headers.remove(CONTENT_LENGTH);
        with(&mut headers);
        let (target, interims) = (self.target.clone(), self.interims.clone());
        Question { method: Method::GET, target, headers, body: no_body(), interims }
    }

    /// Asks for no more than the client did.
    fn take_range(&self, fields: &mut HeaderMap) {
        for name in [RANGE, IF_RANGE] {
            for value in self.headers.get_all(&name) {
                fields.append(name.clone(), value.clone());
            }
        }
    }
}

/// What an answer's fields are made to be before anything is decided by them.
pub(crate) fn tidy_fields(headers: &mut HeaderMap, received: WallTime) {
    hop::strip_hop_by_hop(headers);
    hop::add_via(headers, http::Version::HTTP_11);
    // RFC 9110 section 6.6.1: a recipient with a clock records when an answer without a date came.
    if !headers.contains_key(DATE) {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(received.as_secs());
        if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(at)) {
            headers.insert(DATE, date);
        }
    }
}
