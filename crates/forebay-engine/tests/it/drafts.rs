//! Large bodies, read from a tier while they are written there and afterwards.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Purge, Reach};
use forebay_engine::{BodyReader, BrokenBody, Limits, Source};
use forebay_testkit::gate::Gate;

use crate::crowd::within_patience;
use crate::faulty_tier::{Fault, FaultyTier};
use crate::origin::{Once, Origin, Tap, flowing, tap};
use crate::world::{Steps, World};

const NAME: &str = "faulty";

/// Size of the pieces of the body. It differs from the piece size of the tier, so that their limits
/// never coincide.
const PIECE: usize = 50_000;

/// Number of pieces: four times the maximum size of an object in memory.
const PIECES: usize = 84;

const LIMITS: Limits =
    Limits { memory: 8 << 20, object_max: 1 << 20, in_flight_max: 4 << 20, typical: 8 << 10 };

/// Maximum memory for a body that a tier writes: a window, and the bytes that the tier cannot
/// return yet.
const HELD_MAX: u64 = (1 << 20) + (256 << 10);

/// An engine over a tier that returns parts, and the body that is being loaded.
struct Scene {
    clock: Arc<Steps>,
    tier: FaultyTier,
    world: World,
    origin: Origin,
    tap: Option<Tap>,
    sent: usize,
}

impl Scene {
    fn new() -> Self {
        let clock = Arc::<Steps>::default();
        let tier = FaultyTier::new(NAME, clock.clone()).with_drafts();
        let world = World::over(LIMITS, &clock, std::slice::from_ref(&tier));
        let (tap, body) = tap();
        let (at, body) = (world.clone(), Once::new(body));
        let origin = Origin::new(move |_| {
            let (meta, body) = (at.fresh(60), body.clone());
            async move { Ok(flowing(meta, body.take())) }
        });
        Self { clock, tier, world, origin, tap: Some(tap), sent: 0 }
    }

    /// Sends this number of pieces, and waits until the engine has taken them.
    async fn send(&mut self, pieces: usize) {
        let tap = self.tap.as_ref().expect("the body has not ended");
        for _ in 0..pieces {
            let piece = body(self.sent * PIECE..(self.sent + 1) * PIECE);
            within_patience(tap.send(Ok(piece))).await.expect("it is read");
            self.sent += 1;
        }
        let taken = async {
            // Unlike a turn of the scheduler, this lets deadlines pass.
            while tap.capacity() < tap.max_capacity() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within_patience(taken).await;
    }

    async fn asked(&self) -> BodyReader {
        let obtained = within_patience(self.world.obtain("a", &self.origin)).await;
        obtained.expect("a head").entry.body.reader()
    }

    fn in_flight(&self) -> u64 {
        self.world.engine.traffic().in_flight_bytes
    }

    fn parts_read(&self) -> usize {
        self.tier.operations().parts.load(Ordering::SeqCst)
    }
}

/// Returns these bytes of the body, in which no two pieces are equal.
fn body(range: Range<usize>) -> Bytes {
    range.map(|at| (at.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect()
}

/// Reads this number of bytes, or all.
async fn read(reader: &mut BodyReader, most: usize) -> Result<Bytes, BrokenBody> {
    let mut all = Vec::new();
    while all.len() < most {
        let Some(piece) = within_patience(reader.next()).await else { break };
        all.extend_from_slice(&piece?);
    }
    Ok(all.into())
}

async fn assert_reads_all(reader: &mut BodyReader) {
    let all = read(reader, usize::MAX).await.expect("it does not break");
    assert!(all == body(0..PIECES * PIECE), "{} bytes of something else", all.len());
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_late_reads_a_large_body_from_the_tier_that_is_being_written() {
    let mut scene = Scene::new();
    let mut readers = vec![scene.asked().await];
    for _ in 0..PIECES / 4 {
        scene.send(4).await;
        assert!(scene.in_flight() <= HELD_MAX, "{} in flight", scene.in_flight());
        let mut late = scene.asked().await;
        let first = read(&mut late, 1).await.expect("its first bytes");
        assert!(!first.is_empty() && first == body(0..first.len()));
        // Beginning anew, since those bytes are gone.
        readers.push(scene.asked().await);
    }
    drop(scene.tap.take());
    for reader in &mut readers {
        assert_reads_all(reader).await;
    }
    assert!(scene.parts_read() > readers.len() * 10, "{}", scene.parts_read());
    scene.world.until_nothing_is_under_way().await;
    assert_eq!((scene.origin.loads(), scene.in_flight(), scene.tier.records()), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn nobody_who_stands_still_holds_up_what_a_tier_takes() {
    let mut scene = Scene::new();
    let mut still = scene.asked().await;
    let mut idle = scene.asked().await;
    scene.send(1).await;
    read(&mut still, 1).await.expect("its first bytes");
    scene.send(PIECES - 1).await;
    drop(scene.tap.take());
    scene.world.until_nothing_is_under_way().await;
    assert_eq!((scene.tier.records(), scene.in_flight()), (1, 0));
    // Long after it has been stored, from an open file.
    scene.tier.rewrite(Vec::clear);
    assert_reads_all(&mut idle).await;
    let rest = read(&mut still, usize::MAX).await.expect("it does not break");
    assert!(!rest.is_empty() && rest == body(PIECES * PIECE - rest.len()..PIECES * PIECE));
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_gives_up_costs_no_reader_anything() {
    for fault in [Fault::Fails, Fault::Freezes, Fault::Panics] {
        let mut scene = Scene::new();
        let mut early = scene.asked().await;
        scene.send(PIECES / 2).await;
        let mut late = scene.asked().await;
        // The next write, and no other operation.
        scene.tier.inject_fault(1, fault);
        scene.send(1).await;
        let (wanted, got) = (PIECES * PIECE, async |reader: &mut BodyReader, scene: &mut Scene| {
            let mut got = read(reader, PIECES / 2 * PIECE).await.expect("what was written");
            while scene.sent < PIECES {
                scene.send(1).await;
                let more = read(reader, PIECE).await.expect("from the window");
                got = [got, more].concat().into();
            }
            drop(scene.tap.take());
            [got, read(reader, usize::MAX).await.expect("its end")].concat()
        });
        let other = tokio::spawn(async move {
            let all = read(&mut late, usize::MAX).await.expect("it does not break");
            assert!(all == body(0..wanted), "{fault:?}");
        });
        assert!(got(&mut early, &mut scene).await == body(0..wanted), "{fault:?}");
        other.await.expect("the late one");
        drop(early);
        scene.world.until_nothing_is_under_way().await;
        assert_eq!((scene.tier.records(), scene.in_flight()), (0, 0), "{fault:?}");
        assert_eq!(scene.origin.loads(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn between_its_last_byte_and_its_commit_a_body_is_loaded_by_nobody_else() {
    let mut scene = Scene::new();
    let gate = Gate::new();
    scene.tier.hold_commits(&gate);
    let mut first = scene.asked().await;
    scene.send(PIECES).await;
    drop(scene.tap.take());
    let commits = &scene.tier.operations().commits;
    scene.world.until(|_| commits.load(Ordering::SeqCst) == 1).await;
    let mut second = scene.asked().await;
    gate.open();
    assert_reads_all(&mut first).await;
    assert_reads_all(&mut second).await;
    scene.world.until_nothing_is_under_way().await;
    assert_eq!((scene.origin.loads(), scene.tier.records()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_purge_lets_earlier_readers_read_on_and_nothing_is_committed() {
    let mut scene = Scene::new();
    let mut reader = scene.asked().await;
    scene.send(PIECES / 2).await;
    scene.world.purge(&Purge::Site("site".into()), Reach::Hard).await;
    assert_eq!(scene.tier.operations().purges.load(Ordering::SeqCst), 1, "the tier is told");
    scene.send(PIECES - PIECES / 2).await;
    drop(scene.tap.take());
    assert_reads_all(&mut reader).await;
    scene.world.until_nothing_is_under_way().await;
    assert_eq!(scene.tier.records(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_for_memory_is_read_where_it_stands_and_in_part() {
    let mut scene = Scene::new();
    scene.asked().await;
    scene.send(PIECES).await;
    drop(scene.tap.take());
    scene.world.until_nothing_is_under_way().await;
    let world = World::over(LIMITS, &scene.clock, std::slice::from_ref(&scene.tier));
    let found = world.obtain("a", &scene.origin).await.expect("it stands in the tier");
    assert_eq!((found.source, world.engine.traffic().flights), (Source::Tier(NAME), 0));
    let all = &found.entry.body;
    assert_eq!((all.is_whole(), all.length(), all.bytes()), (true, Some(4_200_000), None));
    let before = scene.parts_read();
    let mut part = all.part(1_000_000..1_000_100).expect("any part");
    assert_eq!(part.left(), Some(100));
    assert_eq!(read(&mut part, usize::MAX).await.unwrap(), body(1_000_000..1_000_100));
    assert_eq!((scene.parts_read() - before, part.left()), (1, Some(0)));
    let mut reader = all.reader();
    assert_eq!(reader.skip(5), 0, "a part begins where it is wanted");
    assert_reads_all(&mut reader).await;
    assert_eq!((scene.origin.loads(), world.engine.traffic().in_flight_bytes), (1, 0));
    assert_eq!(world.engine.memory().entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_wants_a_part_of_what_flows_reads_no_other() {
    let mut scene = Scene::new();
    let mut leader = scene.asked().await;
    scene.send(PIECES / 2).await;
    let before = scene.parts_read();
    let (near, far) = (1_000_000, PIECES * PIECE - 10);
    for (skip, waits) in [(near, false), (far, true)] {
        let mut reader = scene.asked().await;
        assert_eq!(reader.skip(skip as u64), skip as u64);
        if waits {
            scene.send(PIECES - PIECES / 2).await;
            drop(scene.tap.take());
        }
        let piece = read(&mut reader, 1).await.expect("its bytes");
        assert!(!piece.is_empty() && piece == body(skip..skip + piece.len()));
        assert!(scene.parts_read() - before <= 1, "one piece was wanted of the tier");
    }
    assert_reads_all(&mut leader).await;
}

#[tokio::test(start_paused = true)]
async fn a_purge_that_a_tier_cannot_write_down_is_told() {
    let scene = Scene::new();
    for (number, fault) in [Fault::Fails, Fault::Freezes, Fault::Panics].into_iter().enumerate() {
        scene.tier.inject_fault(0, fault);
        scene.world.purge(&Purge::All, Reach::Soft).await;
        scene.tier.recover();
        assert_eq!(scene.world.engine.unkept_purges(), number as u64 + 1, "{fault:?}");
    }
    scene.world.purge(&Purge::Tag("red".into()), Reach::Hard).await;
    assert_eq!(scene.world.engine.unkept_purges(), 3);
}
