//! Target: frames, the form of entries in lower tiers, where other programs may write too.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use forebay_core::frame::{
    Arrival, Decoded, Frame, FrameError, TAGS_MAX, VARY_MAX, VERSION, decode, encode,
};
use forebay_core::{
    KeyBuf, Lifetime, Meta, Position, Presence, Stale, TagSet, Timestamp, Validator, Vary,
};
use twox_hash::XxHash3_128;

use crate::mutate::damage;
use crate::run::{Outcome, Target};

/// Range of the digest in a frame's header, as specified.
const DIGEST_AT: usize = 5;
const DIGEST_END: usize = 21;

/// Number of damaged copies of each frame that are tried.
const DAMAGES: usize = 6;

/// Clock of the reading process; times in a frame are relative to it.
const ARRIVAL: Arrival = Arrival {
    now: Timestamp::from_millis(1_000_000),
    resided: Duration::ZERO,
    position: Position::new(3),
};

/// Fuzz target for frames, the form of entries in lower tiers.
pub const TARGET: Target = Target { check, outcomes_min: 6 };

fn check(input: &[u8]) -> Outcome {
    let key = key();
    let raw = decode(&Bytes::copy_from_slice(input), key.borrowed(), ARRIVAL);
    if let Ok(decoded) = &raw {
        assert_stable(decoded);
    }
    let sealed = decode(&sealed(input), key.borrowed(), ARRIVAL);
    match &sealed {
        Ok(decoded) => assert_stable(decoded),
        Err(error) => assert_eq!(*error, FrameError::Malformed, "whole, undamaged, of this key"),
    }
    assert_written(&made(input), input);
    let read = sealed.ok().map(|decoded| marks(&decoded.meta));
    Outcome::of((raw.map_err(|error| error.to_string()).is_ok(), first(input), read))
}

fn key() -> KeyBuf {
    let mut key = KeyBuf::new("fuzz");
    key.part(b"key");
    key
}

/// Frame with a valid header and digest around arbitrary content: the first two bytes of the input
/// give the length of the meta, the next byte that of the head.
fn sealed(input: &[u8]) -> Bytes {
    let key = key();
    let key = key.borrowed().bytes();
    let (wanted, rest) = input.split_first_chunk::<3>().unwrap_or((&[0; 3], &[]));
    let meta = usize::from(u16::from_le_bytes([wanted[0], wanted[1]])).min(rest.len());
    let head = usize::from(wanted[2]).min(rest.len() - meta);
    let mut frame = [b"FBE\xf7", &[VERSION][..], &[0; DIGEST_END - DIGEST_AT]].concat();
    for length in [key.len(), meta, head] {
        frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
    frame.extend_from_slice(&((rest.len() - meta - head) as u64).to_le_bytes());
    frame.extend_from_slice(key);
    frame.extend_from_slice(rest);
    let digest = XxHash3_128::oneshot(&[&frame[..DIGEST_AT], &frame[DIGEST_END..]].concat());
    frame[DIGEST_AT..DIGEST_END].copy_from_slice(&digest.to_le_bytes());
    frame.into()
}

/// Asserts that a decoded entry is encoded and decoded to an equal one.
fn assert_stable(decoded: &Decoded) {
    let meta = &decoded.meta;
    assert!(meta.tags().iter().count() <= TAGS_MAX, "tags");
    assert!(meta.vary().map_or(0, |vary| vary.names().count()) <= VARY_MAX, "fields");
    let again = decode(&written(decoded), key().borrowed(), ARRIVAL);
    assert_eq!(again.as_ref(), Ok(decoded), "written and read again");
}

fn written(entry: &Decoded) -> Bytes {
    let key = key();
    let body = std::slice::from_ref(&entry.body);
    let frame = Frame { key: key.borrowed(), meta: &entry.meta, head: &entry.head, body };
    encode(&frame, ARRIVAL.now).unwrap_or_else(|error| panic!("{error}"))
}

/// Entry derived from the input's bytes, with every part that an entry can have.
fn made(input: &[u8]) -> Decoded {
    let seed = input.iter().fold(0, |sum, byte| sum * 31 % 65_521 + u64::from(*byte));
    let mut random = Rng::with_seed(seed);
    let text = String::from_utf8_lossy(&input[..input.len().min(512)]).into_owned();
    let mut span = || Duration::from_micros(random.u64(..) >> random.u8(..64));
    let lifetime = Lifetime {
        fresh: span(),
        stale_while_revalidate: span(),
        stale_if_error: span(),
        stale: if input.len().is_multiple_of(2) { Stale::Permitted } else { Stale::Forbidden },
    };
    let load_cost = span();
    let place = random.usize(..=input.len());
    let (head, body) = input.split_at(place);
    let part = |bytes: &[u8]| Some(Bytes::copy_from_slice(&bytes[..bytes.len().min(64)]));
    let some = random.bool();
    let validator = Validator { tag: part(head).filter(|_| some), modified: part(body) };
    let presence = if some { Presence::Present } else { Presence::Absent };
    let mut meta = Meta::new(Timestamp::from_millis(-5), lifetime);
    (meta.presence, meta.load_started_at) = (presence, Timestamp::from_millis(999_000));
    meta.position = ARRIVAL.position;
    meta.set_load_cost(load_cost);
    meta.set_tags(TagSet::new(text.split(',').filter(|tag| !tag.is_empty())));
    meta.set_validator(Some(validator).filter(|_| !input.len().is_multiple_of(3)));
    meta.set_vary(Vary::new(text.split(' ').filter(|name| !name.is_empty()).take(VARY_MAX)));
    let (head, body) = (Bytes::copy_from_slice(head), Bytes::copy_from_slice(body));
    Decoded { meta, head, body }
}

/// Asserts that a written frame is read back, and that no damaged copy of it is.
fn assert_written(entry: &Decoded, input: &[u8]) {
    let (key, frame) = (key(), written(entry));
    assert_eq!(decode(&frame, key.borrowed(), ARRIVAL).as_ref(), Ok(entry));
    let other = KeyBuf::new("fuzz");
    let misplaced = decode(&frame, other.borrowed(), ARRIVAL);
    assert_eq!(misplaced, Err(FrameError::OtherKey), "under another key");
    let mut random = Rng::with_seed(input.len() as u64);
    for _ in 0..DAMAGES {
        let damaged: Bytes = damage(&frame, &mut random).into();
        assert!(decode(&damaged, key.borrowed(), ARRIVAL).is_err(), "{damaged:?} is read");
    }
}

fn first(input: &[u8]) -> bool {
    input.starts_with(b"FBE\xf7")
}

fn marks(meta: &Meta) -> impl std::hash::Hash + use<> {
    let validator = meta.validator();
    let parts = validator.map(|own| (own.tag.is_some(), own.modified.is_some()));
    let fields = meta.vary().map_or(0, |vary| vary.names().count());
    let is_forbidden = meta.lifetime().stale == Stale::Forbidden;
    (parts, meta.tags().iter().count().min(2), fields.min(2), is_forbidden)
}
