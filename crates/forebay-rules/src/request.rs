//! Requests as conditions see them.

use std::borrow::Cow;

use forebay_semantics::{FieldLines, PeerAddress, Scheme};
use http::Method;
use http::header::{COOKIE, USER_AGENT};

use crate::glob::NamePattern;
use crate::graphql::Operation;
use crate::rule::{Condition, Device, Tests, ValueTest};

/// Request of a client, before any edit.
#[derive(Debug)]
pub struct Request<'a, H> {
    /// Method of the request.
    pub method: &'a Method,
    /// Scheme that the client used.
    pub scheme: Scheme,
    /// Host in lower case, without a port.
    pub host: &'a str,
    /// Path and query, without the prefix of the site.
    pub target: &'a str,
    /// Header fields of the request.
    pub headers: &'a H,
    /// Address of the client, as trusted proxies name it; otherwise that of the connection.
    pub client: PeerAddress,
    /// GraphQL operation in the body, if it was read and has one.
    pub operation: Option<Operation>,
}

impl<H> Clone for Request<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Request<'_, H> {}

/// Path and query of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Path of the target.
    pub path: &'a str,
    /// Query without the question mark; empty if there is none.
    pub query: &'a str,
}

impl<'a> Target<'a> {
    /// Splits a target at its first question mark.
    #[must_use]
    pub fn new(target: &'a str) -> Self {
        match memchr::memchr(b'?', target.as_bytes()) {
            Some(at) => Self { path: &target[..at], query: &target[at + 1..] },
            None => Self { path: target, query: "" },
        }
    }

    /// Returns the parameters with their values, undecoded. A parameter without `=` has an empty
    /// value.
    pub fn parameters(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let parts = self.query.split('&').filter(|part| !part.is_empty());
        parts.map(|part| part.split_once('=').unwrap_or((part, "")))
    }
}

/// Returns the cookies of a request with their values, in the order of the request. Quotes around a
/// value are kept.
pub fn cookies<H: FieldLines>(headers: &H) -> impl Iterator<Item = (&str, &[u8])> {
    let parts = headers.lines(&COOKIE).flat_map(|line| line.split(|byte| *byte == b';'));
    parts.filter_map(|part| {
        let part = part.trim_ascii();
        let (name, value) = match memchr::memchr(b'=', part) {
            Some(at) => (&part[..at], &part[at + 1..]),
            None => (part, &b""[..]),
        };
        let name = str::from_utf8(name).ok().filter(|name| !name.is_empty());
        name.map(|name| (name.trim_ascii_end(), value.trim_ascii()))
    })
}

/// Returns the class of the client's device by the first `User-Agent` of a request; without one,
/// [`Device::Desktop`].
#[must_use]
pub fn device(headers: &impl FieldLines) -> Device {
    headers.lines(&USER_AGENT).next().map_or(Device::Desktop, Device::of)
}

/// Returns the extension of a path in its original case.
pub(crate) fn extension(path: &str) -> Option<&str> {
    let (_, last) = path.rsplit_once('/')?;
    let (stem, extension) = last.rsplit_once('.')?;
    (!stem.is_empty() && !extension.is_empty()).then_some(extension)
}

/// Returns true if a condition on fields, cookies, parameters or the client holds. Other conditions
/// are evaluated elsewhere, and hold here.
pub(crate) fn holds<H: FieldLines>(condition: &Condition, request: &Request<'_, H>) -> bool {
    match condition {
        Condition::Query(tests) => query_holds(tests, Target::new(request.target)),
        Condition::Cookie(tests) => {
            values_hold(tests, false, |pattern, check| has_cookie(request.headers, pattern, check))
        }
        Condition::Header(tests) => headers_hold(tests, request.headers),
        Condition::Client(networks) => networks.contains(request.client),
        Condition::Device(devices) => devices.contains(&device(request.headers)),
        Condition::GraphQl(kinds) => request.operation.is_some_and(|one| kinds.contains(&one)),
        Condition::Scheme(schemes) => schemes.contains(&request.scheme),
        _ => true,
    }
}

/// Returns true if a cookie with a matching name passes a check. It reads each name only as far as
/// it is equal, which is much less than [`cookies`] does.
fn has_cookie(
    headers: &impl FieldLines,
    pattern: &NamePattern,
    check: &dyn Fn(&[u8]) -> bool,
) -> bool {
    let text = pattern.as_str().as_bytes();
    let is_exact = matches!(pattern, NamePattern::Exact(_));
    for line in headers.lines(&COOKIE) {
        for part in line.split(|byte| *byte == b';') {
            let part = part.trim_ascii_start();
            if !part.starts_with(text) {
                continue;
            }
            let end = memchr::memchr(b'=', part).unwrap_or(part.len());
            let name = part[..end].trim_ascii_end();
            let is_it = name.len() >= text.len() && !name.is_empty();
            // A name that is not text matches no pattern.
            if !is_it || is_exact && name.len() > text.len() || str::from_utf8(name).is_err() {
                continue;
            }
            if check(part.get(end + 1..).unwrap_or_default().trim_ascii()) {
                return true;
            }
        }
    }
    false
}

fn query_holds(tests: &Tests, target: Target<'_>) -> bool {
    values_hold(tests, false, |pattern, check| {
        target.parameters().any(|(name, value)| {
            let name = unescaped(name);
            pattern.matches(&name) && check(unescaped(value).as_bytes())
        })
    })
}

/// Decodes `%XX` and `+` of a query; a cloaked name must not escape a condition.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    if memchr::memchr2(b'%', b'+', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let hex = |digits: &[u8]| {
            let digits = str::from_utf8(digits).ok()?;
            digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
            u8::from_str_radix(digits, 16).ok()
        };
        let code = (*byte == b'%').then(|| after.get(..2).and_then(hex)).flatten();
        bytes.push(code.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// Evaluates tests of header fields of a request or response.
pub(crate) fn headers_hold(tests: &Tests, headers: &impl FieldLines) -> bool {
    values_hold(tests, true, |pattern, check| match pattern {
        NamePattern::Exact(name) => headers.lines_named(name).any(check),
        NamePattern::Prefix(start) => {
            headers.all().any(|(name, value)| starts_with(name, start.as_bytes()) && check(value))
        }
    })
}

fn starts_with(name: &[u8], start: &[u8]) -> bool {
    name.get(..start.len()).is_some_and(|part| part.eq_ignore_ascii_case(start))
}

/// Evaluates tests. `some` tells whether a value with a matching name passes a check.
fn values_hold(
    tests: &Tests,
    ignore_case: bool,
    some: impl Fn(&NamePattern, &dyn Fn(&[u8]) -> bool) -> bool,
) -> bool {
    match tests {
        Tests::Any(names) => names.iter().any(|name| some(name, &|_| true)),
        Tests::All(tests) => tests.iter().all(|(name, test)| match test {
            ValueTest::Present => some(name, &|_| true),
            ValueTest::Absent => !some(name, &|_| true),
            ValueTest::Globs(globs) => {
                some(name, &|value| globs.iter().any(|glob| glob.matches(value, ignore_case)))
            }
            ValueTest::Regex(pattern) => some(name, &|value| pattern.is_match(value)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::glob::TextGlob;
    use crate::pattern::Pattern;

    fn name(text: &str) -> NamePattern {
        NamePattern::parse(text).unwrap()
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |line: &(&'static str, &'static str)| {
            (HeaderName::from_static(line.0), HeaderValue::from_static(line.1))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn extensions_are_the_ending_of_the_last_segment() {
        let rows = [
            ("/a.css", Some("css")),
            ("/a.b/c", None),
            ("/a.tar.GZ", Some("GZ")),
            ("/.htaccess", None),
            ("/a.", None),
            ("/", None),
        ];
        for (path, expected) in rows {
            assert_eq!(extension(path), expected, "{path}");
        }
    }

    #[test]
    fn cookies_are_split_at_semicolons() {
        let fields = headers(&[("cookie", "a=1; b=\"x\" ;c"), ("cookie", "=z; d=e=f")]);
        let found: Vec<_> = cookies(&fields).collect();
        let expected = [("a", &b"1"[..]), ("b", b"\"x\""), ("c", b""), ("d", b"e=f")];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_cookie_is_found_by_its_name() {
        let fields = headers(&[("cookie", "ab=1; a=2;c ; =x"), ("cookie", " a =3;abc = 4 ")]);
        let rows: [(&str, &[&str]); 7] = [
            ("a", &["2", "3"]),
            ("ab", &["1"]),
            ("ab*", &["1", "4"]),
            ("c", &[""]),
            ("a=2", &[]),
            ("x", &[]),
            ("*", &["1", "2", "", "3", "4"]),
        ];
        for (pattern, expected) in rows {
            let seen = std::cell::RefCell::new(Vec::new());
            let note = |value: &[u8]| {
                seen.borrow_mut().push(String::from_utf8(value.to_vec()).unwrap());
                false
            };
            assert!(!has_cookie(&fields, &name(pattern), &note));
            assert_eq!(*seen.borrow(), expected, "{pattern}");
        }
    }

    #[test]
    fn tests_of_values_hold_as_described() {
        let fields = headers(&[("x-a", "One"), ("x-a", "two"), ("y", "")]);
        let all = |text: &str, test| headers_hold(&Tests::All(vec![(name(text), test)]), &fields);
        assert!(all("x-a", ValueTest::Present) && !all("x-b", ValueTest::Present));
        assert!(all("x-b", ValueTest::Absent) && !all("x-*", ValueTest::Absent));
        assert!(all("x-a", ValueTest::Globs(vec![TextGlob::new("T*")])), "case is ignored");
        assert!(!all("y", ValueTest::Globs(vec![TextGlob::new("t*")])));
        assert!(all("x-*", ValueTest::Regex(Pattern::new("^O").unwrap())));
        let any = |texts: &[&str]| {
            headers_hold(&Tests::Any(texts.iter().map(|text| name(text)).collect()), &fields)
        };
        assert!(any(&["no", "y"]) && any(&["x*"]) && !any(&["no"]));
    }

    #[test]
    fn a_cloaked_parameter_is_found() {
        let present = Tests::Any(vec![name("preview")]);
        for target in ["/?preview", "/?a=1&preview=1", "/?pre%76iew=1"] {
            assert!(query_holds(&present, Target::new(target)), "{target}");
        }
        assert!(!query_holds(&present, Target::new("/preview?a=preview")));
        assert_eq!(unescaped("a%20b+c%zz%2"), "a b c%zz%2");
    }
}
