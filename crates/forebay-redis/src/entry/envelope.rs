//! The bytes of a value in Redis: a frame of [`forebay_core::frame`] in an envelope.
//!
//! This table is the specification of version 4. All numbers are little-endian and unsigned.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | magic: `FBR` and a non-text byte (hex `46 42 52 f8`) |
//! | 4 | 1 | version |
//! | 5 | 1 | codec of the frame: 0 none, 1 zstd, 2 LZ4 (block) |
//! | 6 | 1 | flags: 1 signature follows; others are 0 |
//! | 7 | 8 | TTL in Redis, in milliseconds |
//! | 15 | 8 | length of the uncompressed frame |
//! | 23 | 8 | earliest time on the server's clock at encoding, in ms; 0 if unknown |
//! | 31 | 8 | stamp: random number that identifies this value |
//! | 39 | 4 | length of the label |
//! | 43 | 8 | XXH3-64, seed 0, over the name of the value, bytes 0 to 42, and the label |
//! | 51 | 8 | purge token: the only bytes that a script replaces |
//! | 59 | 32 | the signature, if flagged |
//! | | | the purge label, see `generation.rs`; empty if purges are not shared |
//! | | | the compressed frame |
//!
//! The signature is the HMAC-SHA-256 of the SHA-256 of: the name's length in 8 bytes, the name,
//! bytes 0 to 50, the label, and the compressed frame.
//!
//! The frame has its own digest, and the key within it is compared in full. The signature also
//! covers the name, so that a value cannot be moved to another namespace. It does not prevent a
//! replay of an old value by a program that can write to Redis.
//!
//! Neither digest nor signature covers the purge token. A soft purge of a key replaces it in the
//! value of the primary key. There it makes an entry stale unless it is 0. The record that lists
//! variants always has one; each variant is stored with a copy, and is stale if the two differ: so
//! is one that outlived its record. A token never makes a stale entry fresh that is stale by age.
//!
//! Any change increments [`VERSION`]; a reader accepts its own version only.
//!
//! # Age
//!
//! A frame records the age of its entry when it was encoded. The time since then in Redis is a
//! difference on the server's clock; clocks of two machines are never compared. It is one of:
//!
//! - The latest possible time now (`server_clock`) minus the earliest possible time at encoding, in
//!   milliseconds since the epoch, or 0 if unknown.
//! - The TTL that the value was given minus its remaining TTL. The remaining TTL is read *before*
//!   the value in the same round trip: if another value replaces it in between, the new one appears
//!   older than it is, and never younger.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::frame::{self, Arrival, Decoded, FrameError};
use forebay_core::{KeyRef, Position, Timestamp};
use ring::{digest as sha, hmac};
use smallvec::SmallVec;
use twox_hash::XxHash3_64;

use crate::entry::pack::{self, Packed, Packing};

/// Version of the format of values in Redis that is written, and the only one that is read.
pub const VERSION: u8 = 4;

/// Maximum bytes of a frame beyond `object_max`: key, metadata, and the head of an HTTP response. A
/// value of the library is a head without a body, of at most `object_max` bytes.
pub(crate) const REST_MAX: u64 = 512 << 10;

/// Maximum bytes of a label: more than the largest number of tags needs.
pub(crate) const LABEL_MAX: usize = 128 << 10;

const MAGIC: [u8; 4] = *b"FBR\xf8";
const AUTHENTIC: u8 = 1;
const FROM_AT: usize = 23;
/// Offset of the stamp, which scripts also read.
pub(crate) const STAMP_AT: usize = 31;

/// End of the stamp.
pub(crate) const STAMP_END: u64 = STAMP_AT as u64 + 8;
const LABEL_LEN_AT: usize = 39;
const DIGEST_AT: usize = 43;
const DIGEST_END: usize = 51;
/// Offset of the purge token, which scripts replace.
pub(crate) const TOKEN_AT: usize = DIGEST_END;
const HEADER_END: usize = TOKEN_AT + 8;
const CODE_LEN: usize = 32;

/// Typical total bytes of name and header.
const DIGESTED_TYPICAL: usize = 320;

/// Maximum time by which a value's residence may exceed its TTL: the travel time of a reply. The
/// frame says that it is stale then.
const OVERSTAY_MAX: Duration = Duration::from_secs(1);

/// Size limit, compression and signature of the values in Redis.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// Maximum size of a body in bytes. Larger bodies are neither stored nor accepted.
    pub object_max: u64,
    /// Compression of the values.
    pub packing: Packing,
    /// Key that signs values. With a key, values without a valid signature are rejected; without
    /// one, signed values are rejected.
    pub key: Option<SealKey>,
}

/// Secret key that signs and verifies values in Redis (HMAC-SHA-256).
#[derive(Clone)]
pub struct SealKey(hmac::Key);

impl SealKey {
    /// Creates a key from a secret of any length; 32 random bytes are recommended.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

/// Prints the type name only, never the secret.
impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey")
    }
}

/// Reason why a value in Redis is not the requested entry. Each of these is a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undecodable {
    /// Another program wrote the value, or it is not a string.
    #[error("the Redis value was not written by forebay")]
    Foreign,
    /// The value has this format version, and not [`VERSION`].
    #[error(
        "the Redis value has format version {0}, and this version of forebay reads {VERSION} \
             only"
    )]
    OtherVersion(u8),
    /// The signature of the value is wrong or missing, or present although the reader has no key.
    #[error(
        "the signature of the Redis value is missing or invalid, or the value is signed and this \
         instance has no key"
    )]
    Unauthentic,
    /// The value claims this uncompressed size in bytes, above the limit or above 256 times its
    /// stored size.
    #[error(
        "the Redis value claims an uncompressed size of {0} bytes, above the size limit or above \
         256 times its stored size"
    )]
    Unbelievable(u64),
    /// The value is truncated, damaged, or does not decompress to its claimed size.
    #[error("the Redis value is damaged")]
    Damaged,
    /// The value was stored while the server's clock was unknown, and its remaining TTL was not
    /// read, so its age is unknown.
    #[error(
        "the age of the Redis value is unknown: it was stored while the server's clock was \
             unknown, and its remaining TTL was not read"
    )]
    Unstamped,
    /// The value has no TTL or a longer one than it was given, because another program changed it
    /// or the server's clock went back. Its age is unknown.
    #[error(
        "the age of the Redis value is unknown: its TTL was changed, or the server's clock \
             went back"
    )]
    Ageless,
    /// The envelope of the value is valid, but the serialized entry in it is not.
    #[error("the Redis value contains an invalid entry: {0}")]
    Frame(FrameError),
}

/// Information about a value that was read from Redis, from which its age is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Source of the time that the value has been in Redis.
    pub age_source: AgeSource,
    /// Time of the request on this process's clock, before the value was sent.
    pub asked: Timestamp,
}

/// Source from which the time that a value has been in Redis is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeSource {
    /// Remaining TTL of the value in Redis; `None` if it has none.
    Left(Option<Duration>),
    /// Latest possible time on the server's clock, since the epoch.
    Now(Duration),
}

/// Times that are recorded with a value in Redis, so that a reader can compute its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// TTL of the value in Redis when it was stored.
    pub ttl: Duration,
    /// Earliest possible time on the server's clock when the frame was encoded, since the epoch;
    /// `None` if unknown.
    pub from: Option<Duration>,
}

/// Data that a value in Redis carries beside the serialized entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Random number that identifies this value among all values stored under its name.
    pub stamp: u64,
    /// Purge label: the purge generations of the entry's tags and site when it was stored; at most
    /// 128 KiB. Empty if the writer did not share purges.
    pub label: Bytes,
    /// Purge token; 0 for an entry without variants that was not softly purged.
    pub token: u64,
}

/// Decoded content of a value in Redis.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedValue {
    /// Entry in the value.
    pub entry: Decoded,
    /// Data that the value carries beside the entry.
    pub annotations: Annotations,
}

/// Encodes a serialized entry as the value that is stored in Redis under `name`: compressed, with a
/// digest and, if `sealing` has a key, a signature.
pub fn seal(
    frame: &[u8],
    name: &str,
    retention: Retention,
    annotations: &Annotations,
    sealing: &Sealing,
) -> Vec<u8> {
    let (how, packed) = pack::pack(frame, sealing.packing);
    let label = &annotations.label;
    let mut out = Vec::with_capacity(HEADER_END + CODE_LEN + label.len() + packed.len());
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
    out.push(how.number());
    out.push(if sealing.key.is_some() { AUTHENTIC } else { 0 });
    out.extend_from_slice(&millis(retention.ttl).to_le_bytes());
    out.extend_from_slice(&(frame.len() as u64).to_le_bytes());
    out.extend_from_slice(&retention.from.map_or(0, millis).to_le_bytes());
    out.extend_from_slice(&annotations.stamp.to_le_bytes());
    out.extend_from_slice(&u32::try_from(label.len()).unwrap_or(u32::MAX).to_le_bytes());
    let digest = digest(name, &out, label);
    out.extend_from_slice(&digest);
    out.extend_from_slice(&annotations.token.to_le_bytes());
    if let Some(SealKey(key)) = &sealing.key {
        let signed = signed(name, &out[..DIGEST_END], label, &packed);
        out.extend_from_slice(hmac::sign(key, signed.as_ref()).as_ref());
    }
    out.extend_from_slice(label);
    out.extend_from_slice(&packed);
    out
}

/// Decodes the value that was read from Redis under `name`, and verifies that it is the entry of
/// `key`.
///
/// `value` is untrusted. Allocation is limited to 256 times its length, and to the largest value
/// that `sealing` allows.
///
/// # Errors
/// [`Undecodable`] if the value is not a valid entry of this key.
pub fn open(
    value: &Bytes,
    name: &str,
    key: KeyRef<'_>,
    receipt: Receipt,
    sealing: &Sealing,
) -> Result<OpenedValue, Undecodable> {
    let (header, packed) = Header::read(value, name, sealing)?;
    let resided = header.resided(receipt.age_source)?;
    let claimed = header.claimed_len(&packed, sealing)?;
    let frame = match header.how {
        Packed::Plain => packed,
        how => pack::unpack(how, &packed, claimed).ok_or(Undecodable::Damaged)?.into(),
    };
    let arrival = Arrival { now: receipt.asked, resided, position: Position::default() };
    let entry = frame::decode(&frame, key, arrival).map_err(Undecodable::Frame)?;
    Ok(OpenedValue { entry, annotations: header.annotations })
}

/// Returns the first bytes of every value of this format version.
pub(crate) const fn value_prefix() -> [u8; 5] {
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, VERSION]
}

/// Returns the stamp of bytes that begin like a value, valid or not.
pub(crate) fn stamp_of(value: &[u8]) -> Option<u64> {
    let stamp = value.get(STAMP_AT..STAMP_AT + size_of::<u64>())?;
    Some(u64::from_le_bytes(stamp.try_into().ok()?))
}

/// Returns the maximum bytes of a value.
pub(crate) const fn value_max(object_max: u64) -> u64 {
    object_max.saturating_add(REST_MAX).saturating_add((HEADER_END + CODE_LEN + LABEL_MAX) as u64)
}

struct Header {
    how: Packed,
    ttl: Duration,
    claimed: u64,
    /// Milliseconds since the epoch, or 0 if unknown.
    from: u64,
    annotations: Annotations,
}

impl Header {
    /// Parses the header, and returns it with the packed frame behind it.
    fn read(value: &Bytes, name: &str, sealing: &Sealing) -> Result<(Self, Bytes), Undecodable> {
        if !value.starts_with(&MAGIC) {
            return Err(Undecodable::Foreign);
        }
        match value.get(MAGIC.len()) {
            None => return Err(Undecodable::Damaged),
            Some(&VERSION) => {}
            Some(&other) => return Err(Undecodable::OtherVersion(other)),
        }
        let (header, rest) = value.split_first_chunk::<HEADER_END>().ok_or(Undecodable::Damaged)?;
        let coded = match header[6] {
            0 => 0,
            AUTHENTIC => CODE_LEN,
            _ => return Err(Undecodable::Damaged),
        };
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let label_len = u32::from_le_bytes(std::array::from_fn(|at| header[LABEL_LEN_AT + at]));
        let label_len = usize::try_from(label_len).ok().filter(|length| *length <= LABEL_MAX);
        let label_len = label_len.ok_or(Undecodable::Damaged)?;
        let (code, rest) = rest.split_at_checked(coded).ok_or(Undecodable::Damaged)?;
        let (label, packed) = rest.split_at_checked(label_len).ok_or(Undecodable::Damaged)?;
        if header[DIGEST_AT..DIGEST_END] != digest(name, &header[..DIGEST_AT], label) {
            return Err(Undecodable::Damaged);
        }
        check_code(
            code,
            || signed(name, &header[..DIGEST_END], label, packed),
            sealing.key.as_ref(),
        )?;
        let how = Packed::of_number(header[5]).ok_or(Undecodable::Damaged)?;
        let label_at = HEADER_END + coded;
        let label = value.slice(label_at..label_at + label_len);
        let annotations = Annotations { stamp: number(STAMP_AT), label, token: number(TOKEN_AT) };
        let (ttl, claimed) = (Duration::from_millis(number(7)), number(15));
        let header = Self { how, ttl, claimed, from: number(FROM_AT), annotations };
        Ok((header, value.slice(label_at + label_len..)))
    }

    /// Returns the time that the value has been in Redis.
    fn resided(&self, age_source: AgeSource) -> Result<Duration, Undecodable> {
        let resided = match age_source {
            AgeSource::Left(left) => left.and_then(|left| self.ttl.checked_sub(left)),
            AgeSource::Now(_) if self.from == 0 => return Err(Undecodable::Unstamped),
            AgeSource::Now(now) => {
                let resided = now.checked_sub(Duration::from_millis(self.from));
                resided.filter(|resided| *resided <= self.ttl.saturating_add(OVERSTAY_MAX))
            }
        };
        resided.ok_or(Undecodable::Ageless)
    }

    fn claimed_len(&self, packed: &[u8], sealing: &Sealing) -> Result<usize, Undecodable> {
        let unbelievable = Undecodable::Unbelievable(self.claimed);
        let claimed = usize::try_from(self.claimed).map_err(|_| unbelievable)?;
        let is_small = self.claimed <= sealing.object_max.saturating_add(REST_MAX);
        let is_believed = is_small && pack::is_believed(claimed, packed);
        is_believed.then_some(claimed).ok_or(unbelievable)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Compares in constant time if there is a key.
fn check_code(
    code: &[u8],
    signed: impl FnOnce() -> sha::Digest,
    key: Option<&SealKey>,
) -> Result<(), Undecodable> {
    let is_right = match key {
        None => code.is_empty(),
        Some(SealKey(key)) => hmac::verify(key, signed().as_ref(), code).is_ok(),
    };
    is_right.then_some(()).ok_or(Undecodable::Unauthentic)
}

/// Returns the SHA-256 digest of the signed bytes.
fn signed(name: &str, header: &[u8], label: &[u8], packed: &[u8]) -> sha::Digest {
    let mut hash = sha::Context::new(&sha::SHA256);
    hash.update(&(name.len() as u64).to_le_bytes());
    hash.update(name.as_bytes());
    hash.update(header);
    hash.update(label);
    hash.update(packed);
    hash.finish()
}

fn digest(name: &str, header: &[u8], label: &[u8]) -> [u8; DIGEST_END - DIGEST_AT] {
    // Copied into one buffer: a streaming hash state would be larger than all of it.
    let mut all: SmallVec<[u8; DIGESTED_TYPICAL]> = SmallVec::from_slice(name.as_bytes());
    all.extend_from_slice(header);
    all.extend_from_slice(label);
    XxHash3_64::oneshot(&all).to_le_bytes()
}

#[cfg(test)]
mod tests;
