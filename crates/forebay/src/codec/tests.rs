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
fn every_format_with_every_compression_round_trips_and_reads_the_other_formats() {
    for compression in ALL {
        for notes in [0, 1_000] {
            let packed = Codec::new(MessagePack).compressed(compression).threshold(0);
            let json = Codec::new(Json).compressed(compression).threshold(0);
            let card = Codec::new(Postcard).compressed(compression).threshold(0);
            let one = packed.encode(&row(notes)).expect("the value is encodable");
            let plain = Codec::new(MessagePack);
            for written in [Ok(one.clone()), json.encode(&row(notes)), card.encode(&row(notes))] {
                let written = written.expect("the value is encodable");
                assert_eq!(plain.decode::<Row>(&written).expect("a row"), row(notes));
                assert_eq!(json.decode::<Row>(&written).expect("a row"), row(notes));
                assert_eq!(card.decode::<Row>(&written).expect("a row"), row(notes));
            }
            let raw = Codec::new(Raw).compressed(compression).threshold(0);
            let bytes = raw.encode(&vec![7_u8; notes]).expect("the value is encodable");
            assert_eq!(raw.decode::<Vec<u8>>(&bytes).expect("bytes"), vec![7; notes]);
            assert!(raw.decode::<Vec<u8>>(&one).is_err(), "MessagePack is not raw");
            assert!(plain.decode::<Row>(&bytes).is_err(), "raw is not MessagePack");
        }
    }
}

#[test]
fn a_value_is_compressed_if_it_reaches_the_threshold_and_becomes_smaller() {
    let compression = |bytes: &[u8]| bytes[4];
    for chosen in &ALL[1..] {
        let codec = Codec::new(Raw).compressed(*chosen);
        let encode = |value: &[u8]| codec.encode(&value.to_vec()).expect("the value is encodable");
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

/// Values encoded by version 1.
const GOLDEN: [&str; 3] = [
    "f7760100000003000000 416461",
    "f776010100001b000000 83a2696407a46e616d65a3416461a56e6f74657391a568656c6c6f",
    "f7760102000027000000 7b226964223a372c226e616d65223a22416461222c226e6f746573223a5b226865
     6c6c6f225d7d",
];

/// A row of thirty notes, compressed. Later versions of a compression library may write other
/// bytes, and must read these.
const GOLDEN_COMPRESSED: [&str; 3] = [
    "f77601010100e90000001f8b08000000000000ffddc63b0d00200c0540365c10ac20e525edc04019c0014ef8a9
     420ca98d4e776366f25b507825c291dab93d172ea2d6101fbe262e3de9000000",
    "f77601010200e9000000f00b83a2696407a46e616d65a3416461a56e6f746573dc001ea661200b000f0700b260
     61206e6f7465",
    "f77601010300e900000028b52ffd20e91d0100d083a2696407a46e616d65a3416461a56e6f746573dc001ea661
     200200481502da2a63",
];

/// A row of an earlier version of the type, without the field `notes`.
const GOLDEN_EARLIER_TYPE: &str = "f7760102000015000000 7b226964223a372c226e616d65223a22416461227d";

#[test]
fn the_encoding_of_version_1_is_unchanged() {
    let written = Row { notes: vec!["hello".into()], ..row(0) };
    let [raw, packed, json] = GOLDEN.map(from_hex);
    assert_eq!(Codec::new(Raw).encode(&b"Ada".to_vec()).expect("the value is encodable"), raw);
    assert_eq!(Codec::new(MessagePack).encode(&written).expect("the value is encodable"), packed);
    assert_eq!(Codec::new(Json).encode(&written).expect("the value is encodable"), json);
    for compressed in GOLDEN_COMPRESSED.map(from_hex) {
        assert_eq!(Codec::new(MessagePack).decode::<Row>(&compressed).expect("a row"), row(30));
    }
    let before = Codec::new(MessagePack).decode::<Row>(&from_hex(GOLDEN_EARLIER_TYPE));
    assert_eq!(before.expect("a row"), row(0), "a missing field has its default");
}

#[test]
fn truncated_and_corrupt_values_are_errors() {
    let codec = Codec::new(MessagePack);
    for compression in ALL {
        let writer = codec.clone().compressed(compression).threshold(0);
        let good = writer.encode(&row(100)).expect("the value is encodable").to_vec();
        for length in 0..good.len() {
            assert!(codec.decode::<Row>(&good[..length]).is_err(), "{compression:?} {length}");
        }
        for offset in 0..HEADER {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[offset] ^= 1 << bit;
                let read = codec.decode::<Row>(&bytes);
                assert!(read.is_err(), "{compression:?}, bit {bit} of byte {offset}");
            }
        }
    }
}

#[test]
fn a_value_that_decompresses_to_more_than_its_header_says_is_an_error() {
    for compression in &ALL[1..] {
        let writer = Codec::new(Raw).compressed(*compression);
        let mut bytes =
            writer.encode(&vec![0_u8; 1 << 20]).expect("the value is encodable").to_vec();
        assert!(bytes.len() < 1 << 16, "{compression:?}: {}", bytes.len());
        bytes[6..HEADER].copy_from_slice(&1_000_u32.to_le_bytes());
        assert!(writer.decode::<Vec<u8>>(&bytes).is_err(), "{compression:?}");
        bytes[6..HEADER].copy_from_slice(&u32::MAX.to_le_bytes());
        let read = writer.decode::<Vec<u8>>(&bytes);
        assert!(matches!(read, Err(CodecError::TooLarge(_))), "{compression:?}");
    }
}

#[test]
fn a_wrong_length_a_damaged_value_and_a_large_dictionary_are_different_errors() {
    let codec = Codec::new(Raw);
    let mut bytes = codec.encode(&vec![7_u8; 100]).expect("the value is encodable").to_vec();
    bytes[6..HEADER].copy_from_slice(&99_u32.to_le_bytes());
    let error = codec.decode::<Vec<u8>>(&bytes).expect_err("one byte is too many");
    assert!(matches!(error, CodecError::WrongLength(99)), "{error}");
    let zstd = codec.compressed(Compression::Zstd).threshold(0);
    let mut bytes = zstd.encode(&vec![7_u8; 100]).expect("the value is encodable").to_vec();
    bytes.truncate(HEADER + 4);
    let error = zstd.decode::<Vec<u8>>(&bytes).expect_err("the compressed bytes are truncated");
    assert!(matches!(error, CodecError::Compression(_)), "{error}");
    let error = Dictionary::from_bytes(vec![0; 2 << 20]).expect_err("2 MiB");
    assert_eq!(error.to_string(), "the dictionary has 2097152 bytes, and the maximum is 1 MiB");
}

fn sample() -> Vec<Row> {
    let name = |id| format!("customer {id} of the shop at the corner");
    (0..400)
        .map(|id| Row { id, name: name(id), notes: vec![format!("order {}", id * 7)] })
        .collect()
}

#[test]
fn a_dictionary_shrinks_small_similar_values_by_at_least_30_percent() {
    let plain = Codec::new(MessagePack);
    let dictionary = plain.train(&sample()[..300], 4 << 10).expect("the sample is large enough");
    let trained = plain.clone().dictionary(&dictionary);
    let zstd = plain.clone().compressed(Compression::Zstd).threshold(0);
    let (mut with_dictionary, mut without) = (0, 0);
    for row in &sample()[300..] {
        let written = trained.encode(row).expect("the value is encodable");
        assert_eq!(written[4], compression::DICTIONARY);
        assert_eq!(written[10..14], dictionary.id().to_le_bytes(), "the header names it");
        assert_eq!(&trained.decode::<Row>(&written).expect("a row"), row);
        with_dictionary += written.len();
        without += zstd.encode(row).expect("the value is encodable").len();
    }
    assert!(with_dictionary * 10 <= without * 7, "{with_dictionary} of {without} bytes");
}

#[test]
fn a_value_without_its_dictionary_is_an_error_with_the_dictionary_id() {
    let plain = Codec::new(MessagePack);
    let dictionary = plain.train(&sample(), 4 << 10).expect("the sample is large enough");
    let other = Codec::new(Json).train(&sample(), 2 << 10).expect("the sample is large enough");
    assert_ne!(dictionary.id(), other.id());
    let written =
        plain.clone().dictionary(&dictionary).encode(&sample()[7]).expect("the value is encodable");
    for codec in [plain.clone(), plain.clone().dictionary(&other)] {
        let error = codec.decode::<Row>(&written).expect_err("the dictionary is missing");
        assert!(matches!(error, CodecError::UnknownDictionary(id) if id == dictionary.id()));
        assert!(error.to_string().contains(&format!("{:08x}", dictionary.id())), "{error}");
    }
    let kept = Dictionary::from_bytes(dictionary.bytes()).expect("bytes of a dictionary");
    let both = plain.dictionary(&other).also_reads(&kept);
    assert_eq!(both.decode::<Row>(&written).expect("a row"), sample()[7]);
    let anew = both.encode(&sample()[7]).expect("the value is encodable");
    assert_eq!(anew[10..14], other.id().to_le_bytes());
}

#[test]
fn truncated_corrupt_and_oversized_values_with_a_dictionary_are_errors() {
    let plain = Codec::new(Raw);
    let zeros: Vec<Vec<u8>> = sample().iter().map(|row| row.name.clone().into_bytes()).collect();
    let dictionary = Dictionary::train(&zeros, 4 << 10).expect("the sample is large enough");
    let codec = plain.dictionary(&dictionary);
    let good = codec.encode(&vec![0_u8; 1 << 20]).expect("the value is encodable").to_vec();
    assert!(good.len() < 1 << 10);
    let mut bytes = good.clone();
    bytes[6..HEADER].copy_from_slice(&1_000_u32.to_le_bytes());
    assert!(codec.decode::<Vec<u8>>(&bytes).is_err(), "longer than its header says");
    for length in 0..good.len() {
        assert!(codec.decode::<Vec<u8>>(&good[..length]).is_err(), "{length}");
    }
    for offset in 0..HEADER + 4 {
        let mut bytes = good.clone();
        bytes[offset] ^= 1;
        assert!(codec.decode::<Vec<u8>>(&bytes).is_err(), "byte {offset}");
    }
    assert!(Dictionary::from_bytes(b"no dictionary".to_vec()).is_err());

    assert!(Dictionary::train(&[b"too little"], 4 << 10).is_err());
}
