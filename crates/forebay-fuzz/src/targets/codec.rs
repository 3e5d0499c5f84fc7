//! Target: values of the library, made of a header, a compression and a format. Every client of a
//! shared tier may write such values.

use std::sync::OnceLock;

use forebay::codec::{
    Codec, CodecError, Compression, Dictionary, Format, Json, MessagePack, Postcard, Raw,
};
use serde::{Deserialize, Serialize};

use crate::run::{Outcome, Target};

/// First bytes of every value of version 1.
const FRONT: [u8; 3] = [0xf7, b'v', 1];

/// Length of the header in bytes.
const HEADER: usize = 10;

/// Maximum number of bytes of an input that become a value.
const PLAIN_MAX: usize = 16 << 10;

const COMPRESSIONS: [Compression; 6] = [
    Compression::None,
    Compression::Gzip,
    Compression::Lz4,
    Compression::Zstd,
    Compression::Brotli,
    Compression::Snappy,
];

/// Fuzz target for values of the library in lower tiers: header, compression and format.
pub const TARGET: Target = Target { check, outcomes_min: 8 };

type Rows = Vec<(String, Option<i64>)>;

/// Recursive type, whose nesting is unbounded.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Tree {
    name: String,
    below: Vec<Self>,
}

fn check(input: &[u8]) -> Outcome {
    let as_it_is = read_all(input);
    let forged = read_all(&forged(input));
    assert_written(&input[..input.len().min(PLAIN_MAX)]);
    Outcome::of((as_it_is, forged))
}

/// Results of reading the input as three types.
fn read_all(written: &[u8]) -> [String; 3] {
    let bytes = read::<_, Vec<u8>>(Raw, written);
    if let Ok(bytes) = &bytes {
        let announced: [u8; 4] = written[6..HEADER].try_into().expect("it had a header");
        assert_eq!(bytes.len() as u64, u64::from(u32::from_le_bytes(announced)), "as it says");
    }
    let rows = read::<_, Rows>(Postcard, written);
    assert_eq!(rows.is_ok(), read::<_, Rows>(Json, written).is_ok(), "what it says, each reads");
    // postcard documents that it does not limit recursion, so such a type is a user error there.
    let is_postcard = written.get(3) == Some(&3);
    let tree = if is_postcard { Err(CodecError::Unknown) } else { read(MessagePack, written) };
    [kind(&bytes), kind(&rows), kind::<Tree>(&tree)]
}

/// Asserts that a value that was read is written and read back as an equal one.
fn read<F, V>(format: F, written: &[u8]) -> Result<V, CodecError>
where
    F: Format<V>,
    V: PartialEq + std::fmt::Debug,
{
    let codec = Codec::new(format).dictionary(dictionary());
    let value = codec.decode::<V>(written)?;
    let again = codec.encode(&value).and_then(|again| codec.decode::<V>(&again));
    assert!(again.is_ok_and(|again| again == value), "{value:?} is not what is read of it");
    Ok(value)
}

/// Value with a header derived from the input, followed by matching or other content.
fn forged(input: &[u8]) -> Vec<u8> {
    let (wanted, rest) = input.split_first_chunk::<4>().unwrap_or((&[0; 4], input));
    let [format, compression, honest, claim] = *wanted;
    let rest = &rest[..rest.len().min(PLAIN_MAX)];
    let (id, payload) = folded(usize::from(compression), rest);
    let claimed = u32::from(claim) << (honest % 32);
    let is_honest = honest % 2 == 1;
    let length = if is_honest { u32::try_from(rest.len()).unwrap_or(0) } else { claimed };
    let payload = if honest % 4 == 2 { rest } else { &payload };
    [&FRONT, &[format % 5, id, 0][..], &length.to_le_bytes(), payload].concat()
}

/// Compressed bytes without the header.
fn folded(which: usize, plain: &[u8]) -> (u8, Vec<u8>) {
    let codec = match COMPRESSIONS.get(which % 8) {
        Some(compression) => Codec::new(Raw).compressed(*compression),
        None => Codec::new(Raw).dictionary(dictionary()),
    };
    let written = codec.threshold(0).encode(&plain.to_vec()).unwrap_or_default();
    (written[4], written[HEADER..].to_vec())
}

/// Asserts that a written value is read back with every compression, and that a part of it is not.
fn assert_written(plain: &[u8]) {
    for compression in COMPRESSIONS {
        let codec = Codec::new(Raw).compressed(compression).threshold(0);
        let written = codec.encode(&plain.to_vec()).unwrap_or_else(|error| panic!("{error}"));
        let read = codec.decode::<Vec<u8>>(&written);
        assert!(read.is_ok_and(|read| read == plain), "{compression:?}");
        if !plain.is_empty() {
            let part = codec.decode::<Vec<u8>>(&written[..written.len() - 1]);
            assert!(part.is_err() || part.is_ok_and(|part| part == plain), "{compression:?}");
        }
    }
}

fn dictionary() -> &'static Dictionary {
    static TRAINED: OnceLock<Dictionary> = OnceLock::new();
    TRAINED.get_or_init(|| {
        let row = |number| format!("row {number} of {} of the table of customers", number * 7 % 97);
        let sample: Vec<String> = (0..500).map(row).collect();
        Dictionary::train(&sample, 1 << 10).unwrap_or_else(|error| panic!("{error}"))
    })
}

fn kind<V>(read: &Result<V, CodecError>) -> String {
    match read {
        Ok(_) => "a value".to_owned(),
        Err(CodecError::Format(_)) => "another type".to_owned(),
        Err(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_value_can_be_of_each_format_and_compression() {
        let rows: [(u8, &[u8]); 3] = [
            (1, b"\x92\x92\xa1a\x01\x92\xa1b\xc0"),
            (2, b"[[\"a\",1],[\"b\",null]]"),
            (3, b"\x02\x01a\x01\x02\x01b\x00"),
        ];
        for compression in 0..7 {
            for (format, written) in rows {
                let input = [&[format, compression, 1, 0][..], written].concat();
                let [_, read, _] = read_all(&forged(&input));
                assert_eq!(read, "a value", "{format}, {compression}");
            }
        }
    }
}
