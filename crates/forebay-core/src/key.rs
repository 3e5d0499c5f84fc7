//! Keys of entries.
//!
//! A key is a sequence of length-prefixed parts, so that different sequences always give different
//! keys (`"a","bc"` and `"ab","c"`), whatever bytes a client sends. The first part is the namespace:
//! the site or the named cache. Keys are always compared in full: equal hashes do not make keys
//! equal.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::heap;

/// Maximum length in bytes of a key that is built without an allocation: enough for nearly all URLs.
const INLINE: usize = 192;

/// Maximum length in bytes of a key that is stored inline, without heap memory. The value makes an
/// owned key 24 bytes long.
const SHORT_MAX: usize = 22;

/// Part of the keys whose entries only memory stores. It has a byte that no part of a request contains.
pub const MEMORY_ONLY: &[u8] = b"\0memory";

/// Owned key of an entry: length-prefixed parts, of which the first is the namespace. Cheap to
/// clone.
#[derive(Clone)]
pub struct Key(Owned);

#[derive(Clone)]
enum Owned {
    Short { length: u8, bytes: [u8; SHORT_MAX] },
    Long(Arc<[u8]>),
}

impl Key {
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT_MAX];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(key);
                Self(Owned::Short { length, bytes })
            }
            _ => Self(Owned::Long(key.into())),
        }
    }

    /// Returns a borrowed form of the key.
    #[inline]
    #[must_use]
    pub fn borrowed(&self) -> KeyRef<'_> {
        KeyRef(match &self.0 {
            // The length never exceeds the array; `min` lets the compiler drop the bounds check.
            Owned::Short { length, bytes } => &bytes[..usize::from(*length).min(SHORT_MAX)],
            Owned::Long(bytes) => bytes,
        })
    }

    /// Returns the length of the key in bytes, with the 4-byte length prefix of each part.
    #[must_use]
    pub fn size(&self) -> usize {
        self.borrowed().0.len()
    }

    /// Returns the memory in bytes that the key takes on the heap; 0 for a key of at most 22 bytes,
    /// which is stored inline.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        match &self.0 {
            Owned::Short { .. } => 0,
            Owned::Long(bytes) => heap::shared(bytes.len()),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.borrowed() == other.borrowed()
    }
}

impl Eq for Key {}

/// Hashes like its bytes, because maps look it up by them.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrowed().0.hash(state);
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.borrowed().0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrowed().fmt(f)
    }
}

/// Borrowed key of an entry: length-prefixed parts, of which the first is the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyRef<'a>(&'a [u8]);

impl<'a> KeyRef<'a> {
    /// Returns the key with these bytes, which [`bytes`](Self::bytes) returned.
    pub(crate) const fn of_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the key: its parts, each after its length (4 bytes, little-endian).
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns an owned copy of the key.
    #[must_use]
    pub fn to_key(self) -> Key {
        Key::new(self.0)
    }

    /// Returns the parts of the key, in order; the first one is the namespace.
    pub fn parts(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (part, behind) = after.split_at_checked(length)?;
            rest = behind;
            Some(part)
        })
    }

    /// Returns the bytes of all keys that this key begins with, from its namespace to the whole key.
    pub fn beginnings(self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.0;
        let mut end = 0;
        self.parts().map(move |part| {
            end += 4 + part.len();
            &bytes[..end]
        })
    }

    /// Returns the bytes from which the memory tier computes the hash of the key: all after the
    /// namespace and the length of the next part. Empty if the key has no part after the
    /// namespace. Keys in memory rarely differ only in the omitted bytes.
    #[inline]
    #[must_use]
    pub fn tail(self) -> &'a [u8] {
        let namespace = self.0.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        let start = usize::try_from(namespace).unwrap_or(usize::MAX).saturating_add(8);
        self.0.get(start..).unwrap_or_default()
    }

    /// Returns the namespace of the key: the id of the site or the name of the cache, or nothing
    /// if the cache has no name.
    #[must_use]
    pub fn namespace(self) -> &'a [u8] {
        self.parts().next().unwrap_or_default()
    }

    /// Returns true if only memory may store the entries of this key: [`MEMORY_ONLY`] is a part of it.
    #[must_use]
    pub fn is_memory_only(self) -> bool {
        self.parts().any(|part| part == MEMORY_ONLY)
    }

    /// Returns true if the key is in `namespace`, and one of its parts after the namespace, or two
    /// adjacent parts joined, starts with the bytes of `prefix`.
    #[must_use]
    pub fn is_within(self, namespace: &str, prefix: &str) -> bool {
        let prefix = prefix.as_bytes();
        let mut parts = self.parts();
        if parts.next() != Some(namespace.as_bytes()) {
            return false;
        }
        let mut last: &[u8] = &[];
        parts.any(|part| {
            let behind = prefix.strip_prefix(std::mem::replace(&mut last, part));
            part.starts_with(prefix) || behind.is_some_and(|behind| part.starts_with(behind))
        })
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts().map(|part| part.escape_ascii().to_string())).finish()
    }
}

/// Builder of a key, without a heap allocation while the key has at most 192 bytes.
#[derive(Clone)]
pub struct KeyBuf {
    length: usize,
    inline: [u8; INLINE],
    /// All bytes of a key that is longer than the array; otherwise empty.
    long: Vec<u8>,
}

impl Default for KeyBuf {
    #[inline]
    fn default() -> Self {
        Self { length: 0, inline: [0; INLINE], long: Vec::new() }
    }
}

impl KeyBuf {
    /// Returns the builder of a key that consists of a namespace only.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let mut key = Self::default();
        key.part(namespace.as_bytes());
        key
    }

    /// Returns the builder of a key that begins with the bytes of another.
    #[inline]
    #[must_use]
    pub fn from_key(key: KeyRef<'_>) -> Self {
        let mut copy = Self::default();
        copy.extend(key.0);
        copy
    }

    /// Appends one part to the key.
    #[inline]
    pub fn part(&mut self, part: &[u8]) -> &mut Self {
        self.extend(&length_of(part).to_le_bytes());
        self.extend(part);
        self
    }

    /// Appends one part that `write` produces piece by piece, with its length in front.
    pub fn part_from(&mut self, write: impl FnOnce(&mut PartWriter<'_>)) -> &mut Self {
        let start = self.length;
        self.extend(&[0; 4]);
        let mut part = PartWriter(self);
        write(&mut part);
        let length = length_of(&self.borrowed().0[start + 4..]);
        let bytes = if self.long.is_empty() { &mut self.inline[..] } else { &mut self.long[..] };
        bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self
    }

    /// Returns the key built so far.
    #[inline]
    #[must_use]
    pub fn borrowed(&self) -> KeyRef<'_> {
        // A short key never exceeds the array; `min` lets the compiler drop the bounds check.
        let inline = &self.inline[..self.length.min(INLINE)];
        KeyRef(if self.long.is_empty() { inline } else { &self.long })
    }

    #[inline]
    fn extend(&mut self, bytes: &[u8]) {
        let free = self.inline.get_mut(self.length..);
        match free.and_then(|free| free.get_mut(..bytes.len())) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.extend_long(bytes),
        }
        self.length += bytes.len();
    }

    /// Appends bytes that do not fit into the array. From now on no bytes fit, because the key is
    /// longer than the array.
    #[cold]
    fn extend_long(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.inline[..self.length]);
        }
        self.long.extend_from_slice(bytes);
    }
}

/// Key of a namespace and one further part, which are not joined into one buffer: a lookup in
/// memory then copies no bytes.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    namespace: KeyRef<'a>,
    part: &'a [u8],
}

impl<'a> Name<'a> {
    /// Returns the name for `part` in a namespace; `namespace` is a key that consists of the
    /// namespace only.
    #[must_use]
    pub const fn new(namespace: KeyRef<'a>, part: &'a [u8]) -> Self {
        Self { namespace, part }
    }

    /// Returns true if `key` consists of this namespace and this part, and has no further part.
    #[inline]
    #[must_use]
    pub fn is(self, key: KeyRef<'_>) -> bool {
        let Some((front, part)) = key.0.split_at_checked(self.namespace.0.len() + 4) else {
            return false;
        };
        let Some((namespace, length)) = front.split_last_chunk() else { return false };
        is_same(part, self.part)
            && u32::from_le_bytes(*length) as usize == part.len()
            && is_namespace(namespace, self.namespace.0)
    }

    /// Returns the bytes from which the memory tier computes the hash of the key, equal to
    /// [`KeyRef::tail`] of the joined key.
    #[must_use]
    pub const fn tail(self) -> &'a [u8] {
        self.part
    }

    /// Joins the namespace and the part into one key, calls `look` with it, and returns its result.
    /// The key is on the stack if it has at most 192 bytes.
    #[inline]
    pub fn joined<T>(self, look: impl FnOnce(KeyRef<'_>) -> T) -> T {
        let (front, part) = (self.namespace.0, self.part);
        let start = front.len() + 4;
        let end = start + part.len();
        if end > INLINE {
            return look(self.long().borrowed());
        }
        let mut bytes = [0; INLINE];
        bytes[..front.len()].copy_from_slice(front);
        bytes[front.len()..start].copy_from_slice(&length_of(part).to_le_bytes());
        bytes[start..end].copy_from_slice(part);
        look(KeyRef(&bytes[..end]))
    }

    #[cold]
    fn long(self) -> Key {
        KeyBuf::from_key(self.namespace).part(self.part).borrowed().to_key()
    }
}

/// Returns the length prefix of a part.
fn length_of(part: &[u8]) -> u32 {
    u32::try_from(part.len()).unwrap_or(u32::MAX)
}

/// Compares two namespaces. Most caches have memory of their own and an empty namespace, for which
/// comparing the length is enough.
#[inline]
fn is_namespace(one: &[u8], other: &[u8]) -> bool {
    one.first_chunk::<4>() == other.first_chunk() && (one.len() == 4 || is_same(one, other))
}

/// Compares two byte strings. For short ones a call of `memcmp` takes longer than the comparison;
/// chunks from both ends cover a string that is at most two chunks long.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    match one.len() {
        4..=8 => one.len() == other.len() && ends_alike::<4>(one, other),
        9..=16 => one.len() == other.len() && ends_alike::<8>(one, other),
        _ => one == other,
    }
}

#[inline]
fn ends_alike<const N: usize>(one: &[u8], other: &[u8]) -> bool {
    one.first_chunk::<N>() == other.first_chunk() && one.last_chunk::<N>() == other.last_chunk()
}

/// Writer that appends bytes to the key part under construction; see [`KeyBuf::part_from`].
pub struct PartWriter<'a>(&'a mut KeyBuf);

impl PartWriter<'_> {
    /// Appends bytes to the part.
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }
}

/// Returns the key of one variant: the primary key, the generation of its variants, and each
/// selecting field with its value or its absence.
///
/// A purge of the primary key starts a new generation and so makes all old variants unreachable at
/// once.
#[must_use]
pub fn variant<'v>(
    primary: KeyRef<'_>,
    generation: u64,
    fields: impl Iterator<Item = (&'v str, Option<std::borrow::Cow<'v, [u8]>>)>,
) -> KeyBuf {
    let mut key = KeyBuf::from_key(primary);
    key.part(&generation.to_le_bytes());
    for (name, value) in fields {
        key.part(name.as_bytes());
        key.part_from(|part| match &value {
            // An absent field and an empty one select different variants (RFC 9111 section 4.1).
            None => part.write(&[0]),
            Some(value) => {
                part.write(&[1]);
                part.write(value);
            }
        });
    }
    key
}

/// Returns the selecting fields in the key of a [`variant`] of `primary`, with their values; `None`
/// is an absent field. Empty if `key` is no such key.
#[must_use]
pub fn fields_of_variant<'k>(
    primary: KeyRef<'_>,
    key: KeyRef<'k>,
) -> Vec<(&'k [u8], Option<&'k [u8]>)> {
    let mut parts = key.parts().skip(primary.parts().count() + 1);
    let mut fields = Vec::new();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        let value = value.split_first().filter(|(is_present, _)| **is_present == 1);
        fields.push((name, value.map(|(_, value)| value)));
    }
    fields
}

/// Returns the key of auxiliary state of the entry under `key`: that key with `question` as a
/// further part. Used for the stored byte ranges of an entry, and for loads of one byte range.
/// `question` must be chosen so that no entry has the same key.
#[must_use]
pub fn question(key: KeyRef<'_>, question: &[u8]) -> KeyBuf {
    let mut asked = KeyBuf::from_key(key);
    asked.part(question);
    asked
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_fields_of_a_variant_are_read_from_its_key() {
        let primary = KeyBuf::new("site").part(b"/a").clone();
        let fields = [("accept", Some(Cow::from(&b"x"[..]))), ("cookie", None)];
        let variant = variant(primary.borrowed(), 7, fields.into_iter());
        let read = fields_of_variant(primary.borrowed(), variant.borrowed());
        assert_eq!(read, [(&b"accept"[..], Some(&b"x"[..])), (b"cookie", None)]);
        assert!(fields_of_variant(primary.borrowed(), primary.borrowed()).is_empty());
    }

    fn built(parts: &[Vec<u8>]) -> KeyBuf {
        let mut key = KeyBuf::new("site");
        for part in parts {
            key.part(part);
        }
        key
    }

    #[test]
    fn an_absent_field_and_an_empty_one_are_two_variants() {
        let primary = KeyBuf::new("site");
        let key = |value: Option<&'static [u8]>| {
            let field = std::iter::once(("accept", value.map(Cow::Borrowed)));
            variant(primary.borrowed(), 7, field).borrowed().to_key()
        };
        assert_ne!(key(None), key(Some(b"")));
        assert_eq!(key(Some(b"x")), key(Some(b"x")));
        assert_eq!(key(None).borrowed().namespace(), b"site");
    }

    #[test]
    fn inline_keys_behave_like_heap_keys() {
        assert_eq!(size_of::<Key>(), 24);
        let key = |length: usize| {
            let mut key = KeyBuf::new("");
            key.part(&vec![7; length - 8]).borrowed().to_key()
        };
        for (length, held) in [(8, 0), (21, 0), (22, 0), (23, 48), (300, 320)] {
            assert_eq!((key(length).size(), key(length).heap_size()), (length, held));
            let parts: Vec<usize> = key(length).borrowed().parts().map(<[u8]>::len).collect();
            assert_eq!(parts, [0, length - 8]);
        }
        let all: HashSet<Key> = [8, 22, 23, 22, 23].map(key).into();
        assert_eq!(all.len(), 3);
        assert!(all.contains(key(22).borrowed().bytes()));
        assert!(all.contains(key(23).borrowed().bytes()));
    }

    #[test]
    fn a_key_may_leave_the_array_at_any_byte() {
        for length in INLINE - 12..=INLINE + 4 {
            let first = vec![b'a'; length];
            let mut key = KeyBuf::default();
            key.part(&first).part(b"").part_from(|part| {
                part.write(b"b");
                part.write(b"");
                part.write(b"cd");
            });
            let parts: Vec<_> = key.borrowed().parts().collect();
            assert_eq!(parts, [&first[..], b"", b"bcd"], "{length}");
            let copy = KeyBuf::from_key(key.clone().part(b"e").borrowed());
            assert_eq!(copy.borrowed().parts().last(), Some(&b"e"[..]), "{length}");
        }
    }

    #[test]
    fn a_name_equals_the_joined_key() {
        for (namespace, length) in
            ["", "site"].into_iter().flat_map(|one| [0, 1, 176, 180, 184, 700].map(|it| (one, it)))
        {
            let (front, part) = (KeyBuf::new(namespace), vec![7; length]);
            let key = front.clone().part(&part).borrowed().to_key();
            let name = Name::new(front.borrowed(), &part);
            assert!(name.is(key.borrowed()), "{namespace:?} {length}");
            assert_eq!(name.tail(), key.borrowed().tail(), "{namespace:?} {length}");
            name.joined(|joined| assert_eq!(joined, key.borrowed(), "{namespace:?} {length}"));
        }
    }

    #[test]
    fn a_name_does_not_equal_other_keys() {
        let front = KeyBuf::new("site");
        // One part whose bytes look like two, and the reverse.
        let two = front.clone().part(b"a").part(b"b").borrowed().to_key();
        assert!(!Name::new(front.borrowed(), two.borrowed().tail()).is(two.borrowed()));
        let name = Name::new(front.borrowed(), b"a");
        for other in [
            KeyBuf::new("site").part(b"b").clone(),
            KeyBuf::new("site").part(b"ab").clone(),
            KeyBuf::new("sitf").part(b"a").clone(),
            KeyBuf::new("").part(b"a").clone(),
            KeyBuf::new("sitesite").part(b"a").clone(),
            KeyBuf::new("site"),
            KeyBuf::default(),
        ] {
            assert!(!name.is(other.borrowed()), "{:?}", other.borrowed());
        }
    }

    #[test]
    fn a_tail_is_what_follows_the_namespace() {
        assert_eq!(KeyBuf::new("site").part(b"a").borrowed().tail(), b"a");
        assert_eq!(KeyBuf::new("site").borrowed().tail(), b"");
        assert_eq!(KeyBuf::default().borrowed().tail(), b"");
    }

    #[test]
    fn a_new_generation_makes_new_variant_keys() {
        let primary = KeyBuf::new("site");
        let key = |generation| {
            variant(primary.borrowed(), generation, std::iter::empty()).borrowed().to_key()
        };
        assert_ne!(key(1), key(2));
    }

    #[test]
    fn byte_strings_of_any_length_are_compared_in_full() {
        for length in 0..40 {
            let row: Vec<u8> = (0..length).collect();
            assert!(is_same(&row, &row.clone()), "{length} bytes");
            assert!(!is_same(&row, &[&row[..], &[0]].concat()), "{length} bytes and one more");
            for at in 0..row.len() {
                let mut other = row.clone();
                other[at] ^= 1;
                assert!(!is_same(&row, &other), "{length} bytes, of which number {at} differs");
            }
        }
    }

    proptest! {
        #[test]
        fn different_parts_make_different_keys(
            one in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..5),
            other in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..5),
        ) {
            let (a, b) = (built(&one), built(&other));
            prop_assert_eq!(one == other, a.borrowed() == b.borrowed());
            let parts: Vec<_> = a.borrowed().parts().skip(1).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(parts, one);
        }
    }
}
