//! Response from an entry: age, `Cache-Status`, client conditions, ranges, HEAD.

mod ranged;

use forebay_core::judge::ttl_seconds;
use forebay_core::{Timestamp, Why};
use forebay_engine::{Entry, Outcome, Source};
use forebay_semantics::coding::encoded::weaken_tag;
use forebay_semantics::lifetime::age_seconds;
use forebay_semantics::status::{CacheStatus, Forward, Handling};
use forebay_semantics::storable::Unstorable;
use forebay_semantics::validate;
use http::header::AGE;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::compress::choose::Chosen;
use crate::load::LoadDetails;
use crate::response::body::ResponseBody;
use crate::stored::head::Answer;
use crate::stored::partial::Partial;

use ranged::Prepared;
pub(crate) use ranged::length as announced;

/// Method and header fields of the request that is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead<'a> {
    /// Method of the request: GET or HEAD.
    pub method: &'a Method,
    /// Header fields of the request.
    pub headers: &'a HeaderMap,
}

/// Creates the response from the chosen form of an entry. `None` if the head of the entry is invalid.
#[must_use]
pub(crate) fn deliver(
    request: RequestHead<'_>,
    obtained: &Outcome,
    chosen: Chosen<'_>,
    now: Timestamp,
) -> Option<Response<ResponseBody>> {
    let entry = &*obtained.entry;
    let answer = Answer::of_head(chosen.head(entry))?;
    let stored = answer.status;
    let has_it = validate::client_has_it(request.headers, answer.status, &answer.headers);
    let Prepared { status, mut headers, body } = if has_it {
        not_modified(validate::not_modified_fields(&answer.headers), chosen)
    } else {
        respond(request, answer, entry, chosen)
    };
    if let Some(age) = age(obtained, now) {
        headers.insert(AGE, age);
    }
    cache_status(obtained, stored, now).append_to(&mut headers);
    Some(response(status, headers, body))
}

/// Creates the response from the result of a load. `details` has the results for the request that
/// started it.
pub(crate) fn deliver_loaded(
    request: RequestHead<'_>,
    obtained: &Outcome,
    details: &LoadDetails,
    chosen: Chosen<'_>,
    now: Timestamp,
) -> Option<Response<ResponseBody>> {
    let entry = &*obtained.entry;
    let answer = details.answer_of(chosen.head(entry))?;
    let stored = answer.status;
    let has_it = || validate::client_has_it(request.headers, answer.status, &answer.headers);
    let is_passed = obtained.source == Source::Passed;
    let Prepared { status, mut headers, body } =
        if is_passed && details.judged_by_origin.get().is_some() {
            // The origin has already evaluated the client's conditions.
            respond(request, answer, entry, chosen)
        } else if !has_it() {
            respond(request, answer, entry, chosen)
        } else if is_passed {
            not_modified(validate::private_not_modified_fields(&answer.headers), chosen)
        } else {
            not_modified(validate::not_modified_fields(&answer.headers), chosen)
        };
    finish(stored, &mut headers, obtained, details, now);
    Some(response(status, headers, body))
}

/// Creates the response from an entry, with the fields for this client. The origin has already
/// evaluated the client's conditions.
pub(crate) fn deliver_as_it_is(
    obtained: &Outcome,
    own: Option<&HeaderMap>,
    now: Timestamp,
) -> Option<Response<ResponseBody>> {
    let entry = &*obtained.entry;
    let answer = Answer::of(entry)?;
    let mut headers = answer.headers;
    headers.extend(own.cloned().unwrap_or_default());
    cache_status(obtained, answer.status, now).append_to(&mut headers);
    Some(response(answer.status, headers, ResponseBody::reader(entry.body.reader())))
}

/// Returns the `Cache-Status` of a pass.
pub(crate) fn pass_status(why: Why, status: StatusCode, refused: Unstorable) -> CacheStatus {
    let mut cache_status = CacheStatus::forward(why);
    let status = Some(status.as_u16());
    cache_status.handling =
        Handling::Forward(Forward { why, status, stored: false, collapsed: false });
    // The reason of the lookup takes precedence.
    cache_status.detail = cache_status.detail.or_else(|| Some(refused.code()));
    cache_status
}

/// Creates a 206 from stored parts. `None` if they lack a requested byte.
pub(crate) fn deliver_part(
    request: RequestHead<'_>,
    obtained: &Outcome,
    details: &LoadDetails,
    now: Timestamp,
) -> Option<Response<ResponseBody>> {
    let entry = &*obtained.entry;
    let partial = Partial::of(entry)?;
    // The part that the origin sent for this request is its response, even if it is shorter than
    // requested.
    let sent = details.part.get().filter(|_| matches!(obtained.source, Source::Led { .. }));
    let Prepared { status, mut headers, body } =
        ranged::from_parts(request, &partial, sent, entry)?;
    finish(StatusCode::PARTIAL_CONTENT, &mut headers, obtained, details, now);
    Some(response(status, headers, body))
}

fn finish(
    status: StatusCode,
    headers: &mut HeaderMap,
    obtained: &Outcome,
    details: &LoadDetails,
    now: Timestamp,
) {
    let mut cache_status = cache_status(obtained, status, now);
    if let Some(age) = age(obtained, now) {
        headers.insert(AGE, age);
    }
    let is_own = matches!(obtained.source, Source::Led { .. } | Source::Passed);
    if let (true, Some(own)) = (is_own, details.own.get()) {
        headers.extend(own.clone());
    }
    if let (Handling::Forward(forward), Some(status)) =
        (&mut cache_status.handling, details.status.get())
        && forward.status.is_some()
    {
        forward.status = Some(status.as_u16());
    }
    if let (Source::Passed, Some(refused)) = (obtained.source, details.refused.get()) {
        // The reason of the lookup takes precedence.
        cache_status.detail = cache_status.detail.or_else(|| Some(refused.code()));
    }
    cache_status.append_to(headers);
}

fn response(status: StatusCode, headers: HeaderMap, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn not_modified(mut headers: HeaderMap, chosen: Chosen<'_>) -> Prepared {
    if chosen.has_weak_tag() {
        weaken_tag(&mut headers);
    }
    let body = ResponseBody::whole(bytes::Bytes::new());
    Prepared { status: StatusCode::NOT_MODIFIED, headers, body }
}

/// Creates the response for a client without a current copy.
fn respond(
    request: RequestHead<'_>,
    answer: Answer,
    entry: &Entry,
    chosen: Chosen<'_>,
) -> Prepared {
    if let Some(ranged) = ranged::ranged(request, &answer, entry) {
        return ranged;
    }
    let body = chosen.body(entry);
    let body = match body.bytes() {
        Some(whole) => ResponseBody::whole(whole),
        None => ResponseBody::reader(body.reader()),
    };
    Prepared { status: answer.status, headers: answer.headers, body }
}

/// RFC 9111 section 5.1: `Age` marks a response that the origin did not generate for this request.
/// Otherwise it is omitted, unless another cache sent one.
fn age(obtained: &Outcome, now: Timestamp) -> Option<HeaderValue> {
    match obtained.source {
        Source::Passed | Source::Led { unchanged: false, .. } => None,
        _ => Some(HeaderValue::from(age_seconds(obtained.entry.meta.age(now)))),
    }
}

fn cache_status(obtained: &Outcome, status: StatusCode, now: Timestamp) -> CacheStatus {
    let ttl = ttl_seconds(&obtained.entry.meta, now);
    let why = obtained.why.unwrap_or(Why::UriMiss);
    let mut cache_status = CacheStatus::forward(why);
    cache_status.ttl = Some(ttl);
    let mut forward = Forward { why, status: None, stored: false, collapsed: false };
    match obtained.source {
        Source::Hit | Source::Refreshing | Source::Fallback => {
            // A soft-purged entry is stale, whatever is left of its lifetime.
            let ttl = if obtained.why == Some(Why::SoftPurged) { ttl.min(0) } else { ttl };
            let despite = |why| CacheStatus::hit_despite(why, ttl);
            return obtained.why.map_or_else(|| CacheStatus::hit(ttl), despite);
        }
        // A hit in a lower tier is a hit; the detail names the tier.
        Source::Tier(name) => {
            return CacheStatus { detail: Some(name), ..CacheStatus::hit(ttl) };
        }
        // One load served several instances.
        Source::Instance => {
            forward.collapsed = true;
            cache_status.detail = Some(Why::Elsewhere.code());
        }
        Source::Led { stored, unchanged } => {
            forward.status = Some(if unchanged { 304 } else { status.as_u16() });
            forward.stored = stored;
        }
        Source::Followed => forward.collapsed = true,
        Source::Passed => {
            forward.status = Some(status.as_u16());
            cache_status.ttl = None;
        }
    }
    cache_status.handling = Handling::Forward(forward);
    cache_status
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use forebay_core::{Lifetime, Meta};
    use forebay_engine::Body;

    use super::*;

    #[test]
    fn a_lower_tier_hit_has_the_tier_name_and_an_age() {
        let lifetime = Lifetime::fresh(Duration::from_secs(60));
        let meta = Meta::new(Timestamp::from_millis(0), lifetime);
        let answer = Answer { status: StatusCode::OK, headers: HeaderMap::new() };
        let body = Body::whole(Bytes::from_static(b"body"));
        let entry = Arc::new(Entry::new(meta, answer.to_head(), body));
        let obtained = Outcome { entry, source: Source::Tier("disk"), why: Some(Why::UriMiss) };
        let request = RequestHead { method: &Method::GET, headers: &HeaderMap::new() };
        let now = Timestamp::from_millis(20_000);
        let response = deliver(request, &obtained, Chosen::default(), now);
        let headers = response.expect("a head that makes sense").into_parts().0.headers;
        assert_eq!(headers["cache-status"], "forebay; hit; ttl=40; detail=disk");
        assert_eq!(headers["age"], "20");
    }
}
