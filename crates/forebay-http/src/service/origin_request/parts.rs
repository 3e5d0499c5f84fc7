//! Range requests for a body that is not stored as a whole. All other requests leave this file at
//! once, with [`PartialOutcome::FetchWhole`].
//!
//! The whole body is fetched once for all clients, and ranges are cut from it while it arrives. The
//! origin is asked for the range alone if the body is larger than the largest storable object or
//! [`WHOLE_MAX`], or if the range is at its end. That part is stored beside other parts of the
//! body. A lower tier with the whole body is read first, because it reads only the range.

use std::sync::Arc;

use forebay_core::{Presence, Why};
use forebay_engine::{Coalesce, Entry, Lookup, LookupResult, Miss, Outcome, Source};
use forebay_semantics::range::{RangeStart, range_start};
use http::header::{IF_RANGE, RANGE};
use http::{HeaderMap, Method};

use super::{
    LabelledResponse, LoadRequest, OriginRequest, cache_label, failure_of, origin_time, served,
};
use crate::load::{LowerTiersOnly, PartLoad};
use crate::response::deliver::{RequestHead, announced, deliver_part};
use crate::stored::head::Answer;
use crate::stored::partial::{self, Partial};

/// Maximum size in bytes of a body that is fetched as a whole for a range request. A body of this
/// size usually arrives within a second, and most clients request further ranges.
const WHOLE_MAX: u64 = 16 << 20;

/// Flight name of lookups of the whole body in lower tiers, which keeps them apart from loads of
/// the same key.
const BELOW: &[u8] = b"below";

/// Result of a lookup among the stored parts.
enum PartialOutcome {
    /// The response, made from stored parts or a newly loaded one.
    Answered(Box<LabelledResponse>),
    /// The whole body must be fetched.
    FetchWhole(RangeSupport),
}

/// Support of the origin for range requests of this target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeSupport {
    /// Not known to be refused.
    Assumed,
    /// A recent range request got a response other than 206.
    Refused,
}

impl OriginRequest<'_> {
    /// Answers a GET with `Range` for which no whole body is stored.
    pub(super) async fn fetch_range(
        &self,
        load_request: LoadRequest<'_>,
        wanting: Miss,
    ) -> LabelledResponse {
        match self.answer_with_parts(load_request).await {
            PartialOutcome::Answered(done) => *done,
            PartialOutcome::FetchWhole(parts) => {
                self.deliver_whole_or_part(load_request, wanting, parts).await
            }
        }
    }

    /// Answers from stored parts, or loads the requested part.
    async fn answer_with_parts(&self, load_request: LoadRequest<'_>) -> PartialOutcome {
        let headers = load_request.load.headers();
        let key = partial::key_of(load_request.key.borrowed());
        let look = self.service.engine().lookup(&self.ask(
            key.borrowed(),
            load_request.demand,
            load_request.load,
        ));
        let known = match &look {
            LookupResult::Hit(obtained) => Partial::of(&obtained.entry),
            LookupResult::Miss(wanting) => wanting.prior().and_then(|prior| Partial::of(prior)),
        };
        if let LookupResult::Hit(obtained) = &look {
            if known.as_ref().is_some_and(|known| known.parts.spans().is_empty()) {
                return PartialOutcome::FetchWhole(RangeSupport::Refused);
            }
            if let Some(done) = self.deliver_part(load_request, obtained) {
                return PartialOutcome::Answered(Box::new(done));
            }
        }
        let complete = known.as_ref().and_then(|known| known.parts.complete());
        // A response that must not be stored is requested as the client asked for it.
        let keeps_nothing = load_request.demand.only_if_cached || load_request.demand.no_store;
        if keeps_nothing || !self.is_asked_for_alone(headers, complete) {
            return PartialOutcome::FetchWhole(RangeSupport::Assumed);
        }
        if let Some(done) = self.part_from_lower_tier(load_request).await {
            return PartialOutcome::Answered(Box::new(done));
        }
        let why = if known.is_some() { Why::Partial } else { self.why };
        self.ask_for_part(load_request, why).await
    }

    /// Returns the range of a whole body that a lower tier has, or `None`.
    async fn part_from_lower_tier(
        &self,
        load_request: LoadRequest<'_>,
    ) -> Option<LabelledResponse> {
        let engine = self.service.engine();
        engine.lower_tiers().next()?;
        let LookupResult::Miss(wanting) = self.look_whole(load_request) else { return None };
        let wanting = wanting.about(load_request.key.borrowed(), BELOW);
        let ask = self.ask(load_request.key.borrowed(), load_request.demand, load_request.load);
        let obtained =
            wanting.load(engine, &ask, LowerTiersOnly(load_request.load.clone())).await.ok()?;
        let is_stored = matches!(obtained.source, Source::Tier(_) | Source::Followed);
        is_stored.then(|| self.deliver(load_request, &obtained, &Method::GET))
    }

    /// Returns true if the origin is asked for the range alone.
    fn is_asked_for_alone(&self, headers: &HeaderMap, complete: Option<u64>) -> bool {
        match (complete, range_start(headers)) {
            (_, None) => false,
            (Some(length), Some(_)) => length > self.whole_max(),
            (None, Some(RangeStart::At(first))) => first >= self.whole_max(),
            (None, Some(RangeStart::BeforeEnd(_))) => true,
        }
    }

    fn whole_max(&self) -> u64 {
        WHOLE_MAX.min(self.service.engine().memory().object_max(Presence::Present))
    }

    /// Fetches the whole body. If its head states a size beyond the limit, the requested part is
    /// loaded instead.
    async fn deliver_whole_or_part(
        &self,
        load_request: LoadRequest<'_>,
        wanting: Miss,
        sends: RangeSupport,
    ) -> LabelledResponse {
        let obtained = match self.obtain_whole(load_request, wanting).await {
            Ok(obtained) => obtained,
            Err(failure) => return self.failed(&failure, load_request.load.headers()),
        };
        if sends == RangeSupport::Refused
            || !self.is_too_large(load_request.load.headers(), &obtained.entry)
        {
            return self.deliver(load_request, &obtained, &Method::GET);
        }
        // This drops the only reader, so that an unstored body is not fetched further.
        drop(obtained);
        match self.ask_for_part(load_request, self.why).await {
            PartialOutcome::Answered(done) => *done,
            PartialOutcome::FetchWhole(_) => match self.look_whole(load_request) {
                LookupResult::Hit(obtained) => self.deliver(load_request, &obtained, &Method::GET),
                LookupResult::Miss(wanting) => {
                    self.fetch_whole(load_request, wanting, &Method::GET).await
                }
            },
        }
    }

    fn look_whole(&self, LoadRequest { key, demand, load }: LoadRequest<'_>) -> LookupResult {
        self.service.engine().lookup(&self.ask(key.borrowed(), demand, load))
    }

    /// Returns true if the body is too large to wait for the range. A range that starts at byte 0
    /// is available at once.
    fn is_too_large(&self, headers: &HeaderMap, entry: &Entry) -> bool {
        let begins_later = !matches!(range_start(headers), None | Some(RangeStart::At(0)));
        let length = || announced(&Answer::of(entry)?, entry);
        begins_later
            && !entry.body.is_whole()
            && length().is_some_and(|length| length > self.whole_max())
    }

    /// Loads the requested part. Requests for the same range share the load. If a part loaded by
    /// another request lacks the range, the second attempt is not shared.
    async fn ask_for_part(&self, load_request: LoadRequest<'_>, why: Why) -> PartialOutcome {
        let engine = self.service.engine();
        let key = partial::key_of(load_request.key.borrowed());
        let question = question(load_request.load.headers());
        // Each instance combines parts for itself.
        let here = self.site.settings.coalesce.within_instance();
        for coalesce in [here, Coalesce::Never] {
            let ask = Lookup {
                coalesce,
                ..self.ask(key.borrowed(), load_request.demand, load_request.load)
            };
            let wanting = match engine.lookup(&ask) {
                LookupResult::Hit(obtained) => engine.miss_for_part(&ask, obtained),
                LookupResult::Miss(wanting) if wanting.is_served_first() => wanting.for_part(),
                LookupResult::Miss(wanting) => wanting,
            };
            let wanting = wanting.about(key.borrowed(), &question);
            let load = PartLoad(load_request.load.clone());
            let obtained = match wanting.load(engine, &ask, load).await {
                Ok(obtained) => Outcome { why: Some(why), ..obtained },
                Err(error) => {
                    let request = load_request.load.request();
                    let done = self.failed_load(&failure_of(error), request);
                    return PartialOutcome::Answered(Box::new(done));
                }
            };
            if obtained.entry.head.view::<Partial>().is_none() {
                let done = self.deliver(load_request, &obtained, &Method::GET);
                return PartialOutcome::Answered(Box::new(done));
            }
            if let Some(whole) = load_request.load.details().whole.lock().take() {
                let whole = Outcome { why: Some(why), ..whole };
                let done = self.deliver(load_request, &whole, &Method::GET);
                return PartialOutcome::Answered(Box::new(done));
            }
            if is_refusal(&obtained.entry) {
                return PartialOutcome::FetchWhole(RangeSupport::Refused);
            }
            if let Some(done) = self.deliver_part(load_request, &obtained) {
                return PartialOutcome::Answered(Box::new(done));
            }
        }
        PartialOutcome::FetchWhole(RangeSupport::Refused)
    }

    fn deliver_part(
        &self,
        load_request: LoadRequest<'_>,
        obtained: &Outcome,
    ) -> Option<LabelledResponse> {
        let head = RequestHead { method: &Method::GET, headers: load_request.load.headers() };
        let now = self.service.engine().clock().now();
        let mut response = deliver_part(head, obtained, load_request.load.details(), now)?;
        self.count(obtained);
        self.edit_response(&mut response, head.headers, served(obtained.source));
        let why = Some(obtained.why.unwrap_or(self.why));
        let origin_time = origin_time(load_request, obtained);
        Some(LabelledResponse { response, cache: cache_label(obtained), why, origin_time })
    }
}

/// Returns true if the entry records that the origin refuses range requests.
fn is_refusal(entry: &Arc<Entry>) -> bool {
    Partial::of(entry).is_none_or(|known| known.parts.spans().is_empty())
}

/// Returns the flight name of a range: requests with equal `Range` and `If-Range` share a load.
fn question(headers: &HeaderMap) -> Vec<u8> {
    let mut question = Vec::new();
    for name in [RANGE, IF_RANGE] {
        for value in headers.get_all(name) {
            question.extend_from_slice(value.as_bytes());
        }
        // A field value contains no line break.
        question.push(b'\n');
    }
    question
}
