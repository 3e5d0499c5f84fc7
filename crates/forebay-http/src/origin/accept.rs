//! What an origin's head must be before anything in it is believed.
//!
//! hyper reads a response in every way that RFC 9112 section 6.3 allows, and hands its framing
//! fields over as they came. They are then for nobody but us: what the client is told is made
//! anew, and where two readers could differ about the end of a body, there is no answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_semantics::hop;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};
use tokio::sync::Notify;

use crate::request_guard::{INTERIM_MAX, Interims};
use crate::site::OriginSettings;

/// Why an origin's head is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unacceptable {
    /// Only what was asked for can be answered with 101 (RFC 9110 section 15.2.2).
    #[error("the origin answered 101 to a request without Upgrade")]
    Switched,
    /// RFC 9112 sections 6.1 and 7: the framing of a response with any coding but one `chunked`, or
    /// with that one in HTTP/1.0, is not known.
    #[error("the Transfer-Encoding of the origin's response is not exactly chunked in HTTP/1.1")]
    Coding,
    /// RFC 9112 section 6.3: an attempt to make two readers see two bodies.
    #[error("the origin's response has both Transfer-Encoding and Content-Length")]
    BothFramings,
    /// RFC 9112 section 6.3.
    #[error("the Content-Length of the origin's response is invalid")]
    Length,
    /// hyper bounds its buffer, but what that holds may be twice as much.
    #[error("the head of the origin's response has more than {0} bytes (origin_head_max)")]
    HeadTooLarge(usize),
    /// More fields than the site accepts.
    #[error("the head of the origin's response has more than {0} fields (origin_fields_max)")]
    TooManyFields(usize),
    /// More interim responses than anybody needs: an origin that sends nothing else would keep us
    /// busy until the timeout.
    #[error("the origin sent more than {INTERIM_MAX} interim responses")]
    Interims,
}

/// Accepts a head, with one framing field at most.
pub(super) fn accept<B>(
    response: &mut Response<B>,
    limits: HeadLimits,
) -> Result<(), Unacceptable> {
    if response.status().is_informational() {
        return Err(Unacceptable::Switched);
    }
    let (status, version) = (response.status(), response.version());
    let headers = response.headers_mut();
    limits.check(headers)?;
    let length = stated_length(headers)?;
    judge_coding(headers, version)?;
    match length {
        // RFC 9110 section 8.6: not in a 204.
        Some(length) if status != StatusCode::NO_CONTENT => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        _ => {
            headers.remove(CONTENT_LENGTH);
        }
    }
    Ok(())
}

/// Accepts the head of a 101, whose fields have no say in where anything ends.
pub(super) fn accept_switch(headers: &HeaderMap, limits: HeadLimits) -> Result<(), Unacceptable> {
    limits.check(headers)
}

/// Bounds on the head of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadLimits {
    fields_max: usize,
    head_max: usize,
}

impl HeadLimits {
    pub(super) const fn of(settings: &OriginSettings) -> Self {
        Self { fields_max: settings.fields_max, head_max: settings.head_max }
    }

    fn check(self, headers: &HeaderMap) -> Result<(), Unacceptable> {
        // On the wire, with colon, space and line end.
        let line =
            |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
        if headers.iter().map(line).sum::<usize>() > self.head_max {
            return Err(Unacceptable::HeadTooLarge(self.head_max));
        }
        if headers.len() > self.fields_max {
            return Err(Unacceptable::TooManyFields(self.fields_max));
        }
        Ok(())
    }

    /// The bound that a head exceeded of which hyper says no more than that it is too large, and of
    /// which so many bytes had come.
    pub(super) const fn exceeded(self, received: usize) -> Unacceptable {
        if received >= self.head_max {
            Unacceptable::HeadTooLarge(self.head_max)
        } else {
            Unacceptable::TooManyFields(self.fields_max)
        }
    }
}

fn judge_coding(headers: &HeaderMap, version: Version) -> Result<(), Unacceptable> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).into_iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    if headers.contains_key(CONTENT_LENGTH) {
        return Err(Unacceptable::BothFramings);
    }
    let is_chunked = coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let is_known = is_chunked && codings.next().is_none() && version == Version::HTTP_11;
    is_known.then_some(()).ok_or(Unacceptable::Coding)
}

/// RFC 9110 section 8.6: a length that is repeated, in one line or several, counts once.
fn stated_length(headers: &HeaderMap) -> Result<Option<u64>, Unacceptable> {
    let mut stated = None;
    for line in headers.get_all(CONTENT_LENGTH) {
        for member in line.as_bytes().split(|byte| *byte == b',') {
            let length = digits(member.trim_ascii()).ok_or(Unacceptable::Length)?;
            if *stated.get_or_insert(length) != length {
                return Err(Unacceptable::Length);
            }
        }
    }
    Ok(stated)
}

/// Digits alone: `parse` would take a sign.
fn digits(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

/// Passes an interim response on to the client. RFC 9110 section 15.2: all but those that are
/// about our own connection to the origin, 100 and 101.
pub(super) fn pass_on(interims: &Interims, status: StatusCode, fields: &HeaderMap) {
    if matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
        return;
    }
    let mut fields = fields.clone();
    hop::strip_hop_by_hop(&mut fields);
    // RFC 9110 section 8.6: not in a 1xx.
    fields.remove(CONTENT_LENGTH);
    hop::add_via(&mut fields, Version::HTTP_11);
    interims.send(status, &fields);
}

/// Counts the interim responses before one answer.
#[derive(Debug, Default)]
pub(super) struct Flood {
    seen: AtomicUsize,
    too_many: Notify,
}

impl Flood {
    /// One more.
    pub(super) fn count(&self) {
        if self.seen.fetch_add(1, Ordering::Relaxed) == INTERIM_MAX {
            self.too_many.notify_one();
        }
    }

    /// Resolves when there are too many.
    pub(super) async fn exceeded(&self) -> Unacceptable {
        self.too_many.notified().await;
        Unacceptable::Interims
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
            (accept(&mut response, LIMITS), accept_switch(response.headers(), LIMITS))
        };
        let (long, longer) = ("a".repeat(93), "a".repeat(94));
        let rows = [
            (&["a", "b"][..], Ok(())),
            (&["a", "b", "c"][..], Err(Unacceptable::TooManyFields(2))),
            (&[long.as_str()][..], Ok(())),
            (&[longer.as_str()][..], Err(Unacceptable::HeadTooLarge(100))),
        ];
        for (fields, expected) in rows {
            assert_eq!(head(fields), (expected, expected), "{fields:?}");
        }
        assert_eq!(LIMITS.exceeded(99), Unacceptable::TooManyFields(2));
        assert_eq!(LIMITS.exceeded(100), Unacceptable::HeadTooLarge(100));
    }

    fn judged(
        status: u16,
        fields: &[(&'static str, &'static str)],
    ) -> Result<String, Unacceptable> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        accept(&mut response, LIMITS)?;
        let lengths = response.headers().get_all(CONTENT_LENGTH).into_iter();
        let lengths: Vec<_> = lengths.map(|length| length.to_str().unwrap()).collect();
        Ok(lengths.join("|"))
    }

    #[test]
    fn one_framing_field_is_left_or_there_is_no_answer() {
        let (length, coding) = ("content-length", "transfer-encoding");
        let rows = [
            (200, vec![], Ok("")),
            (200, vec![(length, "5")], Ok("5")),
            (200, vec![(length, "5"), (length, " 05")], Ok("5")),
            (200, vec![(length, "5, 5")], Ok("5")),
            (204, vec![(length, "5")], Ok("")),
            (304, vec![(length, "5")], Ok("5")),
            (200, vec![(coding, "Chunked ")], Ok("")),
            (200, vec![(length, "5"), (length, "6")], Err(Unacceptable::Length)),
            (200, vec![(length, "5, 6")], Err(Unacceptable::Length)),
            (200, vec![(length, "")], Err(Unacceptable::Length)),
            (200, vec![(length, "+5")], Err(Unacceptable::Length)),
            (200, vec![(length, "18446744073709551616")], Err(Unacceptable::Length)),
            (200, vec![(length, "5"), (coding, "chunked")], Err(Unacceptable::BothFramings)),
            (200, vec![(coding, "gzip, chunked")], Err(Unacceptable::Coding)),
            (200, vec![(coding, "chunked"), (coding, "chunked")], Err(Unacceptable::Coding)),
            (200, vec![(coding, "gzip")], Err(Unacceptable::Coding)),
            (200, vec![(coding, "unheard-of, chunked")], Err(Unacceptable::Coding)),
            (200, vec![(coding, "identity")], Err(Unacceptable::Coding)),
            (200, vec![(coding, "foobar")], Err(Unacceptable::Coding)),
            (200, vec![(coding, "chunked, foobar")], Err(Unacceptable::Coding)),
            (200, vec![(coding, "")], Err(Unacceptable::Coding)),
            (101, vec![], Err(Unacceptable::Switched)),
        ];
        for (status, fields, expected) in rows {
            let came = judged(status, &fields);
            assert_eq!(came, expected.map(str::to_owned), "{status} {fields:?}");
        }
    }

    #[test]
    fn an_http_1_0_answer_has_no_coding() {
        let mut response = Response::new(());
        *response.version_mut() = Version::HTTP_10;
        response.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        assert_eq!(accept(&mut response, LIMITS), Err(Unacceptable::Coding));
    }

    #[tokio::test]
    async fn the_seventeenth_interim_response_is_too_many() {
        let interims = Flood::default();
        (0..INTERIM_MAX).for_each(|_| interims.count());
        let exceeded = futures_util::FutureExt::now_or_never(interims.exceeded());
        assert_eq!(exceeded, None);
        interims.count();
        assert_eq!(interims.exceeded().await, Unacceptable::Interims);
    }
}
