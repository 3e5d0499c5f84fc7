use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::request_guard::samples::{self, PLAIN};

/// Result of scanning a whole stream: the offset and reason of the rejection, or the number of
/// heads and the final phase.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Refused(usize, FramingError),
    Accepted(u64, Phase),
}

fn scan<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut scanner = Scanner::default();
    let mut before = 0;
    for piece in pieces {
        if let Err(refused) = scanner.feed(piece) {
            assert_eq!(scanner.phase(), Phase::Over);
            assert!(refused.at < piece.len());
            assert!(refused.start.is_none_or(|start| start <= refused.at));
            return Outcome::Refused(before + refused.at, refused.why);
        }
        before += piece.len();
    }
    Outcome::Accepted(scanner.heads(), scanner.phase())
}

/// Splits a stream at the given offsets, in any order, modulo its length.
fn cut<'a>(bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place % (bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

#[test]
fn well_framed_streams_are_accepted_whole_and_byte_by_byte() {
    for good in samples::good() {
        let shown = String::from_utf8_lossy(&good.bytes[..good.bytes.len().min(200)]).into_owned();
        let expected = Outcome::Accepted(good.requests, Phase::Idle);
        assert_eq!(scan([good.bytes.as_slice()]), expected, "{shown}");
        assert_eq!(scan(good.bytes.chunks(1)), expected, "{shown}");
    }
}

#[test]
fn invalid_streams_are_rejected_at_their_first_invalid_byte() {
    for bad in samples::bad() {
        let bytes = bad.bytes();
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        let expected = Outcome::Refused(bad.until.len(), bad.why);
        assert_eq!(scan([bytes.as_slice()]), expected, "{shown}");
        assert_eq!(scan(bytes.chunks(1)), expected, "{shown}");
        let after_another = [PLAIN.as_bytes(), &bytes].concat();
        let expected = Outcome::Refused(PLAIN.len() + bad.until.len(), bad.why);
        assert_eq!(scan([after_another.as_slice()]), expected, "{shown}");
    }
}

/// Reads a plain head, which must be one that the scanner accepts to its last byte and no earlier.
fn assert_plain_is_valid(bytes: &[u8]) -> Option<usize> {
    let length = PlainHead::read(bytes, |_| true)?.length;
    assert_eq!(scan([&bytes[..length]]), Outcome::Accepted(1, Phase::Idle));
    assert_eq!(scan([&bytes[..length - 1]]), Outcome::Accepted(0, Phase::Head));
    Some(length)
}

#[test]
fn a_plain_head_is_one_that_the_scanner_accepts() {
    assert_eq!(assert_plain_is_valid(PLAIN.as_bytes()), Some(PLAIN.len()));
    let is_plain = |bytes: &[u8]| assert_plain_is_valid(bytes).is_some();
    assert_eq!(samples::good().iter().filter(|good| is_plain(&good.bytes)).count(), 5);
    for bad in samples::bad() {
        // The first request of a sample may be valid.
        let length = assert_plain_is_valid(&bad.bytes());
        assert!(length.is_none_or(|length| length <= bad.until.len()));
    }
}

#[test]
fn every_framing_error_has_a_sample() {
    let bad = samples::bad();
    for why in FramingError::ALL {
        assert!(bad.iter().any(|bad| bad.why == why), "{why:?}");
    }
}

#[test]
fn the_phase_follows_the_message() {
    let mut scanner = Scanner::default();
    assert_eq!(scanner.phase(), Phase::Idle);
    let steps: [(&[u8], Phase, u64); 7] = [
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r", Phase::Head, 0),
        (b"\n", Phase::Body, 1),
        (b"ab", Phase::Body, 1),
        (b"c", Phase::Idle, 1),
        (b"\r\n", Phase::Head, 1),
        (b"GET / HTTP/1.0\r\nTransfer-", Phase::Head, 1),
        (b"X: y\r\n\r\n", Phase::Idle, 2),
    ];
    for (piece, phase, heads) in steps {
        assert_eq!(scanner.feed(piece), Ok(()));
        assert_eq!((scanner.phase(), scanner.heads()), (phase, heads));
    }
}

#[test]
fn the_start_of_an_invalid_message_is_reported() {
    const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bytes = [PLAIN.as_bytes(), HEAD, b"2\r\nab\r\nx\r\n"].concat();
    let (first, head_end) = (PLAIN.len(), PLAIN.len() + HEAD.len());
    let at = bytes.len() - 3;
    for split in 0..=at {
        let mut scanner = Scanner::default();
        let (earlier, piece) = bytes.split_at(split);
        assert_eq!(scanner.feed(earlier), Ok(()));
        let withheld = scanner.take_withheld();
        // All of an incomplete head is withheld, and nothing otherwise.
        let expected = match split {
            _ if split < first => split,
            _ if split < head_end => split - first,
            _ => 0,
        };
        assert_eq!(withheld, expected, "{split}");
        let start = match split {
            _ if split >= head_end => None,
            _ => Some(first.saturating_sub(split)),
        };
        let refused = scanner.feed(piece).unwrap_err();
        assert_eq!(
            refused,
            ScanError { at: at - split, why: FramingError::Chunk, before: 1, start }
        );
    }
    let refused = Scanner::default().feed(b"GET / HTTP/1.1\r\n\r\n").unwrap_err();
    assert_eq!(refused, ScanError { at: 17, why: FramingError::Host, before: 0, start: Some(0) });
}

#[test]
fn a_rejection_is_final_and_a_tunnel_is_not_checked() {
    let mut scanner = Scanner::default();
    assert!(scanner.feed(b"\0").is_err());
    scanner.set_tunnel();
    let again = scanner.feed(PLAIN.as_bytes()).unwrap_err();
    assert_eq!((again.at, again.why, again.start), (0, FramingError::Nul, None));

    let mut scanner = Scanner::default();
    assert_eq!(scanner.feed(PLAIN.as_bytes()), Ok(()));
    scanner.set_tunnel();
    assert_eq!(scanner.feed(b"\0\n\r\xff"), Ok(()));
    assert_eq!(scanner.phase(), Phase::Tunnel);
}

/// Request for another protocol.
const ASKING: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nuPGRADE: x\r\n\r\n";

#[test]
fn bytes_after_an_upgrade_request_are_unchecked_until_its_response() {
    let whole = [ASKING.as_bytes(), b"\0\n\r\xff"].concat();
    for split in 1..whole.len() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.feed(&whole[..split]), Ok(()));
        let head = ASKING.len();
        let before = scanner.take_withheld();
        assert_eq!(before, if split < head { split } else { split - head });
        let beyond = split.saturating_sub(head);
        assert_eq!(scanner.feed(&whole[split..]), Ok(()));
        assert_eq!(beyond + scanner.take_withheld(), 4, "{split}");
        assert!(scanner.is_switching());
        assert_eq!((scanner.heads(), scanner.take_withheld()), (1, 0));
        scanner.resume_http();
        assert!(!scanner.is_switching());
        assert_eq!(scanner.feed(b"\0").unwrap_err().why, FramingError::Nul);
    }
    let mut scanner = Scanner::default();
    assert_eq!(scanner.feed(ASKING.as_bytes()), Ok(()));
    scanner.set_tunnel();
    assert_eq!(scanner.feed(b"\0\n\r\xff"), Ok(()));
    assert_eq!((scanner.phase(), scanner.take_withheld()), (Phase::Tunnel, 0));
}

#[test]
fn bytes_after_an_http_1_0_request_are_unchecked_until_its_response() {
    let requests = [
        &b"GET / HTTP/1.0\r\nUpgrade: x\r\n\r\n"[..],
        b"GET / HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n\0\0\0",
    ];
    for request in requests {
        let whole = [request, b"\0\n\r\xff"].concat();
        for split in 1..whole.len() {
            let mut scanner = Scanner::default();
            assert_eq!(scanner.feed(&whole[..split]), Ok(()));
            let beyond = split.saturating_sub(request.len());
            let withheld = scanner.take_withheld();
            assert!(beyond == 0 || withheld == beyond, "{split}");
            let mut came = scanner.take_http_1_0();
            assert_eq!(scanner.feed(&whole[split..]), Ok(()));
            came |= scanner.take_http_1_0();
            assert!(came && !scanner.take_http_1_0(), "{split}");
            assert_eq!(beyond + scanner.take_withheld(), 4, "{split}");
            assert!(scanner.is_switching());
            scanner.resume_http();
            assert_eq!(scanner.feed(b"\0").unwrap_err().why, FramingError::Nul);
        }
    }
    let mut newer = Scanner::default();
    assert_eq!(newer.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Ok(()));
    assert!(!newer.take_http_1_0() && !newer.is_switching());
}

#[test]
fn framing_errors_are_found_in_the_source_chain() {
    let inner = std::io::Error::new(std::io::ErrorKind::InvalidData, FramingError::Chunk);
    assert_eq!(FramingError::in_chain(&inner), Some(FramingError::Chunk));
    let outer = std::io::Error::other(inner);
    assert_eq!(FramingError::in_chain(&outer), None, "an I/O error hides what it was made from");
    assert_eq!(FramingError::in_chain(&std::io::Error::other("else")), None);
}

/// Any byte, with a higher probability of the bytes that matter to the grammar.
fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![proptest::sample::select(b"\r\n\0 \t:;,\"\\#0139afxHTP/.".to_vec()), any::<u8>()]
}

/// Stream of samples in which a few bytes are replaced, inserted or removed.
pub(in crate::request_guard) fn modified_stream() -> impl Strategy<Value = Vec<u8>> {
    let mut samples: Vec<Vec<u8>> = samples::good().into_iter().map(|good| good.bytes).collect();
    samples.extend(samples::bad().into_iter().map(|bad| bad.bytes()));
    samples.retain(|sample| sample.len() < 1024);
    let edit = (any::<usize>(), any_byte(), 0..3_u8);
    (vec(proptest::sample::select(samples), 1..4), vec(edit, 0..3)).prop_map(|(parts, edits)| {
        let mut bytes = parts.concat();
        for (place, byte, how) in edits {
            let place = place % bytes.len();
            match how {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => drop(bytes.remove(place)),
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn a_plain_head_of_a_modified_stream_is_valid(bytes in modified_stream()) {
        assert_plain_is_valid(&bytes);
    }

    #[test]
    fn scanning_samples_does_not_depend_on_the_split(places in vec(any::<usize>(), 0..12)) {
        for good in samples::good() {
            let expected = Outcome::Accepted(good.requests, Phase::Idle);
            prop_assert_eq!(scan(cut(&good.bytes, &places)), expected);
        }
        for bad in samples::bad() {
            let expected = Outcome::Refused(bad.until.len(), bad.why);
            prop_assert_eq!(scan(cut(&bad.bytes(), &places)), expected);
        }
    }

    #[test]
    fn scanning_modified_streams_does_not_depend_on_the_split(
        bytes in modified_stream(),
        places in vec(any::<usize>(), 0..12),
    ) {
        let whole = scan([bytes.as_slice()]);
        prop_assert_eq!(&scan(cut(&bytes, &places)), &whole);
        prop_assert_eq!(&scan(bytes.chunks(1)), &whole);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in vec(any_byte(), 0..400),
        places in vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(scan([bytes.as_slice()]), scan(cut(&bytes, &places)));
    }
}
