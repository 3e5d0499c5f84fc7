use std::future::poll_fn;

use futures_util::FutureExt;

use super::*;

const KEPT_MAX: u64 = 4 << 20;

fn flow() -> (FlowWriter, Arc<Flow>, Arc<InFlight>) {
    let in_flight = InFlight::new(64 << 20);
    let (writer, flow) = Flow::new(in_flight.clone(), KEPT_MAX);
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
    assert_eq!(writer.finish(), Some(Bytes::from_static(b"one two")));
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
    while writer.push(piece(256 << 10)) == Pushed::Kept {}
    let room = |writer: &FlowWriter| poll_fn(|cx| writer.poll_room(cx)).now_or_never();
    assert_eq!(room(&writer), None, "the reader has read nothing yet");
    let mut read = 0;
    while let Some(Some(Ok(bytes))) = next(&mut reader) {
        read += bytes.len() as u64;
    }
    assert_eq!(read, KEPT_MAX + (256 << 10));
    assert_eq!(room(&writer), Some(true));
    assert_eq!(in_flight.bytes(), 0);
    let mut latecomer = Reader::new(flow);
    assert_eq!(next(&mut latecomer), Some(Some(Err(BrokenBody::FellBehind))));
    drop((reader, latecomer));
    assert_eq!(room(&writer), Some(false), "nobody reads what nobody keeps");
    assert_eq!(writer.finish(), None);
}

#[test]
fn a_stalled_reader_is_left_behind() {
    let (writer, flow, in_flight) = flow();
    let mut stalled = Reader::new(flow);
    while writer.push(piece(256 << 10)) == Pushed::Kept {}
    writer.leave_behind();
    assert!(in_flight.bytes() <= WINDOW_MAX / 2);
    assert_eq!(next(&mut stalled), Some(Some(Err(BrokenBody::FellBehind))));
}

#[test]
fn bodies_in_flight_are_charged_until_they_land_or_are_dropped() {
    let (writer, flow, in_flight) = flow();
    writer.push(piece(1_000));
    assert_eq!(in_flight.bytes(), 1_000);
    assert_eq!(writer.finish().map(|whole| whole.len()), Some(1_000));
    assert_eq!(in_flight.bytes(), 0);
    drop(flow);
    let (writer, flow) = Flow::new(in_flight.clone(), KEPT_MAX);
    writer.push(piece(500));
    drop((writer, flow));
    assert_eq!(in_flight.bytes(), 0);
}

#[test]
fn when_the_bound_of_all_bodies_in_flight_is_reached_a_body_is_no_longer_kept() {
    let in_flight = InFlight::new(1_000);
    let (one, _flow) = Flow::new(in_flight.clone(), KEPT_MAX);
    let (other, _other_flow) = Flow::new(in_flight, KEPT_MAX);
    assert_eq!(one.push(piece(800)), Pushed::Kept);
    assert_eq!(other.push(piece(300)), Pushed::Windowed);
    assert_eq!(one.push(piece(200)), Pushed::Kept);
}
