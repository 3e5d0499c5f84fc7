//! Edits of header fields.

use std::fmt;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::glob::NamePattern;
use crate::template::{EditFailed, Placeholder, Placeholders, Template};

/// Edits of header fields. They run in the order of the fields of this struct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Fields that are kept; all others are removed, except those that HTTP needs. Absent keeps all.
    pub keep: Option<Vec<NamePattern>>,
    /// Fields that are removed; a pattern with `*` does not remove those that no edit may change.
    pub remove: Vec<NamePattern>,
    /// Values for fields that are absent after the removal.
    pub default: Vec<(HeaderName, Value)>,
    /// Values that replace all lines of a field.
    pub set: Vec<(HeaderName, Value)>,
    /// Values that are added to a field as further lines.
    pub add: Vec<(HeaderName, Value)>,
}

/// Value of an edited field.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Fixed value.
    Fixed(HeaderValue),
    /// Secret of the operator that was read from a file; it is not printed.
    Secret(HeaderValue),
    /// Text with placeholders in braces, such as `{host}`.
    Template(Template),
}

impl Value {
    /// Parses text with placeholders.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let template = Template::parse(text)?;
        let Some(fixed) = template.fixed() else { return Ok(Self::Template(template)) };
        let value = HeaderValue::from_str(fixed).map_err(|_| "is not a field value".to_owned())?;
        Ok(Self::Fixed(value))
    }

    /// Returns the placeholders in the value.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        let template = match self {
            Self::Template(template) => Some(template),
            Self::Fixed(_) | Self::Secret(_) => None,
        };
        template.into_iter().flat_map(Template::placeholders)
    }

    fn expand(&self, values: &impl Placeholders) -> Result<HeaderValue, EditFailed> {
        match self {
            Self::Fixed(value) | Self::Secret(value) => Ok(value.clone()),
            Self::Template(template) => {
                HeaderValue::from_bytes(&template.expand(values)?).map_err(|_| EditFailed)
            }
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(value) => value.fmt(f),
            Self::Secret(_) => f.write_str("(secret)"),
            Self::Template(template) => template.as_str().fmt(f),
        }
    }
}

impl Edits {
    /// Returns true if there is no edit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns all values that the edits write.
    pub fn values(&self) -> impl Iterator<Item = (&HeaderName, &Value)> {
        let all = self.default.iter().chain(&self.set).chain(&self.add);
        all.map(|(name, value)| (name, value))
    }

    /// Applies the edits. A value that cannot be expanded is skipped, and the others are applied.
    ///
    /// # Errors
    /// If a value was skipped.
    pub fn apply(
        &self,
        headers: &mut HeaderMap,
        values: &impl Placeholders,
    ) -> Result<(), EditFailed> {
        let mut result = Ok(());
        let mut expand = |value: &Value| {
            let expanded = value.expand(values);
            if expanded.is_err() {
                result = Err(EditFailed);
            }
            expanded.ok()
        };
        self.take_away(headers);
        for (name, value) in &self.default {
            if !headers.contains_key(name)
                && let Some(value) = expand(value)
            {
                headers.insert(name, value);
            }
        }
        for (name, value) in &self.set {
            if let Some(value) = expand(value) {
                headers.insert(name, value);
            }
        }
        for (name, value) in &self.add {
            if let Some(value) = expand(value) {
                headers.append(name, value);
            }
        }
        result
    }

    /// Applies the edits to a 304, whose fields replace those of a stored response that was edited
    /// before: values are not added again, and defaults do not replace stored values.
    ///
    /// # Errors
    /// If a value was skipped.
    pub fn apply_to_update(
        &self,
        headers: &mut HeaderMap,
        values: &impl Placeholders,
    ) -> Result<(), EditFailed> {
        let add = self.add.iter().filter(|(name, _)| headers.contains_key(name)).cloned().collect();
        Self { default: Vec::new(), add, ..self.clone() }.apply(headers, values)
    }

    fn take_away(&self, headers: &mut HeaderMap) {
        if let Some(keep) = &self.keep {
            retain(headers, |name| {
                is_needed(name) || keep.iter().any(|pattern| pattern.matches(name))
            });
        }
        for pattern in &self.remove {
            match pattern {
                NamePattern::Exact(name) => {
                    headers.remove(&**name);
                }
                NamePattern::Prefix(_) => {
                    retain(headers, |name| !pattern.matches(name) || is_fixed(name));
                }
            }
        }
    }
}

fn retain(headers: &mut HeaderMap, keeps: impl Fn(&str) -> bool) {
    let removed: Vec<HeaderName> =
        headers.keys().filter(|name| !keeps(name.as_str())).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
}

/// Returns true for a request field that `keep` does not remove: HTTP itself needs it, or another
/// setting is responsible.
pub(crate) fn is_needed(name: &str) -> bool {
    is_fixed(name)
        || matches!(
            name,
            "cache-control"
                | "content-language"
                | "content-type"
                | "if-match"
                | "if-modified-since"
                | "if-none-match"
                | "if-range"
                | "if-unmodified-since"
                | "pragma"
                | "range"
        )
}

/// Returns true for a field, named in lower case, that no edit may change: framing, hop-by-hop
/// fields, routing, forwarding claims, and fields that the cache itself computes.
#[must_use]
pub fn is_fixed(name: &str) -> bool {
    matches!(
        name,
        "age"
            | "alt-svc"
            | "cache-status"
            | "client-cert"
            | "client-cert-chain"
            | "connection"
            | "content-encoding"
            | "content-length"
            | "content-range"
            | "cookie"
            | "date"
            | "expect"
            | "forwarded"
            | "host"
            | "keep-alive"
            | "max-forwards"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "via"
            | "x-forwarded-for"
            | "x-forwarded-host"
            | "x-forwarded-proto"
            | "x-forwarded-port"
            | "x-http-method-override"
            | "x-original-url"
            | "x-real-ip"
            | "x-rewrite-url"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::template::VALUE_MAX;

    /// Every placeholder has this value.
    struct Always(Vec<u8>);

    impl Placeholders for Always {
        fn append(&self, _: &Placeholder, to: &mut Vec<u8>) {
            to.extend_from_slice(&self.0);
        }
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line = |line: &(&'static str, &str)| {
            (HeaderName::from_static(line.0), HeaderValue::from_str(line.1).unwrap())
        };
        lines.iter().map(line).collect()
    }

    fn value(name: &'static str, text: &str) -> (HeaderName, Value) {
        (HeaderName::from_static(name), Value::parse(text).unwrap())
    }

    #[test]
    fn edits_run_in_their_order() {
        let pattern = |text| NamePattern::parse(text).unwrap();
        let edits = Edits {
            keep: Some(vec![pattern("x-*")]),
            remove: vec![pattern("x-a")],
            default: vec![value("x-a", "default"), value("x-b", "not used")],
            set: vec![value("x-c", "{host}!")],
            add: vec![value("x-b", "2")],
        };
        let mut fields = headers(&[
            ("x-a", "1"),
            ("x-b", "1"),
            ("y", "1"),
            ("host", "h"),
            ("range", "bytes=0-1"),
        ]);
        let failed = edits.apply(&mut fields, &Always(b"h".to_vec()));
        let expected = [
            ("host", "h"),
            ("range", "bytes=0-1"),
            ("x-a", "default"),
            ("x-b", "1"),
            ("x-b", "2"),
            ("x-c", "h!"),
        ];
        assert_eq!((failed, fields), (Ok(()), headers(&expected)));
    }

    #[test]
    fn an_invalid_value_is_skipped_and_reported() {
        let edits = Edits { set: vec![value("a", "{host}"), value("b", "1")], ..Edits::default() };
        for bad in [&b"a\r\nb"[..], b"\0", &[b'a'; VALUE_MAX + 1]] {
            let mut fields = HeaderMap::new();
            assert_eq!(edits.apply(&mut fields, &Always(bad.to_vec())), Err(EditFailed));
            assert_eq!(fields, headers(&[("b", "1")]));
        }
    }

    #[test]
    fn an_update_adds_nothing_twice() {
        let edits = Edits {
            default: vec![value("d", "1")],
            set: vec![value("s", "1")],
            add: vec![value("a", "1"), value("b", "1")],
            ..Edits::default()
        };
        let mut fields = headers(&[("a", "0")]);
        edits.apply_to_update(&mut fields, &Always(Vec::new())).unwrap();
        assert_eq!(fields, headers(&[("a", "0"), ("a", "1"), ("s", "1")]));
    }

    #[test]
    fn templates_have_placeholders_and_braces() {
        let template = Template::parse("a{{b}}{query.x}{header.Foo}").unwrap();
        let names: Vec<String> = template.placeholders().map(ToString::to_string).collect();
        assert_eq!(names, ["{query.x}", "{header.foo}"]);
        assert_eq!(template.expand(&Always(b"v".to_vec())).unwrap(), b"a{b}vv");
        for text in ["{", "}", "{x}", "{query.}", "{query}", "{header.a b}", "{a"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        assert_eq!(Template::parse("").unwrap().fixed(), Some(""));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::tests::cases()))]

        #[test]
        fn edits_never_yield_line_breaks_nul_or_framing_fields(
            value in proptest::collection::vec(any::<u8>(), 0..40),
            prefix in "[a-z]{0,3}",
        ) {
            let pattern = NamePattern::Prefix(prefix.into());
            let edits = Edits {
                remove: vec![pattern],
                set: vec![(HeaderName::from_static("x"), Value::parse("{path}").unwrap())],
                ..Edits::default()
            };
            let mut fields = headers(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
            let _ = edits.apply(&mut fields, &Always(value));
            prop_assert!(fields.contains_key("content-length"));
            prop_assert!(fields.contains_key("transfer-encoding"));
            for value in fields.values() {
                prop_assert!(!value.as_bytes().iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
            }
        }
    }
}
