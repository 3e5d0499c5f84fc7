//! Entity tags in the parameter `etag`, and their comparison with `If-None-Match`.

use http::HeaderMap;
use http::header::IF_NONE_MATCH;

/// Entity tag with its quotes (RFC 9110 section 8.8.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ETag(Vec<u8>);

impl ETag {
    /// Reads `V`, `"V"` or `W/"V"`; `None` if the value is not an entity tag.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let strong = value.strip_prefix(b"W/").unwrap_or(value);
        let opaque = strong.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        let (opaque, quoted) = match opaque {
            Some(opaque) => (opaque, value.to_vec()),
            None => (value, [b"\"", value, b"\""].concat()),
        };
        opaque.iter().all(|byte| is_etagc(*byte)).then_some(Self(quoted))
    }

    /// Bytes of the field value.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the tag is strong, which promises identical bytes.
    pub(super) fn is_strong(&self) -> bool {
        !self.0.starts_with(b"W/")
    }

    /// Returns whether `If-None-Match` contains the tag; weak comparison (RFC 9110 section
    /// 13.1.2).
    pub(super) fn is_named_by(&self, fields: &HeaderMap) -> bool {
        let opaque = self.0.strip_prefix(b"W/").unwrap_or(&self.0);
        fields.get_all(IF_NONE_MATCH).iter().any(|value| {
            let value = value.as_bytes().trim_ascii();
            value == b"*" || Tags { rest: value }.any(|tag| tag == opaque)
        })
    }
}

/// Returns whether a byte is allowed inside an entity tag (RFC 9110 section 8.8.3).
fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)
}

/// Iterator over the quoted parts of a list of entity tags; a quoted part may contain a comma.
struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Tags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|byte| *byte == b'"')?;
        let length = self.rest[start + 1..].iter().position(|byte| *byte == b'"')?;
        let (tag, rest) = self.rest[start..].split_at(length + 2);
        self.rest = rest;
        Some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_value_is_quoted_and_a_quoted_one_is_kept() {
        let shown = |value: &str| {
            let tag = ETag::parse(value.as_bytes())?;
            Some(String::from_utf8(tag.as_bytes().to_vec()).unwrap())
        };
        assert_eq!(shown("v1").as_deref(), Some("\"v1\""));
        assert_eq!(shown("\"v1\"").as_deref(), Some("\"v1\""));
        assert_eq!(shown("W/\"v1\"").as_deref(), Some("W/\"v1\""));
        assert_eq!(shown("").as_deref(), Some("\"\""));
        for bad in ["a\"b", "\"", "a b", "a\r\nb", "\"a"] {
            assert_eq!(shown(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn comparison_is_weak_and_reads_lists() {
        let named = |tag: &str, values: &[&'static str]| {
            let mut fields = HeaderMap::new();
            for value in values {
                fields.append(IF_NONE_MATCH, value.parse().unwrap());
            }
            ETag::parse(tag.as_bytes()).unwrap().is_named_by(&fields)
        };
        assert!(named("v1", &["\"v1\""]));
        assert!(named("v1", &["W/\"v1\""]));
        assert!(named("W/\"v1\"", &["\"v1\""]));
        assert!(named("v1", &["\"v0\", W/\"v1\""]));
        assert!(named("v1", &["\"v0\"", "\"v1\""]));
        assert!(named("a,b", &["\"x\",\"a,b\""]));
        assert!(named("v1", &[" * "]));
        for (tag, value) in [("v1", "\"v2\""), ("v1", "v1"), ("v1", "\"v1"), ("b", "\"a,b\"")] {
            assert!(!named(tag, &[value]), "{tag} {value}");
        }
        assert!(!named("v1", &[]));
    }
}
