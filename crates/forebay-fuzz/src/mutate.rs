//! Mutations of a sample: flipped bytes, removed, repeated and exchanged pieces, and words of other
//! samples.

use std::ops::Range;

use fastrand::Rng;

/// Maximum length of an ordinary input in bytes. Parsers reach all branches within a few lines, and
/// short inputs allow more rounds.
pub const LENGTH_MAX: usize = 4 * 1024;

/// Length of a stretched input in bytes: the largest head that the HTTP front end accepts.
pub const STRETCHED: usize = 64 * 1024;

/// Maximum number of changes to one input; after more, little of the sample is left.
const CHANGES_MAX: usize = 5;

/// Maximum length of a piece that one change removes or repeats.
const PIECE_MAX: usize = 48;

/// Maximum length of the piece that a stretched input repeats.
const PATTERN_MAX: usize = 16;

/// Maximum number of words that one change inserts.
const WORDS_MAX: usize = 4;

/// Bytes with a meaning in common grammars.
const BYTES: &[u8] = b"\0\t\n\r !\"#%&'()*+,-./09:;<=>?@AZ[\\]_az{|}~\x7f\x80\xff";

/// Numbers at the limits of common integer types.
const NUMBERS: &str = "0 1 -1 00 31 60 99 100 255 256 65535 65536 2147483647 2147483648 \
                       4294967295 4294967296 9223372036854775807 9223372036854775808 \
                       18446744073709551615 18446744073709551616 99999999999999999999999999";

/// Returns an input of at most [`LENGTH_MAX`] bytes: one of the pool with some random changes.
pub fn mutate(pool: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut input = picked(pool, random).to_vec();
    for _ in 0..=random.usize(..CHANGES_MAX) {
        change(&mut input, pool, random);
    }
    input.truncate(LENGTH_MAX);
    input
}

/// Returns an input of about [`STRETCHED`] bytes: one piece repeated between the two ends of an
/// input. It reveals parsers that take more than linear time.
pub fn stretch(pool: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let input = mutate(pool, random);
    let (start, end) = input.split_at(random.usize(..=input.len()));
    let mut pattern = match random.bool() {
        true => words(picked(pool, random), random),
        false => end[..end.len().min(random.usize(1..=PATTERN_MAX))].to_vec(),
    };
    if pattern.is_empty() {
        pattern.push(b'"');
    }
    let missing = STRETCHED.saturating_sub(input.len());
    [start, &pattern.repeat(missing / pattern.len()), end].concat()
}

/// Copy of a written value with one byte less or more, a flipped bit, or without its end.
pub(crate) fn damage(value: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut damaged = value.to_vec();
    let place = random.usize(..value.len());
    match random.u8(..3) {
        0 => damaged.truncate(place),
        1 => damaged.insert(place, 0),
        _ => damaged[place] ^= 1 << random.u8(..8),
    }
    damaged
}

fn change(input: &mut Vec<u8>, pool: &[Vec<u8>], random: &mut Rng) {
    let (piece, other) = (piece_of(input, random), picked(pool, random));
    let here = piece.start..piece.start;
    let byte = piece.start..(piece.start + 1).min(input.len());
    let (place, with) = match random.u8(..9) {
        0 => {
            let bit = 1 << random.u8(..8);
            (byte.clone(), input[byte].iter().map(|byte| byte ^ bit).collect())
        }
        1 => (here, random.choice(BYTES).copied().into_iter().collect()),
        2 => (byte, random.choice(BYTES).copied().into_iter().collect()),
        3 => (piece, Vec::new()),
        4 => (here, input[piece].to_vec()),
        5 => (if random.bool() { here } else { piece }, words(other, random)),
        6 => {
            let number = random.choice(NUMBERS.split(' ').collect::<Vec<_>>()).unwrap_or_default();
            (number_behind(input, piece.start).unwrap_or(here), number.into())
        }
        7 => (here, other[piece_of(other, random)].to_vec()),
        _ => (piece.start..input.len(), other[random.usize(..=other.len())..].to_vec()),
    };
    input.splice(place, with);
}

fn picked<'a>(pool: &'a [Vec<u8>], random: &mut Rng) -> &'a [u8] {
    random.choice(pool).map_or(&[], Vec::as_slice)
}

/// Some words of an input that follow each other. A word consists of letters, digits and dashes, or
/// of other bytes only.
fn words(input: &[u8], random: &mut Rng) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let words: Vec<&[u8]> = input.chunk_by(|one, next| is_plain(one) == is_plain(next)).collect();
    let rest = &words[random.usize(..words.len().max(1)).min(words.len())..];
    rest[..rest.len().min(random.usize(1..=WORDS_MAX))].concat()
}

fn piece_of(input: &[u8], random: &mut Rng) -> Range<usize> {
    let start = random.usize(..=input.len());
    start..start + random.usize(..=PIECE_MAX.min(input.len() - start))
}

/// First digits at or after `place`.
fn number_behind(input: &[u8], place: usize) -> Option<Range<usize>> {
    let rest = &input[place..];
    let start = place + rest.iter().position(u8::is_ascii_digit)?;
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(start..start + length)
}
