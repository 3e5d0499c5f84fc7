use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::entry::Lifetime;

/// Random source that returns one number and counts its calls.
struct Fixed {
    chance: f64,
    throws: usize,
}

impl Dice for Fixed {
    fn unit(&mut self) -> f64 {
        self.throws += 1;
        self.chance
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Fresh for 60 s, then 10 s of stale-while-revalidate, 100 s of stale-if-error.
fn sample() -> Meta {
    let mut lifetime = Lifetime::fresh(secs(60));
    lifetime.stale_while_revalidate = secs(10);
    lifetime.stale_if_error = secs(100);
    Meta::new(Timestamp::from_millis(0), lifetime)
}

fn at(age_secs: i64) -> Timestamp {
    Timestamp::from_millis(age_secs * 1_000)
}

fn verdict(meta: &Meta, demand: &Demand, age_secs: i64) -> Verdict {
    judge(meta, demand, PurgeState::Valid, at(age_secs), &mut NoDice)
}

const fn load(why: Why, may_fall_back: bool) -> Verdict {
    Verdict::Load { why, may_fall_back }
}

#[test]
fn verdicts_over_the_lifetime_of_an_entry() {
    let demand = Demand::default();
    let rows = [
        (0, Verdict::Serve),
        (59, Verdict::Serve),
        (60, Verdict::ServeThenRefresh(Why::Stale)),
        (70, Verdict::ServeThenRefresh(Why::Stale)),
        (71, load(Why::Stale, true)),
        (160, load(Why::Stale, true)),
        (161, load(Why::Stale, false)),
    ];
    for (age, expected) in rows {
        assert_eq!(verdict(&sample(), &demand, age), expected, "at the age of {age} s");
    }
}

#[test]
fn request_directives_restrict_or_extend_the_use_of_an_entry() {
    let any = Demand::default;
    let rows: [(&str, Demand, i64, Verdict); 9] = [
        ("no-cache", Demand { revalidate: true, ..any() }, 1, load(Why::RequestRevalidate, false)),
        ("max-age met", Demand { max_age: Some(secs(5)), ..any() }, 5, Verdict::Serve),
        (
            "max-age passed",
            Demand { max_age: Some(secs(5)), ..any() },
            6,
            load(Why::RequestMaxAge, false),
        ),
        ("min-fresh met", Demand { min_fresh: Some(secs(20)), ..any() }, 40, Verdict::Serve),
        (
            "min-fresh missed",
            Demand { min_fresh: Some(secs(20)), ..any() },
            41,
            load(Why::RequestMinFresh, false),
        ),
        (
            "min-fresh on stale",
            Demand { min_fresh: Some(secs(0)), ..any() },
            65,
            load(Why::RequestMinFresh, false),
        ),
        ("max-stale met", Demand { max_stale: Some(secs(30)), ..any() }, 90, Verdict::Serve),
        (
            "max-stale passed",
            Demand { max_stale: Some(secs(30)), ..any() },
            91,
            load(Why::Stale, true),
        ),
        (
            "max-age wants nothing stale",
            Demand { max_age: Some(secs(1_000)), ..any() },
            65,
            load(Why::Stale, false),
        ),
    ];
    for (name, demand, age, expected) in rows {
        assert_eq!(verdict(&sample(), &demand, age), expected, "{name}");
    }
}

#[test]
fn an_origin_that_forbids_stale_answers_overrides_every_demand() {
    let mut meta = sample();
    meta.set_lifetime(Lifetime { stale: Stale::Forbidden, ..meta.lifetime() });
    let eager = Demand { max_stale: Some(secs(1_000_000)), ..Demand::default() };
    assert_eq!(verdict(&meta, &eager, 61), load(Why::Stale, false));
    assert!(!may_fall_back(&meta, OriginFailure::Failed, at(61)));
    assert!(!may_fall_back(&meta, OriginFailure::Unreachable(secs(1_000)), at(61)));
}

#[test]
fn an_unreachable_origin_opens_the_window_of_the_caller() {
    let plain = Meta::new(at(0), Lifetime::fresh(secs(60)));
    let patient = Demand { stale_if_unreachable: secs(300), ..Demand::default() };
    assert_eq!(verdict(&plain, &Demand::default(), 61), load(Why::Stale, false));
    assert_eq!(verdict(&plain, &patient, 61), load(Why::Stale, true));
    assert_eq!(verdict(&plain, &patient, 361), load(Why::Stale, false));
    let unreachable = OriginFailure::Unreachable(secs(300));
    let rows = [
        ("an error that it names no time for", &plain, OriginFailure::Failed, 61, false),
        ("nobody there, within the caller's time", &plain, unreachable, 360, true),
        ("nobody there, beyond it", &plain, unreachable, 361, false),
        ("its own time is longer", &sample(), OriginFailure::Unreachable(secs(1)), 160, true),
        ("an error, within its own time", &sample(), OriginFailure::Failed, 160, true),
        (
            "an error, though the caller's time is longer",
            &sample(),
            OriginFailure::Failed,
            161,
            false,
        ),
    ];
    for (name, meta, trouble, age, expected) in rows {
        assert_eq!(may_fall_back(meta, trouble, at(age)), expected, "{name}");
    }
    let max_age = Demand { max_age: Some(secs(1_000)), ..patient };
    assert_eq!(verdict(&plain, &max_age, 61), load(Why::Stale, false), "it wants nothing stale");
}

#[test]
fn purges_apply_to_fresh_entries() {
    let judge_standing =
        |standing, meta: &Meta| judge(meta, &Demand::default(), standing, at(1), &mut NoDice);
    let meta = sample();
    assert_eq!(judge_standing(PurgeState::Removed, &meta), load(Why::Purged, false));
    assert_eq!(
        judge_standing(PurgeState::SoftPurged, &meta),
        Verdict::ServeThenRefresh(Why::SoftPurged)
    );
    let plain = Meta::new(at(0), Lifetime::fresh(secs(60)));
    assert_eq!(judge_standing(PurgeState::SoftPurged, &plain), load(Why::SoftPurged, false));
}

#[test]
fn random_numbers_are_drawn_only_in_the_last_tenth_of_entries_with_a_cost() {
    let mut meta = sample();
    meta.set_load_cost(secs(2));
    let mut dice = Fixed { chance: 1e-9, throws: 0 };
    let demand = Demand::default();
    let mut ask = |meta: &Meta, demand: &Demand, age| {
        let verdict = judge(meta, demand, PurgeState::Valid, at(age), &mut dice);
        (verdict, dice.throws)
    };
    assert_eq!(ask(&meta, &demand, 53), (Verdict::Serve, 0));
    assert_eq!(ask(&meta, &demand, 54), (Verdict::ServeThenRefresh(Why::EarlyRefresh), 1));
    assert_eq!(ask(&meta, &Demand { beta: 0.0, ..demand.clone() }, 54), (Verdict::Serve, 1));
    meta.set_load_cost(Duration::ZERO);
    assert_eq!(ask(&meta, &demand, 54), (Verdict::Serve, 1));
}

#[test]
fn a_large_random_number_refreshes_late_and_a_small_one_early() {
    let mut meta = sample();
    meta.set_load_cost(secs(1));
    let ask = |chance: f64, age: i64| {
        let mut dice = Fixed { chance, throws: 0 };
        judge(&meta, &Demand::default(), PurgeState::Valid, at(age), &mut dice)
    };
    // -ln(0.5) is 0.69 s: too late for 1 s left. -ln(0.3) is 1.2 s.
    assert_eq!(ask(0.5, 59), Verdict::Serve);
    assert_eq!(ask(0.3, 59), Verdict::ServeThenRefresh(Why::EarlyRefresh));
}

#[test]
fn ttl_counts_down_and_then_below_zero() {
    assert_eq!(ttl_seconds(&sample(), at(18)), 42);
    assert_eq!(ttl_seconds(&sample(), Timestamp::from_millis(1)), 60);
    assert_eq!(ttl_seconds(&sample(), at(63)), -3);
}

#[test]
fn an_unverified_entry_is_never_served_after_a_failure() {
    for demand in [Demand::default(), Demand { max_stale: Some(secs(60)), ..Demand::default() }] {
        let verdict = judge(&sample(), &demand, PurgeState::Unverified, at(0), &mut NoDice);
        assert_eq!(verdict, load(Why::Suspect, false));
    }
}

proptest! {
    #[test]
    fn before_its_last_tenth_every_plain_demand_is_served(
        born in -10_000_i64..10_000,
        later in -10_i64..100_000,
        fresh in prop_oneof![
            0..3_000_u64, Just(u64::MAX), (0..100_000_u64).prop_map(|millis| millis * 1_000_000),
        ],
        chance in 1e-12..=1.0_f64,
        max_stale in prop::option::of(0..10_u64),
    ) {
        let fresh = if fresh == u64::MAX { Duration::MAX } else { Duration::from_nanos(fresh) };
        let mut meta = Meta::new(Timestamp::from_millis(born), Lifetime::fresh(fresh));
        meta.set_load_cost(secs(1_000));
        let demand = Demand { max_stale: max_stale.map(secs), ..Demand::default() };
        let now = Timestamp::from_millis(born + later);
        let mut dice = Fixed { chance, throws: 0 };
        let verdict = judge(&meta, &demand, PurgeState::Valid, now, &mut dice);
        if is_plain(&meta, now) {
            prop_assert_eq!((verdict, dice.throws), (Verdict::Serve, 0));
        } else if later >= 0 && verdict == Verdict::Serve && demand.max_stale.is_none() {
            let left = meta.fresh_left(now);
            prop_assert!(left <= fresh / 10 + Duration::from_millis(1), "{left:?} of {fresh:?}");
        }
    }
}

#[test]
fn a_demand_that_limits_the_age_is_not_plain() {
    let some = Some(secs(1));
    assert!(Demand { max_stale: some, soft_timeout: some, ..Demand::default() }.is_plain());
    for demand in [
        Demand { max_age: some, ..Demand::default() },
        Demand { min_fresh: some, ..Demand::default() },
        Demand { revalidate: true, ..Demand::default() },
    ] {
        assert!(!demand.is_plain(), "{demand:?}");
    }
}
