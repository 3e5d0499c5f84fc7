//! Which fields of a response rule its caching, and what they say (RFC 9213).

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::directives::{Argument, Directives};

/// The fields that are meant for caches like this one, the nearest first (RFC 9213 section 2.2
/// calls it the target list). The first that is valid and not empty rules alone.
pub const TARGETED: [HeaderName; 2] = [
    HeaderName::from_static("forebay-cache-control"),
    HeaderName::from_static("cdn-cache-control"),
];

/// What rules the caching of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The directives that count.
    pub said: Directives,
    /// Where they stand.
    pub ruled_by: RuledBy,
}

/// Where the directives that count stand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RuledBy {
    /// In `Cache-Control`; `Expires` counts where that says nothing about freshness.
    CacheControl,
    /// In this field of [`TARGETED`]; `Cache-Control` and `Expires` say nothing to this cache.
    Targeted(HeaderName),
}

impl Policy {
    /// What rules a response with these fields.
    ///
    /// RFC 9213 section 2.2: of the fields of the target list, the first that is there, valid and
    /// not empty; where there is none, `Cache-Control` and `Expires` as in RFC 9111.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        for name in TARGETED {
            if let Some(said) = targeted(headers, &name) {
                return Self { said, ruled_by: RuledBy::Targeted(name) };
            }
        }
        Self { said: Directives::of_response(headers), ruled_by: RuledBy::CacheControl }
    }

    /// Whether `Expires` has a say.
    pub(crate) fn heeds_expires(&self) -> bool {
        self.ruled_by == RuledBy::CacheControl
    }
}

/// RFC 9213 section 2.1: a targeted field is a structured dictionary. What cannot be parsed as
/// one, and one without members, is as if it were not there.
fn targeted(headers: &HeaderMap, name: &HeaderName) -> Option<Directives> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    if lines.is_empty() {
        return None;
    }
    // RFC 9651 section 4.2: all lines are parsed as one; a string may even cross from one to the
    // next.
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

/// RFC 9213 section 2.1: a directive without an argument is the Boolean true, a span an Integer,
/// a list of field names a String. Parameters are passed over.
///
/// A value of another type should not be consumed. Here it leaves what it has of a prohibition
/// and nothing of a permission: a span becomes zero, `no-store` holds, `public` does not.
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
