//! The encoding of values in tiers below memory.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 2 | magic: `f7 76` |
//! | 2 | 1 | version: 1 |
//! | 3 | 1 | format: 0 raw bytes, 1 MessagePack, 2 JSON, 3 postcard |
//! | 4 | 1 | compression: 0 none, 1 gzip, 2 lz4 (one block), 3 zstd, 4 brotli, 5 snappy, 6 zstd with a dictionary |
//! | 5 | 1 | 0 |
//! | 6 | 4 | length before compression in bytes, little-endian |
//! | 10 | 4 | with compression 6 only: id of the dictionary, little-endian |
//! | 10 or 14 | | the encoded value |
//!
//! The header names format and compression. So a cache can read values that another codec wrote, if
//! the features of both are built in, and a rolling deployment can change the codec. Only raw bytes
//! and the other formats cannot read each other. A value that cannot be decoded is a miss, and
//! [counted](crate::Stats::decode_failures). The codec does not detect corrupt bytes: the tier's
//! record has a digest.
//!
//! | format | feature | use |
//! |---|---|---|
//! | [`Raw`] | | values that are bytes already |
//! | `MessagePack` | `serde-msgpack` | the default choice |
//! | `Json` | `serde-json` | values whose text is inspected in debugging |
//! | `Postcard` | `serde-postcard` | smallest and fastest; a changed type needs a new cache name |
//!
//! | compression | feature | use |
//! |---|---|---|
//! | `Lz4`, `Snappy` | `compression-lz4`, `-snappy` | when speed matters more than size |
//! | `Zstd` | `compression-zstd` | the default choice |
//! | `Gzip`, `Brotli` | `compression-gzip`, `-brotli` | text, when size matters more than speed |
//! | `Dictionary` | `compression-dictionary` | many small values of similar content |

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

/// Default minimum length, in bytes, of a value that is compressed: shorter ones save too little.
const THRESHOLD: usize = 1 << 10;

/// Default threshold, in bytes, with a dictionary, which also shrinks short values. Below it the
/// header of the zstd frame dominates.
#[cfg(feature = "compression-dictionary")]
const DICTIONARY_THRESHOLD: usize = 64;

/// Maximum length of an uncompressed value in bytes, so that a few bytes cannot decompress into all
/// of memory.
const VALUE_MAX: usize = 64 << 20;

/// The reason why a value cannot be encoded or decoded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The format (MessagePack, JSON, postcard, …) cannot represent the value, or the stored bytes
    /// are not a value of the expected type in the format that their header names.
    #[error(
        "the codec's format cannot represent the value, or the stored bytes are not a value of the \
             expected type: {0}"
    )]
    Format(Arc<str>),
    /// The compression library failed: while compressing a value, while decompressing stored bytes
    /// that are damaged, or while training or preparing a dictionary.
    #[error("a value or dictionary cannot be compressed or decompressed: {0}")]
    Compression(Arc<str>),
    /// The stored bytes do not begin with a header that this version of the codec reads: another
    /// program or a later version of forebay wrote them.
    #[error(
        "the stored bytes have no header of this codec: another program or a later version of \
             forebay wrote them"
    )]
    Unknown,
    /// The bytes given to `Dictionary::from_bytes` are not a Zstandard dictionary with an id.
    #[error("the bytes are not a Zstandard dictionary with an id")]
    NotADictionary,
    /// The dictionary has this number of bytes, and the maximum is 1 MiB.
    #[error("the dictionary has {0} bytes, and the maximum is 1 MiB")]
    DictionaryTooLarge(usize),
    /// The stored value has a format or a compression that needs the named Cargo feature of
    /// forebay, which is not enabled.
    #[error("the stored value needs the Cargo feature {0} of forebay, which is not enabled")]
    NotBuiltIn(&'static str),
    /// The stored value was compressed with the dictionary with this id, which this codec does not
    /// have.
    #[error(
        "the stored value needs dictionary {0:08x}, which the codec of this cache does not have"
    )]
    UnknownDictionary(u32),
    /// The encoded value has this number of bytes before compression, or the header of stored bytes
    /// states it, and the maximum is 64 MiB.
    #[error("the encoded value has {0} bytes before compression, and the maximum is 64 MiB")]
    TooLarge(usize),
    /// The stored value does not decompress to this length in bytes, which its header states: the
    /// stored bytes are damaged.
    #[error("the stored value does not decompress to the {0} bytes that its header states")]
    WrongLength(usize),
}

impl CodecError {
    pub(crate) fn format(cause: impl std::fmt::Display) -> Self {
        Self::Format(cause.to_string().into())
    }

    pub(crate) fn compression(cause: impl std::fmt::Display) -> Self {
        Self::Compression(cause.to_string().into())
    }
}

/// Compression libraries return I/O errors; formats do not.
impl From<io::Error> for CodecError {
    fn from(error: io::Error) -> Self {
        Self::compression(error)
    }
}

/// An encoding of values: a format with an optional compression.
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
    settings: CompressionSettings,
}

/// The compression settings of a codec.
#[derive(Clone, Debug, Default)]
struct CompressionSettings {
    compression: Compression,
    threshold: Option<usize>,
    #[cfg(feature = "compression-dictionary")]
    dictionaries: dictionary::Dictionaries,
}

impl<F> Codec<F> {
    /// Creates a codec with this format and without compression.
    pub fn new(format: F) -> Self {
        Self { format, settings: CompressionSettings::default() }
    }

    /// Sets the compression of encoded values that are at least [`threshold`](Self::threshold)
    /// bytes long. A value that would not become smaller stays uncompressed. A
    /// `dictionary` takes precedence. Default: no compression.
    pub const fn compressed(mut self, compression: Compression) -> Self {
        self.settings.compression = compression;
        self
    }

    /// Sets the minimum length, in bytes, from which encoded values are compressed. Default: 1 KiB;
    /// 64 bytes with a dictionary.
    pub const fn threshold(mut self, bytes: usize) -> Self {
        self.settings.threshold = Some(bytes);
        self
    }

    /// Compresses values with zstd and this dictionary, in place of
    /// [`compressed`](Self::compressed) and of an earlier dictionary, and decodes values that were
    /// compressed with it. Values that an earlier dictionary compressed can still be decoded.
    #[cfg(feature = "compression-dictionary")]
    pub fn dictionary(mut self, dictionary: &Dictionary) -> Self {
        self.settings.dictionaries.write_with(dictionary);
        self
    }

    /// Adds a dictionary for reading only: values that were compressed with it can be decoded. Use
    /// it for the previous dictionary, or for the next one during a rolling deployment. A codec
    /// reads at most 16 dictionaries, and drops the one that was added first.
    #[cfg(feature = "compression-dictionary")]
    pub fn also_reads(mut self, dictionary: &Dictionary) -> Self {
        self.settings.dictionaries.read_with(dictionary);
        self
    }

    /// Trains a dictionary of up to `bytes_max` bytes, at most 1 MiB, from sample values. 16 KiB
    /// are enough for most types. Use at least several hundred values; more than ten thousand bring
    /// little.
    ///
    /// # Errors
    /// The format cannot represent a value, or the sample is too small for a dictionary.
    #[cfg(feature = "compression-dictionary")]
    pub fn train<'v, V: 'v>(
        &self,
        sample: impl IntoIterator<Item = &'v V>,
        bytes_max: usize,
    ) -> Result<Dictionary, CodecError>
    where
        F: Format<V>,
    {
        let encode = |value| {
            let mut out = Vec::new();
            self.format.write(value, &mut out).map(|()| out)
        };
        let sample: Vec<Vec<u8>> = sample.into_iter().map(encode).collect::<Result<_, _>>()?;
        Dictionary::train(&sample, bytes_max)
    }

    /// Encodes a value as header, format and compression of this codec.
    ///
    /// # Errors
    /// The format cannot represent the value, the encoded value is larger than 64 MiB, or the
    /// compression library fails.
    pub fn encode<V>(&self, value: &V) -> Result<Bytes, CodecError>
    where
        F: Format<V>,
    {
        let mut out = vec![0; HEADER];
        self.format.write(value, &mut out)?;
        let plain = out.len() - HEADER;
        let length = u32::try_from(plain).ok().filter(|_| plain <= VALUE_MAX);
        let length = length.ok_or(CodecError::TooLarge(plain))?;
        let compression = self.settings.compress(&mut out)?;
        out[..2].copy_from_slice(&MAGIC);
        out[2..6].copy_from_slice(&[VERSION, F::ID, compression, 0]);
        out[6..HEADER].copy_from_slice(&length.to_le_bytes());
        Ok(out.into_boxed_slice().into())
    }

    /// Decodes a value, also if a codec with another compression or another serde format wrote it.
    ///
    /// # Errors
    /// The bytes are damaged, have no header of a codec, are not a value of this type, or were
    /// larger than 64 MiB before compression. Or they need a Cargo feature or a dictionary that
    /// this codec does not have. [`Raw`] decodes raw bytes only, and no other format decodes those.
    pub fn decode<V>(&self, bytes: &[u8]) -> Result<V, CodecError>
    where
        F: Format<V>,
    {
        let (header, encoded) = bytes.split_first_chunk::<HEADER>().ok_or(CodecError::Unknown)?;
        let [m0, m1, version, format, compression, zero, l0, l1, l2, l3] = *header;
        if [m0, m1] != MAGIC || version != VERSION || zero != 0 {
            return Err(CodecError::Unknown);
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > VALUE_MAX {
            return Err(CodecError::TooLarge(length));
        }
        let plain = self.settings.decompress(compression, encoded, length)?;
        if plain.len() != length {
            return Err(CodecError::WrongLength(length));
        }
        self.format.read(format, &plain)
    }
}

/// Returns the length of an encoded value before compression, in bytes, from its header.
pub(crate) fn plain_length(encoded: &[u8]) -> usize {
    let length = encoded.get(6..HEADER).and_then(|length| length.try_into().ok());
    let length = length.map_or(0, u32::from_le_bytes);
    usize::try_from(length).unwrap_or(usize::MAX)
}

impl CompressionSettings {
    fn threshold(&self) -> usize {
        #[cfg(feature = "compression-dictionary")]
        if self.dictionaries.writer().is_some() {
            return self.threshold.unwrap_or(DICTIONARY_THRESHOLD);
        }
        self.threshold.unwrap_or(THRESHOLD)
    }

    /// Compresses the bytes after the header if that makes them smaller. Returns the id of the
    /// compression.
    fn compress(&self, out: &mut Vec<u8>) -> Result<u8, CodecError> {
        let plain = &out[HEADER..];
        if plain.len() < self.threshold() {
            return Ok(compression::NONE);
        }
        let (id, compressed) = self.compressed(plain)?;
        let Some(compressed) = compressed.filter(|bytes| bytes.len() < plain.len()) else {
            return Ok(compression::NONE);
        };
        out.truncate(HEADER);
        out.extend_from_slice(&compressed);
        Ok(id)
    }

    /// Returns the id of the compression, and the compressed bytes unless there is none.
    fn compressed(&self, plain: &[u8]) -> Result<(u8, Option<Vec<u8>>), CodecError> {
        #[cfg(feature = "compression-dictionary")]
        if let Some(dictionary) = self.dictionaries.writer() {
            return Ok((compression::DICTIONARY, Some(dictionary.compress(plain)?)));
        }
        Ok((self.compression.id(), self.compression.compress(plain)?))
    }

    fn decompress<'a>(
        &self,
        compression: u8,
        encoded: &'a [u8],
        length: usize,
    ) -> Result<std::borrow::Cow<'a, [u8]>, CodecError> {
        if compression != compression::DICTIONARY {
            return Compression::of(compression)?.decompress(encoded, length);
        }
        #[cfg(feature = "compression-dictionary")]
        return self.dictionaries.decompress(encoded, length).map(Into::into);
        #[cfg(not(feature = "compression-dictionary"))]
        Err(CodecError::NotBuiltIn("compression-dictionary"))
    }
}

/// A codec for one type of values, with its format erased.
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
