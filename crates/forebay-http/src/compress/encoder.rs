//! Codecs of the content codings, with the levels of this cache.

use std::fmt;
use std::io::{self, Write};

use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_semantics::coding::Coding;

/// Level of zstd, of 1 to 22: above it, the additional time outweighs the additional compression.
const ZSTD_LEVEL: i32 = 6;

/// Quality of Brotli, of 0 to 11: above it, the additional time outweighs the additional compression.
const BROTLI_QUALITY: u32 = 5;

/// Logarithm of the window of Brotli, in bytes: the default of the format.
const BROTLI_WINDOW: u32 = 22;

/// Size in bytes of the buffer between Brotli and its output.
const BROTLI_BUFFER: usize = 4 << 10;

/// Level of gzip, of 0 to 9: the default of its tools.
const GZIP_LEVEL: u32 = 6;

/// Encoder of one body in a content coding.
pub(crate) enum Encoder {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    // Some hundred bytes larger than the others.
    Br(Box<CompressorWriter<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// Creates an encoder of a body of `length` bytes, if that is known.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn new(coding: Coding, length: Option<u64>) -> io::Result<Self> {
        Ok(match coding {
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.set_pledged_src_size(length)?;
                Self::Zstd(encoder)
            }
            Coding::Br => {
                let (quality, window) = (BROTLI_QUALITY, BROTLI_WINDOW);
                let encoder = CompressorWriter::new(Vec::new(), BROTLI_BUFFER, quality, window);
                Self::Br(Box::new(encoder))
            }
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL))),
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Zstd(encoder) => encoder,
            Self::Br(encoder) => &mut **encoder,
            Self::Gzip(encoder) => encoder,
        }
    }

    fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Br(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
        }
    }

    /// Encodes the next bytes.
    ///
    /// # Errors
    /// If the codec fails.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer().write_all(bytes)
    }

    /// Moves all that was written to the output, so that a client can decode it.
    ///
    /// # Errors
    /// If the codec fails.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// Returns the number of bytes in the output.
    pub(crate) fn ready(&mut self) -> usize {
        self.output().len()
    }

    /// Takes the output so far.
    pub(crate) fn take(&mut self) -> Bytes {
        std::mem::take(self.output()).into()
    }

    /// Ends the body, and returns the rest of the output.
    ///
    /// # Errors
    /// If the codec fails.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(encoder) => encoder.finish(),
            Self::Br(encoder) => Ok(encoder.into_inner()),
            Self::Gzip(encoder) => encoder.finish(),
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zstd(_) => "Encoder(zstd)",
            Self::Br(_) => "Encoder(br)",
            Self::Gzip(_) => "Encoder(gzip)",
        })
    }
}

/// Encodes a complete body. `None` if the result is longer than `limit`.
///
/// # Errors
/// If the codec fails.
pub(crate) fn encode(
    coding: Coding,
    length: u64,
    pieces: impl Iterator<Item = io::Result<Bytes>>,
    limit: u64,
) -> io::Result<Option<Vec<u8>>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut encoder = Encoder::new(coding, Some(length))?;
    for piece in pieces {
        encoder.write(&piece?)?;
        if encoder.ready() > limit {
            return Ok(None);
        }
    }
    Ok(Some(encoder.finish()?).filter(|bytes| bytes.len() <= limit))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;

    use super::*;

    /// Decodes a body, as a client does.
    pub(crate) fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let read = match coding {
            Coding::Zstd => zstd::stream::read::Decoder::new(bytes)
                .and_then(|mut decoder| decoder.read_to_end(&mut plain)),
            Coding::Br => brotli::Decompressor::new(bytes, BROTLI_BUFFER).read_to_end(&mut plain),
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain),
        };
        read.unwrap_or_else(|error| panic!("{}: {error}", coding.name()));
        plain
    }

    fn text(length: usize) -> Vec<u8> {
        let lines = (0..).flat_map(|n: usize| format!("line {n} of {}\n", n * n).into_bytes());
        lines.take(length).collect()
    }

    fn pieces(plain: &[u8], size: usize) -> impl Iterator<Item = io::Result<Bytes>> {
        plain.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece)))
    }

    #[test]
    fn each_coding_decodes_to_the_body() {
        for coding in Coding::ALL {
            for length in [1, 1_000, 100_000, 1_000_000] {
                let plain = text(length);
                let made = encode(coding, length as u64, pieces(&plain, 64 << 10), u64::MAX);
                let made = made.expect("it encodes").expect("there is no limit");
                assert_eq!(decode(coding, &made), plain, "{coding:?} {length}");
                if length >= 1_000 {
                    assert!(made.len() < length / 2, "{coding:?} {length}: {}", made.len());
                }
            }
        }
    }

    #[test]
    fn a_result_above_the_limit_is_none() {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[7]
        })
        .take(300_000)
        .collect();
        for coding in Coding::ALL {
            let limit = noise.len() as u64 * 9 / 10;
            let made = encode(coding, noise.len() as u64, pieces(&noise, 64 << 10), limit);
            assert!(made.expect("it encodes").is_none(), "{coding:?}");
            let broken = std::iter::once(Err(io::Error::other("gone")));
            assert!(encode(coding, 9, broken, 9).is_err(), "{coding:?}");
        }
    }

    #[test]
    fn flushed_output_has_all_that_was_written() {
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding, None).expect("memory");
            encoder.write(b"data: 1\n\n").expect("it encodes");
            encoder.flush().expect("it flushes");
            let mut all = encoder.take().to_vec();
            assert!(!all.is_empty(), "{coding:?}");
            encoder.write(b"data: 2\n\n").expect("it encodes");
            all.extend(encoder.finish().expect("it ends"));
            assert_eq!(decode(coding, &all), b"data: 1\n\ndata: 2\n\n", "{coding:?}");
        }
    }
}
