//! Targets whose stored responses answer other queries, too (`No-Vary-Search`).
//!
//! A stored response has the key of its own target. This table finds that target for another query of
//! the same path; the stored response itself decides whether it answers the query.
//!
//! Only a target without anything that the field ignores is recorded. A response to another one may
//! contain what a client wrote into the ignored part, which the clients of other queries must not
//! get.

use std::collections::HashMap;

use forebay_core::Key;
use forebay_rules::Matched;
use forebay_semantics::SearchVariance;
use parking_lot::Mutex;

use super::tags::HostOrigin;
use super::{Site, key};

/// Maximum number of paths of a site. With one more, any other is forgotten.
const PATHS_MAX: usize = 1_024;

/// Maximum number of targets of a site. With one more, any other is forgotten.
const TARGETS_MAX: usize = 4_096;

/// Maximum length of a target in bytes. A longer one is not recorded.
const TARGET_MAX: usize = 1_024;

/// Request target, and the rules that match it. Rules may give equal responses different policies.
#[derive(Clone, Copy)]
pub(crate) struct MatchedTarget<'a> {
    pub(crate) target: &'a str,
    pub(crate) matched: &'a Matched,
}

/// Targets of responses with `No-Vary-Search`.
#[derive(Debug, Default)]
pub(crate) struct EqualQueries(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// Field of the last response, by path.
    paths: HashMap<Key, SearchVariance>,
    /// Target of the last response, by path and normalised query.
    targets: HashMap<Key, Stored>,
}

#[derive(Debug)]
struct Stored {
    target: Box<str>,
    matched: Matched,
}

impl EqualQueries {
    /// Records the target of a response, unless its query has a part that the response ignores.
    pub(crate) fn note(
        &self,
        site: &Site,
        host: HostOrigin<'_>,
        stored: MatchedTarget<'_>,
        variance: SearchVariance,
    ) {
        let MatchedTarget { target, matched } = stored;
        let (path, query) = split(target);
        let normalised = variance.normalised(query);
        if target.len() > TARGET_MAX || normalised != query {
            return;
        }
        let own = key_of(site, host, path, &normalised);
        let mut tables = self.0.lock();
        let Tables { paths, targets } = &mut *tables;
        make_place(paths, PATHS_MAX);
        paths.insert(key_of(site, host, path, ""), variance);
        make_place(targets, TARGETS_MAX);
        targets.insert(own, Stored { target: target.into(), matched: *matched });
    }

    /// Returns another target whose stored response may answer a request.
    pub(crate) fn find(
        &self,
        site: &Site,
        host: HostOrigin<'_>,
        asked: MatchedTarget<'_>,
    ) -> Option<Box<str>> {
        let (path, query) = split(asked.target);
        let tables = self.0.lock();
        let variance = tables.paths.get(&key_of(site, host, path, ""))?;
        let own = key_of(site, host, path, &variance.normalised(query));
        let stored = tables.targets.get(&own)?;
        let is_other = *stored.target != *asked.target && stored.matched == *asked.matched;
        is_other.then(|| stored.target.clone())
    }
}

/// Returns true if the response to `target` with this field answers `asked`.
pub(crate) fn answers(variance: &SearchVariance, target: &str, asked: &str) -> bool {
    let ((path, query), (asked_path, asked_query)) = (split(target), split(asked));
    path == asked_path && variance.normalised(query) == variance.normalised(asked_query)
}

fn split(target: &str) -> (&str, &str) {
    target.split_once('?').unwrap_or((target, ""))
}

fn key_of(site: &Site, host: HostOrigin<'_>, path: &str, query: &str) -> Key {
    let mut key = key::primary(site, host.scheme, host.authority, path);
    key.part(query.as_bytes()).borrowed().to_key()
}

/// Removes any entry if the map is full.
fn make_place<V>(map: &mut HashMap<Key, V>, max: usize) {
    if map.len() >= max
        && let Some(one) = map.keys().next().cloned()
    {
        map.remove(&one);
    }
}

#[cfg(test)]
mod tests {
    use forebay_semantics::Scheme;
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::site::tests::site;

    fn variance(field: &'static str) -> SearchVariance {
        let mut headers = HeaderMap::new();
        headers.insert("no-vary-search", HeaderValue::from_static(field));
        SearchVariance::of(&headers).unwrap()
    }

    #[tokio::test]
    async fn equal_queries_find_one_target_and_others_do_not() {
        let (site, known) = (site("shop", &[], None), EqualQueries::default());
        let host = HostOrigin { scheme: Scheme::Http, authority: "shop.example" };
        let matched = Matched::default();
        let of = |target| MatchedTarget { target, matched: &matched };
        let utm = || variance("params=(\"utm\")");
        // An ignored parameter may have shaped the response.
        for other in ["/p?id=1&utm=a", "/p?id=%31"] {
            known.note(&site, host, of(other), utm());
            assert_eq!(known.find(&site, host, of("/p?id=1&utm=b")), None, "{other}");
        }
        known.note(&site, host, of("/p?id=1"), utm());
        let rows = [
            ("/p?id=1&utm=b", Some("/p?id=1")),
            ("/p?utm=b&id=1", Some("/p?id=1")),
            ("/p?id=1", None),
            ("/p?id=2", None),
            ("/q?id=1", None),
        ];
        for (asked, expected) in rows {
            assert_eq!(known.find(&site, host, of(asked)).as_deref(), expected, "{asked}");
        }
        assert!(answers(&utm(), "/p?id=1", "/p?id=1&utm=a") && !answers(&utm(), "/p?id=1", "/p"));
        let https = HostOrigin { scheme: Scheme::Https, ..host };
        assert_eq!(known.find(&site, https, of("/p?id=1&utm=b")), None);
    }

    #[tokio::test]
    async fn the_tables_are_bounded() {
        let (site, known) = (site("shop", &[], None), EqualQueries::default());
        let host = HostOrigin { scheme: Scheme::Http, authority: "shop.example" };
        let matched = Matched::default();
        let note = |target: &str| {
            known.note(
                &site,
                host,
                MatchedTarget { target, matched: &matched },
                variance("params"),
            );
        };
        for number in 0..=TARGETS_MAX {
            note(&format!("/{number}"));
        }
        note(&format!("/{}", "a".repeat(TARGET_MAX)));
        let tables = known.0.lock();
        assert_eq!((tables.paths.len(), tables.targets.len()), (PATHS_MAX, TARGETS_MAX));
    }
}
