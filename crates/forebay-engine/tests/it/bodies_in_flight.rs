//! Memory for bodies in flight: loads that wait for it, loads that are refused, and bodies that are
//! dropped (invariants 22 and 28).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Lifetime, Meta};
use forebay_engine::{BodyReader, BrokenBody, Content, Head, Limits, LoadError, Loaded, Source};
use forebay_testkit::gate::Gate;
use futures_util::StreamExt;
use futures_util::future::join_all;

use crate::crowd::{Crowd, Obtaining, reached, within_patience};
use crate::origin::{Answer, Asked, Origin, flowing, ready_pieces, whole};
use crate::world::{World, bytes, key, secs};

const PIECE: usize = 64 << 10;

/// Length of the segments in which a complete body is kept and read; it is not a setting.
const SEGMENT: usize = (256 << 10) - 64;

/// 1 MiB for bodies in flight, 4 MiB for what is stored.
fn narrow() -> World {
    World::within(Limits { object_max: 1 << 20, in_flight_max: 1 << 20, ..Limits::of(5 << 20) })
}

/// A body that announces its length.
fn sized(meta: Meta, pieces: usize) -> Loaded {
    let content = Content::Sized((pieces * PIECE) as u64, ready_pieces(pieces, PIECE));
    Loaded::Entry { meta, head: Head::default(), content }
}

/// An origin whose answers have so many pieces, all of them there at once.
fn serving(world: &World, pieces: usize) -> Origin {
    let world = world.clone();
    Origin::new(move |_| {
        let answer = sized(world.fresh(600), pieces);
        async move { Ok(answer) }
    })
}

async fn read(mut reader: BodyReader) -> Result<usize, BrokenBody> {
    let mut length = 0;
    while let Some(piece) = reader.next().await {
        length += piece?.len();
    }
    Ok(length)
}

/// Uses all memory for bodies in flight, by evicted bodies that are being read.
async fn fill(world: &World) -> Vec<BodyReader> {
    let origin = serving(world, 12);
    let others = world.engine.traffic().flights;
    let mut readers = Vec::new();
    for name in ["filler", "other filler"] {
        let obtained = world.obtain(name, &origin).await.expect("a head");
        readers.push(obtained.entry.body.reader());
        world.until(|world| world.engine.traffic().flights == others).await;
    }
    for name in ["filler", "other filler"] {
        assert!(world.engine.memory().remove(key(name).borrowed()));
    }
    assert!(world.engine.traffic().in_flight_bytes > 1 << 20);
    readers
}

fn load(world: &World, name: &str, origin: &Origin) -> tokio::task::JoinHandle<Obtaining> {
    tokio::spawn(world.obtain(name, origin))
}

async fn until_waiting(world: &World, count: usize) {
    world.until(|world| world.engine.traffic().waiting == count).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_waits_for_room_with_all_who_follow_it_and_goes_when_there_is_some() {
    let world = narrow();
    let readers = fill(&world).await;
    let origin = serving(&world, 1);
    let mut crowd = Vec::new();
    for _ in 0..50 {
        crowd.push(load(&world, "a", &origin));
    }
    until_waiting(&world, 1).await;
    let traffic = world.engine.traffic();
    assert_eq!((origin.loads(), traffic.waits, traffic.refusals), (0, 1, 0));
    drop(readers);
    for caller in crowd {
        let obtained = caller.await.expect("no panic").expect("an answer");
        assert_eq!(read(obtained.entry.body.reader()).await, Ok(PIECE));
    }
    assert_eq!((origin.loads(), world.counts.waits.load(Ordering::SeqCst)), (1, 1));
    world.until_nothing_is_under_way().await;
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_finds_no_room_in_time_is_refused_and_all_who_follow_it_with_it() {
    let world = narrow();
    let _readers = fill(&world).await;
    let origin = serving(&world, 1);
    let crowd = Crowd::of(20, |_| world.obtain("a", &origin)).await;
    for told in crowd.told().await {
        assert!(matches!(told, Err(LoadError::Overloaded(_))));
    }
    world.until_nothing_is_under_way().await;
    let traffic = world.engine.traffic();
    assert_eq!((origin.loads(), traffic.waiting, traffic.refusals), (0, 0, 1));
    assert_eq!(world.counts.refusals.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn where_something_stale_may_be_served_it_is_served_instead_of_a_refusal() {
    let world = narrow();
    let origin = Origin::new({
        let world = world.clone();
        move |_| {
            let lifetime = Lifetime { stale_if_error: secs(1_000), ..Lifetime::fresh(secs(10)) };
            let answer = whole(world.meta(lifetime), "stale");
            async move { Ok(answer) }
        }
    });
    world.obtain("a", &origin).await.expect("an answer");
    world.step(20);
    let _readers = fill(&world).await;
    let fallback = world.obtain("a", &origin).await.expect("a fallback");
    assert_eq!((bytes(&fallback).as_ref(), fallback.source), (&b"stale"[..], Source::Fallback));
    assert_eq!((origin.loads(), world.engine.traffic().refusals), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn many_large_bodies_at_once_are_all_kept_one_after_another_within_the_bound() {
    const BODIES: usize = 16;
    let world = narrow();
    let origin = serving(&world, 14);
    let most = Arc::new(AtomicU64::new(0));
    let callers = (0..BODIES).map(|number| {
        let (world, origin, most) = (world.clone(), origin.clone(), most.clone());
        tokio::spawn(async move {
            let obtained = world.obtain(&*number.to_string(), &origin).await.expect("a head");
            let mut reader = obtained.entry.body.reader();
            drop(obtained);
            let mut length = 0;
            while let Some(piece) = reader.next().await {
                length += piece.expect("no break").len();
                most.fetch_max(world.engine.traffic().in_flight_bytes, Ordering::SeqCst);
            }
            length
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        assert_eq!(within_patience(caller).await.expect("no panic"), 14 * PIECE);
    }
    world.until_nothing_is_under_way().await;
    assert_eq!(origin.loads(), BODIES);
    let counts = &world.counts;
    for counter in [&counts.crowded_out, &counts.outgrown, &counts.bodies_dropped, &counts.refusals]
    {
        assert_eq!(counter.load(Ordering::SeqCst), 0);
    }
    // The bound, one object beyond it, an evicted one, and the first piece of each other body.
    let (most, bound) = (most.load(Ordering::SeqCst), (3 << 20) + (BODIES as u64) * (65 << 10));
    assert!(most <= bound, "{most} bytes in flight");
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_finds_no_room_to_grow_is_passed_on_to_all_callers_and_is_counted() {
    let (world, gate) = (narrow(), Gate::new());
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |_| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                gate.wait().await;
                Ok(sized(world.fresh(600), 12))
            }
        }
    });
    // These loads start while there is memory.
    let crowd = Crowd::of(10, |_| world.obtain("a", &origin)).await;
    reached(&gate, 1).await;
    let _readers = fill(&world).await;
    gate.open();
    let answers = crowd.obtained().await;
    let readers = answers.iter().map(|obtained| read(obtained.entry.body.reader()));
    for length in within_patience(join_all(readers)).await {
        assert_eq!(length, Ok(12 * PIECE));
    }
    drop(answers);
    world.until_nothing_is_under_way().await;
    assert_eq!((origin.loads(), world.counts.crowded_out.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(world.counts.outgrown.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_takes_no_more_than_a_window() {
    let world = narrow();
    let origin = serving(&world, 256);
    let leader = world.obtain("a", &origin).await.expect("a head");
    assert_eq!(leader.source, Source::Led { stored: false, unchanged: false });
    let mut reader = leader.entry.body.reader();
    let (mut length, mut most) = (0, 0);
    while let Some(piece) = reader.next().await {
        length += piece.expect("no break").len();
        most = world.engine.traffic().in_flight_bytes.max(most);
    }
    assert_eq!(length, 256 * PIECE);
    assert!(most <= (1 << 20) + (128 << 10), "{most} bytes in flight");
    world.until_nothing_is_under_way().await;
    assert_eq!(world.counts.outgrown.load(Ordering::SeqCst), 1);
    assert_eq!((world.engine.memory().entries(), world.engine.traffic().in_flight_bytes), (0, 0));
}

#[tokio::test]
async fn what_is_evicted_while_somebody_reads_it_is_charged_until_it_has_been_read() {
    let world = narrow();
    let origin = serving(&world, 12);
    world.obtain("a", &origin).await.expect("a head");
    world.until_nothing_is_under_way().await;
    let hit = world.obtain("a", &origin).await.expect("a hit");
    let mut reader = hit.entry.body.reader();
    drop(hit);
    assert!(matches!(reader.next().await, Some(Ok(_))));
    assert_eq!(world.engine.traffic().in_flight_bytes, 0, "memory is charged for it");
    world.engine.memory().remove(key("a").borrowed());
    let charged = world.engine.traffic().in_flight_bytes;
    assert!((12 << 16..13 << 16).contains(&charged), "{charged} bytes");
    assert_eq!(read(reader).await, Ok(12 * PIECE - SEGMENT));
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_loses_its_body_when_others_need_the_room() {
    let world = narrow();
    let mut readers = fill(&world).await;
    let watches: Vec<_> = readers.iter().filter_map(BodyReader::watch).collect();
    let lost = || watches.iter().filter(|watch| watch.is_lost()).count();
    assert_eq!((watches.len(), lost()), (readers.len(), 0));
    let origin = serving(&world, 12);
    let waiting = load(&world, "a", &origin);
    until_waiting(&world, 1).await;
    // They stand still from the first look on.
    world.step(3);
    let obtained = within_patience(waiting).await.expect("no panic").expect("an answer");
    assert_eq!(read(obtained.entry.body.reader()).await, Ok(12 * PIECE));
    assert!(world.counts.bodies_dropped.load(Ordering::SeqCst) > 0);
    assert_eq!(world.engine.traffic().refusals, 0);
    assert_eq!(lost(), world.counts.bodies_dropped.load(Ordering::SeqCst));
    let mut broken = 0;
    for mut reader in readers.drain(..) {
        while let Some(piece) = reader.next().await {
            if piece == Err(BrokenBody::FellBehind) {
                broken += 1;
                break;
            }
        }
    }
    assert_eq!(broken, world.counts.bodies_dropped.load(Ordering::SeqCst));
    assert_eq!(lost(), 0, "a reader that is gone waits for nothing");
}

#[tokio::test(start_paused = true)]
async fn who_reads_keeps_its_body_while_others_wait() {
    let world = narrow();
    let mut readers = fill(&world).await;
    let origin = serving(&world, 1);
    let waiting = load(&world, "a", &origin);
    until_waiting(&world, 1).await;
    // Every reader moves between two looks.
    for _ in 0..2 {
        for reader in &mut readers {
            assert!(matches!(reader.next().await, Some(Ok(_))));
        }
        world.clock.step(Duration::from_millis(1_900));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    for reader in readers {
        assert_eq!(read(reader).await, Ok(12 * PIECE - 2 * SEGMENT));
    }
    within_patience(waiting).await.expect("no panic").expect("an answer");
    assert_eq!(world.counts.bodies_dropped.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn who_reads_drop_by_drop_does_not_hold_the_room_for_ever() {
    let world = narrow();
    let mut readers = fill(&world).await;
    let origin = serving(&world, 1);
    let mut refused = 0;
    for round in 0..12 {
        let waiting = load(&world, &format!("a {round}"), &origin);
        for reader in &mut readers {
            let _ = reader.next().await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.step(1);
        if waiting.is_finished() && waiting.await.expect("no panic").is_ok() {
            break;
        }
        refused += 1;
    }
    assert!(
        refused < 12 && world.counts.bodies_dropped.load(Ordering::SeqCst) > 0,
        "{refused} rounds"
    );
}

#[tokio::test]
async fn what_is_asked_about_is_not_let_go_of_and_lives_on_if_it_is_unchanged() {
    let world = narrow();
    let gate = Gate::new();
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |asked: Asked| {
            let (world, gate) = (world.clone(), gate.clone());
            async move {
                let answer: Answer = match asked.number {
                    1 => Ok(sized(world.fresh(10), 12)),
                    _ => {
                        gate.wait().await;
                        Ok(Loaded::Unchanged { meta: world.fresh(10), head: None })
                    }
                };
                answer
            }
        }
    });
    world.obtain("a", &origin).await.expect("a head");
    world.until_nothing_is_under_way().await;
    world.step(11);
    let revalidating = tokio::spawn(world.obtain("a", &origin));
    reached(&gate, 1).await;
    world.engine.memory().remove(key("a").borrowed());
    assert!(world.engine.traffic().in_flight_bytes > 12 << 16);
    gate.open();
    let obtained = revalidating.await.expect("no panic").expect("an answer");
    assert_eq!(read(obtained.entry.body.reader()).await, Ok(12 * PIECE));
    drop(obtained);
    world.until_nothing_is_under_way().await;
    assert_eq!(world.engine.traffic().in_flight_bytes, 0, "memory has it again");
    let hit = world.obtain("a", &origin).await.expect("a hit");
    assert_eq!((hit.source, hit.entry.body.length()), (Source::Hit, Some(12 << 16)));
}

/// A body that ends, or breaks off, while what its only reader has not read fits into the window.
async fn held_by_a_window(world: &World, end: Option<BrokenBody>) -> BodyReader {
    let pieces = futures_util::stream::iter((0..20).map(|_| Ok(Bytes::from(vec![7; PIECE]))));
    let pieces = pieces.chain(futures_util::stream::iter(end.map(Err)));
    let body = parking_lot::Mutex::new(Some(pieces.boxed()));
    let world = world.clone();
    let origin = Origin::new({
        let world = world.clone();
        move |_| {
            let answer = flowing(world.fresh(600), body.lock().take().expect("one load"));
            async move { Ok(answer) }
        }
    });
    let obtained = world.obtain("window", &origin).await.expect("a head");
    let mut reader = obtained.entry.body.reader();
    drop(obtained);
    let mut length = 0;
    while length < 6 * PIECE {
        length += reader.next().await.expect("more").expect("no break").len();
    }
    world.until(|world| world.engine.traffic().in_flight_bytes >= 12 << 16).await;
    reader
}

#[tokio::test(start_paused = true)]
async fn who_stands_still_at_the_end_of_a_large_body_gives_its_window_back_when_it_is_needed() {
    for end in [None, Some(BrokenBody::Source("reset".into()))] {
        let limits = Limits { object_max: 1 << 20, in_flight_max: 2 << 20, ..Limits::of(8 << 20) };
        let world = World::within(limits);
        let mut still = held_by_a_window(&world, end).await;
        let watch = still.watch().expect("its body is streaming");
        assert!(!watch.is_lost());
        let _readers = fill(&world).await;
        let before = world.engine.traffic().in_flight_bytes;
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.until_nothing_is_under_way().await;
        let after = world.engine.traffic().in_flight_bytes;
        assert!(before - after >= 12 << 16, "{after} bytes in flight, {before} before");
        assert!(watch.is_lost());
        assert_eq!(still.next().await, Some(Err(BrokenBody::FellBehind)));
    }
}
