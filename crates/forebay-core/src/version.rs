//! Ordered versions, for example the version of a database row or a position in a log.
//!
//! A version is stored as the tag of a validator, so that every tier keeps it with the entry. It
//! begins with a byte that no HTTP validator contains.

use bytes::Bytes;

use crate::entry::Meta;

/// Prefix of a version: no HTTP field contains a NUL byte.
const MARK: &[u8] = b"\0version ";

/// Encodes a version number as the tag of a validator; [`read`] decodes it.
#[must_use]
pub fn written(version: u64) -> Bytes {
    [MARK, &version.to_be_bytes()].concat().into()
}

/// Decodes the version number from the tag of a validator; `None` if the tag is not a version, for
/// example an `ETag`.
#[must_use]
pub fn read(tag: &[u8]) -> Option<u64> {
    tag.strip_prefix(MARK)?.try_into().ok().map(u64::from_be_bytes)
}

impl Meta {
    /// Returns the version of the entry, if its front end set one instead of another validator.
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
    fn a_version_is_decoded_as_encoded_and_other_tags_are_not_versions() {
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
