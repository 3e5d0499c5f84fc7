//! Parser for all `Cache-Control` lines of a request or a response, targeted fields, and the fields that
//! directives exclude from storing.
//!
//! This folder uses `fields`; it never sees lifetimes or stored entries.

pub mod policy;
pub mod product_fields;
pub mod withheld;

use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderName, PRAGMA};
use smallvec::SmallVec;

use crate::fields::{FieldLines, Members, SECONDS_MAX, delta_seconds, tokens};

/// Maximum number of field names in one `no-cache="…"` or `private="…"`; with more, the directive
/// applies to the whole response, which is stricter.
pub const SCOPE_FIELDS_MAX: usize = 32;

/// Length in bytes of the longest known directive (`stale-while-revalidate`).
const NAME_MAX: usize = 22;

/// `Cache-Control` directives of a message (RFC 9111 section 5.2, RFC 5861, RFC 8246).
///
/// Names are case-insensitive, arguments may be tokens or quoted strings, and unknown directives are
/// ignored. Of contradicting duplicates the stricter one applies, so the order of directives does not
/// matter (section 4.2.1 leaves this choice). A malformed duration counts as zero, but a malformed
/// `min-fresh` is ignored. Durations are at most 2^31 seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// Argument of `max-age` (RFC 9111 sections 5.2.1.1 and 5.2.2.1); zero if malformed.
    pub max_age: Option<Duration>,
    /// Argument of `s-maxage` (RFC 9111 section 5.2.2.10); zero if malformed.
    pub s_maxage: Option<Duration>,
    /// Argument of `min-fresh` (RFC 9111 section 5.2.1.3); ignored if malformed.
    pub min_fresh: Option<Duration>,
    /// Argument of `max-stale` (RFC 9111 section 5.2.1.2); without an argument [`Duration::MAX`],
    /// zero if malformed.
    pub max_stale: Option<Duration>,
    /// Argument of `stale-while-revalidate` (RFC 5861 section 3); zero if malformed.
    pub stale_while_revalidate: Option<Duration>,
    /// Argument of `stale-if-error` (RFC 5861 section 4); zero if malformed.
    pub stale_if_error: Option<Duration>,
    /// Scope of `no-cache` (RFC 9111 sections 5.2.1.4 and 5.2.2.4), or of `Pragma: no-cache` in a
    /// request without `Cache-Control`; `None` if the directive is absent.
    pub no_cache: Option<Scope>,
    /// Scope of `private` (RFC 9111 section 5.2.2.7); `None` if the directive is absent.
    pub private: Option<Scope>,
    /// True if `no-store` is present (RFC 9111 sections 5.2.1.5 and 5.2.2.5).
    pub no_store: bool,
    /// True if `no-transform` is present (RFC 9111 sections 5.2.1.6 and 5.2.2.6).
    pub no_transform: bool,
    /// True if `only-if-cached` is present (RFC 9111 section 5.2.1.7).
    pub only_if_cached: bool,
    /// True if `must-revalidate` is present (RFC 9111 section 5.2.2.2).
    pub must_revalidate: bool,
    /// True if `proxy-revalidate` is present (RFC 9111 section 5.2.2.8).
    pub proxy_revalidate: bool,
    /// True if `must-understand` is present (RFC 9111 section 5.2.2.3).
    pub must_understand: bool,
    /// True if `public` is present (RFC 9111 section 5.2.2.9).
    pub public: bool,
    /// True if `immutable` is present (RFC 8246).
    pub immutable: bool,
}

/// Part of a response to which a directive applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The directive applies to the whole response.
    Whole,
    /// The directive applies to these fields only: sorted, without duplicates, at most
    /// [`SCOPE_FIELDS_MAX`].
    Fields(SmallVec<[HeaderName; 2]>),
}

impl Directives {
    /// Parses the directives of a request. `Pragma: no-cache` applies if there is no `Cache-Control`
    /// (RFC 9111 section 5.4).
    #[must_use]
    pub fn of_request(headers: &impl FieldLines) -> Self {
        let (mut found, mut is_absent) = (Self::default(), true);
        for line in headers.lines(&CACHE_CONTROL) {
            is_absent = false;
            Members::of(line).for_each(|member| found.take(member));
        }
        if is_absent
            && tokens(headers, &PRAGMA).any(|token| token.eq_ignore_ascii_case(b"no-cache"))
        {
            found.no_cache = Some(Scope::Whole);
        }
        found
    }

    /// Parses the directives of a response in `Cache-Control`. `Pragma` is ignored (RFC 9111
    /// section 5.4), and so are targeted fields, which [`policy::Policy::of`] reads.
    #[must_use]
    pub fn of_response(headers: &impl FieldLines) -> Self {
        let mut found = Self::default();
        for line in headers.lines(&CACHE_CONTROL) {
            Members::of(line).for_each(|member| found.take(member));
        }
        found
    }

    fn take(&mut self, member: &[u8]) {
        let (name, argument) = split(member);
        let mut buffer = [0; NAME_MAX];
        let Some(name) = lower_case(name, &mut buffer) else { return };
        self.take_argument(name, argument);
    }

    /// Adds one directive; `name` is in lower case.
    pub(crate) fn take_argument(&mut self, name: &[u8], argument: Argument<'_>) {
        match name {
            b"max-age" => shorten(&mut self.max_age, argument.seconds()),
            b"s-maxage" => shorten(&mut self.s_maxage, argument.seconds()),
            b"min-fresh" => self.min_fresh = self.min_fresh.max(argument.seconds()),
            b"max-stale" => shorten(&mut self.max_stale, argument.seconds_or(Duration::MAX)),
            b"stale-while-revalidate" => {
                shorten(&mut self.stale_while_revalidate, argument.seconds());
            }
            b"stale-if-error" => shorten(&mut self.stale_if_error, argument.seconds()),
            b"no-cache" => widen(&mut self.no_cache, argument.scope()),
            b"private" => widen(&mut self.private, argument.scope()),
            _ => self.take_flag(name),
        }
    }

    /// Adds a directive that has no argument; an argument is ignored.
    const fn take_flag(&mut self, name: &[u8]) {
        match name {
            b"no-store" => self.no_store = true,
            b"no-transform" => self.no_transform = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"public" => self.public = true,
            b"immutable" => self.immutable = true,
            _ => {}
        }
    }
}

/// Argument of a directive.
#[derive(Clone, Copy)]
pub(crate) enum Argument<'a> {
    Absent,
    /// Text of a `Cache-Control` argument: a number or field names.
    Given(&'a [u8]),
    /// Number in a structured field.
    Number(u64),
    /// String in a structured field; never a number.
    Text(&'a [u8]),
    Malformed,
}

impl Argument<'_> {
    fn seconds(self) -> Option<Duration> {
        match self {
            Self::Given(text) => delta_seconds(text),
            Self::Number(seconds) => Some(Duration::from_secs(seconds.min(SECONDS_MAX))),
            Self::Absent | Self::Text(_) | Self::Malformed => None,
        }
    }

    fn seconds_or(self, absent: Duration) -> Option<Duration> {
        if matches!(self, Self::Absent) { Some(absent) } else { self.seconds() }
    }

    /// Returns the scope; an argument that is not a list of field names means the whole response.
    fn scope(self) -> Scope {
        let (Self::Given(list) | Self::Text(list)) = self else { return Scope::Whole };
        let names: Option<SmallVec<[HeaderName; 2]>> = list
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
            .filter(|name| !name.is_empty())
            .take(SCOPE_FIELDS_MAX + 1)
            .map(|name| HeaderName::from_bytes(name).ok())
            .collect();
        match names {
            Some(names) if names.len() <= SCOPE_FIELDS_MAX => Scope::of(names),
            _ => Scope::Whole,
        }
    }
}

impl Scope {
    fn of(mut names: SmallVec<[HeaderName; 2]>) -> Self {
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        names.dedup();
        if names.is_empty() || names.len() > SCOPE_FIELDS_MAX {
            return Self::Whole;
        }
        Self::Fields(names)
    }

    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fields(mut names), Self::Fields(more)) => {
                names.extend(more);
                Self::of(names)
            }
            _ => Self::Whole,
        }
    }
}

/// Splits `name=argument`. White space around the `=` is not in the grammar: the name still applies,
/// because it may be a restriction, and the argument is ignored.
fn split(member: &[u8]) -> (&[u8], Argument<'_>) {
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else {
        return (member, Argument::Absent);
    };
    let (name, rest) = member.split_at(equals);
    let text = rest.get(1..).unwrap_or_default();
    let spaced = name.trim_ascii_end() != name || text.trim_ascii_start() != text;
    let argument = match unquoted(text) {
        Some(text) if !spaced => Argument::Given(text),
        _ => Argument::Malformed,
    };
    (name.trim_ascii_end(), argument)
}

/// Returns the content of a quoted string, or a token as it is (RFC 9111 section 5.2: recipients
/// accept both forms). Numbers and names need no escapes, so a string with one is malformed.
fn unquoted(text: &[u8]) -> Option<&[u8]> {
    let inside = match text {
        [b'"', inside @ .., b'"'] => inside,
        _ => text,
    };
    (!inside.iter().any(|byte| matches!(byte, b'"' | b'\\'))).then_some(inside)
}

fn lower_case<'a>(name: &[u8], buffer: &'a mut [u8; NAME_MAX]) -> Option<&'a [u8]> {
    let place = buffer.get_mut(..name.len())?;
    place.copy_from_slice(name);
    place.make_ascii_lowercase();
    Some(place)
}

fn shorten(known: &mut Option<Duration>, said: Option<Duration>) {
    let said = said.unwrap_or_default();
    *known = Some(known.map_or(said, |known| known.min(said)));
}

fn widen(known: &mut Option<Scope>, said: Scope) {
    *known = Some(match known.take() {
        Some(known) => known.with(said),
        None => said,
    });
}

#[cfg(test)]
mod tests;
