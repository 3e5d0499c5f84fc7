//! Instances that share a budget, simulated in paused time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use forebay_core::origin_budget::{RATE_UNIT, UNBOUNDED};
use forebay_core::{Allowance, BudgetClaim, BudgetReply, BudgetRequest};
use forebay_engine::{OriginBudgets, TierError};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join_all};
use tokio::time::sleep;

use super::*;
use crate::settings::{BudgetSettings, SharedBudget};

const INSTANCES: usize = 4;

/// Time of one request to the origin.
const EXCHANGE: Duration = Duration::from_millis(50);

/// Time to the common place and back.
const WAY: Duration = Duration::from_millis(1);

/// Common place with the rules of the script of Redis.
#[derive(Default)]
struct CommonPlace {
    claims: Mutex<BTreeMap<String, (Instant, BudgetClaim)>>,
    born: Mutex<Option<Instant>>,
    epoch: AtomicU64,
    is_down: AtomicBool,
}

impl CommonPlace {
    /// Stops answering, and forgets everything.
    fn fail(&self) {
        self.is_down.store(true, Ordering::Relaxed);
        self.claims.lock().clear();
        *self.born.lock() = None;
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    fn reply(&self, member: &str, request: BudgetRequest, lease: Duration) -> BudgetReply {
        let BudgetRequest { asked, claim, total, epoch } = request;
        let current = self.epoch.load(Ordering::Relaxed) + 1;
        let mut claims = self.claims.lock();
        let born = *self.born.lock().get_or_insert_with(Instant::now);
        claims.retain(|_, (ends, _)| *ends > Instant::now());
        claims.remove(member);
        let others: Vec<BudgetClaim> = claims.values().map(|(_, claim)| *claim).collect();
        let is_complete = Instant::now() >= born + lease;
        let is_of_another = epoch != 0 && epoch != current;
        let grant =
            |asked: u64, held: u64, total: u64, taken: u64| match is_of_another && !is_complete {
                true => held,
                false => held.max(asked.min(total.saturating_sub(taken))),
            };
        let sum = |of: fn(&Allowance) -> u64| others.iter().map(|one| of(&one.held)).sum();
        let (slots, rate) = (sum(|it| it.slots), sum(|it| it.rate));
        let granted = Allowance {
            slots: grant(asked.slots, claim.held.slots, total.slots, slots),
            rate: grant(asked.rate, claim.held.rate, total.rate, rate),
        };
        let position = claims.keys().filter(|name| name.as_str() < member).count();
        let claim = BudgetClaim { held: granted, ..claim };
        claims.insert(member.to_owned(), (Instant::now() + lease, claim));
        BudgetReply { granted, others, position, round: 0, epoch: current, is_complete }
    }
}

/// Handle of one process to the common place.
struct Link(Arc<CommonPlace>);

impl OriginBudgets for Link {
    fn exchange<'a>(
        &'a self,
        _: &'a str,
        member: &'a str,
        request: BudgetRequest,
        lease: Duration,
    ) -> BoxFuture<'a, Result<BudgetReply, TierError>> {
        async move {
            sleep(WAY).await;
            match self.0.is_down.load(Ordering::Relaxed) {
                true => Err(TierError::TimedOut),
                false => Ok(self.0.reply(member, request, lease)),
            }
        }
        .boxed()
    }

    fn leave<'a>(&'a self, _: &'a str, member: &'a str) -> BoxFuture<'a, ()> {
        self.0.claims.lock().remove(member);
        async {}.boxed()
    }
}

/// Requests as the origin counts them.
#[derive(Default)]
struct Origin {
    in_flight: [AtomicUsize; INSTANCES],
    max: AtomicUsize,
    done: [AtomicU64; INSTANCES],
    begun: Mutex<Vec<Instant>>,
}

impl Origin {
    fn in_flight(&self, instance: usize) -> usize {
        self.in_flight[instance].load(Ordering::Relaxed)
    }

    async fn answer(&self, instance: usize) {
        self.in_flight[instance].fetch_add(1, Ordering::Relaxed);
        self.begun.lock().push(Instant::now());
        let all = (0..INSTANCES).map(|one| self.in_flight(one)).sum();
        self.max.fetch_max(all, Ordering::Relaxed);
        sleep(EXCHANGE.mul_f64(0.5 + fastrand::f64())).await;
        self.in_flight[instance].fetch_sub(1, Ordering::Relaxed);
        self.done[instance].fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self) -> [u64; INSTANCES] {
        std::array::from_fn(|one| self.done[one].load(Ordering::Relaxed))
    }
}

fn instance(total: Allowance, place: &Arc<CommonPlace>) -> Arc<Admission> {
    let shared = SharedBudget { name: "shop".into(), budgets: Arc::new(Link(place.clone())) };
    let budget = BudgetSettings { total, shared: Some(shared) };
    let authority = http::uri::Authority::from_static("origin");
    let settings = OriginSettings { budget: Some(budget), ..OriginSettings::new(authority) };
    Admission::new(&settings)
}

/// Starts four instances, each of which always has this number of requests for the origin.
fn four(total: Allowance, offered: usize) -> (Arc<CommonPlace>, Arc<Origin>, Vec<Arc<Admission>>) {
    let (place, origin) = (Arc::<CommonPlace>::default(), Arc::<Origin>::default());
    let admissions: Vec<_> = (0..INSTANCES).map(|_| instance(total, &place)).collect();
    for (number, admission) in admissions.iter().enumerate() {
        for _ in 0..offered {
            let (admission, origin) = (admission.clone(), origin.clone());
            tokio::spawn(async move {
                loop {
                    let due = Instant::now() + Duration::from_secs(30);
                    let permit = admission.admit(&Urgency::default(), Instant::now(), due).await;
                    if let Ok(_permit) = permit {
                        origin.answer(number).await;
                    }
                }
            });
        }
    }
    (place, origin, admissions)
}

fn assert_fair(done: [u64; INSTANCES]) {
    let mean = done.iter().sum::<u64>() as f64 / INSTANCES as f64;
    for one in done {
        assert!((one as f64 - mean).abs() <= 0.2 * mean, "{done:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn four_instances_share_the_slots_and_keep_an_equal_part_when_the_tier_fails() {
    const SLOTS: usize = 64;
    let total = Allowance { slots: SLOTS as u64, rate: UNBOUNDED };
    let (place, origin, admissions) = four(total, 160);
    sleep(Duration::from_secs(10)).await;
    let served = origin.done();
    // Each slot serves 20 requests per second.
    let possible = (10 * 20 * SLOTS) as f64;
    assert!(served.iter().sum::<u64>() as f64 > 0.9 * possible, "{served:?} of {possible}");
    assert_fair(served);
    place.fail();
    sleep(Duration::from_millis(1_100)).await;
    for _ in 0..100 {
        sleep(Duration::from_millis(10)).await;
        for one in 0..INSTANCES {
            assert!(origin.in_flight(one) <= SLOTS / INSTANCES, "instance {one}");
        }
        assert!(admissions.iter().all(|one| one.budget_status().is_some_and(|it| it.is_lost)));
    }
    let before = origin.done();
    place.is_down.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert!(admissions.iter().all(|one| one.budget_status().is_some_and(|it| !it.is_lost)));
    let after = origin.done();
    assert_fair(std::array::from_fn(|one| after[one] - before[one]));
    assert!(origin.max.load(Ordering::Relaxed) <= SLOTS, "{:?}", origin.max);
}

#[tokio::test(start_paused = true)]
async fn four_instances_share_the_rate() {
    let total = Allowance { slots: UNBOUNDED, rate: 200 * RATE_UNIT };
    let (place, origin, _admissions) = four(total, 100);
    sleep(Duration::from_secs(5)).await;
    place.fail();
    sleep(Duration::from_secs(3)).await;
    place.is_down.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(4)).await;
    let begun = origin.begun.lock().clone();
    assert!(begun.len() > 2_200, "{} in 12 seconds", begun.len());
    assert_fair(origin.done());
    for (index, from) in begun.iter().enumerate() {
        let within = begun[index..].iter().take_while(|at| **at < *from + Duration::from_secs(1));
        // A batch is the twentieth of a second.
        let count = within.count();
        assert!(count <= 200 + 200 / 20, "{count} within a second");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_instance_leaves_its_part_to_a_busy_one() {
    let total = Allowance { slots: 40, rate: UNBOUNDED };
    let place = Arc::<CommonPlace>::default();
    let idle: Vec<_> = (0..3).map(|_| instance(total, &place)).collect();
    sleep(Duration::from_secs(2)).await;
    let busy = instance(total, &place);
    let (urgency, due) = (Urgency::default(), Instant::now() + Duration::from_secs(2));
    let asked = (0..37).map(|_| busy.admit(&urgency, Instant::now(), due));
    let mut permits: Vec<_> = try_join_all(asked).await.unwrap();
    // A process that ends leaves all of its part at once.
    drop(idle);
    let due = Instant::now() + Duration::from_secs(1);
    let asked = (0..3).map(|_| busy.admit(&urgency, Instant::now(), due));
    permits.extend(try_join_all(asked).await.unwrap());
    let denied = busy.admit(&Urgency::default(), Instant::now(), Instant::now()).await;
    assert!(matches!(denied, Err(LoadError::OverBudget)), "{denied:?}");
    drop(permits.pop());
    assert!(busy.admit(&Urgency::default(), Instant::now(), Instant::now()).await.is_ok());
}
