//! Requirements of a request for its answer.

use forebay_core::Demand;
use http::header::{CACHE_CONTROL, PRAGMA};

use crate::directives::Directives;
use crate::fields::FieldLines;

/// Translates the request directives of RFC 9111 section 5.2.1 to a demand. Requirements for which
/// no directive exists are those of `site`; a directive that is absent sets no requirement. A
/// request with neither `Cache-Control` nor `Pragma` has the demand of `site`.
///
/// The directives are advisory for a cache (section 5.2.1); forebay honours them. A request without
/// them costs two map lookups and no allocation.
#[must_use]
#[inline]
pub fn demand(headers: &impl FieldLines, site: &Demand) -> Demand {
    if !headers.has(&CACHE_CONTROL) && !headers.has(&PRAGMA) {
        return site.clone();
    }
    let said = Directives::of_request(headers);
    Demand {
        max_age: said.max_age,
        min_fresh: said.min_fresh,
        max_stale: said.max_stale,
        revalidate: said.no_cache.is_some(),
        only_if_cached: said.only_if_cached,
        no_store: said.no_store,
        ..site.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};
    use std::time::Duration;

    fn of(line: &'static str) -> Demand {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(line));
        demand(&headers, &Demand::default())
    }

    #[test]
    fn each_request_directive_sets_its_demand() {
        // A row per section 5.2.1.1 to 5.2.1.7 of RFC 9111.
        let any = Demand::default;
        let secs = |secs| Some(Duration::from_secs(secs));
        let rows = [
            ("max-age=5", Demand { max_age: secs(5), ..any() }),
            ("max-age=0", Demand { max_age: secs(0), ..any() }),
            ("max-stale=5", Demand { max_stale: secs(5), ..any() }),
            ("max-stale", Demand { max_stale: Some(Duration::MAX), ..any() }),
            ("min-fresh=5", Demand { min_fresh: secs(5), ..any() }),
            ("no-cache", Demand { revalidate: true, ..any() }),
            ("no-store", Demand { no_store: true, ..any() }),
            ("no-transform", any()),
            ("only-if-cached", Demand { only_if_cached: true, ..any() }),
            ("s-maxage=5, public, x", any()),
        ];
        for (line, expected) in rows {
            assert_eq!(of(line), expected, "{line}");
        }
    }

    #[test]
    fn a_request_without_directives_accepts_every_fresh_response() {
        let expected = Demand { beta: 0.5, ..Demand::default() };
        assert_eq!(demand(&HeaderMap::new(), &expected), expected);
        let mut headers = HeaderMap::new();
        headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
        assert_eq!(demand(&headers, &expected), Demand { revalidate: true, ..expected });
    }
}
