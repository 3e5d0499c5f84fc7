//! Value as typed: raw, with its path and position.

use super::problem::Place;
use std::borrow::Cow;
use toml::Spanned;
use toml::de::DeValue;

/// Value as typed, before it is interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed {
    /// Full path of the option, such as `site[0].hosts[1]`, or the name of a flag.
    pub(crate) path: String,
    /// Position of the value.
    pub(crate) place: Place,
    /// Raw value.
    pub(crate) raw: Raw,
}

/// Raw value; types that no option uses are kept by name only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Raw {
    Text(String),
    /// Digits as typed, and the value if it fits.
    Integer(String, Option<u64>),
    /// Number with a fraction or an exponent, as typed.
    Fraction(String),
    Truth(bool),
    List(Vec<Typed>),
    /// Members in the order of their names.
    Table(Vec<Member>),
    /// Name of any other type in a sentence.
    Other(&'static str),
}

/// Member of a table, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Position of the name.
    pub(crate) place: Place,
    pub(crate) value: Typed,
}

impl Raw {
    /// Name of the type with its article, for "must be …, not …".
    pub(crate) fn shape(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(..) => "an integer",
            Self::Fraction(_) => "a number with a fraction",
            Self::Truth(_) => "a boolean",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(name) => name,
        }
    }
}

impl Typed {
    /// Value of a flag.
    pub(crate) fn flag(name: &str, text: &str) -> Self {
        Self { path: name.to_owned(), place: Place::Flag, raw: Raw::Text(text.to_owned()) }
    }

    /// Value of a parsed document.
    pub(crate) fn from_toml(path: String, value: &Spanned<DeValue<'_>>, lines: &Lines<'_>) -> Self {
        let place = lines.place(value.span().start);
        let raw = match value.get_ref() {
            DeValue::String(text) => Raw::Text(text.clone().into_owned()),
            DeValue::Integer(number) => {
                let value = u64::from_str_radix(number.as_str(), number.radix()).ok();
                Raw::Integer(number.to_string(), value)
            }
            DeValue::Boolean(truth) => Raw::Truth(*truth),
            DeValue::Array(items) => {
                let item = |(n, value)| Self::from_toml(format!("{path}[{n}]"), value, lines);
                Raw::List(items.iter().enumerate().map(item).collect())
            }
            DeValue::Float(number) => Raw::Fraction(number.to_string()),
            DeValue::Datetime(_) => Raw::Other("a date"),
            DeValue::Table(table) => {
                let member = |(name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                    let text = name.get_ref().clone().into_owned();
                    let value = Self::from_toml(format!("{path}.{text}"), value, lines);
                    Member { name: text, place: lines.place(name.span().start), value }
                };
                Raw::Table(table.iter().map(member).collect())
            }
        };
        Self { path, place, raw }
    }

    /// Default value, written as it would be typed.
    ///
    /// `None` if `text` is not a TOML value; a test rules that out for every option.
    pub(crate) fn from_default(path: String, text: &str) -> Option<Self> {
        let value = DeValue::parse(text).ok()?;
        let mut typed = Self::from_toml(path, &value, &Lines::new(text));
        typed.forget_places();
        Some(typed)
    }

    fn forget_places(&mut self) {
        self.place = Place::Default;
        if let Raw::List(items) = &mut self.raw {
            items.iter_mut().for_each(Self::forget_places);
        }
    }
}

/// Converts byte offsets of a text to lines and columns.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Finds the line starts of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(after_breaks).collect() }
    }

    /// Position of a byte; an offset beyond the text gives the position of its end.
    pub(crate) fn place(&self, offset: usize) -> Place {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        Place::File { line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a\nbü = 1\n\nend";
        let lines = Lines::new(text);
        let at = |needle: &str| lines.place(text.find(needle).unwrap());
        assert_eq!(at("a"), Place::File { line: 1, column: 1 });
        assert_eq!(at("b"), Place::File { line: 2, column: 1 });
        assert_eq!(at("="), Place::File { line: 2, column: 4 });
        assert_eq!(at("end"), Place::File { line: 4, column: 1 });
        assert_eq!(lines.place(usize::MAX), Place::File { line: 4, column: 4 });
        assert_eq!(Lines::new("").place(0), Place::File { line: 1, column: 1 });
    }

    #[test]
    fn a_default_has_no_position() {
        let typed = Typed::from_default("hosts".into(), r#"["a", "b"]"#).unwrap();
        let Raw::List(items) = &typed.raw else { panic!("{typed:?}") };
        assert_eq!(typed.place, Place::Default);
        assert_eq!(items[1].place, Place::Default);
        assert_eq!(items[1].path, "hosts[1]");
        assert_eq!(Typed::from_default("x".into(), "1 2"), None);
    }

    #[test]
    fn integers_keep_their_text_and_their_value_where_it_fits() {
        let raw = |text: &str| Typed::from_default(String::new(), text).unwrap().raw;
        assert_eq!(raw("1_000"), Raw::Integer("1000".into(), Some(1000)));
        assert_eq!(raw("0x10"), Raw::Integer("0x10".into(), Some(16)));
        assert_eq!(raw("-1"), Raw::Integer("-1".into(), None));
    }
}
