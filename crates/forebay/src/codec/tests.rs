use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Row {
    id: u32,
    name: String,
    #[serde(default)]
    notes: Vec<String>,
}

const ALL: [Compression; 6] = [
    Compression::None,
    Compression::Gzip,
    Compression::Lz4,
    Compression::Zstd,
    Compression::Brotli,
    Compression::Snappy,
];

fn row(notes: usize) -> Row {
    Row { id: 7, name: "Ada".into(), notes: vec!["a note".into(); notes] }
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16);
    digits.chunks(2).map(|pair| byte(pair).expect("two digits")).collect()
}

#[test]
fn every_format_and_compression_gives_back_what_was_written_and_reads_the_others() {
    for compression in ALL {
        for notes in [0, 1_000] {
            let packed = Codec::new(MessagePack).compressed(compression).threshold(0);
            let json = Codec::new(Json).compressed(compression).threshold(0);
            let card = Codec::new(Postcard).compressed(compression).threshold(0);
            let one = packed.encode(&row(notes)).expect("it fits");
            let plain = Codec::new(MessagePack);
            for written in [Ok(one.clone()), json.encode(&row(notes)), card.encode(&row(notes))] {
                let written = written.expect("it fits");
                assert_eq!(plain.decode::<Row>(&written).expect("a row"), row(notes));
                assert_eq!(json.decode::<Row>(&written).expect("a row"), row(notes));
                assert_eq!(card.decode::<Row>(&written).expect("a row"), row(notes));
            }
            let raw = Codec::new(Raw).compressed(compression).threshold(0);
            let bytes = raw.encode(&vec![7_u8; notes]).expect("it fits");
            assert_eq!(raw.decode::<Vec<u8>>(&bytes).expect("bytes"), vec![7; notes]);
            assert!(raw.decode::<Vec<u8>>(&one).is_err(), "a row is no bytes");
            assert!(plain.decode::<Row>(&bytes).is_err(), "bytes are no row");
        }
    }
}

#[test]
fn only_what_is_large_enough_and_becomes_smaller_is_compressed() {
    let compression = |bytes: &[u8]| bytes[4];
    for chosen in &ALL[1..] {
        let codec = Codec::new(Raw).compressed(*chosen);
        let encode = |value: &[u8]| codec.encode(&value.to_vec()).expect("it fits");
        assert_eq!(compression(&encode(&[7; THRESHOLD])), chosen.id());
        assert_eq!(compression(&encode(&[7; THRESHOLD - 1])), Compression::None.id());
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..4_096)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            })
            .collect();
        assert_eq!(compression(&encode(&noise)), Compression::None.id());
        assert_eq!(encode(&noise).len(), HEADER + noise.len());
    }
}

/// What version 1 writes, byte by byte.
const GOLDEN: [&str; 3] = [
    "f7760100000003000000 416461",
    "f776010100001b000000 83a2696407a46e616d65a3416461a56e6f74657391a568656c6c6f",
    "f7760102000027000000 7b226964223a372c226e616d65223a22416461222c226e6f746573223a5b226865
     6c6c6f225d7d",
];

/// What it has written of thirty notes: other versions of a compression may write it otherwise,
/// and have to read this.
const GOLDEN_SMALLER: [&str; 3] = [
    "f77601010100e90000001f8b08000000000000ffddc63b0d00200c0540365c10ac20e525edc04019c0014ef8a9
     420ca98d4e776366f25b507825c291dab93d172ea2d6101fbe262e3de9000000",
    "f77601010200e9000000f00b83a2696407a46e616d65a3416461a56e6f746573dc001ea661200b000f0700b260
     61206e6f7465",
    "f77601010300e900000028b52ffd20e91d0100d083a2696407a46e616d65a3416461a56e6f746573dc001ea661
     200200481502da2a63",
];

/// A row as a version of the type wrote it that had no notes yet.
const GOLDEN_BEFORE: &str = "f7760102000015000000 7b226964223a372c226e616d65223a22416461227d";

#[test]
fn the_format_does_not_change_in_silence() {
    let written = Row { notes: vec!["hello".into()], ..row(0) };
    let [raw, packed, json] = GOLDEN.map(from_hex);
    assert_eq!(Codec::new(Raw).encode(&b"Ada".to_vec()).expect("it fits"), raw);
    assert_eq!(Codec::new(MessagePack).encode(&written).expect("it fits"), packed);
    assert_eq!(Codec::new(Json).encode(&written).expect("it fits"), json);
    for smaller in GOLDEN_SMALLER.map(from_hex) {
        assert_eq!(Codec::new(MessagePack).decode::<Row>(&smaller).expect("a row"), row(30));
    }
    let before = Codec::new(MessagePack).decode::<Row>(&from_hex(GOLDEN_BEFORE));
    assert_eq!(before.expect("a row"), row(0), "fields may be added to a type");
}

#[test]
fn whatever_is_not_a_value_is_an_error_and_no_panic() {
    let codec = Codec::new(MessagePack);
    for compression in ALL {
        let writer = codec.clone().compressed(compression).threshold(0);
        let good = writer.encode(&row(100)).expect("it fits").to_vec();
        for length in 0..good.len() {
            assert!(codec.decode::<Row>(&good[..length]).is_err(), "{compression:?} {length}");
        }
        for place in 0..HEADER {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[place] ^= 1 << bit;
                let read = codec.decode::<Row>(&bytes);
                assert!(read.is_err(), "{compression:?}, bit {bit} of byte {place}");
            }
        }
    }
}

#[test]
fn a_few_bytes_do_not_unfold_into_all_of_memory() {
    for compression in &ALL[1..] {
        let writer = Codec::new(Raw).compressed(*compression);
        let mut bytes = writer.encode(&vec![0_u8; 1 << 20]).expect("it fits").to_vec();
        assert!(bytes.len() < 1 << 16, "{compression:?}: {}", bytes.len());
        bytes[6..HEADER].copy_from_slice(&1_000_u32.to_le_bytes());
        assert!(writer.decode::<Vec<u8>>(&bytes).is_err(), "more than it says: {compression:?}");
        bytes[6..HEADER].copy_from_slice(&u32::MAX.to_le_bytes());
        let read = writer.decode::<Vec<u8>>(&bytes);
        assert!(matches!(read, Err(CodecError::Size)), "more than may be: {compression:?}");
    }
}

fn sample() -> Vec<Row> {
    let name = |id| format!("customer {id} of the shop at the corner");
    (0..400)
        .map(|id| Row { id, name: name(id), notes: vec![format!("order {}", id * 7)] })
        .collect()
}

#[test]
fn a_dictionary_makes_small_values_smaller_that_are_alike() {
    let plain = Codec::new(MessagePack);
    let dictionary = plain.train(&sample()[..300], 4 << 10).expect("there is much to learn");
    let trained = plain.clone().dictionary(&dictionary);
    let zstd = plain.clone().compressed(Compression::Zstd).threshold(0);
    let (mut small, mut usual) = (0, 0);
    for row in &sample()[300..] {
        let written = trained.encode(row).expect("it fits");
        assert_eq!(written[4], compression::DICTIONARY);
        assert_eq!(written[10..14], dictionary.id().to_le_bytes(), "the header names it");
        assert_eq!(&trained.decode::<Row>(&written).expect("a row"), row);
        small += written.len();
        usual += zstd.encode(row).expect("it fits").len();
    }
    assert!(small * 10 <= usual * 7, "{small} of {usual}");
}

#[test]
fn without_its_dictionary_a_value_is_an_error_that_names_it() {
    let plain = Codec::new(MessagePack);
    let dictionary = plain.train(&sample(), 4 << 10).expect("there is much to learn");
    let other = Codec::new(Json).train(&sample(), 2 << 10).expect("there is much to learn");
    assert_ne!(dictionary.id(), other.id());
    let written = plain.clone().dictionary(&dictionary).encode(&sample()[7]).expect("it fits");
    for codec in [plain.clone(), plain.clone().dictionary(&other)] {
        let error = codec.decode::<Row>(&written).expect_err("it cannot be read");
        assert!(matches!(error, CodecError::UnknownDictionary(id) if id == dictionary.id()));
        assert!(error.to_string().contains(&format!("{:08x}", dictionary.id())), "{error}");
    }
    let kept = Dictionary::of(dictionary.bytes()).expect("it was one");
    let both = plain.dictionary(&other).also_reads(&kept);
    assert_eq!(both.decode::<Row>(&written).expect("a row"), sample()[7]);
    let anew = both.encode(&sample()[7]).expect("it fits");
    assert_eq!(anew[10..14], other.id().to_le_bytes());
}

#[test]
fn what_is_written_with_a_dictionary_is_bounded_and_damaged_without_a_panic() {
    let plain = Codec::new(Raw);
    let zeros: Vec<Vec<u8>> = sample().iter().map(|row| row.name.clone().into_bytes()).collect();
    let dictionary = Dictionary::train(&zeros, 4 << 10).expect("there is much to learn");
    let codec = plain.dictionary(&dictionary);
    let good = codec.encode(&vec![0_u8; 1 << 20]).expect("it fits").to_vec();
    assert!(good.len() < 1 << 10);
    let mut bytes = good.clone();
    bytes[6..HEADER].copy_from_slice(&1_000_u32.to_le_bytes());
    assert!(codec.decode::<Vec<u8>>(&bytes).is_err(), "more than it says");
    for length in 0..good.len() {
        assert!(codec.decode::<Vec<u8>>(&good[..length]).is_err(), "{length}");
    }
    for place in 0..HEADER + 4 {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        assert!(codec.decode::<Vec<u8>>(&bytes).is_err(), "byte {place}");
    }
    assert!(Dictionary::of(b"no dictionary".to_vec()).is_err());
    assert!(Dictionary::of(vec![0; 2 << 20]).is_err());
    assert!(Dictionary::train(&[b"too little"], 4 << 10).is_err());
}
