//! Target: stored response heads, which may come from a tier that other programs write to.

use bytes::Bytes;
use forebay_http::head::Answer;

use crate::block::Block;
use crate::run::{Outcome, Target};

/// Fuzz target for stored response heads.
pub const TARGET: Target = Target { check, outcomes_min: 5 };

fn check(input: &[u8]) -> Outcome {
    let read = Answer::decode(Bytes::copy_from_slice(input));
    if let Some(answer) = &read {
        assert_read_back(answer);
        assert!(answer.headers.len() * 6 + 2 <= input.len(), "more fields than bytes for them");
    }
    let block = Block::read(input);
    let answer = Answer { status: block.status(), headers: block.headers };
    let bytes = assert_read_back(&answer);
    // A truncated head is invalid, or has fewer lines.
    for cut in [1, 3, bytes.len() / 2] {
        let short = bytes.slice(..bytes.len().saturating_sub(cut));
        let less = Answer::decode(short);
        assert!(less.is_none_or(|less| less.headers.len() < answer.headers.len()), "cut by {cut}");
    }
    let fields = read.as_ref().map(|answer| answer.headers.len().min(3));
    Outcome::of((fields, answer.headers.len().min(4)))
}

fn assert_read_back(answer: &Answer) -> Bytes {
    let head = answer.to_head();
    let bytes = head.bytes().expect("a head of HTTP keeps its bytes");
    let again = Answer::decode(bytes.clone());
    assert_eq!(again.as_ref(), Some(answer), "written and read again");
    bytes
}
