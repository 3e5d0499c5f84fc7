//! Values that earlier versions have written, one file each. Files are never changed, because such
//! values are stored on disks and servers. `FOREBAY_BLESS=1` writes missing files.

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

/// Returns the bytes of a file. With `FOREBAY_BLESS`, a missing file is created by `encode`.
fn golden(name: &str, encode: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let file = file(name);
    if !file.exists() && std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&file, hex(&encode())).expect("the file is writable");
    }
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("two digits")
    };
    digits.chunks(2).map(byte).collect()
}

/// Formats bytes as hexadecimal digits, 40 bytes on each line.
fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| {
        let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        digits + "\n"
    };
    bytes.chunks(40).map(line).collect()
}

fn check_format<F: Format<V> + Clone, V: PartialEq + std::fmt::Debug>(
    name: &str,
    codec: Codec<F>,
    value: &V,
    dictionary: &Dictionary,
) {
    let mut written = Vec::new();
    for (number, (compression, chosen)) in COMPRESSIONS.into_iter().enumerate() {
        let writer = codec.clone().compressed(chosen).threshold(0);
        let encode = || writer.encode(value).expect("the value is encodable").to_vec();
        let old = golden(&format!("{name}-{compression}"), encode);
        let expected = [0, 1, 2, 3, 4, 5][number];
        assert_eq!(old[4], expected, "compression id of {name}-{compression}");
        written.push(old);
    }
    let trained = codec.clone().dictionary(dictionary);
    let encode = || trained.encode(value).expect("the value is encodable").to_vec();
    let old = golden(&format!("{name}-dictionary"), encode);
    assert_eq!((old[4], &old[10..14]), (6, &dictionary.id().to_le_bytes()[..]), "{name}");
    written.push(old);
    for old in written {
        assert_eq!(old[..3], [0xf7, b'v', 1], "{name}");
        assert_eq!(
            &trained.decode::<V>(&old).expect("a value of an earlier version"),
            value,
            "{name}"
        );
    }
}

#[test]
fn values_of_all_earlier_versions_are_decodable() {
    let sample = || {
        let customer = |id: u64| Order { id, customer: format!("customer {id}"), ..order() };
        let sample: Vec<Order> = (0..300).map(customer).collect();
        Codec::new(Json)
            .train(&sample, 2 << 10)
            .expect("the sample is large enough")
            .bytes()
            .to_vec()
    };
    let dictionary =
        Dictionary::from_bytes(golden("dictionary", sample)).expect("bytes of a dictionary");
    check_format("raw", Codec::new(Raw), &bytes(), &dictionary);
    check_format("msgpack", Codec::new(MessagePack), &order(), &dictionary);
    check_format("json", Codec::new(Json), &order(), &dictionary);
    check_format("postcard", Codec::new(Postcard), &order(), &dictionary);
}
