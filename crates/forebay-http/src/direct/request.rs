//! Request that a direct hit may answer.

use forebay_semantics::FieldLines;
use forebay_semantics::coding::negotiation::{negotiate, negotiate_line};
use forebay_semantics::coding::{Coding, Codings};
use http::Method;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, COOKIE, HeaderName, IF_NONE_MATCH, PRAGMA,
};

use crate::request_guard::{PlainHead, RawValue};

/// Plain request, and the known fields that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainRequest<'a> {
    pub(super) head: PlainHead<'a>,
    present: Present,
    /// Value of the only `Accept-Encoding`; empty if there is none or more than one.
    codings: &'a [u8],
    /// Value of the only `If-None-Match`; `None` if there is none or more than one.
    if_none_match: Option<RawValue<'a>>,
    user_agent: Option<RawValue<'a>>,
    referer: Option<RawValue<'a>>,
}

/// Set of the known fields that a request has.
#[derive(Clone, Copy, Debug, Default)]
struct Present(u8);

/// Role of a field in the decision.
enum Role {
    /// Counts in the set [`Present`].
    Known(u8),
    Codings,
    /// Only hyper and the service handle it.
    Special,
    Connection,
    /// Only the log shows it.
    UserAgent,
    /// Only the log shows it.
    Referer,
    /// Read only if it selects a variant.
    Other,
}

impl Present {
    const CACHE_CONTROL: u8 = 1;
    const PRAGMA: u8 = 1 << 1;
    const COOKIE: u8 = 1 << 2;
    const AUTHORIZATION: u8 = 1 << 3;
    const IF_NONE_MATCH: u8 = 1 << 4;
    const IF_MODIFIED_SINCE: u8 = 1 << 5;
    const CONDITIONS: u8 = Self::IF_NONE_MATCH | Self::IF_MODIFIED_SINCE;
    /// `Connection`, with `keep-alive` alone.
    const CONNECTION: u8 = 1 << 6;
    /// More than one `Accept-Encoding`.
    const MORE_CODINGS: u8 = 1 << 7;

    const fn has(self, field: u8) -> bool {
        self.0 & field != 0
    }
}

/// Returns the role of a field that [`PlainHead`] does not interpret, whose name may be in any case.
/// The length decides first, so that most names are compared with one or two others.
fn role(name: &[u8]) -> Role {
    let first = name.first().map_or(0, u8::to_ascii_lowercase);
    let is = |other: &[u8]| first == other[0] && name.eq_ignore_ascii_case(other);
    // The two that nearly each browser sends are compared in their usual spellings at once.
    let is_spelled = |usual: &[u8], lower: &[u8]| name == usual || name == lower || is(lower);
    match name.len() {
        5 if is(b"range") => Role::Special,
        6 if is(b"cookie") => Role::Known(Present::COOKIE),
        6 if is(b"pragma") => Role::Known(Present::PRAGMA),
        6 if is(b"expect") => Role::Special,
        7 if is_spelled(b"Referer", b"referer") => Role::Referer,
        8 if is(b"if-match") || is(b"if-range") => Role::Special,
        10 if is(b"connection") => Role::Connection,
        10 if is_spelled(b"User-Agent", b"user-agent") => Role::UserAgent,
        13 if is(b"cache-control") => Role::Known(Present::CACHE_CONTROL),
        13 if is(b"authorization") => Role::Known(Present::AUTHORIZATION),
        13 if is(b"if-none-match") => Role::Known(Present::IF_NONE_MATCH),
        15 if is(b"accept-encoding") => Role::Codings,
        17 if is(b"if-modified-since") => Role::Known(Present::IF_MODIFIED_SINCE),
        19 if is(b"if-unmodified-since") => Role::Special,
        _ => Role::Other,
    }
}

impl<'a> PlainRequest<'a> {
    /// Reads the head at the start of the received bytes. Returns `None` if it is not complete, or
    /// if the scanner and hyper must handle it.
    pub(super) fn parse(received: &'a [u8]) -> Option<Self> {
        let (mut present, mut codings) = (Present::default(), None);
        let (mut if_none_match, mut user_agent, mut referer) = (None, None, None);
        let head = PlainHead::read(received, |line| match role(line.name) {
            Role::Codings => {
                if codings.replace(line.value.trimmed()).is_some() {
                    present.0 |= Present::MORE_CODINGS;
                }
                true
            }
            Role::Known(field) => {
                if field == Present::IF_NONE_MATCH {
                    if_none_match = (!present.has(field)).then_some(line.value);
                }
                present.0 |= field;
                true
            }
            Role::Connection if line.value.trimmed().eq_ignore_ascii_case(b"keep-alive") => {
                present.0 |= Present::CONNECTION;
                true
            }
            Role::UserAgent => {
                user_agent.get_or_insert(line.value);
                true
            }
            Role::Referer => {
                referer.get_or_insert(line.value);
                true
            }
            Role::Special | Role::Connection => false,
            Role::Other => true,
        })?;
        let codings = codings.unwrap_or_default();
        Some(Self { head, present, codings, if_none_match, user_agent, referer })
    }

    /// Returns GET or HEAD.
    pub(super) fn method(&self) -> &'static Method {
        if self.head.is_head { &Method::HEAD } else { &Method::GET }
    }

    /// Returns `true` for a HEAD request.
    pub(super) fn is_head(&self) -> bool {
        self.head.is_head
    }

    /// Returns the value of `User-Agent`.
    pub(super) fn user_agent(&self) -> Option<&'a [u8]> {
        self.user_agent.map(RawValue::trimmed)
    }

    /// Returns the value of `Referer`.
    pub(super) fn referer(&self) -> Option<&'a [u8]> {
        self.referer.map(RawValue::trimmed)
    }

    /// Returns the coding for the client; see [`negotiate`].
    pub(super) fn negotiate(&self, offered: Codings) -> Option<Coding> {
        match self.present.has(Present::MORE_CODINGS) {
            true => negotiate(self, offered),
            false => negotiate_line(self.codings, offered),
        }
    }

    /// Returns `true` if the request has `If-None-Match` or `If-Modified-Since`.
    pub(super) fn has_conditions(&self) -> bool {
        self.present.has(Present::CONDITIONS)
    }
}

impl FieldLines for PlainRequest<'_> {
    fn lines<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let only = self.if_none_match.filter(|_| *name == IF_NONE_MATCH);
        let read = only.is_none().then(|| self.lines_named(name.as_str()));
        only.map(RawValue::trimmed).into_iter().chain(read.into_iter().flatten())
    }

    fn lines_named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.all()
            .filter(move |(its, _)| its.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.head.fields;
        // The lines are valid, so their ends are found without a second check.
        std::iter::from_fn(move || {
            let (name, after) = rest.split_at(memchr::memchr(b':', rest)?);
            let (value, after) = after.split_at(memchr::memchr(b'\n', after)?);
            rest = after.get(1..)?;
            Some((name, value.get(1..)?.trim_ascii()))
        })
    }

    // Inlined, the comparisons of a constant name cost nothing.
    #[inline(always)]
    fn has(&self, name: &HeaderName) -> bool {
        let known = |field| self.present.has(field);
        match name {
            name if *name == CACHE_CONTROL => known(Present::CACHE_CONTROL),
            name if *name == PRAGMA => known(Present::PRAGMA),
            name if *name == AUTHORIZATION => known(Present::AUTHORIZATION),
            name if *name == COOKIE => known(Present::COOKIE),
            name if *name == CONNECTION => known(Present::CONNECTION),
            name if *name == IF_NONE_MATCH => known(Present::IF_NONE_MATCH),
            name => self.lines(name).next().is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, HOST, RANGE};

    use super::*;

    #[test]
    fn a_plain_request_has_its_fields() {
        let head = b"GET /a?b HTTP/1.1\r\nHOST: h \r\nX-A:1\r\nx-a:\t 2\t\r\nCookie: c\r\n\r\n";
        let request = PlainRequest::parse(head).expect("a plain request");
        assert_eq!((request.head.target, request.head.host), ("/a?b", "h"));
        assert_eq!(request.method(), Method::GET);
        assert_eq!(request.lines_named("x-a").collect::<Vec<_>>(), [b"1", b"2"]);
        let has = [COOKIE, AUTHORIZATION, CACHE_CONTROL, HOST, ACCEPT, RANGE, CONNECTION];
        let has = has.map(|name| request.has(&name));
        assert_eq!(has, [true, false, false, true, false, false, false]);
        assert!(!request.has_conditions());
    }

    #[test]
    fn the_only_line_of_codings_is_read_at_once_and_several_are_joined() {
        let rows = [
            ("Accept: */*", None),
            ("accept-Encoding: gzip", Some(Coding::Gzip)),
            ("Accept-Encoding: gzip;q=0.5, br", Some(Coding::Br)),
            ("Accept-Encoding: gzip\r\nAccept-Encoding: br", Some(Coding::Br)),
            ("Accept-Encoding: gzip\r\nAccept-Encoding: gzip;q=0", None),
            ("Accept-Encoding:", None),
        ];
        for (lines, expected) in rows {
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n");
            let request = PlainRequest::parse(head.as_bytes()).expect("a plain request");
            assert_eq!(request.negotiate(Codings::new(Coding::ALL)), expected, "{lines}");
        }
    }

    #[test]
    fn all_lines_of_a_condition_are_read_and_the_first_of_each_logged_field() {
        let rows: [(&str, &[&[u8]]); 3] = [
            ("If-None-Match: \"a\"", &[b"\"a\""]),
            ("If-None-Match: \"a\"\r\nif-none-match: \"b\"", &[b"\"a\"", b"\"b\""]),
            ("If-None-Match: 1\r\nIf-None-Match: 2\r\nIf-None-Match: 3", &[b"1", b"2", b"3"]),
        ];
        for (lines, expected) in rows {
            let fields = "User-Agent: x \r\nuser-agent: y\r\nREFERER: z";
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n{fields}\r\n\r\n");
            let request = PlainRequest::parse(head.as_bytes()).expect("a plain request");
            assert_eq!(request.lines(&IF_NONE_MATCH).collect::<Vec<_>>(), expected);
            assert_eq!(request.lines(&HOST).collect::<Vec<_>>(), [b"h"]);
            assert_eq!(
                (request.user_agent(), request.referer()),
                (Some(&b"x"[..]), Some(&b"z"[..]))
            );
        }
    }

    #[test]
    fn special_requests_are_left_to_hyper() {
        let plain = |text: &str| PlainRequest::parse(text.as_bytes()).is_some();
        let with = |field: &str| plain(&format!("GET / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n"));
        let accepted = ["Accept: */*", "connection: Keep-Alive", "If-None-Match: *", "X-Range: 1"];
        for field in accepted {
            assert!(with(field), "{field}");
        }
        let left = [
            "Range: bytes=0-1",
            "If-Range: x",
            "If-Match: x",
            "If-Unmodified-Since: x",
            "Expect: 100-continue",
            "Upgrade: x",
            "Connection: close",
            "Connection: keep-alive, x",
            "Content-Length: 0",
            "Transfer-Encoding: chunked",
        ];
        for field in left {
            assert!(!with(field), "{field}");
        }
        assert!(plain("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"));
        let lines =
            ["POST / HTTP/1.1", "GET / HTTP/1.0", "GET http://h/ HTTP/1.1", "GET * HTTP/1.1"];
        for line in lines {
            assert!(!plain(&format!("{line}\r\nHost: h\r\n\r\n")), "{line}");
        }
        assert!(!plain("GET / HTTP/1.1\r\n\r\n"), "no host");
        assert!(!plain("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), "an empty line before");
        assert!(!plain("GET /\u{e4} HTTP/1.1\r\nHost: h\r\n\r\n"), "not ASCII");
    }
}
