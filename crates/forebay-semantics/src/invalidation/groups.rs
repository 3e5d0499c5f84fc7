//! Groups of responses that change together (RFC 9875).

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, List, ListEntry, Parser};

use crate::invalidation::unsafe_methods::is_safe;

/// Response field with the groups of a response (RFC 9875 section 2).
pub const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");

/// Response field with the groups that an unsafe request invalidates (RFC 9875 section 3).
pub const CACHE_GROUP_INVALIDATION: HeaderName =
    HeaderName::from_static("cache-group-invalidation");

/// Limits for a field that names groups. RFC 9875 sections 2 and 3 require support for at least 32
/// names of 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Maximum number of group names in one field.
    pub count: usize,
    /// Maximum length of a group name in bytes.
    pub length: usize,
}

/// Returns the groups of a response, in the order of the field. Names beyond the limits are
/// omitted, and a field that is not a list of Strings counts as absent.
///
/// A group is valid only for the origin (scheme, host, port) of the response (RFC 9875 section 2.1):
/// two origins that use the same name do not share a group.
#[must_use]
pub fn groups(answer: &HeaderMap, limits: GroupLimits) -> Vec<String> {
    strings(answer, &CACHE_GROUPS, limits)
}

/// Returns the groups that this exchange invalidates. In the response to a safe method the field is
/// ignored (RFC 9875 section 3). The status is not examined: the caller must ignore an exchange
/// that does not invalidate, see [`invalidates`](crate::invalidation::unsafe_methods::invalidates).
#[must_use]
pub fn invalidated_groups(method: &Method, answer: &HeaderMap, limits: GroupLimits) -> Vec<String> {
    if is_safe(method) {
        return Vec::new();
    }
    strings(answer, &CACHE_GROUP_INVALIDATION, limits)
}

/// Parses a structured list of Strings. A field of another type is ignored as a whole (RFC 9651
/// section 1.1). Names beyond the limits are ignored one by one, because each ignored name leaves
/// entries that should be invalidated.
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
    fn groups_are_strings_compared_byte_by_byte() {
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
    fn names_beyond_the_limits_are_ignored() {
        let of = |line: &str| groups(&of(CACHE_GROUPS, &[line]), LIMITS);
        assert_eq!(of("\"1\", \"2\", \"3\", \"4\", \"5\""), ["1", "2", "3", "4"]);
        assert_eq!(of("\"12345678\", \"123456789\", \"1\""), ["12345678", "1"]);
    }

    #[test]
    fn only_an_unsafe_request_invalidates_groups() {
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
