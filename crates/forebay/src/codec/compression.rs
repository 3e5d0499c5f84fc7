//! Compression algorithms. Each decompresses no more than the length in the header, whatever its
//! input.

use std::borrow::Cow;

use crate::codec::CodecError;

/// The default level of zstd.
#[cfg(feature = "compression-zstd")]
pub(super) const ZSTD_LEVEL: i32 = 3;

/// Compression algorithm for encoded values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression of encoded values.
    #[default]
    None,
    /// gzip compression: slower than zstd, with larger results.
    #[cfg(feature = "compression-gzip")]
    Gzip,
    /// lz4 compression: the fastest, with the largest results.
    #[cfg(feature = "compression-lz4")]
    Lz4,
    /// zstd compression at level 3: smaller results than gzip, and several times as fast.
    #[cfg(feature = "compression-zstd")]
    Zstd,
    /// brotli compression at quality 5: the smallest results for text, and the slowest to compress.
    #[cfg(feature = "compression-brotli")]
    Brotli,
    /// snappy compression: nearly as fast as lz4, with similar results.
    #[cfg(feature = "compression-snappy")]
    Snappy,
}

pub(super) const NONE: u8 = 0;
const GZIP: u8 = 1;
const LZ4: u8 = 2;
const ZSTD: u8 = 3;
const BROTLI: u8 = 4;
const SNAPPY: u8 = 5;
/// zstd with a dictionary, whose id precedes the compressed bytes. Not a [`Compression`], because
/// it needs a [`Dictionary`](super::Dictionary).
pub(super) const DICTIONARY: u8 = 6;

impl Compression {
    pub(super) const fn id(self) -> u8 {
        match self {
            Self::None => NONE,
            #[cfg(feature = "compression-gzip")]
            Self::Gzip => GZIP,
            #[cfg(feature = "compression-lz4")]
            Self::Lz4 => LZ4,
            #[cfg(feature = "compression-zstd")]
            Self::Zstd => ZSTD,
            #[cfg(feature = "compression-brotli")]
            Self::Brotli => BROTLI,
            #[cfg(feature = "compression-snappy")]
            Self::Snappy => SNAPPY,
        }
    }

    pub(super) const fn of(id: u8) -> Result<Self, CodecError> {
        match id {
            NONE => Ok(Self::None),
            #[cfg(feature = "compression-gzip")]
            GZIP => Ok(Self::Gzip),
            #[cfg(feature = "compression-lz4")]
            LZ4 => Ok(Self::Lz4),
            #[cfg(feature = "compression-zstd")]
            ZSTD => Ok(Self::Zstd),
            #[cfg(feature = "compression-brotli")]
            BROTLI => Ok(Self::Brotli),
            #[cfg(feature = "compression-snappy")]
            SNAPPY => Ok(Self::Snappy),
            _ => Err(unavailable(id)),
        }
    }

    /// Compresses bytes. Returns `None` for [`Compression::None`].
    pub(super) fn compress(self, plain: &[u8]) -> Result<Option<Vec<u8>>, CodecError> {
        let _ = plain;
        Ok(match self {
            Self::None => None,
            #[cfg(feature = "compression-gzip")]
            Self::Gzip => Some(gzip::compress(plain)?),
            #[cfg(feature = "compression-lz4")]
            Self::Lz4 => Some(lz4_flex::block::compress(plain)),
            #[cfg(feature = "compression-zstd")]
            Self::Zstd => Some(zstd::bulk::compress(plain, ZSTD_LEVEL)?),
            #[cfg(feature = "compression-brotli")]
            Self::Brotli => Some(brotli_coding::compress(plain)?),
            #[cfg(feature = "compression-snappy")]
            Self::Snappy => {
                let compressed = snap::raw::Encoder::new().compress_vec(plain);
                Some(compressed.map_err(CodecError::compression)?)
            }
        })
    }

    /// Decompresses to `length` bytes. Fails before it produces many more; the caller checks for
    /// fewer.
    pub(super) fn decompress(
        self,
        compressed: &[u8],
        length: usize,
    ) -> Result<Cow<'_, [u8]>, CodecError> {
        let _ = length;
        match self {
            Self::None => Ok(compressed.into()),
            #[cfg(feature = "compression-gzip")]
            Self::Gzip => Ok(gzip::decompress(compressed, length)?.into()),
            #[cfg(feature = "compression-lz4")]
            Self::Lz4 => {
                let plain = lz4_flex::block::decompress(compressed, length);
                plain.map(Cow::Owned).map_err(CodecError::compression)
            }
            #[cfg(feature = "compression-zstd")]
            Self::Zstd => Ok(zstd::bulk::decompress(compressed, length)?.into()),
            #[cfg(feature = "compression-brotli")]
            Self::Brotli => Ok(brotli_coding::decompress(compressed, length)?.into()),
            #[cfg(feature = "compression-snappy")]
            Self::Snappy => snappy::decompress(compressed, length).map(Cow::Owned),
        }
    }
}

/// Returns the error for an algorithm that is not built in, or not known.
const fn unavailable(id: u8) -> CodecError {
    match id {
        GZIP => CodecError::NotBuiltIn("compression-gzip"),
        LZ4 => CodecError::NotBuiltIn("compression-lz4"),
        ZSTD => CodecError::NotBuiltIn("compression-zstd"),
        BROTLI => CodecError::NotBuiltIn("compression-brotli"),
        SNAPPY => CodecError::NotBuiltIn("compression-snappy"),
        _ => CodecError::Unknown,
    }
}

#[cfg(feature = "compression-gzip")]
mod gzip {
    use std::io::{self, Read, Write};

    use flate2::Compression;
    use flate2::read::GzDecoder;
    use flate2::write::GzEncoder;

    pub(super) fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain)?;
        encoder.finish()
    }

    /// Reads one byte more than `length`, so that the caller detects a wrong length.
    pub(super) fn decompress(compressed: &[u8], length: usize) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        GzDecoder::new(compressed).take(length as u64 + 1).read_to_end(&mut plain)?;
        Ok(plain)
    }
}

#[cfg(feature = "compression-brotli")]
mod brotli_coding {
    use std::io::{self, Read};

    use brotli::enc::BrotliEncoderParams;

    /// Quality, of 0 to 11: above 5, the additional time outweighs the additional compression.
    const QUALITY: i32 = 5;

    /// Size of the read buffer in bytes.
    const BUFFER: usize = 4 << 10;

    pub(super) fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
        let parameters = BrotliEncoderParams { quality: QUALITY, ..BrotliEncoderParams::default() };
        let mut compressed = Vec::new();
        brotli::BrotliCompress(&mut &*plain, &mut compressed, &parameters)?;
        Ok(compressed)
    }

    /// Reads one byte more than `length`, so that the caller detects a wrong length.
    pub(super) fn decompress(compressed: &[u8], length: usize) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        let reader = brotli::Decompressor::new(compressed, BUFFER);
        reader.take(length as u64 + 1).read_to_end(&mut plain)?;
        Ok(plain)
    }
}

#[cfg(feature = "compression-snappy")]
mod snappy {
    use snap::raw::{Decoder, decompress_len};

    use crate::codec::CodecError;

    /// Checks the length in the snappy header first, because the decoder allocates that much.
    pub(super) fn decompress(compressed: &[u8], length: usize) -> Result<Vec<u8>, CodecError> {
        if decompress_len(compressed).map_err(CodecError::compression)? != length {
            return Err(CodecError::WrongLength(length));
        }
        Decoder::new().decompress_vec(compressed).map_err(CodecError::compression)
    }
}
