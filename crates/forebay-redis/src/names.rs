//! What an entry is called in Redis.
//!
//! | name | what stands there |
//! |---|---|
//! | `NS:d:{PRIMARY}VARIANT` | the entry: its bytes are in [`envelope`](crate::envelope) |
//! | `NS:l:{PRIMARY}VARIANT` | the right to fill it: a token that only its holder knows |
//!
//! All names of one primary key lie in one slot of a Cluster: only what stands between the braces
//! decides. Parts are joined by `|`; what is not plain is written as `%` and two hex digits, so
//! that no two keys share a name. A key whose name would be long is called by its digest, behind a
//! `#`. The value carries the whole key, and is compared with it: a name that means two keys costs
//! a miss and no more.

use std::fmt::Write as _;

use forebay_core::KeyRef;
use ring::digest::{SHA256, digest};
use smallvec::SmallVec;

/// Names of keys up to this length can be read; longer ones are digests.
const PLAIN_MAX: usize = 160;

/// What stands between a namespace and a key: of an entry's bytes, and of the right to fill it.
const ENTRY: &str = ":d:";
const LEASE: &str = ":l:";

/// As many parts as nearly all keys have: then they are found without an allocation.
const PARTS_TYPICAL: usize = 8;

/// How many bytes the number of a generation has.
const GENERATION_LEN: usize = 8;

/// What one entry is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Names {
    /// Where its bytes stand.
    pub(crate) entry: Box<str>,
    /// Where the right to fill it stands.
    pub(crate) lease: Box<str>,
}

impl Names {
    pub(crate) fn of(namespace: &str, key: KeyRef<'_>) -> Self {
        let entry = entry_name(namespace, key);
        let tail = &entry[namespace.len() + ENTRY.len()..];
        let lease = [namespace, LEASE, tail].concat();
        Self { lease: lease.into(), entry: entry.into() }
    }
}

/// Where the bytes of an entry stand: all that a reader has to know.
pub(crate) fn entry_name(namespace: &str, key: KeyRef<'_>) -> String {
    let parts: SmallVec<[&[u8]; PARTS_TYPICAL]> = key.parts().collect();
    let (primary, variant) = parts.split_at(primary_len(&parts));
    let before = namespace.len() + ENTRY.len();
    let mut name = String::with_capacity(before + PLAIN_MAX);
    name.push_str(namespace);
    name.push_str(ENTRY);
    name.push('{');
    push_parts(&mut name, primary);
    name.push('}');
    push_parts(&mut name, variant);
    if name.len() - before <= PLAIN_MAX {
        return name;
    }
    let primary: usize = primary.iter().map(|part| part.len() + size_of::<u32>()).sum();
    let primary = &key.bytes()[..primary.min(key.bytes().len())];
    name.truncate(before);
    name + &format!("{{#{}}}#{}", hex_digest(primary), hex_digest(key.bytes()))
}

/// How many of the parts are the primary key. A variant's key goes on with the number of a
/// generation and then with fields, each a name and a mark with a value (`forebay_core::key`).
/// A key that only looks like one is put into another slot, and nothing else comes of it.
fn primary_len(parts: &[&[u8]]) -> usize {
    let is_marked = |value: &&[u8]| matches!(value.first(), Some(0 | 1));
    let begins_variant = |at: usize| {
        let fields = &parts[at + 1..];
        parts[at].len() == GENERATION_LEN
            && !fields.is_empty()
            && fields.len().is_multiple_of(2)
            && fields.iter().skip(1).step_by(2).all(is_marked)
    };
    (1..parts.len()).find(|at| begins_variant(*at)).unwrap_or(parts.len())
}

fn push_parts(out: &mut String, parts: &[&[u8]]) {
    for part in parts {
        for byte in *part {
            match byte {
                b'|' | b'{' | b'}' | b'%' | b'#' => push_escaped(out, *byte),
                b'!'..=b'~' => out.push(char::from(*byte)),
                other => push_escaped(out, *other),
            }
        }
        // Behind every part, or one empty part would be none.
        out.push('|');
    }
}

fn push_escaped(out: &mut String, byte: u8) {
    write!(out, "%{byte:02x}").expect("a string takes all that is written to it");
}

fn hex_digest(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes all that is written to it");
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::HashSet;

    use forebay_core::{Key, KeyBuf, key};

    use super::*;

    fn primary(target: &str) -> KeyBuf {
        let mut key = KeyBuf::new("shop");
        key.part(b"http").part(b"shop.example").part(target.as_bytes());
        key
    }

    fn variant(primary: &KeyBuf, value: Option<&'static [u8]>) -> Key {
        let field = std::iter::once(("accept", value.map(Cow::Borrowed)));
        key::variant(primary.borrowed(), 0x0102_0304_0506_0708, field).borrowed().to_key()
    }

    fn slot(name: &str) -> &str {
        name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).unwrap().0
    }

    #[test]
    fn a_name_can_be_read() {
        let names = Names::of("forebay", primary("/a b?x={1}").borrowed());
        assert_eq!(&*names.entry, "forebay:d:{shop|http|shop.example|/a%20b?x=%7b1%7d|}");
        assert_eq!(&*names.lease, "forebay:l:{shop|http|shop.example|/a%20b?x=%7b1%7d|}");
    }

    #[test]
    fn a_variant_lies_in_the_slot_of_its_primary_key() {
        // The last two targets have as many bytes as the number of a generation.
        for target in ["/", "/items/7", &"x".repeat(8), &"long/".repeat(80)] {
            let key = primary(target);
            let own = Names::of("n", key.borrowed());
            for value in [None, Some(&b""[..]), Some(b"text/html")] {
                let names = Names::of("n", variant(&key, value).borrowed());
                assert_eq!(slot(&names.entry), slot(&own.entry), "{target}");
                assert_eq!(slot(&names.lease), slot(&own.entry), "{target}");
                assert_ne!(names.entry, own.entry);
            }
        }
    }

    #[test]
    fn two_keys_never_have_one_name() {
        let mut names = HashSet::new();
        let parts: &[&[&[u8]]] = &[
            &[],
            &[b""],
            &[b"", b""],
            &[b"a|b"],
            &[b"a", b"b"],
            &[b"a%7cb"],
            &[b"#"],
            &[b"\0"],
            &[b"%00"],
            &[&[b'x'; 300]],
            &[&[b'x'; 301]],
        ];
        for parts in parts {
            let mut key = KeyBuf::new("n");
            parts.iter().for_each(|part| {
                key.part(part);
            });
            let name = Names::of("n", key.borrowed()).entry;
            assert!(name.len() < 200, "{name}");
            assert!(names.insert(name));
        }
        let key = primary("/");
        assert!(names.insert(Names::of("n", variant(&key, None).borrowed()).entry));
        assert!(names.insert(Names::of("n", variant(&key, Some(b"")).borrowed()).entry));
    }
}
