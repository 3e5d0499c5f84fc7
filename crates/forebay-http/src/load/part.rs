//! Loads of one range, stored as a part.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Lifetime, Meta};
use forebay_engine::{
    Audience, Content, Entry, Head, HeadCodec, Load, LoadError, Loaded, Lookup, LookupResult,
    Passed, Select, TierCall, Waiting, Watch,
};
use forebay_semantics::partial::{
    ContentRange, Parts, can_combine, combined_fields, received_range,
};
use forebay_semantics::storable::{Storable, Unstorable, check_storable_part};
use forebay_semantics::validate::cookies_of;
use forebay_semantics::{RequestRef, ResponseRef};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, IF_RANGE, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};

use super::judge::{PASS_REMEMBER, is_failure};
use super::{
    ClientRequest, HttpLoad, PurgeWatch, Received, ReceivedLoad, SERVER_TIMING, SentPart,
    StoredParts,
};
use crate::client::credentials;
use crate::origin::OriginBody;
use crate::stored::head::Answer;
use crate::stored::partial::{Partial, join};

/// Maximum size in bytes of a stored part, and of all parts of one body together. A larger request
/// is a sequential read, and combining parts copies them.
const PARTS_SIZE_MAX: u64 = 4 << 20;

/// Time for which a refused range request is remembered. A repeated attempt costs the origin one
/// unused response.
const NO_PARTS_REMEMBER: Duration = Duration::from_secs(60);

/// Load of one range.
#[derive(Clone)]
pub(crate) struct PartLoad(pub(crate) HttpLoad);

impl Select for PartLoad {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.0.field(name)
    }

    fn variants_max(&self) -> usize {
        self.0.variants_max()
    }
}

impl Load for PartLoad {
    fn begins(&self, waiting: Waiting) {
        self.0.request().urgency.begins(waiting);
    }

    async fn load(
        &self,
        prior: Option<Arc<Entry>>,
        company: Audience,
    ) -> Result<Loaded, LoadError> {
        let request = self.0.request();
        let part = pin!(self.part(prior.as_deref(), company));
        request.with_timeout(&Method::GET, self.0.key(), part).await
    }

    fn tier_called(&self, call: TierCall) {
        self.0.request().note_tier_call(call);
    }
}

impl HeadCodec for PartLoad {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        Partial::decode(bytes).map(Partial::into_head)
    }
}

/// Stored form of a received part, combined with earlier ones.
struct CombinedPart {
    partial: Partial,
    kept: Storable,
}

/// Bytes of a part, buffered or still arriving.
enum PartContent {
    Here(Bytes),
    Flowing(OriginBody, u64),
}

impl PartLoad {
    async fn part(&self, prior: Option<&Entry>, company: Audience) -> Result<Loaded, LoadError> {
        let request = self.0.request();
        // A purge from here on may be newer than the response.
        let watch = self.0.watch();
        let question = || request.question(|fields| request.take_range(fields));
        let received = request.ask(question, company).await?;
        if is_whole(received.response.status()) && !request.headers().contains_key(IF_RANGE) {
            self.take_whole(received, watch).await;
            return Ok(no_parts(request));
        }
        drop(watch);
        let Received { response, delay, .. } = received;
        let (parts, body) = response.into_parts();
        let answer = Answer { status: parts.status, headers: parts.headers };
        match answer.status {
            StatusCode::PARTIAL_CONTENT => self.came(answer, delay, body, prior).await,
            StatusCode::RANGE_NOT_SATISFIABLE => self.pass(answer, body.into()),
            // The response to an If-Range depends on the client's copy.
            _ if request.headers().contains_key(IF_RANGE) => self.pass(answer, body.into()),
            status if is_failure(status) => self.pass(answer, body.into()),
            _ => Ok(no_parts(request)),
        }
    }

    /// Stores a whole response to a range request, and keeps it for the request that started the
    /// load. If this fails, the whole is requested again.
    async fn take_whole(&self, received: Received, watch: Watch) {
        let engine = &self.0.0.engine;
        let request = self.0.request();
        let coalesce = request.site.settings.coalesce.within_instance();
        let ask = Lookup {
            key: self.0.0.key.borrowed(),
            demand: &Demand::default(),
            select: &self.0,
            credentials: credentials(request.headers()),
            coalesce,
        };
        let wanting = match engine.lookup(&ask) {
            LookupResult::Hit(obtained) => engine.miss_for_part(&ask, obtained),
            LookupResult::Miss(wanting) => wanting.for_part(),
        };
        let watched = PurgeWatch { watch, own: 0, logged: 0 };
        let load = ReceivedLoad::new(self.0.clone(), received, watched);
        // Boxed, because most range requests get a part and never run this future.
        if let Ok(obtained) = Box::pin(wanting.load(engine, &ask, load)).await {
            *self.0.details().whole.lock() = Some(obtained);
        }
    }

    /// RFC 9111 sections 3.3 and 3.4: stores the part, combined with stored parts if possible.
    async fn came(
        &self,
        answer: Answer,
        delay: Duration,
        body: OriginBody,
        prior: Option<&Entry>,
    ) -> Result<Loaded, LoadError> {
        let announced =
            received_range(ResponseRef { status: answer.status, headers: &answer.headers });
        let Some(range) = announced.filter(|range| range.span.len() <= PARTS_SIZE_MAX) else {
            let _ = self.0.details().refused.set(Unstorable::Partial);
            return self.pass(answer, body.into());
        };
        let before = before(prior, &answer.headers).await;
        let content = match body.size_hint().exact() {
            Some(length) if before.is_none() => PartContent::Flowing(body, length),
            _ => PartContent::Here(collect(body).await?),
        };
        let range = range.came(content.length()).ok_or(Unstorable::Partial);
        let came = range.and_then(|range| self.read(&answer, range, before.as_ref()));
        let CombinedPart { mut partial, kept } = match came {
            Ok(came) => came,
            Err(refused) => {
                let _ = self.0.details().refused.set(refused);
                return self.pass(answer, content);
            }
        };
        partial.headers.remove(SERVER_TIMING);
        let described = Answer { status: answer.status, headers: partial.headers.clone() };
        let meta = self.0.request().meta(&described, &kept, delay);
        let mut own = kept.withheld.remove_from(&mut partial.headers);
        if !partial.headers.contains_key(SET_COOKIE) {
            own.extend(cookies_of(&answer.headers));
        }
        self.0.set_unshared_fields(own);
        if let Ok(range) = range {
            let said = answer.headers.get(CONTENT_RANGE).cloned();
            let said = said.unwrap_or_else(|| range.to_value());
            let _ = self.0.details().part.set(SentPart { range, stated: said });
        }
        let content = content.joined(&partial, before, range.ok())?;
        Ok(Loaded::Entry { meta, head: partial.into_head(), content })
    }

    /// Combines the metadata of the received part with that of stored parts.
    fn read(
        &self,
        answer: &Answer,
        range: ContentRange,
        before: Option<&StoredParts>,
    ) -> Result<CombinedPart, Unstorable> {
        let request = self.0.request();
        let mut headers = answer.headers.clone();
        let mut parts = Parts::default();
        if let Some(StoredParts { partial: before, .. }) = before {
            headers = combined_fields(&before.headers, &headers);
            headers.insert(CONTENT_RANGE, range.to_value());
            parts = before.parts.clone();
        }
        let asked = RequestRef { method: &Method::GET, headers: request.headers() };
        let answered = ResponseRef { status: answer.status, headers: &headers };
        let described = Answer { status: answer.status, headers: headers.clone() };
        request.check_type(&described.headers)?;
        let rules = request.rules.storing(&request.site, &described, &request.changes)?;
        let (kept, _) = check_storable_part(asked, answered, &rules, request.clock.wall())?;
        headers.remove(CONTENT_RANGE);
        headers.remove(CONTENT_LENGTH);
        let taken = parts.insert(range);
        let partial = Partial { headers, parts };
        if taken && partial.size() <= PARTS_SIZE_MAX {
            Ok(CombinedPart { partial, kept })
        } else {
            Err(Unstorable::Partial)
        }
    }

    /// Passes the part to the client. Other requests stay coalesced unless the response itself is
    /// private.
    fn pass(&self, answer: Answer, mut content: PartContent) -> Result<Loaded, LoadError> {
        if let PartContent::Flowing(body, _) = &mut content {
            self.0.request().site.origin.mark_unshared(body)?;
        }
        let status = answer.status;
        let remember = match self.0.details().refused.get() {
            None | Some(Unstorable::Partial | Unstorable::RequestNoStore) => Duration::ZERO,
            Some(_) => PASS_REMEMBER,
        };
        let head = answer.into_passed_head();
        let passed = Passed { head, content: content.into_source(), remember };
        if is_failure(status) {
            let error = LoadError::Answered(status.as_u16());
            return Ok(Loaded::Failed { passed, error });
        }
        Ok(Loaded::Pass(passed))
    }
}

impl From<OriginBody> for PartContent {
    fn from(body: OriginBody) -> Self {
        let length = body.size_hint().exact().unwrap_or(0);
        Self::Flowing(body, length)
    }
}

impl PartContent {
    const fn length(&self) -> u64 {
        match self {
            Self::Here(bytes) => bytes.len() as u64,
            Self::Flowing(_, length) => *length,
        }
    }

    fn into_source(self) -> Content {
        match self {
            Self::Here(bytes) => Content::Whole(bytes),
            Self::Flowing(body, _) => Content::Stream(body.into_stream()),
        }
    }

    /// Combines the received bytes with the stored ones.
    fn joined(
        self,
        partial: &Partial,
        before: Option<StoredParts>,
        range: Option<ContentRange>,
    ) -> Result<Content, LoadError> {
        let (Some(stored), Self::Here(new), Some(range)) = (before, &self, range) else {
            return Ok(self.into_source());
        };
        let mut parts = Parts::default();
        parts.insert(range);
        let alone = Partial { headers: HeaderMap::new(), parts };
        let all = join(partial, &[(&stored.partial, &stored.bytes), (&alone, new)]);
        all.map(Content::Whole).ok_or_else(|| {
            LoadError::origin(
                "the origin's partial response (206) cannot be combined with the stored parts",
            )
        })
    }
}

/// RFC 9111 section 3.4: parts are combined only under one strong validator.
async fn before(prior: Option<&Entry>, fresh: &HeaderMap) -> Option<StoredParts> {
    let prior = prior?;
    let stored = Partial::of(prior).filter(|stored| can_combine(&stored.headers, fresh))?;
    let bytes = prior.body.reader().collect().await.ok()?;
    Some(StoredParts { partial: stored.into_owned(), bytes })
}

/// Returns `true` if a status answers a request for a part with neither a part nor a failure.
const fn is_whole(status: StatusCode) -> bool {
    !matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE)
        && !matches!(status, StatusCode::NOT_MODIFIED)
        && !is_failure(status)
}

async fn collect(body: OriginBody) -> Result<Bytes, LoadError> {
    let limit = usize::try_from(PARTS_SIZE_MAX).unwrap_or(usize::MAX);
    let all = Limited::new(body, limit).collect().await;
    Ok(all.map_err(LoadError::origin)?.to_bytes())
}

/// Returns an entry that records that the origin refuses range requests for this target.
fn no_parts(request: &ClientRequest) -> Loaded {
    let none = Partial { headers: HeaderMap::new(), parts: Parts::default() };
    let meta = Meta::new(request.clock.now(), Lifetime::fresh(NO_PARTS_REMEMBER));
    Loaded::Entry { meta, head: none.into_head(), content: Content::Whole(Bytes::new()) }
}
