//! What an answer does to what is stored already: a 304, a HEAD, a failed validation.

use forebay_core::Validator;
use http::StatusCode;
use http::header::{
    CONTENT_LENGTH, DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LAST_MODIFIED,
};
use smallvec::SmallVec;

use crate::fields::{digits, single};
use crate::lifetime::date_in;
use crate::storable::Answered;
use crate::validate::{is_weak, make_conditional, strong_match, weak_match};

/// How many stored variants one request is made conditional on: more tags would make a head that
/// origins refuse.
pub const VALIDATORS_MAX: usize = 16;

/// What the answer to a conditional request means for what is stored (RFC 9111 section 4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validated {
    /// 304: it can be used, with the fields of the 304; see [`updated`] for which of several.
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

/// Makes a request conditional on all of these stored responses having changed (RFC 9111 section
/// 4.3.1), [`VALIDATORS_MAX`] at most. A date can be asked about for one only.
pub fn make_conditional_on(headers: &mut HeaderMap, validators: &[Validator]) {
    if let [one] = validators {
        return make_conditional(headers, one);
    }
    make_conditional(headers, &Validator::default());
    let tags = validators.iter().filter_map(|one| one.tag.as_deref()).take(VALIDATORS_MAX);
    let list = tags.collect::<Vec<_>>().join(&b", "[..]);
    if let (false, Ok(list)) = (list.is_empty(), HeaderValue::from_bytes(&list)) {
        headers.insert(IF_NONE_MATCH, list);
    }
}

/// Which of several stored responses a 304 updates (RFC 9111 section 4.3.4), by their places.
///
/// With a strong validator: all that have the same. With weak ones: the most recent of those that
/// match. With none: the only one there is, if it has none either.
#[must_use]
pub fn updated(stored: &[&HeaderMap], fresh: &HeaderMap) -> SmallVec<[usize; 4]> {
    let matching = |same: &dyn Fn(&HeaderMap) -> bool| -> SmallVec<[usize; 4]> {
        stored.iter().enumerate().filter(|(_, one)| same(one)).map(|(place, _)| place).collect()
    };
    match (single(fresh, &ETAG), single(fresh, &LAST_MODIFIED)) {
        (Some(tag), _) if !is_weak(tag) => {
            matching(&|one| tag_of(one).is_some_and(|own| strong_match(own, tag.as_bytes())))
        }
        (Some(tag), _) => latest(
            stored,
            matching(&|one| tag_of(one).is_some_and(|own| weak_match(own, tag.as_bytes()))),
        ),
        (None, Some(date)) => {
            latest(stored, matching(&|one| single(one, &LAST_MODIFIED) == Some(date)))
        }
        (None, None) if stored.len() == 1 => matching(&has_no_validator),
        (None, None) => SmallVec::new(),
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
    if agrees(&ETAG) && agrees(&LAST_MODIFIED) && same_length {
        HeadSays::Same
    } else {
        HeadSays::Changed
    }
}

/// The most recent by `Date`; of those with the same, the one that stands last.
fn latest(stored: &[&HeaderMap], places: SmallVec<[usize; 4]>) -> SmallVec<[usize; 4]> {
    let date = |place: &usize| stored.get(*place).and_then(|one| date_in(one, &DATE));
    places.into_iter().max_by_key(date).into_iter().collect()
}

fn tag_of(stored: &HeaderMap) -> Option<&[u8]> {
    single(stored, &ETAG).map(HeaderValue::as_bytes)
}

fn has_no_validator(stored: &HeaderMap) -> bool {
    !stored.contains_key(ETAG) && !stored.contains_key(LAST_MODIFIED)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::samples::headers;

    const EARLY: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT";
    const LATE: &str = "date: Sun, 06 Nov 1994 08:49:38 GMT";
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
    fn a_304_updates_the_responses_that_it_can_be_about() {
        // RFC 9111 section 4.3.4: a row per case.
        let a = headers(&["etag: \"a\"", LATE]);
        let a_too = headers(&["etag: \"a\"", EARLY, MODIFIED]);
        let weak = headers(&["etag: W/\"a\"", LATE]);
        let weak_old = headers(&["etag: W/\"a\"", EARLY]);
        let b = headers(&["etag: \"b\"", LATE]);
        let dated = headers(&[MODIFIED, EARLY]);
        let dated_late = headers(&[MODIFIED, LATE]);
        let plain = headers(&[EARLY]);
        let rows: [(&[&HeaderMap], &[&str], &[usize]); 11] = [
            (&[&b, &a, &a_too], &["etag: \"a\""], &[1, 2]),
            (&[&b, &weak], &["etag: \"a\""], &[]),
            (&[&b], &["etag: \"a\"", MODIFIED], &[]),
            (&[&weak_old, &weak, &b], &["etag: W/\"a\""], &[1]),
            (&[&weak, &weak_old], &["etag: W/\"a\""], &[0]),
            (&[&dated_late, &dated], &[MODIFIED], &[0]),
            (&[&dated, &b], &["last-modified: Sun, 06 Nov 1994 08:00:01 GMT"], &[]),
            (&[&plain], &[], &[0]),
            (&[&a], &[], &[]),
            (&[&plain, &plain], &[], &[]),
            (&[], &["etag: \"a\""], &[]),
        ];
        for (stored, fresh, expected) in rows {
            assert_eq!(updated(stored, &headers(fresh))[..], *expected, "{stored:?} {fresh:?}");
        }
    }

    #[test]
    fn a_head_updates_what_it_agrees_with_and_makes_all_else_stale() {
        // RFC 9111 section 4.3.5.
        let stored = headers(&["etag: \"a\"", MODIFIED, "content-length: 5"]);
        let rows: [(u16, &[&str], HeadSays); 10] = [
            (200, &[], HeadSays::Same),
            (200, &["etag: \"a\"", MODIFIED, "content-length: 5"], HeadSays::Same),
            (200, &["etag: \"a\""], HeadSays::Same),
            (200, &["etag: \"b\"", MODIFIED], HeadSays::Changed),
            (200, &["etag: \"a\"", "etag: \"a\""], HeadSays::Changed),
            (200, &["last-modified: Sun, 06 Nov 1994 08:00:01 GMT"], HeadSays::Changed),
            (200, &["etag: \"a\"", "content-length: 6"], HeadSays::Changed),
            (200, &["content-length: x"], HeadSays::Changed),
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

    #[test]
    fn one_question_may_be_about_several_responses() {
        // RFC 9111 section 4.3.1.
        let tag = |text: &str| Validator {
            tag: Some(Bytes::copy_from_slice(text.as_bytes())),
            modified: Some(Bytes::from_static(b"Sun, 06 Nov 1994 08:00:00 GMT")),
        };
        let mut asked = headers(&["if-none-match: \"client\"", "if-modified-since: x", "a: 1"]);
        make_conditional_on(&mut asked, &[tag("\"a\""), tag("W/\"b\"")]);
        assert_eq!(asked, headers(&["a: 1", "if-none-match: \"a\", W/\"b\""]));
        make_conditional_on(&mut asked, &[tag("\"a\"")]);
        let one =
            ["a: 1", "if-none-match: \"a\"", "if-modified-since: Sun, 06 Nov 1994 08:00:00 GMT"];
        assert_eq!(asked, headers(&one));
        make_conditional_on(&mut asked, &[]);
        assert_eq!(asked, headers(&["a: 1"]));
        let many: Vec<_> = (0..=VALIDATORS_MAX).map(|n| tag(&format!("\"{n}\""))).collect();
        make_conditional_on(&mut asked, &many);
        assert_eq!(asked["if-none-match"].to_str().unwrap().split(',').count(), VALIDATORS_MAX);
    }
}
