//! Shared bytes, in one allocation with their reference count.

use std::fmt;

use bytes::Bytes;
use forebay_core::heap::allocated;
use triomphe::ThinArc;

/// Bytes of the allocation in front of the shared bytes: count, pointer and length.
const FRONT: usize = 3 * size_of::<usize>();

/// Shared bytes in the allocation of their reference count, or a value of another type. A handle is
/// one pointer.
///
/// An `Arc` of [`Bytes`] takes two allocations, and three once the bytes were cloned. For a head of
/// 250 bytes and a body of 40 that is a third more memory.
pub(crate) struct Shared<T>(ThinArc<Option<Box<T>>, u8>);

/// Contents of [`Shared`].
pub(crate) enum Contents<'a, T> {
    Bytes(&'a [u8]),
    Value(&'a T),
}

impl<T> Shared<T> {
    /// Copies bytes.
    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(None, bytes))
    }

    pub(crate) fn value(value: T) -> Self {
        Self(ThinArc::from_header_and_slice(Some(Box::new(value)), &[]))
    }

    #[inline]
    pub(crate) fn contents(&self) -> Contents<'_, T> {
        match &self.0.header.header {
            None => Contents::Bytes(&self.0.slice),
            Some(value) => Contents::Value(value),
        }
    }

    /// Returns true if there is another handle.
    pub(crate) fn is_held_elsewhere(&self) -> bool {
        ThinArc::strong_count(&self.0) > 1
    }

    /// Size in memory, without what a value owns.
    pub(crate) fn size(&self) -> usize {
        match self.contents() {
            Contents::Bytes(bytes) => allocated(FRONT + bytes.len()),
            Contents::Value(_) => allocated(FRONT) + allocated(size_of::<T>()),
        }
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Returns the bytes, which are not copied; empty for a value.
    pub(crate) fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl<T> AsRef<[u8]> for Shared<T> {
    fn as_ref(&self) -> &[u8] {
        &self.0.slice
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.contents() {
            Contents::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Contents::Value(value) => value.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_values_are_shared_by_one_pointer() {
        assert_eq!(size_of::<Option<Shared<Bytes>>>(), size_of::<usize>());
        let bytes = Shared::<Bytes>::bytes(b"abc");
        assert!(!bytes.is_held_elsewhere());
        let slice = bytes.to_bytes().slice(1..);
        assert!(bytes.is_held_elsewhere());
        assert_eq!((&slice[..], bytes.size()), (&b"bc"[..], 32));
        drop(slice);
        assert!(!bytes.is_held_elsewhere());
        let value = Shared::value(Bytes::from_static(b"abc"));
        assert!(matches!(value.contents(), Contents::Value(value) if value == "abc"));
        assert_eq!(value.size(), 32 + 32);
    }
}
