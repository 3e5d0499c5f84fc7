//! What values are written as in tiers below memory.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 2 | magic: `f7 76` |
//! | 2 | 1 | version: 1 |
//! | 3 | 1 | format: 0 raw bytes, 1 MessagePack, 2 JSON |
//! | 4 | 1 | compression: 0 none, 1 gzip, 2 lz4 (one block), 3 zstd |
//! | 5 | 1 | 0 |
//! | 6 | 4 | length before compression, little-endian |
//! | 10 | | the value |
//!
//! What was written says itself how to read it. So a cache reads what another wrote with another
//! codec, as far as both features are built in, and a codec is changed by deploying one instance
//! after the other. What cannot be read is a miss, and counted. Whether bytes are damaged is not
//! asked here: the frame around them has a digest.

mod compression;
mod format;

use std::io;
use std::sync::Arc;

use bytes::Bytes;

pub use compression::Compression;
#[cfg(feature = "serde-json")]
pub use format::Json;
#[cfg(feature = "serde-msgpack")]
pub use format::MessagePack;
pub use format::{Format, Raw};

const MAGIC: [u8; 2] = [0xf7, b'v'];

const VERSION: u8 = 1;

const HEADER: usize = 10;

/// Smaller values are not compressed unless told otherwise: what they save would not pay for it.
const THRESHOLD: usize = 1 << 10;

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
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Codec<F> {
    format: F,
    compression: Compression,
    threshold: usize,
}

impl<F> Codec<F> {
    /// This format, not compressed.
    pub const fn new(format: F) -> Self {
        Self { format, compression: Compression::None, threshold: THRESHOLD }
    }

    /// Compresses what is large enough, and keeps it where that makes it smaller.
    pub const fn compressed(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// How many bytes are large enough; 1 KiB unless told otherwise.
    pub const fn threshold(mut self, bytes: usize) -> Self {
        self.threshold = bytes;
        self
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
        let mut compression = Compression::None;
        if plain >= self.threshold
            && let Some(smaller) = self.compression.smaller(&out[HEADER..])?
        {
            compression = self.compression;
            out.truncate(HEADER);
            out.extend_from_slice(&smaller);
        }
        let length = u32::try_from(plain).map_err(|_| CodecError::Size)?;
        out[..2].copy_from_slice(&MAGIC);
        out[2..6].copy_from_slice(&[VERSION, F::ID, compression.id(), 0]);
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
        let plain = Compression::of(compression)?.unfold(written, length)?;
        if plain.len() != length {
            return Err(CodecError::Size);
        }
        self.format.read(format, &plain)
    }
}

/// A codec of one type of values, with its own type out of sight.
pub(crate) trait Coding<V>: Send + Sync {
    fn encode(&self, value: &V) -> Result<Bytes, CodecError>;
    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError>;
}

impl<V, F: Format<V> + Send + Sync> Coding<V> for Codec<F> {
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
    feature = "compression-gzip",
    feature = "compression-lz4",
    feature = "compression-zstd"
))]
mod tests;
