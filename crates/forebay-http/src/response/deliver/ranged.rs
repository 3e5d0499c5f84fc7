//! Responses to range requests, cut from a stored body, an arriving body or stored parts.

use std::ops::Range;

use bytes::Bytes;
use forebay_engine::Entry;
use forebay_engine::clock::unforeseeable;
use forebay_semantics::multipart::{Multipart, Piece};
use forebay_semantics::partial::{ContentRange, Span, unsatisfied};
use forebay_semantics::range::{Wanted, ranges, stored_range};
use forebay_semantics::validate;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::RequestHead;
use crate::load::SentPart;
use crate::response::body::{Part, ResponseBody};
use crate::stored::head::Answer;
use crate::stored::partial::Partial;

/// Status, fields and body of a response, before `Age` and `Cache-Status` are added.
pub(super) struct Prepared {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: ResponseBody,
}

/// Creates the response to a range request; `None` if the whole body is the response.
///
/// RFC 9110 section 14.2: a range is defined for GET.
pub(super) fn ranged(request: RequestHead<'_>, answer: &Answer, entry: &Entry) -> Option<Prepared> {
    if !request.headers.contains_key(RANGE) || *request.method != Method::GET {
        return None;
    }
    let length = length(answer, entry)?;
    match ranges(request.headers, &answer.headers, answer.status, length) {
        Wanted::Whole => None,
        Wanted::One(span) => {
            Some(one(answer, entry, ContentRange { span, complete: Some(length) }))
        }
        Wanted::Several(spans) => several(answer, entry, &spans, length),
        Wanted::Unsatisfiable => {
            let mut headers = answer.headers.clone();
            headers.remove(CONTENT_LENGTH);
            headers.insert(CONTENT_RANGE, unsatisfied(length));
            let body = ResponseBody::whole(Bytes::new());
            Some(Prepared { status: StatusCode::RANGE_NOT_SATISFIABLE, headers, body })
        }
    }
}

/// Returns the length of a body in bytes; for an arriving body the one in its `Content-Length`.
pub(crate) fn length(answer: &Answer, entry: &Entry) -> Option<u64> {
    entry.body.length().or_else(|| {
        let stated = answer.headers.get(CONTENT_LENGTH)?;
        stated.to_str().ok()?.parse().ok()
    })
}

fn one(answer: &Answer, entry: &Entry, range: ContentRange) -> Prepared {
    let headers = part_fields(&answer.headers, range);
    let body = cut(entry, range.span.first..range.span.last + 1);
    Prepared { status: StatusCode::PARTIAL_CONTENT, headers, body }
}

/// Creates a multipart response (RFC 9110 section 15.3.7.2). `None` for an arriving body, whose
/// ranges would have to be buffered: the whole is sent.
fn several(answer: &Answer, entry: &Entry, spans: &[Span], length: u64) -> Option<Prepared> {
    let multipart = Multipart::new(spans, length, &answer.headers, unforeseeable());
    let part = |piece: &Piece| match piece {
        Piece::Text(text) => Some(Part::Text(text.clone())),
        Piece::Body(span) => entry.body.part(span.first..span.last + 1).map(Part::Body),
    };
    let parts = multipart.pieces().iter().map(part).collect::<Option<_>>()?;
    let mut headers = answer.headers.clone();
    headers.insert(CONTENT_TYPE, multipart.content_type());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(multipart.content_length()));
    let body = ResponseBody::parts(parts, multipart.content_length());
    Some(Prepared { status: StatusCode::PARTIAL_CONTENT, headers, body })
}

/// Creates the response from stored parts; `None` if they lack a requested byte. A part that the
/// origin sent for this request is the response in any case, with its own `Content-Range`.
pub(super) fn from_parts(
    request: RequestHead<'_>,
    partial: &Partial,
    sent: Option<&SentPart>,
    entry: &Entry,
) -> Option<Prepared> {
    let wanted = stored_range(request.headers, &partial.headers, &partial.parts);
    let (range, said) = match (wanted, sent) {
        (Some(range), _) => (range, range.to_value()),
        (None, Some(sent)) => (sent.range, sent.stated.clone()),
        (None, None) => return None,
    };
    let place = partial.place(range.span)?;
    // Conditions refer to the whole, which would be a 200 (RFC 9110 section 13.2.2).
    if validate::client_has_it(request.headers, StatusCode::OK, &partial.headers) {
        let headers = validate::not_modified_fields(&partial.headers);
        let body = ResponseBody::whole(Bytes::new());
        return Some(Prepared { status: StatusCode::NOT_MODIFIED, headers, body });
    }
    let mut headers = part_fields(&partial.headers, range);
    headers.insert(CONTENT_RANGE, said);
    Some(Prepared { status: StatusCode::PARTIAL_CONTENT, headers, body: cut(entry, place) })
}

/// Returns the body of a range. For an arriving body the response begins as soon as the range
/// arrives.
fn cut(entry: &Entry, place: Range<u64>) -> ResponseBody {
    let (skip, length) = (place.start, place.end - place.start);
    match entry.body.part(place) {
        Some(reader) => ResponseBody::reader(reader),
        None => ResponseBody::slice(entry.body.reader(), skip, length),
    }
}

fn part_fields(fields: &HeaderMap, range: ContentRange) -> HeaderMap {
    let mut headers = fields.clone();
    headers.insert(CONTENT_RANGE, range.to_value());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(range.span.len()));
    headers
}
