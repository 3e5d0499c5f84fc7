//! Streaming bodies (invariants 6, 28, 37).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Lifetime};
use forebay_engine::{BodyReader, BrokenBody, Limits, LoadError, Outcome, PieceStream, Source};
use forebay_testkit::gate::Gate;
use futures_util::StreamExt;

use crate::crowd::{Crowd, within_patience};
use crate::origin::{Asked, Once, Origin, flowing, ready_pieces, tap, whole};
use crate::world::{Question, World, bytes, secs};

const PIECE: usize = 64 << 10;

/// The engine's window for a body that is not kept, which is no setting.
const WINDOW: u64 = 1 << 20;

/// The first load brings `body`, the later ones a whole answer.
fn flowing_once(world: &World, body: PieceStream) -> Origin {
    let (world, body) = (world.clone(), Once::new(body));
    Origin::new(move |asked: Asked| {
        let (meta, body) = (world.fresh(60), body.clone());
        async move {
            Ok(match asked.number {
                1 => flowing(meta, body.take()),
                number => whole(meta, number.to_string()),
            })
        }
    })
}

/// The only load waits at the gate and then brings `body`.
fn waiting_once(world: &World, gate: &Gate, body: PieceStream) -> Origin {
    let (world, gate, body) = (world.clone(), gate.clone(), Once::new(body));
    Origin::new(move |_| {
        let (world, gate, body) = (world.clone(), gate.clone(), body.clone());
        async move {
            gate.wait().await;
            Ok(flowing(world.fresh(60), body.take()))
        }
    })
}

fn broken() -> BrokenBody {
    BrokenBody::Source("reset".into())
}

fn text(piece: &'static str) -> Result<Bytes, BrokenBody> {
    Ok(Bytes::from_static(piece.as_bytes()))
}

async fn read_length(mut reader: BodyReader) -> Result<usize, BrokenBody> {
    let mut length = 0;
    while let Some(piece) = reader.next().await {
        length += piece?.len();
    }
    Ok(length)
}

#[tokio::test]
async fn whoever_comes_while_a_body_flows_reads_it_from_its_first_byte() {
    let world = World::new();
    let (tap, body) = tap();
    let origin = flowing_once(&world, body);
    let leader = world.obtain("a", &origin).await.expect("a head");
    let mut early = leader.entry.body.reader();
    tap.try_send(text("one ")).expect("it is read");
    assert_eq!(early.next().await, Some(text("one ")));
    let late = world.obtain("a", &origin).await.expect("the same head");
    assert_eq!(late.source, Source::Followed);
    let mut late = late.entry.body.reader();
    assert_eq!(late.next().await, Some(text("one ")));
    tap.try_send(text("two")).expect("it is read");
    assert_eq!(early.next().await, Some(text("two")));
    drop(tap);
    assert_eq!(early.next().await, None);
    assert_eq!(late.collect().await, text("two"));
    world.until_nothing_is_under_way().await;
    let hit = world.obtain("a", &origin).await.expect("a hit");
    assert_eq!((bytes(&hit).as_ref(), hit.source), (&b"one two"[..], Source::Hit));
    assert_eq!((origin.loads(), world.engine.traffic().in_flight_bytes), (1, 0));
}

#[tokio::test]
async fn a_body_that_breaks_off_breaks_for_all_and_leaves_what_was_stored() {
    let world = World::new();
    let (tap, body) = tap();
    let body = Once::new(body);
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let lifetime = Lifetime { stale_if_error: secs(1_000), ..Lifetime::fresh(secs(10)) };
            let (meta, body) = (world.meta(lifetime), body.clone());
            async move {
                match asked.number {
                    1 => Ok(whole(meta, "good")),
                    2 => Ok(flowing(meta, body.take())),
                    _ => Err(LoadError::origin("no route")),
                }
            }
        }
    });
    world.obtain("a", &origin).await.expect("an answer");
    world.step(20);
    let leader = world.obtain("a", &origin).await.expect("a head");
    let follower = world.obtain("a", &origin).await.expect("the same head");
    tap.try_send(text("half")).expect("it is read");
    tap.try_send(Err(broken())).expect("it is read");
    for obtained in [leader, follower] {
        let mut reader = obtained.entry.body.reader();
        assert_eq!(reader.next().await, Some(text("half")));
        assert_eq!(reader.next().await, Some(Err(broken())));
        assert_eq!(reader.next().await, Some(Err(broken())), "never a clean end");
    }
    world.until_nothing_is_under_way().await;
    assert_eq!(world.counts.broken.load(Ordering::SeqCst), 1);
    let fallback = world.obtain("a", &origin).await.expect("a fallback");
    assert_eq!((bytes(&fallback).as_ref(), fallback.source), (&b"good"[..], Source::Fallback));
    assert_eq!((origin.loads(), world.engine.traffic().in_flight_bytes), (3, 0));
}

#[tokio::test]
async fn a_body_that_breaks_off_at_once_is_not_stored_either() {
    let world = World::new();
    let pieces = vec![text("half"), Err(broken())];
    let origin = flowing_once(&world, futures_util::stream::iter(pieces).boxed());
    let leader = world.obtain("a", &origin).await.expect("a head");
    assert_eq!(leader.source, Source::Led { stored: false, unchanged: false });
    let mut reader = leader.entry.body.reader();
    assert_eq!(reader.next().await, Some(text("half")));
    assert_eq!(reader.next().await, Some(Err(broken())));
    assert_eq!(world.engine.memory().entries(), 0);
    assert_eq!(bytes(&world.obtain("a", &origin).await.expect("an answer")), "2");
}

#[tokio::test]
async fn a_body_that_panics_breaks_for_its_readers_and_frees_the_key() {
    let world = World::new();
    let (tap, pieces) = tap();
    let pieces = pieces.map(|piece| {
        assert!(piece.as_ref().is_ok_and(|piece| piece != "bad"), "a bug in a decoder");
        piece
    });
    let origin = flowing_once(&world, pieces.boxed());
    let mut reader = world.obtain("a", &origin).await.expect("a head").entry.body.reader();
    tap.try_send(text("good")).expect("it is read");
    assert_eq!(reader.next().await, Some(text("good")));
    tap.try_send(text("bad")).expect("it is read");
    assert_eq!(reader.next().await, Some(Err(BrokenBody::Abandoned)));
    world.until_nothing_is_under_way().await;
    assert_eq!(world.engine.memory().entries(), 0);
    assert_eq!(bytes(&world.obtain("a", &origin).await.expect("an answer")), "2");
}

#[tokio::test]
async fn a_source_of_empty_pieces_keeps_nobody_from_the_head() {
    let world = World::new();
    let empty = futures_util::stream::repeat_with(|| Ok(Bytes::new())).take(100_000);
    let origin = flowing_once(&world, empty.boxed());
    let leader = world.obtain("a", &origin).await.expect("a head");
    assert!(!leader.entry.body.is_whole(), "the head did not wait for the end");
    assert_eq!(leader.entry.body.reader().next().await, None, "nobody sees an empty piece");
}

#[tokio::test]
async fn who_does_not_read_holds_up_neither_the_fill_nor_other_readers() {
    let world = World::new();
    let origin = flowing_once(&world, ready_pieces(64, PIECE));
    let idle = world.obtain("a", &origin).await.expect("a head");
    let _idle_reader = idle.entry.body.reader();
    let active = world.obtain("a", &origin).await.expect("a head");
    assert_eq!(read_length(active.entry.body.reader()).await, Ok(64 * PIECE));
    world.until_nothing_is_under_way().await;
    assert_eq!(world.obtain("a", &origin).await.expect("a hit").source, Source::Hit);
    assert_eq!((origin.loads(), world.engine.traffic().in_flight_bytes), (1, 0));
}

/// A world in which little is kept, so that bodies outgrow it soon.
fn small() -> World {
    World::within(Limits { object_max: 256 << 10, in_flight_max: 16 << 20, ..Limits::of(32 << 20) })
}

#[tokio::test]
async fn a_body_too_large_to_keep_goes_through_a_window_and_is_not_stored() {
    const PIECES: usize = 256;
    let world = small();
    let origin = flowing_once(&world, ready_pieces(PIECES, PIECE));
    let leader = world.obtain("a", &origin).await.expect("a head");
    // The source is faster than the leader, which has not even begun to read.
    world.until(|world| world.counts.outgrown.load(Ordering::SeqCst) > 0).await;
    let bound = (256 << 10) + WINDOW + 2 * PIECE as u64;
    let mut reader = leader.entry.body.reader();
    drop(leader);
    let (mut read, mut most) = (0, 0);
    while let Some(piece) = reader.next().await {
        read += piece.expect("the leader gets all of it").len();
        most = world.engine.traffic().in_flight_bytes.max(most);
        if read == PIECES / 2 * PIECE {
            let next = world.obtain("a", &origin).await.expect("an answer");
            assert_eq!((bytes(&next).as_ref(), origin.loads()), (&b"2"[..], 2), "its own load");
        }
    }
    assert_eq!(read, PIECES * PIECE);
    assert!(most <= bound, "{most} bytes in flight");
    world.until_nothing_is_under_way().await;
    assert_eq!(world.answer_without_load("a", &origin).await, Some("2".into()));
    assert_eq!(world.counts.outgrown.load(Ordering::SeqCst), 1);
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
}

#[tokio::test]
async fn where_no_room_is_left_for_bodies_all_who_waited_still_read_one_load() {
    let world =
        World::within(Limits { object_max: 256 << 10, in_flight_max: 0, ..Limits::of(1 << 20) });
    let gate = Gate::new();
    let origin = waiting_once(&world, &gate, ready_pieces(32, PIECE));
    let crowd = Crowd::of(50, |_| world.obtain("a", &origin)).await;
    gate.open();
    let readers: Vec<_> =
        crowd.obtained().await.iter().map(|obtained| obtained.entry.body.reader()).collect();
    let reading = readers.into_iter().map(read_length);
    for read in futures_util::future::join_all(reading).await {
        assert_eq!(read, Ok(32 * PIECE));
    }
    assert_eq!((origin.loads(), world.engine.memory().entries()), (1, 0));
    world.until_nothing_is_under_way().await;
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
}

#[tokio::test]
async fn a_body_too_large_to_keep_that_nobody_reads_any_more_is_given_up() {
    let world = small();
    let (tap, body) = tap();
    let origin = flowing_once(&world, body);
    let leader = world.obtain("a", &origin).await.expect("a head");
    for _ in 0..8 {
        tap.try_send(Ok(Bytes::from(vec![7; PIECE]))).expect("it is read");
    }
    let mut reader = leader.entry.body.reader();
    assert!(matches!(reader.next().await, Some(Ok(_))));
    world.until(|world| world.counts.outgrown.load(Ordering::SeqCst) > 0).await;
    assert!(!tap.is_closed(), "the leader reads it");
    drop((reader, leader));
    // The writer notices at the next piece, at the latest.
    let _ = tap.try_send(Ok(Bytes::from_static(b"more")));
    within_patience(tap.closed()).await;
    world.until_nothing_is_under_way().await;
    assert_eq!((world.engine.memory().entries(), world.engine.traffic().in_flight_bytes), (0, 0));
}

#[tokio::test]
async fn a_caller_that_takes_a_large_body_and_never_reads_it_counts_as_gone_when_it_goes() {
    let world = small();
    let (tap, body) = tap();
    let origin = flowing_once(&world, body);
    let leader = world.obtain("a", &origin).await.expect("a head");
    for _ in 0..64 {
        tap.try_send(Ok(Bytes::from(vec![7; PIECE]))).expect("it is taken");
    }
    world.until(|world| world.counts.outgrown.load(Ordering::SeqCst) > 0).await;
    assert!(!tap.is_closed(), "the leader may still begin to read");
    let next = world.obtain("a", &origin).await.expect("an answer");
    assert_eq!(bytes(&next), "2", "what is not kept is not joined");
    drop(leader);
    within_patience(tap.closed()).await;
    world.until_nothing_is_under_way().await;
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
}

/// Reads one piece every 20 seconds: slow, but never still for as long as the engine waits.
async fn read_slowly(obtained: Outcome) -> Result<usize, BrokenBody> {
    let mut reader = obtained.entry.body.reader();
    let mut length = 0;
    while let Some(piece) = reader.next().await {
        length += piece?.len();
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    Ok(length)
}

#[tokio::test(start_paused = true)]
async fn of_a_large_body_who_is_slow_gets_all_and_who_stands_still_is_left_behind() {
    let (world, gate) = (small(), Gate::new());
    let origin = waiting_once(&world, &gate, ready_pieces(64, PIECE));
    let crowd = Crowd::of(2, |_| world.obtain("a", &origin)).await;
    gate.open();
    let [slow, still] = crowd.obtained().await.try_into().expect("two callers");
    let mut still = still.entry.body.reader();
    assert_eq!(read_slowly(slow).await, Ok(64 * PIECE));
    let mut rest = 0;
    let broken = loop {
        match still.next().await {
            Some(Ok(piece)) => rest += piece.len(),
            other => break other,
        }
    };
    assert_eq!(broken, Some(Err(BrokenBody::FellBehind)));
    assert_eq!((rest, origin.loads()), (0, 1), "what it had not read was let go of");
    world.until_nothing_is_under_way().await;
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
}

#[tokio::test]
async fn a_body_that_flows_slowly_does_not_undo_a_later_refresh() {
    let world = World::new();
    let (tap, body) = tap();
    let origin = flowing_once(&world, body);
    let slow = world.obtain("a", &origin).await.expect("a head");
    world.step(1);
    let demand = Demand { revalidate: true, ..Demand::default() };
    let later = world.obtain(Question::of("a", demand), &origin).await.expect("an answer");
    assert_eq!(later.source, Source::Led { stored: true, unchanged: false });
    tap.try_send(text("1")).expect("it is read");
    drop(tap);
    assert_eq!(slow.entry.body.reader().collect().await, text("1"));
    world.until_nothing_is_under_way().await;
    let hit = world.obtain("a", &origin).await.expect("a hit");
    assert!(Arc::ptr_eq(&hit.entry, &later.entry));
    assert_eq!((bytes(&hit).as_ref(), origin.loads()), (&b"2"[..], 2));
}

#[tokio::test]
async fn a_body_goes_on_though_its_leader_has_gone() {
    let world = World::new();
    let (tap, body) = tap();
    let origin = flowing_once(&world, body);
    drop(world.obtain("a", &origin).await.expect("a head"));
    tap.try_send(text("all of it")).expect("it is read");
    drop(tap);
    world.until_nothing_is_under_way().await;
    assert_eq!(world.answer_without_load("a", &origin).await, Some("all of it".into()));
    assert_eq!(origin.loads(), 1);
}
