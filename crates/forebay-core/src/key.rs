//! The name of an entry.
//!
//! A key is a row of parts, each with its length in front, so that no part can pretend to be two
//! (`"a","bc"` and `"ab","c"` differ, whatever bytes a client sends). The first part is the
//! namespace: the site or the named cache it belongs to. Keys are always compared in full: two
//! keys with the same hash are two keys.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// Keys up to this many bytes are built without an allocation: nearly all URLs fit.
const INLINE: usize = 192;

/// An owned key, cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The same key, borrowed.
    #[must_use]
    pub fn borrowed(&self) -> KeyRef<'_> {
        KeyRef(&self.0)
    }

    /// How many bytes it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrowed().fmt(f)
    }
}

/// A borrowed key: all that a lookup needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyRef<'a>(&'a [u8]);

impl<'a> KeyRef<'a> {
    /// The key's bytes: its parts, each behind its length.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// An owned copy.
    #[must_use]
    pub fn to_key(self) -> Key {
        Key(self.0.into())
    }

    /// The parts, in order.
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

    /// The site or the named cache it belongs to.
    #[must_use]
    pub fn namespace(self) -> &'a [u8] {
        self.parts().next().unwrap_or_default()
    }

    /// Whether it belongs to this namespace, and one of its parts behind that begins so.
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

/// A key being built, on the stack as long as it is short.
#[derive(Clone, Default)]
pub struct KeyBuf(SmallVec<[u8; INLINE]>);

impl KeyBuf {
    /// An empty key in a namespace.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let mut key = Self::default();
        key.part(namespace.as_bytes());
        key
    }

    /// Adds one part.
    pub fn part(&mut self, part: &[u8]) -> &mut Self {
        self.part_from(|writer| writer.write(part))
    }

    /// Adds one part that `write` appends piece by piece, and puts its length in front.
    pub fn part_from(&mut self, write: impl FnOnce(&mut PartWriter<'_>)) -> &mut Self {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        let mut part = PartWriter(&mut self.0);
        write(&mut part);
        let length = u32::try_from(self.0.len() - start - 4).unwrap_or(u32::MAX);
        self.0[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self
    }

    /// The key so far.
    #[inline]
    #[must_use]
    pub fn borrowed(&self) -> KeyRef<'_> {
        KeyRef(&self.0)
    }
}

/// Looks something up by a key and one more part: for doors whose keys all begin alike, and that
/// do little else for a hit. Nothing is copied further than to the stack.
#[inline]
pub fn behind<T>(front: KeyRef<'_>, part: &[u8], look: impl FnOnce(KeyRef<'_>) -> T) -> T {
    let start = front.0.len() + 4;
    let end = start + part.len();
    if end > INLINE {
        return look(long(front, part).borrowed());
    }
    let mut bytes = [0; INLINE];
    bytes[..front.0.len()].copy_from_slice(front.0);
    // What fits in here has a length of four bytes at most.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    bytes[front.0.len()..start].copy_from_slice(&length.to_le_bytes());
    bytes[start..end].copy_from_slice(part);
    look(KeyRef(&bytes[..end]))
}

#[cold]
fn long(front: KeyRef<'_>, part: &[u8]) -> Key {
    let mut key = KeyBuf(SmallVec::from_slice(front.0));
    key.part(part).borrowed().to_key()
}

/// Appends bytes to the part that is being built.
pub struct PartWriter<'a>(&'a mut SmallVec<[u8; INLINE]>);

impl PartWriter<'_> {
    /// Appends these bytes to the part.
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// The key of one variant: the primary key, the generation of its family of variants, and each
/// selecting field with its value or its absence.
///
/// The generation makes a purge of the primary key reach all variants at once: a new generation
/// makes new keys, and nobody asks for the old ones again.
#[must_use]
pub fn variant<'v>(
    primary: KeyRef<'_>,
    generation: u64,
    fields: impl Iterator<Item = (&'v str, Option<std::borrow::Cow<'v, [u8]>>)>,
) -> KeyBuf {
    let mut key = KeyBuf(SmallVec::from_slice(primary.0));
    key.part(&generation.to_le_bytes());
    for (name, value) in fields {
        key.part(name.as_bytes());
        key.part_from(|part| match &value {
            // An absent field and an empty one select differently (RFC 9111 section 4.1).
            None => part.write(&[0]),
            Some(value) => {
                part.write(&[1]);
                part.write(value);
            }
        });
    }
    key
}

/// One of several questions about what stands under a key: never the key of an entry itself.
#[must_use]
pub fn question(key: KeyRef<'_>, question: &[u8]) -> KeyBuf {
    let mut asked = KeyBuf(SmallVec::from_slice(key.0));
    asked.part(question);
    asked
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;

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
    fn a_part_behind_others_is_the_same_as_one_added() {
        let front = KeyBuf::new("site");
        for length in [0, 1, INLINE - 13, INLINE - 12, INLINE - 11, 4 * INLINE] {
            let part = vec![7; length];
            let added = front.clone().part(&part).borrowed().to_key();
            behind(front.borrowed(), &part, |key| assert_eq!(key, added.borrowed(), "{length}"));
        }
    }

    #[test]
    fn a_new_generation_makes_new_variant_keys() {
        let primary = KeyBuf::new("site");
        let key = |generation| {
            variant(primary.borrowed(), generation, std::iter::empty()).borrowed().to_key()
        };
        assert_ne!(key(1), key(2));
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
