//! Target: values in Redis, which are frames in envelopes and may be forged by other programs.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use forebay_core::frame::{Decoded, Frame, encode};
use forebay_core::{KeyBuf, Lifetime, Meta, Timestamp};
use forebay_redis::envelope::{AgeSource, Annotations, Receipt, Retention, VERSION, open, seal};
use forebay_redis::{Codec, Packing, SealKey, Sealing, Undecodable};
use twox_hash::XxHash3_64;

use crate::mutate::damage;
use crate::run::{Outcome, Target};

const NAME: &str = "fuzz:d:{key|}";

/// Maximum size of a stored body in bytes.
const OBJECT_MAX: u64 = 64 << 10;

const KEPT: Duration = Duration::from_secs(60);
const FROM_MILLIS: u64 = 1_700_000_000_000;
const FROM: Duration = Duration::from_millis(FROM_MILLIS);
const LEFT: Duration = Duration::from_secs(50);
const RECEIPT: Receipt =
    Receipt { age_source: AgeSource::Left(Some(LEFT)), asked: Timestamp::from_millis(1_000_000) };

/// Number of damaged copies of each value that are tried.
const DAMAGES: usize = 4;

/// Maximum number of bytes of an input that become a body, below the size limit.
const BODY_MAX: usize = 60 << 10;

/// Fuzz target for values in Redis.
pub const TARGET: Target = Target { check, outcomes_min: 7 };

fn check(input: &[u8]) -> Outcome {
    let raw = opened(input, &sealing(None));
    let signed = opened(input, &sealing(Some(b"secret")));
    assert!(signed.is_err(), "nobody can guess a signature");
    let forged = forged(input);
    let read = opened(&forged, &sealing(None));
    if let Ok(entry) = &read {
        assert!(entry.body.len() <= forged.len() * 256, "more than it can hold");
        let again = sealed(&entry.body, &sealing(None));
        assert!(opened(&again, &sealing(None)).is_ok(), "written and read again");
    }
    assert_written(input);
    Outcome::of((kind(&raw), kind(&signed), kind(&read)))
}

fn sealing(secret: Option<&[u8]>) -> Sealing {
    let packing = Packing { codec: Codec::Lz4, threshold: 32 };
    Sealing { object_max: OBJECT_MAX, packing, key: secret.map(SealKey::new) }
}

fn key() -> KeyBuf {
    let mut key = KeyBuf::new("fuzz");
    key.part(b"key");
    key
}

fn opened(value: &[u8], sealing: &Sealing) -> Result<Decoded, Undecodable> {
    let (value, key) = (Bytes::copy_from_slice(value), key());
    open(&value, NAME, key.borrowed(), RECEIPT, sealing).map(|opened| opened.entry)
}

fn frame(body: &[u8]) -> Bytes {
    let meta = Meta::new(Timestamp::from_millis(0), Lifetime::fresh(KEPT));
    let (key, body) = (key(), [Bytes::copy_from_slice(body)]);
    let frame = Frame { key: key.borrowed(), meta: &meta, head: b"head", body: &body };
    encode(&frame, Timestamp::from_millis(0)).unwrap_or_else(|error| panic!("{error}"))
}

fn sealed(body: &[u8], sealing: &Sealing) -> Vec<u8> {
    let retention = Retention { ttl: KEPT, from: Some(FROM) };
    seal(&frame(body), NAME, retention, &Annotations::default(), sealing)
}

/// Value with a valid digest around a header derived from the input (packing, flags, lengths), and
/// a frame, packed or not, or arbitrary bytes.
fn forged(input: &[u8]) -> Vec<u8> {
    let (wanted, rest) = input.split_first_chunk::<7>().unwrap_or((&[0; 7], input));
    let [how, flags, claim @ .., what] = *wanted;
    let rest = &rest[..rest.len().min(BODY_MAX)];
    let frame = frame(rest);
    let payload = match what % 4 {
        0 => rest.to_vec(),
        1 => frame.to_vec(),
        2 => zstd::bulk::compress(&frame, 1).unwrap_or_default(),
        _ => lz4_flex::block::compress(&frame),
    };
    let honest = what & 4 == 0;
    let claimed = if honest { frame.len() as u64 } else { u64::from(u32::from_le_bytes(claim)) };
    let mut value = [b"FBR\xf8", &[VERSION, how % 4, flags % 3][..]].concat();
    value.extend_from_slice(&60_000_u64.to_le_bytes());
    value.extend_from_slice(&claimed.to_le_bytes());
    value.extend_from_slice(&FROM_MILLIS.to_le_bytes());
    // Neither stamp nor label.
    value.extend_from_slice(&[0; 12]);
    let digest = XxHash3_64::oneshot(&[NAME.as_bytes(), &value].concat());
    value.extend_from_slice(&digest.to_le_bytes());
    // No purge token.
    value.extend_from_slice(&[0; 8]);
    value.extend_from_slice(&payload);
    value
}

/// Asserts that a written value is read back, and that a damaged copy is equal or refused.
fn assert_written(input: &[u8]) {
    let body = &input[..input.len().min(BODY_MAX)];
    let seed = input.iter().fold(7, |sum, byte| (sum * 31 + u64::from(*byte)) % 65_521);
    let mut random = Rng::with_seed(seed);
    let codecs = [Codec::None, Codec::Zstd { level: 1 }, Codec::Lz4];
    let codec = codecs[random.usize(..codecs.len())];
    let secret = random.bool().then_some(&b"secret"[..]);
    let sealing = Sealing { packing: Packing { codec, threshold: 32 }, ..sealing(secret) };
    let value = sealed(body, &sealing);
    let sound = opened(&value, &sealing);
    assert_eq!(sound.as_ref().map(|entry| &entry.body[..]), Ok(body));
    assert_eq!(sound.as_ref().map(|entry| entry.meta.age(RECEIPT.asked).as_secs()), Ok(10));
    for _ in 0..DAMAGES {
        let damaged = damage(&value, &mut random);
        let read = opened(&damaged, &sealing);
        assert!(read.is_err() || read == sound, "damaged, and read all the same: {damaged:?}");
    }
}

fn kind(read: &Result<Decoded, Undecodable>) -> String {
    match read {
        Ok(_) => "an entry".to_owned(),
        Err(Undecodable::OtherVersion(_)) => "another version".to_owned(),
        Err(Undecodable::Unbelievable(_)) => "unbelievable".to_owned(),
        Err(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_value_can_be_an_entry() {
        let packed = [(0, 1), (1, 2), (2, 3)];
        for (how, what) in packed {
            let input = [&[how, 0, 0, 0, 0, 0, what][..], b"the body, the body, the body"].concat();
            assert!(opened(&forged(&input), &sealing(None)).is_ok(), "{how}");
        }
    }
}
