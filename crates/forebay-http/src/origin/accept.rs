//! Validation of the response heads of an origin.
//!
//! hyper reads a response in every way that RFC 9112 section 6.3 allows, and passes on its framing
//! fields unchanged. They are not forwarded: the client receives newly made ones, and a response
//! whose end is ambiguous is rejected.

use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_semantics::{FieldLines, hop};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};

use crate::request_guard::{INTERIM_MAX, Interims};
use crate::settings::OriginSettings;

/// Reason for which an origin's response head is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidHead {
    /// A 101 without a request for another protocol (RFC 9110 section 15.2.2).
    #[error("the origin answered 101 to a request without Upgrade")]
    Switched,
    /// A transfer coding other than one `chunked` in HTTP/1.1, so that the framing is unknown (RFC
    /// 9112 sections 6.1 and 7).
    #[error("the Transfer-Encoding of the origin's response is not exactly chunked in HTTP/1.1")]
    Coding,
    /// Two framing fields: an attempt at response splitting (RFC 9112 section 6.3).
    #[error("the origin's response has both Transfer-Encoding and Content-Length")]
    BothFramings,
    /// An invalid or contradictory `Content-Length` (RFC 9112 section 6.3).
    #[error("the Content-Length of the origin's response is invalid")]
    Length,
    /// More bytes than the site's `origin_head_max`. hyper's own limit is on a buffer that may hold
    /// twice as much.
    #[error("the head of the origin's response has more than {0} bytes (origin_head_max)")]
    HeadTooLarge(usize),
    /// More fields than the site's `origin_fields_max`.
    #[error("the head of the origin's response has more than {0} fields (origin_fields_max)")]
    TooManyFields(usize),
    /// More than [`INTERIM_MAX`] interim responses: an origin that sends nothing else would cause
    /// work until the timeout.
    #[error("the origin sent more than {INTERIM_MAX} interim responses")]
    Interims,
}

/// Validates a response head and leaves at most one framing field.
pub(super) fn validate_head<B>(
    response: &mut Response<B>,
    limits: HeadLimits,
) -> Result<(), InvalidHead> {
    if response.status().is_informational() {
        return Err(InvalidHead::Switched);
    }
    let (status, version) = (response.status(), response.version());
    let headers = response.headers_mut();
    limits.check(headers)?;
    let length = content_length(headers)?;
    check_transfer_encoding(headers, version)?;
    match length {
        // RFC 9110 section 8.6: a 204 has no Content-Length.
        Some(length) if status != StatusCode::NO_CONTENT => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        _ => {
            headers.remove(CONTENT_LENGTH);
        }
    }
    Ok(())
}

/// Validates the head of a 101, which has no framing.
pub(super) fn validate_switch_head(
    headers: &HeaderMap,
    limits: HeadLimits,
) -> Result<(), InvalidHead> {
    limits.check(headers)
}

/// Limits on the head of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadLimits {
    fields_max: usize,
    head_max: usize,
}

impl HeadLimits {
    pub(super) const fn of(settings: &OriginSettings) -> Self {
        Self { fields_max: settings.fields_max, head_max: settings.head_max }
    }

    pub(super) const fn fields_max(self) -> usize {
        self.fields_max
    }

    pub(super) const fn head_max(self) -> usize {
        self.head_max
    }

    pub(super) fn check(self, headers: &impl FieldLines) -> Result<(), InvalidHead> {
        // Length on the wire, with colon, space and line ending.
        let add = |(count, size): (usize, usize), (name, value): (&[u8], &[u8])| {
            (count + 1, size + name.len() + value.len() + 4)
        };
        let (count, size) = headers.all().fold((0, 0), add);
        if size > self.head_max {
            return Err(InvalidHead::HeadTooLarge(self.head_max));
        }
        if count > self.fields_max {
            return Err(InvalidHead::TooManyFields(self.fields_max));
        }
        Ok(())
    }

    /// Returns the limit exceeded by a head that hyper rejected as too large after `received`
    /// bytes.
    pub(super) const fn exceeded(self, received: usize) -> InvalidHead {
        if received >= self.head_max {
            InvalidHead::HeadTooLarge(self.head_max)
        } else {
            InvalidHead::TooManyFields(self.fields_max)
        }
    }
}

fn check_transfer_encoding(headers: &HeaderMap, version: Version) -> Result<(), InvalidHead> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).into_iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    if headers.contains_key(CONTENT_LENGTH) {
        return Err(InvalidHead::BothFramings);
    }
    let is_chunked = coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let is_known = is_chunked && codings.next().is_none() && version == Version::HTTP_11;
    is_known.then_some(()).ok_or(InvalidHead::Coding)
}

/// Returns the Content-Length. A repeated equal value counts once, on one line or on several (RFC
/// 9110 section 8.6).
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, InvalidHead> {
    let mut stated = None;
    for line in headers.get_all(CONTENT_LENGTH) {
        for member in line.as_bytes().split(|byte| *byte == b',') {
            let length = digits(member.trim_ascii()).ok_or(InvalidHead::Length)?;
            if *stated.get_or_insert(length) != length {
                return Err(InvalidHead::Length);
            }
        }
    }
    Ok(stated)
}

/// Parses decimal digits; `str::parse` would accept a sign.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

/// Counts the interim responses of one exchange, and forwards them to the client.
#[derive(Debug, Default)]
pub(super) struct InterimRelay {
    count: AtomicUsize,
    client: Interims,
}

impl InterimRelay {
    pub(super) fn new(client: Interims) -> Self {
        Self { count: AtomicUsize::new(0), client }
    }

    /// Counts an interim response, and forwards it to the client, except for 100 and 101, which
    /// concern the connection to the origin (RFC 9110 section 15.2).
    pub(super) fn forward(&self, status: StatusCode, fields: &HeaderMap) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
            return;
        }
        let mut fields = fields.clone();
        hop::strip_hop_by_hop(&mut fields);
        // RFC 9110 section 8.6: a 1xx has no Content-Length.
        fields.remove(CONTENT_LENGTH);
        hop::add_via(&mut fields, Version::HTTP_11);
        self.client.send(status, &fields);
    }

    /// Returns `true` if there were more than [`INTERIM_MAX`].
    pub(super) fn is_exceeded(&self) -> bool {
        self.count.load(Ordering::Relaxed) > INTERIM_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { fields_max: 2, head_max: 100 };

    #[test]
    fn a_head_is_bounded_in_fields_and_in_bytes() {
        let head = |fields: &[&str]| {
            let mut response = Response::new(());
            for value in fields {
                response.headers_mut().append("x-a", HeaderValue::from_str(value).unwrap());
            }
            (validate_head(&mut response, LIMITS), validate_switch_head(response.headers(), LIMITS))
        };
        let (long, longer) = ("a".repeat(93), "a".repeat(94));
        let rows = [
            (&["a", "b"][..], Ok(())),
            (&["a", "b", "c"][..], Err(InvalidHead::TooManyFields(2))),
            (&[long.as_str()][..], Ok(())),
            (&[longer.as_str()][..], Err(InvalidHead::HeadTooLarge(100))),
        ];
        for (fields, expected) in rows {
            assert_eq!(head(fields), (expected, expected), "{fields:?}");
        }
        assert_eq!(LIMITS.exceeded(99), InvalidHead::TooManyFields(2));
        assert_eq!(LIMITS.exceeded(100), InvalidHead::HeadTooLarge(100));
    }

    fn judged(status: u16, fields: &[(&'static str, &'static str)]) -> Result<String, InvalidHead> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        validate_head(&mut response, LIMITS)?;
        let lengths = response.headers().get_all(CONTENT_LENGTH).into_iter();
        let lengths: Vec<_> = lengths.map(|length| length.to_str().unwrap()).collect();
        Ok(lengths.join("|"))
    }

    #[test]
    fn a_response_has_at_most_one_framing_field_or_is_rejected() {
        let (length, coding) = ("content-length", "transfer-encoding");
        let rows = [
            (200, vec![], Ok("")),
            (200, vec![(length, "5")], Ok("5")),
            (200, vec![(length, "5"), (length, " 05")], Ok("5")),
            (200, vec![(length, "5, 5")], Ok("5")),
            (204, vec![(length, "5")], Ok("")),
            (304, vec![(length, "5")], Ok("5")),
            (200, vec![(coding, "Chunked ")], Ok("")),
            (200, vec![(length, "5"), (length, "6")], Err(InvalidHead::Length)),
            (200, vec![(length, "5, 6")], Err(InvalidHead::Length)),
            (200, vec![(length, "")], Err(InvalidHead::Length)),
            (200, vec![(length, "+5")], Err(InvalidHead::Length)),
            (200, vec![(length, "18446744073709551616")], Err(InvalidHead::Length)),
            (200, vec![(length, "5"), (coding, "chunked")], Err(InvalidHead::BothFramings)),
            (200, vec![(coding, "gzip, chunked")], Err(InvalidHead::Coding)),
            (200, vec![(coding, "chunked"), (coding, "chunked")], Err(InvalidHead::Coding)),
            (200, vec![(coding, "gzip")], Err(InvalidHead::Coding)),
            (200, vec![(coding, "unheard-of, chunked")], Err(InvalidHead::Coding)),
            (200, vec![(coding, "identity")], Err(InvalidHead::Coding)),
            (200, vec![(coding, "foobar")], Err(InvalidHead::Coding)),
            (200, vec![(coding, "chunked, foobar")], Err(InvalidHead::Coding)),
            (200, vec![(coding, "")], Err(InvalidHead::Coding)),
            (101, vec![], Err(InvalidHead::Switched)),
        ];
        for (status, fields, expected) in rows {
            let came = judged(status, &fields);
            assert_eq!(came, expected.map(str::to_owned), "{status} {fields:?}");
        }
    }

    #[test]
    fn a_transfer_coding_in_an_http_1_0_response_is_rejected() {
        let mut response = Response::new(());
        *response.version_mut() = Version::HTTP_10;
        response.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        assert_eq!(validate_head(&mut response, LIMITS), Err(InvalidHead::Coding));
    }

    #[test]
    fn the_seventeenth_interim_response_is_too_many() {
        let interims = InterimRelay::default();
        let next = || interims.forward(StatusCode::EARLY_HINTS, &HeaderMap::new());
        (0..INTERIM_MAX).for_each(|_| next());
        assert!(!interims.is_exceeded());
        next();
        assert!(interims.is_exceeded());
    }
}
