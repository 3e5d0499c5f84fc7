use forebay_core::frame::Frame;
use forebay_core::{KeyBuf, Lifetime, Meta};

use super::*;
use crate::entry::pack::Codec;

const NAME: &str = "ns:d:{site|/|}";
const KEPT: Duration = Duration::from_secs(60);
const RETENTION: Retention = Retention { ttl: KEPT, from: Some(Duration::from_millis(FROM)) };
const FROM: u64 = 1_700_000_000_000;
const ASKED: Timestamp = Timestamp::from_millis(500_000);

fn sealing(key: Option<&[u8]>) -> Sealing {
    let packing = Packing { codec: Codec::Zstd { level: 1 }, threshold: 64 };
    Sealing { object_max: 1 << 20, packing, key: key.map(SealKey::new) }
}

fn key() -> KeyBuf {
    let mut key = KeyBuf::new("site");
    key.part(b"/");
    key
}

/// Returns the frame of an entry that was 5 s old at encoding.
fn frame(body: &[u8]) -> Bytes {
    let mut meta = Meta::new(Timestamp::from_millis(1_000), Lifetime::fresh(KEPT));
    meta.load_started_at = Timestamp::from_millis(900);
    let body = [Bytes::copy_from_slice(body)];
    let (key, head) = (key(), b"the head");
    let frame = Frame { key: key.borrowed(), meta: &meta, head, body: &body };
    frame::encode(&frame, Timestamp::from_millis(6_000)).unwrap()
}

fn sealed(body: &[u8], sealing: &Sealing) -> Vec<u8> {
    seal(&frame(body), NAME, RETENTION, &annotations(), sealing)
}

fn annotations() -> Annotations {
    Annotations { stamp: 0x0102_0304_0506_0708, label: Bytes::from_static(b"label"), token: 0x21 }
}

fn left(left: Duration) -> Receipt {
    Receipt { age_source: AgeSource::Left(Some(left)), asked: ASKED }
}

fn opened(value: &[u8], receipt: Receipt, sealing: &Sealing) -> Result<Decoded, Undecodable> {
    let opened = open(&Bytes::copy_from_slice(value), NAME, key().borrowed(), receipt, sealing)?;
    assert_eq!(opened.annotations, annotations());
    Ok(opened.entry)
}

/// Returns the value with a changed header and a valid digest.
fn with_header(mut value: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut value[..DIGEST_AT]);
    let coded = if value[6] == AUTHENTIC { CODE_LEN } else { 0 };
    let length = usize::from(value[LABEL_LEN_AT]);
    let label = value.get(HEADER_END + coded..HEADER_END + coded + length).unwrap_or_default();
    let digest = digest(NAME, &value[..DIGEST_AT], label);
    value[DIGEST_AT..DIGEST_END].copy_from_slice(&digest);
    value
}

#[test]
fn opened_value_is_older_by_its_residence() {
    for key in [None, Some(&b"secret"[..])] {
        let sealing = sealing(key);
        for body in [&b""[..], b"short", &[b'x'; 5_000], &[b'y'; 300_000]] {
            let read = opened(&sealed(body, &sealing), left(KEPT), &sealing).unwrap();
            assert_eq!((&read.head[..], &read.body[..]), (&b"the head"[..], body));
            assert_eq!(read.meta.age(ASKED), Duration::from_secs(5));
            let later = left(Duration::from_secs(20));
            let read = opened(&sealed(body, &sealing), later, &sealing).unwrap();
            assert_eq!(read.meta.age(ASKED), Duration::from_secs(45));
            assert_eq!(ASKED.since(read.meta.load_started_at), Duration::from_millis(45_100));
        }
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_a_miss() {
    for (key, body) in [(None, 100), (Some(&b"secret"[..]), 100), (None, 3_000)] {
        let sealing = sealing(key);
        let value = sealed(&vec![b'z'; body], &sealing);
        let packed = value[5] != Packed::Plain.number() && key.is_none();
        let sound = opened(&value, left(KEPT), &sealing);
        assert!(sound.is_ok());
        for at in 0..value.len() {
            assert!(opened(&value[..at], left(KEPT), &sealing).is_err(), "cut at {at}");
            // Another purge token makes the entry stale, and is tested below.
            if (TOKEN_AT..HEADER_END).contains(&at) {
                continue;
            }
            for bit in 0..8 {
                let mut flipped = value.clone();
                flipped[at] ^= 1 << bit;
                let read = opened(&flipped, left(KEPT), &sealing);
                // Some bits of a zstd header have no effect.
                let is_harmless = packed && read == sound;
                assert!(read.is_err() || is_harmless, "bit {bit} of byte {at}, of {body}");
            }
        }
        let longer = [&value[..], b"x"].concat();
        assert!(opened(&longer, left(KEPT), &sealing).is_err());
    }
}

#[test]
fn each_kind_of_invalid_value_has_its_error() {
    let plain = sealing(None);
    let value = sealed(b"body", &plain);
    let error = |value: &[u8], sealing| opened(value, left(KEPT), sealing).unwrap_err();
    assert_eq!(error(b"", &plain), Undecodable::Foreign);
    assert_eq!(error(b"{\"json\": 1}", &plain), Undecodable::Foreign);
    assert_eq!(error(b"FBR\xf8", &plain), Undecodable::Damaged);
    assert_eq!(error(b"FBR\xf8\x09more", &plain), Undecodable::OtherVersion(9));
    let how = with_header(value.clone(), |header| header[5] = 77);
    assert_eq!(error(&how, &plain), Undecodable::Damaged);
    let flags = with_header(value.clone(), |header| header[6] = 2);
    assert_eq!(error(&flags, &plain), Undecodable::Damaged);
    let huge = with_header(value.clone(), |header| header[15..23].fill(0xff));
    assert_eq!(error(&huge, &plain), Undecodable::Unbelievable(u64::MAX));
    let elsewhere = KeyBuf::new("site");
    let bytes = Bytes::from(value.clone());
    let read = open(&bytes, NAME, elsewhere.borrowed(), left(KEPT), &plain);
    assert_eq!(read.unwrap_err(), Undecodable::Frame(FrameError::OtherKey));
    let read = open(&bytes, "other:d:{site|/|}", key().borrowed(), left(KEPT), &plain);
    assert_eq!(read.unwrap_err(), Undecodable::Damaged);
}

#[test]
fn only_the_right_key_opens_what_is_signed() {
    let (one, other, none) = (sealing(Some(b"one")), sealing(Some(b"other")), sealing(None));
    let (signed, unsigned) = (sealed(b"body", &one), sealed(b"body", &none));
    let wrong = Err(Undecodable::Unauthentic);
    assert_eq!(opened(&signed, left(KEPT), &other), wrong);
    assert_eq!(opened(&signed, left(KEPT), &none), wrong);
    assert_eq!(opened(&unsigned, left(KEPT), &one), wrong);
    // Without the key a signed value can neither be given more time nor moved.
    let younger = with_header(signed.clone(), |header| header[7] = header[7].wrapping_sub(9));
    assert_eq!(opened(&younger, left(Duration::ZERO), &one), wrong);
    let moved = digest("other", &signed[..DIGEST_AT], b"label");
    let moved = [&signed[..DIGEST_AT], &moved, &signed[DIGEST_END..]].concat();
    let read = open(&moved.into(), "other", key().borrowed(), left(KEPT), &one);
    assert_eq!(read.map(|opened| opened.entry), wrong);
    assert!(!format!("{one_key:?}", one_key = one.key).contains("one"));
}

#[test]
fn missing_or_extended_ttl_makes_the_age_unknown() {
    let sealing = sealing(None);
    let value = sealed(b"body", &sealing);
    let ageless = Err(Undecodable::Ageless);
    let forever = Receipt { age_source: AgeSource::Left(None), asked: ASKED };
    assert_eq!(opened(&value, forever, &sealing), ageless);
    assert_eq!(opened(&value, left(KEPT + Duration::from_millis(1)), &sealing), ageless);
}

/// Returns the receipt of a read this many milliseconds after encoding.
fn clock(after: i64) -> Receipt {
    let now = FROM.saturating_add_signed(after);
    Receipt { age_source: AgeSource::Now(Duration::from_millis(now)), asked: ASKED }
}

#[test]
fn residence_is_the_difference_on_the_servers_clock() {
    let sealing = sealing(None);
    let value = sealed(b"body", &sealing);
    let age = |after| opened(&value, clock(after), &sealing).map(|read| read.meta.age(ASKED));
    assert_eq!(age(0), Ok(Duration::from_secs(5)));
    assert_eq!(age(40_000), Ok(Duration::from_secs(45)));
    // At and shortly after its expiry the entry reports that it is stale.
    assert_eq!(age(60_900), Ok(Duration::from_millis(65_900)));
    // The TTL was extended, or the clock went back.
    assert_eq!(age(61_001), Err(Undecodable::Ageless));
    assert_eq!(age(-1), Err(Undecodable::Ageless));
}

#[test]
fn value_without_timestamp_needs_its_remaining_ttl() {
    let sealing = sealing(None);
    let value =
        seal(&frame(b"body"), NAME, Retention { ttl: KEPT, from: None }, &annotations(), &sealing);
    assert_eq!(opened(&value, clock(5), &sealing), Err(Undecodable::Unstamped));
    assert!(opened(&value, left(KEPT), &sealing).is_ok());
}

#[test]
fn decompression_bomb_is_rejected_by_its_claimed_size() {
    let sealing = sealing(None);
    let zeros = vec![0; 64 << 20];
    let bomb = zstd::bulk::compress(&zeros, 1).unwrap();
    assert!(bomb.len() < 10_000);
    let claim = |claimed: u64| {
        let header = sealed(b"body", &sealing)[..HEADER_END + b"label".len()].to_vec();
        let header = with_header(header, |header| {
            header[5] = Packed::Zstd.number();
            header[15..23].copy_from_slice(&claimed.to_le_bytes());
        });
        opened(&[&header[..], &bomb].concat(), left(KEPT), &sealing).unwrap_err()
    };
    assert_eq!(claim(64 << 20), Undecodable::Unbelievable(64 << 20));
    let most = (bomb.len() * pack::RATIO_MAX) as u64;
    assert!(most < 2 << 20);
    assert_eq!(claim(most + 1), Undecodable::Unbelievable(most + 1));
    assert_eq!(claim(most), Undecodable::Damaged);
    assert_eq!(claim(0), Undecodable::Damaged);
}

#[test]
fn the_bytes_of_one_value_are_fixed() {
    let mut sealing = sealing(Some(b"secret"));
    sealing.packing.codec = Codec::None;
    let value = seal(b"the frame", NAME, RETENTION, &annotations(), &sealing);
    assert_eq!(&value[..7], b"FBR\xf8\x04\x00\x01");
    assert_eq!(value[7..15], 60_000_u64.to_le_bytes());
    assert_eq!(value[15..23], 9_u64.to_le_bytes());
    assert_eq!(value[23..31], FROM.to_le_bytes());
    assert_eq!(value[31..39], 0x0102_0304_0506_0708_u64.to_le_bytes());
    assert_eq!(value[39..43], 5_u32.to_le_bytes());
    assert_eq!(value[TOKEN_AT..HEADER_END], 0x21_u64.to_le_bytes());
    assert_eq!(&value[HEADER_END + CODE_LEN..], b"labelthe frame");
    let covered = [DIGEST_AT..DIGEST_END, HEADER_END..HEADER_END + CODE_LEN];
    let hex: String =
        covered.into_iter().flat_map(|at| &value[at]).map(|byte| format!("{byte:02x}")).collect();
    let expected =
        "3264857a905f5340bf8300aa3c87d6ca4c304293660358dbc1c3110ba8400d09564721777cf156b1";
    assert_eq!(hex, expected);
}

#[test]
fn a_script_can_replace_the_purge_token_alone() {
    for key in [None, Some(&b"secret"[..])] {
        let sealing = sealing(key);
        let mut value = sealed(b"body", &sealing);
        value[TOKEN_AT..HEADER_END].copy_from_slice(&7_u64.to_le_bytes());
        let bytes = Bytes::from(value);
        let read = open(&bytes, NAME, self::key().borrowed(), left(KEPT), &sealing);
        assert_eq!(read.unwrap().annotations, Annotations { token: 7, ..annotations() });
    }
}
