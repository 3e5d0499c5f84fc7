//! Normalisation of white space around the commas of list fields.
//!
//! RFC 9110 section 5.3 permits every intermediary to combine the lines of a field with a comma and
//! white space, and section 5.6.1 requires recipients to accept lists with and without it. Hence no
//! origin can depend on it. Fields that are not lists are left unchanged, and so are quoted
//! strings, comments, and values in which one of these is not closed.

use std::borrow::Cow;

use smallvec::SmallVec;

/// Fields that are not lists although their values may contain commas.
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

/// Returns the value without white space around the commas of a list, borrowed if there is none.
pub(crate) fn without_list_space<'a>(name: &str, value: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
    if !has_loose_commas(&value) || NO_LISTS.contains(&name) {
        return value;
    }
    match tighten(&value) {
        Some(tight) if tight[..] != *value => Cow::Owned(tight.into_vec()),
        _ => value,
    }
}

/// Returns true if white space touches a comma. Most values need no more than this check.
fn has_loose_commas(value: &[u8]) -> bool {
    value.windows(2).any(|pair| match pair {
        [b',', next] => is_space(*next),
        [before, b','] => is_space(*before),
        _ => false,
    })
}

/// Removes the white space; `None` if a quoted string or a comment is not closed.
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
        let tight = without_list_space(name, Cow::Borrowed(value.as_bytes()));
        String::from_utf8(tight.into_owned()).unwrap()
    }

    #[test]
    fn white_space_around_list_commas_is_removed() {
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
    fn non_lists_and_unclosed_values_are_unchanged() {
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
