//! Validation of stored responses with the origin, and evaluation of client conditions (RFC 9110
//! section 13, RFC 9111 section 4.3).

use bytes::Bytes;
use forebay_core::Validator;
use http::StatusCode;
use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, DATE,
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, SET_COOKIE, VARY,
};

use crate::fields::date::http_date;
use crate::fields::{FieldLines, single, single_line, tokens};
use crate::forwarding::hop::strip_hop_by_hop;
use crate::freshness::lifetime::date_in;

/// Condition and range fields of requests.
const CONDITIONS: [HeaderName; 6] =
    [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE];

/// Fields of a stored response that a 304 does not update, beside the hop-by-hop fields.
/// `Content-Length` belongs to the 304 itself (RFC 9111 section 3.2). The next four describe or
/// digest the stored bytes, which do not change. `Set-Cookie` is for the client whose request
/// caused the validation.
const NEVER_UPDATED: [HeaderName; 6] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CONTENT_RANGE,
    HeaderName::from_static("content-md5"),
    SET_COOKIE,
];

/// Name prefix of the CORS fields, which control access by scripts of other origins.
const CORS_PREFIX: &[u8] = b"access-control-";

/// Name prefix of the fields that describe a body (except `Content-Location`) and of document
/// policies.
const CONTENT_PREFIX: &str = "content-";

/// Returns the validator for later conditional requests about this response, if it has one. An ETag
/// is kept byte for byte; a Last-Modified is used only if it is a valid date (RFC 9110 section
/// 8.8.2). A field that is empty or has several lines does not count.
#[must_use]
pub fn validator(headers: &HeaderMap) -> Option<Validator> {
    let bytes = |value: &HeaderValue| Bytes::copy_from_slice(value.as_bytes());
    let tag = single(headers, &ETAG).filter(|tag| !tag.is_empty()).map(bytes);
    let modified = single(headers, &LAST_MODIFIED)
        .filter(|date| http_date(date.as_bytes()).is_some())
        .map(bytes);
    (tag.is_some() || modified.is_some()).then_some(Validator { tag, modified })
}

/// Returns `true` if a response has a [`validator`].
pub(crate) fn has_validator(headers: &impl FieldLines) -> bool {
    single_line(headers, &ETAG).is_some_and(|tag| !tag.is_empty())
        || date_in(headers, &LAST_MODIFIED).is_some()
}

/// Removes the client's conditions and ranges from a request whose response may be stored: they
/// refer to the copy of one client, and the response is for all.
pub fn strip_conditions(headers: &mut HeaderMap) {
    if !may_be_conditional(headers) {
        return;
    }
    for name in &CONDITIONS {
        headers.remove(name);
    }
}

/// Returns `true` for the name, in lower case, of a field with a condition or a range.
#[must_use]
pub fn is_condition(name: &[u8]) -> bool {
    matches!(
        name,
        b"if-none-match"
            | b"if-modified-since"
            | b"if-match"
            | b"if-unmodified-since"
            | b"if-range"
            | b"range"
    )
}

/// Returns true if a request has conditions or asks for a range.
#[must_use]
pub fn is_conditional(request: &HeaderMap) -> bool {
    CONDITIONS.iter().any(|name| request.contains_key(name))
}

/// Makes a request conditional on a change of the stored response (RFC 9111 section 4.3.1). Both
/// validators are sent; an origin that supports ETags ignores the date. A validator that is not a
/// valid field value is omitted.
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

/// Returns true if a 304 refers to the stored response (RFC 9111 section 4.3.4). A 304 with a
/// different validator refers to another response; `Last-Modified` is compared only if the 304 has
/// no `ETag`. A 304 without a validator refers to the response that was validated.
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

/// Returns the stored fields updated by a 304 (RFC 9111 section 3.2): each of its fields replaces
/// all lines of that name, except hop-by-hop fields, those that describe the stored bytes, and
/// `Set-Cookie`.
///
/// The stored `Date` and `Age` belong to an older exchange and are removed: a 304 without `Date`
/// gets the time of receipt, like every response.
///
/// Names in the stored `Vary` are kept beside those of the 304: the stored bytes were made for the
/// request fields that it names, and must not match requests with other values.
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

/// Returns true if the copy that the client already has is current, so that a 304 is the response
/// to its GET or HEAD (RFC 9111 section 4.3.2). `status` and `stored` belong to the stored
/// response. Only a 2xx is compared by `If-None-Match`; only a 200, and only without that field, by
/// `If-Modified-Since`.
#[must_use]
pub fn client_has_it(
    request: &impl FieldLines,
    status: StatusCode,
    stored: &impl FieldLines,
) -> bool {
    // RFC 9110 section 13.2.1: conditions apply only if the response would be a success.
    if !status.is_success() {
        return false;
    }
    // RFC 9110 section 13.1.3: If-None-Match takes precedence over If-Modified-Since.
    if request.has(&IF_NONE_MATCH) {
        return none_match_fails(request, stored);
    }
    // RFC 9110 section 15.4.5: a date condition applies to a 200 only.
    if status != StatusCode::OK {
        return false;
    }
    // An If-Modified-Since with an invalid date or several lines is ignored.
    let Some(since) = date_in(request, &IF_MODIFIED_SINCE) else { return false };
    let changed = if stored.has(&LAST_MODIFIED) { &LAST_MODIFIED } else { &DATE };
    date_in(stored, changed).is_some_and(|changed| changed <= since)
}

/// Returns the fields of a 304 made from a stored response (RFC 9110 section 15.4.5).
/// `Last-Modified` is included only if there is no `ETag`.
#[must_use]
pub fn not_modified_fields(stored: &HeaderMap) -> HeaderMap {
    let mut fields = HeaderMap::new();
    let has_tag = || stored.contains_key(ETAG);
    let is_repeated = |name: &HeaderName| is_not_modified_field(name.as_str().as_bytes(), has_tag);
    for (name, value) in stored.iter().filter(|(name, _)| is_repeated(name)) {
        fields.append(name, value.clone());
    }
    fields
}

/// Returns `true` if a 304 to a client repeats the stored field with this name, given in lower case:
/// one that controls the client's cache (RFC 9110 section 15.4.5), or one that a browser checks on
/// each response before it uses its cache. Without the latter, a cross-origin script gets a network
/// error. `has_tag` tells whether the stored response has an `ETag`.
///
/// Document policies such as `Content-Security-Policy` are omitted: a nonce in them belongs to the
/// bytes that the client has.
#[must_use]
pub fn is_not_modified_field(name: &[u8], has_tag: impl FnOnce() -> bool) -> bool {
    // The length decides first: a comparison with each name cost more than the rest of a 304.
    let is_listed = match name.len() {
        4 => name == b"date" || name == b"etag" || name == b"vary",
        7 => name == b"expires",
        13 => name == b"cache-control" || (name == b"last-modified" && !has_tag()),
        16 => name == b"content-location",
        19 => name == b"timing-allow-origin",
        28 => name == b"cross-origin-resource-policy",
        _ => false,
    };
    is_listed || name.starts_with(CORS_PREFIX)
}

/// Returns the fields of a 304 made from a response for this client alone: all of them, including
/// cookies, except those that describe the omitted body, and `Last-Modified` beside an `ETag` (RFC
/// 9110 section 15.4.5).
#[must_use]
pub fn private_not_modified_fields(answered: &HeaderMap) -> HeaderMap {
    let has_tag = answered.contains_key(ETAG);
    let describes_body = |name: &HeaderName| {
        (name.as_str().starts_with(CONTENT_PREFIX) && *name != CONTENT_LOCATION)
            || (has_tag && *name == LAST_MODIFIED)
    };
    let kept = answered.iter().filter(|(name, _)| !describes_body(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns `false` if a request has no condition and no range: one pass over the names costs less than
/// a lookup of each field.
#[must_use]
pub fn may_be_conditional(request: &HeaderMap) -> bool {
    request.keys().any(|name| matches!(name.as_str().get(..3), Some("if-" | "ran")))
}

/// Returns true if a request has `If-None-Match` or `If-Modified-Since`. The origin may evaluate
/// these conditions in place of a cache without a stored response.
#[must_use]
pub fn has_cache_conditions(request: &HeaderMap) -> bool {
    request.contains_key(IF_NONE_MATCH) || request.contains_key(IF_MODIFIED_SINCE)
}

/// Adds the client's `If-None-Match` and `If-Modified-Since` to a request whose response is for
/// that client alone.
pub fn copy_conditions(fields: &mut HeaderMap, request: &HeaderMap) {
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE] {
        for value in request.get_all(&name) {
            fields.append(name.clone(), value.clone());
        }
    }
}

/// Returns the `Set-Cookie` lines of a 304, which belong to the client whose request it answers.
#[must_use]
pub fn cookies_of(fresh: &HeaderMap) -> HeaderMap {
    let cookies = fresh.get_all(SET_COOKIE).into_iter();
    cookies.map(|value| (SET_COOKIE, value.clone())).collect()
}

/// Returns true if the request has conditions that a cache must not evaluate: If-Match and
/// If-Unmodified-Since (RFC 9111 section 4.3.2). Such a request is forwarded with its conditions
/// and without a lookup, and its response is for that client alone.
#[must_use]
pub fn must_forward(request: &HeaderMap) -> bool {
    request.contains_key(IF_MATCH) || request.contains_key(IF_UNMODIFIED_SINCE)
}

/// RFC 9110 section 13.1.2: `*` matches every existing response, a list matches if one of its tags
/// matches in a weak comparison.
fn none_match_fails(request: &impl FieldLines, stored: &impl FieldLines) -> bool {
    let only = single_line(request, &IF_NONE_MATCH);
    if only.is_some_and(|value| value.trim_ascii() == b"*") {
        return true;
    }
    let Some(tag) = single_line(stored, &ETAG) else { return false };
    // Nearly all clients send the one tag that they got, as they got it.
    if only == Some(tag) && tag.starts_with(b"\"") {
        return true;
    }
    request
        .lines(&IF_NONE_MATCH)
        .flat_map(|line| EntityTags { rest: line })
        .any(|candidate| weak_match(candidate, tag))
}

/// RFC 9110 section 8.8.3.2: strong comparison. An unquoted value is not a strong tag.
pub(crate) fn strong_match(one: &[u8], other: &[u8]) -> bool {
    let one = one.trim_ascii();
    one.starts_with(b"\"") && one == other.trim_ascii()
}

/// RFC 9110 section 8.8.3.2: weak comparison ignores `W/`.
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

/// Iterator over the entity tags of a list. A tag may contain commas and has no escapes (RFC 9110
/// section 8.8.3), so the list is split differently from one of quoted strings. An unquoted tag
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
