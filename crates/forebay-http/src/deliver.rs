//! Entry to response: age, status, the client's own conditions, ranges, HEAD.

use std::ops::Range;

use forebay_core::judge::ttl_seconds;
use forebay_core::{Timestamp, Why};
use forebay_engine::{Entry, Obtained, Via};
use forebay_semantics::range::{Ranged, range};
use forebay_semantics::status::{CacheStatus, Fate, Forward};
use forebay_semantics::validate;
use http::header::{AGE, CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::head::Answer;
use crate::outgoing::Outgoing;

/// The request that is answered, as far as the answer depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// GET or HEAD.
    pub method: &'a Method,
    /// The client's fields.
    pub headers: &'a HeaderMap,
}

/// The response to a request that the cache answered, or that was loaded for it. Nothing if the
/// head of the entry makes no sense.
#[must_use]
pub fn deliver(
    asker: Asker<'_>,
    obtained: &Obtained,
    now: Timestamp,
) -> Option<Response<Outgoing>> {
    let entry = &*obtained.entry;
    let answer = Answer::of(entry)?;
    let (status, mut headers, body) = respond(asker, &answer, entry);
    if let Some(age) = age(obtained, now) {
        headers.insert(AGE, age);
    }
    cache_status(obtained, answer.status, now).append_to(&mut headers);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Some(response)
}

fn respond(asker: Asker<'_>, answer: &Answer, entry: &Entry) -> (StatusCode, HeaderMap, Outgoing) {
    if validate::client_has_it(asker.headers, answer.status, &answer.headers) {
        let headers = validate::not_modified_fields(&answer.headers);
        return (StatusCode::NOT_MODIFIED, headers, Outgoing::whole(bytes::Bytes::new()));
    }
    let Some(length) = entry.body.length() else { return all(answer, entry) };
    // RFC 9110 section 14.2: a range is defined for GET.
    let wanted = if *asker.method == Method::GET {
        range(asker.headers, &answer.headers, answer.status, length)
    } else {
        Ranged::Whole
    };
    match wanted {
        Ranged::Whole => all(answer, entry),
        Ranged::Part { first, last } => part(answer, entry, first..last + 1),
        Ranged::Unsatisfiable => {
            let mut headers = answer.headers.clone();
            headers.remove(CONTENT_LENGTH);
            headers.insert(CONTENT_RANGE, text_value(&format!("bytes */{length}")));
            let body = Outgoing::whole(bytes::Bytes::new());
            (StatusCode::RANGE_NOT_SATISFIABLE, headers, body)
        }
    }
}

fn all(answer: &Answer, entry: &Entry) -> (StatusCode, HeaderMap, Outgoing) {
    let body = match entry.body.bytes() {
        Some(bytes) => Outgoing::whole(bytes.clone()),
        None => Outgoing::reader(entry.body.reader()),
    };
    (answer.status, answer.headers.clone(), body)
}

/// A part that lies within a body that is whole.
fn part(answer: &Answer, entry: &Entry, range: Range<u64>) -> (StatusCode, HeaderMap, Outgoing) {
    let length = entry.body.length().unwrap_or(range.end);
    let mut headers = answer.headers.clone();
    let content_range = format!("bytes {}-{}/{length}", range.start, range.end - 1);
    headers.insert(CONTENT_RANGE, text_value(&content_range));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
    let body = entry.body.part(range);
    let body = body.map_or_else(|| Outgoing::whole(bytes::Bytes::new()), Outgoing::reader);
    (StatusCode::PARTIAL_CONTENT, headers, body)
}

fn text_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// RFC 9111 section 5.1: `Age` says that the origin did not make this answer for this request. An
/// answer that was has none, unless a cache in between gave it one.
fn age(obtained: &Obtained, now: Timestamp) -> Option<HeaderValue> {
    match obtained.via {
        Via::Passed | Via::Led { unchanged: false, .. } => None,
        _ => Some(HeaderValue::from(obtained.entry.meta.age(now).as_secs())),
    }
}

fn cache_status(obtained: &Obtained, status: StatusCode, now: Timestamp) -> CacheStatus {
    let ttl = ttl_seconds(&obtained.entry.meta, now);
    let why = obtained.why.unwrap_or(Why::UriMiss);
    let mut cache_status = CacheStatus::forward(why);
    cache_status.ttl = Some(ttl);
    let mut forward = Forward { why, status: None, stored: false, collapsed: false };
    match obtained.via {
        Via::Hit | Via::Refreshing | Via::Fallback => {
            let despite = |why| CacheStatus::hit_despite(why, ttl);
            return obtained.why.map_or_else(|| CacheStatus::hit(ttl), despite);
        }
        // What was not in memory still is no forwarding; the detail names where it was.
        Via::Tier(name) => {
            return CacheStatus { detail: Some(name), ..CacheStatus::hit(ttl) };
        }
        Via::Led { stored, unchanged } => {
            forward.status = Some(if unchanged { 304 } else { status.as_u16() });
            forward.stored = stored;
        }
        Via::Followed => forward.collapsed = true,
        Via::Passed => {
            forward.status = Some(status.as_u16());
            cache_status.ttl = None;
        }
    }
    cache_status.fate = Fate::Forward(forward);
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
    fn what_a_lower_tier_brought_is_a_hit_with_the_tiers_name_and_an_age() {
        let lifetime = Lifetime::fresh(Duration::from_secs(60));
        let meta = Meta::new(Timestamp::from_millis(0), lifetime);
        let answer = Answer { status: StatusCode::OK, headers: HeaderMap::new() };
        let body = Body::whole(Bytes::from_static(b"body"));
        let entry = Arc::new(Entry::new(meta, answer.into_head(), body));
        let obtained = Obtained { entry, via: Via::Tier("disk"), why: Some(Why::UriMiss) };
        let asker = Asker { method: &Method::GET, headers: &HeaderMap::new() };
        let response = deliver(asker, &obtained, Timestamp::from_millis(20_000));
        let headers = response.expect("a head that makes sense").into_parts().0.headers;
        assert_eq!(headers["cache-status"], "forebay; hit; ttl=40; detail=disk");
        assert_eq!(headers["age"], "20");
    }
}
