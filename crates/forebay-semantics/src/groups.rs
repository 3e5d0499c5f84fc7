//! Groups of responses that change together (RFC 9875).

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, List, ListEntry, Parser};

use crate::unsafe_methods::is_safe;

/// The groups that a response belongs to (RFC 9875 section 2).
pub const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");

/// The groups that a change makes invalid (RFC 9875 section 3).
pub const CACHE_GROUP_INVALIDATION: HeaderName =
    HeaderName::from_static("cache-group-invalidation");

/// How many groups one field may name. RFC 9875 section 2 wants 32 to be understood.
pub const GROUPS_MAX: usize = 64;

/// How long the name of a group may be, in bytes. RFC 9875 section 2 wants 32 to be understood.
pub const GROUP_LENGTH_MAX: usize = 128;

/// The groups that a response belongs to, in the order in which it names them.
///
/// They hold for the origin (scheme, host, port) of the response alone (RFC 9875 section 2): two
/// origins that use one name do not share a group.
#[must_use]
pub fn groups(answer: &HeaderMap) -> Vec<String> {
    strings(answer, &CACHE_GROUPS)
}

/// The groups whose responses are invalid after this exchange. Like what is stored for the target,
/// they are after a success only (see [`invalidates`](crate::unsafe_methods::invalidates)).
///
/// RFC 9875 section 3: in the answer to a safe method the field says nothing.
#[must_use]
pub fn invalidated_groups(method: &Method, answer: &HeaderMap) -> Vec<String> {
    if is_safe(method) { Vec::new() } else { strings(answer, &CACHE_GROUP_INVALIDATION) }
}

/// A structured list of Strings, each compared as it is. RFC 9651 section 1.1: a field that is not
/// exactly of its type is passed over, all of it; so is one that names more, or longer ones, than
/// anybody needs.
fn strings(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    let value = lines.join(&b", "[..]);
    let Ok(members) = Parser::new(&value).parse::<List>() else { return Vec::new() };
    if members.len() > GROUPS_MAX {
        return Vec::new();
    }
    members.iter().map(string).collect::<Option<_>>().unwrap_or_default()
}

fn string(member: &ListEntry) -> Option<String> {
    let ListEntry::Item(item) = member else { return None };
    let BareItem::String(text) = &item.bare_item else { return None };
    (text.as_str().len() <= GROUP_LENGTH_MAX).then(|| text.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: HeaderName, lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (name.clone(), HeaderValue::from_str(line).unwrap())).collect()
    }

    #[test]
    fn groups_are_strings_as_they_are() {
        // RFC 9875 section 2.
        let rows: [(&[&str], &[&str]); 12] = [
            (&[], &[]),
            (&[""], &[]),
            (&["\"a\""], &["a"]),
            (&["\"b\", \"a\"", "\"A b\""], &["b", "a", "A b"]),
            (&["\"a, b\";x=1"], &["a, b"]),
            (&["\"a\\\"b\""], &["a\"b"]),
            // Not a list of Strings.
            (&["a"], &[]),
            (&["\"a\", b"], &[]),
            (&["\"a\", (\"b\")"], &[]),
            (&["\"a\","], &[]),
            (&["\"a"], &[]),
            (&["\"a\"; x, \"\""], &["a", ""]),
        ];
        for (lines, expected) in rows {
            assert_eq!(groups(&of(CACHE_GROUPS, lines)), *expected, "{lines:?}");
        }
    }

    #[test]
    fn what_nobody_needs_is_passed_over() {
        let many = |count: usize| vec!["\"a\""; count].join(",");
        assert_eq!(groups(&of(CACHE_GROUPS, &[&many(GROUPS_MAX)])).len(), GROUPS_MAX);
        assert!(groups(&of(CACHE_GROUPS, &[&many(GROUPS_MAX + 1)])).is_empty());
        let long = |length: usize| format!("\"{}\"", "x".repeat(length));
        assert_eq!(groups(&of(CACHE_GROUPS, &[&long(GROUP_LENGTH_MAX)])).len(), 1);
        assert!(groups(&of(CACHE_GROUPS, &[&long(GROUP_LENGTH_MAX + 1)])).is_empty());
    }

    #[test]
    fn only_a_change_makes_groups_invalid() {
        // RFC 9875 section 3.
        let answer = of(CACHE_GROUP_INVALIDATION, &["\"a\", \"b\""]);
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert!(invalidated_groups(&method, &answer).is_empty(), "{method}");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(invalidated_groups(&method, &answer), ["a", "b"], "{method}");
        }
        assert!(groups(&answer).is_empty());
    }
}
