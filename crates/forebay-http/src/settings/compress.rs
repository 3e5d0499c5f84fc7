//! Settings for the compression of responses.

use forebay_semantics::coding::media_types::MediaTypes;
use forebay_semantics::coding::{Coding, Codings};

/// Compression of the responses of a site. Its origin is asked for unencoded responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressSettings {
    /// Codings that are offered to clients, in the order of preference among those that a client
    /// weighs equally.
    pub codings: Codings,
    /// Media types of the responses that are compressed.
    pub types: MediaTypes,
    /// Minimum length in bytes of a body that is compressed.
    pub min: u64,
    /// Maximum length in bytes of a body that is compressed.
    pub max: u64,
    /// Compresses responses that are not stored, too, each for its own client.
    pub pass: bool,
}

impl CompressSettings {
    /// Returns `true` for a body whose length is within the limits.
    #[must_use]
    pub(crate) const fn takes(&self, length: u64) -> bool {
        self.min <= length && length <= self.max
    }
}

impl Default for CompressSettings {
    fn default() -> Self {
        let codings = Codings::new(Coding::ALL);
        Self { codings, types: MediaTypes::default(), min: 1 << 10, max: 8 << 20, pass: false }
    }
}
