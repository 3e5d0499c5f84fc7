//! Patterns for paths, values and names.

use std::fmt;

/// Pattern of a whole path: `*` matches within a segment, `**` across segments, and `/a/**` also
/// matches `/a`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathGlob(Box<str>);

/// Pattern of a whole value: `*` matches any text, also an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TextGlob(Box<str>);

/// Name, or all names with a common start (`utm_*`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NamePattern {
    /// This name.
    Exact(Box<str>),
    /// Every name that starts with this text.
    Prefix(Box<str>),
}

impl PathGlob {
    /// Parses a glob, which begins with a slash or with `*`.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with(['/', '*']) {
            return Err("must begin with \"/\" or \"*\"".into());
        }
        if text.contains(['?', '#']) {
            return Err("must not contain \"?\" or \"#\"; test parameters with `query`".into());
        }
        if text.contains("***") {
            return Err("must not contain three \"*\" in a row".into());
        }
        Ok(Self(text.into()))
    }

    /// Returns the glob as typed.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a regular expression for bytes that matches the whole path.
    pub(crate) fn to_regex(&self) -> String {
        let mut regex = String::from(r"\A(?s-u:");
        let mut rest = &*self.0;
        while let Some(next) = rest.chars().next() {
            if rest == "/**" {
                regex.push_str("(?:/.*)?");
                break;
            }
            if let Some(after) = rest.strip_prefix("/**/") {
                regex.push_str("/(?:.*/)?");
                rest = after;
            } else if let Some(after) = rest.strip_prefix("**") {
                regex.push_str(".*");
                rest = after;
            } else if let Some(after) = rest.strip_prefix('*') {
                regex.push_str("[^/]*");
                rest = after;
            } else {
                let length = next.len_utf8();
                regex_syntax::escape_into(&rest[..length], &mut regex);
                rest = &rest[length..];
            }
        }
        regex.push_str(r")\z");
        regex
    }
}

impl TextGlob {
    /// Creates a pattern. Every text is one.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the pattern as typed.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the pattern matches the whole value. `ignore_case` compares ASCII letters
    /// without regard to case.
    pub(crate) fn matches(&self, value: &[u8], ignore_case: bool) -> bool {
        wildcard(self.0.as_bytes(), value, ignore_case)
    }
}

/// Matches `*` by going back to the last one, which takes at most the product of the two lengths.
fn wildcard(pattern: &[u8], value: &[u8], ignore_case: bool) -> bool {
    let is = |one: u8, other: u8| one == other || ignore_case && one.eq_ignore_ascii_case(&other);
    let (mut p, mut v) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while v < value.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((p + 1, v));
                p += 1;
            }
            Some(byte) if is(*byte, value[v]) => (p, v) = (p + 1, v + 1),
            _ => {
                let Some((after, from)) = back else { return false };
                back = Some((after, from + 1));
                (p, v) = (after, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

impl NamePattern {
    /// Parses a name with an optional `*` at its end.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (start, is_prefix) = match text.strip_suffix('*') {
            Some(start) => (start, true),
            None => (text, false),
        };
        if start.contains('*') {
            return Err("may have \"*\" only at its end".into());
        }
        if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err("must be a name without spaces".into());
        }
        Ok(if is_prefix { Self::Prefix(start.into()) } else { Self::Exact(start.into()) })
    }

    /// Returns true if the pattern matches this name; letter case matters.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *name,
            Self::Prefix(start) => name.starts_with(&**start),
        }
    }

    /// Returns the name, or the start of the names.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
        }
    }

    /// Returns true if some name matches both patterns.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(name), pattern) | (pattern, Self::Exact(name)) => pattern.matches(name),
            (Self::Prefix(one), Self::Prefix(two)) => {
                one.starts_with(&**two) || two.starts_with(&**one)
            }
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Prefix(start) => write!(f, "{start}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    #[test]
    fn path_globs_match_segments_and_subtrees() {
        let rows: [(&str, &[&str], &[&str]); 8] = [
            ("/", &["/"], &["", "/a"]),
            ("/a/**", &["/a", "/a/", "/a/b/c"], &["/ab", "/b/a", ""]),
            ("/a/*", &["/a/", "/a/b"], &["/a", "/a/b/c"]),
            ("/a/**/z", &["/a/z", "/a/b/z", "/a/b/c/z"], &["/a/bz", "/az"]),
            ("/*.css", &["/x.css", "/.css"], &["/a/x.css", "/x.cssx"]),
            ("**.css", &["/a/x.css"], &["/x.js"]),
            ("/**", &["/", "/a"], &[]),
            ("/a.b+(c)", &["/a.b+(c)"], &["/aab+(c)"]),
        ];
        for (glob, matching, others) in rows {
            let regex = PathGlob::parse(glob).unwrap().to_regex();
            let regex = Pattern::new(&regex).unwrap();
            for path in matching {
                assert!(regex.is_match(path.as_bytes()), "{glob} {path}");
            }
            for path in others {
                assert!(!regex.is_match(path.as_bytes()), "{glob} {path}");
            }
        }
        for text in ["", "a", "/a?b", "/***"] {
            assert!(PathGlob::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn text_globs_match_whole_values() {
        let rows = [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("a", "ab", false),
            ("", "", true),
            ("*a*a*a*", "aa", false),
        ];
        for (glob, value, expected) in rows {
            assert_eq!(TextGlob::new(glob).matches(value.as_bytes(), false), expected, "{glob}");
        }
        assert!(TextGlob::new("IMAGE/*").matches(b"image/png", true));
        assert!(!TextGlob::new("IMAGE/*").matches(b"image/png", false));
    }

    #[test]
    fn name_patterns_match_and_overlap() {
        let name = |text| NamePattern::parse(text).unwrap();
        assert!(name("utm_*").matches("utm_source") && !name("utm_*").matches("utm"));
        assert!(name("*").matches("") && name("a").matches("a") && !name("a").matches("ab"));
        let rows = [("a", "a", true), ("a", "b", false), ("a*", "ab", true), ("ab*", "a*", true)];
        for (one, other, expected) in rows {
            assert_eq!(name(one).overlaps(&name(other)), expected, "{one} {other}");
        }
        for text in ["", "a*b", "a b", "**"] {
            assert!(NamePattern::parse(text).is_err(), "{text}");
        }
    }
}
