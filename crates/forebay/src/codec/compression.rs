//! Compressions. Each of them gives back no more than was announced, whatever it is fed.

use std::borrow::Cow;

use crate::codec::CodecError;

/// The level that zstd itself recommends.
#[cfg(feature = "compression-zstd")]
const ZSTD_LEVEL: i32 = 3;

/// How written values are made smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// What every other tool can read.
    #[cfg(feature = "compression-gzip")]
    Gzip,
    /// The fastest, and the largest.
    #[cfg(feature = "compression-lz4")]
    Lz4,
    /// Smaller than gzip, and several times as fast.
    #[cfg(feature = "compression-zstd")]
    Zstd,
}

const NONE: u8 = 0;
const GZIP: u8 = 1;
const LZ4: u8 = 2;
const ZSTD: u8 = 3;

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
        }
    }

    pub(super) const fn of(id: u8) -> Result<Self, CodecError> {
        match id {
            NONE => Ok(Self::None),
            #[cfg(feature = "compression-gzip")]
            GZIP => Ok(Self::Gzip),
            #[cfg(not(feature = "compression-gzip"))]
            GZIP => Err(CodecError::NotBuiltIn("compression-gzip")),
            #[cfg(feature = "compression-lz4")]
            LZ4 => Ok(Self::Lz4),
            #[cfg(not(feature = "compression-lz4"))]
            LZ4 => Err(CodecError::NotBuiltIn("compression-lz4")),
            #[cfg(feature = "compression-zstd")]
            ZSTD => Ok(Self::Zstd),
            #[cfg(not(feature = "compression-zstd"))]
            ZSTD => Err(CodecError::NotBuiltIn("compression-zstd")),
            _ => Err(CodecError::Unknown),
        }
    }

    /// These bytes compressed, if that makes them smaller.
    pub(super) fn smaller(self, plain: &[u8]) -> Result<Option<Vec<u8>>, CodecError> {
        let folded: Option<Vec<u8>> = match self {
            Self::None => None,
            #[cfg(feature = "compression-gzip")]
            Self::Gzip => Some(gzip::fold(plain)?),
            #[cfg(feature = "compression-lz4")]
            Self::Lz4 => Some(lz4_flex::block::compress(plain)),
            #[cfg(feature = "compression-zstd")]
            Self::Zstd => Some(zstd::bulk::compress(plain, ZSTD_LEVEL)?),
        };
        Ok(folded.filter(|folded| folded.len() < plain.len()))
    }

    /// What was compressed, which is so many bytes; or an error, before it is more.
    pub(super) fn unfold(self, folded: &[u8], length: usize) -> Result<Cow<'_, [u8]>, CodecError> {
        #[cfg(not(any(
            feature = "compression-gzip",
            feature = "compression-lz4",
            feature = "compression-zstd"
        )))]
        let _ = length;
        match self {
            Self::None => Ok(folded.into()),
            #[cfg(feature = "compression-gzip")]
            Self::Gzip => Ok(gzip::unfold(folded, length)?.into()),
            #[cfg(feature = "compression-lz4")]
            Self::Lz4 => {
                let plain = lz4_flex::block::decompress(folded, length);
                plain.map(Cow::Owned).map_err(CodecError::format)
            }
            #[cfg(feature = "compression-zstd")]
            Self::Zstd => Ok(zstd::bulk::decompress(folded, length)?.into()),
        }
    }
}

#[cfg(feature = "compression-gzip")]
mod gzip {
    use std::io::{self, Read, Write};

    use flate2::Compression;
    use flate2::read::GzDecoder;
    use flate2::write::GzEncoder;

    pub(super) fn fold(plain: &[u8]) -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain)?;
        encoder.finish()
    }

    /// One byte more than announced is taken, so that more than announced is noticed.
    pub(super) fn unfold(folded: &[u8], length: usize) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        GzDecoder::new(folded).take(length as u64 + 1).read_to_end(&mut plain)?;
        Ok(plain)
    }
}
