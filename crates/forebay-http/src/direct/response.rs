//! Response of a direct hit: the stored bytes, and the few fields that change.

use forebay_core::Timestamp;
use forebay_core::judge::ttl_seconds;
use forebay_engine::{Body, Entry, LongReader};
use forebay_semantics::coding::encoded::is_strong;
use forebay_semantics::lifetime::age_seconds;
use forebay_semantics::{CacheStatus, FieldLines, validate};
use http::header::{HeaderName, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, StatusCode};

use super::request::PlainRequest;
use crate::compress::choose::Chosen;
use crate::request_guard::DirectOutput;
use crate::stored::head::{LENGTH_START, StoredHead, StoredLine, Tagged};

/// Response that was written.
pub(super) struct Written {
    /// Status code.
    pub(super) status: StatusCode,
    /// Length of the body in bytes.
    pub(super) body: u64,
    pub(super) cache_status: CacheStatus,
    /// Age in seconds.
    pub(super) age: u64,
}

/// Body that is in memory as a whole.
enum Content<'e> {
    Slice(&'e [u8]),
    Long(LongReader),
}

impl<'e> Content<'e> {
    fn of(body: &'e Body) -> Option<Self> {
        body.slice().map(Self::Slice).or_else(|| body.long_reader().map(Self::Long))
    }

    fn length(&self) -> u64 {
        match self {
            Self::Slice(bytes) => bytes.len() as u64,
            Self::Long(reader) => reader.left(),
        }
    }
}

/// Writes the response to a request from the chosen form of a fresh entry. Returns `None`, and writes nothing, if
/// hyper must write it: the body is not in memory as a whole, or the framing of the response
/// depends on its status.
pub(super) fn write(
    request: &PlainRequest<'_>,
    entry: &Entry,
    chosen: Chosen<'_>,
    hsts: Option<&HeaderValue>,
    now: Timestamp,
    output: &mut DirectOutput,
) -> Option<Written> {
    let stored = StoredHead::parse(chosen.head(entry).slice()?)?;
    let body = chosen.body(entry);
    let content = Content::of(body)?;
    let body_length = content.length();
    let cache_status = CacheStatus::hit(ttl_seconds(&entry.meta, now));
    let front = stored.front();
    if request.has_conditions() {
        let tagged = stored.tagged(&front);
        if validate::client_has_it(request, stored.status, &tagged) {
            write_not_modified(&tagged, chosen, output);
            // A 304 does not repeat the stored field.
            write_field(STRICT_TRANSPORT_SECURITY, hsts, output);
            let age = write_own_fields(entry, cache_status, now, output);
            return Some(Written { status: StatusCode::NOT_MODIFIED, body: 0, cache_status, age });
        }
    }
    if !is_framed_by_length(stored.status) {
        return None;
    }
    // hyper would add a missing date.
    if !front.has_date() {
        return None;
    }
    let stated_length = front.content_length();
    let mut length = itoa::Buffer::new();
    let length = length.format(body_length);
    if stated_length.is_some_and(|stated| stated != length.as_bytes()) {
        return None;
    }
    output.write(stored.status_line);
    output.write(front.without_age);
    if stated_length.is_none() {
        output.write(LENGTH_START);
        output.write(length.as_bytes());
        output.write(b"\r\n");
    }
    if hsts.is_some() && !stored.has(&STRICT_TRANSPORT_SECURITY) {
        write_field(STRICT_TRANSPORT_SECURITY, hsts, output);
    }
    let age = write_own_fields(entry, cache_status, now, output);
    if request.is_head() {
        return Some(Written { status: stored.status, body: 0, cache_status, age });
    }
    match content {
        Content::Slice(bytes) => output.write_body(bytes, || body.bytes()),
        Content::Long(reader) => output.write_long_body(reader),
    }
    Some(Written { status: stored.status, body: body_length, cache_status, age })
}

/// Returns `true` if a response with this status has a body, framed by its length (RFC 9112 section
/// 6.3).
pub(super) fn is_framed_by_length(status: StatusCode) -> bool {
    let has_no_body = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || status == StatusCode::NOT_MODIFIED;
    !has_no_body && status != StatusCode::PARTIAL_CONTENT
}

/// Writes the status line and the repeated fields of a 304.
fn write_not_modified(tagged: &Tagged<'_>, chosen: Chosen<'_>, output: &mut DirectOutput) {
    output.write(b"HTTP/1.1 304 Not Modified\r\n");
    output.write(tagged.dates);
    match tagged.only_tag().filter(|tag| chosen.has_weak_tag() && is_strong(tag)) {
        Some(tag) => {
            output.write(b"etag: W/");
            output.write(tag);
            output.write(b"\r\n");
        }
        None => output.write(tagged.tags),
    }
    for StoredLine { name, whole, .. } in tagged.other_lines() {
        if validate::is_not_modified_field(name, || !tagged.tags.is_empty()) {
            output.write(whole);
        }
    }
}

fn write_field(name: HeaderName, value: Option<&HeaderValue>, output: &mut DirectOutput) {
    let Some(value) = value else { return };
    output.write(name.as_str().as_bytes());
    output.write(b": ");
    output.write(value.as_bytes());
    output.write(b"\r\n");
}

/// Writes `Age`, `Cache-Status` and the end of the head. Returns the age in seconds.
fn write_own_fields(
    entry: &Entry,
    cache_status: CacheStatus,
    now: Timestamp,
    output: &mut DirectOutput,
) -> u64 {
    let (age, mut digits) = (age_seconds(entry.meta.age(now)), itoa::Buffer::new());
    output.write(b"age: ");
    output.write(digits.format(age).as_bytes());
    output.write(b"\r\ncache-status: ");
    output.write(&cache_status.to_bytes());
    output.write(b"\r\n\r\n");
    age
}
