//! Versions that have an order: the version of a row, a position in a log.
//!
//! To an entry a version is a validator as any other, so that it goes wherever the entry goes. It
//! begins with a byte that no validator of HTTP can have.

use bytes::Bytes;

use crate::entry::Meta;

/// What tells a version from other validators: a NUL stands in no field of HTTP.
const MARK: &[u8] = b"\0version ";

/// A version, as the tag of a validator.
#[must_use]
pub fn written(version: u64) -> Bytes {
    [MARK, &version.to_be_bytes()].concat().into()
}

/// The version that a tag is; nothing if it is none.
#[must_use]
pub fn read(tag: &[u8]) -> Option<u64> {
    tag.strip_prefix(MARK)?.try_into().ok().map(u64::from_be_bytes)
}

impl Meta {
    /// The version of an entry, if its door has given it one.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        read(self.validator()?.tag.as_ref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Lifetime, Validator};
    use crate::time::Timestamp;

    #[test]
    fn a_version_is_read_as_it_was_written_and_nothing_else_is_one() {
        let mut meta = Meta::new(Timestamp::from_millis(0), Lifetime::default());
        assert_eq!(meta.version(), None);
        for version in [0, 1, 1 << 53, u64::MAX] {
            let tag = Some(written(version));
            meta.set_validator(Some(Validator { tag, modified: None }));
            assert_eq!(meta.version(), Some(version));
        }
        let longer = [&written(7)[..], b"x"].concat();
        for tag in [&b"\"an etag\""[..], b"", MARK, b"7", &longer] {
            assert_eq!(read(tag), None, "{tag:?}");
        }
    }
}
