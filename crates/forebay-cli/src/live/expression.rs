//! Expressions that select responses: `status>=500 and site=shop`.
//!
//! ```text
//! or         = and { "or" and }
//! and        = not { "and" not }
//! not        = "not" not | "(" or ")" | comparison
//! comparison = field operator value
//! operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"
//! ```
//!
//! The fields are those of the access log. A comparison with a missing field is false, except `!=` and
//! `!~`.

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::config::nearest;
use crate::log::access::{Field, FieldValue};

/// Maximum length of an expression in bytes.
const LENGTH_MAX: usize = 4 << 10;

/// Maximum depth of parentheses and `not`.
const DEPTH_MAX: usize = 32;

/// Maximum size of a compiled regular expression in bytes.
const REGEX_MAX: usize = 1 << 20;

/// Kind of a field, which decides how its value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// Milliseconds in the access log; written with a unit.
    Time,
    /// Bytes; may be written with a unit.
    Size,
}

/// Fields: name in expressions, field, kind.
const FIELDS: [(&str, Field, Kind); 27] = [
    ("site", Field::Site, Kind::Text),
    ("host", Field::Host, Kind::Text),
    ("method", Field::Method, Kind::Text),
    ("target", Field::Target, Kind::Text),
    ("proto", Field::Protocol, Kind::Text),
    ("status", Field::Status, Kind::Number),
    ("cache", Field::Cache, Kind::Text),
    ("why", Field::Why, Kind::Text),
    ("tier", Field::Tier, Kind::Text),
    ("code", Field::Code, Kind::Text),
    ("ttl", Field::Ttl, Kind::Number),
    ("age", Field::Age, Kind::Number),
    ("bytes", Field::Bytes, Kind::Size),
    ("head", Field::Head, Kind::Time),
    ("head_ms", Field::Head, Kind::Number),
    ("total", Field::Total, Kind::Time),
    ("total_ms", Field::Total, Kind::Number),
    ("origin", Field::OriginTime, Kind::Time),
    ("origin_ms", Field::OriginTime, Kind::Number),
    ("origin_status", Field::OriginStatus, Kind::Number),
    ("shared", Field::Shared, Kind::Text),
    ("end", Field::End, Kind::Text),
    ("client", Field::Client, Kind::Text),
    ("peer", Field::Peer, Kind::Text),
    ("ua", Field::UserAgent, Kind::Text),
    ("referer", Field::Referer, Kind::Text),
    ("key", Field::Key, Kind::Text),
];

/// Units of times, in milliseconds.
const TIMES: [(&str, f64); 5] =
    [("us", 1e-3), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3), ("min", 60e3)];

/// Units of sizes, in bytes.
const SIZES: [(&str, f64); 7] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1_024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];

/// Error in an expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpressionError {
    /// Column of the error, from 1.
    column: usize,
    text: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.text)
    }
}

/// Expression, ready for comparisons.
#[derive(Debug)]
pub(super) enum Expression {
    All,
    Or(Box<Self>, Box<Self>),
    And(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Number(Field, Operator, f64),
    Text(Field, Operator, String),
    Matches(Field, Regex),
}

/// Operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Operator {
    fn holds<T: PartialOrd>(self, one: &T, other: &T) -> bool {
        match self {
            Self::Equal => one == other,
            Self::Unequal => one != other,
            Self::Less => one < other,
            Self::LessOrEqual => one <= other,
            Self::Greater => one > other,
            Self::GreaterOrEqual => one >= other,
        }
    }
}

impl Expression {
    /// Parses an expression; an empty one selects all responses.
    ///
    /// # Errors
    /// The first error, with its column.
    pub(super) fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > LENGTH_MAX {
            let text = format!("the expression is longer than {LENGTH_MAX} bytes");
            return Err(ExpressionError { column: 1, text });
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        parser.skip_space();
        if parser.rest().is_empty() {
            return Ok(Self::All);
        }
        let expression = parser.or()?;
        if parser.rest().is_empty() {
            Ok(expression)
        } else {
            Err(parser.error("expected `and`, `or` or the end of the expression"))
        }
    }

    /// Returns true if the expression selects the response with these values.
    pub(super) fn selects<'a>(&self, value: &dyn Fn(Field) -> Option<FieldValue<'a>>) -> bool {
        match self {
            Self::All => true,
            Self::Or(one, other) => one.selects(value) || other.selects(value),
            Self::And(one, other) => one.selects(value) && other.selects(value),
            Self::Not(inner) => !inner.selects(value),
            Self::Number(field, operator, wanted) => match value(*field).and_then(as_f64) {
                Some(value) => operator.holds(&value, wanted),
                None => *operator == Operator::Unequal,
            },
            Self::Text(field, operator, wanted) => match value(*field) {
                Some(value) => operator.holds(&&*value.text(), &wanted.as_str()),
                None => *operator == Operator::Unequal,
            },
            Self::Matches(field, regex) => {
                value(*field).is_some_and(|value| regex.is_match(&value.text()))
            }
        }
    }
}

fn as_f64(value: FieldValue<'_>) -> Option<f64> {
    value.as_f64()
}

struct Parser<'t> {
    text: &'t str,
    /// Byte that is read next.
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn error(&self, text: impl Into<String>) -> ExpressionError {
        self.error_at(self.at, text)
    }

    fn error_at(&self, at: usize, text: impl Into<String>) -> ExpressionError {
        ExpressionError { column: self.text[..at].chars().count() + 1, text: text.into() }
    }

    /// Takes a keyword that is followed by no other letter.
    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.rest().strip_prefix(word).is_some_and(|after| {
            !after.starts_with(|c: char| c.is_alphanumeric() || "_=!<>~".contains(c))
        });
        if is_next {
            self.at += word.len();
            self.skip_space();
        }
        is_next
    }

    fn or(&mut self) -> Result<Expression, ExpressionError> {
        let mut left = self.and()?;
        while self.takes_word("or") {
            left = Expression::Or(left.into(), self.and()?.into());
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expression, ExpressionError> {
        let mut left = self.not()?;
        while self.takes_word("and") {
            left = Expression::And(left.into(), self.not()?.into());
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expression, ExpressionError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(format!("the expression is nested deeper than {DEPTH_MAX}")));
        }
        let parsed = if self.takes_word("not") {
            Expression::Not(self.not()?.into())
        } else if self.rest().starts_with('(') {
            let opened = self.at;
            self.at += 1;
            self.skip_space();
            let inner = self.or()?;
            if !self.rest().starts_with(')') {
                return Err(self.error_at(opened, "this parenthesis is not closed"));
            }
            self.at += 1;
            self.skip_space();
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(parsed)
    }

    fn comparison(&mut self) -> Result<Expression, ExpressionError> {
        let start = self.at;
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        if name.is_empty() {
            return Err(self.error("expected a field such as `status`"));
        }
        let known = FIELDS.iter().find(|(known, ..)| *known == name);
        let Some(&(_, field, kind)) = known else {
            let near = nearest(FIELDS.iter().map(|(known, ..)| *known), name);
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(self.error(format!("there is no field `{name}`{near}")));
        };
        self.at = start + end;
        self.skip_space();
        let operator_at = self.at;
        let operators = ["!=", "!~", "<=", ">=", "=", "<", ">", "~"];
        let Some(operator) = operators.into_iter().find(|it| self.rest().starts_with(it)) else {
            return Err(self.error("expected one of = != < <= > >= ~ !~"));
        };
        self.at += operator.len();
        self.skip_space();
        let value_at = self.at;
        let value = self.value()?;
        let operator = match operator {
            "~" => return self.regex(field, value, value_at),
            "!~" => return Ok(Expression::Not(self.regex(field, value, value_at)?.into())),
            "=" => Operator::Equal,
            "!=" => Operator::Unequal,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            _ => Operator::GreaterOrEqual,
        };
        let units: &[(&str, f64)] = match kind {
            Kind::Text if matches!(operator, Operator::Equal | Operator::Unequal) => {
                return Ok(Expression::Text(field, operator, value.to_owned()));
            }
            Kind::Text => {
                let text = format!("`{name}` is a text; compare it with = != ~ or !~");
                return Err(self.error_at(operator_at, text));
            }
            Kind::Number => &[],
            Kind::Time => &TIMES,
            Kind::Size => &SIZES,
        };
        match number(value, units) {
            Some(number) => Ok(Expression::Number(field, operator, number)),
            None => Err(self.error_at(value_at, expected(name, kind, value))),
        }
    }

    fn regex(&self, field: Field, value: &str, at: usize) -> Result<Expression, ExpressionError> {
        let regex = RegexBuilder::new(value).size_limit(REGEX_MAX).build();
        let invalid = |_| self.error_at(at, format!("`{value}` is no regular expression"));
        Ok(Expression::Matches(field, regex.map_err(invalid)?))
    }

    /// Takes a value: between quotes, or up to a space or a parenthesis.
    fn value(&mut self) -> Result<&'t str, ExpressionError> {
        let rest = self.rest();
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let value = match quote {
            Some(quote) => {
                let Some(end) = rest[1..].find(quote) else {
                    return Err(self.error("this quote is not closed"));
                };
                self.at += end + 2;
                &rest[1..=end]
            }
            None => {
                let end = rest.find(|c: char| c.is_whitespace() || c == ')');
                let end = end.unwrap_or(rest.len());
                self.at += end;
                &rest[..end]
            }
        };
        if value.is_empty() && quote.is_none() {
            return Err(self.error("expected a value"));
        }
        self.skip_space();
        Ok(value)
    }
}

fn number(value: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-');
    let (digits, unit) = value.split_at(end.unwrap_or(value.len()));
    let number: f64 = digits.parse().ok()?;
    if unit.is_empty() {
        // A time has no usual unit.
        return (!units.iter().any(|(name, _)| *name == "ms")).then_some(number);
    }
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    Some(number * factor)
}

fn expected(name: &str, kind: Kind, value: &str) -> String {
    let example = match kind {
        Kind::Time => "a time such as 250ms",
        Kind::Size => "a size such as 1MiB",
        Kind::Text | Kind::Number => "a number",
    };
    format!("`{name}` is compared with {example}, not with `{value}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(field: Field) -> Option<FieldValue<'static>> {
        Some(match field {
            Field::Site => "shop".into(),
            Field::Target => "/items/1?page=2".into(),
            Field::Status => FieldValue::Unsigned(503),
            Field::Cache => "error".into(),
            Field::Bytes => FieldValue::Unsigned(2_000_000),
            Field::Head => FieldValue::Micros(312_500),
            Field::Shared => FieldValue::Truth(true),
            _ => return None,
        })
    }

    #[test]
    fn expressions_select_by_the_fields_of_the_access_log() {
        for (text, expected) in [
            ("", true),
            ("status>=500 and site=shop", true),
            ("status >= 500 and site = other", false),
            ("status=200 or cache=error", true),
            ("not status=200", true),
            ("not (status=503 or site=x)", false),
            ("head>250ms", true),
            ("head>0.5s", false),
            ("head_ms<313", true),
            ("bytes>1MiB and bytes<2MiB", true),
            ("target~^/items/", true),
            ("target!~'^/items/'", false),
            ("target='/items/1?page=2'", true),
            ("why=stale", false),
            ("why!=stale", true),
            ("why!~stale", true),
            ("shared=true", true),
            ("site!=shop or status!=503 or (bytes<=5 and status=503)", false),
        ] {
            let parsed = Expression::parse(text).map(|it| it.selects(&response));
            assert_eq!(parsed, Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_column() {
        for (text, expected) in [
            ("statu=200", "column 1: there is no field `statu`; did you mean `status`?"),
            ("site=a and colour=b", "column 12: there is no field `colour`"),
            ("status", "column 7: expected one of = != < <= > >= ~ !~"),
            ("status>", "column 8: expected a value"),
            ("status>abc", "column 8: `status` is compared with a number, not with `abc`"),
            ("head>250", "column 6: `head` is compared with a time such as 250ms, not with `250`"),
            ("bytes>1XB", "column 7: `bytes` is compared with a size such as 1MiB, not with `1XB`"),
            ("site>a", "column 5: `site` is a text; compare it with = != ~ or !~"),
            ("site=a site=b", "column 8: expected `and`, `or` or the end of the expression"),
            ("(site=a", "column 1: this parenthesis is not closed"),
            ("site='a", "column 6: this quote is not closed"),
            ("target~'('", "column 8: `(` is no regular expression"),
            ("and", "column 1: there is no field `and`"),
            ("=", "column 1: expected a field such as `status`"),
        ] {
            let error = Expression::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let deep = format!("{}site=a{}", "(".repeat(99), ")".repeat(99));
        assert!(Expression::parse(&deep).expect_err("deep").to_string().contains("nested"));
        let long = "site=a or ".repeat(1_000);
        assert!(Expression::parse(&long).expect_err("long").to_string().contains("longer"));
    }
}
