//! White space around the commas of a list, which means nothing.
//!
//! RFC 9110 section 5.3 lets whoever stands between a client and an origin combine the lines of a
//! field with a comma and as much white space as it likes, and section 5.6.1 has recipients take
//! lists with and without it. So an origin whose answer depends on it depends on the way that the
//! request took. This holds for fields that are lists; those that are known not to be are left as
//! they are, and so is what stands in quotes or in a comment, and a value in which one of these is
//! never closed.

use std::borrow::Cow;

use smallvec::SmallVec;

/// Fields whose values are no lists but may hold commas.
const NO_LISTS: [&str; 14] = [
    "authorization",
    "content-disposition",
    "content-type",
    "cookie",
    "cookie2",
    "date",
    "from",
    "host",
    "if-modified-since",
    "if-unmodified-since",
    "last-event-id",
    "origin",
    "referer",
    "user-agent",
];

/// The value without white space around commas that divide it. Borrowed when there is none.
pub(crate) fn tightened<'a>(name: &str, value: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
    if !has_loose_commas(&value) || NO_LISTS.contains(&name) {
        return value;
    }
    match tighten(&value) {
        Some(tight) if tight[..] != *value => Cow::Owned(tight.into_vec()),
        _ => value,
    }
}

/// Most values have none, and this is all that they cost.
fn has_loose_commas(value: &[u8]) -> bool {
    value.windows(2).any(|pair| match pair {
        [b',', next] => is_space(*next),
        [before, b','] => is_space(*before),
        _ => false,
    })
}

/// Nothing if a quote or a comment is never closed.
fn tighten(value: &[u8]) -> Option<SmallVec<[u8; 128]>> {
    let mut tight: SmallVec<[u8; 128]> = SmallVec::new();
    let (mut quoted, mut comments) = (false, 0usize);
    let mut rest = value.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b',' if !quoted && comments == 0 => {
                while tight.last().is_some_and(|last| is_space(*last)) {
                    tight.pop();
                }
            }
            b' ' | b'\t' if !quoted && comments == 0 && tight.last() == Some(&b',') => continue,
            b'"' if comments == 0 => quoted = !quoted,
            b'(' if !quoted => comments += 1,
            b')' if !quoted => comments = comments.checked_sub(1)?,
            _ => {}
        }
        tight.push(byte);
        if byte == b'\\' && (quoted || comments > 0) {
            tight.push(rest.next()?);
        }
    }
    (!quoted && comments == 0).then_some(tight)
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tight(name: &str, value: &str) -> String {
        let tight = tightened(name, Cow::Borrowed(value.as_bytes()));
        String::from_utf8(tight.into_owned()).unwrap()
    }

    #[test]
    fn white_space_around_the_commas_of_a_list_means_nothing() {
        // RFC 9110 sections 5.3 and 5.6.1.
        for (value, expected) in [
            ("1,2", "1,2"),
            ("1, 2", "1,2"),
            ("1 ,\t2  , 3", "1,2,3"),
            ("a b, c  d", "a b,c  d"),
            ("1,, 2", "1,,2"),
            ("1;a=\"x, y\", 2", "1;a=\"x, y\",2"),
            ("a=\"\\\", \", b", "a=\"\\\", \",b"),
            ("a (b, c (d, e)), f", "a (b, c (d, e)),f"),
            ("\"(\", a", "\"(\",a"),
            ("(\"), a", "(\"),a"),
        ] {
            assert_eq!(tight("foo", value), expected, "{value}");
        }
    }

    #[test]
    fn what_is_no_list_or_never_closed_stays_as_it_is() {
        for value in ["\"a, b", "a (b, c", "a), b", "\"a\\", "a, \"b\\\", c"] {
            assert_eq!(tight("foo", value), value);
        }
        for name in NO_LISTS {
            assert_eq!(tight(name, "a, b"), "a, b", "{name}");
        }
    }

    proptest! {
        #[test]
        fn nothing_but_white_space_goes_and_only_once(value in "[a ,\t\"()\\\\]{0,40}") {
            let once = tight("foo", &value);
            prop_assert_eq!(tight("foo", &once), once.clone());
            let bare = |text: &str| text.replace([' ', '\t'], "");
            prop_assert_eq!(bare(&once), bare(&value));
        }
    }
}
