//! One writer of a body, and readers that are created and dropped.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;

use shuttle::future::block_on;

use super::*;
use crate::entry::body::{BodyReader, BrokenBody, Flow, FlowWriter, Pushed};

/// Minimum size of a window in bytes: one large piece fills it.
const FULL: usize = 64 << 10;

/// How many pieces a body of these tests has.
pub(super) const PIECES: usize = 3;

static BYTES: [u8; FULL + PIECES] = [7; FULL + PIECES];

/// The n-th piece of a body that is not kept. Pieces differ in their length.
pub(super) fn piece(number: usize) -> Bytes {
    Bytes::from_static(&BYTES[..FULL + number])
}

/// Writes the pieces after the first one, as the window allows. `false` if the body has no reader.
pub(super) async fn write(writer: &FlowWriter) -> bool {
    for number in 1..PIECES {
        if !poll_fn(|cx| writer.poll_room(cx)).await {
            return false;
        }
        writer.push(piece(number));
    }
    true
}

/// Reads one piece, which must be the n-th.
async fn read_one(reader: &mut BodyReader, number: usize) -> Result<(), BrokenBody> {
    let read = reader.next().await.expect("it has not ended");
    assert_eq!(read?.len(), FULL + number, "a gap before piece {number}");
    Ok(())
}

/// Reads all pieces: each of them, in order, from the first one on.
pub(super) async fn read_all(mut reader: BodyReader) {
    for number in 0..PIECES {
        assert_eq!(read_one(&mut reader, number).await, Ok(()), "piece {number}");
    }
}

/// A body of which nothing is kept but a window, and its first piece.
fn windowed() -> (FlowWriter, Body) {
    let (writer, flow) = Flow::new(&in_flight(0), 0);
    writer.push(piece(0));
    (writer, Body::flowing(flow))
}

/// A body of which everything is kept. Its pieces are single bytes: 0, 1, 2.
fn kept() -> (FlowWriter, Body) {
    let (writer, flow) = Flow::new(&in_flight(1 << 20), 1 << 20);
    (writer, Body::flowing(flow))
}

fn byte(number: usize) -> Bytes {
    const NUMBERS: &[u8; PIECES] = &[0, 1, 2];
    Bytes::from_static(&NUMBERS[number..=number])
}

async fn read_to_end(mut reader: BodyReader) -> (Vec<u8>, Result<(), BrokenBody>) {
    let mut all = Vec::new();
    loop {
        match reader.next().await {
            None => return (all, Ok(())),
            Some(Err(broken)) => return (all, Err(broken)),
            Some(Ok(piece)) => all.extend_from_slice(&piece),
        }
    }
}

/// Polls the reader once. Returns `true` if there was a piece or an end.
async fn ask(reader: &mut BodyReader) -> bool {
    poll_fn(|cx| Poll::Ready(reader.poll_next(cx).is_ready())).await
}

/// Invariant 2: every reader of a kept body reads it from its first byte.
///
/// 1. R: finds nothing to read
/// 2. W: writes, wakes
/// 3. R: registers, and waits for ever
///
/// And, since the entry of a waiter in the list is reused:
///
/// 1. Q: waits
/// 2. W: writes, wakes
/// 3. R: waits, in the entry of Q
/// 4. Q: is dropped, and removes the entry of R
#[test]
fn a_kept_body_is_read_from_its_first_byte_by_all_who_come() {
    explore(&["early", "late", "went away"], |seen| {
        let (writer, body) = kept();
        let reads = |body: Body, when: &'static str| {
            let seen = seen.clone();
            spawn(async move {
                let mut reader = body.reader();
                if !ask(&mut reader).await {
                    seen.note(when);
                    assert_eq!(read_to_end(reader).await, (vec![0, 1, 2], Ok(())));
                }
                assert_eq!(read_to_end(body.reader()).await, (vec![0, 1, 2], Ok(())));
                seen.note("late");
            })
        };
        let goes = {
            let (mut reader, seen) = (body.reader(), seen.clone());
            spawn(async move {
                if !ask(&mut reader).await {
                    seen.note("went away");
                }
            })
        };
        let tasks = [reads(body.clone(), "early"), goes, reads(body, "early")];
        for number in 0..PIECES {
            assert_eq!(writer.push(byte(number)), Pushed::Kept);
        }
        let whole = writer.finish().map(Body::from).expect("it was kept");
        assert_eq!(whole.bytes().as_deref(), Some(&[0, 1, 2][..]));
        join(tasks);
    });
}

/// Invariants 4 and 6: a body whose writer is gone breaks for each of its readers, and ends for
/// none of them.
///
/// 1. R: waits for more
/// 2. W: panics
/// 3. R: waits for ever, or takes what it has for all
#[test]
fn a_writer_that_vanishes_breaks_the_body_for_everybody() {
    explore(&["waited"], |seen| {
        let (writer, body) = kept();
        let reader = |_| {
            let (body, seen) = (body.clone(), seen.clone());
            spawn(async move {
                let mut reader = body.reader();
                if !ask(&mut reader).await {
                    seen.note("waited");
                    assert_eq!(read_to_end(reader).await.1, Err(BrokenBody::Abandoned));
                }
                let all = read_to_end(body.reader()).await;
                assert_eq!(all, (vec![0, 1], Err(BrokenBody::Abandoned)));
            })
        };
        let readers: Vec<_> = (0..2).map(reader).collect();
        let gone = catch_unwind(AssertUnwindSafe(|| {
            writer.push(byte(0));
            writer.push(byte(1));
            let _writer = writer;
            resume_unwind(Box::new("the source"));
        }));
        assert!(gone.is_err());
        join(readers);
    });
}

/// Invariant 2: the window waits for each registered reader, and for no other.
///
/// 1. R: is registered, because the first byte is still there
/// 2. W: moves the window on
/// 3. R: begins to read, behind a gap
///
/// And:
///
/// 1. W: waits for R, the slowest
/// 2. R: is dropped
/// 3. W: waits for ever
#[test]
fn a_window_waits_for_who_has_a_place_and_for_nobody_else() {
    explore(&["joined", "too late", "fell behind", "left"], |seen| {
        let (writer, body) = windowed();
        let leader = body.for_reader(false).expect("nothing has flowed yet");
        let joins = spawn(joins(body.clone(), seen.clone()));
        let comes_late = spawn(comes_unasked(body.clone(), seen.clone()));
        let leaves = {
            let (mut reader, seen) = (body.reader(), seen.clone());
            spawn(async move {
                assert_eq!(read_one(&mut reader, 0).await, Ok(()));
                seen.note("left");
            })
        };
        let leads = spawn(async move { read_all(leader.reader()).await });
        assert!(block_on(write(&writer)), "the leader reads");
        join([joins, comes_late, leaves, leads]);
        assert!(!block_on(poll_fn(|cx| writer.poll_room(cx))), "nobody reads any more");
    });
}

/// Comes if it is told that the first byte is there.
async fn joins(body: Body, seen: Seen) {
    match body.for_reader(false) {
        Some(body) => {
            seen.note("joined");
            read_all(body.reader()).await;
        }
        None => seen.note("too late"),
    }
}

/// Comes without having been told anything, and is told by its first read.
async fn comes_unasked(body: Body, seen: Seen) {
    let mut reader = body.reader();
    match read_one(&mut reader, 0).await {
        Ok(()) => {}
        Err(broken) => {
            assert_eq!(broken, BrokenBody::FellBehind);
            seen.note("fell behind");
        }
    }
}

/// Invariant 2: a reader that does not read is left behind, and gets an error. A reader that reads
/// or has just registered keeps its position, and no reader skips bytes.
///
/// 1. W: sees the position of R
/// 2. R: reads
/// 3. W: leaves readers behind that have not moved, and R with them
///
/// And:
///
/// 1. W: sees the position of Q
/// 2. Q: is dropped
/// 3. R: registers under the number of Q
/// 4. W: takes R for Q, and leaves it behind
#[test]
fn only_who_stands_still_is_left_behind() {
    explore(&["moved", "left behind", "came"], |seen| {
        let (writer, body) = windowed();
        let places = [body.for_reader(false), body.for_reader(false)];
        let [Some(first), Some(second)] = places else { panic!("nothing has flowed yet") };
        let before = writer.standings();
        let reads = {
            let seen = seen.clone();
            spawn(async move {
                let mut reader = first.reader();
                if let Err(broken) = read_one(&mut reader, 0).await {
                    assert_eq!(broken, BrokenBody::FellBehind);
                    return seen.note("left behind");
                }
                seen.note("moved");
                for number in 1..PIECES {
                    assert_eq!(read_one(&mut reader, number).await, Ok(()), "it moved");
                }
            })
        };
        let follows = {
            let (body, seen) = (body, seen.clone());
            spawn(async move {
                drop(second);
                // Whoever comes now, comes after `before`.
                let Some(third) = body.for_reader(false) else { return };
                seen.note("came");
                let mut reader = third.reader();
                for number in 0..PIECES {
                    // It may have come after the body was dropped, because it had no reader.
                    let read = read_one(&mut reader, number).await;
                    assert!(matches!(read, Ok(()) | Err(BrokenBody::Abandoned)), "{read:?}");
                }
            })
        };
        writer.leave_behind(&before);
        if block_on(write(&writer)) {
            assert!(writer.finish().is_none(), "nothing of it is kept");
        } else {
            drop(writer);
        }
        join([reads, follows]);
    });
}
