//! Lookup of a leader in the shared tier: the entry, or the lease. All steps of one flight in lower
//! tiers share one time limit.
//!
//! A read may take 50 ms, the default; a load takes 50 ms.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Lifetime, Meta};
use forebay_engine::{
    Clock, Cluster, Coalesce, Engine, LeaseEvent, Limits, LoadError, Source, Tier,
};
use tokio::time::Instant;

use super::counts::{answering, minute, numbering};
use super::link::Link;
use super::server::Counts;
use super::{Instance, Passing, Seen, Together, pass};
use crate::faulty_tier::FaultyTier;
use crate::origin::{Origin, whole};
use crate::world::{MEMORY, Question, bytes, secs, varying};

const LOAD: u64 = 50;
const READ: u64 = 50;

/// Returns the number of opens and of lease requests at the server since `before`.
fn asked(together: &Together, before: Counts) -> (usize, usize) {
    let counts = together.server.counts();
    (counts.opens - before.opens, counts.asks - before.asks)
}

/// Returns the time that one caller waits, in milliseconds, and the number that it gets.
async fn timed(instance: &Instance, question: impl Into<Question>, origin: &Origin) -> (u64, u64) {
    let began = Instant::now();
    let obtained = instance.obtain(question, origin).await.expect("an answer");
    let text = String::from_utf8(bytes(&obtained).to_vec()).expect("text");
    let number = text.parse().expect("a number");
    (u64::try_from(began.elapsed().as_millis()).expect("a while"), number)
}

fn stale_at_once(clock: &Passing) -> Meta {
    let mut lifetime = Lifetime::fresh(Duration::from_millis(1));
    lifetime.stale_if_error = secs(600);
    Meta::new(clock.now(), lifetime)
}

/// An origin that is not to be asked.
fn unused_origin() -> Origin {
    Origin::new(|_| async { Err(LoadError::origin("it was asked")) })
}

#[tokio::test(start_paused = true)]
async fn a_miss_waits_once_for_a_tier_that_is_frozen() {
    let together = Together::new(1).await;
    let [instance] = &together.instances[..] else { unreachable!() };
    let origin = numbering(&together.clock, minute);
    instance.link.freeze(true);
    assert_eq!(timed(instance, "a", &origin).await, (READ + LOAD, 1));
    assert_eq!(instance.seen.came(LeaseEvent::Failed), 1);
    instance.link.freeze(false);
    pass(100).await;
    assert_eq!(together.server.records(), 0, "it had no right to store it there");
}

#[tokio::test(start_paused = true)]
async fn a_miss_is_one_exchange_with_a_tier_that_is_slow_and_its_time_at_most() {
    for (slowed, waited, asks) in [(30, 30, 1), (48, 48, 1), (60, READ, 1), (200, READ, 0)] {
        let together = Together::new(1).await;
        let [instance] = &together.instances[..] else { unreachable!() };
        let origin = numbering(&together.clock, minute);
        instance.link.slow(slowed);
        let before = together.server.counts();
        assert_eq!(timed(instance, "a", &origin).await, (waited + LOAD, 1), "{slowed}");
        pass(1_000).await;
        assert_eq!(asked(&together, before), (0, asks), "{slowed}");
        let stored = usize::from(slowed < READ);
        assert_eq!(together.server.records(), stored, "{slowed}");
        pass(2_000).await;
        assert_eq!(together.server.leases(), 0, "{slowed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_one_exchange_too_and_takes_no_lease() {
    let mut together = Together::new(1).await;
    let origin = numbering(&together.clock, minute);
    together.crowd(1, &"a".into(), &origin).await;
    pass(100).await;
    let second = together.join(&[]);
    pass(100).await;
    second.link.slow(30);
    let before = together.server.counts();
    assert_eq!(timed(&second, "a", &origin).await, (30, 1));
    assert_eq!(asked(&together, before), (0, 1));
    assert_eq!((together.server.leases(), second.seen.leases.lock().len()), (0, 0));
}

/// A lease request costs more than a read. Where most reads find an entry, the read comes first,
/// unless two exchanges take too long.
#[tokio::test(start_paused = true)]
async fn what_mostly_has_what_is_wanted_is_read_first_while_it_is_near() {
    let mut together = Together::new(1).await;
    let origin = numbering(&together.clock, minute);
    let names: Vec<String> = (0..100).map(|number| format!("there {number}")).collect();
    for name in &names {
        together.crowd(1, &name.as_str().into(), &origin).await;
    }
    let second = together.join(&[]);
    pass(100).await;
    let before = together.server.counts();
    for name in &names {
        assert_eq!(
            second.obtain(name.as_str(), &unused_origin()).await.unwrap().source,
            Source::Tier("shared")
        );
    }
    assert_eq!(asked(&together, before), (68, 32));
    let before = together.server.counts();
    assert_eq!(timed(&second, "cold", &origin).await.0, LOAD);
    assert_eq!(asked(&together, before), (1, 1), "it is loaded under a lease all the same");
    // A sixth of its time is near enough for two exchanges, a half of it is not.
    second.link.slow(8);
    assert_eq!(timed(&second, "near", &origin).await.0, 16 + LOAD);
    second.link.slow(20);
    for number in 0..3 {
        second.obtain(format!("far {number}").as_str(), &origin).await.unwrap();
        pass(100).await;
    }
    let before = together.server.counts();
    assert_eq!(timed(&second, "far", &origin).await.0, 20 + LOAD);
    assert_eq!(asked(&together, before), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_was_found_and_does_not_do_is_asked_about_in_the_time_that_is_left() {
    for (slowed, came) in [(20, LeaseEvent::Granted), (30, LeaseEvent::Failed)] {
        let mut together = Together::new(1).await;
        together.crowd(1, &"a".into(), &numbering(&together.clock, stale_at_once)).await;
        pass(2_000).await;
        let second = together.join(&[]);
        pass(100).await;
        second.link.slow(slowed);
        let origin = numbering(&together.clock, minute);
        let took = timed(&second, "a", &origin).await.0;
        assert_eq!((took, second.seen.came(came)), (READ.min(2 * slowed) + LOAD, 1), "{slowed}");
        pass(1_000).await;
        let third = together.join(&[]);
        pass(100).await;
        let loads = usize::from(came == LeaseEvent::Failed);
        third.obtain("a", &origin).await.unwrap();
        assert_eq!(origin.loads(), 1 + loads, "{slowed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_variant_is_looked_for_behind_its_family_in_the_same_time() {
    for (slowed, waited, asks) in [(20, 40, 2), (30, READ, 2), (60, READ, 1)] {
        let mut together = Together::new(1).await;
        let origin = answering(&together.clock, |clock, asked| {
            whole(varying(minute(clock)), asked.number.to_string())
        });
        together.crowd(1, &"a".into(), &origin.speaking("de")).await;
        pass(100).await;
        let second = together.join(&[]);
        pass(100).await;
        second.link.slow(slowed);
        let before = together.server.counts();
        let english = origin.speaking("en");
        assert_eq!(timed(&second, "a", &english).await, (waited + LOAD, 2), "{slowed}");
        pass(1_000).await;
        assert_eq!(asked(&together, before), (0, asks), "{slowed}");
        pass(2_000).await;
        assert_eq!(together.server.leases(), 0, "{slowed}");
    }
}

/// The time that another instance takes to load does not count as time of the tier: its answer can
/// still be read.
#[tokio::test(start_paused = true)]
async fn after_another_instance_has_loaded_there_is_time_to_read() {
    for slowed in [0, 20, 40] {
        let together = Together::new(2).await;
        let [leader, other] = &together.instances[..] else { unreachable!() };
        let origin = numbering(&together.clock, minute);
        for round in 0..20 {
            let name = round.to_string();
            let leading = tokio::spawn(leader.obtain(name.as_str(), &origin));
            pass(10).await;
            other.link.slow(slowed);
            assert_eq!(timed(other, name.as_str(), &unused_origin()).await.1, round + 1);
            other.link.slow(0);
            leading.await.unwrap().unwrap();
        }
        assert_eq!(other.seen.came(LeaseEvent::Failed), 0);
        assert_eq!(other.seen.came(LeaseEvent::Woken), 20);
    }
}

/// If leases are refused, the tier is still read; a missing entry is loaded without a lease.
#[tokio::test(start_paused = true)]
async fn what_gives_no_leases_is_still_read_and_is_not_left_alone() {
    let mut together = Together::new(1).await;
    let origin = numbering(&together.clock, minute);
    together.crowd(1, &"there".into(), &origin).await;
    let second = together.join(&[]);
    pass(100).await;
    second.link.refuse_leases(true);
    for number in 0..20 {
        let name = format!("missing {number}");
        second.obtain(name.as_str(), &origin).await.unwrap();
    }
    assert_eq!(second.seen.came(LeaseEvent::Failed), 20);
    assert_eq!(*second.seen.tier_failures.lock(), 0);
    assert_eq!(
        second.obtain("there", &unused_origin()).await.unwrap().source,
        Source::Tier("shared")
    );
    assert_eq!(together.server.records(), 1, "nothing is written without a lease");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_strict_is_told_of_a_tier_that_fails_and_not_of_leases() {
    let mut together = Together::new(1).await;
    let origin = numbering(&together.clock, minute).strict();
    let second = together.join(&[]);
    pass(100).await;
    second.link.refuse_leases(true);
    assert!(second.obtain("a", &origin).await.is_ok());
    second.link.freeze(true);
    let began = Instant::now();
    let told = second.obtain("b", &origin).await;
    assert!(matches!(told, Err(LoadError::Tier("shared", _))), "{told:?}");
    assert_eq!(began.elapsed(), Duration::from_millis(READ));
}

/// A tier below the shared one may have the entry: then the lease is released at once.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_needed_goes_back() {
    let together = Together::new(1).await;
    let tier = FaultyTier::new("faulty", together.clock.clone());
    let below = |number: usize| {
        let link = Link::new(&together.server, number, 1, 0);
        let seen = Arc::new(Seen::default());
        let tiers: Vec<Arc<dyn Tier>> = vec![link.clone(), Arc::new(tier.clone())];
        let cluster = Cluster::new(link.clone(), link.clone());
        let engine = Engine::clustered(
            Limits::of(MEMORY),
            together.clock.clone(),
            seen.clone(),
            tiers,
            cluster,
        );
        Instance { engine, link, seen }
    };
    let origin = numbering(&together.clock, minute);
    let first = below(7);
    pass(100).await;
    first.obtain("a", &origin).await.unwrap();
    pass(100).await;
    assert_eq!((tier.records(), together.server.records()), (1, 1));
    together.server.flush();
    let second = below(8);
    pass(100).await;
    assert_eq!(second.obtain("a", &unused_origin()).await.unwrap().source, Source::Tier("faulty"));
    pass(100).await;
    assert_eq!(together.server.leases(), 0);
    assert_eq!(second.seen.leases.lock().len(), 0, "it was of no account");
}

/// A flight that ends between its lease and its load also releases the lease.
#[tokio::test(start_paused = true)]
async fn a_lease_goes_back_if_the_key_is_purged_before_the_load_starts() {
    let together = Together::new(2).await;
    let [one, other] = &together.instances[..] else { unreachable!() };
    let origin = numbering(&together.clock, minute);
    one.link.slow(30);
    let obtaining = tokio::spawn(one.obtain("a", &origin));
    pass(10).await;
    other.purge_key("a").await;
    assert!(obtaining.await.unwrap().is_ok());
    pass(3_000).await;
    assert_eq!(together.server.leases(), 0);
    assert_eq!(origin.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_no_other_instance_still_looks_once() {
    let together = Together::new(2).await;
    let [one, other] = &together.instances[..] else { unreachable!() };
    let origin = numbering(&together.clock, minute);
    let leading = tokio::spawn(one.obtain("a", &origin));
    pass(10).await;
    other.link.slow(30);
    let before = together.server.counts();
    let here = Question { coalesce: Coalesce::Instance, ..Question::from("a") };
    assert_eq!(timed(other, here, &origin).await.0, 30 + LOAD);
    assert_eq!(asked(&together, before), (0, 1));
    assert_eq!(other.seen.came(LeaseEvent::Elsewhere), 1);
    leading.await.unwrap().unwrap();
    // Who asks alone looks as well, and no more than once.
    let before = together.server.counts();
    timed(other, Question::from("b").alone(), &origin).await;
    pass(100).await;
    assert_eq!(asked(&together, before), (0, 1));
}

/// Two callers load alone while the tier does not answer. The first one asks the origin last, when
/// the answer of the other is stored already. Later callers must not get the older answer.
#[tokio::test(start_paused = true)]
async fn who_asks_the_origin_last_is_stored_last_whoever_came_first() {
    let together = Together::new(1).await;
    let [instance] = &together.instances[..] else { unreachable!() };
    let clock = together.clock.clone();
    let origin = Origin::new(move |asked| {
        let answer = whole(minute(&clock), asked.number.to_string());
        async move { Ok(answer) }
    });
    instance.link.cut(true);
    instance.link.slow(20);
    let (one, again) = (instance.clone(), origin.clone());
    let first = tokio::spawn(async move { timed(&one, Question::from("a").alone(), &again).await });
    pass(1).await;
    instance.link.slow(0);
    let (took, version) = timed(instance, Question::from("a").alone(), &origin).await;
    assert_eq!(version, 1);
    let before = timed(instance, "a", &unused_origin()).await;
    assert_eq!((before, first.is_finished()), ((0, 1), false), "{took}");
    assert_eq!(first.await.unwrap(), (READ, 2));
    assert_eq!(timed(instance, "a", &unused_origin()).await, (0, 2));
}
