//! Explanation of decisions: the field that decided, the section of the RFC, and advice.
//!
//! The decisions are made elsewhere; this file only describes them.

use std::borrow::Cow;

use forebay_core::Why;
use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, EXPIRES, HeaderName, LAST_MODIFIED, VARY,
};

use crate::directives::policy::RuledBy;
use crate::freshness::lifetime::{SetBy, set_by};
use crate::message::{RequestRef, ResponseRef, Rules};
use crate::storable::Unstorable;

/// Maximum length of a field line in an explanation, in bytes.
pub const LINE_MAX: usize = 120;

/// Section and advice of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Section of the RFC, or the part of forebay that has the rule.
    pub rule: &'static str,
    /// Sentence that says what can be done.
    pub action: &'static str,
}

const fn advice(rule: &'static str, action: &'static str) -> Advice {
    Advice { rule, action }
}

/// Returns the section and the advice of a reason against storing a response.
#[must_use]
#[expect(clippy::too_many_lines, reason = "one table, a row per reason")]
pub const fn of_unstorable(reason: Unstorable) -> Advice {
    match reason {
        Unstorable::Method => advice(
            "RFC 9111 §3",
            "Send GET: responses to other methods are not stored. `cache_methods` enables single \
             methods.",
        ),
        Unstorable::RequestNoStore => advice(
            "RFC 9111 §5.2.1.5",
            "Remove `no-store` from the request; other requests for the URL are not affected.",
        ),
        Unstorable::NoStore => advice(
            "RFC 9111 §5.2.2.5",
            "Let the origin send `Cache-Control: max-age=60` instead of `no-store`, or set \
             `unsafe_ignore = [\"no-store\"]` with a `ttl` in a rule of the site.",
        ),
        Unstorable::Private => advice(
            "RFC 9111 §5.2.2.7",
            "Let the origin omit `private` if the response is the same for all clients, or set \
             `unsafe_ignore = [\"private\"]` in a rule of the site.",
        ),
        Unstorable::Authorization => advice(
            "RFC 9111 §3.5",
            "Let the origin add `public` or `s-maxage` if the response is the same for all \
             clients, or send the request without `Authorization`.",
        ),
        Unstorable::SetCookie => advice(
            "RFC 9111 §7.3",
            "Let the origin send the cookie only where it is needed, or remove it with \
             `strip_set_cookie` in a rule. `store_set_cookie = true` shares the cookie with all \
             clients.",
        ),
        Unstorable::Cookie => advice(
            "RFC 9111 §4.2.2",
            "Let the origin state a lifetime (`max-age`), or set `heuristics_with_cookie = true` \
             if no page depends on a cookie.",
        ),
        Unstorable::VaryAny => advice(
            "RFC 9111 §4.1",
            "Let the origin name the fields that select the response, instead of `Vary: *` or more \
             than 32 fields.",
        ),
        Unstorable::Status => {
            advice("RFC 9111 §3", "Nothing: responses with this status are not stored.")
        }
        Unstorable::Partial => advice(
            "RFC 9111 §3.3",
            "Nothing, unless the origin answers requests without `Range` with 206: then repair \
             the origin.",
        ),
        Unstorable::NoFreshness => advice(
            "RFC 9111 §4.2",
            "Let the origin send `Cache-Control: max-age=60` or an `ETag`, or set `default_ttl` \
             for the site.",
        ),
        Unstorable::Rule => {
            advice("rule of the site", "Remove `store = false` from the rule that matches.")
        }
        Unstorable::UnkeyedCredentials => advice(
            "rule of the site",
            "Let the origin state a lifetime, or remove the cookie from the key with \
             `drop_cookies`: a rule shares responses to requests with credentials only then.",
        ),
        Unstorable::KeyedCookie => advice(
            "rule of the site",
            "Let the origin set the cookie in responses that are not shared: requests with the new \
             cookie have another key.",
        ),
        Unstorable::NoEcho => advice(
            "rule of the site",
            "Let the origin repeat the field of the request, or remove it from `require_echo`.",
        ),
        Unstorable::EditFailed => advice(
            "rule of the site",
            "Correct the edit of the rule: its value is invalid or longer than 8 KiB.",
        ),
        Unstorable::TypeMismatch => advice(
            "cache deception",
            "Let the origin answer 404 for paths that do not exist, or add `public` to responses \
             whose path ends like a static file.",
        ),
    }
}

/// Returns the section and the advice of a reason for which a request is not a fresh hit.
#[must_use]
#[expect(clippy::too_many_lines, reason = "one table, a row per reason")]
pub const fn of_why(why: Why) -> Advice {
    match why {
        Why::UriMiss => advice(
            "RFC 9111 §4",
            "Nothing if this is the first request. Otherwise see whether the response may be \
             stored, and whether query parameters split the URL.",
        ),
        Why::VaryMiss => advice(
            "RFC 9111 §4.1",
            "Let the origin name fewer fields in `Vary`. Variants by `User-Agent` or `Cookie` are \
             rarely shared.",
        ),
        Why::Stale => advice(
            "RFC 9111 §4.2",
            "A longer `max-age`, or `stale-while-revalidate`, so that no request waits.",
        ),
        Why::EarlyRefresh => advice("early refresh", "Nothing: no request waits for this refresh."),
        Why::RequestRevalidate => advice(
            "RFC 9111 §5.2.1.4",
            "Nothing if a browser with developer tools sent it. `client_cache_control = \
             \"ignore\"` in a rule ignores the directive; `client_reloads_max` limits it.",
        ),
        Why::RequestMaxAge => advice(
            "RFC 9111 §5.2.1.1",
            "Nothing if a browser reloaded the page. `client_cache_control = \"ignore\"` in a rule \
             ignores the directive; `client_reloads_max` limits it.",
        ),
        Why::RequestMinFresh => advice(
            "RFC 9111 §5.2.1.3",
            "Remove `min-fresh` from the request, or set `client_cache_control = \"ignore\"` in a \
             rule.",
        ),
        Why::ReloadLimited => {
            advice("client_reloads_max", "Nothing, or a larger `client_reloads_max`.")
        }
        Why::RequestNoStore => advice(
            "RFC 9111 §5.2.1.5",
            "Remove `no-store` from the request: it forbids storing the response.",
        ),
        Why::Purged => advice(
            "purge",
            "Nothing: the next load stores the response again. Purge by tag instead of everything.",
        ),
        Why::SoftPurged => {
            advice("purge", "Nothing: the origin confirms or replaces the response once.")
        }
        Why::PassMarked => advice(
            "pass marker",
            "Make the response shareable: see the reasons against storing it. The marker ends ten \
             seconds after the last response that may not be shared.",
        ),
        Why::NotShareable => {
            advice("request coalescing", "See the reasons against storing the response.")
        }
        Why::Method => advice(
            "RFC 9111 §3",
            "Send GET or HEAD: other methods are forwarded. `cache_methods` enables single methods.",
        ),
        Why::Bypass => advice(
            "RFC 9110 §13",
            "Send the request without a body, `If-Match`, `If-Unmodified-Since` and `Upgrade`; or \
             remove `coalesce = false`.",
        ),
        Why::Rule => advice(
            "rule of the site",
            "See which rule matches: `forebay check FILE --explain URL`.",
        ),
        Why::LoadFailed => advice("RFC 5861 §4", "Repair the origin."),
        Why::SoftTimeout => advice("soft_timeout", "Make the origin faster."),
        Why::BackOff => advice(
            "back-off",
            "Repair the origin: no request is sent for up to a second after repeated failures.",
        ),
        Why::Partial => advice(
            "RFC 9111 §3.4",
            "Nothing: only the missing bytes are fetched if the origin sends a strong `ETag`.",
        ),
        Why::Suspect => advice(
            "invalidation bus",
            "Restore the connection to Redis: purges of other instances may have been missed.",
        ),
        // `Elsewhere`: the list of reasons may grow.
        _ => advice("lease", "Nothing: another instance fetched the response."),
    }
}

/// Returns the field, or the property of the exchange, that is the reason against storing it. Values
/// of `Authorization`, `Cookie` and `Set-Cookie` are not shown.
#[must_use]
pub fn because(
    reason: Unstorable,
    asked: RequestRef<'_>,
    answered: ResponseRef<'_>,
) -> Cow<'static, str> {
    let answer = answered.headers;
    match reason {
        Unstorable::Method => format!("request method {}", asked.method).into(),
        Unstorable::RequestNoStore => of_request(asked.headers),
        Unstorable::NoStore | Unstorable::Private => policy_line(answer).into(),
        Unstorable::Authorization => match line(answer, &CACHE_CONTROL) {
            Some(line) => format!("Authorization in the request, with {line}").into(),
            None => "Authorization in the request, without Cache-Control in the response".into(),
        },
        Unstorable::SetCookie => "Set-Cookie".into(),
        Unstorable::Cookie => "Cookie in the request, without a lifetime in the response".into(),
        Unstorable::VaryAny => shown(answer, &VARY),
        Unstorable::Status => format!("status {}", answered.status.as_u16()).into(),
        Unstorable::Partial => line(answer, &CONTENT_RANGE)
            .map_or_else(|| "status 206 without Content-Range".into(), Cow::Owned),
        Unstorable::NoFreshness => lifetime_line(SetBy::Nothing, answer),
        Unstorable::Rule => "store = false".into(),
        Unstorable::UnkeyedCredentials => {
            "Cookie or Authorization in the request, with a lifetime that only a rule sets".into()
        }
        Unstorable::KeyedCookie => "Set-Cookie of a cookie in the key".into(),
        Unstorable::NoEcho => "a field of `require_echo` that differs from the request".into(),
        Unstorable::EditFailed => "an edit that failed".into(),
        Unstorable::TypeMismatch => shown(answer, &CONTENT_TYPE),
    }
}

/// Returns the reason in general words, for an exchange whose fields are not known any more.
#[must_use]
pub const fn because_in_general(reason: Unstorable) -> &'static str {
    match reason {
        Unstorable::Method => "the method of the request",
        Unstorable::RequestNoStore => "Cache-Control: no-store in the request",
        Unstorable::NoStore => "Cache-Control: no-store",
        Unstorable::Private => "Cache-Control: private",
        Unstorable::Authorization => "Authorization in the request",
        Unstorable::SetCookie => "Set-Cookie",
        Unstorable::Cookie => "Cookie in the request, without a lifetime in the response",
        Unstorable::VaryAny => "Vary: *, or more than 32 fields",
        Unstorable::Status => "the status of the response",
        Unstorable::Partial => "status 206",
        Unstorable::NoFreshness => "no lifetime and no validator",
        Unstorable::Rule => "store = false",
        Unstorable::UnkeyedCredentials => "credentials, with a lifetime that only a rule sets",
        Unstorable::KeyedCookie => "Set-Cookie of a cookie in the key",
        Unstorable::NoEcho => "a field of `require_echo` that differs from the request",
        Unstorable::EditFailed => "an edit that failed",
        Unstorable::TypeMismatch => "Content-Type, which contradicts the path",
    }
}

/// Returns the setter of the lifetime of a response, and the field or option that set it.
#[must_use]
pub fn lifetime_by(answered: ResponseRef<'_>, rules: &Rules) -> (SetBy, Cow<'static, str>) {
    let by = set_by(answered, rules);
    (by, lifetime_line(by, answered.headers))
}

/// Returns the field or option that set the lifetime of a response with these fields.
#[must_use]
pub fn lifetime_line(by: SetBy, answer: &HeaderMap) -> Cow<'static, str> {
    match by {
        SetBy::NoCache | SetBy::Targeted | SetBy::SMaxage | SetBy::MaxAge => {
            policy_line(answer).into()
        }
        SetBy::Expires => shown(answer, &EXPIRES),
        SetBy::Heuristic => shown(answer, &LAST_MODIFIED),
        SetBy::Rule => "ttl in a rule".into(),
        SetBy::DefaultTtl => "default_ttl".into(),
        SetBy::NegativeTtl => "negative_ttl".into(),
        SetBy::Nothing => {
            let lines =
                [CACHE_CONTROL, EXPIRES, LAST_MODIFIED].iter().find_map(|n| line(answer, n));
            let none = "no Cache-Control, Expires, Last-Modified or ETag";
            lines.map_or(Cow::Borrowed(none), Cow::Owned)
        }
    }
}

/// Returns the cache directives of a request.
#[must_use]
pub fn of_request(asked: &HeaderMap) -> Cow<'static, str> {
    let line = line(asked, &CACHE_CONTROL).or_else(|| line(asked, &http::header::PRAGMA));
    match line {
        Some(line) => format!("{line} in the request").into(),
        None => "no Cache-Control in the request".into(),
    }
}

/// Returns the field that controls caching (RFC 9213).
#[must_use]
pub fn policy_line(answer: &HeaderMap) -> String {
    let name = match RuledBy::of(answer) {
        RuledBy::Targeted(name) => name,
        RuledBy::CacheControl => CACHE_CONTROL,
    };
    line(answer, &name).unwrap_or_else(|| "no Cache-Control".into())
}

fn shown(headers: &HeaderMap, name: &HeaderName) -> Cow<'static, str> {
    line(headers, name).map_or_else(|| format!("no {}", spelled(name)).into(), Cow::Owned)
}

/// Returns all values of a field in one line, of at most [`LINE_MAX`] bytes.
#[must_use]
pub fn line(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let mut line = String::with_capacity(LINE_MAX);
    push_spelled(&mut line, name);
    line.push_str(": ");
    line.push_str(&String::from_utf8_lossy(first.as_bytes()));
    for value in values {
        line.push_str(", ");
        line.push_str(&String::from_utf8_lossy(value.as_bytes()));
    }
    line.truncate(line.floor_char_boundary(LINE_MAX));
    Some(line)
}

/// Returns a field name with capital letters, such as `Cache-Control`.
#[must_use]
pub fn spelled(name: &HeaderName) -> String {
    let mut text = String::with_capacity(name.as_str().len());
    push_spelled(&mut text, name);
    text
}

fn push_spelled(text: &mut String, name: &HeaderName) {
    if name == http::header::ETAG {
        return text.push_str("ETag");
    }
    let from = text.len();
    text.push_str(name.as_str());
    let mut starts = true;
    // Field names are ASCII.
    for at in from..text.len() {
        let letter = &mut text[at..=at];
        if starts {
            letter.make_ascii_uppercase();
        }
        starts = &*letter == "-";
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::WallTime;
    use http::header::SET_COOKIE;
    use http::{HeaderValue, Method, StatusCode};

    use super::*;
    use crate::storable::{Refusal, check_storable, evaluate};

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(field).collect()
    }

    #[test]
    fn every_reason_against_storing_is_named_with_its_field() {
        let asked = fields(&[("authorization", "secret"), ("cache-control", "no-store")]);
        let lines = [("cache-control", "private, no-store"), ("set-cookie", "id=secret")];
        let answer = fields(&lines);
        let asked = RequestRef { method: &Method::GET, headers: &asked };
        let answered = ResponseRef { status: StatusCode::OK, headers: &answer };
        let refusal = evaluate(asked, answered, &Rules::default(), WallTime::default()).err();
        let all = refusal.iter().flat_map(Refusal::reasons);
        let expected = [
            (Unstorable::RequestNoStore, "Cache-Control: no-store in the request"),
            (Unstorable::NoStore, "Cache-Control: private, no-store"),
            (Unstorable::Private, "Cache-Control: private, no-store"),
            (
                Unstorable::Authorization,
                "Authorization in the request, with Cache-Control: private, no-store",
            ),
            (Unstorable::SetCookie, "Set-Cookie"),
            (Unstorable::NoFreshness, "Cache-Control: private, no-store"),
        ];
        let named: Vec<_> = all.map(|it| (it, because(it, asked, answered))).collect();
        let expected: Vec<_> = expected.iter().map(|(it, line)| (*it, Cow::from(*line))).collect();
        assert_eq!(named, expected);
    }

    #[test]
    fn the_first_objection_is_the_decision() {
        for (name, value) in [
            ("cache-control", "max-age=60"),
            ("cache-control", "no-store"),
            ("cache-control", "max-age=0"),
            ("vary", "*"),
            ("set-cookie", "a=b"),
            ("expires", "0"),
            ("x-nothing", "-"),
        ] {
            let answer = fields(&[(name, value)]);
            let none = HeaderMap::new();
            let asked = RequestRef { method: &Method::GET, headers: &none };
            let answered = ResponseRef { status: StatusCode::OK, headers: &answer };
            let (rules, at) = (Rules::default(), WallTime::default());
            let decided = check_storable(asked, answered, &rules, at);
            let evaluated = evaluate(asked, answered, &rules, at);
            assert_eq!(evaluated.map_err(|refusal| refusal.first), decided, "{name}: {value}");
        }
    }

    #[test]
    fn the_setter_of_a_lifetime_is_named() {
        let rows: [(&[(&str, &str)], _, _); 7] = [
            (&[("cache-control", "max-age=5")], SetBy::MaxAge, "Cache-Control: max-age=5"),
            (
                &[("cache-control", "max-age=5, s-maxage=6")],
                SetBy::SMaxage,
                "Cache-Control: max-age=5, s-maxage=6",
            ),
            (
                &[("cache-control", "max-age=5"), ("cdn-cache-control", "max-age=9")],
                SetBy::Targeted,
                "Cdn-Cache-Control: max-age=9",
            ),
            (&[("expires", "0")], SetBy::Expires, "Expires: 0"),
            (
                &[("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")],
                SetBy::Heuristic,
                "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT",
            ),
            (&[("cache-control", "no-cache")], SetBy::NoCache, "Cache-Control: no-cache"),
            (&[], SetBy::Nothing, "no Cache-Control, Expires, Last-Modified or ETag"),
        ];
        for (lines, by, line) in rows {
            let mut answer = HeaderMap::new();
            for (name, value) in lines {
                answer.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let answered = ResponseRef { status: StatusCode::OK, headers: &answer };
            assert_eq!(lifetime_by(answered, &Rules::default()), (by, Cow::from(line)));
        }
    }

    #[test]
    fn a_line_has_a_bound_and_no_secret_values() {
        let mut answer = HeaderMap::new();
        answer.insert(VARY, HeaderValue::from_str(&"x".repeat(500)).expect("plain"));
        answer.insert(SET_COOKIE, HeaderValue::from_static("id=secret"));
        assert_eq!(line(&answer, &VARY).map(|line| line.len()), Some(LINE_MAX));
        let none = HeaderMap::new();
        let asked = RequestRef { method: &Method::GET, headers: &none };
        let answered = ResponseRef { status: StatusCode::OK, headers: &answer };
        assert!(!because(Unstorable::SetCookie, asked, answered).contains("secret"));
    }
}
