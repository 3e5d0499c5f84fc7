//! Fields of a response that only the requesting client gets, while the rest may be stored (RFC
//! 9111 sections 5.2.2.4 and 5.2.2.7).

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE,
    CONTENT_TYPE, DATE, ETAG, EXPIRES, HeaderMap, HeaderName, LAST_MODIFIED, TRANSFER_ENCODING,
    VARY,
};
use smallvec::SmallVec;

use crate::directives::policy::{Policy, TARGETED};
use crate::directives::{Directives, Scope};

/// Fields that identify the stored response: they describe its bytes, its audience and its
/// lifetime. A qualified directive that names one of them applies to the whole response.
const ESSENTIAL: [HeaderName; 13] = [
    AGE,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    CONTENT_TYPE,
    DATE,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    TRANSFER_ENCODING,
    VARY,
];

/// Fields named by a qualified `private` (RFC 9111 section 5.2.2.7: a shared cache must not store
/// them and may store the rest) or `no-cache` (section 5.2.2.4: not reused without validation).
/// Both have the same effect, because a field that is not stored is not reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withheld(SmallVec<[HeaderName; 2]>);

impl Withheld {
    /// Removes the qualified directives from the directives of a response. A directive that names
    /// an essential field becomes unqualified.
    pub(crate) fn remove_qualified(said: &mut Directives) -> Self {
        let mut names = SmallVec::new();
        for directive in [&mut said.private, &mut said.no_cache] {
            match directive.take() {
                Some(Scope::Fields(fields)) if !fields.iter().any(is_essential) => {
                    names.extend(fields);
                }
                Some(_) => *directive = Some(Scope::Whole),
                None => {}
            }
        }
        Self(names)
    }

    /// Returns the fields that the `private` and `no-cache` directives of a response name. A
    /// directive that names a field which identifies the response, such as `vary`, adds none.
    #[must_use]
    pub fn of(response: &HeaderMap) -> Self {
        Self::remove_qualified(&mut Policy::of(response).said)
    }

    /// Returns true if the field `name` is withheld.
    #[must_use]
    pub fn holds(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }

    /// Removes the withheld fields from `headers`, which will be stored, and returns the removed
    /// fields for the requesting client.
    pub fn remove_from(&self, headers: &mut HeaderMap) -> HeaderMap {
        let mut own = HeaderMap::new();
        for name in &self.0 {
            for value in headers.get_all(name) {
                own.append(name.clone(), value.clone());
            }
            headers.remove(name);
        }
        own
    }
}

fn is_essential(name: &HeaderName) -> bool {
    ESSENTIAL.contains(name) || TARGETED.contains(name)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |line: &(&'static str, &'static str)| {
            (HeaderName::from_static(line.0), HeaderValue::from_static(line.1))
        };
        lines.iter().map(field).collect()
    }

    fn taken(line: &'static str) -> (Withheld, Directives) {
        let mut said = Directives::of_response(&headers(&[("cache-control", line)]));
        let withheld = Withheld::remove_qualified(&mut said);
        (withheld, said)
    }

    #[test]
    fn named_fields_are_withheld_and_the_rest_is_storable() {
        // RFC 9111 sections 5.2.2.4 and 5.2.2.7.
        for line in ["private=\"a, set-cookie\"", "no-cache=\"A\", private=Set-Cookie"] {
            let (withheld, said) = taken(line);
            assert!(said.private.is_none() && said.no_cache.is_none(), "{line}");
            let mut stored = headers(&[("a", "1"), ("a", "2"), ("b", "3"), ("set-cookie", "c")]);
            let own = withheld.remove_from(&mut stored);
            assert_eq!(stored, headers(&[("b", "3")]), "{line}");
            assert_eq!(own, headers(&[("a", "1"), ("a", "2"), ("set-cookie", "c")]), "{line}");
        }
    }

    #[test]
    fn directives_that_name_an_essential_field_apply_to_the_whole() {
        for line in ["private", "private=\"\"", "private=\"a b\"", "private=\"a, vary\""] {
            let (withheld, said) = taken(line);
            assert_eq!(withheld, Withheld::default(), "{line}");
            assert_eq!(said.private, Some(Scope::Whole), "{line}");
        }
        let (withheld, said) = taken("no-cache=\"etag\", private=\"a\"");
        assert_eq!(said.no_cache, Some(Scope::Whole));
        assert!(said.private.is_none() && withheld.holds(&HeaderName::from_static("a")));
        for name in ESSENTIAL.iter().chain(&TARGETED) {
            assert!(is_essential(name), "{name}");
        }
    }
}
