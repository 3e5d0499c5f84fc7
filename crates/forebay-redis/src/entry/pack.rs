//! Compression of stored values, with bounds on decompression.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};

/// Minimum size of a value, in bytes, that is compressed and decompressed on a blocking thread. For
/// smaller values the switch costs more than the work.
pub(crate) const BLOCKING_FROM: usize = 64 << 10;

/// Maximum ratio of decompressed to compressed bytes. A value that compresses better is stored
/// uncompressed, and a larger claim is rejected before decompression. With this, 64 MiB of zeros, 6
/// KiB in zstd, can claim at most 1.5 MiB.
pub(crate) const RATIO_MAX: usize = 256;

/// Compression settings of values in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Compression of written values. A value that would not shrink, or would shrink to less than
    /// a 256th, stays uncompressed. Each value names its compression, so readers accept all.
    pub codec: Codec,
    /// Minimum size of a value in bytes for compression; smaller values hardly shrink.
    pub threshold: usize,
}

impl Default for Packing {
    /// zstd at level 1 from 1 KiB on: nearly as small as at its default level, in half of the time.
    fn default() -> Self {
        Self { codec: Codec::Zstd { level: 1 }, threshold: 1 << 10 }
    }
}

/// Compression algorithm of values in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// Values are not compressed.
    None,
    /// Zstandard compression.
    Zstd {
        /// Level from 1 to 22; other levels count as the nearest.
        level: i32,
    },
    /// LZ4 compression: faster than zstd, with larger results.
    Lz4,
}

/// Codec of one value, as its envelope names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    Plain,
    Zstd,
    Lz4,
}

impl Packed {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Zstd => 1,
            Self::Lz4 => 2,
        }
    }

    pub(crate) const fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            1 => Some(Self::Zstd),
            2 => Some(Self::Lz4),
            _ => None,
        }
    }
}

/// Maximum bytes that are compressed with the thread's own context. A context grows with its input:
/// a few hundred KiB at level 1, a few MiB at level 22.
const SHORT_MAX: usize = BLOCKING_FROM;

thread_local! {
    // Creating a context costs more than using it.
    static DECOMPRESSOR: RefCell<Decompressor<'static>> = RefCell::default();
    // The level that the context is set to, if any.
    static COMPRESSOR: RefCell<(Option<i32>, Compressor<'static>)> = RefCell::default();
}

/// Compresses `plain` if that pays, and returns the codec with the bytes.
pub(crate) fn pack(plain: &[u8], packing: Packing) -> (Packed, Cow<'_, [u8]>) {
    let as_it_is = (Packed::Plain, Cow::Borrowed(plain));
    if plain.len() < packing.threshold.max(1) {
        return as_it_is;
    }
    let packed = match packing.codec {
        Codec::None => return as_it_is,
        Codec::Zstd { level } => {
            let level = level.clamp(1, 22);
            compressed(plain, level).ok().map(|packed| (Packed::Zstd, packed))
        }
        Codec::Lz4 => Some((Packed::Lz4, lz4_flex::block::compress(plain))),
    };
    // Kept only if smaller, and if a reader will accept the ratio.
    let is_kept = |packed: &Vec<u8>| packed.len() < plain.len() && is_believed(plain.len(), packed);
    match packed.filter(|(_, packed)| is_kept(packed)) {
        Some((how, packed)) => (how, Cow::Owned(packed)),
        None => as_it_is,
    }
}

fn compressed(plain: &[u8], level: i32) -> io::Result<Vec<u8>> {
    if plain.len() >= SHORT_MAX {
        return Compressor::new(level)?.compress(plain);
    }
    COMPRESSOR.with_borrow_mut(|(set, zstd)| {
        if *set != Some(level) {
            *set = None;
            zstd.set_compression_level(level)?;
            *set = Some(level);
        }
        zstd.compress(plain)
    })
}

/// Returns whether the claimed size is within the ratio limit.
pub(crate) fn is_believed(claimed: usize, packed: &[u8]) -> bool {
    claimed <= packed.len().saturating_mul(RATIO_MAX)
}

/// Decompresses to exactly `claimed` bytes; `None` if there are more, fewer or none.
///
/// The destination is the only buffer: both formats decompress into it and stop at its end. The
/// memory is therefore bounded by `claimed`, which the caller has limited.
pub(crate) fn unpack(how: Packed, packed: &[u8], claimed: usize) -> Option<Vec<u8>> {
    let plain = match how {
        Packed::Plain => packed.to_vec(),
        Packed::Zstd => {
            DECOMPRESSOR.with_borrow_mut(|zstd| zstd.decompress(packed, claimed)).ok()?
        }
        Packed::Lz4 => lz4_flex::block::decompress(packed, claimed).ok()?,
    };
    (plain.len() == claimed).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Codec] = &[Codec::Zstd { level: 1 }, Codec::Zstd { level: 99 }, Codec::Lz4];

    fn text(length: usize) -> Vec<u8> {
        let lines = (0_u64..).map(|at| format!("line {} of a page\n", at * at % 7_919));
        lines.flat_map(String::into_bytes).take(length).collect()
    }

    #[test]
    fn compressed_value_round_trips() {
        let plain = text(20_000);
        for codec in ALL {
            let (how, packed) = pack(&plain, Packing { codec: *codec, threshold: 1 });
            assert_ne!(how, Packed::Plain, "{codec:?}");
            assert!(packed.len() < plain.len() / 2, "{codec:?} {}", packed.len());
            assert_eq!(unpack(how, &packed, plain.len()).as_deref(), Some(&plain[..]));
            assert_eq!(Packed::of_number(how.number()), Some(how));
        }
    }

    #[test]
    fn compression_contexts_are_independent() {
        let (one, other, large) = (text(3_000), text(20_000), text(200_000));
        let fresh = |plain: &[u8], level| Compressor::new(level).unwrap().compress(plain).unwrap();
        for level in [1, 19, 1, 3] {
            for plain in [&one, &other, &large, &one] {
                let (how, packed) =
                    pack(plain, Packing { codec: Codec::Zstd { level }, threshold: 1 });
                assert_eq!((how, &*packed), (Packed::Zstd, &*fresh(plain, level)), "{level}");
            }
        }
    }

    #[test]
    fn incompressible_value_is_stored_uncompressed() {
        let noise: Vec<u8> = (0..5_000_u64)
            .map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).to_le_bytes()[5])
            .collect();
        for codec in ALL {
            let packing = Packing { codec: *codec, threshold: 0 };
            assert_eq!(pack(&noise[..20], packing).0, Packed::Plain);
            assert!(pack(&noise, packing).1.len() <= noise.len());
            assert_eq!(pack(&[], packing), (Packed::Plain, Cow::Borrowed(&[][..])));
        }
    }

    #[test]
    fn small_value_is_not_compressed() {
        let plain = text(999);
        for codec in ALL {
            assert_eq!(pack(&plain, Packing { codec: *codec, threshold: 1_000 }).0, Packed::Plain);
        }
        let none = Packing { codec: Codec::None, threshold: 0 };
        assert_eq!(pack(&plain, none).0, Packed::Plain);
    }

    #[test]
    fn implausible_ratio_is_stored_uncompressed() {
        let zeros = vec![0; 4 << 20];
        let (how, packed) = pack(&zeros, Packing::default());
        assert_eq!((how, packed.len()), (Packed::Plain, zeros.len()));
        let (how, packed) = pack(&zeros, Packing { codec: Codec::Lz4, threshold: 0 });
        assert!(is_believed(zeros.len(), &packed), "{how:?}");
    }

    #[test]
    fn wrong_claimed_size_is_rejected() {
        let plain = text(10_000);
        for codec in ALL {
            let (how, packed) = pack(&plain, Packing { codec: *codec, threshold: 0 });
            for claimed in [0, 1, plain.len() - 1, plain.len() + 1] {
                assert_eq!(unpack(how, &packed, claimed), None, "{codec:?} {claimed}");
            }
            assert_eq!(unpack(how, &packed[..packed.len() - 1], plain.len()), None);
            assert_eq!(unpack(how, b"", plain.len()), None);
        }
    }
}
