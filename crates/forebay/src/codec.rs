//! What values are written as in tiers below memory.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 2 | magic: `f7 76` |
//! | 2 | 1 | version: 1 |
//! | 3 | 1 | format: 0 raw bytes, 1 MessagePack, 2 JSON, 3 postcard |
//! | 4 | 1 | compression: 0 none, 1 gzip, 2 lz4 (one block), 3 zstd, 4 brotli, 5 snappy, 6 below |
//! | 5 | 1 | 0 |
//! | 6 | 4 | length before compression, little-endian |
//! | 10 | 4 | with compression 6, zstd with a dictionary: its number, little-endian |
//! | 10 or 14 | | the value |
//!
//! What was written says itself how to read it. So a cache reads what another wrote with another
//! codec, as far as both features are built in, and a codec is changed by deploying one instance
//! after the other. What cannot be read is a miss, and counted. Whether bytes are damaged is not
//! asked here: the frame around them has a digest.
//!
//! | format | feature | for |
//! |---|---|---|
//! | [`Raw`] | | values that are bytes already |
//! | `MessagePack` | `serde-msgpack` | whatever has no reason for another |
//! | `Json` | `serde-json` | values that people and other programs read, too |
//! | `Postcard` | `serde-postcard` | the smallest and fastest; a changed type is another type |
//!
//! | compression | feature | for |
//! |---|---|---|
//! | `Lz4`, `Snappy` | `compression-lz4`, `-snappy` | where time counts more than room |
//! | `Zstd` | `compression-zstd` | whatever has no reason for another |
//! | `Gzip`, `Brotli` | `compression-gzip`, `-brotli` | text, where room counts more than time |
//! | a `Dictionary` | `compression-dictionary` | many small values that are alike |

mod compression;
#[cfg(feature = "compression-dictionary")]
mod dictionary;
mod format;

use std::io;
use std::sync::Arc;

use bytes::Bytes;

pub use compression::Compression;
#[cfg(feature = "compression-dictionary")]
pub use dictionary::Dictionary;
#[cfg(feature = "serde-json")]
pub use format::Json;
#[cfg(feature = "serde-msgpack")]
pub use format::MessagePack;
#[cfg(feature = "serde-postcard")]
pub use format::Postcard;
pub use format::{Format, Raw};

const MAGIC: [u8; 2] = [0xf7, b'v'];

const VERSION: u8 = 1;

const HEADER: usize = 10;

/// Smaller values are not compressed unless told otherwise: what they save would not pay for it.
const THRESHOLD: usize = 1 << 10;

/// With a dictionary even small values become smaller; below this the frame's own head is what
/// would be left.
#[cfg(feature = "compression-dictionary")]
const THRESHOLD_ALIKE: usize = 64;

/// The largest value that is written or read: a few bytes must not unfold into all of memory.
const VALUE_MAX: usize = 64 << 20;

/// Why a value was not written or read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The format cannot hold the value, or what was read is not such a value.
    #[error("the value does not fit its format: {0}")]
    Format(Arc<str>),
    /// It was not written by this library, or by a later version of it.
    #[error("these bytes are not a value as this version writes it")]
    Unknown,
    /// It was written in a format, or with a compression, that is not built in.
    #[error("the value needs a feature that is not built in: {0}")]
    NotBuiltIn(&'static str),
    /// It was written with a dictionary that this codec was not given.
    #[error("the value needs dictionary {0:08x}, which this codec was not given")]
    UnknownDictionary(u32),
    /// It is larger than 64 MiB, or not as large as it says.
    #[error("the value has not the size that it may have")]
    Size,
}

impl CodecError {
    pub(crate) fn format(cause: impl std::fmt::Display) -> Self {
        Self::Format(cause.to_string().into())
    }
}

impl From<io::Error> for CodecError {
    fn from(error: io::Error) -> Self {
        Self::format(error)
    }
}

/// A format and a compression.
///
/// ```
/// use forebay::codec::{Codec, Compression, MessagePack};
///
/// let codec = Codec::new(MessagePack).compressed(Compression::Zstd).threshold(4 << 10);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Codec<F> {
    format: F,
    packing: Packing,
}

/// What becomes of a value once its format has written it.
#[derive(Clone, Debug, Default)]
struct Packing {
    compression: Compression,
    threshold: Option<usize>,
    #[cfg(feature = "compression-dictionary")]
    dictionaries: dictionary::Dictionaries,
}

impl<F> Codec<F> {
    /// This format, not compressed.
    pub fn new(format: F) -> Self {
        Self { format, packing: Packing::default() }
    }

    /// Compresses what is large enough, and keeps it where that makes it smaller.
    pub const fn compressed(mut self, compression: Compression) -> Self {
        self.packing.compression = compression;
        self
    }

    /// How many bytes are large enough; 1 KiB unless told otherwise, and 64 bytes with a
    /// dictionary.
    pub const fn threshold(mut self, bytes: usize) -> Self {
        self.packing.threshold = Some(bytes);
        self
    }

    /// Compresses with zstd and this dictionary, whatever else was chosen, and reads what was
    /// written with it.
    #[cfg(feature = "compression-dictionary")]
    pub fn dictionary(mut self, dictionary: &Dictionary) -> Self {
        self.packing.dictionaries.write_with(dictionary);
        self
    }

    /// Reads what was written with this dictionary, too: the one that is about to come into use,
    /// so that instances can be deployed one after the other, or the one before.
    #[cfg(feature = "compression-dictionary")]
    pub fn also_reads(mut self, dictionary: &Dictionary) -> Self {
        self.packing.dictionaries.read_with(dictionary);
        self
    }

    /// A dictionary for values like these, of up to so many bytes: 16 KiB are plenty for most.
    /// A hundred values are few, and some ten thousand are enough.
    ///
    /// # Errors
    /// If a value does not fit the format, or there is too little to learn from.
    #[cfg(feature = "compression-dictionary")]
    pub fn train<'v, V: 'v>(
        &self,
        sample: impl IntoIterator<Item = &'v V>,
        bytes_max: usize,
    ) -> Result<Dictionary, CodecError>
    where
        F: Format<V>,
    {
        let written = |value| {
            let mut out = Vec::new();
            self.format.write(value, &mut out).map(|()| out)
        };
        let sample: Vec<Vec<u8>> = sample.into_iter().map(written).collect::<Result<_, _>>()?;
        Dictionary::train(&sample, bytes_max)
    }

    /// The bytes of a value.
    ///
    /// # Errors
    /// If its format cannot hold it, or it is too large.
    pub fn encode<V>(&self, value: &V) -> Result<Bytes, CodecError>
    where
        F: Format<V>,
    {
        let mut out = vec![0; HEADER];
        self.format.write(value, &mut out)?;
        let plain = out.len() - HEADER;
        if plain > VALUE_MAX {
            return Err(CodecError::Size);
        }
        let compression = self.packing.pack(&mut out)?;
        let length = u32::try_from(plain).map_err(|_| CodecError::Size)?;
        out[..2].copy_from_slice(&MAGIC);
        out[2..6].copy_from_slice(&[VERSION, F::ID, compression, 0]);
        out[6..HEADER].copy_from_slice(&length.to_le_bytes());
        Ok(out.into_boxed_slice().into())
    }

    /// The value that these bytes are, whatever codec of this library has written them.
    ///
    /// # Errors
    /// If they are none, or need what is not built in.
    pub fn decode<V>(&self, bytes: &[u8]) -> Result<V, CodecError>
    where
        F: Format<V>,
    {
        let (header, written) = bytes.split_first_chunk::<HEADER>().ok_or(CodecError::Unknown)?;
        let [m0, m1, version, format, compression, zero, l0, l1, l2, l3] = *header;
        if [m0, m1] != MAGIC || version != VERSION || zero != 0 {
            return Err(CodecError::Unknown);
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let length = usize::try_from(length).ok().filter(|length| *length <= VALUE_MAX);
        let length = length.ok_or(CodecError::Size)?;
        let plain = self.packing.unpack(compression, written, length)?;
        if plain.len() != length {
            return Err(CodecError::Size);
        }
        self.format.read(format, &plain)
    }
}

/// How long a value was before it was compressed, as its header says.
pub(crate) fn plain_length(written: &[u8]) -> usize {
    let length = written.get(6..HEADER).and_then(|length| length.try_into().ok());
    let length = length.map_or(0, u32::from_le_bytes);
    usize::try_from(length).unwrap_or(usize::MAX)
}

impl Packing {
    fn threshold(&self) -> usize {
        #[cfg(feature = "compression-dictionary")]
        if self.dictionaries.writer().is_some() {
            return self.threshold.unwrap_or(THRESHOLD_ALIKE);
        }
        self.threshold.unwrap_or(THRESHOLD)
    }

    /// Compresses what stands behind the room for a header, where that pays; and says how.
    fn pack(&self, out: &mut Vec<u8>) -> Result<u8, CodecError> {
        let plain = &out[HEADER..];
        if plain.len() < self.threshold() {
            return Ok(compression::NONE);
        }
        let (id, smaller) = self.smaller(plain)?;
        let Some(smaller) = smaller.filter(|smaller| smaller.len() < plain.len()) else {
            return Ok(compression::NONE);
        };
        out.truncate(HEADER);
        out.extend_from_slice(&smaller);
        Ok(id)
    }

    fn smaller(&self, plain: &[u8]) -> Result<(u8, Option<Vec<u8>>), CodecError> {
        #[cfg(feature = "compression-dictionary")]
        if let Some(dictionary) = self.dictionaries.writer() {
            return Ok((compression::DICTIONARY, Some(dictionary.compress(plain)?)));
        }
        Ok((self.compression.id(), self.compression.compress(plain)?))
    }

    fn unpack<'a>(
        &self,
        compression: u8,
        written: &'a [u8],
        length: usize,
    ) -> Result<std::borrow::Cow<'a, [u8]>, CodecError> {
        if compression != compression::DICTIONARY {
            return Compression::of(compression)?.decompress(written, length);
        }
        #[cfg(feature = "compression-dictionary")]
        return self.dictionaries.decompress(written, length).map(Into::into);
        #[cfg(not(feature = "compression-dictionary"))]
        Err(CodecError::NotBuiltIn("compression-dictionary"))
    }
}

/// A codec of one type of values, with its own type out of sight.
pub(crate) trait DynCodec<V>: Send + Sync {
    fn encode(&self, value: &V) -> Result<Bytes, CodecError>;
    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError>;
}

impl<V, F: Format<V> + Send + Sync> DynCodec<V> for Codec<F> {
    fn encode(&self, value: &V) -> Result<Bytes, CodecError> {
        Self::encode(self, value)
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError> {
        Self::decode(self, bytes)
    }
}

#[cfg(all(
    test,
    feature = "serde-msgpack",
    feature = "serde-json",
    feature = "serde-postcard",
    feature = "compression-gzip",
    feature = "compression-lz4",
    feature = "compression-zstd",
    feature = "compression-brotli",
    feature = "compression-snappy",
    feature = "compression-dictionary"
))]
mod tests;
