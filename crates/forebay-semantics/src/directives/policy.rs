//! Selection of the response field that controls caching (RFC 9213).

use http::header::HeaderName;
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::directives::{Argument, Directives};
use crate::fields::FieldLines;

/// Targeted fields for this cache, most specific first (the target list of RFC 9213 section 2.2). The
/// first valid and nonempty one applies alone.
pub const TARGETED: [HeaderName; 2] = [
    HeaderName::from_static("forebay-cache-control"),
    HeaderName::from_static("cdn-cache-control"),
];

/// Directives that control the caching of a response, and the field that contains them (RFC 9213).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Directives of the field that applies.
    pub said: Directives,
    /// Field whose directives apply.
    pub ruled_by: RuledBy,
}

/// Field whose directives control the caching of a response (RFC 9213).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RuledBy {
    /// `Cache-Control`, also if it is absent; `Expires` applies if it has no freshness directive.
    CacheControl,
    /// A field of [`TARGETED`]; `Cache-Control` and `Expires` are ignored.
    Targeted(HeaderName),
}

impl Policy {
    /// Returns the directives for a response with these fields: those of the first valid and nonempty
    /// field of the target list, else `Cache-Control` and `Expires` (RFC 9213 section 2.2).
    #[must_use]
    pub fn of(headers: &impl FieldLines) -> Self {
        if let Some((name, said)) = targeted_of(headers) {
            return Self { said, ruled_by: RuledBy::Targeted(name) };
        }
        Self { said: Directives::of_response(headers), ruled_by: RuledBy::CacheControl }
    }

    /// Returns true if `Expires` applies.
    pub(crate) fn heeds_expires(&self) -> bool {
        self.ruled_by == RuledBy::CacheControl
    }
}

impl RuledBy {
    /// Returns the field whose directives [`Policy::of`] reads.
    pub(crate) fn of(headers: &impl FieldLines) -> Self {
        targeted_of(headers).map_or(Self::CacheControl, |(name, _)| Self::Targeted(name))
    }
}

/// Returns the targeted field that applies, with its directives.
fn targeted_of(headers: &impl FieldLines) -> Option<(HeaderName, Directives)> {
    // One pass over the names costs less than a lookup of each targeted field.
    if !headers.all().any(|(name, _)| may_be_targeted(name)) {
        return None;
    }
    TARGETED.into_iter().find_map(|name| {
        let said = targeted(headers, &name)?;
        Some((name, said))
    })
}

/// Returns `true` if a field name, in any case, ends like those of [`TARGETED`].
fn may_be_targeted(name: &[u8]) -> bool {
    const END: &[u8] = b"-cache-control";
    let end = name.len().checked_sub(END.len()).and_then(|start| name.get(start..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(END))
}

/// Parses a targeted field, which is a structured dictionary. An invalid or empty one counts as absent
/// (RFC 9213 section 2.1).
fn targeted(headers: &impl FieldLines, name: &HeaderName) -> Option<Directives> {
    let lines: Vec<&[u8]> = headers.lines(name).collect();
    if lines.is_empty() {
        return None;
    }
    // RFC 9651 section 4.2: all lines are parsed as one; a string may span two lines.
    let value = lines.join(&b", "[..]);
    let members: Dictionary = Parser::new(&value).parse().ok()?;
    if members.is_empty() {
        return None;
    }
    let mut said = Directives::default();
    for (name, member) in &members {
        if let Some(argument) = argument(name.as_str(), member) {
            said.take_argument(name.as_str().as_bytes(), argument);
        }
    }
    Some(said)
}

/// Converts a dictionary member to a directive argument. RFC 9213 section 2.1: a directive without
/// argument is the Boolean true, a duration an Integer, a list of field names a String; parameters
/// are ignored.
///
/// A value of another type should be ignored. Here it keeps its restriction and loses its permission:
/// a duration becomes zero, `no-store` applies, `public` does not.
fn argument<'a>(name: &str, member: &'a ListEntry) -> Option<Argument<'a>> {
    let read = match member {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::Boolean(false) => return None,
            BareItem::Boolean(true) => Argument::Absent,
            BareItem::Integer(number) => number_of(i64::from(*number)),
            BareItem::String(text) => Argument::Text(text.as_str().as_bytes()),
            _ => Argument::Malformed,
        },
        ListEntry::InnerList(_) => Argument::Malformed,
    };
    let permits = matches!(name, "public" | "must-understand" | "immutable");
    (!permits || matches!(read, Argument::Absent)).then_some(read)
}

fn number_of(number: i64) -> Argument<'static> {
    u64::try_from(number).map_or(Argument::Malformed, Argument::Number)
}

#[cfg(test)]
mod tests;
