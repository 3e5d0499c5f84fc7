use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::key::KeyBuf;

const NOW: Timestamp = Timestamp::from_millis(100_000);

const fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Time at which frames are both written and read in these tests.
const AT_ONCE: Arrival = Arrival { now: NOW, resided: Duration::ZERO, position: Position::new(7) };

fn key() -> KeyBuf {
    let mut key = KeyBuf::new("shop");
    key.part(b"/a?b");
    key
}

fn bare(age_millis: i64) -> Meta {
    let mut meta = Meta::new(at(NOW.as_millis() - age_millis), Lifetime::default());
    meta.position = AT_ONCE.position;
    meta
}

/// Returns metadata with every field set to a different value.
fn full() -> Meta {
    let lifetime = Lifetime {
        fresh: Duration::from_secs(60),
        stale_while_revalidate: Duration::from_secs(10),
        stale_if_error: Duration::from_secs(100),
        stale: Stale::Forbidden,
    };
    let mut meta = Meta::new(at(NOW.as_millis() - 5_000), lifetime);
    meta.presence = Presence::Absent;
    meta.load_started_at = at(NOW.as_millis() - 4_000);
    meta.position = AT_ONCE.position;
    meta.set_load_cost(Duration::from_micros(1_500));
    meta.set_tags(TagSet::new(["red", "blue"]));
    meta.set_validator(Some(Validator {
        tag: Some(Bytes::from_static(b"\"v1\"")),
        modified: Some(Bytes::from_static(b"Thu, 01 Jan 1970 00:00:00 GMT")),
    }));
    meta.set_vary(Vary::new(["accept", "accept-language"]));
    meta
}

fn framed(meta: &Meta) -> Bytes {
    let (key, body) = (key(), [Bytes::from_static(b"bo"), Bytes::new(), Bytes::from_static(b"dy")]);
    let frame = Frame { key: key.borrowed(), meta, head: b"head", body: &body };
    encode(&frame, NOW).unwrap()
}

/// The expected values are those of xxHash 0.8, the reference implementation.
#[test]
fn the_digest_equals_that_of_the_reference_implementation() {
    for (len, expected) in [
        (41, 0x71fb_d898_0577_8d3b_0822_6fa4_050d_637a),
        (128, 0x66cd_26b3_aea6_8f11_6552_9375_3049_7ea5),
        (257, 0xc9b8_be00_91c1_8982_625b_c4c1_d54f_c4b7),
        (1_024, 0xcf33_b702_7a36_10a5_33a5_e662_f82b_73c8),
        (100_000, 0x8aca_cd87_11d2_8f73_89d2_24c1_21e8_0479),
    ] {
        let bytes: Vec<u8> = (0..len).map(|at: usize| (at * at % 251).to_le_bytes()[0]).collect();
        assert_eq!(digest(&bytes), expected, "{len} bytes");
    }
}

fn read(bytes: impl Into<Bytes>) -> Result<Decoded, FrameError> {
    decode(&bytes.into(), key().borrowed(), AT_ONCE)
}

/// Decodes the frame of [`full`] after `forge` changed the bytes after the key and the digest was
/// recomputed.
fn forged(forge: impl FnOnce(&mut [u8])) -> Result<Decoded, FrameError> {
    let mut bytes = framed(&full()).to_vec();
    let meta_at = HEADER_LEN + key().borrowed().bytes().len();
    forge(&mut bytes[meta_at..]);
    seal(&mut bytes);
    read(bytes)
}

// Offsets in the metadata.
const FLAGS_AT: usize = 48;
const TAG_COUNT_AT: usize = 49;
const VARY_COUNT_AT: usize = 51;
const TEXTS_AT: usize = 53;

#[test]
fn every_field_is_decoded_as_encoded() {
    let decoded = read(framed(&full())).unwrap();
    assert_eq!(decoded.meta, full());
    assert_eq!(decoded.head, "head");
    assert_eq!(decoded.body, "body");
}

#[test]
fn head_and_body_are_slices_of_the_frame_and_the_validator_is_not() {
    let frame = framed(&full());
    let decoded = decode(&frame, key().borrowed(), AT_ONCE).unwrap();
    let range = frame.as_ptr_range();
    assert!(range.contains(&decoded.head.as_ptr()));
    assert!(range.contains(&decoded.body.as_ptr()));
    let tag = decoded.meta.validator().and_then(|validator| validator.tag.clone()).unwrap();
    assert!(!range.contains(&tag.as_ptr()));
}

#[test]
fn age_is_the_stored_age_plus_the_time_in_the_tier() {
    let frame = framed(&full());
    // The clock of another process, which started long after the frame was made.
    let now = at(3_000);
    let arrival = Arrival { now, resided: Duration::from_secs(7), position: Position::new(9) };
    let meta = decode(&frame, key().borrowed(), arrival).unwrap().meta;
    assert_eq!(meta.age(now), Duration::from_secs(12));
    assert_eq!(meta.born, at(-9_000));
    assert_eq!(meta.load_started_at, at(-8_000));
    assert_eq!(meta.position, Position::new(9));
}

#[test]
fn ages_beyond_the_clock_saturate() {
    let decoded = forged(|meta| meta[..16].fill(0xff)).unwrap();
    assert_eq!(decoded.meta.born, decoded.meta.load_started_at);
    assert!(decoded.meta.age(NOW) > Duration::from_secs(u64::from(u32::MAX)));
    let arrival = Arrival { now: at(i64::MIN), resided: Duration::MAX, ..AT_ONCE };
    let frame = framed(&full());
    let meta = decode(&frame, key().borrowed(), arrival).unwrap().meta;
    assert_eq!(meta.born, at(i64::MIN));
}

#[test]
fn a_timestamp_in_the_future_has_age_zero() {
    assert_eq!(read(framed(&bare(-1))).unwrap().meta.born, NOW);
}

#[test]
fn every_flipped_bit_is_rejected() {
    let frame = framed(&full());
    for bit in 0..frame.len() * 8 {
        let mut bytes = frame.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let flipped = bytes[bit / 8];
        let error = read(bytes).expect_err("a flipped bit");
        match bit / 8 {
            0..4 => assert_eq!(error, FrameError::NotAFrame),
            4 => assert_eq!(error, FrameError::OtherVersion(flipped)),
            // A smaller length leaves extra bytes; a larger one claims missing bytes.
            DIGEST_END..HEADER_LEN => {
                assert!(matches!(error, FrameError::Cut | FrameError::Damaged), "bit {bit}");
            }
            _ => assert_eq!(error, FrameError::Damaged, "bit {bit}"),
        }
    }
}

#[test]
fn every_truncation_is_rejected() {
    let frame = framed(&full());
    for length in 0..frame.len() {
        assert_eq!(read(frame.slice(..length)), Err(FrameError::Cut), "{length} bytes");
    }
}

#[test]
fn extra_bytes_are_rejected() {
    let mut bytes = framed(&full()).to_vec();
    bytes.push(0);
    seal(&mut bytes);
    assert_eq!(read(bytes), Err(FrameError::Damaged));
}

#[test]
fn a_byte_moved_between_two_parts_is_rejected() {
    let mut bytes = framed(&full()).to_vec();
    // One byte more for the head, one less for the body; the sum is unchanged.
    bytes[29] += 1;
    bytes[33] -= 1;
    assert_eq!(read(bytes), Err(FrameError::Damaged));
}

#[test]
fn another_key_is_rejected() {
    let frame = framed(&full());
    let longer = {
        let mut key = key();
        key.part(b"");
        key
    };
    for other in [KeyBuf::new("shop"), KeyBuf::default(), longer] {
        let read = decode(&frame, other.borrowed(), AT_ONCE);
        assert_eq!(read, Err(FrameError::OtherKey), "{:?}", other.borrowed());
    }
}

#[test]
fn a_length_beyond_the_bytes_is_a_truncated_frame() {
    for (field, last) in [(21, 25), (25, 29), (29, 33), (33, 41)] {
        let mut bytes = framed(&full()).to_vec();
        bytes[field..last].fill(0xff);
        seal(&mut bytes);
        assert_eq!(read(bytes), Err(FrameError::Cut), "length at {field}");
    }
}

#[test]
fn invalid_contents_are_rejected_even_with_a_valid_digest() {
    assert_eq!(forged(|_| ()).unwrap().meta, full());
    let malformed = |what: &str, forge: &dyn Fn(&mut [u8])| {
        assert_eq!(forged(forge), Err(FrameError::Malformed), "{what}");
    };
    malformed("an unknown flag", &|meta| meta[FLAGS_AT] |= 32);
    malformed("parts of no validator", &|meta| meta[FLAGS_AT] &= !HAS_VALIDATOR);
    malformed("a tag less than counted", &|meta| meta[TAG_COUNT_AT] += 1);
    malformed("a tag more than counted", &|meta| meta[VARY_COUNT_AT] -= 1);
    malformed("too many tags", &|meta| meta[TAG_COUNT_AT + 1] = 0xff);
    malformed("too many selecting fields", &|meta| meta[VARY_COUNT_AT + 1] = 0xff);
    malformed("a text beyond the meta", &|meta| meta[TEXTS_AT + 1] = 0xff);
    malformed("a tag that is no text", &|meta| {
        let tag = meta.windows(4).position(|four| four == b"blue").unwrap();
        meta[tag] = 0xff;
    });
}

#[test]
fn empty_metadata_is_rejected() {
    let mut bytes = framed(&full())[..HEADER_LEN].to_vec();
    bytes[21..].fill(0);
    seal(&mut bytes);
    let read = decode(&bytes.into(), KeyBuf::default().borrowed(), AT_ONCE);
    assert_eq!(read, Err(FrameError::Malformed));
}

#[test]
fn oversized_parts_are_errors_and_parts_of_maximum_size_are_decoded_as_encoded() {
    let names: Vec<String> = (0..=TAGS_MAX).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let long = "x".repeat(usize::from(u16::MAX) + 1);
    let bare_with = |change: &dyn Fn(&mut Meta)| {
        let mut meta = bare(0);
        change(&mut meta);
        meta
    };
    let tags = |tags: &[&str]| bare_with(&|meta| meta.set_tags(TagSet::new(tags.iter().copied())));
    let vary = |names: &[&str]| bare_with(&|meta| meta.set_vary(Vary::new(names.iter().copied())));
    let validator = |tag: &str| {
        let tag = Some(Bytes::copy_from_slice(tag.as_bytes()));
        bare_with(&|meta| {
            meta.set_validator(Some(Validator { tag: tag.clone(), modified: None }));
        })
    };
    let rows = [
        (tags(&names[1..]), tags(&names), Oversize("number of tags")),
        (
            vary(&names[..VARY_MAX]),
            vary(&names[..=VARY_MAX]),
            Oversize("number of selecting fields"),
        ),
        (tags(&[&long[1..]]), tags(&[&long]), Oversize("tag")),
        (vary(&[&long[1..]]), vary(&[&long]), Oversize("selecting field")),
        (validator(&long[1..]), validator(&long), Oversize("validator")),
    ];
    for (most, too_much, error) in rows {
        assert_eq!(read(framed(&most)).unwrap().meta, most, "the most below {error}");
        let (key, meta) = (key(), &too_much);
        let frame = Frame { key: key.borrowed(), meta, head: b"", body: &[] };
        assert_eq!(encode(&frame, NOW), Err(error));
    }
}

/// If this test fails, the format has changed: increment the version and update the bytes here.
#[test]
fn the_format_equals_the_recorded_bytes() {
    let golden: Vec<u8> = GOLDEN.iter().flat_map(|(_, hex)| unhex(hex)).collect();
    assert_eq!(framed(&full()).escape_ascii().to_string(), golden.escape_ascii().to_string());
    assert_eq!(read(golden).unwrap().meta, full());
}

/// Frame of [`full`], assembled by hand from the tables of the module; the digest is from the
/// reference implementation of XXH3.
const GOLDEN: [(&str, &str); 20] = [
    ("magic", "464245f7"),
    ("version", "02"),
    ("digest", "b6b4378342ab5231912222ca787039d3"),
    ("length of the key", "10000000"),
    ("length of the meta", "7e000000"),
    ("length of the head", "04000000"),
    ("length of the body", "0400000000000000"),
    ("key", "0400000073686f70040000002f613f62"),
    ("age: 5 s", "8813000000000000"),
    ("since the load started: 4 s", "a00f000000000000"),
    ("fresh: 60 s", "0087930300000000"),
    ("stale-while-revalidate: 10 s", "8096980000000000"),
    ("stale-if-error: 100 s", "00e1f50500000000"),
    ("load cost: 1.5 ms", "dc05000000000000"),
    ("flags and numbers", "1f02000200"),
    ("validator tag", "040022763122"),
    ("validator date", "1d005468752c203031204a616e20313937302030303a30303a303020474d54"),
    ("tags: blue, red", "0400626c75650300726564"),
    ("selecting fields", "06006163636570740f006163636570742d6c616e6775616765"),
    ("head and body", "68656164626f6479"),
];

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

fn some_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn some_span() -> impl Strategy<Value = Duration> {
    prop_oneof![0..1_000_000_u64, any::<u64>()].prop_map(Duration::from_micros)
}

fn some_names() -> impl Strategy<Value = Vec<String>> {
    vec(any::<String>(), 0..6)
}

fn some_lifetime() -> impl Strategy<Value = Lifetime> {
    let stale = prop_oneof![Just(Stale::Permitted), Just(Stale::Forbidden)];
    (some_span(), some_span(), some_span(), stale).prop_map(
        |(fresh, stale_while_revalidate, stale_if_error, stale)| Lifetime {
            fresh,
            stale_while_revalidate,
            stale_if_error,
            stale,
        },
    )
}

prop_compose! {
    /// Returns arbitrary metadata that is not in the future of [`NOW`].
    fn some_meta()(
        presence in prop_oneof![Just(Presence::Present), Just(Presence::Absent)],
        born in i64::MIN / 2..=NOW.as_millis(),
        load_started_at in i64::MIN / 2..=NOW.as_millis(),
        position in any::<u64>(),
        lifetime in some_lifetime(),
        load_cost in some_span(),
        tags in some_names(),
        validator in option::of((option::of(some_bytes()), option::of(some_bytes()))),
        vary in some_names(),
    ) -> Meta {
        let mut meta = Meta::new(at(born), lifetime);
        (meta.presence, meta.load_started_at) = (presence, at(load_started_at));
        meta.position = Position::new(position);
        meta.set_load_cost(load_cost);
        meta.set_tags(TagSet::new(tags.iter().map(String::as_str)));
        meta.set_validator(validator.map(|(tag, modified)| Validator { tag, modified }));
        meta.set_vary(Vary::new(vary.iter().map(String::as_str)));
        meta
    }
}

proptest! {
    #[test]
    fn encoded_entries_are_decoded_as_encoded(
        meta in some_meta(),
        parts in vec(vec(any::<u8>(), 0..20), 0..4),
        head in vec(any::<u8>(), 0..100),
        body in vec(some_bytes(), 0..5),
    ) {
        let mut key = KeyBuf::default();
        for part in &parts {
            key.part(part);
        }
        let frame = Frame { key: key.borrowed(), meta: &meta, head: &head, body: &body };
        let bytes = encode(&frame, NOW).unwrap();
        let arrival = Arrival { position: meta.position, ..AT_ONCE };
        let decoded = decode(&bytes, key.borrowed(), arrival).unwrap();
        prop_assert_eq!(decoded.meta, meta);
        prop_assert_eq!(decoded.head, head);
        prop_assert_eq!(decoded.body, body.concat());
    }

    #[test]
    fn timestamps_are_relative_to_the_clock_of_the_reader(
        meta in some_meta(),
        now in -1_000_000..1_000_000_i64,
        resided in 0..1_000_000_u64,
    ) {
        let (now, resided) = (at(now), Duration::from_millis(resided));
        let arrival = Arrival { now, resided, ..AT_ONCE };
        let read = decode(&framed(&meta), key().borrowed(), arrival).unwrap().meta;
        prop_assert_eq!(read.age(now), meta.age(NOW) + resided);
        let elapsed = NOW.since(meta.load_started_at) + resided;
        prop_assert_eq!(now.since(read.load_started_at), elapsed);
    }

    #[test]
    fn arbitrary_bytes_are_rejected_without_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(read(bytes).is_err());
    }

    #[test]
    fn arbitrary_bytes_after_a_valid_start_are_rejected_without_a_panic(
        bytes in vec(any::<u8>(), 0..300),
    ) {
        let start = [&MAGIC[..], &[VERSION], &bytes].concat();
        prop_assert!(read(start).is_err());
    }

    /// With a valid digest, a forged frame is either rejected or decoded to a usable entry.
    #[test]
    fn forged_frames_never_panic(
        meta in some_meta(),
        forgeries in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = framed(&meta).to_vec();
        for (place, byte) in forgeries {
            let behind_digest = DIGEST_END + place.index(bytes.len() - DIGEST_END);
            bytes[behind_digest] = byte;
        }
        seal(&mut bytes);
        if let Ok(decoded) = read(bytes) {
            let again = read(framed(&decoded.meta)).unwrap();
            prop_assert_eq!(again.meta, decoded.meta);
        }
    }

    #[test]
    fn any_bytes_as_meta_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        if let Some(meta) = decode_meta(Reader(&bytes), AT_ONCE) {
            prop_assert_eq!(meta.position, AT_ONCE.position);
        }
    }
}
