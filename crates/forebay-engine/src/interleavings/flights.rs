//! Joining, announcing and purging of flights.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_core::Position;
use shuttle::thread;

use super::*;
use crate::entry::body::Flow;
use crate::flight::{Flight, FlightResult, Flights, Follower, JoinRequest, LeaderGuard, Role};
use crate::memory::MemoryTier;
use crate::runtime::sync::atomic::AtomicU64;

/// More rounds than this no caller of these tests needs, whatever the schedule.
const ROUNDS_MAX: usize = 8;

/// Result of joining a flight that has no limit on followers.
enum Joined {
    Lead(LeaderGuard),
    Follow(Follower),
}

fn join_flight(flights: &Arc<Flights>, passed_over: Option<&Arc<Flight>>) -> Joined {
    let key = key();
    let primary = key.borrowed();
    let request = JoinRequest { primary, key: primary, passed_over, now: Duration::ZERO };
    match flights.join(request, Position::default) {
        Role::Lead(leader) => Joined::Lead(leader),
        Role::Follow(follower) => Joined::Follow(follower),
        Role::Full => panic!("there is room for all callers of these tests"),
    }
}

fn lead(flights: &Arc<Flights>) -> LeaderGuard {
    match join_flight(flights, None) {
        Joined::Lead(leader) => leader,
        Joined::Follow(_) => panic!("nothing is in progress yet"),
    }
}

fn shared(number: u64) -> FlightResult {
    FlightResult::Shared(numbered(number, fresh()), None)
}

/// Invariant 3.
///
/// 1. A: finds nothing in the table
/// 2. B: finds nothing in the table
/// 3. A: starts
/// 4. B: starts, though A can be joined
#[test]
fn one_flight_of_a_key_can_be_joined_and_all_who_join_it_are_told() {
    explore(&["led", "followed", "waited"], |seen| {
        let flights = Flights::new();
        let joinable = Arc::new(AtomicUsize::new(0));
        let caller = |number: u64| {
            let (flights, joinable, seen) = (flights.clone(), joinable.clone(), seen.clone());
            spawn(async move {
                match join_flight(&flights, None) {
                    Joined::Lead(leader) => {
                        seen.note("led");
                        assert_eq!(joinable.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                        leader.announce(shared(number));
                        joinable.fetch_sub(1, Ordering::SeqCst);
                    }
                    Joined::Follow(mut follower) => {
                        let mut result = at_once(&mut follower).await;
                        seen.note(if result.is_none() { "waited" } else { "followed" });
                        if result.is_none() {
                            result = Some(follower.await);
                        }
                        assert!(matches!(result, Some(FlightResult::Shared(..))), "{result:?}");
                    }
                }
            })
        };
        join((0..3).map(caller));
        assert_eq!(flights.count(), 0);
    });
}

/// Followers are woken when the head is known, not when the body is complete. A flight that ends
/// wakes its followers once more, which would hide a lost wake-up.
///
/// 1. B: asks; there is no result
/// 2. A: announces, wakes followers
/// 3. B: registers, and waits
#[test]
fn an_announced_result_wakes_all_followers_while_the_flight_goes_on() {
    explore(&["waited", "asked later"], |seen| {
        let flights = Flights::new();
        let leader = lead(&flights);
        let caller = |_| {
            let (flights, seen) = (flights.clone(), seen.clone());
            spawn(async move {
                let Joined::Follow(mut follower) = join_flight(&flights, None) else {
                    panic!("it is in progress, and may be joined")
                };
                let mut polls = 0;
                // Not asked once more before it waits: that would make up for a lost wake-up, too.
                let result = poll_fn(|cx| {
                    polls += 1;
                    Pin::new(&mut follower).poll(cx)
                });
                assert!(matches!(result.await, FlightResult::Shared(..)));
                seen.note(if polls > 1 { "waited" } else { "asked later" });
            })
        };
        let callers: Vec<_> = (0..2).map(caller).collect();
        leader.announce(shared(1));
        join(callers);
        drop(leader);
        assert_eq!(flights.count(), 0);
    });
}

/// Invariant 4.
///
/// 1. A: leads
/// 2. B, C: follow
/// 3. A: panics
/// 4. B, C: wait for ever
#[test]
fn a_leader_that_vanishes_wakes_its_followers_and_one_of_them_leads() {
    explore(&["abandoned", "followed the next"], |seen| {
        let flights = Flights::new();
        let first = lead(&flights);
        let led = Arc::new(AtomicUsize::new(0));
        let caller = |number: u64| {
            let (flights, led, seen) = (flights.clone(), led.clone(), seen.clone());
            spawn(async move {
                for _ in 0..ROUNDS_MAX {
                    match join_flight(&flights, None) {
                        Joined::Lead(leader) => {
                            led.fetch_add(1, Ordering::SeqCst);
                            return leader.announce(shared(number));
                        }
                        Joined::Follow(follower) => match follower.await {
                            FlightResult::Shared(..) => return seen.note("followed the next"),
                            FlightResult::Abandoned => seen.note("abandoned"),
                            result => panic!("unexpected result: {result:?}"),
                        },
                    }
                }
                panic!("no answer in {ROUNDS_MAX} rounds");
            })
        };
        let callers: Vec<_> = (0..2).map(caller).collect();
        let gone = catch_unwind(AssertUnwindSafe(|| {
            let _leader = first;
            resume_unwind(Box::new("the loader"));
        }));
        assert!(gone.is_err());
        join(callers);
        assert!(led.load(Ordering::SeqCst) >= 1);
        assert_eq!(flights.count(), 0);
    });
}

/// Invariants 3 and 7.
///
/// 1. A: leads
/// 2. B: follows
/// 3. A: announces an answer that may not be shared
/// 4. B: gets the result, joins again, and finds this flight again
#[test]
fn what_may_not_be_shared_is_not_joined_again() {
    explore(&["led anew", "told in time"], |seen| {
        let flights = Flights::new();
        let leader = lead(&flights);
        let number = leader.flight().number;
        let caller = |_| {
            let (flights, seen) = (flights.clone(), seen.clone());
            spawn(async move {
                let follower = match join_flight(&flights, None) {
                    Joined::Lead(_) => return,
                    Joined::Follow(follower) if follower.flight().number > number => return,
                    Joined::Follow(follower) => follower,
                };
                let result = follower.await;
                assert!(matches!(result, FlightResult::Private), "{result:?}");
                seen.note("told in time");
                match join_flight(&flights, None) {
                    Joined::Lead(_) => seen.note("led anew"),
                    Joined::Follow(again) => assert!(again.flight().number > number),
                }
            })
        };
        let callers: Vec<_> = (0..2).map(caller).collect();
        leader.announce(FlightResult::Private);
        join(callers);
        drop(leader);
        assert_eq!(flights.count(), 0);
    });
}

/// Invariants 2 and 4: a follower that waited finds the first byte of a body that is not kept; a
/// follower that is dropped delays no other.
///
/// 1. A: leads
/// 2. B, C: follow and wait
/// 3. A: announces, its body is streaming
/// 4. the window moves on before B is registered; or C is dropped, and the window never moves
#[test]
fn a_promise_to_a_follower_is_kept_or_given_back() {
    explore(&["waited", "too late", "went away"], |seen| {
        let flights = Flights::new();
        let leader = lead(&flights);
        let stays = spawn(reads_all(flights.clone(), seen.clone()));
        let goes = spawn(goes_away(flights.clone(), seen.clone()));
        let (writer, flow) = Flow::new(&in_flight(0), 0);
        let entry = Entry::new(fresh(), Head::default(), Body::flowing(flow));
        let entry = Arc::new(entry);
        writer.push(bodies::piece(0));
        let led = entry.for_reader(false).expect("nothing has flowed yet");
        leader.announce(FlightResult::Shared(entry, None));
        let leads = spawn(async move { bodies::read_all(led.body.reader()).await });
        let wanted = shuttle::future::block_on(bodies::write(&writer));
        join([stays, goes, leads]);
        assert!(wanted, "the leader was reading");
        let room = shuttle::future::block_on(poll_fn(|cx| writer.poll_room(cx)));
        assert!(!room, "a promise is still open");
    });
}

async fn reads_all(flights: Arc<Flights>, seen: Seen) {
    let Joined::Follow(mut follower) = join_flight(&flights, None) else { return };
    let mut result = at_once(&mut follower).await;
    let waited = result.is_none();
    if waited {
        seen.note("waited");
        result = Some((&mut follower).await);
    }
    match result.expect("the flight has a result") {
        FlightResult::Shared(entry, _) => bodies::read_all(entry.body.reader()).await,
        FlightResult::Abandoned if !waited => seen.note("too late"),
        result => panic!("waited: {waited}, result: {result:?}"),
    }
}

async fn goes_away(flights: Arc<Flights>, seen: Seen) {
    let Joined::Follow(mut follower) = join_flight(&flights, None) else { return };
    if at_once(&mut follower).await.is_none() {
        seen.note("went away");
    }
}

/// Value at the origin, and what memory and a lower tier have stored of it.
struct World {
    flights: Arc<Flights>,
    memory: MemoryTier,
    lower: crate::runtime::sync::Mutex<Option<u64>>,
    truth: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            flights: Flights::new(),
            memory: MemoryTier::new(1 << 20, &LIMITS, &in_flight(1 << 20)),
            lower: crate::runtime::sync::Mutex::default(),
            truth: AtomicU64::new(0),
        })
    }

    fn truth(&self) -> u64 {
        self.truth.load(Ordering::SeqCst)
    }

    fn remembered(&self) -> Option<u64> {
        self.memory.get(key().borrowed()).map(|entry| number_of(&entry))
    }

    fn remember(&self, leader: &LeaderGuard, number: u64) {
        leader.unless_purged(|| self.memory.put(key(), numbered(number, fresh())));
    }

    /// One caller without a lower tier: looks, joins, looks again if it leads, loads, stores,
    /// announces.
    async fn obtain(&self) -> u64 {
        if let Some(number) = self.remembered() {
            return number;
        }
        let leader = match join_flight(&self.flights, None) {
            Joined::Lead(leader) => leader,
            Joined::Follow(follower) => match follower.await {
                FlightResult::Shared(entry, _) => return number_of(&entry),
                result => panic!("unexpected result: {result:?}"),
            },
        };
        let number = self.remembered().unwrap_or_else(|| {
            let number = self.truth();
            self.remember(&leader, number);
            number
        });
        leader.announce(shared(number));
        number
    }

    fn purge(&self) -> u64 {
        let floor = self.truth.fetch_add(1, Ordering::SeqCst) + 1;
        self.flights.purge(key().borrowed(), || self.memory.remove(key().borrowed()));
        floor
    }

    /// One caller with a lower tier, which is read before the origin and written after it.
    async fn obtain_deep(&self, seen: &Seen) -> u64 {
        if let Some(number) = self.remembered() {
            return number;
        }
        let leader = match join_flight(&self.flights, None) {
            Joined::Lead(leader) => leader,
            Joined::Follow(follower) => match follower.await {
                FlightResult::Shared(entry, _) => return number_of(&entry),
                result => panic!("unexpected result: {result:?}"),
            },
        };
        let found = self.remembered();
        let found = found
            .or_else(|| leader.flight().may_search_tiers.then(|| *self.lower.lock()).flatten());
        let number = found.unwrap_or_else(|| self.truth());
        self.remember(&leader, number);
        leader.announce(shared(number));
        leader.close();
        let _committing = leader.flight().committing.lock().await;
        if leader.unless_purged(|| ()).is_some() {
            seen.note("committed");
            // A tier takes its time.
            thread::yield_now();
            *self.lower.lock() = Some(number);
        }
        number
    }

    async fn purge_deep(&self) -> u64 {
        let floor = self.truth.fetch_add(1, Ordering::SeqCst) + 1;
        let remove = || self.memory.remove(key().borrowed());
        let (purging, _) = self.flights.begin_purge(key().borrowed(), remove);
        purging.committed().await;
        *self.lower.lock() = None;
        floor
    }
}

/// Invariant 5.
///
/// 1. A: leads, asks the origin
/// 2. the truth changes
/// 3. P: purges
/// 4. A: stores the old value, or announces it to C, which arrived after P
///
/// And, were what is stored removed only after the cut:
///
/// 1. P: cuts
/// 2. B: leads, looks again, finds the old
/// 3. P: removes
/// 4. B: announces the old value to C, which arrived after P
#[test]
fn after_a_purge_nobody_is_given_what_was_true_before_it() {
    explore(&["old, in time"], |seen| {
        let world = World::new();
        let earlier = (0..2).map(|_| {
            let (world, seen) = (world.clone(), seen.clone());
            spawn(async move {
                if world.obtain().await < world.truth() {
                    seen.note("old, in time");
                }
            })
        });
        let earlier: Vec<_> = earlier.collect();
        let later = spawn({
            let world = world.clone();
            async move {
                let floor = world.purge();
                let number = world.obtain().await;
                assert!(number >= floor, "{number} after a purge at {floor}");
            }
        });
        join(earlier.into_iter().chain([later]));
        assert_ne!(world.remembered(), Some(0), "the old was stored after the purge");
        assert_eq!(world.flights.count(), 0);
    });
}

/// Invariant 5, with a tier below memory.
///
/// 1. A: announces its result, begins to commit
/// 2. P: cuts A, purges the tier
/// 3. A: commits the old
///
/// And:
///
/// 1. P: cuts
/// 2. B: leads, finds the old in the tier
/// 3. P: purges the tier
/// 4. B: remembers the old
///
/// And, since two purges of one key may overlap: 1. P: cuts A   2. Q: finds nothing to cut, purges
/// the tier, returns   3. A: commits the old   4. P: waits for A
#[test]
fn after_a_purge_no_tier_holds_what_was_true_before_it() {
    explore(&["committed", "purged"], |seen| {
        let world = World::new();
        *world.lower.lock() = Some(0);
        let earlier = spawn({
            let (world, seen) = (world.clone(), seen.clone());
            async move {
                world.obtain_deep(&seen).await;
            }
        });
        let purges = (0..2).map(|_| {
            let (world, seen) = (world.clone(), seen.clone());
            spawn(async move {
                let floor = world.purge_deep().await;
                let below = *world.lower.lock();
                assert!(below.is_none_or(|number| number >= floor), "{below:?} after {floor}");
                let number = world.obtain_deep(&seen).await;
                assert!(number >= floor, "{number} after a purge at {floor}");
                seen.note("purged");
            })
        });
        let purges: Vec<_> = purges.collect();
        join(purges.into_iter().chain([earlier]));
        let (memory, lower) = (world.remembered(), *world.lower.lock());
        assert!(memory.is_none_or(|number| number > 0), "memory: {memory:?}");
        assert!(lower.is_none_or(|number| number > 0), "below: {lower:?}");
        assert_eq!(world.flights.count(), 0);
    });
}
