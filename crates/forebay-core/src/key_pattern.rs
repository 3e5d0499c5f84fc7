//! Patterns of keys: the beginning of a part, or a regular expression that is found in the path.

use std::fmt;
#[cfg(feature = "regex")]
use std::sync::Arc;

#[cfg(feature = "regex")]
use regex_automata::meta::Regex;
#[cfg(feature = "regex")]
use regex_automata::util::syntax;

use crate::key::KeyRef;

/// Maximum length of an expression in bytes.
#[cfg(feature = "regex")]
const EXPRESSION_MAX: usize = 1_024;

/// Maximum size of one compiled expression in bytes.
#[cfg(feature = "regex")]
const COMPILED_MAX: usize = 256 << 10;

/// Begin of the written form of an expression. No part of a request contains its first byte.
const WRITTEN: &str = "\0regex:";

/// Number of the part of a key in which an expression is searched: the target of a request, after the
/// site, the scheme and the host.
const TARGET: usize = 3;

/// Pattern of keys within one namespace. Cheap to clone.
#[derive(Clone)]
pub struct KeyPattern {
    /// The prefix, or the expression after [`WRITTEN`].
    written: Box<str>,
    expression: Option<Expression>,
}

/// Compiled expression.
#[derive(Clone)]
enum Expression {
    #[cfg(feature = "regex")]
    Compiled(Arc<Regex>),
    /// An expression that this build or this version cannot compile: all keys match, so that no
    /// purged entry is served.
    Unknown,
}

impl KeyPattern {
    /// Returns the pattern of keys whose target, up to its first `?`, contains a match of a regular
    /// expression. The expression reads bytes: `\w` and `\d` are ASCII.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the expression.
    #[cfg(feature = "regex")]
    pub fn path_regex(text: &str) -> Result<Self, String> {
        let regex = Arc::new(compiled(text)?);
        let written = format!("{WRITTEN}{text}").into();
        Ok(Self { written, expression: Some(Expression::Compiled(regex)) })
    }

    /// Returns the written form, from which the pattern can be made again.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// Returns true if the pattern is a regular expression.
    #[must_use]
    pub const fn is_regex(&self) -> bool {
        self.expression.is_some()
    }

    /// Returns true if the key is in `namespace` and matches the pattern. A prefix matches if one
    /// part after the namespace, or two adjacent parts joined, begin with it.
    #[must_use]
    pub fn matches(&self, namespace: &str, key: KeyRef<'_>) -> bool {
        match &self.expression {
            None => key.is_within(namespace, &self.written),
            Some(expression) => {
                key.namespace() == namespace.as_bytes() && expression.is_found_in(key)
            }
        }
    }
}

impl Expression {
    #[cfg(feature = "regex")]
    fn of(text: &str) -> Self {
        compiled(text).map_or_else(|_| Self::Unknown, |regex| Self::Compiled(Arc::new(regex)))
    }

    #[cfg(not(feature = "regex"))]
    fn of(_: &str) -> Self {
        Self::Unknown
    }

    fn is_found_in(&self, key: KeyRef<'_>) -> bool {
        // A key without this part is none of a request.
        let Some(target) = key.parts().nth(TARGET) else { return false };
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        match self {
            #[cfg(feature = "regex")]
            Self::Compiled(regex) => regex.is_match(path),
            Self::Unknown => !path.is_empty(),
        }
    }
}

#[cfg(feature = "regex")]
fn compiled(text: &str) -> Result<Regex, String> {
    if text.len() > EXPRESSION_MAX {
        return Err(format!("is longer than {EXPRESSION_MAX} bytes"));
    }
    let config = Regex::config()
        .utf8_empty(false)
        .nfa_size_limit(Some(COMPILED_MAX))
        .hybrid_cache_capacity(COMPILED_MAX);
    Regex::builder()
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .configure(config)
        .build(text)
        .map_err(|error| match error.syntax_error() {
            Some(_) => "is not a regular expression".to_owned(),
            None => "is too large; shorten it or its repetitions".to_owned(),
        })
}

impl From<&str> for KeyPattern {
    fn from(written: &str) -> Self {
        Self::from(Box::<str>::from(written))
    }
}

impl From<String> for KeyPattern {
    fn from(written: String) -> Self {
        Self::from(written.into_boxed_str())
    }
}

/// Returns the pattern with this written form; a text without the mark of expressions is a prefix.
impl From<Box<str>> for KeyPattern {
    fn from(written: Box<str>) -> Self {
        let expression = written.strip_prefix(WRITTEN).map(Expression::of);
        Self { written, expression }
    }
}

impl PartialEq for KeyPattern {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for KeyPattern {}

impl fmt::Debug for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

#[cfg(all(test, feature = "regex"))]
mod tests {
    use super::*;
    use crate::key::KeyBuf;

    fn key(site: &str, target: &str) -> KeyBuf {
        let mut key = KeyBuf::new(site);
        key.part(b"http").part(b"images.example").part(target.as_bytes()).part(b"images");
        key
    }

    #[test]
    fn an_expression_is_found_in_the_path_of_its_site() {
        let rows = [
            (r"^/items/[0-9]+$", "shop", "/items/7", true),
            (r"^/items/[0-9]+$", "shop", "/items/7?x=/items/8", true),
            (r"^/items/[0-9]+$", "shop", "/items/red?/items/7", false),
            (r"^/items/[0-9]+$", "blog", "/items/7", false),
            (r"\.jpg$", "shop", "/a.jpg?w=1", true),
            ("images", "shop", "/other", false),
            ("(?i)/ITEMS", "shop", "/items", true),
        ];
        for (expression, site, target, expected) in rows {
            let pattern = KeyPattern::path_regex(expression).unwrap();
            let again = KeyPattern::from(pattern.as_str());
            for pattern in [pattern, again] {
                let found = pattern.matches("shop", key(site, target).borrowed());
                assert_eq!(found, expected, "{expression} {site} {target}");
                assert!(pattern.is_regex());
            }
        }
        let short = KeyBuf::new("shop").part(b"name").clone();
        assert!(!KeyPattern::path_regex("").unwrap().matches("shop", short.borrowed()));
    }

    #[test]
    fn an_unknown_expression_matches_all_paths_and_a_wrong_one_is_refused() {
        let unknown = KeyPattern::from("\0regex:(");
        assert!(unknown.matches("shop", key("shop", "/a").borrowed()));
        assert!(!unknown.matches("shop", key("blog", "/a").borrowed()));
        let refused = |text: &str| KeyPattern::path_regex(text).unwrap_err();
        assert_eq!(refused("("), "is not a regular expression");
        assert_eq!(refused(r"(a{1000}){1000}"), "is too large; shorten it or its repetitions");
        assert_eq!(refused(&"a".repeat(1_025)), "is longer than 1024 bytes");
        assert!(!KeyPattern::from("/items").is_regex());
    }
}
