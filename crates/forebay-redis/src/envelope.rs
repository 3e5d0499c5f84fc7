//! The bytes of a value in Redis: a frame of [`forebay_core::frame`] in an envelope.
//!
//! This table is the specification of version 3. All numbers are little-endian and unsigned.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | magic: `FBR` and a byte that is no text (hex `46 42 52 f8`) |
//! | 4 | 1 | version |
//! | 5 | 1 | how the frame is packed: 0 as it is, 1 zstd, 2 LZ4 (block) |
//! | 6 | 1 | flags: 1 a code of authenticity follows; others are 0 |
//! | 7 | 8 | how long Redis was told to keep it, in milliseconds |
//! | 15 | 8 | length of the frame before it was packed |
//! | 23 | 8 | the server's clock when the frame was made, at the earliest, in ms; 0 if unknown |
//! | 31 | 8 | stamp: random, tells this value from others that stand in its place |
//! | 39 | 4 | length of the label |
//! | 43 | 8 | XXH3-64, seed 0, over the name of the value, bytes 0 to 42, and the label |
//! | 51 | 32 | where flagged: the code of authenticity |
//! | | | the label: which purges the entry knew of, see `era.rs`; empty where nobody keeps count |
//! | | | the packed frame |
//!
//! The code is the HMAC-SHA-256 of the SHA-256 of: the name's length in 8 bytes, the name, bytes 0
//! to 50, the label, and the packed frame.
//!
//! The frame has a digest of its own, and the key within it is compared in full. The code of
//! authenticity also covers the name, so that a value cannot be moved to another namespace. It
//! does not stop somebody who can write to Redis from putting an old value back.
//!
//! Any change takes the next [`VERSION`]; a reader knows its own version alone.
//!
//! # Age
//!
//! A frame says how old the entry was when it was made. How long it has been in Redis since then
//! is a difference on one clock, that of the server; the clocks of two machines are never compared.
//! There are two ways to know it:
//!
//! - What the server's clock shows now, at the latest (`server_clock`), minus what it showed, at
//!   the earliest, when the frame was made: milliseconds since the epoch, or 0 where nobody knew.
//! - What the value was given to live, minus what Redis says is left. That has to be asked *before*
//!   the value is read, in the same round trip: if another value takes its place in between, the
//!   new one counts as older than it is, and never as younger.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::frame::{self, Arrival, Decoded, FrameError};
use forebay_core::{KeyRef, Position, Timestamp};
use ring::{digest as sha, hmac};
use smallvec::SmallVec;
use twox_hash::XxHash3_64;

use crate::pack::{self, Packed, Packing};

/// The version that is written, and the only one that is read.
pub const VERSION: u8 = 3;

/// What a frame may have beside its body: key, meta and head. Doors bound heads far below this.
pub(crate) const REST_MAX: u64 = 512 << 10;

/// What a label may have at most: more than the largest number of tags needs.
pub(crate) const LABEL_MAX: usize = 128 << 10;

const MAGIC: [u8; 4] = *b"FBR\xf8";
const AUTHENTIC: u8 = 1;
const FROM_AT: usize = 23;
/// Where the stamp stands, which scripts look at.
pub(crate) const STAMP_AT: usize = 31;

/// Where it ends.
pub(crate) const STAMP_END: u64 = STAMP_AT as u64 + 8;
const LABEL_LEN_AT: usize = 39;
const DIGEST_AT: usize = 43;
const DIGEST_END: usize = 51;
const CODE_LEN: usize = 32;

/// As many bytes as nearly all names and headers have together.
const DIGESTED_TYPICAL: usize = 320;

/// How much longer something may seem to have been in Redis than it was given: what an answer may
/// be under way. Its frame says that it is stale then.
const OVERSTAY_MAX: Duration = Duration::from_secs(1);

/// What it takes to write and to read envelopes.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// Bodies up to this size are stored, and believed.
    pub object_max: u64,
    /// How frames are packed.
    pub packing: Packing,
    /// The key for the code of authenticity. With one, values without the right code are none;
    /// without one, values with a code are none.
    pub key: Option<SealKey>,
}

/// The secret that values are signed with.
#[derive(Clone)]
pub struct SealKey(hmac::Key);

impl SealKey {
    /// From a secret of any length; 32 random bytes are a good one.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

/// Never shows the secret.
impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey")
    }
}

/// Why a value is no entry. Each of these is a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undecodable {
    /// Something else wrote these bytes, or they are no string.
    #[error("not a value of ours")]
    Foreign,
    /// Another version of the envelope.
    #[error("a value of version {0}")]
    OtherVersion(u8),
    /// Its code of authenticity is wrong, missing, or cannot be checked.
    #[error("not signed with our key")]
    Unauthentic,
    /// It claims to be larger than any value may be, or than its bytes can hold.
    #[error("a claim of {0} bytes that is not believed")]
    Unbelievable(u64),
    /// It was cut, damaged, or does not unpack into what it claims.
    #[error("damaged")]
    Damaged,
    /// It does not say when it was made, and what is left of its time was not asked.
    #[error("its age has to be asked for")]
    Unstamped,
    /// It has no end in Redis, or a later one than it was given: somebody else keeps it alive, or
    /// the server's clock was turned back. How old it is cannot be known.
    #[error("its age cannot be known")]
    Ageless,
    /// The envelope is sound, but not the frame within.
    #[error("{0}")]
    Frame(FrameError),
}

/// What Redis says of a value, beside the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// By what its age can be known.
    pub term: Term,
    /// When it was asked for, on this process's clock: it may have been sent any time after.
    pub asked: Timestamp,
}

/// What Redis says of the time of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// How long Redis will keep it; nothing if it has no end.
    Left(Option<Duration>),
    /// What its clock shows now, at the latest, since the epoch.
    Now(Duration),
}

/// What an envelope says of the time of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// How long Redis is told to keep it.
    pub kept: Duration,
    /// What the server's clock showed, at the earliest, when the frame was made.
    pub from: Option<Duration>,
}

/// What a value carries beside its frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marking {
    /// Tells it from other values of its name.
    pub stamp: u64,
    /// Which purges it knew of; at most 128 KiB.
    pub label: Bytes,
}

/// What is in an envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// The entry.
    pub entry: Decoded,
    /// What stands beside it.
    pub marking: Marking,
}

/// Puts a frame into an envelope for the value of this name.
pub fn seal(
    frame: &[u8],
    (name, stay): (&str, Stay),
    marking: &Marking,
    sealing: &Sealing,
) -> Vec<u8> {
    let (how, packed) = pack::pack(frame, sealing.packing);
    let label = &marking.label;
    let mut out = Vec::with_capacity(DIGEST_END + CODE_LEN + label.len() + packed.len());
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
    out.push(how.number());
    out.push(if sealing.key.is_some() { AUTHENTIC } else { 0 });
    out.extend_from_slice(&millis(stay.kept).to_le_bytes());
    out.extend_from_slice(&(frame.len() as u64).to_le_bytes());
    out.extend_from_slice(&stay.from.map_or(0, millis).to_le_bytes());
    out.extend_from_slice(&marking.stamp.to_le_bytes());
    out.extend_from_slice(&u32::try_from(label.len()).unwrap_or(u32::MAX).to_le_bytes());
    let digest = digest((name, &out), label);
    out.extend_from_slice(&digest);
    if let Some(SealKey(key)) = &sealing.key {
        let signed = signed((name, &out), label, &packed);
        out.extend_from_slice(hmac::sign(key, signed.as_ref()).as_ref());
    }
    out.extend_from_slice(label);
    out.extend_from_slice(&packed);
    out
}

/// The entry in the value of this name, if it is one of this key.
///
/// Nothing in `value` is trusted. What is allocated is bounded by 256 times the
/// bytes at hand, and by the largest value that `sealing` allows.
pub fn open(
    value: &Bytes,
    (name, key): (&str, KeyRef<'_>),
    receipt: Receipt,
    sealing: &Sealing,
) -> Result<Opened, Undecodable> {
    let (header, packed) = Header::read(value, name, sealing)?;
    let resided = header.resided(receipt.term)?;
    let claimed = header.claimed_len(&packed, sealing)?;
    let frame = match header.how {
        Packed::Plain => packed,
        how => pack::unpack(how, &packed, claimed).ok_or(Undecodable::Damaged)?.into(),
    };
    let arrival = Arrival { now: receipt.asked, resided, position: Position::default() };
    let entry = frame::decode(&frame, key, arrival).map_err(Undecodable::Frame)?;
    Ok(Opened { entry, marking: header.marking })
}

/// What all values of ours begin with that can be read.
pub(crate) const fn beginning() -> [u8; 5] {
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, VERSION]
}

/// The stamp of bytes that begin like a value, sound or not: whoever looks again says with it what
/// has been seen.
pub(crate) fn stamp_of(value: &[u8]) -> Option<u64> {
    let stamp = value.get(STAMP_AT..STAMP_AT + size_of::<u64>())?;
    Some(u64::from_le_bytes(stamp.try_into().ok()?))
}

/// How large a value may be at most.
pub(crate) const fn value_max(object_max: u64) -> u64 {
    object_max.saturating_add(REST_MAX).saturating_add((DIGEST_END + CODE_LEN + LABEL_MAX) as u64)
}

struct Header {
    how: Packed,
    kept: Duration,
    claimed: u64,
    /// In milliseconds since the epoch, or 0.
    from: u64,
    marking: Marking,
}

impl Header {
    /// The header, and the packed frame behind it.
    fn read(value: &Bytes, name: &str, sealing: &Sealing) -> Result<(Self, Bytes), Undecodable> {
        if !value.starts_with(&MAGIC) {
            return Err(Undecodable::Foreign);
        }
        match value.get(MAGIC.len()) {
            None => return Err(Undecodable::Damaged),
            Some(&VERSION) => {}
            Some(&other) => return Err(Undecodable::OtherVersion(other)),
        }
        let (header, rest) = value.split_first_chunk::<DIGEST_END>().ok_or(Undecodable::Damaged)?;
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
        if header[DIGEST_AT..] != digest((name, &header[..DIGEST_AT]), label) {
            return Err(Undecodable::Damaged);
        }
        check_code(code, || signed((name, header), label, packed), sealing.key.as_ref())?;
        let how = Packed::of_number(header[5]).ok_or(Undecodable::Damaged)?;
        let label_at = DIGEST_END + coded;
        let label = value.slice(label_at..label_at + label_len);
        let marking = Marking { stamp: number(STAMP_AT), label };
        let (kept, claimed) = (Duration::from_millis(number(7)), number(15));
        let header = Self { how, kept, claimed, from: number(FROM_AT), marking };
        Ok((header, value.slice(label_at + label_len..)))
    }

    /// How long it has been in Redis.
    fn resided(&self, term: Term) -> Result<Duration, Undecodable> {
        let resided = match term {
            Term::Left(left) => left.and_then(|left| self.kept.checked_sub(left)),
            Term::Now(_) if self.from == 0 => return Err(Undecodable::Unstamped),
            Term::Now(now) => {
                let resided = now.checked_sub(Duration::from_millis(self.from));
                resided.filter(|resided| *resided <= self.kept.saturating_add(OVERSTAY_MAX))
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

/// In constant time, where there is a key.
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

/// What is signed, hashed first: so it need not lie in one piece to be verified.
fn signed((name, header): (&str, &[u8]), label: &[u8], packed: &[u8]) -> sha::Digest {
    let mut hash = sha::Context::new(&sha::SHA256);
    hash.update(&(name.len() as u64).to_le_bytes());
    hash.update(name.as_bytes());
    hash.update(header);
    hash.update(label);
    hash.update(packed);
    hash.finish()
}

fn digest((name, header): (&str, &[u8]), label: &[u8]) -> [u8; DIGEST_END - DIGEST_AT] {
    // In one piece: a state that takes several is larger than all together.
    let mut all: SmallVec<[u8; DIGESTED_TYPICAL]> = SmallVec::from_slice(name.as_bytes());
    all.extend_from_slice(header);
    all.extend_from_slice(label);
    XxHash3_64::oneshot(&all).to_le_bytes()
}

#[cfg(test)]
mod tests;
