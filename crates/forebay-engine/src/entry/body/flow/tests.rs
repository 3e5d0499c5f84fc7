use std::future::poll_fn;

use futures_util::FutureExt;

use bytes::Bytes;

use super::state::{PIECE_OVERHEAD, WINDOW_MIN};
use super::writer::{AHEAD, GROWTH};
use super::*;
use crate::entry::body::segments::SEGMENT;
use crate::entry::body::{Body, BrokenBody};
use crate::entry::in_flight::Want;
use crate::runtime::clock::SystemClock;

const KEPT_MAX: u64 = 16 * SEGMENT as u64;

fn flow() -> (FlowWriter, Arc<Flow>, Arc<InFlight>) {
    let in_flight = InFlight::new(64 << 20, Arc::new(SystemClock));
    let (writer, flow) = Flow::new(&in_flight, KEPT_MAX);
    (writer, flow, in_flight)
}

fn next(reader: &mut Reader) -> Option<Option<Result<Bytes, BrokenBody>>> {
    poll_fn(|cx| reader.poll_next(cx)).now_or_never()
}

fn piece(size: usize) -> Bytes {
    Bytes::from(vec![7; size])
}

#[test]
fn every_reader_starts_at_the_first_byte_whenever_it_comes() {
    let (writer, flow, _) = flow();
    let mut early = Reader::new(flow.clone());
    assert_eq!(next(&mut early), None);
    writer.push(Bytes::from_static(b"one "));
    assert_eq!(next(&mut early), Some(Some(Ok(Bytes::from_static(b"one ")))));
    writer.push(Bytes::from_static(b"two"));
    let mut late = Reader::new(flow.clone());
    assert_eq!(next(&mut late), Some(Some(Ok(Bytes::from_static(b"one ")))));
    let whole = writer.finish().map(Body::from).expect("it was kept");
    assert_eq!(whole.slice(), Some(&b"one two"[..]));
    assert_eq!(next(&mut early), Some(Some(Ok(Bytes::from_static(b"two")))));
    assert_eq!(next(&mut late), Some(Some(Ok(Bytes::from_static(b"two")))));
    assert_eq!(next(&mut late), Some(None));
    assert_eq!(next(&mut Reader::new(flow)), Some(Some(Ok(Bytes::from_static(b"one two")))));
}

#[test]
fn a_broken_body_never_ends_cleanly_for_anybody() {
    let (writer, flow, _) = flow();
    let mut reader = Reader::new(flow.clone());
    writer.push(Bytes::from_static(b"half"));
    writer.fail(BrokenBody::Source("reset".into()));
    assert_eq!(next(&mut reader), Some(Some(Ok(Bytes::from_static(b"half")))));
    assert_eq!(next(&mut reader), Some(Some(Err(BrokenBody::Source("reset".into())))));
    assert_eq!(next(&mut reader), Some(Some(Err(BrokenBody::Source("reset".into())))));
}

#[test]
fn a_writer_that_vanishes_breaks_the_body() {
    let (writer, flow, _) = flow();
    let mut reader = Reader::new(flow);
    drop(writer);
    assert_eq!(next(&mut reader), Some(Some(Err(BrokenBody::Abandoned))));
}

#[test]
fn an_outgrown_body_keeps_a_window_and_waits_for_its_slowest_reader() {
    let (writer, flow, in_flight) = flow();
    let mut reader = Reader::new(flow.clone());
    while writer.push(piece(SEGMENT)) == Pushed::Kept {}
    let room = |writer: &FlowWriter| poll_fn(|cx| writer.poll_room(cx)).now_or_never();
    assert_eq!(room(&writer), None, "the reader has read nothing yet");
    let mut read = 0;
    while let Some(Some(Ok(bytes))) = next(&mut reader) {
        read += bytes.len() as u64;
    }
    assert_eq!(read, KEPT_MAX + SEGMENT as u64);
    assert_eq!(room(&writer), Some(true));
    assert_eq!(in_flight.bytes(), 0);
    let mut latecomer = Reader::new(flow);
    assert_eq!(next(&mut latecomer), Some(Some(Err(BrokenBody::FellBehind))));
    drop((reader, latecomer));
    assert_eq!(room(&writer), Some(false), "nobody reads what nobody keeps");
    assert!(writer.finish().is_none());
}

#[test]
fn a_stalled_reader_is_left_behind() {
    let (writer, flow, in_flight) = flow();
    let mut stalled = Reader::new(flow.clone());
    let mut slow = Reader::new(flow);
    while writer.push(piece(SEGMENT)) == Pushed::Kept {}
    let before = writer.standings();
    assert!(matches!(next(&mut slow), Some(Some(Ok(_)))));
    writer.leave_behind(&before);
    assert_eq!(next(&mut stalled), Some(Some(Err(BrokenBody::FellBehind))));
    assert!(matches!(next(&mut slow), Some(Some(Ok(_)))), "who moves keeps its place");
    let segments = KEPT_MAX / SEGMENT as u64 - 1;
    let held = segments * (SEGMENT as u64 + PIECE_OVERHEAD);
    assert_eq!(in_flight.bytes(), held);
}

#[test]
fn who_comes_after_one_that_went_away_is_not_taken_for_it() {
    let (writer, flow, _) = flow();
    let stalled = Reader::new(flow.clone());
    writer.push(piece(1));
    let before = writer.standings();
    drop(stalled);
    let mut comes = Reader::new(flow);
    writer.leave_behind(&before);
    assert_eq!(next(&mut comes), Some(Some(Ok(piece(1)))));
}

#[test]
fn a_reader_that_waits_for_more_is_not_the_one_that_stalls() {
    let (writer, flow, _) = flow();
    let mut waiting = Reader::new(flow);
    while writer.push(piece(SEGMENT)) == Pushed::Kept {}
    while let Some(Some(Ok(_))) = next(&mut waiting) {}
    writer.leave_behind(&writer.standings());
    writer.push(piece(1));
    assert_eq!(next(&mut waiting), Some(Some(Ok(piece(1)))));
}

#[test]
fn who_is_promised_a_place_finds_the_first_byte() {
    let (writer, flow, _) = flow();
    let room = |writer: &FlowWriter| poll_fn(|cx| writer.poll_room(cx)).now_or_never();
    flow.promise(2);
    let mut leader = Reader::new(flow.clone());
    while writer.push(piece(SEGMENT)) == Pushed::Kept {}
    while let Some(Some(Ok(_))) = next(&mut leader) {}
    assert_eq!(room(&writer), None, "two are still to come");
    flow.forgo();
    let mut late = Reader::at_start(&flow, true).expect("it was promised a place");
    let mut read = 0;
    while let Some(Some(Ok(bytes))) = next(&mut late) {
        read += bytes.len() as u64;
    }
    assert_eq!(read, KEPT_MAX + SEGMENT as u64);
    assert_eq!(room(&writer), Some(true));
    assert!(Reader::at_start(&flow, false).is_none(), "now it is gone");
}

#[test]
fn what_nobody_has_asked_for_yet_stays() {
    let in_flight = InFlight::new(0, Arc::new(SystemClock));
    let (writer, flow) = Flow::new(&in_flight, 0);
    assert_eq!(writer.push(Bytes::from_static(b"first")), Pushed::Windowed);
    let mut reader = Reader::at_start(&flow, false).expect("nothing has been let go of");
    assert_eq!(next(&mut reader), Some(Some(Ok(Bytes::from_static(b"first")))));
}

#[test]
fn bodies_in_flight_are_charged_until_they_are_complete_or_dropped() {
    let (writer, flow, in_flight) = flow();
    writer.push(piece(1_000));
    assert_eq!(in_flight.bytes(), 1_000 + PIECE_OVERHEAD);
    assert_eq!(writer.finish().map(Body::from).and_then(|whole| whole.length()), Some(1_000));
    assert_eq!(in_flight.bytes(), 0);
    drop(flow);
    let (writer, flow) = Flow::new(&in_flight, KEPT_MAX);
    writer.push(piece(500));
    drop((writer, flow));
    assert_eq!(in_flight.bytes(), 0);
}

#[test]
fn while_everything_is_full_the_window_is_small() {
    let in_flight = InFlight::new(WINDOW_MIN, Arc::new(SystemClock));
    let (writer, flow) = Flow::new(&in_flight, 0);
    let _reader = Reader::new(flow);
    let room = |writer: &FlowWriter| poll_fn(|cx| writer.poll_room(cx)).now_or_never();
    assert_eq!(writer.push(piece(32 << 10)), Pushed::Windowed);
    assert_eq!(room(&writer), Some(true));
    writer.push(piece(32 << 10));
    assert_eq!(room(&writer), None);
}

#[test]
fn a_body_that_is_kept_asks_for_room_before_it_grows_and_gives_it_back() {
    let in_flight = InFlight::new(64 << 20, Arc::new(SystemClock));
    let (mut writer, flow) = Flow::new(&in_flight, KEPT_MAX);
    let granted = |want| in_flight.queue(want).expect("nobody waits").now_or_never();
    assert_eq!(writer.wants(), Some(Want::First(AHEAD + GROWTH)));
    writer.grow(granted(Want::First(AHEAD + GROWTH)).expect("there is room"));
    assert_eq!((writer.wants(), in_flight.bytes()), (None, AHEAD + GROWTH));
    writer.push(piece(60_000));
    assert_eq!((writer.wants(), in_flight.bytes()), (None, AHEAD + GROWTH));
    writer.push(piece(40_000));
    let more = writer.wants().expect("it is nearly used up");
    assert!(matches!(more, Want::More(_)));
    writer.grow(granted(more).expect("there is room"));
    assert_eq!(writer.wants(), None);
    writer.expect(Some(100_000));
    assert_eq!(writer.wants(), None, "no room is needed to see the end");
    assert_eq!(writer.finish().map(Body::from).and_then(|whole| whole.length()), Some(100_000));
    drop((writer, flow));
    assert_eq!(in_flight.bytes(), 0);
}

#[test]
fn a_body_that_is_announced_as_too_large_is_never_kept() {
    let (mut writer, flow, in_flight) = flow();
    writer.expect(Some(KEPT_MAX + 1));
    assert_eq!((writer.wants(), writer.push(piece(1))), (None, Pushed::Windowed));
    let mut reader = Reader::at_start(&flow, false).expect("nobody has read it yet");
    assert_eq!(next(&mut reader), Some(Some(Ok(piece(1)))));
    assert_eq!(in_flight.bytes(), 0);
}

/// Bytes that tell where they stood.
fn counting(from: usize, size: usize) -> Bytes {
    (from..from + size).map(|at| (at / 251).to_le_bytes()[0]).collect::<Vec<_>>().into()
}

#[test]
fn what_comes_in_any_pieces_is_read_as_it_came_by_everybody_wherever_they_are() {
    for size in [700, 5_000, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 5] {
        let (writer, flow, in_flight) = flow();
        let (mut reader, mut read, mut written) = (Reader::new(flow.clone()), Vec::new(), 0);
        while written < 1_000_000 {
            writer.push(counting(written, size));
            written += size;
            if written % 3 == 0 {
                read.extend(next(&mut reader).flatten().expect("more").expect("no break"));
            }
        }
        let whole = writer.finish().map(Body::from).expect("it was kept");
        while let Some(Some(piece)) = next(&mut reader) {
            read.extend(piece.expect("no break"));
        }
        assert_eq!((read.len(), whole.length()), (written, Some(written as u64)));
        assert!(read == counting(0, written), "pieces of {size} bytes");
        let all = whole.reader().collect().now_or_never().expect("it is there");
        assert!(all.expect("no break") == counting(0, written), "pieces of {size} bytes");
        drop((writer, whole, reader, flow));
        assert_eq!(in_flight.bytes(), 0);
    }
}

#[test]
fn a_source_of_single_bytes_is_charged_for_little_more_than_what_it_brings() {
    let (writer, flow, in_flight) = flow();
    for at in 0..200_000 {
        writer.push(counting(at, 1));
    }
    let most = 200_000 + 2 * SEGMENT as u64;
    assert!(in_flight.bytes() <= most, "{} bytes", in_flight.bytes());
    assert_eq!(writer.finish().map(Body::from).and_then(|whole| whole.length()), Some(200_000));
    drop(flow);
}
