//! How the engine asks an origin over HTTP, and what the answer means.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Meta, TagSet, Trouble, Validator, WallTime, may_fall_back};
use forebay_engine::{
    Clock, Company, Entry, Head, Load, LoadError, Loaded, Passed, Select, Source,
};
use forebay_semantics::lifetime::{initial_age, lifetime};
use forebay_semantics::storable::{Answered, Asked, storable};
use forebay_semantics::vary::{Selects, selecting_value, selects};
use forebay_semantics::{forwarding, hop, validate};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::head::Answer;
use crate::key::SCHEME;
use crate::origin::{OriginBody, Question, closed_idle, no_body};
use crate::site::Site;

/// How long requests for a key go alone after an answer that may not be shared. Each further one
/// confirms it.
const PASS_REMEMBER: Duration = Duration::from_secs(10);

/// A single question has the same time as all together, and knows better what it waited for: it is
/// given the moment to say so.
const LAST_WORD: Duration = Duration::from_millis(5);

/// The fields by which origins name the tags of an answer.
const TAG_FIELDS: [&str; 2] = ["surrogate-key", "cache-tag"];

/// One request's way to its origin. Cheap to clone: the request is shared.
#[derive(Clone)]
pub(crate) struct HttpLoad(Arc<Asking>);

/// What is asked, and of whom.
pub(crate) struct Asking {
    pub(crate) site: Arc<Site>,
    pub(crate) clock: Arc<dyn Clock>,
    /// As it stands in the key.
    pub(crate) target: PathAndQuery,
    /// As the key has it.
    pub(crate) authority: Box<str>,
    /// The client's fields.
    pub(crate) headers: HeaderMap,
    pub(crate) peer: IpAddr,
}

impl HttpLoad {
    pub(crate) fn new(asking: Asking) -> Self {
        Self(Arc::new(asking))
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }
}

impl Select for HttpLoad {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        selecting(&self.0.headers, self.0.peer, name)
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
        let patience = self.0.site.settings.fetch_timeout;
        let loaded =
            tokio::time::timeout(patience + LAST_WORD, self.0.load(prior.as_deref(), company))
                .await;
        loaded.unwrap_or(Err(LoadError::TimedOut(patience)))
    }

    fn revive(&self, head: Bytes) -> Option<Head> {
        Answer::decode(head).map(Answer::into_head)
    }
}

impl Asking {
    async fn load(&self, prior: Option<&Entry>, company: Company) -> Result<Loaded, LoadError> {
        let validator = prior.and_then(|prior| prior.meta.validator.as_ref());
        let (response, delay) = self.ask(validator, company).await?;
        if response.status() != StatusCode::NOT_MODIFIED {
            return self.judge(response, delay, prior);
        }
        let stored = prior.filter(|_| validator.is_some());
        if let Some(unchanged) = stored.and_then(|prior| self.unchanged(&response, prior, delay)) {
            return Ok(unchanged);
        }
        // RFC 9111 section 4.3.3: a 304 about some other response is no answer; ask for all.
        drop(response);
        let (response, delay) = self.ask(None, company).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Err(LoadError::origin("304 in answer to an unconditional request"));
        }
        self.judge(response, delay, prior)
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

    /// Asks for the whole answer, or whether what `validator` names is still good. What fills the
    /// cache is never what one client's conditions happened to select.
    async fn ask(
        &self,
        validator: Option<&Validator>,
        company: Company,
    ) -> Result<(Response<OriginBody>, Duration), LoadError> {
        let sent = self.clock.exact();
        let origin = &self.site.origin;
        let mut response = match origin.ask(self.question(validator), company).await {
            // RFC 9112 section 9.3.1: a GET may be sent once more.
            Err(error) if closed_idle(&error) => {
                origin.ask(self.question(validator), company).await?
            }
            answered => answered?,
        };
        let delay = self.clock.exact().saturating_sub(sent);
        tidy_fields(response.headers_mut(), self.clock.wall());
        Ok((response, delay))
    }

    fn question(&self, validator: Option<&Validator>) -> Question {
        let mut headers = self.outgoing_fields();
        validate::strip_conditions(&mut headers);
        // One client's expectation (RFC 9110 section 10.1.1), or the length of its empty body, is
        // no part of what everybody asks for.
        headers.remove(EXPECT);
        headers.remove(CONTENT_LENGTH);
        if let Some(validator) = validator {
            validate::make_conditional(&mut headers, validator);
        }
        let target = self.target.clone();
        Question { method: Method::GET, target, headers, body: no_body() }
    }

    /// RFC 9111 section 4.3.4: the stored answer lives on, with the fields of the 304. Nothing if
    /// the 304 is not about it.
    fn unchanged<B>(
        &self,
        response: &Response<B>,
        prior: &Entry,
        delay: Duration,
    ) -> Option<Loaded> {
        let stored = Answer::of(prior)?;
        if !validate::confirms(&stored.headers, response.headers()) {
            return None;
        }
        let headers = validate::merge_not_modified(&stored.headers, response.headers());
        let merged = Answer { status: stored.status, headers };
        let meta = self.meta(&merged, delay);
        Some(Loaded::Unchanged { meta, head: Some(merged.into_head()) })
    }

    fn judge(
        &self,
        response: Response<OriginBody>,
        delay: Duration,
        prior: Option<&Entry>,
    ) -> Result<Loaded, LoadError> {
        let (parts, mut body) = response.into_parts();
        let answer = Answer { status: parts.status, headers: parts.headers };
        let asked = Asked { method: &Method::GET, headers: &self.headers };
        let answered = Answered { status: answer.status, headers: &answer.headers };
        let failed = is_failure(answer.status);
        if storable(asked, answered, &self.site.settings.rules).is_ok() {
            let meta = self.meta(&answer, delay);
            if !failed || self.may_replace(&meta, prior) {
                let source = Source::Stream(body.into_stream());
                return Ok(Loaded::Entry { meta, head: answer.into_head(), source });
            }
        }
        self.site.origin.set_alone(&mut body)?;
        let source = Source::Stream(body.into_stream());
        let status = answer.status.as_u16();
        let remember = if failed { Duration::ZERO } else { PASS_REMEMBER };
        let passed = Passed { head: answer.into_head(), source, remember };
        if !failed {
            return Ok(Loaded::Pass(passed));
        }
        Ok(Loaded::Failed { passed, error: LoadError::Answered(status) })
    }

    /// An error is stored where its origin says for how long it is fresh (frameworks put an ETag
    /// on anything), and never in the place of what may be served in its stead.
    fn may_replace(&self, error: &Meta, prior: Option<&Entry>) -> bool {
        let now = self.clock.now();
        error.is_fresh(now)
            && !prior.is_some_and(|prior| may_fall_back(&prior.meta, Trouble::Failed, now))
    }

    fn meta(&self, answer: &Answer, delay: Duration) -> Meta {
        let received = self.clock.wall();
        let answered = Answered { status: answer.status, headers: &answer.headers };
        let lifetime = lifetime(answered, &self.site.settings.rules, received);
        let age = initial_age(&answer.headers, received, delay);
        let mut meta = Meta::new(self.clock.now().minus(age), lifetime);
        meta.tags = tags(&answer.headers);
        meta.validator = validate::validator(&answer.headers);
        meta.vary = match selects(&answer.headers) {
            Selects::By(vary) => Some(vary),
            Selects::Nothing | Selects::Everything => None,
        };
        meta
    }
}

/// RFC 5861 section 4: the errors that stale-if-error is about.
const fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
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

fn tags(headers: &HeaderMap) -> TagSet {
    let values = TAG_FIELDS.iter().flat_map(|name| headers.get_all(*name));
    let texts = values.filter_map(|value| value.to_str().ok());
    TagSet::new(texts.flat_map(|text| text.split([' ', ','])).filter(|tag| !tag.is_empty()))
}
