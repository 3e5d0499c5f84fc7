//! Purged entries are removed from lower tiers, also if they are just being written (invariants 13,
//! 14).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_core::{Lifetime, Purge, Reach};
use forebay_engine::{Limits, Source};
use forebay_testkit::gate::Gate;
use tokio::task::JoinSet;

use crate::crowd::{Crowd, reached, within_patience};
use crate::faulty_tier::{Fault, FaultyTier};
use crate::origin::{Asked, Origin, whole};
use crate::world::{MEMORY, SITE, Steps, World, bytes, key, secs, tagged, varying};

const TAG: &str = "red";

fn faulty_tier() -> (Arc<Steps>, FaultyTier) {
    let clock = Arc::<Steps>::default();
    (clock.clone(), FaultyTier::new("faulty", clock))
}

fn over(clock: &Arc<Steps>, tier: &FaultyTier) -> World {
    World::over(Limits::of(MEMORY), clock, std::slice::from_ref(tier))
}

fn numbered(world: &World) -> Origin {
    let world = world.clone();
    Origin::new(move |asked: Asked| {
        let meta = tagged(world.fresh(60), TAG);
        async move {
            Ok(match asked.language {
                None => whole(meta, asked.number.to_string()),
                Some(_) => whole(varying(meta), asked.number.to_string()),
            })
        }
    })
}

async fn obtain(world: &World, origin: &Origin) -> (Bytes, Source) {
    let obtained = within_patience(world.obtain("a", origin)).await.expect("an answer");
    (bytes(&obtained), obtained.source)
}

fn led() -> Source {
    Source::Led { stored: true, unchanged: false }
}

fn purge_of_key() -> Purge {
    Purge::Key(key("a"))
}

#[tokio::test(start_paused = true)]
async fn a_purge_reaches_what_stands_in_a_lower_tier() {
    let all = [purge_of_key(), Purge::Tag(TAG.into()), Purge::Site(SITE.into()), Purge::All];
    for what in all {
        for language in [None, Some("de")] {
            let (clock, tier) = faulty_tier();
            let filler = over(&clock, &tier);
            let mut origin = numbered(&filler);
            origin = language.map_or_else(|| origin.clone(), |language| origin.speaking(language));
            obtain(&filler, &origin).await;
            filler.until_nothing_is_under_way().await;
            let world = over(&clock, &tier);
            assert!(world.purge(&what, Reach::Hard).await, "{what:?}");
            assert_eq!(obtain(&world, &origin).await, ("2".into(), led()), "{what:?}");
            assert_eq!(origin.priors(), [None, None], "what is gone is not asked about");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_purge_tells_whether_any_tier_had_something() {
    let (clock, tier) = faulty_tier();
    let filler = over(&clock, &tier);
    obtain(&filler, &numbered(&filler)).await;
    filler.until_nothing_is_under_way().await;
    let world = over(&clock, &tier);
    assert!(!world.purge(&Purge::Key(key("b")), Reach::Hard).await);
    assert!(world.purge(&purge_of_key(), Reach::Hard).await);
    assert!(!world.purge(&purge_of_key(), Reach::Hard).await);
}

#[tokio::test(start_paused = true)]
async fn a_soft_purge_keeps_the_stale_entry_in_memory_alone() {
    let (clock, tier) = faulty_tier();
    let world = over(&clock, &tier);
    let lifetime = Lifetime { stale_while_revalidate: secs(60), ..Lifetime::fresh(secs(60)) };
    let origin = Origin::new({
        let world = world.clone();
        move |asked: Asked| {
            let meta = world.meta(lifetime);
            async move { Ok(whole(meta, asked.number.to_string())) }
        }
    });
    obtain(&world, &origin).await;
    world.until_nothing_is_under_way().await;
    world.step(5);
    assert!(world.purge(&purge_of_key(), Reach::Soft).await);
    assert_eq!(tier.records(), 0);
    assert_eq!(obtain(&world, &origin).await, ("1".into(), Source::Refreshing));
    world.until_nothing_is_under_way().await;
    assert_eq!(obtain(&world, &origin).await, ("2".into(), Source::Hit));
}

#[tokio::test(start_paused = true)]
async fn a_purge_waits_for_a_commit_under_way_and_removes_it() {
    for language in [None, Some("de")] {
        let (clock, tier) = faulty_tier();
        let world = over(&clock, &tier);
        let mut origin = numbered(&world);
        origin = language.map_or_else(|| origin.clone(), |language| origin.speaking(language));
        let gate = Gate::new();
        tier.hold_commits(&gate);
        assert_eq!(obtain(&world, &origin).await.0, "1");
        reached(&gate, 1).await;
        // The second must wait as well, though it is the first that has cut the flight.
        let purges: Vec<_> = (0..2)
            .map(|_| {
                let world = world.clone();
                tokio::spawn(async move { world.purge(&purge_of_key(), Reach::Hard).await })
            })
            .collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(purges.iter().all(|purge| !purge.is_finished()));
        assert_eq!(tier.operations().removes.load(Ordering::SeqCst), 0);
        gate.open();
        for purge in purges {
            purge.await.expect("no panic");
        }
        assert_eq!(obtain(&world, &origin).await, ("2".into(), led()));
        world.until_nothing_is_under_way().await;
        let fresh = over(&clock, &tier);
        assert_eq!(obtain(&fresh, &origin).await, ("2".into(), Source::Tier("faulty")));
        assert_eq!(origin.loads(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flight_that_is_cut_before_it_commits_leaves_nothing_in_a_lower_tier() {
    let (clock, tier) = faulty_tier();
    let world = over(&clock, &tier);
    let gate = Gate::new();
    let origin = Origin::new({
        let (world, gate) = (world.clone(), gate.clone());
        move |asked: Asked| {
            let (meta, gate) = (world.fresh(60), gate.clone());
            async move {
                gate.wait().await;
                Ok(whole(meta, asked.number.to_string()))
            }
        }
    });
    let before = Crowd::of(5, |_| world.obtain("a", &origin)).await;
    reached(&gate, 1).await;
    world.purge(&purge_of_key(), Reach::Hard).await;
    gate.open();
    assert!(before.obtained().await.iter().all(|obtained| bytes(obtained) == "1"));
    world.until_nothing_is_under_way().await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tier.records(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_comes_during_a_purge_does_not_bring_back_what_is_about_to_be_removed() {
    let (clock, tier) = faulty_tier();
    let filler = over(&clock, &tier);
    let origin = numbered(&filler);
    obtain(&filler, &origin).await;
    filler.until_nothing_is_under_way().await;
    let world = over(&clock, &tier);
    // The removal is under way, and takes until its deadline; the record stands all the time.
    tier.inject_fault(1, Fault::Freezes);
    let removes = || tier.operations().removes.load(Ordering::SeqCst);
    let purging = tokio::spawn({
        let world = world.clone();
        async move { world.purge(&purge_of_key(), Reach::Hard).await }
    });
    world.until(|_| removes() == 1).await;
    assert_eq!(obtain(&world, &origin).await, ("2".into(), led()));
    assert!(!purging.is_finished());
    purging.await.expect("no panic");
    assert_eq!(obtain(&world, &origin).await, ("2".into(), Source::Hit));
}

#[tokio::test(start_paused = true)]
async fn what_a_tier_could_not_be_rid_of_is_not_read_from_it() {
    let (clock, tier) = faulty_tier();
    let filler = over(&clock, &tier);
    let origin = numbered(&filler);
    obtain(&filler, &origin).await;
    filler.until_nothing_is_under_way().await;
    let world = over(&clock, &tier);
    tier.refuse_removals(true);
    assert!(!world.purge(&purge_of_key(), Reach::Hard).await);
    assert_eq!(world.counts.tier_failures.load(Ordering::SeqCst), 1);
    assert_eq!(tier.records(), 1, "it still stands there");
    assert_eq!(obtain(&world, &origin).await, ("2".into(), led()));
    world.until_nothing_is_under_way().await;
    world.engine.memory().remove(key("a").borrowed());
    assert_eq!(obtain(&world, &origin).await, ("3".into(), led()), "and nothing was added to it");
    world.until_nothing_is_under_way().await;
    world.engine.memory().remove(key("a").borrowed());
    tier.refuse_removals(false);
    // It had refused so often that it was left alone for a moment.
    world.step(1);
    assert_eq!(obtain(&world, &origin).await, ("4".into(), led()), "the removal is made up for");
    world.until_nothing_is_under_way().await;
    assert_eq!(obtain(&over(&clock, &tier), &origin).await, ("4".into(), Source::Tier("faulty")));
}

/// One version for all keys: before a purge it moves on.
#[derive(Default)]
struct Truth {
    version: AtomicU64,
    floor: AtomicU64,
    from_tier: AtomicU64,
}

async fn read(world: World, truth: Arc<Truth>, name: &'static str) {
    let origin = Origin::new({
        let (world, truth) = (world.clone(), truth.clone());
        move |asked: Asked| {
            let meta = world.fresh(60);
            let version = truth.version.load(Ordering::SeqCst).to_string();
            async move {
                for _ in 0..asked.number % 4 {
                    tokio::task::yield_now().await;
                }
                Ok(match asked.language {
                    None => whole(meta, version),
                    Some(_) => whole(varying(meta), version),
                })
            }
        }
    });
    let origin = if name == "varying" { origin.speaking("de") } else { origin };
    for number in 0..4_000 {
        let floor = truth.floor.load(Ordering::SeqCst);
        let obtained = world.obtain(name, &origin).await.expect("an answer");
        let body = obtained.entry.body.reader().collect().await.expect("it does not break");
        let version: u64 = std::str::from_utf8(&body).expect("text").parse().expect("a number");
        assert!(version >= floor, "{name}: {version} after {floor}, by {:?}", obtained.source);
        truth
            .from_tier
            .fetch_add(u64::from(obtained.source == Source::Tier("faulty")), Ordering::SeqCst);
        if number % 7 == 0 {
            // Memory forgets; the tier below does not.
            world.engine.memory().remove(key(name).borrowed());
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_purge_no_tier_brings_back_what_was_true_before_it() {
    let (clock, tier) = faulty_tier();
    let world = over(&clock, &tier);
    let truth = Arc::new(Truth::default());
    let names = ["plain", "varying"];
    let mut callers = JoinSet::new();
    for reader in 0..8 {
        callers.spawn(read(world.clone(), truth.clone(), names[reader % 2]));
    }
    for _ in 0..2 {
        let (world, truth) = (world.clone(), truth.clone());
        callers.spawn(async move {
            for _ in 0..500 {
                let at = truth.version.fetch_add(1, Ordering::SeqCst) + 1;
                for name in names {
                    world.purge(&Purge::Key(key(name)), Reach::Hard).await;
                }
                truth.floor.fetch_max(at, Ordering::SeqCst);
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("a caller does not panic");
    }
    assert!(truth.from_tier.load(Ordering::SeqCst) > 100, "the tier was read");
    assert!(tier.operations().removes.load(Ordering::SeqCst) >= 2_000);
    world.until_nothing_is_under_way().await;
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
}
