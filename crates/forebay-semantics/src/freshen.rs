//! What an answer does to what is stored already: a 304, a HEAD, a failed validation.

use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, LAST_MODIFIED};

use crate::fields::{digits, single};
use crate::storable::Answered;

/// What the answer to a conditional request means for what is stored (RFC 9111 section 4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validated {
    /// 304: the stored response that was asked about can be used, with the fields of the 304.
    Unchanged,
    /// It is answered in full, and takes the place of what is stored.
    Replaced,
    /// A server error: it may be passed on, or the stored response served as if the origin could
    /// not be reached.
    Failed,
}

/// What a 200 to a HEAD means for a stored answer to GET (RFC 9111 section 4.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadSays {
    /// Nothing: it is no 200.
    Nothing,
    /// It is the same: its fields are updated, as by a 304.
    Same,
    /// It has changed: what is stored is stale from now on.
    Changed,
}

/// Reads the status of an answer to a conditional request (RFC 9111 section 4.3.3).
#[must_use]
pub fn validated(status: StatusCode) -> Validated {
    match status {
        StatusCode::NOT_MODIFIED => Validated::Unchanged,
        status if status.is_server_error() => Validated::Failed,
        _ => Validated::Replaced,
    }
}

/// What the answer to a HEAD says of a stored answer to GET with a body of this length (RFC 9111
/// section 4.3.5): the same if each validator that came is the stored one, and so is the length.
///
/// Where it is the same, [`merge_not_modified`](crate::validate::merge_not_modified) makes the
/// new fields.
#[must_use]
pub fn head_says(head: Answered<'_>, stored: &HeaderMap, length: Option<u64>) -> HeadSays {
    if head.status != StatusCode::OK {
        return HeadSays::Nothing;
    }
    let agrees = |name: &HeaderName| {
        let new = head.headers.get_all(name).iter();
        !head.headers.contains_key(name) || new.eq(stored.get_all(name))
    };
    let new = single(head.headers, &CONTENT_LENGTH).map(|value| digits(value.as_bytes()));
    let known = length.or_else(|| digits(single(stored, &CONTENT_LENGTH)?.as_bytes()));
    let same_length = new.is_none_or(|new| new.is_some() && new == known);
    // Another coding is another representation, whatever its tag.
    let same_coding = agrees(&CONTENT_ENCODING);
    if agrees(&ETAG) && agrees(&LAST_MODIFIED) && same_length && same_coding {
        HeadSays::Same
    } else {
        HeadSays::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::headers;

    const MODIFIED: &str = "last-modified: Sun, 06 Nov 1994 08:00:00 GMT";

    #[test]
    fn an_error_is_no_answer_to_the_question() {
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
    fn a_head_updates_what_it_agrees_with_and_makes_all_else_stale() {
        // RFC 9111 section 4.3.5.
        let stored = headers(&["etag: \"a\"", MODIFIED, "content-length: 5"]);
        let rows: [(u16, &[&str], HeadSays); 11] = [
            (200, &[], HeadSays::Same),
            (200, &["etag: \"a\"", MODIFIED, "content-length: 5"], HeadSays::Same),
            (200, &["etag: \"a\""], HeadSays::Same),
            (200, &["etag: \"b\"", MODIFIED], HeadSays::Changed),
            (200, &["etag: \"a\"", "etag: \"a\""], HeadSays::Changed),
            (200, &["last-modified: Sun, 06 Nov 1994 08:00:01 GMT"], HeadSays::Changed),
            (200, &["etag: \"a\"", "content-length: 6"], HeadSays::Changed),
            (200, &["content-length: x"], HeadSays::Changed),
            (200, &["etag: \"a\"", "content-encoding: gzip"], HeadSays::Changed),
            (404, &["etag: \"b\""], HeadSays::Nothing),
            (304, &[], HeadSays::Nothing),
        ];
        for (status, lines, expected) in rows {
            let status = StatusCode::from_u16(status).unwrap();
            let fields = headers(lines);
            let head = Answered { status, headers: &fields };
            assert_eq!(head_says(head, &stored, None), expected, "{status} {lines:?}");
        }
        let fields = headers(&["content-length: 5"]);
        let head = Answered { status: StatusCode::OK, headers: &fields };
        assert_eq!(head_says(head, &HeaderMap::new(), Some(5)), HeadSays::Same);
        assert_eq!(head_says(head, &HeaderMap::new(), Some(6)), HeadSays::Changed);
        assert_eq!(head_says(head, &HeaderMap::new(), None), HeadSays::Changed);
    }
}
