//! Sets of media types, such as those that are worth compressing.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::fields::single;

/// Media type, or all types of one kind such as `text/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTypePattern {
    /// Type in lower case; ends with the slash if every subtype matches.
    text: Box<str>,
}

/// Set of media types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaTypes(Box<[MediaTypePattern]>);

impl MediaTypePattern {
    /// Parses `type/subtype` or `type/*`; `None` if the text is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (main, sub) = text.split_once('/')?;
        let is_token = |text: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
            !text.is_empty() && text.bytes().all(is_part)
        };
        if !is_token(main) || !(sub == "*" || is_token(sub)) {
            return None;
        }
        let text = text.strip_suffix('*').unwrap_or(text);
        Some(Self { text: text.to_ascii_lowercase().into() })
    }

    fn matches(&self, media_type: &[u8]) -> bool {
        let text = self.text.as_bytes();
        let main = media_type.get(..text.len());
        let is_same = main.is_some_and(|main| main.eq_ignore_ascii_case(text));
        is_same && (text.ends_with(b"/") || media_type.len() == text.len())
    }
}

impl std::fmt::Display for MediaTypePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let every = if self.text.ends_with('/') { "*" } else { "" };
        write!(f, "{}{every}", self.text)
    }
}

impl MediaTypes {
    /// Creates a set.
    #[must_use]
    pub fn new(patterns: impl IntoIterator<Item = MediaTypePattern>) -> Self {
        Self(patterns.into_iter().collect())
    }

    /// Returns `true` if the set contains the `Content-Type` of a response, whatever its
    /// parameters. A response without that field, or with several, has no type.
    #[must_use]
    pub fn contain(&self, headers: &HeaderMap) -> bool {
        let Some(value) = single(headers, &CONTENT_TYPE) else { return false };
        let value = value.as_bytes();
        let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
        let media_type = value[..end].trim_ascii();
        self.0.iter().any(|pattern| pattern.matches(media_type))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn parameters_and_case_do_not_matter() {
        let patterns = ["text/*", "Application/JSON"].map(MediaTypePattern::parse);
        let types = MediaTypes::new(patterns.into_iter().flatten());
        let rows = [
            ("text/html", true),
            ("TEXT/HTML; charset=utf-8", true),
            ("text/", true),
            ("text", false),
            ("textual/x", false),
            ("application/json", true),
            ("application/json ;v=1", true),
            ("application/jsonp", false),
            ("application/ld+json", false),
            ("image/png", false),
            ("", false),
        ];
        for (value, expected) in rows {
            let value = HeaderValue::from_static(value);
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value.clone())]);
            assert_eq!(types.contain(&headers), expected, "{value:?}");
        }
        assert!(!types.contain(&HeaderMap::new()));
    }

    #[test]
    fn a_pattern_is_a_type_or_all_types_of_one_kind() {
        for text in ["text/*", "image/svg+xml", "application/vnd.api+json"] {
            assert_eq!(
                MediaTypePattern::parse(text).map(|known| known.to_string()).as_deref(),
                Some(text)
            );
        }
        for text in ["", "text", "text/", "/html", "*/*", "text/h*", "text/html; charset=utf-8"] {
            assert_eq!(MediaTypePattern::parse(text), None, "{text}");
        }
    }
}
