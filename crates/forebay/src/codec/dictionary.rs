//! zstd with a dictionary, which holds the common parts of many small values once.

use std::fmt;
use std::io;
use std::sync::Arc;

use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe::get_dict_id_from_dict;

use crate::codec::CodecError;
use crate::codec::compression::ZSTD_LEVEL;

/// Maximum size of a dictionary in bytes. Its prepared form takes several times as much memory.
const BYTES_MAX: usize = 1 << 20;

/// Maximum number of dictionaries that one codec reads: enough for several generations.
const KNOWN_MAX: usize = 16;

/// Length of a dictionary id in front of the compressed bytes.
const ID_LENGTH: usize = 4;

/// A zstd dictionary, trained from sample values. Clones share one dictionary.
///
/// Store its [bytes](Self::bytes) where all instances can read them: an instance without the
/// dictionary cannot decode values that were compressed with it, and loads them again.
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
/// // In another process:
/// let dictionary = Dictionary::from_bytes(kept)?;
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
    /// Trains a dictionary of up to `bytes_max` bytes, at most 1 MiB, from serialized values. They
    /// must not have the header or the compression of a codec. See
    /// [`Codec::train`](crate::codec::Codec::train) for values that are not encoded.
    ///
    /// # Errors
    /// The sample is too small for a dictionary.
    pub fn train(sample: &[impl AsRef<[u8]>], bytes_max: usize) -> Result<Self, CodecError> {
        let sample: Vec<&[u8]> = sample.iter().map(AsRef::as_ref).collect();
        Self::from_bytes(zstd::dict::from_samples(&sample, bytes_max.min(BYTES_MAX))?)
    }

    /// Creates a dictionary from the bytes that [`bytes`](Self::bytes) returned.
    ///
    /// # Errors
    /// The bytes are not a Zstandard dictionary with an id, or more than 1 MiB.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self, CodecError> {
        let bytes = bytes.into().into_boxed_slice();
        if bytes.len() > BYTES_MAX {
            return Err(CodecError::DictionaryTooLarge(bytes.len()));
        }
        let id = get_dict_id_from_dict(&bytes).ok_or(CodecError::NotADictionary)?.get();
        let encoder = EncoderDictionary::try_copy(&bytes, ZSTD_LEVEL)?;
        let decoder = DecoderDictionary::try_copy(&bytes)?;
        Ok(Self(Arc::new(Inner { id, bytes, encoder, decoder })))
    }

    /// Returns the bytes of the dictionary, to store for [`from_bytes`](Self::from_bytes).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Returns the id of the dictionary, which every value that is compressed with it names. It
    /// depends on the sample, so two dictionaries seldom have the same id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id
    }

    pub(super) fn compress(&self, plain: &[u8]) -> io::Result<Vec<u8>> {
        let compressed = Compressor::with_prepared_dictionary(&self.0.encoder)?.compress(plain)?;
        let mut out = Vec::with_capacity(ID_LENGTH + compressed.len());
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
    /// The dictionaries for decompression, `writer` included.
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

    /// Adds a dictionary for decompression, and drops the oldest one above [`KNOWN_MAX`].
    pub(super) fn read_with(&mut self, dictionary: &Dictionary) {
        self.known.retain(|known| known.id() != dictionary.id());
        if self.known.len() == KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push(dictionary.clone());
    }

    /// Decompresses a value of up to `length` bytes with the dictionary that it names.
    pub(super) fn decompress(&self, encoded: &[u8], length: usize) -> Result<Vec<u8>, CodecError> {
        let (id, compressed) =
            encoded.split_first_chunk::<ID_LENGTH>().ok_or(CodecError::Unknown)?;
        let id = u32::from_le_bytes(*id);
        let known = self.known.iter().find(|known| known.id() == id);
        let dictionary = known.ok_or(CodecError::UnknownDictionary(id))?;
        let mut decompressor = Decompressor::with_prepared_dictionary(&dictionary.0.decoder)?;
        Ok(decompressor.decompress(compressed, length)?)
    }
}
