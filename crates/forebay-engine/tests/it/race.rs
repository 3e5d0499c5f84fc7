//! Real threads, many times: what a stepped test can only show for one interleaving.
//!
//! `FOREBAY_SOAK_ROUNDS` repeats each of them so many times; the default is once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use forebay_core::{Demand, Lifetime, Purge, Reach};
use forebay_engine::{Limits, Loaded, Outcome};
use forebay_testkit::gate::Gate;
use futures_util::StreamExt;
use tokio::task::JoinSet;

use crate::crowd::{Crowd, reached};
use crate::origin::{Asked, Origin, flowing, whole};
use crate::world::{Question, SITE, World, key, secs, tagged, varying};

/// How many keys are asked for at once, so that memory stays small.
const CHUNK: usize = 1_000;

fn rounds() -> usize {
    let rounds = std::env::var("FOREBAY_SOAK_ROUNDS").ok();
    rounds.map_or(1, |rounds| rounds.parse().expect("a number of rounds"))
}

/// Answers after a detour through the scheduler.
fn yielding(world: &World) -> Origin {
    let world = world.clone();
    Origin::new(move |asked: Asked| {
        let world = world.clone();
        async move {
            tokio::task::yield_now().await;
            let meta = world.fresh(3_600);
            Ok(match asked.language {
                None => whole(meta, "any"),
                Some(language) => whole(varying(meta), language),
            })
        }
    })
}

async fn all_of(mut callers: JoinSet<()>) {
    while let Some(ended) = callers.join_next().await {
        ended.expect("a caller does not panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cold_keys_are_loaded_once_each() {
    const KEYS: usize = 20_000;
    const CALLERS: usize = 16;
    for _ in 0..rounds() {
        for first in (0..KEYS).step_by(CHUNK) {
            let world = World::new();
            let origin = yielding(&world);
            let mut callers = JoinSet::new();
            for name in first..first + CHUNK {
                for _ in 0..CALLERS {
                    let obtaining = world.obtain(name.to_string().as_str(), &origin);
                    callers.spawn(async move { drop(obtaining.await.expect("an answer")) });
                }
            }
            all_of(callers).await;
            assert_eq!(origin.loads(), CHUNK, "extra loads");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cold_variants_are_loaded_once_each() {
    const LANGUAGES: [&str; 4] = ["de", "en", "fr", "it"];
    for _ in 0..rounds() {
        let world = World::new();
        let origin = yielding(&world);
        let mut callers = JoinSet::new();
        for name in 0..CHUNK {
            for caller in 0..16 {
                let language = LANGUAGES[caller % LANGUAGES.len()];
                let obtaining = world.obtain(name.to_string().as_str(), &origin.speaking(language));
                callers.spawn(async move {
                    let obtained = obtaining.await.expect("an answer");
                    assert_eq!(obtained.entry.body.reader().collect().await, Ok(language.into()));
                });
            }
        }
        all_of(callers).await;
        assert_eq!(origin.loads(), CHUNK * LANGUAGES.len(), "extra loads");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn those_who_demand_validation_are_one_load_more() {
    let world = World::new();
    let gate = Arc::new(parking_lot::Mutex::new(Gate::new()));
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |_| {
            let (world, gate) = (world.clone(), gate.lock().clone());
            async move {
                gate.wait().await;
                Ok(whole(world.fresh(3_600), "any"))
            }
        }
    });
    let demand = Demand { revalidate: true, ..Demand::default() };
    for round in 0..500 * rounds() {
        let current = Gate::new();
        *gate.lock() = current.clone();
        let name = round.to_string();
        let ordinary = Crowd::of(1, |_| world.obtain(name.as_str(), &origin)).await;
        reached(&current, 1).await;
        let question = || Question::of(&name, demand.clone());
        let demanding = Crowd::of(16, |_| world.obtain(question(), &origin)).await;
        current.open();
        ordinary.obtained().await;
        demanding.obtained().await;
        assert_eq!(origin.loads(), 2 * (round + 1), "in round {round}");
    }
}

/// Version of all keys at the origin. It changes before a purge begins; after the purge has
/// returned, no later caller may get an older version.
#[derive(Default)]
struct Database {
    version: AtomicU64,
    /// Lowest version that callers may get after the newest purge that has returned.
    floor: AtomicU64,
    operations: AtomicUsize,
    loads: AtomicUsize,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TAG: &str = "red";

fn database_origin(world: &World, database: &Arc<Database>) -> Origin {
    let (world, database) = (world.clone(), database.clone());
    Origin::new(move |asked: Asked| {
        let (world, database) = (world.clone(), database.clone());
        async move {
            database.loads.fetch_add(1, Ordering::Relaxed);
            let version = Bytes::from(database.version.load(Ordering::SeqCst).to_string());
            // The older the answer is when it arrives, the more it may have missed.
            for _ in 0..asked.number % 4 {
                tokio::task::yield_now().await;
            }
            let lifetime = Lifetime { stale_if_error: secs(60), ..Lifetime::fresh(secs(60)) };
            let meta = tagged(world.meta(lifetime), TAG);
            let prior = asked.prior.and_then(|prior| prior.body.bytes().cloned());
            Ok(match asked.number % 3 {
                0 if prior.as_ref() == Some(&version) => Loaded::Unchanged { meta, head: None },
                1 => flowing(meta, in_two_pieces(version)),
                _ => whole(meta, version),
            })
        }
    })
}

/// The body comes in two pieces, with a detour through the scheduler in between.
fn in_two_pieces(mut version: Bytes) -> forebay_engine::PieceStream {
    let first = version.split_to(version.len() / 2);
    let second = futures_util::stream::once(async move {
        tokio::task::yield_now().await;
        Ok(version)
    });
    futures_util::stream::once(async { Ok(first) }).chain(second).boxed()
}

async fn version_of(obtained: Outcome) -> u64 {
    let body = obtained.entry.body.reader().collect().await.expect("it does not break");
    std::str::from_utf8(&body).expect("digits").parse().expect("a version")
}

async fn read(world: World, database: Arc<Database>, seed: usize) {
    let origin = database_origin(&world, &database);
    for number in 0..10_000 {
        let floor = database.floor.load(Ordering::SeqCst);
        let name = NAMES[(seed + number) % NAMES.len()];
        let mut question = Question::from(name);
        if number % 11 == 0 {
            question = question.alone();
        }
        if number % 13 == 0 {
            question.demand.revalidate = true;
        }
        let obtained = world.obtain(question, &origin).await.expect("an answer");
        let source = obtained.source;
        let version = version_of(obtained).await;
        assert!(version >= floor, "{name}: {version} after a purge at {floor}, by {source:?}");
        database.operations.fetch_add(1, Ordering::Relaxed);
    }
}

async fn purge(world: World, database: Arc<Database>) {
    for number in 0..5_000_usize {
        let what = match number % 8 {
            5 => Purge::Tag(TAG.into()),
            6 => Purge::Site(SITE.into()),
            7 => Purge::All,
            _ => Purge::Key(key(NAMES[number % NAMES.len()])),
        };
        // A purge of one key promises nothing for the others, so all keys are purged one by one.
        let at = database.version.fetch_add(1, Ordering::SeqCst) + 1;
        let reach = if number % 3 == 0 { Reach::Soft } else { Reach::Hard };
        if matches!(what, Purge::Key(_)) {
            for name in NAMES {
                world.purge(&Purge::Key(key(name)), reach).await;
            }
        } else {
            world.purge(&what, reach).await;
        }
        database.floor.fetch_max(at, Ordering::SeqCst);
        database.operations.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_purge_nobody_sees_what_was_true_before_it() {
    for _ in 0..rounds() {
        let (world, database) = (World::new(), Arc::new(Database::default()));
        let mut callers = JoinSet::new();
        for seed in 0..12 {
            callers.spawn(read(world.clone(), database.clone(), seed));
        }
        callers.spawn(purge(world.clone(), database.clone()));
        callers.spawn(purge(world.clone(), database.clone()));
        all_of(callers).await;
        assert!(database.operations.load(Ordering::Relaxed) >= 100_000);
        assert!(database.loads.load(Ordering::Relaxed) >= 1_000, "the purges were felt");
        assert_eq!(world.engine.traffic().flights, 0);
        assert_eq!(world.engine.traffic().in_flight_bytes, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bodies_come_and_go_under_many_readers_and_every_byte_is_accounted_for() {
    const CALLERS: usize = 8;
    const ASKED: usize = 150;
    const SIZES: [usize; 5] = [1, 60_000, 70_000, 300_000, 900_000];
    for _ in 0..rounds() {
        let limits = Limits { object_max: 1 << 20, in_flight_max: 1 << 20, ..Limits::of(5 << 20) };
        let world = World::within(limits);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let world = world.clone();
            callers.spawn(async move {
                for asked in 0..ASKED {
                    let number = (asked * 7 + caller * 13) % 40;
                    let size = SIZES[number % SIZES.len()];
                    let origin = filled(&world, size, u8::try_from(number).expect("a few"));
                    let name = number.to_string();
                    let Ok(obtained) = world.obtain(name.as_str(), &origin).await else { continue };
                    let mut reader = obtained.entry.body.reader();
                    drop(obtained);
                    let mut length = 0;
                    while let Some(piece) = reader.next().await {
                        let Ok(piece) = piece else { break };
                        assert!(piece.iter().all(|byte| usize::from(*byte) == number));
                        length += piece.len();
                        if asked % 5 == 0 && length > size / 2 {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                    assert!(length <= size);
                }
            });
        }
        all_of(callers).await;
        world.until_nothing_is_under_way().await;
        let traffic = world.engine.traffic();
        assert_eq!((traffic.in_flight_bytes, traffic.waiting), (0, 0));
    }
}

/// An answer of so many equal bytes, in pieces of any size.
fn filled(world: &World, size: usize, byte: u8) -> Origin {
    let world = world.clone();
    Origin::new(move |_| {
        let mut left = Bytes::from(vec![byte; size]);
        let pieces = std::iter::from_fn(move || {
            let next = left.len().min(50_000);
            (next > 0).then(|| Ok(left.split_to(next)))
        });
        let answer = flowing(world.fresh(600), futures_util::stream::iter(pieces).boxed());
        async move {
            tokio::task::yield_now().await;
            Ok(answer)
        }
    })
}
