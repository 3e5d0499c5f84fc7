//! Target: conditional requests, validators, and the update of a stored response by a 304.

use forebay_semantics::validate::{
    client_has_it, confirms, make_conditional, merge_not_modified, must_forward,
    not_modified_fields, strip_conditions, validator,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::block::{Block, backwards};
use crate::run::{Outcome, Target};

/// Fuzz target for conditional requests, validators and the update by a 304.
pub const TARGET: Target = Target { check, outcomes_min: 9 };

fn check(input: &[u8]) -> Outcome {
    let (request, stored) = Block::pair(input);
    let has_it = client_has_it(&request.headers, stored.status(), &stored.headers);
    assert_has_it(&request.headers, stored.status(), &stored.headers, has_it);
    assert_own_copy(&stored.headers);
    assert_merged(&stored.headers, &request.headers);
    assert_asked_again(&request.headers, &stored.headers);
    let own = validator(&stored.headers);
    let own = own.map(|own| (own.tag.is_some(), own.modified.is_some()));
    let confirmed = confirms(&stored.headers, &request.headers);
    Outcome::of((has_it, must_forward(&request.headers), own, confirmed))
}

fn assert_has_it(request: &HeaderMap, status: StatusCode, stored: &HeaderMap, has_it: bool) {
    let by_tag = request.contains_key("if-none-match");
    assert!(!has_it || by_tag || request.contains_key("if-modified-since"), "no condition");
    assert!(!has_it || status.is_success(), "{status}");
    assert_eq!(client_has_it(&backwards(request), status, stored), has_it, "another order");
    if by_tag {
        // RFC 9110 section 13.1.3: If-Modified-Since is ignored if If-None-Match is present.
        let mut without_date = request.clone();
        without_date.remove("if-modified-since");
        assert_eq!(client_has_it(&without_date, status, stored), has_it, "the date is passed over");
    }
}

/// Asserts that a request with the stored tag matches the stored response.
fn assert_own_copy(stored: &HeaderMap) {
    let Some(tag) = validator(stored).and_then(|own| own.tag) else { return };
    if !is_entity_tag(&tag) {
        return;
    }
    for list in [tag.to_vec(), [b"\"no, such\" , W/\"\",", &tag[..], b",x"].concat()] {
        let mut request = HeaderMap::new();
        let Ok(value) = HeaderValue::from_bytes(&list) else { return };
        request.insert("if-none-match", value);
        assert!(client_has_it(&request, StatusCode::OK, stored), "its own tag {tag:?}");
    }
}

/// Returns whether a tag is an entity tag (RFC 9110 section 8.8.3).
fn is_entity_tag(tag: &[u8]) -> bool {
    let quoted = tag.strip_prefix(b"W/").unwrap_or(tag);
    let inside = quoted.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inside.is_some_and(|inside| !inside.iter().any(|byte| matches!(byte, b'"' | b' ' | b'\t')))
}

fn assert_merged(stored: &HeaderMap, fresh: &HeaderMap) {
    let merged = merge_not_modified(stored, fresh);
    for kept in
        ["content-length", "content-encoding", "content-type", "content-range", "set-cookie"]
    {
        assert!(merged.get_all(kept).iter().eq(stored.get_all(kept).iter()), "{kept} changed");
    }
    for name in ["connection", "te", "transfer-encoding", "upgrade"] {
        let brought = fresh.contains_key(name) && !stored.contains_key(name);
        assert!(!brought || !merged.contains_key(name), "{name} came with the 304");
    }
    assert!(fresh.contains_key("age") || !merged.contains_key("age"), "an old Age");
    assert_eq!(merge_not_modified(&merged, fresh), merged, "the same 304 twice");
    let told = not_modified_fields(stored);
    assert!(told.iter().all(|(name, value)| stored.get_all(name).iter().any(|v| v == value)));
    assert!(!told.contains_key("content-length"), "a 304 has no body");
    assert!(confirms(stored, stored) && confirms(stored, &HeaderMap::new()), "itself");
}

/// Asserts that a revalidation request contains the stored validators and none of the client's.
fn assert_asked_again(request: &HeaderMap, stored: &HeaderMap) {
    let mut asked = request.clone();
    strip_conditions(&mut asked);
    assert!(!must_forward(&asked) && !client_has_it(&asked, StatusCode::OK, stored));
    let Some(own) = validator(stored) else { return };
    make_conditional(&mut asked, &own);
    let sent = |name| asked.get(name).map(HeaderValue::as_bytes);
    assert_eq!(sent("if-none-match"), own.tag.as_deref());
    assert_eq!(sent("if-modified-since"), own.modified.as_deref());
    assert_eq!(asked.get_all("if-none-match").iter().count(), usize::from(own.tag.is_some()));
}
