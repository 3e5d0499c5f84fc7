//! What versions before this one have written. A file is never changed: what is in it is in the
//! disks and servers of somebody. `FOREBAY_BLESS=1` writes those that are missing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forebay::codec::{Codec, Compression, Dictionary, Format, Json, MessagePack, Postcard, Raw};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    customer: String,
    amount: Option<i32>,
    lines: Vec<(String, u16)>,
    notes: BTreeMap<String, bool>,
}

fn order() -> Order {
    Order {
        id: 1 << 40,
        customer: "Ada, Countess of Lovelace".to_owned(),
        amount: Some(-7),
        lines: (0..40).map(|number| (format!("engine, part {number}"), number * 3)).collect(),
        notes: [("paid".to_owned(), true), ("großartig".to_owned(), false)].into(),
    }
}

fn bytes() -> Vec<u8> {
    b"as they are, ".repeat(100)
}

const COMPRESSIONS: [(&str, Compression); 6] = [
    ("none", Compression::None),
    ("gzip", Compression::Gzip),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
    ("brotli", Compression::Brotli),
    ("snappy", Compression::Snappy),
];

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    folder.join(format!("{name}.hex"))
}

/// What a file holds; written first, if it is missing and that is wanted.
fn golden(name: &str, anew: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let file = file(name);
    if !file.exists() && std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&file, hex(&anew())).expect("it can be written");
    }
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("two digits")
    };
    digits.chunks(2).map(byte).collect()
}

/// Forty bytes to a line.
fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| {
        let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        digits + "\n"
    };
    bytes.chunks(40).map(line).collect()
}

fn each<F: Format<V> + Clone, V: PartialEq + std::fmt::Debug>(
    (name, codec): (&str, Codec<F>),
    value: &V,
    dictionary: &Dictionary,
) {
    let mut written = Vec::new();
    for (number, (compression, chosen)) in COMPRESSIONS.into_iter().enumerate() {
        let writer = codec.clone().compressed(chosen).threshold(0);
        let anew = || writer.encode(value).expect("it fits").to_vec();
        let old = golden(&format!("{name}-{compression}"), anew);
        let expected = [0, 1, 2, 3, 4, 5][number];
        assert_eq!(old[4], expected, "{name}-{compression} is compressed so");
        written.push(old);
    }
    let trained = codec.clone().dictionary(dictionary);
    let anew = || trained.encode(value).expect("it fits").to_vec();
    let old = golden(&format!("{name}-dictionary"), anew);
    assert_eq!((old[4], &old[10..14]), (6, &dictionary.id().to_le_bytes()[..]), "{name}");
    written.push(old);
    for old in written {
        assert_eq!(old[..3], [0xf7, b'v', 1], "{name}");
        assert_eq!(&trained.decode::<V>(&old).expect("it was written once"), value, "{name}");
    }
}

#[test]
fn what_was_written_once_is_read_for_ever() {
    let sample = || {
        let customer = |id: u64| Order { id, customer: format!("customer {id}"), ..order() };
        let sample: Vec<Order> = (0..300).map(customer).collect();
        Codec::new(Json).train(&sample, 2 << 10).expect("much to learn").bytes().to_vec()
    };
    let dictionary = Dictionary::from_bytes(golden("dictionary", sample)).expect("it was one");
    each(("raw", Codec::new(Raw)), &bytes(), &dictionary);
    each(("msgpack", Codec::new(MessagePack)), &order(), &dictionary);
    each(("json", Codec::new(Json)), &order(), &dictionary);
    each(("postcard", Codec::new(Postcard)), &order(), &dictionary);
}
