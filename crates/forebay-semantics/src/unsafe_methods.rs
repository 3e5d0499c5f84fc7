//! What a POST, PUT or DELETE makes invalid, and what a POST can stand for.

use http::header::{CONTENT_LOCATION, EXPIRES, HeaderMap, LOCATION};
use http::{Method, StatusCode};
use smallvec::SmallVec;

use crate::fields::single;
use crate::policy::Policy;
use crate::storable::Answered;

/// A reference longer than this names nothing that could be stored: targets are shorter.
const REFERENCE_MAX: usize = 8 * 1024;

/// Where a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host, and port unless it is the default one.
    pub authority: &'a str,
    /// Path and query.
    pub path_and_query: &'a str,
}

/// Whether a method only reads (RFC 9110 section 9.2.1). RFC 9111 section 4.4: one whose safety
/// is unknown counts as unsafe. `QUERY` is safe by RFC 10008 section 2.1.
#[must_use]
pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
        || method.as_str() == "QUERY"
}

/// Whether what is stored for the target is invalid after this exchange (RFC 9111 section 4.4):
/// the method is unsafe, and the answer is no error, hence 2xx or 3xx.
#[must_use]
pub fn invalidates(method: &Method, status: StatusCode) -> bool {
    !is_safe(method) && (status.is_success() || status.is_redirection())
}

/// Path and query of the other targets that became invalid: those in `Location` and
/// `Content-Location`.
///
/// RFC 9111 section 4.4: only those of the same origin, or one server could empty the cache of
/// another.
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

/// Whether what came in answer to a POST is what a GET of the same target would bring, and may be
/// stored for it: its `Content-Location` names the target, and it says for how long it is fresh
/// (RFC 9110 sections 8.7 and 9.3.3). That it may be stored at all is judged as for a GET.
#[must_use]
pub fn stands_for_get(target: Target<'_>, answered: Answered<'_>) -> bool {
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

/// Whether an answer says itself for how long it is fresh. Of an answer to POST nothing else counts
/// (RFC 9110 section 9.3.3).
#[must_use]
pub fn states_freshness(answer: &HeaderMap) -> bool {
    let policy = Policy::of(answer);
    let spans = policy.said.s_maxage.is_some() || policy.said.max_age.is_some();
    spans || (policy.heeds_expires() && answer.contains_key(EXPIRES))
}

/// RFC 3986 section 5.2, for references that stay at the target's origin.
fn resolve(target: Target<'_>, reference: &str) -> Option<String> {
    // No reference holds white space (RFC 3986 section 2), and no target does that was stored.
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

/// The reference without a scheme that is the target's own. `http:path` without an authority is
/// an obsolete form on which nobody agrees, and leads nowhere.
fn without_scheme<'a>(target: Target<'_>, reference: &'a str) -> Option<&'a str> {
    let Some((scheme, rest)) = split_scheme(reference) else { return Some(reference) };
    (scheme.eq_ignore_ascii_case(target.scheme) && rest.starts_with("//")).then_some(rest)
}

/// `scheme:rest`, unless the colon belongs to a path or query.
fn split_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

/// The path, and the query with its question mark.
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

/// RFC 3986 section 5.2.3: a relative path takes the place of the base's last segment; an empty
/// one (a reference that is a query) is the base.
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

/// RFC 3986 section 5.2.4. The result begins with a slash, also if the path is empty.
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
