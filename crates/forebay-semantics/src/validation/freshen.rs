//! Updates of a stored response by a later one: a 304, a HEAD, a failed validation (RFC 9111
//! section 4.3).

use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, LAST_MODIFIED};

use crate::fields::{digits, single};
use crate::message::ResponseRef;

/// Effect of the response to a conditional request on the stored response (RFC 9111 section 4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validated {
    /// Status 304: the stored response can be used, with the fields of the 304.
    Unchanged,
    /// Any status but 304 and 5xx, so also 4xx: the response replaces the stored one.
    Replaced,
    /// A server error: it may be passed on, or the stored response may be served as if the origin
    /// were unreachable.
    Failed,
}

/// Effect of the response to a HEAD on a stored response to GET (RFC 9111 section 4.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadValidation {
    /// The HEAD has no effect on the stored response, because its status is not 200.
    Nothing,
    /// The stored response is current; its fields are updated as by a 304.
    Same,
    /// The stored response has changed and becomes stale.
    Changed,
}

/// Returns the effect of the response to a conditional request with this status (RFC 9111 section
/// 4.3.3).
#[must_use]
pub fn validated(status: StatusCode) -> Validated {
    match status {
        StatusCode::NOT_MODIFIED => Validated::Unchanged,
        status if status.is_server_error() => Validated::Failed,
        _ => Validated::Replaced,
    }
}

/// Returns the effect of the response to a HEAD on a stored response to GET with a body of `length`
/// bytes (RFC 9111 section 4.3.5): nothing if its status is not 200; unchanged if each of `ETag`,
/// `Last-Modified`, `Content-Length` and `Content-Encoding` that it has equals the stored one;
/// otherwise changed. If `length` is `None`, the stored `Content-Length` is used.
///
/// If unchanged, [`merge_not_modified`](crate::validation::validate::merge_not_modified) returns the updated
/// fields.
#[must_use]
pub fn validate_by_head(
    head: ResponseRef<'_>,
    stored: &HeaderMap,
    length: Option<u64>,
) -> HeadValidation {
    if head.status != StatusCode::OK {
        return HeadValidation::Nothing;
    }
    let agrees = |name: &HeaderName| {
        let new = head.headers.get_all(name).iter();
        !head.headers.contains_key(name) || new.eq(stored.get_all(name))
    };
    let new = single(head.headers, &CONTENT_LENGTH).map(|value| digits(value.as_bytes()));
    let known = length.or_else(|| digits(single(stored, &CONTENT_LENGTH)?.as_bytes()));
    let same_length = new.is_none_or(|new| new.is_some() && new == known);
    // A different coding is a different representation, even with the same tag.
    let same_coding = agrees(&CONTENT_ENCODING);
    if agrees(&ETAG) && agrees(&LAST_MODIFIED) && same_length && same_coding {
        HeadValidation::Same
    } else {
        HeadValidation::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::headers;

    const MODIFIED: &str = "last-modified: Sun, 06 Nov 1994 08:00:00 GMT";

    #[test]
    fn a_server_error_does_not_replace_the_stored_response() {
        // RFC 9111 section 4.3.3.
        for (status, expected) in [
            (304, Validated::Unchanged),
            (200, Validated::Replaced),
            (404, Validated::Replaced),
            (412, Validated::Replaced),
            (500, Validated::Failed),
            (503, Validated::Failed),
            (599, Validated::Failed),
        ] {
            assert_eq!(validated(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }

    #[test]
    fn a_head_response_updates_or_invalidates_the_stored_response() {
        // RFC 9111 section 4.3.5.
        let stored = headers(&["etag: \"a\"", MODIFIED, "content-length: 5"]);
        let rows: [(u16, &[&str], HeadValidation); 11] = [
            (200, &[], HeadValidation::Same),
            (200, &["etag: \"a\"", MODIFIED, "content-length: 5"], HeadValidation::Same),
            (200, &["etag: \"a\""], HeadValidation::Same),
            (200, &["etag: \"b\"", MODIFIED], HeadValidation::Changed),
            (200, &["etag: \"a\"", "etag: \"a\""], HeadValidation::Changed),
            (200, &["last-modified: Sun, 06 Nov 1994 08:00:01 GMT"], HeadValidation::Changed),
            (200, &["etag: \"a\"", "content-length: 6"], HeadValidation::Changed),
            (200, &["content-length: x"], HeadValidation::Changed),
            (200, &["etag: \"a\"", "content-encoding: gzip"], HeadValidation::Changed),
            (404, &["etag: \"b\""], HeadValidation::Nothing),
            (304, &[], HeadValidation::Nothing),
        ];
        for (status, lines, expected) in rows {
            let status = StatusCode::from_u16(status).unwrap();
            let fields = headers(lines);
            let head = ResponseRef { status, headers: &fields };
            assert_eq!(validate_by_head(head, &stored, None), expected, "{status} {lines:?}");
        }
        let fields = headers(&["content-length: 5"]);
        let head = ResponseRef { status: StatusCode::OK, headers: &fields };
        assert_eq!(validate_by_head(head, &HeaderMap::new(), Some(5)), HeadValidation::Same);
        assert_eq!(validate_by_head(head, &HeaderMap::new(), Some(6)), HeadValidation::Changed);
        assert_eq!(validate_by_head(head, &HeaderMap::new(), None), HeadValidation::Changed);
    }
}
