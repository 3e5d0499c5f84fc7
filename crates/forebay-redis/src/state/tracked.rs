//! Stamps of the entries in Redis that this instance stored or read.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use forebay_core::{Key, KeyRef};
use parking_lot::Mutex;

use crate::entry::names::{key_of_plain, plain_primary, primary_of};

/// Maximum number of names with a known stamp, and as many older ones. For other names it is
/// unknown whether this instance holds them.
const SEEN_MAX: usize = 32_768;

/// Known stamps of entries in Redis.
#[derive(Default)]
pub(crate) struct Tracked {
    seen: Mutex<Seen>,
    /// True if the queue overflowed.
    pub(crate) has_overflowed: AtomicBool,
}

#[derive(Default)]
struct Seen {
    young: HashMap<Box<str>, KnownValue>,
    old: HashMap<Box<str>, KnownValue>,
    has_forgotten: bool,
}

struct KnownValue {
    /// Stamp of the value that this instance stored or read.
    stamp: u64,
    /// The primary key, if it cannot be derived from the name.
    primary: Option<Key>,
}

/// Consequence of a change to an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// This instance stored or read the new value, or does not hold the entry.
    None,
    /// The held value of this key is outdated.
    Key(Key),
    /// An unknown held value may be outdated.
    Unknown,
}

impl Tracked {
    /// Records the stamp of a value that this instance stored or read.
    pub(crate) fn note(&self, name: &str, key: KeyRef<'_>, stamp: u64) {
        let primary = plain_primary(name).is_none_or(|it| key_of_plain(it).is_none());
        let primary = primary.then(|| primary_of(key));
        let mut seen = self.seen.lock();
        if seen.young.len() >= SEEN_MAX {
            let young = std::mem::take(&mut seen.young);
            seen.has_forgotten |= !seen.old.is_empty();
            seen.old = young;
        }
        seen.young.insert(name.into(), KnownValue { stamp, primary });
    }

    /// Returns the consequence of a change, given the current stamp of the entry.
    pub(crate) fn change(&self, name: &str, stamp: Option<u64>) -> Change {
        let seen = self.seen.lock();
        let known = seen.young.get(name).or_else(|| seen.old.get(name));
        if known.is_some_and(|known| Some(known.stamp) == stamp) {
            return Change::None;
        }
        if let Some(primary) = known.and_then(|known| known.primary.clone()) {
            return Change::Key(primary);
        }
        match plain_primary(name).and_then(key_of_plain) {
            Some(primary) => Change::Key(primary),
            None if seen.has_forgotten => Change::Unknown,
            // The entry was never held here.
            None => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;
    use crate::entry::names::entry_name;

    fn key(path: &str) -> Key {
        KeyBuf::new("site").part(path.as_bytes()).borrowed().to_key()
    }

    fn name(path: &str) -> String {
        entry_name("n", key(path).borrowed())
    }

    #[test]
    fn own_stamp_is_no_change_and_others_are() {
        let tracked = Tracked::default();
        tracked.note(&name("/a"), key("/a").borrowed(), 7);
        assert_eq!(tracked.change(&name("/a"), Some(7)), Change::None);
        for stamp in [Some(8), None] {
            assert_eq!(tracked.change(&name("/a"), stamp), Change::Key(key("/a")));
            assert_eq!(tracked.change(&name("/b"), stamp), Change::Key(key("/b")));
            for none_of_ours in ["n:d:", "n:d:x", "n:d:{x}", "n:d:{#x}"] {
                assert_eq!(tracked.change(none_of_ours, stamp), Change::None);
            }
        }
    }

    #[test]
    fn digest_name_is_known_until_too_many_others_are() {
        let tracked = Tracked::default();
        let long = "/long".repeat(100);
        assert_eq!(tracked.change(&name(&long), None), Change::None, "it was never here");
        tracked.note(&name(&long), key(&long).borrowed(), 7);
        assert_eq!(tracked.change(&name(&long), None), Change::Key(key(&long)));
        assert_eq!(tracked.change(&name(&long), Some(7)), Change::None);
        for number in 0..=2 * SEEN_MAX {
            let path = number.to_string();
            tracked.note(&name(&path), key(&path).borrowed(), 1);
        }
        assert_eq!(tracked.change(&name(&long), Some(7)), Change::Unknown);
        let seen = tracked.seen.lock();
        assert!(seen.young.len() <= SEEN_MAX && seen.old.len() <= SEEN_MAX);
    }
}
