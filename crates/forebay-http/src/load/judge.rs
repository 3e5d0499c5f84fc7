//! What an origin's answer means for what is stored.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::judge::Dice;
use forebay_core::{Meta, Presence, Purge, Reach, Trouble, may_fall_back, pace};
use forebay_engine::clock::ThreadDice;
use forebay_engine::{Body, Entry, LoadError, Loaded, Passed, Source};
use forebay_semantics::freshen::{HeadSays, head_says};
use forebay_semantics::lifetime::{SetBy, initial_age, lifetime};
use forebay_semantics::partial::{joined_fields, joins, part_of};
use forebay_semantics::storable::{Answered, Asked, Kept, Unstorable, keep, keep_part};
use forebay_semantics::validate;
use forebay_semantics::vary::{Selects, selects, selects_with_coding};
use forebay_semantics::withheld::Withheld;
use futures_util::{StreamExt, stream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;

use super::{ClientRequest, Work};
use crate::head::Answer;
use crate::origin::OriginBody;
use crate::partial::Partial;
use crate::tags;

/// How long requests for a key go alone after an answer that may not be shared. Each further one
/// confirms it.
pub(super) const PASS_REMEMBER: Duration = Duration::from_secs(10);

/// A shorter lifetime is not spread: a twentieth of it is less than a second, and HTTP counts in
/// seconds.
const SPREAD_MIN: Duration = Duration::from_secs(20);

impl Work {
    /// A 304 to a client's own condition: for that client alone. RFC 9110 section 15.4.5: it says
    /// of the caching of the page what a 200 would have said, so it shows whether others need not
    /// wait for answers like this one.
    pub(super) fn judge_not_modified(
        &self,
        response: Response<OriginBody>,
    ) -> Result<Loaded, LoadError> {
        let (parts, body) = response.into_parts();
        let whole = Answer { status: StatusCode::OK, headers: parts.headers };
        self.refused(self.request.keep(&whole).err().unwrap_or(Unstorable::Status));
        self.pass(Answer { status: parts.status, ..whole }, body)
    }

    /// An answer in full.
    pub(super) fn judge(
        &self,
        (response, delay): (Response<OriginBody>, Duration),
        prior: Option<&Entry>,
    ) -> Result<Loaded, LoadError> {
        let (parts, body) = response.into_parts();
        let mut answer = Answer { status: parts.status, headers: parts.headers };
        match self.request.keep(&answer) {
            Ok(kept) => {
                let meta = self.request.meta(&answer, &kept, delay);
                if !is_failure(answer.status) || self.may_replace(&meta, prior) {
                    self.set_unshared_fields(kept.withheld.part_from(&mut answer.headers));
                    let source = match body.size_hint().exact() {
                        Some(length) => Source::Sized(length, body.into_stream()),
                        None => Source::Stream(body.into_stream()),
                    };
                    return Ok(Loaded::Entry { meta, head: answer.into_head(), source });
                }
            }
            Err(refused) => self.refused(refused),
        }
        self.pass(answer, body)
    }

    /// For the one who asked, whatever it says; `why`, if there is no other reason.
    pub(super) fn pass_unstored(
        &self,
        response: Response<OriginBody>,
        why: Unstorable,
    ) -> Result<Loaded, LoadError> {
        let (parts, body) = response.into_parts();
        let answer = Answer { status: parts.status, headers: parts.headers };
        self.refused(self.request.keep(&answer).err().unwrap_or(why));
        self.pass(answer, body)
    }

    /// For the one who asked. An origin's error is nobody's answer where what is stored may be
    /// served in its stead.
    fn pass(&self, answer: Answer, mut body: OriginBody) -> Result<Loaded, LoadError> {
        self.request.site.origin.set_alone(&mut body)?;
        let remember = self.remember(&answer);
        let status = answer.status;
        let source = Source::Stream(body.into_stream());
        let passed = Passed { head: answer.into_head(), source, remember };
        if !is_failure(status) {
            return Ok(Loaded::Pass(passed));
        }
        Ok(Loaded::Failed { passed, error: LoadError::Answered(status.as_u16()) })
    }

    /// For how long others should not wait for answers like this one. What this request alone is
    /// the reason for says nothing of others, and a part says what it says of the whole.
    fn remember(&self, answer: &Answer) -> Duration {
        let shared_by_others = match self.details.refused.get() {
            Some(Unstorable::RequestNoStore) => true,
            Some(Unstorable::Status) => answer.status == StatusCode::NOT_MODIFIED,
            Some(Unstorable::Partial) => {
                let asked = Asked { method: &Method::GET, headers: &self.request.headers };
                let answered = Answered { status: answer.status, headers: &answer.headers };
                let rules = &self.request.site.settings.rules;
                keep_part(asked, answered, rules, self.request.clock.wall()).is_ok()
            }
            _ => false,
        };
        if is_failure(answer.status) || shared_by_others { Duration::ZERO } else { PASS_REMEMBER }
    }

    /// RFC 9111 section 4.3.4: the stored answer lives on, with the fields of the 304. Nothing if
    /// the 304 is not about it.
    pub(super) fn unchanged<B>(
        &self,
        (response, delay): (&Response<B>, Duration),
        prior: &Entry,
    ) -> Option<Loaded> {
        let stored = Answer::of(prior)?;
        let is_confirmed = validate::confirms(&stored.headers, response.headers());
        is_confirmed.then(|| self.updated((response.headers(), delay), prior, &stored))
    }

    /// What is stored, with what came since. Where that says that it must not be shared any more,
    /// it is for the one who asked, and what is stored is not updated by it.
    fn updated(
        &self,
        (fresh, delay): (&HeaderMap, Duration),
        prior: &Entry,
        stored: &Answer,
    ) -> Loaded {
        let headers = validate::merge_not_modified(&stored.headers, fresh);
        let mut merged = Answer { status: stored.status, headers };
        let kept = match self.request.keep(&merged) {
            Ok(kept) => kept,
            // What the request says is the engine's to heed; and what is not fresh any more can
            // still be asked about.
            Err(Unstorable::RequestNoStore | Unstorable::NoFreshness) => {
                self.request.unfresh(&merged)
            }
            Err(refused) => {
                self.refused(refused);
                self.set_unshared_fields(validate::cookies_of(fresh));
                let remember = PASS_REMEMBER;
                let source = source_of(&prior.body);
                return Loaded::Pass(Passed { head: merged.into_head(), source, remember });
            }
        };
        let meta = self.request.meta(&merged, &kept, delay);
        let mut own = kept.withheld.part_from(&mut merged.headers);
        own.extend(validate::cookies_of(fresh));
        self.set_unshared_fields(own);
        Loaded::Unchanged { meta, head: Some(merged.into_head()) }
    }

    /// RFC 9111 section 3.4: what was stored in parts, once the rest has come. Nothing where that
    /// is not the rest of the same.
    pub(super) async fn completed(
        &self,
        (response, delay): (Response<OriginBody>, Duration),
        (stored, bytes): (&Partial, Bytes),
    ) -> Result<Option<Loaded>, LoadError> {
        let (parts, body) = response.into_parts();
        let came = part_of(Answered { status: parts.status, headers: &parts.headers });
        let Some(range) = came.filter(|_| joins(&stored.headers, &parts.headers)) else {
            return Ok(None);
        };
        let length = range.span.len();
        let mut all = stored.parts.clone();
        if !all.insert(range) || !all.is_whole() || body.size_hint().exact() != Some(length) {
            return Ok(None);
        }
        let mut headers = joined_fields(&stored.headers, &parts.headers);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(all.complete().unwrap_or_default()));
        let mut answer = Answer { status: StatusCode::OK, headers };
        let Ok(kept) = self.request.keep(&answer) else { return Ok(None) };
        let _ = self.details.status.set(parts.status);
        let meta = self.request.meta(&answer, &kept, delay);
        let mut own = kept.withheld.part_from(&mut answer.headers);
        own.extend(validate::cookies_of(&parts.headers));
        self.set_unshared_fields(own);
        let source = around(bytes, (stored, range.span.first), body);
        Ok(Some(Loaded::Entry { meta, head: answer.into_head(), source }))
    }

    /// RFC 9111 section 4.3.5: a HEAD tells of what is stored. If that has changed, it is stale
    /// before the client hears of it.
    pub(super) async fn judge_head(
        &self,
        (response, delay): (Response<OriginBody>, Duration),
        prior: &Entry,
    ) -> Result<Loaded, LoadError> {
        let stored = Answer::of(prior)
            .ok_or_else(|| LoadError::origin("the head of the stored entry is invalid"))?;
        let answered = Answered { status: response.status(), headers: response.headers() };
        match head_says(answered, &stored.headers, prior.body.length()) {
            HeadSays::Same => {
                let _ = self.details.status.set(response.status());
                return Ok(self.updated((response.headers(), delay), prior, &stored));
            }
            HeadSays::Changed => {
                self.engine.purge(&Purge::Key(self.key.clone()), Reach::Soft).await;
            }
            HeadSays::Nothing => {}
        }
        self.refused(Unstorable::Method);
        let (parts, body) = response.into_parts();
        let answer = Answer { status: parts.status, headers: parts.headers };
        match self.pass(answer, body)? {
            Loaded::Pass(passed) => Ok(Loaded::Pass(Passed { remember: Duration::ZERO, ..passed })),
            failed => Ok(failed),
        }
    }

    /// An error is stored where its origin says for how long it is fresh (frameworks put an ETag
    /// on anything), and never in the place of what may be served in its stead.
    fn may_replace(&self, error: &Meta, prior: Option<&Entry>) -> bool {
        let now = self.request.clock.now();
        error.is_fresh(now)
            && !prior.is_some_and(|prior| may_fall_back(&prior.meta, Trouble::Failed, now))
    }

    /// Keeps fields for the client whose request was answered, and for no other.
    pub(super) fn set_unshared_fields(&self, own: HeaderMap) {
        if !own.is_empty() {
            let _ = self.details.own.set(own);
        }
    }

    fn refused(&self, why: Unstorable) {
        let _ = self.details.refused.set(why);
    }
}

impl ClientRequest {
    fn keep(&self, answer: &Answer) -> Result<Kept, Unstorable> {
        let asked = Asked { method: &Method::GET, headers: &self.headers };
        let answered = Answered { status: answer.status, headers: &answer.headers };
        keep(asked, answered, &self.site.settings.rules, self.clock.wall())
    }

    /// It may be kept, but for the fields that it names as one client's, and for no longer than it
    /// says.
    fn unfresh(&self, answer: &Answer) -> Kept {
        let answered = Answered { status: answer.status, headers: &answer.headers };
        let lifetime = lifetime(answered, &self.site.settings.rules, self.clock.wall());
        Kept { lifetime, set_by: SetBy::Origin, withheld: Withheld::of(&answer.headers) }
    }

    pub(super) fn meta(&self, answer: &Answer, kept: &Kept, delay: Duration) -> Meta {
        let age = initial_age(&answer.headers, self.clock.wall(), delay);
        let mut lifetime = kept.lifetime;
        if kept.set_by == SetBy::Cache && lifetime.fresh >= SPREAD_MIN {
            lifetime.fresh = pace::spread(lifetime.fresh, ThreadDice.unit());
        }
        let mut meta = Meta::new(self.clock.now().minus(age), lifetime);
        meta.set_tags(tags::of_answer(&self.site, &self.authority, &answer.headers));
        meta.set_validator(validate::validator(&answer.headers));
        // RFC 9110 section 12.5.3.
        let shares_codings = self.site.settings.rules.share_codings;
        let select = if shares_codings { selects } else { selects_with_coding };
        meta.set_vary(match select(&answer.headers) {
            Selects::By(vary) => Some(vary),
            Selects::Nothing | Selects::Everything => None,
        });
        meta.presence = presence(answer.status);
        meta
    }
}

/// RFC 9110 sections 15.5.5 and 15.5.11: the origin has nothing there, or not any more.
const fn presence(status: StatusCode) -> Presence {
    match status.as_u16() {
        404 | 410 => Presence::Absent,
        _ => Presence::Present,
    }
}

/// A body once more, from its first byte.
fn source_of(body: &Body) -> Source {
    if let Some(bytes) = body.bytes() {
        return Source::Whole(bytes.clone());
    }
    let unread = stream::unfold(body.reader(), |mut reader| async {
        let piece = reader.next().await?;
        Some((piece, reader))
    });
    Source::Stream(unread.boxed())
}

/// What is stored before the missing bytes, these as they come, and what is stored behind them.
fn around(mut bytes: Bytes, (stored, first): (&Partial, u64), rest: OriginBody) -> Source {
    let before = stored.parts.spans().iter().filter(|span| span.last < first);
    let before = before.map(|span| span.len()).sum::<u64>();
    let behind = bytes.split_off(usize::try_from(before).unwrap_or(bytes.len()).min(bytes.len()));
    let here = |bytes: Bytes| stream::iter((!bytes.is_empty()).then_some(Ok(bytes)));
    Source::Stream(here(bytes).chain(rest.into_stream()).chain(here(behind)).boxed())
}

/// RFC 5861 section 4: the errors that stale-if-error is about.
pub(super) const fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
