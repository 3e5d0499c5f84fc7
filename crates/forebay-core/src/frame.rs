//! Serialized entries for tiers below memory.
//!
//! This table is the specification of version 2. All numbers are little-endian and unsigned; a
//! *text* is its length in 2 bytes and then that many bytes.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | magic: `FBE` and a non-text byte (hex `46 42 45 f7`) |
//! | 4 | 1 | version |
//! | 5 | 16 | XXH3-128, seed 0, over bytes 0 to 4 and everything from byte 21 to the end |
//! | 21 | 4 | length of the key |
//! | 25 | 4 | length of the meta |
//! | 29 | 4 | length of the head |
//! | 33 | 8 | length of the body |
//! | 41 | | key, meta, head, body, without padding |
//!
//! The meta, in this order:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | age when the frame was made, in milliseconds |
//! | 8 | time since the load started, in milliseconds |
//! | 8 | freshness lifetime, in microseconds |
//! | 8 | stale-while-revalidate, in microseconds |
//! | 8 | stale-if-error, in microseconds |
//! | 8 | load cost, in microseconds |
//! | 1 | flags: 1 stale forbidden, 2 validator, 4 with a tag, 8 with a date, 16 absent; others 0 |
//! | 2 | number of tags, at most [`TAGS_MAX`] |
//! | 2 | number of selecting fields, at most [`VARY_MAX`] |
//! | | texts: validator tag and date where flagged, the tags, the names of the selecting fields |
//!
//! Every change to these tables increments [`VERSION`]. A reader accepts its own version only: a
//! frame of another version is a miss, and the next load overwrites it.
//!
//! A frame contains durations, never points in time, because monotonic clocks of two machines or two
//! boots cannot be compared. It contains no purge position, because positions count the purges of
//! one process. The digest detects accidental damage; it does not authenticate, so the contents are
//! not trusted even if the digest matches.

use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use twox_hash::xxhash3_128::{RawHasher, SecretBuffer};

use crate::entry::{Lifetime, Meta, Presence, Rare, Stale, Validator, Vary};
use crate::key::KeyRef;
use crate::tags::{Position, TagSet};
use crate::time::Timestamp;

/// Format version of the serialized entries (frames) that this version of forebay writes, and the
/// only one that it reads.
pub const VERSION: u8 = 2;

/// Maximum number of tags in a serialized entry: far more than fit into one response head, and few
/// enough that rejecting a hostile value is cheap.
pub const TAGS_MAX: usize = 4_096;

/// Maximum number of selecting fields in a serialized entry: no request has more fields.
pub const VARY_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"FBE\xf7";
const VERSION_AT: usize = MAGIC.len();
const DIGEST_AT: usize = VERSION_AT + 1;
const DIGEST_END: usize = DIGEST_AT + size_of::<u128>();
const HEADER_LEN: usize = DIGEST_END + 3 * size_of::<u32>() + size_of::<u64>();

const STALE_FORBIDDEN: u8 = 1;
const HAS_VALIDATOR: u8 = 2;
const VALIDATOR_TAG: u8 = 4;
const VALIDATOR_DATE: u8 = 8;
const ABSENT: u8 = 16;
const FLAGS: u8 = STALE_FORBIDDEN | HAS_VALIDATOR | VALIDATOR_TAG | VALIDATOR_DATE | ABSENT;

/// Entry to be serialized by [`encode`].
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Full key of the entry.
    pub key: KeyRef<'a>,
    /// Metadata of the entry. The purge position is not serialized.
    pub meta: &'a Meta,
    /// Head of the entry, as encoded by the front end.
    pub head: &'a [u8],
    /// Complete body of the entry, in any number of pieces.
    pub body: &'a [Bytes],
}

/// Context of a serialized entry that only the tier knows, for [`decode`].
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Current time on this process's clock.
    pub now: Timestamp,
    /// Time that the serialized entry spent in the tier, in whole milliseconds; it is added to the
    /// age of the entry.
    pub resided: Duration,
    /// Position of the purge log that the decoded entry gets: every later purge applies to it.
    pub position: Position,
}

/// Deserialized entry, from [`decode`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Metadata of the entry, relative to this process's clock and purge log.
    pub meta: Meta,
    /// Head of the entry as encoded by the front end: a slice of the serialized bytes.
    pub head: Bytes,
    /// Complete body of the entry: a slice of the serialized bytes.
    pub body: Bytes,
}

/// Reason why bytes are not the requested serialized entry. Each of these is a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The magic bytes of a serialized entry are missing: another program wrote these bytes.
    #[error("the bytes are not a serialized cache entry: their magic bytes differ")]
    NotAFrame,
    /// The serialized entry has this format version, and not [`VERSION`].
    #[error(
        "the serialized entry has format version {0}, and this version of forebay reads \
             {VERSION} only"
    )]
    OtherVersion(u8),
    /// The end of the serialized entry is missing: an unfinished write, or a short read.
    #[error("the serialized entry is truncated")]
    Cut,
    /// The digest of the serialized entry does not match, or extra bytes follow it.
    #[error("the serialized entry is damaged: its digest does not match, or extra bytes follow it")]
    Damaged,
    /// The serialized entry is complete, but has another key than the requested one.
    #[error("the serialized entry has another key than the requested one")]
    OtherKey,
    /// The digest of the serialized entry matches, but its contents are invalid: the writer was not
    /// forebay.
    #[error(
        "the serialized entry has a valid digest but invalid contents: forebay did not write \
             it"
    )]
    Malformed,
}

/// Error for an entry with a part, named in the message, that is too large to be serialized. The
/// entry is not serialized at all: without a tag, for example, a purge by that tag would miss it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the entry is not serialized, because it exceeds a limit of the format: {0}")]
pub struct Oversize(&'static str);

/// Serializes an entry at `now`. Durations are rounded down to the unit of their field.
///
/// # Errors
///
/// [`Oversize`] if the key, the meta or the head has 4 GiB or more, if a tag, a field name or a part
/// of the validator has 64 KiB or more, or if there are more than [`TAGS_MAX`] tags or [`VARY_MAX`]
/// selecting fields.
pub fn encode(frame: &Frame<'_>, now: Timestamp) -> Result<Bytes, Oversize> {
    let key = frame.key.bytes();
    let meta = encode_meta(frame.meta, now)?;
    let body_len: usize = frame.body.iter().map(Bytes::len).sum();
    let total = HEADER_LEN + key.len() + meta.len() + frame.head.len() + body_len;

    let mut out = Vec::with_capacity(total);
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
    out.extend_from_slice(&[0; DIGEST_END - DIGEST_AT]);
    let parts = [("key", key), ("metadata", &meta), ("head", frame.head)];
    for (name, part) in parts {
        let length = u32::try_from(part.len()).map_err(|_| Oversize(name))?;
        out.extend_from_slice(&length.to_le_bytes());
    }
    out.extend_from_slice(&(body_len as u64).to_le_bytes());
    for (_, part) in parts {
        out.extend_from_slice(part);
    }
    for piece in frame.body {
        out.extend_from_slice(piece);
    }
    seal(&mut out);
    Ok(out.into())
}

/// Deserializes the entry in these bytes, if they are a complete and undamaged frame for this key.
/// `arrival` gives the current time, the time that the frame spent in its tier (added to the age),
/// and the purge position that the entry gets.
///
/// `bytes` is untrusted: every length is checked before it is used, and allocations are bounded by
/// [`TAGS_MAX`], [`VARY_MAX`] and the number of bytes.
///
/// # Errors
///
/// [`FrameError`]: the reason why the bytes are not the requested entry.
pub fn decode(bytes: &Bytes, key: KeyRef<'_>, arrival: Arrival) -> Result<Decoded, FrameError> {
    let bounds = Bounds::read(bytes)?;
    if bytes[DIGEST_AT..DIGEST_END] != digest(bytes).to_le_bytes() {
        return Err(FrameError::Damaged);
    }
    if bytes[HEADER_LEN..bounds.key] != *key.bytes() {
        return Err(FrameError::OtherKey);
    }
    let meta = &bytes[bounds.key..bounds.meta];
    Ok(Decoded {
        meta: decode_meta(Reader(meta), arrival).ok_or(FrameError::Malformed)?,
        head: bytes.slice(bounds.meta..bounds.head),
        body: bytes.slice(bounds.head..),
    })
}

/// Returns the key of the entry in these bytes, without a check for damage. `None` if they are no
/// complete frame.
#[must_use]
pub fn key(bytes: &[u8]) -> Option<KeyRef<'_>> {
    let bounds = Bounds::read(bytes).ok()?;
    Some(KeyRef::of_bytes(&bytes[HEADER_LEN..bounds.key]))
}

/// End offsets of the parts, all within the bytes; the body ends with the bytes.
struct Bounds {
    key: usize,
    meta: usize,
    head: usize,
}

impl Bounds {
    fn read(bytes: &[u8]) -> Result<Self, FrameError> {
        if !MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            return Err(FrameError::NotAFrame);
        }
        match bytes.get(VERSION_AT) {
            None => return Err(FrameError::Cut),
            Some(&VERSION) => {}
            Some(&other) => return Err(FrameError::OtherVersion(other)),
        }
        let lengths = bytes.get(DIGEST_END..).ok_or(FrameError::Cut)?;
        // A sum that overflows claims more bytes than there are.
        let (bounds, total) = Self::add_up(Reader(lengths)).ok_or(FrameError::Cut)?;
        match total.cmp(&bytes.len()) {
            std::cmp::Ordering::Greater => Err(FrameError::Cut),
            std::cmp::Ordering::Less => Err(FrameError::Damaged),
            std::cmp::Ordering::Equal => Ok(bounds),
        }
    }

    fn add_up(mut lengths: Reader<'_>) -> Option<(Self, usize)> {
        let mut part = |from: usize| {
            let length = u32::from_le_bytes(lengths.array()?);
            from.checked_add(usize::try_from(length).ok()?)
        };
        let key = part(HEADER_LEN)?;
        let meta = part(key)?;
        let head = part(meta)?;
        let total = head.checked_add(usize::try_from(lengths.u64()?).ok()?)?;
        Some((Self { key, meta, head }, total))
    }
}

/// Writes the digest over all other bytes into its field.
fn seal(frame: &mut [u8]) {
    let digest = digest(frame);
    frame[DIGEST_AT..DIGEST_END].copy_from_slice(&digest.to_le_bytes());
}

fn digest(frame: &[u8]) -> u128 {
    let mut digest = RawHasher::new(SecretBuffer::default());
    digest.write(&frame[..DIGEST_AT]);
    digest.write(&frame[DIGEST_END..]);
    digest.finish_128()
}

fn encode_meta(meta: &Meta, now: Timestamp) -> Result<Vec<u8>, Oversize> {
    // Destructured, so that the compiler reports a new field that is not serialized.
    let Meta {
        presence,
        load_started_at,
        born,
        position: _,
        lifetime,
        load_cost,
        rare: _,
        is_validator_in_head: _,
    } = meta;
    let validator = meta.validator();
    let Rare { tags, validator: _, vary } = meta.rare();
    let Lifetime { fresh, stale_while_revalidate, stale_if_error, stale } = (*lifetime).into();

    let mut out = Vec::new();
    for since in [born, load_started_at] {
        out.extend_from_slice(&at_most_u64(now.since(*since).as_millis()).to_le_bytes());
    }
    for span in [fresh, stale_while_revalidate, stale_if_error, load_cost.duration()] {
        out.extend_from_slice(&at_most_u64(span.as_micros()).to_le_bytes());
    }
    out.push(flags(*presence, stale, validator));
    let vary: Vec<&str> = vary.iter().flat_map(Vary::names).collect();
    push_count(&mut out, tags.iter().count(), TAGS_MAX).ok_or(Oversize("number of tags"))?;
    push_count(&mut out, vary.len(), VARY_MAX).ok_or(Oversize("number of selecting fields"))?;

    let Validator { tag, modified } = validator.unwrap_or(&NO_VALIDATOR);
    for part in [tag, modified].into_iter().flatten() {
        push_text(&mut out, part).ok_or(Oversize("validator"))?;
    }
    for tag in tags.iter() {
        push_text(&mut out, tag.as_bytes()).ok_or(Oversize("tag"))?;
    }
    for name in vary {
        push_text(&mut out, name.as_bytes()).ok_or(Oversize("selecting field"))?;
    }
    Ok(out)
}

static NO_VALIDATOR: Validator = Validator { tag: None, modified: None };

fn flags(presence: Presence, stale: Stale, validator: Option<&Validator>) -> u8 {
    let absent = if presence == Presence::Absent { ABSENT } else { 0 };
    let stale = if stale == Stale::Forbidden { STALE_FORBIDDEN } else { 0 };
    let Some(Validator { tag, modified }) = validator else { return absent | stale };
    let tag = if tag.is_some() { VALIDATOR_TAG } else { 0 };
    let date = if modified.is_some() { VALIDATOR_DATE } else { 0 };
    absent | stale | HAS_VALIDATOR | tag | date
}

fn at_most_u64(span: u128) -> u64 {
    u64::try_from(span).unwrap_or(u64::MAX)
}

fn push_count(out: &mut Vec<u8>, count: usize, max: usize) -> Option<()> {
    let count = u16::try_from(count).ok().filter(|_| count <= max)?;
    out.extend_from_slice(&count.to_le_bytes());
    Some(())
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    let length = u16::try_from(text.len()).ok()?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text);
    Some(())
}

fn decode_meta(mut meta: Reader<'_>, arrival: Arrival) -> Option<Meta> {
    let Arrival { now, resided, position } = arrival;
    let mut point = || Some(now.minus(meta.millis()?.saturating_add(resided)));
    let (born, load_started_at) = (point()?, point()?);
    let (fresh, stale_while_revalidate) = (meta.micros()?, meta.micros()?);
    let (stale_if_error, load_cost) = (meta.micros()?, meta.micros()?);
    let [flags] = meta.array()?;
    let stale = if flags & STALE_FORBIDDEN == 0 { Stale::Permitted } else { Stale::Forbidden };
    let presence = if flags & ABSENT == 0 { Presence::Present } else { Presence::Absent };
    let (tag_count, vary_count) = (meta.count(TAGS_MAX)?, meta.count(VARY_MAX)?);

    let validator = decode_validator(&mut meta, flags)?;
    let tags = TagSet::new(meta.strs(tag_count)?);
    let vary = Vary::new(meta.strs(vary_count)?);
    let lifetime = Lifetime { fresh, stale_while_revalidate, stale_if_error, stale };

    let mut read = Meta { presence, load_started_at, position, ..Meta::new(born, lifetime) };
    read.set_load_cost(load_cost);
    read.set_validator(validator);
    read.set_tags(tags);
    read.set_vary(vary);
    meta.0.is_empty().then_some(read)
}

/// Decodes the validator. Outer `None`: invalid contents. Inner `None`: no validator.
fn decode_validator(meta: &mut Reader<'_>, flags: u8) -> Option<Option<Validator>> {
    if flags & !FLAGS != 0 {
        return None;
    }
    let mut part = |flag| {
        // A copy, because a slice would keep the whole frame in memory.
        let flagged = flags & flag != 0;
        if flagged {
            meta.text().map(|part| Some(Bytes::copy_from_slice(part)))
        } else {
            Some(None)
        }
    };
    let validator = Validator { tag: part(VALIDATOR_TAG)?, modified: part(VALIDATOR_DATE)? };
    if flags & HAS_VALIDATOR != 0 {
        return Some(Some(validator));
    }
    (validator == NO_VALIDATOR).then_some(None)
}

/// Cursor over the remaining bytes. Each method returns `None` if the bytes do not suffice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn millis(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_millis)
    }

    fn micros(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_micros)
    }

    fn count(&mut self, max: usize) -> Option<usize> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        (count <= max).then_some(count)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(u16::from_le_bytes(self.array()?));
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    fn strs(&mut self, count: usize) -> Option<Vec<&'a str>> {
        (0..count).map(|_| std::str::from_utf8(self.text()?).ok()).collect()
    }
}

#[cfg(test)]
mod tests;
