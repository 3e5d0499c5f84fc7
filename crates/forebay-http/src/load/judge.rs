//! Evaluation of an origin's response: storage, update of the stored response, or pass to the
//! client.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::judge::Dice;
use forebay_core::{Meta, OriginFailure, Presence, Purge, Reach, Validator, may_fall_back, pace};
use forebay_engine::clock::ThreadDice;
use forebay_engine::{Body, Content, Entry, Head, LoadError, Loaded, Passed};
use forebay_rules::Kind;
use forebay_semantics::freshen::{HeadValidation, validate_by_head};
use forebay_semantics::lifetime::{LifetimeOrigin, initial_age, lifetime, set_by};
use forebay_semantics::media_type::{is_contradicted, is_declared_shared};
use forebay_semantics::partial::{can_combine, combined_fields, received_range};
use forebay_semantics::storable::{
    Refusal, Storable, Unstorable, check_storable, check_storable_part, evaluate,
};
use forebay_semantics::validate;
use forebay_semantics::vary::{Selects, selects, selects_with_coding, selects_without_coding};
use forebay_semantics::withheld::Withheld;
use forebay_semantics::{FieldLines, RequestRef, ResponseRef, SearchVariance, SetBy, advice};
use futures_util::{StreamExt, stream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;

use super::decision::Judged;
use super::{ClientRequest, LoadState, Received, StoredParts};
use crate::origin::{OriginBody, PlainResponse};
use crate::site::equal_queries::MatchedTarget;
use crate::site::tags;
use crate::stored::head::Answer;

/// Time for which requests of a key are not coalesced after a response that must not be shared.
/// Each further one renews it, at most once a second.
pub(crate) const PASS_REMEMBER: Duration = Duration::from_secs(10);

/// Minimum lifetime that is spread: 5 % of a shorter one is below a second, the unit of HTTP.
const SPREAD_MIN: Duration = Duration::from_secs(20);

impl LoadState {
    /// Passes a 304 to the client whose own condition it answers. RFC 9110 section 15.4.5: its
    /// fields equal those of the 200, so they tell whether other requests need coalescing.
    pub(super) fn judge_not_modified(
        &self,
        response: Response<OriginBody>,
    ) -> Result<Loaded, LoadError> {
        let (parts, body) = response.into_parts();
        let whole = Answer { status: StatusCode::OK, headers: parts.headers };
        self.refused(self.request.check_storable(&whole).err().unwrap_or(Unstorable::Status));
        let answer = Answer { status: parts.status, ..whole };
        let _ = self.evaluate(&answer);
        self.pass(answer, body)
    }

    /// Evaluates a full response.
    pub(super) fn judge(
        &self,
        Received { response, delay, purges_at_send }: Received,
        prior: Option<&Entry>,
    ) -> Result<Loaded, LoadError> {
        let (parts, body) = response.into_parts();
        let mut answer = Answer { status: parts.status, headers: parts.headers };
        let cookies = self.request.take_cookies(&mut answer);
        match self.evaluate(&answer) {
            // A purge since the request was sent did not find this load, which did not exist yet.
            Ok(_) if purges_at_send.is_some_and(|before| self.engine.purges_so_far() != before) => {
                answer.headers.extend(cookies);
                return self.pass(answer, body).map(without_marker);
            }
            Ok(kept) => {
                let meta = self.request.meta(&answer, &kept, delay);
                if !self.request.is_failure(&answer) || self.may_replace(&meta, prior) {
                    self.request.count_unsafe(&answer);
                    self.request.note_equal_queries(&answer);
                    let mut own = kept.withheld.remove_from(&mut answer.headers);
                    own.extend(cookies);
                    self.set_unshared_fields(own);
                    let content = body.into_content();
                    let head = self.stored_head(answer, None);
                    return Ok(Loaded::Entry { meta, head, content });
                }
            }
            Err(refusal) => self.refused(refusal.first),
        }
        answer.headers.extend(cookies);
        self.pass(answer, body)
    }

    /// Passes a response to the client without storing it; `why` is the reason if the response
    /// itself states none.
    pub(super) fn pass_unstored(
        &self,
        response: Response<OriginBody>,
        why: Unstorable,
    ) -> Result<Loaded, LoadError> {
        let (parts, body) = response.into_parts();
        let answer = Answer { status: parts.status, headers: parts.headers };
        self.refused(self.evaluate(&answer).map_or_else(|refusal| refusal.first, |_| why));
        self.pass(answer, body)
    }

    /// Passes a response to the client. For an error of the origin, the engine may serve a stale
    /// entry instead.
    fn pass(&self, answer: Answer, mut body: OriginBody) -> Result<Loaded, LoadError> {
        self.request.site.origin.mark_unshared(&mut body)?;
        let remember = self.remember(&answer);
        let (status, is_failure) = (answer.status, self.request.is_failure(&answer));
        let content = body.into_content();
        let passed = Passed { head: answer.into_passed_head(), content, remember };
        if !is_failure {
            return Ok(Loaded::Pass(passed));
        }
        Ok(Loaded::Failed { passed, error: LoadError::Answered(status.as_u16()) })
    }

    /// Returns the time for which other requests are not coalesced after this response. A reason
    /// that lies in this request says nothing about others, and a part is evaluated like the whole.
    fn remember(&self, answer: &Answer) -> Duration {
        let shared_by_others = match self.details.refused.get() {
            Some(Unstorable::RequestNoStore) => true,
            Some(Unstorable::Status) => answer.status == StatusCode::NOT_MODIFIED,
            Some(Unstorable::Partial) => {
                let asked = RequestRef { method: &Method::GET, headers: self.request.headers() };
                let answered = ResponseRef { status: answer.status, headers: &answer.headers };
                let request = &self.request;
                let rules = request.rules.storing(&request.site, answer, &request.changes);
                let now = request.clock.wall();
                rules.is_ok_and(|rules| check_storable_part(asked, answered, &rules, now).is_ok())
            }
            _ => false,
        };
        let is_momentary = self.request.is_failure(answer) || shared_by_others;
        if is_momentary { Duration::ZERO } else { PASS_REMEMBER }
    }

    /// RFC 9111 section 4.3.4: updates the stored response by a 304. `None` if the 304 has another
    /// validator.
    pub(super) fn unchanged(
        &self,
        Received { response, delay, .. }: &Received,
        prior: &Entry,
    ) -> Option<Loaded> {
        let stored = Answer::of(prior)?;
        let is_confirmed = validate::confirms(&stored.headers, response.headers());
        is_confirmed.then(|| self.updated(response.headers(), *delay, prior, &stored))
    }

    /// Updates the stored response. If the result must not be shared, it is passed to the client,
    /// and the entry is not updated.
    fn updated(
        &self,
        fresh: &HeaderMap,
        delay: Duration,
        prior: &Entry,
        stored: &Answer,
    ) -> Loaded {
        let headers = validate::merge_not_modified(&stored.headers, fresh);
        let mut merged = Answer { status: stored.status, headers };
        let kept = match self.evaluate(&merged) {
            Ok(kept) => kept,
            // The engine respects the request's no-store, and a stale entry can still be validated.
            Err(Refusal {
                first: Unstorable::RequestNoStore | Unstorable::NoFreshness, ..
            }) => {
                let kept = self.request.storable_without_freshness(&merged);
                self.details.note(Judged::storable(&merged, kept.set_by));
                kept
            }
            Err(refusal) => {
                self.refused(refusal.first);
                self.set_unshared_fields(validate::cookies_of(fresh));
                let remember = PASS_REMEMBER;
                let content = source_of(&prior.body);
                return Loaded::Pass(Passed { head: merged.into_passed_head(), content, remember });
            }
        };
        let meta = self.request.meta(&merged, &kept, delay);
        let mut own = kept.withheld.remove_from(&mut merged.headers);
        own.extend(validate::cookies_of(fresh));
        self.set_unshared_fields(own);
        let head = self.stored_head(merged, Some(prior));
        Loaded::Unchanged { meta, head: Some(head) }
    }

    /// RFC 9111 section 3.4: completes stored parts with the missing range. `None` if the response
    /// is another representation or another range.
    pub(super) async fn complete_parts(
        &self,
        Received { response, delay, .. }: Received,
        before: &StoredParts,
    ) -> Result<Option<Loaded>, LoadError> {
        let (parts, body) = response.into_parts();
        let stored = &before.partial;
        let came = received_range(ResponseRef { status: parts.status, headers: &parts.headers });
        let Some(range) = came.filter(|_| can_combine(&stored.headers, &parts.headers)) else {
            return Ok(None);
        };
        let length = range.span.len();
        let mut all = stored.parts.clone();
        if !all.insert(range) || !all.is_whole() || body.size_hint().exact() != Some(length) {
            return Ok(None);
        }
        let mut headers = combined_fields(&stored.headers, &parts.headers);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(all.complete().unwrap_or_default()));
        let mut answer = Answer { status: StatusCode::OK, headers };
        let Ok(kept) = self.evaluate(&answer) else { return Ok(None) };
        let _ = self.details.status.set(parts.status);
        let meta = self.request.meta(&answer, &kept, delay);
        let mut own = kept.withheld.remove_from(&mut answer.headers);
        own.extend(validate::cookies_of(&parts.headers));
        self.set_unshared_fields(own);
        let content = around(before, range.span.first, body);
        let head = self.stored_head(answer, None);
        Ok(Some(Loaded::Entry { meta, head, content }))
    }

    /// RFC 9111 section 4.3.5: updates the stored response by a HEAD. If it has changed, the entry
    /// becomes stale before the client gets the response.
    pub(super) async fn judge_head(
        &self,
        Received { response, delay, .. }: Received,
        prior: &Entry,
    ) -> Result<Loaded, LoadError> {
        let stored = Answer::of(prior).ok_or_else(|| {
            LoadError::origin(
                "status and fields of the stored response cannot be decoded, so the origin's 304 \
                 cannot update it",
            )
        })?;
        let answered = ResponseRef { status: response.status(), headers: response.headers() };
        match validate_by_head(answered, &stored.headers, prior.body.length()) {
            HeadValidation::Same => {
                let _ = self.details.status.set(response.status());
                return Ok(self.updated(response.headers(), delay, prior, &stored));
            }
            HeadValidation::Changed => {
                self.engine.purge(&Purge::Key(self.key.clone()), Reach::Soft).await;
            }
            HeadValidation::Nothing => {}
        }
        self.refused(Unstorable::Method);
        let (parts, body) = response.into_parts();
        let answer = Answer { status: parts.status, headers: parts.headers };
        let _ = self.evaluate(&answer);
        self.pass(answer, body).map(without_marker)
    }

    /// An error replaces an entry only if it states its freshness (frameworks add an ETag to every
    /// response) and the entry may not be served in its place.
    fn may_replace(&self, error: &Meta, prior: Option<&Entry>) -> bool {
        let now = self.request.clock.now();
        error.is_fresh(now)
            && !prior.is_some_and(|prior| may_fall_back(&prior.meta, OriginFailure::Failed, now))
    }

    /// Sets the fields that only the requesting client gets.
    pub(super) fn set_unshared_fields(&self, own: HeaderMap) {
        if !own.is_empty() {
            let _ = self.details.own.set(own);
        }
    }

    fn refused(&self, why: Unstorable) {
        let _ = self.details.refused.set(why);
    }

    /// Decides whether a response may be stored, and notes that for the record of the decision.
    fn evaluate(&self, answer: &Answer) -> Result<Storable, Refusal> {
        let evaluated = self.request.evaluate(answer);
        self.details.note(self.request.judged(answer, &evaluated));
        evaluated
    }

    /// Creates the head of an entry, and keeps the response for the request that started the load.
    fn stored_head(&self, mut answer: Answer, prior: Option<&Entry>) -> Head {
        let head = self.request.stored_head(&mut answer, prior);
        self.details.keep(head.clone(), answer);
        head
    }
}

/// Sets `remember` to zero, so that the response neither sets nor renews a pass marker.
fn without_marker(loaded: Loaded) -> Loaded {
    match loaded {
        Loaded::Pass(passed) => Loaded::Pass(Passed { remember: Duration::ZERO, ..passed }),
        failed => failed,
    }
}

/// Setter of a lifetime.
pub(crate) struct LifetimeSetter {
    pub(crate) by: SetBy,
    /// Field or option.
    pub(crate) line: String,
}

impl ClientRequest {
    /// Returns the first reason against storing the response of a direct pass, whose site has no rules.
    /// It decides like [`evaluate`](Self::evaluate).
    pub(super) fn refusal_of_plain(&self, plain: &PlainResponse) -> Option<Unstorable> {
        let asked = RequestRef { method: &Method::GET, headers: &self.fields };
        let answered = ResponseRef { status: plain.status, headers: &plain.fields };
        let of_type = self.check_type(&plain.fields).err();
        let rules = &self.site.settings.rules;
        of_type.or_else(|| check_storable(asked, answered, rules, self.clock.wall()).err())
    }

    fn check_storable(&self, answer: &Answer) -> Result<Storable, Unstorable> {
        self.evaluate(answer).map_err(|refusal| refusal.first)
    }

    /// Decides whether a response may be stored. The error has every reason against it.
    pub(super) fn evaluate(&self, answer: &Answer) -> Result<Storable, Refusal> {
        let asked = RequestRef { method: &Method::GET, headers: &self.fields };
        let answered = ResponseRef { status: answer.status, headers: &answer.headers };
        let of_rules = self.rules.storing(&self.site, answer, &self.changes);
        let rules = of_rules.as_ref().unwrap_or(&self.site.settings.rules);
        let evaluated = evaluate(asked, answered, rules, self.clock.wall());
        let found = [self.check_type(&answer.headers).err(), of_rules.err()].into_iter().flatten();
        let others = evaluated.as_ref().err().into_iter().flat_map(Refusal::reasons);
        match Refusal::of(found.chain(others)) {
            Some(refusal) => Err(refusal),
            None => evaluated,
        }
    }

    /// Notes the target of a response that answers several queries, and is stored.
    fn note_equal_queries(&self, answer: &Answer) {
        let Some(known) = &self.site.equal_queries else { return };
        if let Some(variance) = SearchVariance::of(&answer.headers) {
            let matched = self.rules.matched();
            let stored = MatchedTarget { target: self.target.as_str(), matched };
            known.note(&self.site, self.host_origin(), stored, variance);
        }
    }

    /// Counts the prohibitions that rules ignore for a response that is stored.
    fn count_unsafe(&self, answer: &Answer) {
        if !self.site.settings.rule_set.uses(Kind::UnsafeIgnore) {
            return;
        }
        let Ok(options) = self.rules.storing(&self.site, answer, &self.changes) else { return };
        let asked = RequestRef { method: &Method::GET, headers: &self.fields };
        let answered = ResponseRef { status: answer.status, headers: &answer.headers };
        let is_stored =
            |options: &_| check_storable(asked, answered, options, self.clock.wall()).is_ok();
        self.rules.count_unsafe(&self.site, answer, &options, is_stored);
    }

    /// Returns every reason against storing a response, the first one first.
    pub(crate) fn objections(&self, answer: &Answer) -> Vec<Unstorable> {
        let refusal = self.evaluate(answer).err();
        refusal.iter().flat_map(Refusal::reasons).collect()
    }

    /// Returns the setter of the lifetime of a response, with the field or option.
    pub(crate) fn lifetime_by(&self, answer: &Answer) -> LifetimeSetter {
        let answered = ResponseRef { status: answer.status, headers: &answer.headers };
        let rules = self.rules.storing(&self.site, answer, &self.changes);
        let rules = rules.unwrap_or(self.site.settings.rules);
        let (by, line) = advice::lifetime_by(answered, &rules);
        LifetimeSetter { by, line: line.into_owned() }
    }

    /// Returns the freshness lifetime of a response.
    pub(crate) fn lifetime_of(&self, answer: &Answer) -> Duration {
        let answered = ResponseRef { status: answer.status, headers: &answer.headers };
        let rules = self.rules.storing(&self.site, answer, &self.changes);
        let rules = rules.unwrap_or(self.site.settings.rules);
        lifetime(answered, &rules, self.clock.wall()).fresh
    }

    /// A page under the path of a static file may be a private one that an attacker made the origin
    /// send under that path.
    pub(super) fn check_type(&self, fields: &impl FieldLines) -> Result<(), Unstorable> {
        if is_contradicted(self.target.path(), fields) && !is_declared_shared(fields) {
            return Err(Unstorable::TypeMismatch);
        }
        Ok(())
    }

    /// Returns true if the response counts as a failure of the origin.
    pub(super) fn is_failure(&self, answer: &Answer) -> bool {
        let by_rule = self.rules.is_failure(&self.site, answer.status, &answer.headers);
        by_rule.unwrap_or_else(|| is_failure(answer.status))
    }

    /// Returns the storable form of a response without freshness, which is kept for validation.
    fn storable_without_freshness(&self, answer: &Answer) -> Storable {
        let answered = ResponseRef { status: answer.status, headers: &answer.headers };
        let rules = self.rules.storing(&self.site, answer, &self.changes);
        let rules = rules.unwrap_or(self.site.settings.rules);
        let lifetime = lifetime(answered, &rules, self.clock.wall());
        Storable {
            lifetime,
            lifetime_origin: LifetimeOrigin::Origin,
            set_by: set_by(answered, &rules),
            withheld: Withheld::of(&answer.headers),
        }
    }

    pub(super) fn meta(&self, answer: &Answer, kept: &Storable, delay: Duration) -> Meta {
        let age = initial_age(&answer.headers, self.clock.wall(), delay);
        let mut lifetime = kept.lifetime;
        if kept.lifetime_origin == LifetimeOrigin::Cache && lifetime.fresh >= SPREAD_MIN {
            lifetime.fresh = pace::spread(lifetime.fresh, ThreadDice.unit());
        }
        let mut meta = Meta::new(self.clock.now().minus(age), lifetime);
        let sources = self.rules.tag_sources(&self.site, answer);
        meta.set_tags(tags::of_answer(&self.site, self.host_origin(), &answer.headers, &sources));
        if self.site.settings.rule_set.splits_keys() {
            let tag = tags::of_key_parts(&self.site, self.host_origin(), self.target.as_str());
            meta.set_tags(tags::with(meta.tags(), &tag));
        }
        if self.site.settings.no_vary_search && SearchVariance::of(&answer.headers).is_some() {
            let tag = tags::of_queries(&self.site, self.host_origin(), self.target.as_str());
            meta.set_tags(tags::with(meta.tags(), &tag));
        }
        // The validator is in the stored head.
        let validator = validate::validator(&answer.headers).map(|_| Validator::default());
        meta.set_validator(validator);
        // RFC 9110 section 12.5.3.
        let shares_codings = self.site.settings.rules.share_codings;
        let select = match self.site.settings.compress {
            // The origin is never asked for a coding.
            Some(_) => selects_without_coding,
            None if shares_codings => selects,
            None => selects_with_coding,
        };
        meta.set_vary(match select(&answer.headers) {
            Selects::By(vary) => Some(vary),
            Selects::Nothing | Selects::Everything => None,
        });
        meta.presence = presence(answer.status);
        meta
    }
}

/// RFC 9110 sections 15.5.5 and 15.5.11: 404 and 410 report a missing resource.
const fn presence(status: StatusCode) -> Presence {
    match status.as_u16() {
        404 | 410 => Presence::Absent,
        _ => Presence::Present,
    }
}

/// Returns a stored body as the content of another response.
fn source_of(body: &Body) -> Content {
    if let Some(bytes) = body.bytes() {
        return Content::Whole(bytes);
    }
    let unread = stream::unfold(body.reader(), |mut reader| async {
        let piece = reader.next().await?;
        Some((piece, reader))
    });
    Content::Stream(unread.boxed())
}

/// Returns the stored bytes before the missing range, that range as it arrives, and the stored
/// bytes after it.
fn around(stored: &StoredParts, first: u64, rest: OriginBody) -> Content {
    let mut bytes = stored.bytes.clone();
    let before = stored.partial.parts.spans().iter().filter(|span| span.last < first);
    let before = before.map(|span| span.len()).sum::<u64>();
    let behind = bytes.split_off(usize::try_from(before).unwrap_or(bytes.len()).min(bytes.len()));
    let here = |bytes: Bytes| stream::iter((!bytes.is_empty()).then_some(Ok(bytes)));
    Content::Stream(here(bytes).chain(rest.into_stream()).chain(here(behind)).boxed())
}

/// RFC 5861 section 4: statuses to which stale-if-error applies.
pub(super) const fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
