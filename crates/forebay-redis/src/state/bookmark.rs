//! Saved bus position for the next process.
//!
//! Format, little-endian: version, 1 byte; namespace and replication id of the server, each
//! preceded by its length in 2 bytes; id of the last entry, 8 bytes of milliseconds and 8 of a
//! number. Namespace and replication id are needed because an entry of another server or namespace
//! may have the same id.

use bytes::Bytes;
use forebay_engine::bus::Bookmark;

use crate::purges::generation::BusId;

const VERSION: u8 = 1;

/// Position reached on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedPosition {
    pub(crate) replication: String,
    pub(crate) id: BusId,
}

impl SavedPosition {
    /// Encodes the position; `None` if it is too long for a bookmark.
    pub(crate) fn written(&self, namespace: &str) -> Option<Bookmark> {
        let mut out = vec![VERSION];
        for text in [namespace, &self.replication] {
            out.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(&self.id.millis.to_le_bytes());
        out.extend_from_slice(&self.id.number.to_le_bytes());
        Bookmark::new(Bytes::from(out))
    }

    /// Returns whether missing entries after this position would be detected. They would not be at
    /// the start of a bus, which looks the same after a loss, nor on a server without a replication
    /// id.
    pub(crate) fn is_provable(&self) -> bool {
        self.id != BusId::default() && !self.replication.is_empty()
    }

    /// Decodes a bookmark; `None` if it is invalid or of another namespace.
    pub(crate) fn read(bookmark: &Bookmark, namespace: &str) -> Option<Self> {
        let rest = bookmark.bytes().strip_prefix(&[VERSION])?;
        let (saved_namespace, rest) = text(rest)?;
        let (replication, rest) = text(rest)?;
        let (millis, rest) = rest.split_first_chunk::<8>()?;
        let number: &[u8; 8] = rest.try_into().ok()?;
        let id = BusId { millis: u64::from_le_bytes(*millis), number: u64::from_le_bytes(*number) };
        (saved_namespace == namespace).then(|| Self { replication: replication.to_owned(), id })
    }
}

fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmark_is_valid_in_its_own_namespace_only() {
        let id = BusId { millis: 7, number: 9 };
        let saved = SavedPosition { replication: "abc".into(), id };
        let written = saved.written("shop").unwrap();
        assert_eq!(SavedPosition::read(&written, "shop"), Some(saved.clone()));
        assert_eq!(SavedPosition::read(&written, "blog"), None);
        assert_eq!(saved.written(&"x".repeat(8 << 10)), None);
    }

    #[test]
    fn truncated_or_extended_bookmark_is_rejected() {
        let saved = SavedPosition { replication: "abc".into(), id: BusId::default() };
        let written = saved.written("shop").unwrap();
        let read = |bytes: &[u8]| {
            SavedPosition::read(&Bookmark::new(Bytes::copy_from_slice(bytes)).unwrap(), "shop")
        };
        for len in 0..written.bytes().len() {
            assert_eq!(read(&written.bytes()[..len]), None, "{len}");
        }
        assert_eq!(read(&[written.bytes(), b"x"].concat()), None);
    }
}
