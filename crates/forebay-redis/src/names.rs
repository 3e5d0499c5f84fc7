//! What an entry is called in Redis, and all that belongs to it.
//!
//! | name | what stands there |
//! |---|---|
//! | `NS:d:{PRIMARY}VARIANT` | the entry: its bytes are in [`envelope`](crate::envelope) |
//! | `NS:l:{PRIMARY}` | the rights to load it and its variants, and to fill them: a hash |
//! | `NS:w:{PRIMARY}` | the instances that wait for one of these loads: a set |
//! | `NS:v:{PRIMARY}` | the oldest of its versions that may be stored, where it has versions |
//! | `NS:i:INSTANCE` | the channel by which an instance is woken |
//!
//! All names of one primary key lie in one slot of a Cluster: only what stands between the braces
//! decides. Parts are joined by `|`; what is not plain is written as `%` and two hex digits, so
//! that no two keys share a name. A key whose name would be long is called by its digest, behind a
//! `#`. The value carries the whole key, and is compared with it: a name that means two keys costs
//! a miss and no more.
//!
//! What belongs to no single key lies in one slot of its own: see `shared_name`.

use std::fmt::Write as _;

use forebay_core::{Key, KeyBuf, KeyRef};
use ring::digest::{SHA256, digest};
use smallvec::SmallVec;

/// Names of keys up to this length can be read; longer ones are digests.
const PLAIN_MAX: usize = 160;

/// What stands between a namespace and a key: of an entry's bytes, of the rights to load it, and
/// of those who wait.
const ENTRY: &str = ":d:";
const LEASES: &str = ":l:";
const WAITERS: &str = ":w:";
const FLOOR: &str = ":v:";

/// As many parts as nearly all keys have: then they are found without an allocation.
const PARTS_TYPICAL: usize = 8;

/// How many bytes the number of a generation has.
const GENERATION_LEN: usize = 8;

/// How many bytes of a digest tell the fields of one hash apart.
const FIELD_LEN: usize = 16;

/// What one entry is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Names {
    /// Where its bytes stand.
    pub(crate) entry: Box<str>,
    /// Where the rights to load it and its variants stand.
    pub(crate) leases: Box<str>,
    /// Where those stand who wait.
    pub(crate) waiters: Box<str>,
}

impl Names {
    pub(crate) fn of(namespace: &str, key: KeyRef<'_>) -> Self {
        let parts: SmallVec<[&[u8]; PARTS_TYPICAL]> = key.parts().collect();
        let (primary, _) = parts.split_at(primary_len(&parts));
        let mut slot = String::new();
        push_slot(&mut slot, primary, key);
        Self {
            entry: entry_name(namespace, key).into(),
            leases: [namespace, LEASES, &slot].concat().into(),
            waiters: [namespace, WAITERS, &slot].concat().into(),
        }
    }
}

/// Where the oldest of its versions stands that may be stored.
pub(crate) fn floor_name(namespace: &str, key: KeyRef<'_>) -> String {
    let parts: SmallVec<[&[u8]; PARTS_TYPICAL]> = key.parts().collect();
    let (primary, _) = parts.split_at(primary_len(&parts));
    let mut name = [namespace, FLOOR].concat();
    push_slot(&mut name, primary, key);
    name
}

/// What belongs to no single key: the bus itself, `NS:{bus}`, and behind it with a letter each the
/// generations of all, sites and tags, the rules of prefixes and the instances. All lie in one slot.
pub(crate) fn shared_name(namespace: &str, kind: &str, what: &[u8]) -> String {
    let mut name = format!("{namespace}:{{bus}}");
    if kind.is_empty() {
        return name;
    }
    name.push(':');
    name.push_str(kind);
    if what.is_empty() {
        return name;
    }
    name.push(':');
    let start = name.len();
    push_escaped_all(&mut name, what);
    if name.len() - start > PLAIN_MAX {
        name.truncate(start);
        name.push('#');
        name.push_str(&hex_digest(what));
    }
    name
}

/// Under which field of the hash of leases a load stands: no field for the primary key itself, a
/// digest for what else is boarded.
pub(crate) fn lease_field(primary: KeyRef<'_>, boarded: KeyRef<'_>) -> Vec<u8> {
    if primary == boarded { Vec::new() } else { variant_field(boarded) }
}

/// The same for what is certainly not the primary key.
pub(crate) fn variant_field(boarded: KeyRef<'_>) -> Vec<u8> {
    field(b'v', boarded)
}

/// The same for an entry that is written without a lease: a kind of its own, so that it takes
/// nobody's lease away.
pub(crate) fn claim_field(entry: KeyRef<'_>, version: Option<u64>) -> Vec<u8> {
    let mut field = field(b'c', entry);
    // Whoever claims last has the right, but an older version must not take it from a newer one.
    field.extend(version.into_iter().flat_map(u64::to_be_bytes));
    field
}

fn field(kind: u8, key: KeyRef<'_>) -> Vec<u8> {
    let digest = digest(&SHA256, key.bytes());
    let mut field = vec![kind];
    field.extend_from_slice(&digest.as_ref()[..FIELD_LEN]);
    field
}

/// Where the bytes of an entry stand: all that a reader has to know.
pub(crate) fn entry_name(namespace: &str, key: KeyRef<'_>) -> String {
    let parts: SmallVec<[&[u8]; PARTS_TYPICAL]> = key.parts().collect();
    let (primary, variant) = parts.split_at(primary_len(&parts));
    let before = namespace.len() + ENTRY.len();
    let mut name = String::with_capacity(before + PLAIN_MAX);
    name.push_str(namespace);
    name.push_str(ENTRY);
    push_slot(&mut name, primary, key);
    let slot_end = name.len();
    push_parts(&mut name, variant);
    if name.len() - before > PLAIN_MAX && !variant.is_empty() {
        name.truncate(slot_end);
        name.push('#');
        name.push_str(&hex_digest(key.bytes()));
    }
    name
}

/// What the names of all entries begin with.
pub(crate) fn entry_prefix(namespace: &str) -> String {
    [namespace, ENTRY].concat()
}

/// What stands between the braces of an entry's name.
pub(crate) fn plain_primary(name: &str) -> Option<&str> {
    name.split_once('{')?.1.split_once('}').map(|(primary, _)| primary)
}

/// The primary key of an entry.
pub(crate) fn primary_of(key: KeyRef<'_>) -> Key {
    let parts: SmallVec<[&[u8]; PARTS_TYPICAL]> = key.parts().collect();
    let mut primary = KeyBuf::default();
    for part in &parts[..primary_len(&parts)] {
        primary.part(part);
    }
    primary.borrowed().to_key()
}

/// The key whose entry has this plain name, behind the namespace and within the braces. Nothing if
/// it is not as [`entry_name`] would write it.
pub(crate) fn key_of_plain(plain: &str) -> Option<Key> {
    let mut key = KeyBuf::default();
    let mut rest = plain;
    while let Some((part, behind)) = rest.split_once('|') {
        key.part(&unescaped(part)?);
        rest = behind;
    }
    let key = key.borrowed().to_key();
    let mut again = String::new();
    let parts: Vec<&[u8]> = key.borrowed().parts().collect();
    push_parts(&mut again, &parts);
    (rest.is_empty() && again == plain && !parts.is_empty()).then_some(key)
}

fn unescaped(part: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (high, low) = (char::from(rest.next()?), char::from(rest.next()?));
        let value = high.to_digit(16)? * 16 + low.to_digit(16)?;
        bytes.push(u8::try_from(value).ok()?);
    }
    Some(bytes)
}

/// What decides on the slot, in braces.
fn push_slot(out: &mut String, primary: &[&[u8]], key: KeyRef<'_>) {
    let start = out.len();
    out.push('{');
    push_parts(out, primary);
    out.push('}');
    if out.len() - start <= PLAIN_MAX {
        return;
    }
    out.truncate(start);
    let length: usize = primary.iter().map(|part| part.len() + size_of::<u32>()).sum();
    let bytes = &key.bytes()[..length.min(key.bytes().len())];
    out.push_str("{#");
    out.push_str(&hex_digest(bytes));
    out.push('}');
}

/// How many of the parts are the primary key. A variant's key goes on with the number of a
/// generation and then with fields, each a name and a mark with a value (`forebay_core::key`).
/// A key that only looks like one is put into another slot, and nothing else comes of it.
fn primary_len(parts: &[&[u8]]) -> usize {
    let is_marked = |value: &&[u8]| matches!(value.first(), Some(0 | 1));
    let is_name = |name: &&[u8]| !name.is_empty() && !name.iter().any(|byte| b"/|".contains(byte));
    let begins_variant = |at: usize| {
        let fields = &parts[at + 1..];
        parts[at].len() == GENERATION_LEN
            && !fields.is_empty()
            && fields.len().is_multiple_of(2)
            && fields.iter().step_by(2).all(is_name)
            && fields.iter().skip(1).step_by(2).all(is_marked)
    };
    (1..parts.len()).find(|at| begins_variant(*at)).unwrap_or(parts.len())
}

fn push_parts(out: &mut String, parts: &[&[u8]]) {
    for part in parts {
        push_escaped_all(out, part);
        // Behind every part, or one empty part would be none.
        out.push('|');
    }
}

fn push_escaped_all(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'|' | b'{' | b'}' | b'%' | b'#' => push_escaped(out, *byte),
            b'!'..=b'~' => out.push(char::from(*byte)),
            other => push_escaped(out, *other),
        }
    }
}

fn push_escaped(out: &mut String, byte: u8) {
    write!(out, "%{byte:02x}").expect("a string takes all that is written to it");
}

fn hex_digest(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
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
        assert_eq!(&*names.leases, "forebay:l:{shop|http|shop.example|/a%20b?x=%7b1%7d|}");
        assert_eq!(&*names.waiters, "forebay:w:{shop|http|shop.example|/a%20b?x=%7b1%7d|}");
        let floor = floor_name("forebay", primary("/a b?x={1}").borrowed());
        assert_eq!(floor, "forebay:v:{shop|http|shop.example|/a%20b?x=%7b1%7d|}");
    }

    #[test]
    fn a_variant_lies_in_the_slot_of_its_primary_key() {
        // The last two targets have as many bytes as the number of a generation.
        let near_the_end = "/".repeat(PLAIN_MAX - 30);
        for target in ["/", "/items/7", &"x".repeat(8), &near_the_end, &"long/".repeat(80)] {
            let key = primary(target);
            let own = Names::of("n", key.borrowed());
            for value in [None, Some(&b""[..]), Some(b"text/html")] {
                let names = Names::of("n", variant(&key, value).borrowed());
                assert_eq!(slot(&names.entry), slot(&own.entry), "{target}");
                assert_eq!(slot(&names.leases), slot(&own.entry), "{target}");
                assert_ne!(names.entry, own.entry);
                assert_eq!(primary_of(variant(&key, value).borrowed()), key.borrowed().to_key());
                assert_eq!(plain_primary(&names.entry), Some(slot(&own.entry)));
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
            assert!(name.len() < 240, "{name}");
            assert!(names.insert(name));
        }
        let key = primary("/");
        assert!(names.insert(Names::of("n", variant(&key, None).borrowed()).entry));
        assert!(names.insert(Names::of("n", variant(&key, Some(b"")).borrowed()).entry));
    }

    #[test]
    fn a_host_as_long_as_a_generation_does_not_make_a_variant_of_a_key() {
        let mut key = KeyBuf::new("shop");
        key.part(b"http").part(b"shop.com").part(b"/a");
        let own = Names::of("n", key.borrowed());
        // The first byte of this generation is what marks an absent field.
        let field = std::iter::once(("accept", None));
        let variant = key::variant(key.borrowed(), 0x0102_0304_0506_0700, field);
        assert_eq!(slot(&Names::of("n", variant.borrowed()).entry), slot(&own.entry));
    }

    #[test]
    fn a_plain_name_leads_back_to_its_key() {
        let key = primary("/a b?x={1}|é%");
        let name = Names::of("n", key.borrowed()).entry;
        assert_eq!(key_of_plain(slot(&name)), Some(key.borrowed().to_key()));
        for wrong in ["", "a", "a|b", "a%2|", "a%zz|", "a%41|", "%7C|"] {
            assert_eq!(key_of_plain(wrong), None, "{wrong}");
        }
    }
}
