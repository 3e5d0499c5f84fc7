//! Purges of one instance, and their effect on others: at once while the bus is connected, within
//! the stated bound otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Purge, Reach, WhenBlind};
use forebay_engine::{Clock, Propagation, Source, Tier};

use super::counts::{minute, numbering};
use super::link::Chance;
use super::{Instance, Making, Passing, Together, pass};
use crate::faulty_tier::FaultyTier;
use crate::origin::{Origin, whole};
use crate::world::{SITE, bytes, key, tagged};

/// Purges that affect the key `a` of these tests, which is tagged red.
fn purges() -> [Purge; 5] {
    [
        Purge::Key(key("a")),
        Purge::Tag("red".into()),
        Purge::Prefix { site: SITE.into(), prefix: "a".into() },
        Purge::Site(SITE.into()),
        Purge::All,
    ]
}

/// Origin whose answers are 1, 2, 3, ….
fn red(clock: &Arc<Passing>) -> Origin {
    numbering(clock, |clock| tagged(minute(clock), "red"))
}

async fn body(instance: &Instance, origin: &Origin) -> String {
    let obtained = instance.obtain("a", origin).await.expect("an answer");
    String::from_utf8(bytes(&obtained).to_vec()).expect("a number")
}

#[tokio::test(start_paused = true)]
async fn what_is_purged_on_one_instance_is_purged_on_all() {
    for what in purges() {
        for reach in [Reach::Hard, Reach::Soft] {
            let together = Together::new(3).await;
            let origin = red(&together.clock);
            for instance in &together.instances {
                assert_eq!(body(instance, &origin).await, "1");
            }
            let purged = together.instances[0].purge(what.clone(), reach).await;
            assert!(purged.found, "{what:?}");
            let Propagation::Published(published) = purged.propagation else {
                panic!("{what:?}: not told")
            };
            assert_eq!(&*published.id, "1");
            pass(20).await;
            for instance in &together.instances {
                assert_eq!(body(instance, &origin).await, "2", "{what:?} {reach:?}");
            }
            assert_eq!(origin.loads(), 2, "{what:?} {reach:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_reach_it_leaves_it_alone() {
    let together = Together::new(2).await;
    let origin = red(&together.clock);
    body(&together.instances[1], &origin).await;
    for what in [
        Purge::Key(key("b")),
        Purge::Tag("blue".into()),
        Purge::Prefix { site: SITE.into(), prefix: "b".into() },
        Purge::Site("other".into()),
    ] {
        together.instances[0].purge(what, Reach::Hard).await;
    }
    pass(20).await;
    for instance in &together.instances {
        assert_eq!(body(instance, &origin).await, "1");
    }
    assert_eq!(together.instances[1].link.heard(), 4);
    let recorded = together.instances[1].engine.purges_on_record();
    assert_eq!((recorded.prefixes, recorded.tags, recorded.sites), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_tier_of_ones_own_is_purged_of_what_others_purge() {
    for what in purges() {
        let mut together = Together::new(1).await;
        let clock: Arc<dyn Clock> = together.clock.clone();
        let tier = FaultyTier::new("own", clock);
        let with_tier = together.join(&[Arc::new(tier.clone()) as Arc<dyn Tier>]);
        pass(300).await;
        let origin = red(&together.clock);
        assert_eq!(body(&with_tier, &origin).await, "1");
        pass(20).await;
        assert_eq!(tier.records(), 1);
        together.instances[0].purge(what.clone(), Reach::Hard).await;
        pass(20).await;
        with_tier.engine.memory().remove(key("a").borrowed());
        assert_eq!(body(&with_tier, &origin).await, "2", "{what:?}");
    }
}

/// After missed messages, each entry is compared with the shared tier once, when it is requested.
#[tokio::test(start_paused = true)]
async fn after_a_gap_what_is_still_shared_is_looked_at_once_and_not_loaded() {
    for (when_blind, due) in [(WhenBlind::Strict, 0), (WhenBlind::Available, 30_000)] {
        let together = Together::made(2, Making { when_blind, ..Making::default() }).await;
        let [one, other] = &together.instances[..] else { unreachable!() };
        let origin = red(&together.clock);
        body(other, &origin).await;
        // Two purges while it does not hear, one of them behind the end of the log.
        other.link.cut(true);
        pass(200).await;
        for number in 0..100 {
            one.purge_key(&number.to_string()).await;
        }
        other.link.cut(false);
        pass(300).await;
        assert!(other.hears());
        let before = together.server.counts();
        if due > 0 {
            assert_eq!(other.obtain("a", &origin).await.unwrap().source, Source::Hit);
            pass(due).await;
        }
        let crowd = (0..50).map(|_| tokio::spawn(other.obtain("a", &origin)));
        for obtained in futures_util::future::join_all(crowd).await {
            assert_eq!(bytes(&obtained.unwrap().unwrap()), "1");
        }
        assert_eq!(other.obtain("a", &origin).await.unwrap().source, Source::Hit);
        let counts = together.server.counts();
        let looks = counts.opens + counts.asks - before.opens - before.asks;
        assert_eq!((origin.loads(), looks), (1, 1));
        assert_eq!(*other.seen.suspects.lock(), [true]);
    }
}

/// Version at the origin: a number that grows.
#[derive(Default)]
struct Versions(AtomicU64);

impl Versions {
    fn origin(self: &Arc<Self>, clock: &Arc<Passing>) -> Origin {
        let (versions, clock) = (self.clone(), clock.clone());
        Origin::new(move |_| {
            let (versions, clock) = (versions.clone(), clock.clone());
            async move {
                pass(5).await;
                let version = versions.0.load(Ordering::SeqCst);
                pass(5).await;
                Ok(whole(tagged(minute(&clock), "red"), version.to_string()))
            }
        })
    }
}

/// The link of one instance is cut again and again while another one purges. It may be behind by
/// the bound, and never by more.
#[tokio::test(start_paused = true)]
async fn however_often_the_link_is_cut_nothing_older_is_served_than_the_bound_allows() {
    let rounds = 100;
    for (when_blind, bound) in [(WhenBlind::Strict, 1_400), (WhenBlind::Available, 31_400)] {
        let making = Making { when_blind, delay_max: 2, ..Making::default() };
        let together = Together::made(2, making).await;
        let [one, cut] = &together.instances[..] else { unreachable!() };
        let versions = Arc::new(Versions::default());
        let origin = versions.origin(&together.clock);
        let chance = Chance::new(7);
        // When each version was known to be purged everywhere.
        let mut acknowledged = vec![together.clock.exact()];
        let mut reads = 0;
        for round in 1..=rounds {
            cut.link.cut(true);
            let down = chance.below(if when_blind == WhenBlind::Strict { 4_000 } else { 80_000 });
            let purge_at = chance.below(down + 1);
            let mut passed = 0;
            for at in [purge_at, down] {
                let step = (at - passed) / 10 + 1;
                while passed < at {
                    pass(step.min(at - passed)).await;
                    passed += step.min(at - passed);
                    let began = together.clock.exact();
                    let found: u64 = body(cut, &origin).await.parse().expect("a number");
                    reads += 1;
                    let newest = acknowledged
                        .iter()
                        .rposition(|since| *since + Duration::from_millis(bound) < began);
                    let floor = newest.unwrap_or(0) as u64;
                    assert!(found >= floor, "{when_blind:?} {round}: {found} after {floor}");
                }
                if at == purge_at {
                    versions.0.fetch_add(1, Ordering::SeqCst);
                    let what = purges()[chance.one_of(5)].clone();
                    let purged = one.purge(what, Reach::Hard).await;
                    assert!(matches!(purged.propagation, Propagation::Published(_)));
                    acknowledged.push(together.clock.exact());
                    passed = passed.max(at);
                    if purge_at == down {
                        break;
                    }
                }
            }
            cut.link.cut(false);
            pass(chance.below(600)).await;
        }
        assert!(reads > rounds, "{reads}");
        pass(31_100).await;
        assert_eq!(body(cut, &origin).await, rounds.to_string(), "{when_blind:?}");
    }
}

/// A purge that the others cannot be told of is told later, and meanwhile what is shared is not
/// believed.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_told_is_told_later() {
    for what in purges() {
        let together = Together::new(2).await;
        let [one, other] = &together.instances[..] else { unreachable!() };
        let origin = red(&together.clock);
        for instance in [one, other] {
            assert_eq!(body(instance, &origin).await, "1");
        }
        one.link.cut(true);
        let purged = one.purge(what.clone(), Reach::Hard).await;
        assert!(matches!(purged.propagation, Propagation::Pending(_)), "{what:?}");
        assert_eq!(one.engine.bus_status().unwrap().unpublished, 1);
        assert_eq!(body(one, &origin).await, "2", "{what:?}");
        pass(3_000).await;
        one.link.cut(false);
        one.engine.memory().remove(key("a").borrowed());
        assert_ne!(body(one, &origin).await, "1", "{what:?}");
        pass(1_500).await;
        assert_eq!(one.engine.bus_status().unwrap().unpublished, 0, "{what:?}");
        assert_ne!(body(other, &origin).await, "1", "{what:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn purges_that_cannot_be_told_are_bounded_and_become_one_of_everything() {
    let together = Together::new(2).await;
    let [one, other] = &together.instances[..] else { unreachable!() };
    let origin = red(&together.clock);
    body(other, &origin).await;
    one.link.cut(true);
    for number in 0..=1_000 {
        one.purge_key(&number.to_string()).await;
    }
    assert_eq!(one.engine.bus_status().unwrap().unpublished, 1);
    one.link.cut(false);
    pass(1_500).await;
    assert_eq!(one.engine.bus_status().unwrap().unpublished, 0);
    assert_eq!(body(other, &origin).await, "2");
}

/// Entries of an earlier process may have been purged while no process was running.
#[tokio::test(start_paused = true)]
async fn what_earlier_lives_have_left_is_not_believed_without_a_look() {
    let mut together =
        Together::made(1, Making { when_blind: WhenBlind::Strict, ..Making::default() }).await;
    let clock: Arc<dyn Clock> = together.clock.clone();
    let tier = FaultyTier::new("own", clock);
    let own = [Arc::new(tier.clone()) as Arc<dyn Tier>];
    let origin = red(&together.clock);
    let earlier = together.join(&own);
    pass(300).await;
    assert_eq!(body(&earlier, &origin).await, "1");
    pass(20).await;
    earlier.link.freeze(true);
    together.instances[0].purge(Purge::Tag("red".into()), Reach::Hard).await;
    let later = together.join(&own);
    pass(300).await;
    assert_eq!(body(&later, &origin).await, "2");
}
