//! Queries for which a response is the same: `No-Vary-Search`
//! (draft-ietf-httpbis-no-vary-search-05).

use form_urlencoded::{Serializer, parse};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

/// Response field that names the parameters on which a response does not depend.
pub const NO_VARY_SEARCH: HeaderName = HeaderName::from_static("no-vary-search");

/// Maximum number of names in the field. A field with more counts as absent.
const NAMES_MAX: usize = 64;

/// Maximum length of the field in bytes. A longer one counts as absent.
const FIELD_MAX: usize = 4_096;

/// Differences of queries on which a response does not depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchVariance {
    /// True if the order of parameters with different names matters.
    is_ordered: bool,
    parameters: Parameters,
}

/// Parameters on which a response depends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parameters {
    /// All but these.
    AllBut(Vec<String>),
    /// These alone.
    Only(Vec<String>),
}

impl SearchVariance {
    /// Reads the field of a response. `None` if it is absent, malformed, too long, or states that every
    /// difference matters; a field with an unknown member is malformed, too.
    #[must_use]
    pub fn of(answer: &HeaderMap) -> Option<Self> {
        if !answer.contains_key(&NO_VARY_SEARCH) {
            return None;
        }
        let lines = answer.get_all(&NO_VARY_SEARCH).iter().map(HeaderValue::as_bytes);
        let value = lines.collect::<Vec<_>>().join(&b", "[..]);
        if value.len() > FIELD_MAX {
            return None;
        }
        let members = Parser::new(&value).parse::<Dictionary>().ok()?;
        let is_known = |name: &str| matches!(name, "key-order" | "params" | "except");
        if !members.keys().all(|name| is_known(name.as_str())) {
            return None;
        }
        let is_ordered = match members.get("key-order") {
            None => true,
            Some(order) => !boolean(order)?,
        };
        let except = match members.get("except") {
            None => None,
            Some(names) => Some(names_in(names)?),
        };
        let parameters = match (members.get("params"), except) {
            (None, None) => Parameters::AllBut(Vec::new()),
            (Some(ListEntry::InnerList(_)) | None, Some(_)) => return None,
            (Some(names @ ListEntry::InnerList(_)), None) => Parameters::AllBut(names_in(names)?),
            (Some(all), except) => match (boolean(all)?, except) {
                (true, except) => Parameters::Only(except.unwrap_or_default()),
                (false, None) => Parameters::AllBut(Vec::new()),
                (false, Some(_)) => return None,
            },
        };
        let variance = Self { is_ordered, parameters };
        let is_default =
            variance.is_ordered && variance.parameters == Parameters::AllBut(Vec::new());
        (!is_default).then_some(variance)
    }

    /// Returns the part of a query on which the response depends. Two queries with an equal result have
    /// the same response.
    #[must_use]
    pub fn normalised(&self, query: &str) -> String {
        let counts = |name: &str| match &self.parameters {
            Parameters::AllBut(names) => names.iter().all(|its| its != name),
            Parameters::Only(names) => names.iter().any(|its| its == name),
        };
        let mut all: Vec<_> = parse(query.as_bytes()).filter(|(name, _)| counts(name)).collect();
        if !self.is_ordered {
            all.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        Serializer::new(String::new()).extend_pairs(all).finish()
    }
}

fn boolean(entry: &ListEntry) -> Option<bool> {
    match entry {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::Boolean(truth) => Some(*truth),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    }
}

/// Returns the decoded names in an inner list of Strings.
fn names_in(entry: &ListEntry) -> Option<Vec<String>> {
    let ListEntry::InnerList(list) = entry else { return None };
    if list.items.len() > NAMES_MAX {
        return None;
    }
    let name = |item: &sfv::Item| match &item.bare_item {
        BareItem::String(name) => {
            let mut decoded = parse(name.as_str().as_bytes());
            // A name with `&` or `=` would be several, or a name with a value.
            match (decoded.next(), decoded.next()) {
                (Some((name, value)), None) if value.is_empty() => Some(name.into_owned()),
                _ => None,
            }
        }
        _ => None,
    };
    list.items.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variance(field: &str) -> Option<SearchVariance> {
        let mut answer = HeaderMap::new();
        answer.insert(NO_VARY_SEARCH, HeaderValue::from_str(field).unwrap());
        SearchVariance::of(&answer)
    }

    #[test]
    fn queries_that_differ_in_what_does_not_matter_are_equal() {
        let rows = [
            ("params", "a=1", "b=2&c", true),
            ("params", "", "b=2", true),
            ("params=(\"utm\" \"x y\")", "a=1&utm=2", "a=1&x+y=3&x%20y", true),
            ("params=(\"utm\")", "a=1&utm=2", "a=2&utm=2", false),
            ("params=(\"utm\")", "a=1&b=1", "b=1&a=1", false),
            ("params=(\"%75tm\")", "a=1&utm=2", "a=1", true),
            ("key-order", "a=1&b=1", "b=1&a=1", true),
            ("key-order", "a=1&a=2", "a=2&a=1", false),
            ("key-order, params=(\"c\")", "a=1&b=1&c", "b=%31&a=1", true),
            ("params, except=(\"id\")", "id=1&x=2", "y=3&id=1", true),
            ("params, except=(\"id\")", "id=1", "id=2", false),
            ("params, except=(\"id\")", "id=1", "", false),
            ("params, except=()", "id=1", "", true),
        ];
        for (field, one, other, expected) in rows {
            let variance = variance(field).unwrap();
            let is_equal = variance.normalised(one) == variance.normalised(other);
            assert_eq!(is_equal, expected, "{field}: {one} {other}");
        }
    }

    #[test]
    fn a_field_that_is_malformed_or_changes_nothing_counts_as_absent() {
        let long = format!("params=(\"{}\")", "a".repeat(FIELD_MAX));
        let many = format!("params=({})", "\"a\" ".repeat(NAMES_MAX + 1).trim_end());
        let rows = [
            "",
            "params=?0",
            "key-order=?0",
            "params=()",
            "params=1",
            "params=\"a\"",
            "params=(a)",
            "params=(\"a&b\")",
            "params=(\"a=b\")",
            "key-order=1",
            "except=(\"a\")",
            "params=?0, except=(\"a\")",
            "params=(\"a\"), except=(\"b\")",
            "params, except",
            "params, other",
            "params=(",
            &long,
            &many,
        ];
        for field in rows {
            assert_eq!(variance(field), None, "{field}");
        }
        assert_eq!(SearchVariance::of(&HeaderMap::new()), None);
    }
}
