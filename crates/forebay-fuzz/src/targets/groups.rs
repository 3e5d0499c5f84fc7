//! Target: cache groups that a response belongs to or invalidates (RFC 9875).

use forebay_semantics::groups::{
    CACHE_GROUP_INVALIDATION, CACHE_GROUPS, GroupLimits, groups, invalidated_groups,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::block::Block;
use crate::run::{Outcome, Target};

const LIMITS: GroupLimits = GroupLimits { count: 4, length: 8 };

/// Limits that no head reaches.
const UNLIMITED: GroupLimits = GroupLimits { count: usize::MAX, length: usize::MAX };

/// Fuzz target for the fields with cache groups (RFC 9875).
pub const TARGET: Target = Target { check, outcomes_min: 6 };

fn check(input: &[u8]) -> Outcome {
    let headers = Block::read(input).headers;
    let named = groups(&headers, LIMITS);
    assert_within(&headers, &named);
    assert_read_back(&named);
    let removed = invalidated_groups(&Method::POST, &headers, LIMITS);
    assert!(invalidated_groups(&Method::GET, &headers, LIMITS).is_empty());
    assert_eq!(removed, groups(&renamed(&headers), LIMITS), "both fields are read alike");
    Outcome::of((named.len(), removed.is_empty(), named.iter().any(String::is_empty)))
}

/// Asserts that the result is the first groups that are not too long.
fn assert_within(headers: &HeaderMap, named: &[String]) {
    let all = groups(headers, UNLIMITED);
    let short = all.iter().filter(|name| name.len() <= LIMITS.length).take(LIMITS.count);
    assert!(short.eq(named), "{named:?} of {all:?}");
}

/// Asserts that names are read back after they were written.
fn assert_read_back(named: &[String]) {
    let quoted = |name: &String| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    let line = named.iter().map(quoted).collect::<Vec<_>>().join(", ");
    let value = HeaderValue::from_str(&line).expect("names are of visible characters and spaces");
    let headers: HeaderMap = [(CACHE_GROUPS, value)].into_iter().collect();
    assert_eq!(groups(&headers, LIMITS), named);
}

fn renamed(headers: &HeaderMap) -> HeaderMap {
    let values = headers.get_all(CACHE_GROUP_INVALIDATION).iter();
    values.map(|value| -> (HeaderName, HeaderValue) { (CACHE_GROUPS, value.clone()) }).collect()
}
