//! Asking the origin whether an entry is still good, and telling a client that its copy is.

use bytes::Bytes;
use forebay_core::Validator;
use http::StatusCode;
use http::header::{
    AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE,
    CONTENT_TYPE, DATE, ETAG, EXPIRES, HeaderMap, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
    SET_COOKIE, VARY,
};

use crate::date::http_date;
use crate::fields::{single, tokens};
use crate::hop::strip_hop_by_hop;
use crate::lifetime::date_in;

/// The conditions and ranges that a client may send.
const CONDITIONS: [HeaderName; 6] =
    [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE];

/// What a 304 never changes in a stored response, beside the hop-by-hop fields. The first belongs
/// to the body of the 304 itself (RFC 9111 section 3.2); the next four say how the stored bytes
/// are to be read, or sum them up, and they stay as they are; a cookie is for the client whose
/// request caused the validation.
const NEVER_UPDATED: [HeaderName; 6] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CONTENT_RANGE,
    HeaderName::from_static("content-md5"),
    SET_COOKIE,
];

/// What a 304 to a client repeats of the stored response: the fields that guide its cache (RFC 9110
/// section 15.4.5), and those that a browser checks on each response that it gets, before it looks
/// into its cache. Without the latter a cross-origin script may not see that its copy is good.
///
/// Policies for a document (`Content-Security-Policy` and its like) stay out: a nonce in them
/// belongs to the bytes that the client has.
const NOT_MODIFIED_FIELDS: [HeaderName; 8] = [
    CACHE_CONTROL,
    CONTENT_LOCATION,
    DATE,
    ETAG,
    EXPIRES,
    VARY,
    HeaderName::from_static("timing-allow-origin"),
    HeaderName::from_static("cross-origin-resource-policy"),
];

/// How the names of the fields begin that say which other origins' scripts may read a response.
const CORS_PREFIX: &str = "access-control-";

/// How the names of the fields begin that describe a body, all but `Content-Location`; and those of
/// policies for it.
const CONTENT_PREFIX: &str = "content-";

/// By what the origin can be asked about this response later. An ETag is kept as it was written;
/// a Last-Modified counts only if it is a date (RFC 9110 section 8.8.2).
#[must_use]
pub fn validator(headers: &HeaderMap) -> Option<Validator> {
    let bytes = |value: &HeaderValue| Bytes::copy_from_slice(value.as_bytes());
    let tag = single(headers, &ETAG).filter(|tag| !tag.is_empty()).map(bytes);
    let modified = single(headers, &LAST_MODIFIED)
        .filter(|date| http_date(date.as_bytes()).is_some())
        .map(bytes);
    (tag.is_some() || modified.is_some()).then_some(Validator { tag, modified })
}

/// Removes the client's conditions and ranges from a request that is going to fill the cache:
/// they were about that client's copy, and the answer is for everybody.
pub fn strip_conditions(headers: &mut HeaderMap) {
    for name in &CONDITIONS {
        headers.remove(name);
    }
}

/// Whether a request has conditions, or asks for a part.
#[must_use]
pub fn is_conditional(request: &HeaderMap) -> bool {
    CONDITIONS.iter().any(|name| request.contains_key(name))
}

/// Makes a request conditional on the stored response having changed (RFC 9111 section 4.3.1).
/// Both validators are sent; an origin that knows ETags passes over the date. A validator that is
/// no field value is left out.
pub fn make_conditional(headers: &mut HeaderMap, validator: &Validator) {
    let parts = [(IF_NONE_MATCH, &validator.tag), (IF_MODIFIED_SINCE, &validator.modified)];
    for (name, part) in parts {
        headers.remove(&name);
        let value = part.clone().map(HeaderValue::from_maybe_shared);
        if let Some(Ok(value)) = value {
            headers.insert(name, value);
        }
    }
}

/// Whether a 304 is about the stored response (RFC 9111 section 4.3.4). One with a validator that
/// contradicts the stored one is about some other response, and may not update this one; one
/// without any is about what was asked for.
#[must_use]
pub fn confirms(stored: &HeaderMap, fresh: &HeaderMap) -> bool {
    let said = |name| (single(stored, name), single(fresh, name));
    match said(&ETAG) {
        (Some(old), Some(new)) if is_weak(new) => {
            old == new || weak_match(old.as_bytes(), new.as_bytes())
        }
        (old, Some(new)) => old == Some(new),
        (_, None) => match said(&LAST_MODIFIED) {
            (Some(old), Some(new)) => old == new,
            _ => true,
        },
    }
}

/// The stored fields as a 304 leaves them (RFC 9111 section 3.2): each of its fields replaces all
/// lines of that name, but for hop-by-hop fields and those that describe the stored bytes.
///
/// The stored `Date` and `Age` are about an older exchange and always go: a 304 without `Date`
/// is dated when it is received, like any other answer.
///
/// Names in the stored `Vary` stay beside those of the new one: the stored bytes were made for
/// the request fields that it names, and must not be found by requests with others.
#[must_use]
pub fn merge_not_modified(stored: &HeaderMap, fresh: &HeaderMap) -> HeaderMap {
    let mut news = fresh.clone();
    strip_hop_by_hop(&mut news);
    for name in &NEVER_UPDATED {
        news.remove(name);
    }
    let mut merged = HeaderMap::with_capacity(stored.len() + news.len());
    let kept = stored
        .iter()
        .filter(|(name, _)| !news.contains_key(*name) && **name != DATE && **name != AGE);
    for (name, value) in kept.chain(&news) {
        merged.append(name, value.clone());
    }
    let is_new = |name: &&[u8]| !tokens(&news, &VARY).any(|new| new.eq_ignore_ascii_case(name));
    if news.contains_key(VARY) {
        for name in tokens(stored, &VARY).filter(is_new) {
            merged.extend(HeaderValue::from_bytes(name).map(|name| (VARY, name)));
        }
    }
    merged
}

/// Whether the client's own copy is as good as the stored response, so that a 304 will do
/// (RFC 9111 section 4.3.2). For GET and HEAD.
#[must_use]
pub fn client_has_it(request: &HeaderMap, status: StatusCode, stored: &HeaderMap) -> bool {
    // RFC 9110 section 13.2.1: conditions count only where the answer would be a success.
    if !status.is_success() {
        return false;
    }
    // RFC 9110 section 13.1.3: If-None-Match takes precedence, whatever it holds.
    if request.contains_key(IF_NONE_MATCH) {
        return none_match_fails(request, stored);
    }
    // RFC 9110 section 15.4.5: without a tag, a 304 stands for a 200.
    if status != StatusCode::OK {
        return false;
    }
    // An If-Modified-Since that is no date or more than one is passed over.
    let Some(since) = date_in(request, &IF_MODIFIED_SINCE) else { return false };
    let changed = if stored.contains_key(LAST_MODIFIED) { &LAST_MODIFIED } else { &DATE };
    date_in(stored, changed).is_some_and(|changed| changed <= since)
}

/// The fields of a 304 to a client, made from a stored response (RFC 9110 section 15.4.5).
/// `Last-Modified` comes along only where there is no `ETag` to tell copies apart.
#[must_use]
pub fn not_modified_fields(stored: &HeaderMap) -> HeaderMap {
    let has_tag = stored.contains_key(ETAG);
    let is_repeated = |name: &HeaderName| {
        NOT_MODIFIED_FIELDS.contains(name)
            || name.as_str().starts_with(CORS_PREFIX)
            || (!has_tag && *name == LAST_MODIFIED)
    };
    let mut fields = HeaderMap::with_capacity(NOT_MODIFIED_FIELDS.len());
    for (name, value) in stored.iter().filter(|(name, _)| is_repeated(name)) {
        fields.append(name, value.clone());
    }
    fields
}

/// The fields of a 304 to a client, made from a response that its origin sent for this client
/// alone: all of them, cookies too, but for those that describe the body which is left out (RFC
/// 9110 section 15.4.5).
#[must_use]
pub fn not_modified_for_one(answered: &HeaderMap) -> HeaderMap {
    let has_tag = answered.contains_key(ETAG);
    let describes_body = |name: &HeaderName| {
        (name.as_str().starts_with(CONTENT_PREFIX) && *name != CONTENT_LOCATION)
            || (has_tag && *name == LAST_MODIFIED)
    };
    let kept = answered.iter().filter(|(name, _)| !describes_body(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether a request asks for what the client has not got yet: such a condition may be judged by
/// the origin, in place of a cache that has nothing to judge it by.
#[must_use]
pub fn asks_whether_modified(request: &HeaderMap) -> bool {
    request.contains_key(IF_NONE_MATCH) || request.contains_key(IF_MODIFIED_SINCE)
}

/// Adds a client's conditions to a request whose answer is for that client alone.
pub fn take_conditions(fields: &mut HeaderMap, request: &HeaderMap) {
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE] {
        for value in request.get_all(&name) {
            fields.append(name.clone(), value.clone());
        }
    }
}

/// The cookies of a 304, which belong to the client whose request it answers.
#[must_use]
pub fn cookies_of(fresh: &HeaderMap) -> HeaderMap {
    let cookies = fresh.get_all(SET_COOKIE).into_iter();
    cookies.map(|value| (SET_COOKIE, value.clone())).collect()
}

/// Whether the request holds conditions that a cache must not judge: If-Match and
/// If-Unmodified-Since are for the origin alone (RFC 9111 section 4.3.2). Such a request is
/// forwarded as it is, and its answer is for its client only.
#[must_use]
pub fn must_forward(request: &HeaderMap) -> bool {
    request.contains_key(IF_MATCH) || request.contains_key(IF_UNMODIFIED_SINCE)
}

/// RFC 9110 section 13.1.2: `*` fails for whatever exists, a list if one of its tags matches,
/// compared weakly.
fn none_match_fails(request: &HeaderMap, stored: &HeaderMap) -> bool {
    if single(request, &IF_NONE_MATCH).is_some_and(|value| value.as_bytes().trim_ascii() == b"*") {
        return true;
    }
    let Some(tag) = single(stored, &ETAG).map(HeaderValue::as_bytes) else { return false };
    request
        .get_all(IF_NONE_MATCH)
        .into_iter()
        .flat_map(|line| EntityTags { rest: line.as_bytes() })
        .any(|candidate| weak_match(candidate, tag))
}

/// RFC 9110 section 8.8.3.2: strong comparison. What is not in quotes is no strong tag.
pub(crate) fn strong_match(one: &[u8], other: &[u8]) -> bool {
    let one = one.trim_ascii();
    one.starts_with(b"\"") && one == other.trim_ascii()
}

/// RFC 9110 section 8.8.3.2: weak comparison looks past `W/`.
pub(crate) fn weak_match(one: &[u8], other: &[u8]) -> bool {
    let one = opaque(one);
    !one.is_empty() && one == opaque(other)
}

pub(crate) fn is_weak(tag: &HeaderValue) -> bool {
    tag.as_bytes().trim_ascii().starts_with(b"W/")
}

fn opaque(tag: &[u8]) -> &[u8] {
    let tag = tag.trim_ascii();
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The entity-tags of a list. A tag may hold commas and knows no escapes (RFC 9110 section
/// 8.8.3), so lists of them divide otherwise than lists of quoted strings. What is not in quotes
/// ends at the next comma.
struct EntityTags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for EntityTags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let rest = self.rest.get(start..)?;
        let end = end_of_tag(rest);
        let (tag, rest) = rest.split_at_checked(end)?;
        self.rest = rest;
        Some(tag.trim_ascii_end())
    }
}

fn end_of_tag(text: &[u8]) -> usize {
    let prefix = if text.starts_with(b"W/") { 2 } else { 0 };
    let (open, until) = match text.get(prefix) {
        Some(b'"') => (prefix + 1, b'"'),
        _ => (0, b','),
    };
    let inside = text.get(open..).unwrap_or_default();
    let end = inside.iter().position(|byte| *byte == until).map(|at| open + at);
    end.map_or(text.len(), |end| end + usize::from(until == b'"'))
}

#[cfg(test)]
mod tests;
