//! A request for a part of a body that is not stored whole.
//!
//! What is asked of the origin is a matter of size. The whole is fetched once, for everybody, and
//! parts are cut from it as they come: unless it is larger than what is kept, or the part lies at
//! its end, where the whole of it would have to come first. Then the origin is asked for the part,
//! and that is stored beside others of the same body. A tier below memory that has the whole is
//! asked first: it reads no more than the part.

use std::sync::Arc;

use forebay_core::{Presence, Why};
use forebay_engine::{Ask, Coalesce, Entry, Look, Obtained, Via, Wanting};
use forebay_semantics::range::{Begins, begins};
use http::header::{IF_RANGE, RANGE};
use http::{HeaderMap, Method};

use super::{LabelledResponse, LoadRequest, OriginRequest, cache_label, failure_of};
use crate::deliver::{RequestHead, announced, deliver_part};
use crate::head::Answer;
use crate::load::{LowerTiersOnly, PartLoad};
use crate::partial::{self, Partial};

/// A body of more than this is not fetched whole for the sake of a part. One that is as large as
/// this still comes within a second over most lines, and whoever wants a part mostly wants more.
const WHOLE_MAX: u64 = 16 << 20;

/// What those who look for a whole below memory share: not what others load meanwhile.
const BELOW: &[u8] = b"below";

/// What stored parts could do for a request.
pub(super) enum PartialOutcome {
    /// It is answered, by them or by one that was asked for.
    Answered(LabelledResponse),
    /// The whole is to be asked for.
    FetchWhole(RangeSupport),
}

/// Whether the origin sends parts of the body in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeSupport {
    /// As far as anybody knows.
    Assumed,
    /// It was asked for one a while ago, and sent something else.
    Refused,
}

impl OriginRequest<'_> {
    /// Answers with stored parts, or with one that has to be asked for.
    pub(super) async fn answer_with_parts(&self, load_request: LoadRequest<'_>) -> PartialOutcome {
        let headers = load_request.load.headers();
        if !headers.contains_key(RANGE) {
            return PartialOutcome::FetchWhole(RangeSupport::Assumed);
        }
        let key = partial::key_of(load_request.key.borrowed());
        let look = self.service.engine().look(&self.ask(
            key.borrowed(),
            load_request.demand,
            load_request.load,
        ));
        let known = match &look {
            Look::Served(obtained) => Partial::of(&obtained.entry),
            Look::Wanting(wanting) => wanting.prior().and_then(|prior| Partial::of(prior)),
        };
        if let Look::Served(obtained) = &look {
            if known.as_ref().is_some_and(|known| known.parts.spans().is_empty()) {
                return PartialOutcome::FetchWhole(RangeSupport::Refused);
            }
            if let Some(done) = self.deliver_part(load_request, obtained) {
                return PartialOutcome::Answered(done);
            }
        }
        let complete = known.as_ref().and_then(|known| known.parts.complete());
        // What may not be kept is asked for as the client asks for it, one way or the other.
        let keeps_nothing = load_request.demand.only_if_cached || load_request.demand.no_store;
        if keeps_nothing || !self.is_asked_for_alone(headers, complete) {
            return PartialOutcome::FetchWhole(RangeSupport::Assumed);
        }
        if let Some(done) = self.part_from_lower_tier(load_request).await {
            return PartialOutcome::Answered(done);
        }
        let why = if known.is_some() { Why::Partial } else { self.why };
        self.ask_for_part(load_request, why).await
    }

    /// The part, out of a whole that a lower tier has.
    async fn part_from_lower_tier(
        &self,
        load_request: LoadRequest<'_>,
    ) -> Option<LabelledResponse> {
        let engine = self.service.engine();
        engine.lower_tiers().next()?;
        let Look::Wanting(wanting) = self.look_whole(load_request) else { return None };
        let wanting = wanting.about(load_request.key.borrowed(), BELOW);
        let ask = self.ask(load_request.key.borrowed(), load_request.demand, load_request.load);
        let obtained =
            engine.fetch(&ask, wanting, LowerTiersOnly(load_request.load.clone())).await.ok()?;
        let is_stored = matches!(obtained.via, Via::Tier(_) | Via::Followed);
        is_stored.then(|| self.deliver(load_request, &obtained, &Method::GET))
    }

    /// Whether a range is asked of the origin without the rest.
    fn is_asked_for_alone(&self, headers: &HeaderMap, complete: Option<u64>) -> bool {
        match (complete, begins(headers)) {
            (_, None) => false,
            (Some(length), Some(_)) => length > self.whole_max(),
            (None, Some(Begins::At(first))) => first >= self.whole_max(),
            (None, Some(Begins::BeforeEnd(_))) => true,
        }
    }

    fn whole_max(&self) -> u64 {
        WHOLE_MAX.min(self.service.engine().memory().object_max(Presence::Present))
    }

    /// The whole; but where its head says that it is too large for that, the part that is wanted.
    pub(super) async fn whole_or_part(
        &self,
        load_request: LoadRequest<'_>,
        wanting: Wanting,
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
        // Nobody reads it any more for this request: a body that is not kept ends here.
        drop(obtained);
        match self.ask_for_part(load_request, self.why).await {
            PartialOutcome::Answered(done) => done,
            PartialOutcome::FetchWhole(_) => match self.look_whole(load_request) {
                Look::Served(obtained) => self.deliver(load_request, &obtained, &Method::GET),
                Look::Wanting(wanting) => {
                    self.fetch_whole(load_request, wanting, &Method::GET).await
                }
            },
        }
    }

    fn look_whole(&self, LoadRequest { key, demand, load }: LoadRequest<'_>) -> Look {
        self.service.engine().look(&self.ask(key.borrowed(), demand, load))
    }

    /// What begins at the first byte is as good as the whole.
    fn is_too_large(&self, headers: &HeaderMap, entry: &Entry) -> bool {
        let begins_later = !matches!(begins(headers), None | Some(Begins::At(0)));
        let length = || announced(&*Answer::of(entry)?, entry);
        begins_later
            && !entry.body.is_whole()
            && length().is_some_and(|length| length > self.whole_max())
    }

    /// Those who ask for the same range share what comes. What was brought by somebody else in the
    /// meantime may not hold it: then this one asks alone.
    async fn ask_for_part(&self, load_request: LoadRequest<'_>, why: Why) -> PartialOutcome {
        let engine = self.service.engine();
        let key = partial::key_of(load_request.key.borrowed());
        let question = question(load_request.load.headers());
        // Parts are put together by each instance for itself.
        let here = self.site.settings.coalesce.within_instance();
        for coalesce in [here, Coalesce::Nowhere] {
            let ask = Ask {
                coalesce,
                ..self.ask(key.borrowed(), load_request.demand, load_request.load)
            };
            let wanting = match engine.look(&ask) {
                Look::Served(obtained) => engine.lacking(&ask, obtained),
                Look::Wanting(wanting) if wanting.is_served_first() => wanting.lacking(),
                Look::Wanting(wanting) => wanting,
            };
            let wanting = wanting.about(key.borrowed(), &question);
            let load = PartLoad(load_request.load.clone());
            let obtained = match engine.fetch(&ask, wanting, load).await {
                Ok(obtained) => Obtained { why: Some(why), ..obtained },
                Err(error) => {
                    return PartialOutcome::Answered(
                        self.failed(&failure_of(error), load_request.load.headers()),
                    );
                }
            };
            if obtained.entry.head.view::<Partial>().is_none() {
                return PartialOutcome::Answered(self.deliver(
                    load_request,
                    &obtained,
                    &Method::GET,
                ));
            }
            if let Some(whole) = load_request.load.details().whole.lock().take() {
                let whole = Obtained { why: Some(why), ..whole };
                return PartialOutcome::Answered(self.deliver(load_request, &whole, &Method::GET));
            }
            if is_refusal(&obtained.entry) {
                return PartialOutcome::FetchWhole(RangeSupport::Refused);
            }
            if let Some(done) = self.deliver_part(load_request, &obtained) {
                return PartialOutcome::Answered(done);
            }
        }
        PartialOutcome::FetchWhole(RangeSupport::Refused)
    }

    fn deliver_part(
        &self,
        load_request: LoadRequest<'_>,
        obtained: &Obtained,
    ) -> Option<LabelledResponse> {
        let asker = RequestHead { method: &Method::GET, headers: load_request.load.headers() };
        let now = self.service.engine().clock().now();
        let response = deliver_part(asker, obtained, (load_request.load.details(), now))?;
        self.count(obtained);
        let why = Some(obtained.why.unwrap_or(self.why));
        Some(LabelledResponse { response, cache: cache_label(obtained), why })
    }
}

/// Whether an entry says that there are no parts to be had.
fn is_refusal(entry: &Arc<Entry>) -> bool {
    Partial::of(entry).is_none_or(|known| known.parts.spans().is_empty())
}

/// What tells one range from another: those who ask for the same may share an answer.
fn question(headers: &HeaderMap) -> Vec<u8> {
    let mut question = Vec::new();
    for name in [RANGE, IF_RANGE] {
        for value in headers.get_all(name) {
            question.extend_from_slice(value.as_bytes());
        }
        // No value of a field holds a line break.
        question.push(b'\n');
    }
    question
}
