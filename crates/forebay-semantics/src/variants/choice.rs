//! Choice of one language or media type by the preferences of a request.

use crate::fields::FieldLines;
use crate::variants::preferences::weight_of;

/// Maximum number of members of a field that are compared; further ones are ignored.
const MEMBERS_MAX: usize = 64;

/// Returns the language of `listed` that `Accept-Language` prefers: the one with the highest weight, of
/// equal weights the first one in the list. A range and a listed language match if one is the other,
/// or the beginning of the other up to a hyphen. `*` and malformed members are ignored.
#[must_use]
pub fn preferred_language<'l>(
    headers: &impl FieldLines,
    listed: &'l [Box<str>],
) -> Option<&'l str> {
    let begins = |start: &[u8], of: &[u8]| {
        of.get(..start.len()).is_some_and(|part| part.eq_ignore_ascii_case(start))
            && matches!(of.get(start.len()), None | Some(b'-'))
    };
    preferred(headers.lines_named("accept-language"), listed, |range, language| {
        !range.is_empty() && (begins(range, language) || begins(language, range))
    })
}

/// Returns the media type of `listed` that `Accept` names with the highest weight; of equal weights the
/// first one in the list. Wildcards name no type: clients send them with types that they prefer.
#[must_use]
pub fn preferred_type<'l>(headers: &impl FieldLines, listed: &'l [Box<str>]) -> Option<&'l str> {
    preferred(headers.lines_named("accept"), listed, <[u8]>::eq_ignore_ascii_case)
}

fn preferred<'a, 'l>(
    lines: impl Iterator<Item = &'a [u8]>,
    listed: &'l [Box<str>],
    matches: impl Fn(&[u8], &[u8]) -> bool,
) -> Option<&'l str> {
    let mut best: Option<(u16, usize)> = None;
    let members = lines.flat_map(|line| line.split(|byte| *byte == b','));
    for member in members.take(MEMBERS_MAX) {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let range = parts.next().unwrap_or_default();
        let weight = parts.find(|part| matches!(part, [b'q' | b'Q', b'=', ..]));
        let Some(weight) = weight.map_or(Some(1_000), weight_of).filter(|weight| *weight > 0)
        else {
            continue;
        };
        for (n, text) in listed.iter().enumerate() {
            let is_better =
                best.is_none_or(|(known, at)| weight > known || weight == known && n < at);
            if is_better && matches(range, text.as_bytes()) {
                best = Some((weight, n));
            }
        }
    }
    best.map(|(_, n)| &*listed[n])
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, ACCEPT_LANGUAGE};
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn listed(texts: &[&str]) -> Vec<Box<str>> {
        texts.iter().map(|text| (*text).into()).collect()
    }

    #[test]
    fn the_listed_language_with_the_highest_weight_is_chosen() {
        let list = listed(&["en", "de", "pt-BR"]);
        let rows = [
            ("de-AT,de;q=0.9,en;q=0.8", Some("de")),
            ("en;q=0.8, DE;q=0.9", Some("de")),
            ("de, en", Some("en")),
            ("fr, pt;q=0.5", Some("pt-BR")),
            ("dex, e", None),
            ("*", None),
            ("de;q=0, en;q=0.001", Some("en")),
            ("de;q=x", None),
            ("", None),
        ];
        for (value, expected) in rows {
            let headers =
                HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(value))]);
            assert_eq!(preferred_language(&headers, &list), expected, "{value}");
        }
        assert_eq!(preferred_language(&HeaderMap::new(), &list), None);
    }

    #[test]
    fn a_listed_type_must_be_named() {
        let list = listed(&["image/avif", "image/webp"]);
        let rows = [
            ("image/avif,image/webp,*/*;q=0.8", Some("image/avif")),
            ("image/webp, image/avif", Some("image/avif")),
            ("image/avif;q=0.5, Image/WebP;v=1;q=0.6", Some("image/webp")),
            ("image/*, */*", None),
            ("image/avif;q=0", None),
        ];
        for (value, expected) in rows {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]);
            assert_eq!(preferred_type(&headers, &list), expected, "{value}");
        }
    }
}
