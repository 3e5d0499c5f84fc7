use super::*;

const LEASE: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn allowance(slots: u64, per_second: u64) -> Allowance {
    Allowance { slots, rate: per_second * RATE_UNIT }
}

fn claim(held: u64, wanted: u64) -> BudgetClaim {
    let slots = |slots| Allowance { slots, rate: 0 };
    BudgetClaim { held: slots(held), wanted: slots(wanted) }
}

fn exchange(
    member: &mut OriginBudget,
    now: Duration,
    waiting: u64,
    granted: u64,
    others: &[BudgetClaim],
) -> (BudgetRequest, bool) {
    let request = member.request(now, waiting);
    let granted = Allowance { slots: granted, rate: 0 };
    let reply = BudgetReply {
        granted,
        others: others.to_vec(),
        position: 0,
        round: 0,
        epoch: 7,
        is_complete: true,
    };
    let again = member.apply(request, reply, now, now);
    (request, again)
}

#[test]
fn a_local_budget_bounds_slots_and_rate() {
    let mut budget = OriginBudget::local(allowance(2, 1_000), at(0));
    assert_eq!(budget.state(at(0)), BudgetState::Local);
    assert_eq!(budget.take(at(1)), Ok(()));
    assert_eq!(budget.take(at(1)), Ok(()));
    assert_eq!(budget.take(at(2)), Err(BudgetWait::Slot));
    budget.give_back();
    assert_eq!(budget.take(at(3)), Ok(()));
    // A batch is 50 ms: not more may come at once after a pause.
    let mut fast = OriginBudget::local(allowance(UNBOUNDED, 1_000), at(0));
    let taken = |fast: &mut OriginBudget, now| (0..).take_while(|_| fast.take(now).is_ok()).count();
    assert_eq!(taken(&mut fast, at(10_000)), 50);
    assert_eq!(taken(&mut fast, at(10_010)), 10);
    let denied = fast.take_rate(at(10_010));
    assert!(matches!(denied, Err(BudgetWait::Rate(wait)) if wait <= at(1)), "{denied:?}");
}

#[test]
fn the_rate_over_any_second_is_the_budget_and_one_batch_at_most() {
    let mut budget = OriginBudget::local(allowance(UNBOUNDED, 200), at(0));
    let taken: Vec<u64> = (0..5_000).filter(|now| budget.take(at(*now)).is_ok()).collect();
    let most = taken
        .iter()
        .map(|from| taken.iter().filter(|it| (*from..from + 1_000).contains(it)).count());
    assert!(most.clone().max() <= Some(210), "{:?}", most.max());
    assert!(taken.len() >= 995, "{}", taken.len());
}

#[test]
fn a_shared_budget_waits_for_its_first_grant() {
    let mut budget = OriginBudget::shared(allowance(64, 0), at(0), LEASE);
    assert_eq!(budget.take(at(999)), Err(BudgetWait::Slot));
    assert_eq!(budget.allowance(at(1_000)).slots, 64, "no other member is known");
    let (request, _) = exchange(&mut budget, at(10), 0, 32, &[]);
    assert_eq!((request.claim, request.epoch), (claim(0, 0), 0));
    assert_eq!(request.asked.slots, 32, "half is left for a second member");
    assert_eq!(budget.state(at(1_009)), BudgetState::Shared);
    assert_eq!(budget.allowance(at(1_009)).slots, 32);
}

#[test]
fn a_lost_member_has_an_equal_part() {
    let mut budget = OriginBudget::shared(allowance(64, 200), at(0), LEASE);
    exchange(&mut budget, at(0), 60, 40, &[claim(8, 0), claim(8, 0), claim(8, 0)]);
    assert_eq!(budget.state(at(1_000)), BudgetState::Lost);
    assert_eq!(budget.allowance(at(1_000)), allowance(16, 50));
    let mut many = OriginBudget::shared(allowance(2, 2), at(0), LEASE);
    exchange(&mut many, at(0), 0, 0, &[claim(1, 9), claim(1, 9), claim(0, 9)]);
    assert_eq!(many.allowance(at(2_000)).slots, 1);
}

#[test]
fn a_member_returns_its_surplus_in_two_messages() {
    let mut budget = OriginBudget::shared(allowance(64, 0), at(0), LEASE);
    exchange(&mut budget, at(0), 64, 64, &[]);
    for _ in 0..40 {
        budget.tokens = 1.0;
        assert_eq!(budget.take(at(1)), Ok(()));
    }
    // Another member waits. The surplus is not used from now on, and reported with the next message.
    let (request, again) = exchange(&mut budget, at(250), 30, 64, &[claim(0, 64)]);
    assert_eq!((request.claim.held.slots, again), (64, true));
    assert_eq!(budget.allowance(at(251)).slots, 32);
    assert_eq!(budget.take(at(251)), Err(BudgetWait::Slot));
    // Requests in flight keep their slots.
    let (request, again) = exchange(&mut budget, at(255), 30, 40, &[claim(24, 64)]);
    assert_eq!((request.claim.held.slots, again), (40, true));
    for _ in 0..20 {
        budget.give_back();
    }
    let (request, again) = exchange(&mut budget, at(260), 30, 32, &[claim(32, 64)]);
    assert_eq!((request.claim.held.slots, request.asked.slots, again), (32, 32, false));
}

#[test]
fn a_surplus_that_nobody_wants_is_kept() {
    let mut budget = OriginBudget::shared(allowance(64, 0), at(0), LEASE);
    exchange(&mut budget, at(0), 40, 44, &[claim(20, 0)]);
    let (_, again) = exchange(&mut budget, at(250), 0, 44, &[claim(20, 5)]);
    assert_eq!((budget.allowance(at(251)).slots, again), (44, false));
    // The other one has less than half of an equal part, and gets it before it needs it.
    let (_, again) = exchange(&mut budget, at(500), 0, 44, &[claim(20, 0), claim(0, 0)]);
    assert!(again && budget.allowance(at(501)).slots == 16);
}

#[test]
fn the_wanted_rate_follows_the_requests() {
    let mut budget = OriginBudget::shared(allowance(UNBOUNDED, 1_000), at(0), LEASE);
    let mut wanted = Vec::new();
    for beat in 1..=8 {
        (0..25).for_each(|_| budget.arrived());
        wanted.push(budget.request(at(beat * 250), 0).claim.wanted.rate / RATE_UNIT);
    }
    assert_eq!(
        (wanted[0], wanted[7]),
        (62, 124),
        "25 requests each 250 ms, and a margin: {wanted:?}"
    );
    assert_eq!(budget.request(at(2_100), 1).claim.wanted.rate / RATE_UNIT, 1_000);
    for beat in 9..40 {
        budget.request(at(beat * 250), 0);
    }
    assert_eq!(budget.request(at(10_000), 0).claim.wanted.rate, 0);
}

#[test]
fn a_member_of_another_epoch_keeps_it_until_all_have_come_back() {
    let mut budget = OriginBudget::shared(allowance(64, 0), at(0), LEASE);
    exchange(&mut budget, at(0), 60, 16, &[claim(16, 60), claim(16, 60), claim(16, 60)]);
    for (now, is_complete, expected) in [(1_500, false, 7), (1_600, false, 7), (2_500, true, 9)] {
        let request = budget.request(at(now), 60);
        assert_eq!(request.epoch, 7);
        let granted = Allowance { slots: 16, rate: 0 };
        let (others, position, round) = (Vec::new(), 0, 0);
        let reply = BudgetReply { granted, others, position, round, epoch: 9, is_complete };
        budget.apply(request, reply, at(now), at(now));
        assert_eq!(budget.request(at(now), 60).epoch, expected);
        assert_eq!(budget.members(), if is_complete { 1 } else { 4 });
    }
}
