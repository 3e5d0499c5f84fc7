//! Invalidation by unsafe methods (RFC 9111 section 4.4), and POST responses that a GET may be
//! answered with (RFC 9110 section 9.3.3).

use http::header::{CONTENT_LOCATION, EXPIRES, HeaderMap, LOCATION};
use http::{Method, StatusCode};
use smallvec::SmallVec;

use crate::directives::policy::Policy;
use crate::fields::single;
use crate::message::ResponseRef;

/// Maximum length of a reference in bytes. No stored target is longer.
const REFERENCE_MAX: usize = 8 * 1024;

/// Target URI of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Scheme of the target URI, `http` or `https`.
    pub scheme: &'a str,
    /// Host of the target URI, and the port unless it is the default of the scheme.
    pub authority: &'a str,
    /// Path and query of the target URI.
    pub path_and_query: &'a str,
}

/// Returns true if a method is safe (RFC 9110 section 9.2.1). RFC 9111 section 4.4: a method of
/// unknown safety is unsafe. `QUERY` is safe by RFC 10008 section 2.1.
#[must_use]
pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
        || method.as_str() == "QUERY"
}

/// Returns true if this exchange invalidates the stored responses of its target (RFC 9111 section
/// 4.4): the method is unsafe, and the status is 2xx or 3xx.
#[must_use]
pub fn invalidates(method: &Method, status: StatusCode) -> bool {
    !is_safe(method) && (status.is_success() || status.is_redirection())
}

/// Returns path and query of the other targets that an unsafe request invalidates: those in
/// `Location` and `Content-Location`.
///
/// RFC 9111 section 4.4: only targets of the same origin, so that one server cannot invalidate the
/// entries of another. A field with several lines is ignored. Method and status are not examined;
/// see [`invalidates`].
#[must_use]
pub fn also_invalidated(target: Target<'_>, answer: &HeaderMap) -> SmallVec<[String; 2]> {
    let mut found: SmallVec<[String; 2]> = SmallVec::new();
    for name in [LOCATION, CONTENT_LOCATION] {
        let reference = single(answer, &name).and_then(|value| value.to_str().ok());
        let other = reference.and_then(|reference| resolve(target, reference.trim()));
        found
            .extend(other.filter(|other| other != target.path_and_query && !found.contains(other)));
    }
    found
}

/// Returns true if the response to a POST may be stored for GET of the same target: its status is
/// 200, its `Content-Location` is the target, and it states its freshness (RFC 9110 sections 8.7
/// and 9.3.3). Storability itself is decided as for GET.
#[must_use]
pub fn stands_for_get(target: Target<'_>, answered: ResponseRef<'_>) -> bool {
    let reference = single(answered.headers, &CONTENT_LOCATION).and_then(|one| one.to_str().ok());
    let named = reference.map(str::trim).and_then(|reference| match reference {
        // RFC 3986 section 4.4: an empty reference is the target itself.
        "" => Some(target.path_and_query.to_owned()),
        reference => resolve(target, reference),
    });
    answered.status == StatusCode::OK
        && named.as_deref() == Some(target.path_and_query)
        && states_freshness(answered.headers)
}

/// Returns true if a response states its freshness explicitly, by `s-maxage`, `max-age` or
/// `Expires` of any value. The response to a POST must do so to be stored (RFC 9110 section 9.3.3).
#[must_use]
pub fn states_freshness(answer: &HeaderMap) -> bool {
    let policy = Policy::of(answer);
    let spans = policy.said.s_maxage.is_some() || policy.said.max_age.is_some();
    spans || (policy.heeds_expires() && answer.contains_key(EXPIRES))
}

/// Resolves a reference to path and query (RFC 3986 section 5.2); `None` if it leaves the origin of
/// the target.
fn resolve(target: Target<'_>, reference: &str) -> Option<String> {
    // A valid reference has no white space (RFC 3986 section 2).
    if reference.len() > REFERENCE_MAX || reference.contains([' ', '\t']) {
        return None;
    }
    let (reference, _fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let relative = without_scheme(target, reference)?;
    if let Some(rest) = relative.strip_prefix("//") {
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (path, query) = split_query(rest);
        return is_same_authority(target, authority).then(|| without_dots(path) + query);
    }
    if relative.is_empty() {
        return None;
    }
    let (base, _) = split_query(target.path_and_query);
    let (path, query) = split_query(relative);
    Some(without_dots(&merge_paths(base, path)) + query)
}

/// Removes the scheme of a reference if it equals that of the target. `http:path` without an
/// authority is obsolete and ambiguous, and yields `None`.
fn without_scheme<'a>(target: Target<'_>, reference: &'a str) -> Option<&'a str> {
    let Some((scheme, rest)) = split_scheme(reference) else { return Some(reference) };
    (scheme.eq_ignore_ascii_case(target.scheme) && rest.starts_with("//")).then_some(rest)
}

/// Splits `scheme:rest`, unless the colon belongs to the path or query.
fn split_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

/// Splits path and query; the query keeps its question mark.
fn split_query(text: &str) -> (&str, &str) {
    text.split_at(text.find('?').unwrap_or(text.len()))
}

fn is_same_authority(target: Target<'_>, authority: &str) -> bool {
    let default = if target.scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    let bare = |authority| without_suffix(authority, default);
    bare(target.authority).eq_ignore_ascii_case(bare(authority))
}

fn without_suffix<'a>(text: &'a str, suffix: &str) -> &'a str {
    text.strip_suffix(suffix).unwrap_or(text)
}

/// RFC 3986 section 5.2.3: a relative path replaces the last segment of the base; an empty path (a
/// query-only reference) means the base.
fn merge_paths(base: &str, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    if path.is_empty() {
        return base.to_owned();
    }
    let directory = base.rfind('/').and_then(|slash| base.get(..=slash)).unwrap_or("/");
    [directory, path].concat()
}

/// Removes dot segments (RFC 3986 section 5.2.4). The result begins with a slash, even for an empty
/// path.
fn without_dots(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut open_end = false;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        open_end = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    if open_end {
        segments.push("");
    }
    ["/", &segments.join("/")].concat()
}

#[cfg(test)]
mod tests;
