//! Mutations of a sample: flipped bytes, removed, repeated and exchanged pieces, and inserted words
//! that the parser under test knows.

use std::ops::Range;

use crate::dice::Dice;

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

/// Bytes with a meaning in common grammars.
const BYTES: &[u8] = b"\0\t\n\r !\"#%&'()*+,-./09:;<=>?@AZ[\\]_az{|}~\x7f\x80\xff";

/// Numbers at the limits of common integer types.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "00",
    "31",
    "60",
    "99",
    "100",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
];

/// Material for mutations.
#[derive(Clone, Copy, Debug)]
pub struct Stock<'a> {
    /// Inputs to start from, and to take pieces from.
    pub pool: &'a [Vec<u8>],
    /// Words that the target knows.
    pub words: &'a [&'a str],
}

/// Input of at most [`LENGTH_MAX`] bytes, mutated from the pool.
pub fn mutate(stock: Stock<'_>, dice: &mut Dice) -> Vec<u8> {
    let mut input = dice.pick(stock.pool).cloned().unwrap_or_default();
    for _ in 0..=dice.below(CHANGES_MAX) {
        change(&mut input, stock, dice);
    }
    input.truncate(LENGTH_MAX);
    input
}

/// Input of about [`STRETCHED`] bytes: one piece repeated between the two ends of an input. It
/// reveals parsers that take more than linear time.
pub fn stretch(stock: Stock<'_>, dice: &mut Dice) -> Vec<u8> {
    let input = mutate(stock, dice);
    let place = dice.below(input.len() + 1);
    let (start, end) = input.split_at(place);
    let pattern = match dice.below(2) {
        0 => dice.pick(stock.words).map_or(&b"\""[..], |word| word.as_bytes()),
        _ => &end[..end.len().min(1 + dice.below(PATTERN_MAX))],
    };
    let pattern = if pattern.is_empty() { b"," } else { pattern };
    let missing = STRETCHED.saturating_sub(input.len());
    [start, &pattern.repeat(missing / pattern.len()), end].concat()
}

fn change(input: &mut Vec<u8>, stock: Stock<'_>, dice: &mut Dice) {
    let piece = piece_of(input, dice);
    match dice.below(9) {
        0 => flip(input, dice),
        1 => input.insert(piece.start, dice.pick(BYTES).copied().unwrap_or_default()),
        2 => replace(input, piece, &[]),
        3 => {
            let doubled = input[piece.clone()].to_vec();
            replace(input, piece.end..piece.end, &doubled);
        }
        4 => {
            let word = dice.pick(stock.words).copied().unwrap_or_default();
            let place = if dice.below(2) == 0 { piece.start..piece.start } else { piece };
            replace(input, place, word.as_bytes());
        }
        5 => {
            let number = dice.pick(NUMBERS).copied().unwrap_or_default();
            let place = number_behind(input, piece.start).unwrap_or(piece.start..piece.start);
            replace(input, place, number.as_bytes());
        }
        6 => splice(input, stock.pool, dice),
        7 => {
            let other = dice.pick(stock.pool).map_or(&[][..], Vec::as_slice);
            let taken = piece_of(other, dice);
            replace(input, piece.start..piece.start, &other[taken]);
        }
        _ => {
            let place = dice.below(input.len());
            if let (Some(byte), Some(new)) = (input.get_mut(place), dice.pick(BYTES)) {
                *byte = *new;
            }
        }
    }
}

fn flip(input: &mut [u8], dice: &mut Dice) {
    let place = dice.below(input.len());
    let bit = 1 << dice.below(8);
    if let Some(byte) = input.get_mut(place) {
        *byte ^= bit;
    }
}

/// Joins the beginning of one input and the end of another.
fn splice(input: &mut Vec<u8>, pool: &[Vec<u8>], dice: &mut Dice) {
    let Some(other) = dice.pick(pool) else { return };
    let (keep, from) = (dice.below(input.len() + 1), dice.below(other.len() + 1));
    input.truncate(keep);
    input.extend_from_slice(&other[from..]);
}

fn piece_of(input: &[u8], dice: &mut Dice) -> Range<usize> {
    let start = dice.below(input.len() + 1);
    let end = start + dice.below(PIECE_MAX.min(input.len() - start) + 1);
    start..end
}

/// First digits at or after `place`.
fn number_behind(input: &[u8], place: usize) -> Option<Range<usize>> {
    let rest = &input[place..];
    let start = place + rest.iter().position(u8::is_ascii_digit)?;
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(start..start + length)
}

fn replace(input: &mut Vec<u8>, place: Range<usize>, with: &[u8]) {
    input.splice(place, with.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock(pool: &[Vec<u8>]) -> Stock<'_> {
        Stock { pool, words: &["max-age", "="] }
    }

    #[test]
    fn mutations_stay_within_their_length_for_empty_and_full_inputs() {
        for pool in [vec![], vec![vec![]], vec![vec![b'1'; LENGTH_MAX]], vec![vec![b'x'], vec![]]] {
            let mut dice = Dice::new(3);
            for _ in 0..2000 {
                assert!(mutate(stock(&pool), &mut dice).len() <= LENGTH_MAX);
            }
            for _ in 0..20 {
                let length = stretch(stock(&pool), &mut dice).len();
                assert!((STRETCHED - LENGTH_MAX..=STRETCHED).contains(&length), "{length}");
            }
        }
    }

    #[test]
    fn mutations_differ_and_are_reproducible() {
        let pool = [b"cache-control: max-age=60".to_vec()];
        let made = |seed| {
            let mut dice = Dice::new(seed);
            (0..100).map(|_| mutate(stock(&pool), &mut dice)).collect::<Vec<_>>()
        };
        assert_eq!(made(1), made(1));
        let mut different = made(1);
        different.sort();
        different.dedup();
        assert!(different.len() > 90, "{}", different.len());
    }

    #[test]
    fn a_number_is_found_and_replaced_as_a_whole() {
        let mut input = b"a=1234;".to_vec();
        let place = number_behind(&input, 0).unwrap();
        replace(&mut input, place, b"9");
        assert_eq!(input, b"a=9;");
        assert_eq!(number_behind(&input, 3), None);
    }
}
