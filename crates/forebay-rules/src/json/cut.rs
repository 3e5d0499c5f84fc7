//! Copy of a JSON text without the values that rules remove.

use std::borrow::Cow;

use super::scanner::{DEPTH_MAX, Scanner};
use super::{JsonCut, Malformed, Step};

/// Pointers that can still match below a value, as their remaining steps.
#[derive(Clone, Debug)]
struct Below<'p> {
    remove: Vec<&'p [Step]>,
    /// `None` if everything is kept.
    keep: Option<Vec<&'p [Step]>>,
}

/// Returns the text without the values that the cuts remove. Of several cuts, each applies.
///
/// # Errors
/// If the text is no JSON.
pub fn cut(text: &[u8], cuts: &[&JsonCut]) -> Result<Vec<u8>, Malformed> {
    // The text is copied by cuts only: with one, body and copy are all there is in memory.
    let mut out = Cow::Borrowed(text);
    for cut in cuts {
        let keep = (!cut.keep.is_empty()).then(|| cut.keep.iter().map(|p| &*p.0).collect());
        let below = Below { remove: cut.remove.iter().map(|p| &*p.0).collect(), keep };
        let mut scanner = Scanner::new(&out)?;
        scanner.peek();
        let mut copy = Vec::with_capacity(out.len());
        copy.extend_from_slice(&out[..scanner.at]);
        value(&mut scanner, &below, &mut copy, 0)?;
        let end = scanner.at;
        scanner.end()?;
        copy.extend_from_slice(&out[end..]);
        out = Cow::Owned(copy);
    }
    Ok(out.into_owned())
}

/// Copies one value, which begins at the position of the scanner.
fn value(
    scanner: &mut Scanner<'_>,
    below: &Below<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Malformed> {
    if depth > DEPTH_MAX {
        return Err(Malformed);
    }
    let start = scanner.at;
    let close = match scanner.peek() {
        Some(b'{') if below.is_open() => b'}',
        Some(b'[') if below.is_open() => b']',
        _ => {
            scanner.skip(depth)?;
            out.extend_from_slice(&scanner.text[start..scanner.at]);
            return Ok(());
        }
    };
    let open = scanner.at;
    scanner.at += 1;
    out.push(scanner.text[open]);
    let mut members = Members { close, below, out, depth, number: 0, is_first: true };
    // The span of a member reaches from the separator before it to the one behind it.
    let mut begin = scanner.at;
    scanner.members(close, |scanner| {
        members.copy(scanner, begin)?;
        begin = scanner.at + 1;
        Ok(())
    })?;
    if members.number == 0 {
        // White space of an empty container.
        members.out.extend_from_slice(&scanner.text[open + 1..scanner.at - 1]);
    }
    out.push(close);
    Ok(())
}

/// Members or elements of a container, as they are copied.
struct Members<'o, 'p> {
    close: u8,
    below: &'o Below<'p>,
    out: &'o mut Vec<u8>,
    depth: usize,
    /// Number of members so far.
    number: usize,
    is_first: bool,
}

impl Members<'_, '_> {
    /// Copies the member at the position of the scanner, with the white space since `begin` and up to
    /// the next separator.
    fn copy(&mut self, scanner: &mut Scanner<'_>, begin: usize) -> Result<(), Malformed> {
        let name = match self.close {
            b'}' => {
                let name = scanner.string()?;
                scanner.expect(b':')?;
                name
            }
            _ => self.number.to_string().into(),
        };
        self.number += 1;
        scanner.peek();
        let is_container = matches!(scanner.peek(), Some(b'{' | b'['));
        match self.below.step(&name, is_container) {
            None => scanner.skip(self.depth + 1)?,
            Some(below) => {
                if !std::mem::take(&mut self.is_first) {
                    self.out.push(b',');
                }
                self.out.extend_from_slice(&scanner.text[begin..scanner.at]);
                value(scanner, &below, self.out, self.depth + 1)?;
                let end = scanner.at;
                scanner.peek();
                self.out.extend_from_slice(&scanner.text[end..scanner.at]);
            }
        }
        scanner.peek();
        Ok(())
    }
}

impl<'p> Below<'p> {
    /// Returns true if a value below can be removed.
    fn is_open(&self) -> bool {
        !self.remove.is_empty() || self.keep.is_some()
    }

    /// Returns the pointers below a member; `None` if it is removed.
    fn step(&self, name: &str, is_container: bool) -> Option<Self> {
        let advance = |all: &[&'p [Step]]| -> Vec<&'p [Step]> {
            let next = all.iter().filter_map(|steps| steps.split_first());
            next.filter(|(step, _)| step.is(name)).map(|(_, rest)| rest).collect()
        };
        let remove = advance(&self.remove);
        if remove.iter().any(|rest| rest.is_empty()) {
            return None;
        }
        let keep = match &self.keep {
            None => None,
            Some(keep) => {
                let keep = advance(keep);
                match keep.iter().any(|rest| rest.is_empty()) {
                    true => None,
                    // Only a container can have the value below it.
                    false if keep.is_empty() || !is_container => return None,
                    false => Some(keep),
                }
            }
        };
        Some(Self { remove, keep })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{OnError, Pointer};
    use super::*;

    fn rule(remove: &[&str], keep: &[&str]) -> JsonCut {
        let all = |texts: &[&str]| texts.iter().map(|t| Pointer::parse(t).unwrap()).collect();
        JsonCut { remove: all(remove), keep: all(keep), max: 1 << 20, on_error: OnError::Fail }
    }

    fn of(text: &str, remove: &[&str], keep: &[&str]) -> String {
        String::from_utf8(cut(text.as_bytes(), &[&rule(remove, keep)]).unwrap()).unwrap()
    }

    #[test]
    fn removed_values_are_cut_and_the_rest_stays() {
        let rows: [(&str, &[&str], &[&str], &str); 14] = [
            (r#" { "a" : 1 , "b":2 } "#, &["/b"], &[], r#" { "a" : 1 } "#),
            (r#"{"a":1,"b":2}"#, &["/a"], &[], r#"{"b":2}"#),
            (r#"{"a":1}"#, &["/a"], &[], "{}"),
            (r#"[{"a":1,"b":[1, 2]},{"a":2}]"#, &["/*/a"], &[], r#"[{"b":[1, 2]},{}]"#),
            (r#"[1, 2, 3]"#, &["/1"], &[], "[1, 3]"),
            (r#"{"\u0061":1,"b":1.0e2}"#, &["/a"], &[], r#"{"b":1.0e2}"#),
            (r#"{"a":1,"a":2,"b":3}"#, &["/a"], &[], r#"{"b":3}"#),
            (r#"{"a/b":1,"c~":2,"d":3}"#, &["/a~1b", "/c~0"], &[], r#"{"d":3}"#),
            (r#"{"a":{"x":1,"y":2},"b":3}"#, &[], &["/a/x"], r#"{"a":{"x":1}}"#),
            (r#"[{"a":1,"b":2},5]"#, &[], &["/*/a"], r#"[{"a":1}]"#),
            (r#"{"a":{"x":1,"y":2}}"#, &["/a/x"], &["/a"], r#"{"a":{"y":2}}"#),
            (r#"{"a":[ ],"b":{ }}"#, &["/c"], &[], r#"{"a":[ ],"b":{ }}"#),
            ("5", &["/a"], &["/b"], "5"),
            ("{ }", &["/a"], &[], "{ }"),
        ];
        for (text, remove, keep, expected) in rows {
            assert_eq!(of(text, remove, keep), expected, "{text} {remove:?} {keep:?}");
        }
        for text in ["", "{\"a\":}", "[1", "{\"b\":1} x"] {
            assert_eq!(cut(text.as_bytes(), &[&rule(&["/a"], &[])]), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn pointers_begin_with_a_slash() {
        assert!(Pointer::parse("a").is_err() && Pointer::parse("").is_err());
        assert_eq!(Pointer::parse("/a~1b/*").unwrap().to_string(), "/a~1b/*");
    }

    /// JSON text of random values, with names from a small set and white space.
    fn json() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec!["1", "-2.5e3", "\"x\"", "null", "true", "\"a,}b\""]);
        leaf.prop_map(str::to_owned).prop_recursive(4, 32, 5, |inner| {
            let name = prop::sample::select(vec!["a", "b", "\\u0061", "c"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|all| format!("[{}]", all.join(" , "))),
                prop::collection::vec((name, inner), 0..4).prop_map(|all| {
                    let members = all.iter().map(|(name, value)| format!(" \"{name}\": {value}"));
                    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::tests::cases()))]

        #[test]
        fn a_cut_text_is_json_without_the_removed_values(text in json()) {
            let pointers = ["/a", "/*/b", "/c/a"];
            let rule = rule(&pointers, &[]);
            let after = cut(text.as_bytes(), &[&rule]).unwrap();
            let again = cut(&after, &[&rule]).unwrap();
            prop_assert_eq!(&after, &again, "nothing is left to cut");
            // The kept bytes are a subsequence of the text.
            let mut rest = text.as_bytes().iter();
            prop_assert!(after.iter().all(|byte| rest.any(|other| other == byte)));
            let mut scanner = Scanner::new(&after).unwrap();
            scanner.skip(0).unwrap();
            scanner.end().unwrap();
            let nothing = cut(text.as_bytes(), &[&self::rule(&["/zzz"], &[])]).unwrap();
            prop_assert_eq!(nothing, text.into_bytes());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = cut(&bytes, &[&rule(&["/a"], &["/*/b"])]);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{}:,\"a\\\\u0-9 ]{0,40}") {
            let _ = cut(text.as_bytes(), &[&rule(&["/a"], &["/*"])]);
        }
    }
}
