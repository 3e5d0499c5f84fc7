//! Target: normalization of `Accept-Encoding` and similar fields.

use std::collections::BTreeMap;

use forebay_semantics::selecting_value;

use crate::block::one;
use crate::run::{Outcome, Target};

/// Fuzz target for the normalization of `Accept-Encoding` and `Accept-Language`.
pub const TARGET: Target = Target { check, outcomes_min: 8 };

/// Checks an input of two values: its first line and the rest.
fn check(input: &[u8]) -> Outcome {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (left, right) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let marks = ["accept-encoding", "accept-language"].map(|name| {
        let (left, right) = (spelled(name, left), spelled(name, right));
        if let (Some(left), Some(right)) = (&left, &right) {
            assert_apart(left, right);
        }
        (left.map(Spelled::mark), right.map(Spelled::mark))
    });
    Outcome::of(marks)
}

struct Spelled {
    sent: Vec<u8>,
    normal: Vec<u8>,
    meaning: Option<BTreeMap<Vec<u8>, u32>>,
}

impl Spelled {
    fn mark(self) -> (bool, Option<usize>) {
        (self.sent == self.normal, self.meaning.map(|meaning| meaning.len().min(4)))
    }
}

fn spelled(name: &'static str, sent: &[u8]) -> Option<Spelled> {
    let sent = sent.trim_ascii();
    let normal = selecting_value(&one(name, sent)?, name)?.into_owned();
    let again = selecting_value(&one(name, &normal)?, name)?.into_owned();
    assert_eq!(again, normal, "the normal spelling is its own");
    let is_coding = name == "accept-encoding";
    let meaning = meaning(sent, is_coding);
    if meaning.is_none() {
        assert_eq!(normal, sent, "what has no plain meaning stays as it was sent");
    }
    if normal != sent {
        assert_eq!(self::meaning(&normal, is_coding), meaning, "and it says the same");
    }
    Some(Spelled { sent: sent.to_vec(), normal, meaning })
}

/// Asserts that values with one normal form have one meaning.
fn assert_apart(left: &Spelled, right: &Spelled) {
    if left.normal == right.normal && left.sent != right.sent {
        assert!(left.meaning.is_some(), "{:?} and {:?}", left.sent, right.sent);
        assert_eq!(left.meaning, right.meaning, "{:?} and {:?}", left.sent, right.sent);
    }
}

/// Weight of each name; `None` if a weight is invalid or a name has two. `x-` before a coding is an
/// old spelling (RFC 9110 section 8.4.1).
fn meaning(value: &[u8], is_coding: bool) -> Option<BTreeMap<Vec<u8>, u32>> {
    let mut weights = BTreeMap::new();
    let text = String::from_utf8(value.to_ascii_lowercase()).ok()?;
    for member in text.split(',').map(str::trim_ascii).filter(|member| !member.is_empty()) {
        let (name, weight) = match member.split_once(';') {
            Some((name, weight)) => (name.trim_ascii_end(), weight.trim_ascii_start()),
            None => (member, "q=1"),
        };
        let number = weight.strip_prefix("q=")?;
        let is_plain = matches!(number.as_bytes(), [b'0' | b'1'] | [b'0' | b'1', b'.', ..]);
        let digits = number.get(2..).unwrap_or_default();
        if !is_plain || digits.len() > 3 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let whole: u32 = number.get(..1)?.parse().ok()?;
        let weight = whole * 1_000 + format!("{digits:0<3}").parse::<u32>().ok()?;
        let old = |name: &&str| is_coding && matches!(*name, "gzip" | "compress");
        let name = name.strip_prefix("x-").filter(old).unwrap_or(name);
        if weight > 1_000 || *weights.entry(name.as_bytes().to_vec()).or_insert(weight) != weight {
            return None;
        }
    }
    Some(weights)
}
