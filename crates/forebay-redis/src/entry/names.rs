//! Names in Redis.
//!
//! | name | content |
//! |---|---|
//! | `NS:d:{PRIMARY}VARIANT` | an entry in its [`envelope`](crate::entry::envelope) |
//! | `NS:l:{PRIMARY}` | hash of leases and permissions of the key and its variants |
//! | `NS:w:{PRIMARY}` | set of instances that wait for one of these leases |
//! | `NS:v:{PRIMARY}` | version floor: the oldest version that may be stored |
//! | `NS:b:{BUDGET}` | claims of instances on the budget of an origin |
//! | `NS:i:INSTANCE` | channel for wake-ups of an instance |
//!
//! The braces put all names of one primary key into one slot of a Cluster. Parts are joined by `|`;
//! other characters are escaped as `%` and two hex digits, so that two keys never share a name. A
//! long key is replaced by its digest after a `#`. The value contains the whole key, which is
//! compared on each read, so a name collision would cost a miss only.
//!
//! Names that belong to no single key are in one slot of their own: see `shared_name`.

use std::fmt::Write as _;

use forebay_core::{Key, KeyBuf, KeyRef};
use ring::digest::{SHA256, digest};
use smallvec::SmallVec;

/// Maximum bytes of a readable name; longer ones are replaced by digests.
const PLAIN_MAX: usize = 160;

/// Infixes between namespace and key: entry, leases, waiters and version floor.
const ENTRY: &str = ":d:";
const LEASES: &str = ":l:";
const WAITERS: &str = ":w:";
const FLOOR: &str = ":v:";

/// Typical number of parts of a key, which are collected without an allocation.
const PARTS_TYPICAL: usize = 8;

/// Bytes of a variant's generation number.
const GENERATION_LEN: usize = 8;

/// Bytes of a digest in a field name.
const FIELD_LEN: usize = 16;

/// Names in Redis of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Names {
    /// Name of the value.
    pub(crate) entry: Box<str>,
    /// Name of the hash of leases of the primary key.
    pub(crate) leases: Box<str>,
    /// Name of the set of waiting instances.
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

/// Returns the name of the version floor of a key.
pub(crate) fn floor_name(namespace: &str, key: KeyRef<'_>) -> String {
    let parts: SmallVec<[&[u8]; PARTS_TYPICAL]> = key.parts().collect();
    let (primary, _) = parts.split_at(primary_len(&parts));
    let mut name = [namespace, FLOOR].concat();
    push_slot(&mut name, primary, key);
    name
}

/// Returns the name of the claims on a budget.
pub(crate) fn budget_name(namespace: &str, budget: &str) -> String {
    let mut name = format!("{namespace}:b:{{");
    push_escaped_all(&mut name, budget.as_bytes());
    name.push('}');
    name
}

/// Returns a name that belongs to no single key: `NS:{bus}` for the bus, followed by a letter for
/// generations, prefix rules and instances. All are in one slot.
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

/// Returns the field of a lease: empty for the primary key, a digest for any other key.
pub(crate) fn lease_field(primary: KeyRef<'_>, flight_key: KeyRef<'_>) -> Vec<u8> {
    if primary == flight_key { Vec::new() } else { variant_field(flight_key) }
}

/// Returns the lease field of a variant.
pub(crate) fn variant_field(flight_key: KeyRef<'_>) -> Vec<u8> {
    field(b'v', flight_key)
}

/// Returns the field of a permission without a lease. Its own kind keeps it apart from leases.
pub(crate) fn claim_field(entry: KeyRef<'_>, version: Option<u64>) -> Vec<u8> {
    let mut field = field(b'c', entry);
    // The last claim is valid, but an older version must not replace a newer one's.
    field.extend(version.into_iter().flat_map(u64::to_be_bytes));
    field
}

fn field(kind: u8, key: KeyRef<'_>) -> Vec<u8> {
    let digest = digest(&SHA256, key.bytes());
    let mut field = vec![kind];
    field.extend_from_slice(&digest.as_ref()[..FIELD_LEN]);
    field
}

/// Returns the name of an entry's value.
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

/// Returns the common prefix of all entries' names.
pub(crate) fn entry_prefix(namespace: &str) -> String {
    [namespace, ENTRY].concat()
}

/// Returns the part between the braces of a name.
pub(crate) fn plain_primary(name: &str) -> Option<&str> {
    name.split_once('{')?.1.split_once('}').map(|(primary, _)| primary)
}

/// Returns the primary key of an entry.
pub(crate) fn primary_of(key: KeyRef<'_>) -> Key {
    let parts: SmallVec<[&[u8]; PARTS_TYPICAL]> = key.parts().collect();
    let mut primary = KeyBuf::default();
    for part in &parts[..primary_len(&parts)] {
        primary.part(part);
    }
    primary.borrowed().to_key()
}

/// Returns the key of an unabbreviated name, given without namespace and braces; `None` if
/// [`entry_name`] would not produce it.
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

/// Appends the slot part of a name, in braces.
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

/// Returns the number of parts of the primary key. A variant's key continues with a generation
/// number and pairs of field name and marked value (`forebay_core::key`). A key that only resembles
/// a variant is put into another slot, without further effect.
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
        // After each part, so that one empty part differs from none.
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

/// Encodes bytes as hexadecimal digits.
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
        // The last two targets have as many bytes as a generation number.
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
    fn different_keys_have_different_names() {
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
    fn host_of_eight_bytes_is_not_taken_for_a_variant() {
        let mut key = KeyBuf::new("shop");
        key.part(b"http").part(b"shop.com").part(b"/a");
        let own = Names::of("n", key.borrowed());
        // The first byte of this generation equals the mark of an absent field.
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
