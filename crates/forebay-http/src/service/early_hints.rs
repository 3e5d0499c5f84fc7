//! 103 Early Hints from the `Link` fields of a stored response, while the origin is asked (RFC 8297).

use forebay_engine::Miss;
use forebay_rules::Kind;
use forebay_semantics::FieldLines;
use http::header::LINK;
use http::{HeaderMap, HeaderValue};

use crate::site::Site;
use crate::stored::head::StoredHead;

/// Maximum number of `Link` fields in one response with hints.
const LINKS_MAX: usize = 16;

/// Field in which a browser says that it follows a link. Only then does it use hints, and a client
/// that does not know interim responses does not send the field.
const FETCH_MODE: &str = "sec-fetch-mode";

/// Returns the fields of a 103 for a request that a fetch answers; `None` without hints.
///
/// The hints are those of the stored response of the request, if it may be served stale. A site with
/// rules that edit responses sends none: their edits would not apply to the hints.
pub(super) fn early_hints(site: &Site, asked: &HeaderMap, miss: &Miss) -> Option<HeaderMap> {
    let is_navigation = || asked.get(FETCH_MODE).is_some_and(|mode| mode == "navigate");
    let may_be_used = !miss.must_not_be_stale() && !miss.is_served_first();
    if !site.settings.early_hints || !may_be_used || !is_navigation() {
        return None;
    }
    let edits = [Kind::CacheResponse, Kind::ClientResponse];
    if edits.iter().any(|kind| site.settings.rule_set.uses(*kind)) {
        return None;
    }
    let head = miss.prior()?.head.bytes()?;
    let stored = StoredHead::parse(&head).filter(|stored| stored.status.is_success())?;
    let mut hints = HeaderMap::new();
    for line in stored.lines_named(LINK.as_str()).filter(|line| is_hint(line)).take(LINKS_MAX) {
        hints.append(LINK, HeaderValue::from_bytes(line).ok()?);
    }
    (!hints.is_empty()).then_some(hints)
}

/// Returns true if a `Link` names something that a client can fetch or connect to early.
fn is_hint(line: &[u8]) -> bool {
    let has = |word: &[u8]| line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    has(b"rel=") && (has(b"preload") || has(b"preconnect"))
}

#[cfg(test)]
mod tests {
    use super::is_hint;

    #[test]
    fn links_to_fetch_early_are_hints() {
        let rows = [
            ("</a.css>; rel=preload; as=style", true),
            ("<https://cdn.example>; REL=\"preconnect\"", true),
            ("</m.js>; rel=modulepreload", true),
            ("</next>; rel=next", false),
            ("</preload>", false),
        ];
        for (line, expected) in rows {
            assert_eq!(is_hint(line.as_bytes()), expected, "{line}");
        }
    }
}
