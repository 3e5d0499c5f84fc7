//! Request fields that select a variant of a response (RFC 9111 section 4.1).

use std::borrow::Cow;

use forebay_core::Vary;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderName, VARY};
use smallvec::SmallVec;

use crate::fields::{FieldLines, tokens};
use crate::variants::preferences::normalized;
use crate::variants::spacing::without_list_space;

/// Maximum number of fields in `Vary`; one with more counts as `*`. Hardly two requests would share
/// its response, and each lookup would pay for all fields.
pub const SELECTING_FIELDS_MAX: usize = 32;

/// Parsed `Vary` of a response (RFC 9110 section 12.5.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selects {
    /// No request field selects a variant; there is only one.
    Nothing,
    /// These request fields select a variant.
    By(Vary),
    /// `*` or a malformed `Vary`: the response matches no other request.
    Everything,
}

/// Parses all `Vary` lines of a response.
///
/// RFC 9111 section 4.1: a member `*` matches no request. A member that is not a field name, and
/// more than [`SELECTING_FIELDS_MAX`] members, count as `*`.
#[must_use]
pub fn selects(headers: &impl FieldLines) -> Selects {
    let mut names: SmallVec<[&str; 8]> = SmallVec::new();
    for token in tokens(headers, &VARY) {
        // `*` would pass as a field name.
        let is_name = token != b"*" && HeaderName::from_bytes(token).is_ok();
        match std::str::from_utf8(token) {
            Ok(name) if is_name && names.len() < SELECTING_FIELDS_MAX => names.push(name),
            _ => return Selects::Everything,
        }
    }
    Vary::new(names).map_or(Selects::Nothing, Selects::By)
}

/// Parses the `Vary` of a response, and adds `Accept-Encoding` if the response has a content
/// coding other than `identity`. RFC 9110 section 12.5.3: a coding is for clients that accept it.
/// Many servers compress without `Vary`, and then nothing else keeps a compressed body from a
/// client that cannot decode it.
#[must_use]
pub fn selects_with_coding(headers: &impl FieldLines) -> Selects {
    match selects(headers) {
        Selects::Everything => Selects::Everything,
        said if !is_encoded(headers) => said,
        Selects::Nothing => {
            Vary::new([ACCEPT_ENCODING.as_str()]).map_or(Selects::Nothing, Selects::By)
        }
        Selects::By(vary) => {
            let names = vary.names().chain([ACCEPT_ENCODING.as_str()]);
            Vary::new(names).map_or(Selects::Nothing, Selects::By)
        }
    }
}

/// Parses the `Vary` of a response whose origin gets the same `Accept-Encoding` in every request, so
/// that this field selects nothing.
#[must_use]
pub fn selects_without_coding(headers: &impl FieldLines) -> Selects {
    match selects(headers) {
        Selects::By(vary) => {
            let names = vary.names().filter(|name| *name != ACCEPT_ENCODING.as_str());
            Vary::new(names).map_or(Selects::Nothing, Selects::By)
        }
        other => other,
    }
}

/// Returns true if a response has a content coding other than `identity`.
#[must_use]
pub fn is_encoded(headers: &impl FieldLines) -> bool {
    tokens(headers, &CONTENT_ENCODING).any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

/// Returns the value of a selecting field in a request, in a form that is compared byte by byte;
/// `None` if the field is absent.
///
/// RFC 9111 section 4.1 permits combining the lines of a field and removing white space before the
/// comparison; an absent field matches only an absent one. The preferences in `Accept-Encoding` and
/// `Accept-Language` are normalised. In all other list fields white space around commas is removed.
///
/// Borrowed if there is one line that needs no change.
#[must_use]
pub fn selecting_value<'a>(headers: &'a impl FieldLines, name: &str) -> Option<Cow<'a, [u8]>> {
    combined(headers, name).map(|value| match name {
        "accept-encoding" | "accept-language" => normalized(name, value),
        _ => without_list_space(name, value),
    })
}

fn combined<'a>(headers: &'a impl FieldLines, name: &str) -> Option<Cow<'a, [u8]>> {
    let mut lines = headers.lines_named(name).map(<[u8]>::trim_ascii);
    let first = lines.next()?;
    let Some(second) = lines.next() else { return Some(Cow::Borrowed(first)) };
    let mut combined = [first, second].join(&b", "[..]);
    for line in lines {
        combined.extend_from_slice(b", ");
        combined.extend_from_slice(line);
    }
    Some(Cow::Owned(combined))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    fn headers(name: &'static str, lines: &[&str]) -> HeaderMap {
        let name = HeaderName::from_static(name);
        lines.iter().map(|line| (name.clone(), HeaderValue::from_str(line).unwrap())).collect()
    }

    fn by(names: &[&str]) -> Selects {
        Selects::By(Vary::new(names.iter().copied()).unwrap())
    }

    #[test]
    fn a_star_anywhere_matches_no_request() {
        let rows: [&[&str]; 9] = [
            &["*"],
            &["*, *"],
            &["*", "*"],
            &[", *"],
            &["", "*"],
            &["*, foo"],
            &["foo, *"],
            &["foo bar"],
            &["foo, \"bar\""],
        ];
        for lines in rows {
            assert_eq!(selects(&headers("vary", lines)), Selects::Everything, "{lines:?}");
        }
    }

    #[test]
    fn names_are_taken_from_all_lines() {
        assert_eq!(selects(&HeaderMap::new()), Selects::Nothing);
        assert_eq!(selects(&headers("vary", &["", " , "])), Selects::Nothing);
        assert_eq!(selects(&headers("vary", &["Foo"])), by(&["foo"]));
        assert_eq!(selects(&headers("vary", &["Foo,BAR ,foo", "baz"])), by(&["bar", "baz", "foo"]));
    }

    #[test]
    fn a_content_coding_selects_by_accept_encoding() {
        let rows: [(&[(&str, &str)], Selects); 8] = [
            (&[], Selects::Nothing),
            (&[("content-encoding", "identity")], Selects::Nothing),
            (&[("content-encoding", "")], Selects::Nothing),
            (&[("content-encoding", "gzip")], by(&["accept-encoding"])),
            (&[("content-encoding", "identity, BR")], by(&["accept-encoding"])),
            (&[("content-encoding", "gzip"), ("vary", "a")], by(&["a", "accept-encoding"])),
            (
                &[("content-encoding", "gzip"), ("vary", "Accept-Encoding")],
                by(&["accept-encoding"]),
            ),
            (&[("content-encoding", "gzip"), ("vary", "*")], Selects::Everything),
        ];
        for (lines, expected) in rows {
            let fields = lines.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            assert_eq!(selects_with_coding(&HeaderMap::from_iter(fields)), expected, "{lines:?}");
        }
    }

    #[test]
    fn an_origin_with_one_accept_encoding_is_not_selected_by_it() {
        let rows: [(&[&str], Selects); 5] = [
            (&[], Selects::Nothing),
            (&["Accept-Encoding"], Selects::Nothing),
            (&["accept, ACCEPT-ENCODING"], by(&["accept"])),
            (&["accept"], by(&["accept"])),
            (&["*"], Selects::Everything),
        ];
        for (lines, expected) in rows {
            assert_eq!(selects_without_coding(&headers("vary", lines)), expected, "{lines:?}");
        }
    }

    #[test]
    fn too_many_names_match_no_request() {
        let names =
            |count: usize| (0..count).map(|n| format!("f{n}")).collect::<Vec<_>>().join(",");
        let enough = headers("vary", &[&names(SELECTING_FIELDS_MAX)]);
        assert!(matches!(selects(&enough), Selects::By(_)));
        let more = headers("vary", &[&names(SELECTING_FIELDS_MAX + 1)]);
        assert_eq!(selects(&more), Selects::Everything);
    }

    #[test]
    fn lines_are_combined_and_outer_white_space_is_removed() {
        let one = headers("accept", &["  a,b\t"]);
        assert!(matches!(selecting_value(&one, "accept"), Some(Cow::Borrowed(b"a,b"))));
        let three = headers("accept", &["a ", " b", "c"]);
        assert_eq!(selecting_value(&three, "accept").as_deref(), Some(&b"a,b,c"[..]));
        // RFC 9111 section 4.1: absent matches absent only.
        assert_eq!(selecting_value(&one, "accept-language"), None);
        let empty = headers("accept", &[""]);
        assert_eq!(selecting_value(&empty, "accept").as_deref(), Some(&b""[..]));
        assert_eq!(selecting_value(&empty, "no name"), None);
    }
}
