//! The two readings of a path.
//!
//! Servers disagree about `%2e`, `\`, `;x`, `//` and dot segments. A rule that reads a path in one
//! way while the origin reads it in another could let a private page be stored. A path with such
//! text therefore has a second reading, and a rule that widens caching applies only if both match.

use std::borrow::Cow;

/// Returns the second reading of a path: decoded once, `\` as `/`, `;…` of each segment cut, empty
/// segments merged, dot segments resolved. `None` if the path has only one reading.
#[must_use]
pub fn second_reading(path: &str) -> Option<Cow<'_, str>> {
    let bytes = path.as_bytes();
    if !is_suspicious(bytes) {
        return None;
    }
    let read = normalised(bytes);
    (read.as_bytes() != bytes).then_some(Cow::Owned(read))
}

/// Returns true if a path contains `%`, `\`, `;`, `//` or `/.`. Without an early end, the compiler
/// compares many bytes at once.
fn is_suspicious(path: &[u8]) -> bool {
    let has = path.iter().fold(false, |has, byte| has | matches!(byte, b'%' | b'\\' | b';'));
    let pairs = path.iter().zip(path.iter().skip(1));
    pairs.fold(has, |has, (byte, next)| has | ((*byte == b'/') & matches!(next, b'/' | b'.')))
}

/// Returns the path of the second reading, also if it is equal to the first.
pub(crate) fn normalised(path: &[u8]) -> String {
    let decoded = decoded(path);
    let ends_in_folder = decoded.last() == Some(&b'/');
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut is_folder = ends_in_folder;
    for segment in decoded.split(|byte| *byte == b'/') {
        let end = segment.iter().position(|byte| *byte == b';').unwrap_or(segment.len());
        match &segment[..end] {
            b"" => {}
            b"." => is_folder = true,
            b".." => {
                segments.pop();
                is_folder = true;
            }
            name => {
                segments.push(name);
                is_folder = ends_in_folder;
            }
        }
    }
    let mut path = Vec::with_capacity(decoded.len() + 1);
    for segment in &segments {
        path.push(b'/');
        path.extend_from_slice(segment);
    }
    if is_folder || path.is_empty() {
        path.push(b'/');
    }
    // Conditions read text; a byte that is not UTF-8 equals no character of a pattern.
    String::from_utf8_lossy(&path).into_owned()
}

/// Decodes `%XX` once, and replaces backslashes.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(byte) = path.get(at) {
        let code = path.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(hex);
        let byte = code.unwrap_or(*byte);
        decoded.push(if byte == b'\\' { b'/' } else { byte });
        at += if code.is_some() { 3 } else { 1 };
    }
    decoded
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match digits {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ambiguous_paths_have_a_second_reading() {
        let rows = [
            ("/a/b", None),
            ("/", None),
            ("/a.css", None),
            ("/.well-known/x", None),
            ("/a%20b", Some("/a b")),
            ("/account%2fx.css", Some("/account/x.css")),
            ("/account/..%2fx", Some("/x")),
            ("/a/../b", Some("/b")),
            ("/a/./b", Some("/a/b")),
            ("/a//b", Some("/a/b")),
            ("/a/b/..", Some("/a/")),
            ("/a;x=1/b;y", Some("/a/b")),
            (r"/a\b", Some("/a/b")),
            ("/%2e%2e/%2e%2e/a", Some("/a")),
            ("/%252e", Some("/%2e")),
            ("/%zz", None),
            ("//", Some("/")),
            ("/..", Some("/")),
            ("/account;.css", Some("/account")),
            ("/account/;.css", Some("/account")),
        ];
        for (path, expected) in rows {
            assert_eq!(second_reading(path).as_deref(), expected, "{path}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::tests::cases()))]

        #[test]
        fn the_second_reading_of_any_path_is_resolved(path in "[/.;%\\\\a-f0-9]{0,40}") {
            let read = normalised(path.as_bytes());
            prop_assert!(read.starts_with('/') && !read.contains("//"), "{}", read);
            prop_assert!(!read.contains(['\\', ';']), "{}", read);
            prop_assert!(!read.split('/').any(|segment| matches!(segment, "." | "..")), "{}", read);
            if second_reading(&path).is_none() && path.starts_with('/') {
                prop_assert_eq!(read, path);
            }
        }

        #[test]
        fn no_bytes_make_the_second_reading_panic(path in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = normalised(&path);
        }
    }
}
