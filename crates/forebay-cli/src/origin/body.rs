//! Response bodies that are generated while they are sent, at a configured rate.

use super::counts::CountedRequest;
use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Maximum size of one piece in bytes; a body of gigabytes needs no more memory than this.
const PIECE_MAX: u64 = 64 << 10;
/// Number of pieces of a dripping body.
const DRIP_PIECES: u64 = 32;
/// Bytes per step of the pattern generator.
const WORD: u64 = 8;
/// Characters of generated bodies: printable, and 64 of them, so that six bits select one.
const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n";

/// Content of a body.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// Fixed bytes.
    Text(Bytes),
    /// `size` pseudo-random bytes, a function of `seed`.
    Pattern { seed: u64, size: u64 },
}

impl Content {
    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Pattern { size, .. } => *size,
        }
    }

    /// Bytes from `start`, at most [`PIECE_MAX`], and none beyond `end`.
    fn piece(&self, start: u64, end: u64) -> Bytes {
        let end = end.min(start + PIECE_MAX);
        match self {
            Self::Text(text) => {
                let at = |offset: u64| {
                    usize::try_from(offset).map_or(text.len(), |at| at.min(text.len()))
                };
                text.slice(at(start)..at(end))
            }
            Self::Pattern { seed, .. } => pattern(*seed, start, end),
        }
    }
}

/// Body being sent. The request counts as in flight until the body is dropped.
#[derive(Debug)]
pub(super) struct PacedBody {
    content: Content,
    offset: u64,
    counted: Option<CountedRequest>,
    drip: Option<DripSchedule>,
}

/// Times at which the pieces of a body are due.
#[derive(Debug)]
struct DripSchedule {
    start: Instant,
    span: Duration,
    pieces: u64,
    timer: Pin<Box<Sleep>>,
}

impl PacedBody {
    /// Creates a body that is spread over `drip`, or sent as fast as possible if that is zero.
    pub(super) fn new(content: Content, drip: Duration, counted: Option<CountedRequest>) -> Self {
        let drip = (!drip.is_zero()).then(|| {
            let start = Instant::now();
            let pieces = DRIP_PIECES.min(content.len()).max(1);
            DripSchedule { start, span: drip, pieces, timer: Box::pin(sleep_until(start)) }
        });
        Self { content, offset: 0, counted, drip }
    }

    /// Resolves, when the piece that contains `offset` is due, to the end of that piece.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        let total = self.content.len();
        let Some(drip) = &mut self.drip else { return Poll::Ready(total) };
        let piece = piece_at(self.offset, total, drip.pieces);
        let due = drip.start + drip.due(piece);
        if drip.timer.deadline() != due {
            drip.timer.as_mut().reset(due);
        }
        ready!(drip.timer.as_mut().poll(cx));
        Poll::Ready(piece_end(piece, total, drip.pieces))
    }
}

impl DripSchedule {
    /// Time from the start to a piece: zero for the first one, the whole span for the last one.
    fn due(&self, piece: u64) -> Duration {
        if self.pieces == 1 {
            return self.span;
        }
        let share = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.span.saturating_mul(share(piece)) / share(self.pieces - 1)
    }
}

/// Index of the piece that contains `offset`, where `total` bytes are cut into `pieces`.
fn piece_at(offset: u64, total: u64, pieces: u64) -> u64 {
    // A piece ends where the next one begins, at ceil(piece * total / pieces).
    (offset * pieces / total.max(1)).min(pieces - 1)
}

fn piece_end(piece: u64, total: u64, pieces: u64) -> u64 {
    ((piece + 1) * total).div_ceil(pieces).min(total)
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let end = ready!(self.poll_due(cx));
        let piece = self.content.piece(self.offset, end);
        self.offset += piece.len() as u64;
        if let Some(counted) = &self.counted {
            counted.sent(piece.len());
        }
        if self.is_end_stream() {
            self.counted = None;
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.offset >= self.content.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.content.len() - self.offset)
    }
}

/// Bytes from `start` to `end` of the pattern of a seed, independent of the cut.
fn pattern(seed: u64, start: u64, end: u64) -> Bytes {
    let mut bytes = BytesMut::new();
    let first = start / WORD;
    for word in first..end.div_ceil(WORD) {
        let random = mixed(seed.wrapping_add(word));
        bytes.put_slice(&random.to_le_bytes().map(|byte| ALPHABET[usize::from(byte & 63)]));
    }
    let skipped = start - first * WORD;
    let within = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let (from, to) = (within(skipped), within(skipped + (end - start)));
    bytes.freeze().slice(from..to)
}

/// Finalizer of SplitMix64: similar inputs give unrelated outputs.
fn mixed(input: u64) -> u64 {
    let mut word = input.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Seed derived from byte strings; each string's length counts, so ("ab", "c") differs from
/// ("a", "bc").
pub(super) fn seed_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u64 {
    parts.fold(0, |seed, part| {
        let length = mixed(seed ^ part.len() as u64);
        part.iter().fold(length, |seed, byte| mixed(seed ^ u64::from(*byte)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_does_not_depend_on_how_it_is_cut() {
        let whole = pattern(7, 0, 1000);
        assert_eq!(whole.len(), 1000);
        for (start, end) in [(0, 1), (1, 17), (7, 8), (8, 16), (13, 999), (999, 1000), (5, 5)] {
            let (from, to) = (usize::try_from(start).unwrap(), usize::try_from(end).unwrap());
            assert_eq!(pattern(7, start, end), whole[from..to], "{start}..{end}");
        }
        assert_ne!(pattern(8, 0, 1000), whole);
        assert!(whole.iter().all(|byte| ALPHABET.contains(byte)));
        let distinct: std::collections::HashSet<_> = whole.iter().collect();
        assert!(distinct.len() > 50);
    }

    #[test]
    fn seeds_tell_parts_apart() {
        let seed = |parts: &[&'static str]| seed_of(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(seed(&["ab", "c"]), seed(&["ab", "c"]));
        assert_ne!(seed(&["ab", "c"]), seed(&["a", "bc"]));
        assert_ne!(seed(&["ab"]), seed(&["ab", ""]));
    }

    #[test]
    fn pieces_cover_a_body_without_gap_or_overlap() {
        for (total, pieces) in [(1, 1), (31, 31), (32, 32), (33, 32), (1000, 32), (4 << 30, 32)] {
            let mut offset = 0;
            for piece in 0..pieces {
                assert_eq!(piece_at(offset, total, pieces), piece, "{total} at {offset}");
                let end = piece_end(piece, total, pieces);
                assert!(end > offset);
                assert_eq!(piece_at(end - 1, total, pieces), piece);
                offset = end;
            }
            assert_eq!(offset, total);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dripping_body_takes_its_time() {
        use http_body_util::BodyExt;
        for (size, pieces) in [(1000, 32), (5, 5), (1, 1), (0, 0)] {
            let content = Content::Pattern { seed: 1, size };
            let mut body = PacedBody::new(content, Duration::from_millis(3100), None);
            let start = Instant::now();
            let mut due = Vec::new();
            while let Some(frame) = body.frame().await {
                assert!(!frame.unwrap().into_data().unwrap().is_empty());
                due.push(start.elapsed().as_millis());
            }
            assert_eq!(due.len(), pieces);
            match due.as_slice() {
                [] => {}
                [only] => assert!((3100..3110).contains(only), "{due:?}"),
                [first, .., last] => {
                    assert!(*first < 10 && (3100..3110).contains(last), "{due:?}");
                }
            }
        }
    }
}
