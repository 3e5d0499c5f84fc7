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

/// What is heeded of a field that names groups. RFC 9875 sections 2 and 3 want 32 names of 32 bytes
/// to be understood at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// How many names of one field.
    pub count: usize,
    /// How many bytes a name may have.
    pub length: usize,
}

/// The groups that a response belongs to, in the order in which it names them.
///
/// They hold for the origin (scheme, host, port) of the response alone (RFC 9875 section 2.1): two
/// origins that use one name do not share a group.
#[must_use]
pub fn groups(answer: &HeaderMap, limits: GroupLimits) -> Vec<String> {
    strings(answer, &CACHE_GROUPS, limits)
}

/// The groups whose responses are invalid after this exchange. Like what is stored for the target,
/// they are after a success only (see [`invalidates`](crate::unsafe_methods::invalidates)).
///
/// RFC 9875 section 3: in the answer to a safe method the field says nothing.
#[must_use]
pub fn invalidated_groups(method: &Method, answer: &HeaderMap, limits: GroupLimits) -> Vec<String> {
    if is_safe(method) {
        return Vec::new();
    }
    strings(answer, &CACHE_GROUP_INVALIDATION, limits)
}

/// A structured list of Strings, each compared as it is. RFC 9651 section 1.1: a field that is not
/// exactly of its type is passed over, all of it. What is beyond the limits is passed over alone:
/// each name less would keep something that was to go.
fn strings(headers: &HeaderMap, name: &HeaderName, limits: GroupLimits) -> Vec<String> {
    if !headers.contains_key(name) {
        return Vec::new();
    }
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    let value = lines.join(&b", "[..]);
    let Ok(members) = Parser::new(&value).parse::<List>() else { return Vec::new() };
    let Some(names) = members.iter().map(string).collect::<Option<Vec<&str>>>() else {
        return Vec::new();
    };
    let short = names.into_iter().filter(|name| name.len() <= limits.length);
    short.take(limits.count).map(str::to_owned).collect()
}

fn string(member: &ListEntry) -> Option<&str> {
    let ListEntry::Item(item) = member else { return None };
    let BareItem::String(text) = &item.bare_item else { return None };
    Some(text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GroupLimits = GroupLimits { count: 4, length: 8 };

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
            assert_eq!(groups(&of(CACHE_GROUPS, lines), LIMITS), *expected, "{lines:?}");
        }
    }

    #[test]
    fn of_too_many_the_first_count_and_too_long_ones_do_not() {
        let of = |line: &str| groups(&of(CACHE_GROUPS, &[line]), LIMITS);
        assert_eq!(of("\"1\", \"2\", \"3\", \"4\", \"5\""), ["1", "2", "3", "4"]);
        assert_eq!(of("\"12345678\", \"123456789\", \"1\""), ["12345678", "1"]);
    }

    #[test]
    fn only_a_change_makes_groups_invalid() {
        // RFC 9875 section 3.
        let answer = of(CACHE_GROUP_INVALIDATION, &["\"a\", \"b\""]);
        let query = Method::from_bytes(b"QUERY").unwrap();
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, query] {
            assert!(invalidated_groups(&method, &answer, LIMITS).is_empty(), "{method}");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(invalidated_groups(&method, &answer, LIMITS), ["a", "b"], "{method}");
        }
        assert!(groups(&answer, LIMITS).is_empty());
    }
}
