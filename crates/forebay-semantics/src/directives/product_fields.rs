//! Fields by which other products' caches are controlled: translated to `CDN-Cache-Control`.

use std::fmt::Write as _;

use forebay_core::WallTime;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::directives::Directives;
use crate::directives::policy::{Policy, RuledBy};

/// Targeted field that a translation writes.
pub const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Field of another product, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProductField {
    /// `Surrogate-Control` (Edge Architecture Specification).
    SurrogateControl,
    /// `X-Accel-Expires` of nginx: the lifetime alone.
    XAccelExpires,
    /// `Edge-Control` of Akamai.
    EdgeControl,
}

impl ProductField {
    /// Every field, in the order of precedence.
    pub const ALL: [Self; 3] = [Self::SurrogateControl, Self::XAccelExpires, Self::EdgeControl];

    /// Returns the name of the field in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SurrogateControl => "surrogate-control",
            Self::XAccelExpires => "x-accel-expires",
            Self::EdgeControl => "edge-control",
        }
    }

    /// Returns the field as directives of `CDN-Cache-Control`; `None` if it states none.
    fn translated(self, headers: &HeaderMap, received: WallTime) -> Option<String> {
        let lines = headers.get_all(self.name()).iter().filter_map(|line| line.to_str().ok());
        let members = lines.flat_map(|line| line.split(',')).map(str::trim);
        match self {
            Self::SurrogateControl => joined(members.filter_map(surrogate)),
            Self::XAccelExpires => {
                let mut members = members.filter(|member| !member.is_empty());
                match (members.next(), members.next()) {
                    (Some(value), None) => accelerated(value, headers, received),
                    _ => None,
                }
            }
            Self::EdgeControl => joined(members.filter_map(edge)),
        }
    }
}

/// Replaces the first of these fields that states a directive by `CDN-Cache-Control`, unless the
/// response has a valid targeted field already, and removes them all.
///
/// `Surrogate-Control` and `Edge-Control` replace `Cache-Control` like every targeted field (RFC 9213).
/// `X-Accel-Expires` sets the lifetime alone: prohibitions of `Cache-Control` stay.
pub fn translate(headers: &mut HeaderMap, fields: &[ProductField], received: WallTime) {
    let is_named = |field: &ProductField| fields.contains(field);
    if Policy::of(headers).ruled_by == RuledBy::CacheControl {
        let named = ProductField::ALL.into_iter().filter(is_named);
        let found = named.filter_map(|field| field.translated(headers, received)).next();
        if let Some(value) = found.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(CDN_CACHE_CONTROL, value);
        }
    }
    for field in ProductField::ALL.into_iter().filter(is_named) {
        headers.remove(field.name());
    }
}

fn joined(directives: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = directives.collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Translates one directive of `Surrogate-Control`. One for another surrogate, behind a semicolon, does
/// not apply.
fn surrogate(member: &str) -> Option<String> {
    if member.contains(';') {
        return None;
    }
    let (name, value) = member.split_once('=').unwrap_or((member, ""));
    let value = value.trim_matches('"');
    Some(match &*name.trim().to_ascii_lowercase() {
        "max-age" => match value.split_once('+') {
            None => format!("max-age={}", seconds(value)),
            Some((fresh, stale)) => {
                let (fresh, stale) = (seconds(fresh), seconds(stale));
                format!("max-age={fresh}, stale-while-revalidate={stale}, stale-if-error={stale}")
            }
        },
        name @ ("stale-while-revalidate" | "stale-if-error") => {
            format!("{name}={}", seconds(value))
        }
        "no-store" | "no-store-remote" => "no-store".to_owned(),
        name @ ("private" | "no-cache" | "must-revalidate" | "public") => name.to_owned(),
        _ => return None,
    })
}

/// Translates one directive of `Edge-Control`. Durations may have the units s, m, h and d.
fn edge(member: &str) -> Option<String> {
    let (name, value) = member.split_once('=').unwrap_or((member, ""));
    Some(match &*name.trim().to_ascii_lowercase() {
        "max-age" | "cache-maxage" => {
            let value = value.trim();
            let (number, unit) = match value.char_indices().next_back() {
                Some((at, 's')) => (&value[..at], 1),
                Some((at, 'm')) => (&value[..at], 60),
                Some((at, 'h')) => (&value[..at], 3_600),
                Some((at, 'd')) => (&value[..at], 86_400),
                _ => (value, 1),
            };
            format!("max-age={}", seconds(number).saturating_mul(unit).min(SECONDS_MAX))
        }
        "no-store" | "bypass-cache" => "no-store".to_owned(),
        _ => return None,
    })
}

/// Translates `X-Accel-Expires`: seconds, or `@` and a time in seconds since 1970.
fn accelerated(value: &str, headers: &HeaderMap, received: WallTime) -> Option<String> {
    let seconds = match value.strip_prefix('@') {
        Some(at) => at.parse::<u64>().ok()?.saturating_sub(received.as_secs()),
        None => value.parse::<u64>().ok()?,
    };
    let said = Directives::of_response(headers);
    let mut text = match seconds {
        0 => "no-store".to_owned(),
        seconds => format!("max-age={}", seconds.min(SECONDS_MAX)),
    };
    let kept = [
        (said.no_store, "no-store"),
        (said.private.is_some(), "private"),
        (said.no_cache.is_some(), "no-cache"),
        (said.must_revalidate, "must-revalidate"),
        (said.proxy_revalidate, "proxy-revalidate"),
        (said.public, "public"),
    ];
    for (_, name) in kept.into_iter().filter(|(is_said, _)| *is_said) {
        // Writing to a string does not fail.
        let _ = write!(text, ", {name}");
    }
    Some(text)
}

/// Largest duration of a directive in seconds (RFC 9111 section 1.2.2).
const SECONDS_MAX: u64 = 1 << 31;

/// Parses a number of seconds; a malformed one is zero, as in `Cache-Control`.
fn seconds(text: &str) -> u64 {
    text.trim().parse::<u64>().unwrap_or(0).min(SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    /// Returns `CDN-Cache-Control` after the translation of all fields.
    fn translated(lines: &[(&'static str, &'static str)]) -> Option<String> {
        let mut headers = headers(lines);
        translate(&mut headers, &ProductField::ALL, WallTime::from_secs(1_000));
        assert!(ProductField::ALL.iter().all(|field| !headers.contains_key(field.name())));
        headers.get(CDN_CACHE_CONTROL).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn fields_of_other_products_become_directives() {
        let surrogate = |value| [("surrogate-control", value)];
        let edge = |value| [("edge-control", value)];
        let accel = |value| [("x-accel-expires", value)];
        let rows = [
            (surrogate("max-age=60, content=\"ESI/1.0\""), Some("max-age=60")),
            (
                surrogate("max-age=60+30"),
                Some("max-age=60, stale-while-revalidate=30, stale-if-error=30"),
            ),
            (surrogate("max-age=60;other, no-store"), Some("no-store")),
            (surrogate("max-age=x"), Some("max-age=0")),
            (surrogate("content=\"ESI/1.0\""), None),
            (edge("max-age=2h, !no-store"), Some("max-age=7200")),
            (edge("cache-maxage=1d"), Some("max-age=86400")),
            (edge("bypass-cache"), Some("no-store")),
            (accel("60"), Some("max-age=60")),
            (accel("@1090"), Some("max-age=90")),
            (accel("@90"), Some("no-store")),
            (accel("0"), Some("no-store")),
            (accel("off"), None),
        ];
        for (lines, expected) in rows {
            assert_eq!(translated(&lines).as_deref(), expected, "{lines:?}");
        }
    }

    #[test]
    fn prohibitions_stay_and_the_first_field_applies() {
        let private = ("cache-control", "private, max-age=1");
        let (accel, edge) = (("x-accel-expires", "60"), ("edge-control", "max-age=5"));
        assert_eq!(translated(&[private, accel]).as_deref(), Some("max-age=60, private"));
        assert_eq!(translated(&[edge, accel]).as_deref(), Some("max-age=60"));
        let cdn = ("cdn-cache-control", "max-age=7");
        assert_eq!(translated(&[cdn, edge]).as_deref(), Some("max-age=7"));
    }
}
