//! Target: the request scanner; its verdict must not depend on how the bytes are divided.

use fastrand::Rng;
use forebay_http::request_guard::{FramingError, HEAD_MAX, Phase, Scanner};

use crate::run::{Outcome, Target};

/// Number of random divisions of each input, besides none and every byte.
const CUTS: u64 = 3;

/// Fuzz target for the request scanner, whose input is divided in several ways.
pub const TARGET: Target = Target { check, outcomes_min: 18 };

/// Result for a whole stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Verdict {
    heads: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Refused { at: usize, label: &'static str },
    Open(&'static str),
}

fn check(input: &[u8]) -> Outcome {
    let whole = scan([input]);
    assert_eq!(scan(input.chunks(1)), whole, "byte by byte");
    let mut random = Rng::with_seed(input.len() as u64);
    for _ in 0..CUTS {
        let cut = pieces(input, &mut random);
        assert_eq!(scan(cut.iter().copied()), whole, "in pieces of {:?}", lengths(&cut));
    }
    // A head that is accepted ends within the limit.
    assert!(whole.heads > 0 || input.len() < HEAD_MAX || matches!(whole.end, End::Refused { .. }));
    let end = match whole.end {
        End::Refused { label, .. } => label,
        End::Open(phase) => phase,
    };
    Outcome::of((whole.heads.min(3), end))
}

fn scan<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Verdict {
    let mut scanner = Scanner::default();
    let mut before = 0;
    for piece in pieces {
        if let Err(refused) = scanner.feed(piece) {
            assert!(refused.at < piece.len(), "{refused:?} in {} bytes", piece.len());
            assert!(refused.start.is_none_or(|start| start <= refused.at), "{refused:?}");
            assert_final(&mut scanner, refused.why);
            let end = End::Refused { at: before + refused.at, label: refused.why.label() };
            return Verdict { heads: scanner.heads(), end };
        }
        before += piece.len();
    }
    Verdict { heads: scanner.heads(), end: End::Open(name(scanner.phase())) }
}

/// Asserts that nothing passes after a refusal.
fn assert_final(scanner: &mut Scanner, why: FramingError) {
    assert_eq!(scanner.phase(), Phase::Over);
    let heads = scanner.heads();
    scanner.set_tunnel();
    let again = scanner.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(again.map_err(|refused| (refused.at, refused.why)), Err((0, why)));
    assert_eq!(scanner.heads(), heads);
}

const fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Head => "head",
        Phase::Body => "body",
        Phase::Tunnel => "tunnel",
        Phase::Over => "over",
    }
}

fn pieces<'a>(input: &'a [u8], random: &mut Rng) -> Vec<&'a [u8]> {
    let mut rest = input;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(random.usize(1..=rest.len().min(40)));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

fn lengths(pieces: &[&[u8]]) -> Vec<usize> {
    pieces.iter().map(|piece| piece.len()).collect()
}
