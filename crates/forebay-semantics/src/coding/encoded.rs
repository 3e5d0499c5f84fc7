//! Fields of responses that a cache encodes: which may be encoded, and what their fields become.

use http::StatusCode;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG,
    HeaderMap, HeaderName, HeaderValue, VARY,
};

use super::Coding;
use super::media_types::MediaTypes;
use crate::directives::Directives;
use crate::fields::{single, tokens};
use crate::message::ResponseRef;
use crate::variants::vary::is_encoded;

/// Fields with a digest of the body as it was sent without a coding (RFC 9530, RFC 3230, and
/// `Content-MD5` of RFC 2616).
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// Returns `true` if `Accept-Encoding` decides what a client gets of this resource: the type is one
/// of `types`, the origin has not encoded the response, and it allows the encoding by others (RFC
/// 9111 section 5.2.2.6).
#[must_use]
pub fn depends_on_coding(headers: &HeaderMap, types: &MediaTypes) -> bool {
    types.contain(headers) && !is_encoded(headers) && !Directives::of_response(headers).no_transform
}

/// Returns `true` if the body of a response may be encoded: [it depends on the
/// client](depends_on_coding), and the response has a whole body.
#[must_use]
pub fn may_encode(response: ResponseRef<'_>, types: &MediaTypes) -> bool {
    let status = response.status;
    let has_no_body = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || status == StatusCode::NOT_MODIFIED;
    let is_part =
        status == StatusCode::PARTIAL_CONTENT || response.headers.contains_key(CONTENT_RANGE);
    !has_no_body && !is_part && depends_on_coding(response.headers, types)
}

/// Adds `Accept-Encoding` to `Vary`, unless it is there or `Vary` is `*`.
pub fn add_vary(headers: &mut HeaderMap) {
    let has_it = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    if !tokens(headers, &VARY).any(has_it) {
        headers.append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    }
}

/// Changes the fields of a response to those of its body in a coding of `length` bytes, if the
/// length is known.
///
/// A strong `ETag` becomes weak, because it names the bytes of the origin (RFC 9110 section 8.8.1);
/// `If-None-Match` compares weakly, so that both validate. Digests of the origin's bytes are
/// removed, and so is `Accept-Ranges`: ranges are those of the body without the coding.
pub fn encode_fields(headers: &mut HeaderMap, coding: Coding, length: Option<u64>) {
    for name in &DIGESTS {
        headers.remove(name);
    }
    headers.remove(ACCEPT_RANGES);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    match length {
        Some(length) => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
        None => headers.remove(CONTENT_LENGTH),
    };
    weaken_tag(headers);
}

/// Makes a strong `ETag` weak.
pub fn weaken_tag(headers: &mut HeaderMap) {
    let Some(tag) = single(headers, &ETAG).filter(|tag| is_strong(tag.as_bytes())) else { return };
    if let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()) {
        headers.insert(ETAG, weak);
    }
}

/// Returns `true` for a strong entity tag (RFC 9110 section 8.8.3): one in quotes, without `W/`.
#[must_use]
pub fn is_strong(tag: &[u8]) -> bool {
    tag.starts_with(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::media_types::MediaTypePattern;

    /// Name and value of a field.
    type Line = (&'static str, &'static str);

    fn fields(lines: &[Line]) -> HeaderMap {
        let line =
            |(name, value): &Line| (HeaderName::from_static(name), HeaderValue::from_static(value));
        lines.iter().map(line).collect()
    }

    #[test]
    fn whole_unencoded_responses_of_the_types_may_be_encoded() {
        let types = MediaTypes::new(MediaTypePattern::parse("text/*"));
        let html = ("content-type", "text/html");
        let rows: [(u16, &[Line], bool, bool); 14] = [
            (200, &[html], true, true),
            (404, &[html], true, true),
            (200, &[], false, false),
            (200, &[("content-type", "image/png")], false, false),
            (200, &[html, ("content-encoding", "gzip")], false, false),
            (200, &[html, ("content-encoding", "identity")], true, true),
            (200, &[html, ("cache-control", "max-age=1, no-transform")], false, false),
            (200, &[html, ("content-range", "bytes 0-1/2")], true, false),
            (206, &[html], true, false),
            (204, &[html], true, false),
            (205, &[html], true, false),
            (304, &[html], true, false),
            (103, &[html], true, false),
            (500, &[html], true, true),
        ];
        for (status, lines, depends, may) in rows {
            let headers = fields(lines);
            let status = StatusCode::from_u16(status).expect("a status");
            let response = ResponseRef { status, headers: &headers };
            let seen = (depends_on_coding(&headers, &types), may_encode(response, &types));
            assert_eq!(seen, (depends, may), "{status} {lines:?}");
        }
    }

    #[test]
    fn vary_names_accept_encoding_once() {
        let rows: [(&[Line], &[&str]); 5] = [
            (&[], &["accept-encoding"]),
            (&[("vary", "Accept-Encoding")], &["Accept-Encoding"]),
            (&[("vary", "accept, ACCEPT-encoding")], &["accept, ACCEPT-encoding"]),
            (&[("vary", "accept")], &["accept", "accept-encoding"]),
            (&[("vary", "*")], &["*"]),
        ];
        for (lines, expected) in rows {
            let mut headers = fields(lines);
            add_vary(&mut headers);
            let vary: Vec<_> = headers.get_all(VARY).into_iter().collect();
            assert_eq!(vary, expected, "{lines:?}");
        }
    }

    #[test]
    fn encoded_fields_have_no_digest_no_ranges_and_a_weak_tag() {
        let lines = [
            ("etag", "\"1\""),
            ("content-length", "9000"),
            ("content-md5", "x"),
            ("digest", "x"),
            ("repr-digest", "x"),
            ("content-digest", "x"),
            ("accept-ranges", "bytes"),
            ("content-encoding", "identity"),
            ("content-type", "text/html"),
        ];
        let mut headers = fields(&lines);
        encode_fields(&mut headers, Coding::Br, Some(70));
        let expected = fields(&[
            ("etag", "W/\"1\""),
            ("content-length", "70"),
            ("content-encoding", "br"),
            ("content-type", "text/html"),
        ]);
        assert_eq!(headers, expected);
        encode_fields(&mut headers, Coding::Gzip, None);
        assert_eq!(
            (headers.get("content-length"), &headers["etag"]),
            (None, &HeaderValue::from_static("W/\"1\""))
        );
    }

    #[test]
    fn only_a_strong_tag_becomes_weak() {
        for (tag, expected) in [("\"\"", "W/\"\""), ("W/\"1\"", "W/\"1\""), ("1", "1"), ("", "")] {
            let mut headers = fields(&[("etag", tag)]);
            weaken_tag(&mut headers);
            assert_eq!(headers["etag"], expected, "{tag}");
        }
        let mut headers = HeaderMap::new();
        weaken_tag(&mut headers);
        assert!(headers.is_empty());
    }
}
