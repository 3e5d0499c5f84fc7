//! zstd with a dictionary: what values have in common is kept once, and not in each of them.

use std::fmt;
use std::io;
use std::sync::Arc;

use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe::get_dict_id_from_dict;

use crate::codec::CodecError;
use crate::codec::compression::ZSTD_LEVEL;

/// The largest dictionary: what is kept of it beside, prepared for use, is several times as much.
const BYTES_MAX: usize = 1 << 20;

/// How many dictionaries one codec reads: those of a few generations, and no list that grows.
const KNOWN_MAX: usize = 16;

/// What the number of a dictionary takes in front of what was written with it.
const NUMBER: usize = 4;

/// What many values have in common, learned from a sample of them. Clones are the same one.
///
/// Keep its [bytes](Self::bytes) where all instances find them: whoever does not have it cannot
/// read what was written with it, and loads it anew.
///
/// ```
/// use forebay::codec::{Codec, Dictionary, Json};
///
/// let link = |n| format!("https://shop.example/customers/{n}/orders?page={}&sort=newest", n % 7);
/// let row = |n: u32| (n, link(n), format!("order {} of the customer", n * 31 % 1_000));
/// let plain = Codec::new(Json);
/// let sample: Vec<_> = (0..500).map(row).collect();
/// let kept = plain.train(&sample, 4 << 10)?.bytes().to_vec();
///
/// // Elsewhere, and later:
/// let dictionary = Dictionary::of(kept)?;
/// let trained = plain.clone().dictionary(&dictionary);
/// assert!(trained.encode(&row(501))?.len() < plain.encode(&row(501))?.len());
/// # Ok::<(), forebay::codec::CodecError>(())
/// ```
#[derive(Clone)]
pub struct Dictionary(Arc<Inner>);

struct Inner {
    id: u32,
    bytes: Box<[u8]>,
    encoder: EncoderDictionary<'static>,
    decoder: DecoderDictionary<'static>,
}

impl Dictionary {
    /// Learns one from values as they are written, of up to so many bytes; of values of a cache
    /// see [`Codec::train`](crate::codec::Codec::train).
    ///
    /// # Errors
    /// If there is too little to learn from.
    pub fn train(sample: &[impl AsRef<[u8]>], bytes_max: usize) -> Result<Self, CodecError> {
        let sample: Vec<&[u8]> = sample.iter().map(AsRef::as_ref).collect();
        Self::of(zstd::dict::from_samples(&sample, bytes_max.min(BYTES_MAX))?)
    }

    /// One that was kept.
    ///
    /// # Errors
    /// If it is none, is larger than 1 MiB, or has no number.
    pub fn of(bytes: impl Into<Vec<u8>>) -> Result<Self, CodecError> {
        let bytes = bytes.into().into_boxed_slice();
        if bytes.len() > BYTES_MAX {
            return Err(CodecError::Size);
        }
        let id = get_dict_id_from_dict(&bytes).ok_or(CodecError::Unknown)?.get();
        let encoder = EncoderDictionary::try_copy(&bytes, ZSTD_LEVEL)?;
        let decoder = DecoderDictionary::try_copy(&bytes)?;
        Ok(Self(Arc::new(Inner { id, bytes, encoder, decoder })))
    }

    /// The bytes to keep.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Its number, which stands in front of all that is written with it: made of what it has
    /// learned, so that two dictionaries hardly ever have the same.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id
    }

    pub(super) fn compress(&self, plain: &[u8]) -> io::Result<Vec<u8>> {
        let compressed = Compressor::with_prepared_dictionary(&self.0.encoder)?.compress(plain)?;
        let mut out = Vec::with_capacity(NUMBER + compressed.len());
        out.extend_from_slice(&self.0.id.to_le_bytes());
        out.extend_from_slice(&compressed);
        Ok(out)
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({:08x}, {} bytes)", self.0.id, self.0.bytes.len())
    }
}

/// The dictionaries of one codec.
#[derive(Clone, Debug, Default)]
pub(super) struct Dictionaries {
    writer: Option<Dictionary>,
    /// All that can be read with, the one to write with among them.
    known: Vec<Dictionary>,
}

impl Dictionaries {
    pub(super) const fn writer(&self) -> Option<&Dictionary> {
        self.writer.as_ref()
    }

    pub(super) fn write_with(&mut self, dictionary: &Dictionary) {
        self.read_with(dictionary);
        self.writer = Some(dictionary.clone());
    }

    /// Beyond the bound the one that was named first is forgotten.
    pub(super) fn read_with(&mut self, dictionary: &Dictionary) {
        self.known.retain(|known| known.id() != dictionary.id());
        if self.known.len() == KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push(dictionary.clone());
    }

    /// What was written with one of them, which is so many bytes; or an error, before it is more.
    pub(super) fn decompress(&self, written: &[u8], length: usize) -> Result<Vec<u8>, CodecError> {
        let (id, compressed) = written.split_first_chunk::<NUMBER>().ok_or(CodecError::Unknown)?;
        let id = u32::from_le_bytes(*id);
        let known = self.known.iter().find(|known| known.id() == id);
        let dictionary = known.ok_or(CodecError::UnknownDictionary(id))?;
        let mut decompressor = Decompressor::with_prepared_dictionary(&dictionary.0.decoder)?;
        Ok(decompressor.decompress(compressed, length)?)
    }
}
