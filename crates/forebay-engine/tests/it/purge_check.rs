//! The self-check finds purged entries that came back, and no others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::{Lifetime, Purge, Reach};
use forebay_engine::{Entry, Limits};
use forebay_testkit::gate::Gate;

use crate::crowd::{Crowd, reached, within_patience};
use crate::faulty_tier::FaultyTier;
use crate::origin::{Asked, Origin, whole};
use crate::world::{MEMORY, SITE, Steps, World, key, secs, tagged};

const TAG: &str = "red";

/// Times of the checks after a purge, as steps of the clock in seconds.
const STEPS: [u64; 2] = [1, 59];

fn origin(world: &World) -> Origin {
    let world = world.clone();
    Origin::new(move |asked: Asked| {
        let lifetime = Lifetime { stale_while_revalidate: secs(600), ..Lifetime::fresh(secs(600)) };
        let meta = tagged(world.meta(lifetime), TAG);
        async move { Ok(whole(meta, asked.number.to_string())) }
    })
}

async fn load(world: &World, origin: &Origin) -> Arc<Entry> {
    let obtained = within_patience(world.obtain("a", origin)).await.expect("an answer");
    world.until_nothing_is_under_way().await;
    obtained.entry
}

/// Number of entries that each check finds.
async fn found(world: &World) -> [usize; 2] {
    let mut found = [0; 2];
    for (step, found) in STEPS.into_iter().zip(&mut found) {
        assert_eq!(world.engine.check_purges().await, 0, "too early");
        world.step(step);
        *found = world.engine.check_purges().await;
    }
    world.step(600);
    assert_eq!(world.engine.check_purges().await, 0, "there are two checks");
    found
}

#[tokio::test]
async fn nothing_is_found_after_purges_that_work() {
    let all = [Purge::Key(key("a")), Purge::Tag(TAG.into()), Purge::Site(SITE.into()), Purge::All];
    for what in all {
        for reach in [Reach::Hard, Reach::Soft] {
            let world = World::new();
            let origin = origin(&world);
            load(&world, &origin).await;
            world.purge(&what, reach).await;
            // The entry is found purged, and loaded again.
            load(&world, &origin).await;
            assert_eq!(found(&world).await, [0, 0], "{what:?} {reach:?}");
            assert_eq!(origin.loads(), 2);
        }
    }
}

#[tokio::test]
async fn a_purged_entry_that_is_back_in_memory_is_found_by_both_checks() {
    let world = World::new();
    let entry = load(&world, &origin(&world)).await;
    world.purge(&Purge::Key(key("a")), Reach::Hard).await;
    world.engine.memory().put(key("a"), entry);
    assert_eq!(found(&world).await, [1, 1]);
    assert_eq!(world.counts.purged_found.load(Ordering::SeqCst), 2);
}

fn over(clock: &Arc<Steps>, tier: &FaultyTier) -> World {
    World::over(Limits::of(MEMORY), clock, std::slice::from_ref(tier))
}

/// Another process that uses the tier, and was not told of the purge, writes an older entry there.
#[tokio::test]
async fn an_older_entry_that_is_written_to_a_tier_after_the_purge_is_found() {
    let clock = Arc::<Steps>::default();
    let tier = FaultyTier::new("faulty", clock.clone());
    let (world, other) = (over(&clock, &tier), over(&clock, &tier));
    let gate = Gate::new();
    let slow = Origin::new({
        let (other, gate) = (other.clone(), gate.clone());
        move |_: Asked| {
            let (meta, gate) = (other.fresh(600), gate.clone());
            async move {
                gate.wait().await;
                Ok(whole(meta, "old".to_owned()))
            }
        }
    });
    let waiting = Crowd::of(1, |_| other.obtain("a", &slow)).await;
    reached(&gate, 1).await;
    world.step(40);
    world.purge(&Purge::Key(key("a")), Reach::Hard).await;
    gate.open();
    waiting.obtained().await;
    other.until_nothing_is_under_way().await;
    assert_eq!(tier.records(), 1);
    assert_eq!(found(&world).await, [1, 1]);
}

/// A removal that the tier refused is made up for later; until then the tier is not read.
#[tokio::test(start_paused = true)]
async fn a_pending_removal_is_no_finding() {
    let clock = Arc::<Steps>::default();
    let tier = FaultyTier::new("faulty", clock.clone());
    let world = over(&clock, &tier);
    load(&world, &origin(&world)).await;
    world.step(40);
    tier.refuse_removals(true);
    world.purge(&Purge::Key(key("a")), Reach::Hard).await;
    assert_eq!(tier.records(), 1);
    assert_eq!(found(&world).await, [0, 0]);
}
