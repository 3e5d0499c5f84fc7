//! Histories: random operations of many callers of several instances, while instances are paused,
//! killed and restarted, links are cut, and the server is emptied, restarted, or replaced by a
//! replica that lacks the latest writes; and a checker of the results.
//!
//! A history runs on one thread, in the time of the runtime, from one seed. A failing history names
//! its seed and appends it to `cluster-seeds.txt` beside the tests, whose seeds are run with all
//! others from then on. `FOREBAY_CLUSTER_SEED` runs one history alone and prints its events.

mod life;

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::WhenBlind;
use forebay_engine::Clock;
use forebay_testkit::history::{Read, Truth};
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout, timeout_at};

use super::disk::Disk;
use super::link::Chance;
use super::{Instance, Making, Together, pass};

/// Histories in a test; `FOREBAY_SOAK_ROUNDS` multiplies them.
const HISTORIES: u64 = 1_000;

/// Names the one history that is to be run.
const SEED: &str = "FOREBAY_CLUSTER_SEED";

/// Those that were not right once.
const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster-seeds.txt");

/// Operations in each of them; and in every so many-th, which is a long one.
const OPERATIONS: u64 = 60;
const OPERATIONS_LONG: u64 = 10_000;
const LONG_EVERY: u64 = 1_000;

const INSTANCES: usize = 4;

/// One of the keys.
struct Named {
    name: &'static str,
    tag: &'static str,
    /// Callers that may share an answer for the key.
    is: Kind,
}

/// Callers that may share an answer for a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shared,
    Varying,
    /// Now and then an answer is for its caller alone.
    Private,
}

const KEYS: [Named; 5] = [
    Named { name: "a", tag: "red", is: Kind::Shared },
    Named { name: "b", tag: "red", is: Kind::Shared },
    Named { name: "c", tag: "blue", is: Kind::Shared },
    Named { name: "d", tag: "blue", is: Kind::Varying },
    Named { name: "e", tag: "red", is: Kind::Private },
];

const LANGUAGES: [&str; 2] = ["en", "de"];

/// Maximum time that a caller waits in a history: a killed instance never answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// For how long after a pause an instance may not have noticed that there was one.
const WAKING: Duration = Duration::from_millis(60);

/// Faults that may occur in one history.
#[derive(Clone, Copy, Debug)]
struct Troubles {
    cuts: bool,
    pauses: bool,
    kills: bool,
    flushes: bool,
    evictions: bool,
    /// Servers are begun again, with or without what they had.
    restarts: bool,
    /// Servers are replaced by replicas that lack the latest writes.
    failovers: bool,
    /// Instances have a disk, and find on it what was there when they were killed.
    disks: bool,
}

struct History {
    seed: u64,
    chance: Chance,
    together: Together,
    alive: Mutex<Vec<Living>>,
    truths: [Truth; KEYS.len()],
    reads: Mutex<HashMap<Reader, Vec<Read>>>,
    /// By life and key: when the latest put has ended, or that it has not.
    puts: Mutex<HashMap<(usize, usize), Option<Duration>>>,
    troubles: Troubles,
    making: Making,
    /// Maximum delay between a change and its purge, in milliseconds.
    purge_delay_max: u64,
    counts: Counts,
    is_traced: bool,
}

/// A life, a key and a variant.
type Reader = (usize, usize, &'static str);

/// An instance that lives.
#[derive(Clone)]
struct Living {
    instance: Instance,
    disk: Disk,
    /// When it was last paused.
    paused: Duration,
}

impl Living {
    fn new(
        together: &Together,
        number: usize,
        making: Making,
        disk: Disk,
        is_disk_used: bool,
        paused: Duration,
    ) -> Self {
        let Together { server, clock, .. } = together;
        let instance = if is_disk_used {
            Instance::with_disk(server, clock, number, making, &disk)
        } else {
            Instance::new(server, clock, number, making, &[])
        };
        Self { instance, disk, paused }
    }
}

/// Quantities that show that the histories were not empty.
#[derive(Clone, Copy, Debug)]
enum Counted {
    Reads,
    Writes,
    Loads,
    Passes,
    Refused,
    Untold,
    /// Acknowledged, and undone by a failover.
    Lost,
    Lives,
    Failovers,
}

/// Quantities, and the minimum count of each in a test.
const COUNTED: [(Counted, u64); 9] = [
    (Counted::Reads, 9_000),
    (Counted::Writes, 3_000),
    (Counted::Loads, 3_000),
    (Counted::Passes, 100),
    (Counted::Refused, 10),
    (Counted::Untold, 20),
    (Counted::Lost, 10),
    (Counted::Lives, 10),
    (Counted::Failovers, 10),
];

#[derive(Default)]
struct Counts([AtomicU64; COUNTED.len()]);

impl Counts {
    fn add(&self, what: Counted, count: u64) {
        self.0[what as usize].fetch_add(count, Ordering::Relaxed);
    }

    fn of(&self, what: Counted) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }

    fn take(&self, other: &Self) {
        COUNTED.iter().for_each(|(what, _)| self.add(*what, other.of(*what)));
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = COUNTED.map(|(what, _)| format!("{} {what:?}", self.of(what)));
        f.write_str(&counts.join(", ").to_lowercase())
    }
}

impl History {
    async fn new(seed: u64) -> Arc<Self> {
        let chance = Chance::new(seed);
        let one_in = |count| chance.below(count) == 0;
        let troubles = Troubles {
            cuts: one_in(3),
            pauses: one_in(3),
            kills: one_in(3),
            flushes: one_in(4),
            evictions: one_in(4),
            restarts: one_in(5),
            failovers: one_in(5),
            disks: one_in(3),
        };
        let purge_delay_max = if one_in(2) { 0 } else { chance.below(400) };
        let when_blind = if one_in(2) { WhenBlind::Strict } else { WhenBlind::Available };
        let making = Making { when_blind, seed, delay_max: chance.below(6), ..Making::default() };
        let together = Together::made(0, making).await;
        let living = |number| {
            let disk = Disk::default();
            Living::new(&together, number, making, disk, troubles.disks, Duration::ZERO)
        };
        let alive: Vec<Living> = (0..INSTANCES).map(living).collect();
        pass(100).await;
        assert!(alive.iter().all(|living| living.instance.hears()));
        Arc::new(Self {
            seed,
            chance,
            together,
            alive: Mutex::new(alive),
            truths: Default::default(),
            reads: Mutex::default(),
            puts: Mutex::default(),
            troubles,
            making,
            purge_delay_max,
            counts: Counts::default(),
            is_traced: std::env::var(SEED).is_ok(),
        })
    }

    /// Prints an event if one history is run alone.
    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:?} {}", self.now(), what());
        }
    }

    fn now(&self) -> Duration {
        self.together.clock.exact()
    }

    /// Maximum time for which an instance may serve a value after its purge was acknowledged.
    fn bound(&self) -> Duration {
        let Troubles { cuts, pauses, kills, flushes, evictions: _, restarts, failovers, disks } =
            self.troubles;
        // Entries on a disk may have been purged while no process was running.
        let is_behind = cuts || pauses || flushes || restarts || failovers || (kills && disks);
        match (is_behind, self.making.when_blind) {
            (false, _) => self.bus_delay(),
            (true, WhenBlind::Strict) => Duration::from_millis(1_400),
            (true, WhenBlind::Available) => Duration::from_millis(31_400),
        }
    }

    fn check_bound(&self, which: usize, instance: &Instance, began: Duration, read: u64) {
        let floor = self.truths[which].floor(began, self.bound());
        assert!(
            read >= floor,
            "seed {}: at {began:?}, instance {} gave version {read} of {} where {floor} was \
             purged, {:?}",
            self.seed,
            instance.link.instance,
            KEYS[which].name,
            self.troubles
        );
    }

    /// Maximum time until a purge has reached all instances that hear the bus: there and back, and
    /// once more for a purge that came while the log was being read.
    fn bus_delay(&self) -> Duration {
        Duration::from_millis(3 * self.making.delay_max + 2)
    }

    /// Checks that no read was given an older version than one that had ended before it began on
    /// the same instance, as far as purges were acknowledged.
    fn check_order(&self) {
        for ((life, which, language), reads) in &*self.reads.lock() {
            if let Some((newest, later)) = self.truths[*which].went_back(reads, self.bus_delay()) {
                panic!(
                    "seed {}: instance {life} went back from version {newest} of {} {language} \
                     to {later:?}, {:?}",
                    self.seed, KEYS[*which].name, self.troubles
                );
            }
        }
    }

    async fn run(self: &Arc<Self>) {
        let mut tasks = Vec::new();
        // Now and then as slow as a bus that is not heard is trusted.
        let step = if self.making.when_blind == WhenBlind::Available { 1_500 } else { 60 };
        let is_long = self.seed.is_multiple_of(LONG_EVERY);
        for _ in 0..if is_long { OPERATIONS_LONG } else { OPERATIONS } {
            let history = self.clone();
            tasks.push(match self.chance.below(20) {
                0..=12 => tokio::spawn(history.read()),
                13..=17 => tokio::spawn(history.write()),
                _ => tokio::spawn(history.trouble()),
            });
            pass(self.chance.below(step)).await;
        }
        let end = Instant::now() + PATIENCE;
        for task in tasks {
            // Those of instances that were killed never end.
            if let Ok(ended) = timeout_at(end, task).await {
                ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            }
        }
        self.check_order();
        let refused = self.together.server.counts().refusals;
        self.counts.add(Counted::Refused, refused as u64);
    }
}

/// Runs one history.
fn run(seed: u64) -> Counts {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        forebay_engine::ThreadDice::seed(seed);
        let history = History::new(seed).await;
        history.run().await;
        let counts = Counts::default();
        counts.take(&history.counts);
        counts
    })
}

/// Runs one history, and notes its seed if it is not right.
fn checked(seed: u64) -> Counts {
    let Ok(counts) = std::panic::catch_unwind(|| run(seed)) else {
        let seeds = std::fs::OpenOptions::new().append(true).create(true).open(SEEDS);
        let noted = seeds.and_then(|mut seeds| writeln!(seeds, "{seed}"));
        panic!("the history of seed {seed} is not right: {SEED}={seed}; noted: {noted:?}");
    };
    counts
}

/// Runs every second history, from this one on: there are two cores.
fn run_half(first: u64) {
    if let Ok(seed) = std::env::var(SEED) {
        run(seed.parse().expect("a seed"));
        return;
    }
    let rounds = std::env::var("FOREBAY_SOAK_ROUNDS").ok();
    let rounds: u64 = rounds.map_or(1, |rounds| rounds.parse().expect("a number of rounds"));
    let counts = Counts::default();
    for seed in (first..=HISTORIES * rounds).step_by(2) {
        counts.take(&checked(seed));
    }
    println!("{counts}");
    for (what, least) in COUNTED {
        assert!(counts.of(what) >= least, "too few {what:?}: {counts}");
    }
}

#[test]
fn no_history_shows_anything_older_than_it_may() {
    run_half(1);
}

#[test]
fn nor_does_any_other() {
    run_half(2);
}

#[test]
fn what_was_not_right_once_is_right_now() {
    let seeds = std::fs::read_to_string(SEEDS).unwrap_or_default();
    for seed in seeds.lines().filter(|line| !line.starts_with('#')) {
        checked(seed.parse().expect("a seed"));
    }
}
