//! Key of a request, and its derivation from the URL.

use std::borrow::Cow;

use forebay_core::Key;
use http::request::Parts;
use http::uri::PathAndQuery;

use crate::explanation::KeyReport;
use crate::record::decisions;
use crate::service::route::Routed;
use crate::site::key;

/// Returns the key and its differences from the URL.
pub(super) fn key_report(routed: &Routed<'_>, parts: &Parts, lookup_key: &Key) -> KeyReport {
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let settings = &routed.site.settings;
    let scheme = if settings.ignore_scheme { "http" } else { routed.peer.scheme.as_str() };
    let before = key::stripped(routed.site, path).unwrap_or(Cow::Borrowed("/"));
    let mut changes: Vec<String> = Vec::new();
    if let Some(prefix) = &settings.prefix {
        changes.push(format!("prefix {prefix} of the site removed"));
    }
    changes.extend(query_changes(&before, &routed.target));
    if before.split('?').next() != routed.target.split('?').next() {
        changes.push("path rewritten by a rule".to_owned());
    }
    KeyReport {
        scheme: scheme.to_owned(),
        host: routed.authority.to_string(),
        target: routed.target.to_string(),
        changes,
        hash: format!("{:016x}", decisions::hash(lookup_key.borrowed())),
    }
}

/// Returns the differences of two queries.
fn query_changes(before: &str, after: &str) -> Vec<String> {
    let (old, new) = (parameters(before), parameters(after));
    let (kept, dropped): (Vec<&str>, Vec<&str>) =
        old.into_iter().partition(|parameter| new.contains(parameter));
    let mut changes = Vec::new();
    if !dropped.is_empty() {
        changes.push(format!("query parameters dropped: {}", names(&dropped)));
    }
    if kept.len() == new.len() && kept != new {
        changes.push("query parameters sorted".to_owned());
    }
    changes
}

fn parameters(target: &str) -> Vec<&str> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter(|parameter| !parameter.is_empty()).collect()
}

/// Returns the names of parameters. Their values may be secrets.
pub(super) fn names(parameters: &[&str]) -> String {
    let names = parameters.iter().map(|parameter| name(parameter));
    names.collect::<Vec<_>>().join(", ")
}

/// Returns the name of a parameter.
pub(super) fn name(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::query_changes;

    #[test]
    fn the_differences_of_two_queries_are_named_without_values() {
        let rows: [(&str, &str, &[&str]); 5] = [
            ("/a", "/a", &[]),
            ("/a?b=2&a=1", "/a?b=2&a=1", &[]),
            ("/a?b=2&a=1", "/a?a=1&b=2", &["query parameters sorted"]),
            ("/a?b=2&utm_x=secret", "/a?b=2", &["query parameters dropped: utm_x"]),
            (
                "/a?c=3&utm_x=1&a=1",
                "/a?a=1&c=3",
                &["query parameters dropped: utm_x", "query parameters sorted"],
            ),
        ];
        for (before, after, changes) in rows {
            assert_eq!(query_changes(before, after), changes, "{before}");
        }
    }
}
