//! Purges by requests of clients.

use std::fmt;

use http::HeaderName;

/// Maximum number of tags that one request purges.
pub const TAGS_MAX: usize = 256;

/// Purge of the URL of a request, or of the tags that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRule {
    /// Removes entries if true; otherwise they become stale.
    pub hard: bool,
    /// Secret that the request must have; `None` if its address is enough.
    pub token: Option<Secret>,
    /// Field with the token: `Authorization` as `Bearer TOKEN`, every other field the token alone.
    pub token_header: HeaderName,
    /// Request field with tags; the URL is purged if a request does not have it.
    pub tags: Option<HeaderName>,
    /// Format of the field with tags.
    pub format: TagFormat,
}

/// Secret of the operator that was read from a file; it is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Box<str>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Secret {
    /// Compares with a value, in a time that does not depend on where they differ.
    #[must_use]
    pub fn equals(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differences = given.iter().zip(own).fold(0, |seen, (a, b)| seen | (a ^ b));
        given.len() == own.len() && differences == 0
    }
}

/// Format of a request field with tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagFormat {
    /// Tags, separated by spaces or commas.
    List,
    /// Regular expression that Magento sends to Varnish: `((^|,)TAG(,|$))`, several joined by `|`; or
    /// `.*` for all entries.
    Magento,
}

/// Tags that a request purges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgedTags {
    /// These tags, at least one.
    Named(Vec<Box<str>>),
    /// All entries of the site.
    All,
}

impl TagFormat {
    /// Reads the value of a field. `None` if it is malformed, names no tag, or more than [`TAGS_MAX`].
    #[must_use]
    pub fn read(self, value: &str) -> Option<PurgedTags> {
        let value = value.trim();
        if self == Self::Magento && value == ".*" {
            return Some(PurgedTags::All);
        }
        let tags: Option<Vec<Box<str>>> = match self {
            Self::List => {
                let tags = value.split([' ', ',']).filter(|tag| !tag.is_empty());
                Some(tags.map(Into::into).collect())
            }
            Self::Magento => alternatives(value).map(magento_tag).collect(),
        };
        let tags = tags?;
        (1..=TAGS_MAX).contains(&tags.len()).then_some(PurgedTags::Named(tags))
    }
}

/// Splits an expression at each `|` that is in no parenthesis.
fn alternatives(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '|' && depth == 0
    })
}

fn magento_tag(alternative: &str) -> Option<Box<str>> {
    let inner = alternative.trim();
    let inner = inner.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'))?;
    let tag = inner.strip_prefix("(^|,)")?.strip_suffix("(,|$)")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (!tag.is_empty() && tag.bytes().all(is_plain)).then(|| tag.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(tags: &[&str]) -> Option<PurgedTags> {
        Some(PurgedTags::Named(tags.iter().map(|tag| (*tag).into()).collect()))
    }

    #[test]
    fn tags_are_read_in_both_formats() {
        assert_eq!(TagFormat::List.read(" a, b c,"), named(&["a", "b", "c"]));
        let rows = [
            ("((^|,)cat_p_1(,|$))", named(&["cat_p_1"])),
            ("((^|,)cat_p_1(,|$))|((^|,)cms-b(,|$))", named(&["cat_p_1", "cms-b"])),
            (".*", Some(PurgedTags::All)),
            ("cat_p_1", None),
            ("((^|,).*(,|$))", None),
            ("((^|,)a|b(,|$))", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(TagFormat::Magento.read(text), expected, "{text}");
        }
        for empty in ["", " ,"] {
            assert_eq!(TagFormat::List.read(empty), None);
        }
        let many = |count| vec!["a"; count].join(" ");
        assert!(TagFormat::List.read(&many(TAGS_MAX)).is_some());
        assert_eq!(TagFormat::List.read(&many(TAGS_MAX + 1)), None);
    }

    #[test]
    fn a_secret_equals_itself_only_and_is_not_printed() {
        let secret = Secret("s3cret".into());
        assert!(secret.equals(b"s3cret"));
        for other in [&b""[..], b"s3cre", b"s3crets", b"s4cret"] {
            assert!(!secret.equals(other));
        }
        assert_eq!(format!("{secret:?}"), "(secret)");
    }
}
