//! Histories: what many callers of several instances do at random, while instances are paused and
//! killed, links cut and everything flushed; and a checker of what they were given.
//!
//! All of it runs on one thread, in the runtime's own time, from one seed. A history that is not
//! right names its seed: `FOREBAY_CLUSTER_SEED` runs that one alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Purge, Reach, WhenBlind};
use forebay_engine::{Clock, Coalesce, Head, Told};
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::Mutex as Turn;
use tokio::time::timeout;

use super::counts::minute;
use super::link::Chance;
use super::{Instance, Making, Together, pass};
use crate::origin::{Origin, whole};
use crate::world::{Question, SITE, bytes, key, tagged};

/// Histories in a test; `FOREBAY_SOAK_ROUNDS` multiplies them.
const HISTORIES: u64 = 5_000;

/// Names the one history that is to be run.
const SEED: &str = "FOREBAY_CLUSTER_SEED";

/// Operations in each of them.
const OPERATIONS: u64 = 60;

const INSTANCES: usize = 4;

/// The keys, each with its tag.
const KEYS: [(&str, &str); 3] = [("a", "red"), ("b", "red"), ("c", "blue")];

/// How long anybody waits for anything in a history: what was killed never answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// For how long after a pause an instance may not have noticed that there was one.
const WAKING: Duration = Duration::from_millis(60);

/// What goes wrong in one history.
#[derive(Clone, Copy, Debug)]
struct Troubles {
    cuts: bool,
    pauses: bool,
    kills: bool,
    flushes: bool,
    evictions: bool,
}

/// What is true of one key.
#[derive(Default)]
struct Truth {
    version: AtomicU64,
    /// Who changes it. Two writers at a time would leave the order of what they write open.
    turn: Turn<()>,
    /// When each version was known to have purged those before it.
    acknowledged: Mutex<Vec<(u64, Duration)>>,
}

/// One read, as the checker has to know it.
#[derive(Clone, Copy, Debug)]
struct Read {
    began: Duration,
    ended: Duration,
    version: u64,
}

struct History {
    seed: u64,
    chance: Chance,
    together: Together,
    /// Those that live; with when each was last paused.
    alive: Mutex<Vec<(Instance, Duration)>>,
    truths: [Truth; KEYS.len()],
    /// By life and key.
    reads: Mutex<HashMap<(usize, usize), Vec<Read>>>,
    troubles: Troubles,
    making: Making,
    counts: Counts,
    is_traced: bool,
}

/// That the histories were not empty.
#[derive(Default)]
pub(super) struct Counts {
    reads: AtomicUsize,
    writes: AtomicUsize,
    untold: AtomicUsize,
    refusals: AtomicUsize,
    loads: AtomicUsize,
}

impl History {
    async fn new(seed: u64) -> Arc<Self> {
        let chance = Chance::new(seed);
        let one_in = |count| chance.below(count) == 0;
        let troubles = Troubles {
            cuts: one_in(3),
            pauses: one_in(3),
            kills: one_in(4),
            flushes: one_in(4),
            evictions: one_in(4),
        };
        let when_blind = if one_in(2) { WhenBlind::Strict } else { WhenBlind::Available };
        let making = Making { when_blind, seed, delay_max: chance.below(6), ..Making::default() };
        let together = Together::made(INSTANCES, making).await;
        let alive = together.instances.iter().map(|one| (one.clone(), Duration::ZERO)).collect();
        let (truths, reads) = (Default::default(), Mutex::default());
        let alive = Mutex::new(alive);
        let (counts, is_traced) = (Counts::default(), std::env::var(SEED).is_ok());
        Arc::new(Self {
            seed,
            chance,
            together,
            alive,
            truths,
            reads,
            troubles,
            making,
            counts,
            is_traced,
        })
    }

    /// Tells what happens, where one history is run alone.
    fn trace(&self, what: &str) {
        if self.is_traced {
            println!("{:?} {what}", self.now());
        }
    }

    fn now(&self) -> Duration {
        self.together.clock.exact()
    }

    /// One that lives, by chance.
    fn instance(&self) -> (Instance, Duration) {
        let alive = self.alive.lock();
        alive[self.chance.one_of(alive.len())].clone()
    }

    /// What an instance may be behind by, at most.
    fn bound(&self) -> Duration {
        let Troubles { cuts, pauses, kills: _, flushes, evictions: _ } = self.troubles;
        let millis = match (cuts || pauses || flushes, self.making.when_blind) {
            // There and back, for what came while the log was just being read, once more.
            (false, _) => 3 * self.making.delay_max + 2,
            (true, WhenBlind::Strict) => 1_400,
            (true, WhenBlind::Available) => 31_400,
        };
        Duration::from_millis(millis)
    }

    /// An origin that reads the version some time after it was asked, and answers some time later.
    fn origin(self: &Arc<Self>, which: usize) -> Origin {
        let history = self.clone();
        Origin::new(move |_| {
            let history = history.clone();
            async move {
                history.counts.loads.fetch_add(1, Ordering::SeqCst);
                pass(history.chance.below(30)).await;
                let version = history.truths[which].version.load(Ordering::SeqCst);
                history.trace(&format!("the origin has read {version} of {}", KEYS[which].0));
                pass(history.chance.below(30)).await;
                let meta = tagged(minute(&history.together.clock), KEYS[which].1);
                Ok(whole(meta, version.to_string()))
            }
        })
    }

    async fn read(self: Arc<Self>) {
        let (instance, _) = self.instance();
        let which = self.chance.one_of(KEYS.len());
        let coalesce = match self.chance.below(10) {
            0 => Coalesce::Nowhere,
            1 => Coalesce::Here,
            _ => Coalesce::Everywhere,
        };
        let question = Question { coalesce, ..Question::from(KEYS[which].0) };
        // Nothing of an instance that is paused goes on.
        instance.link.thawed().await;
        let began = self.now();
        let (number, name) = (instance.link.instance, KEYS[which].0);
        self.trace(&format!("{number}: reads {name}, {coalesce:?}"));
        let is_waking = self.is_waking(&instance, began);
        let obtained = instance.obtain(question, &self.origin(which)).await;
        instance.link.thawed().await;
        let obtained = obtained.unwrap_or_else(|error| panic!("{}: {error}", self.seed));
        let (via, version) = (obtained.via, bytes(&obtained));
        self.trace(&format!("{number}: has read {version:?} of {name}, {via:?}, from {began:?}"));
        let version = std::str::from_utf8(&version).ok().and_then(|text| text.parse().ok());
        let version = version.expect("a version");
        self.counts.reads.fetch_add(1, Ordering::SeqCst);
        if !is_waking {
            self.check_bound(which, (&instance, began, version));
        }
        let read = Read { began, ended: self.now(), version };
        self.reads.lock().entry((instance.link.instance, which)).or_default().push(read);
    }

    fn is_waking(&self, instance: &Instance, at: Duration) -> bool {
        let alive = self.alive.lock();
        let paused = alive.iter().find(|(one, _)| one.link.instance == instance.link.instance);
        paused.is_none_or(|(_, paused)| at < *paused + WAKING)
    }

    fn check_bound(&self, which: usize, (instance, began, read): (&Instance, Duration, u64)) {
        let acknowledged = self.truths[which].acknowledged.lock();
        let settled = |(_, at): &&(u64, Duration)| *at + self.bound() < began;
        let floor = acknowledged.iter().filter(settled).map(|(version, _)| *version).max();
        let floor = floor.unwrap_or_default();
        assert!(
            read >= floor,
            "seed {}: at {began:?}, instance {} gave version {read} of {} where {floor} was \
             purged: {acknowledged:?}, {:?}",
            self.seed,
            instance.link.instance,
            KEYS[which].0,
            self.troubles
        );
    }

    /// Changes what some keys are, and purges them.
    async fn write(self: Arc<Self>) {
        let (instance, _) = self.instance();
        instance.link.thawed().await;
        let which = self.chance.one_of(KEYS.len());
        let (name, tag) = KEYS[which];
        let what = match self.chance.below(8) {
            0..=2 => Purge::Key(key(name)),
            3..=4 => Purge::Tag(tag.into()),
            5 => Purge::Prefix { site: SITE.into(), prefix: name.into() },
            6 => Purge::Site(SITE.into()),
            _ => Purge::All,
        };
        let is_reached = |(name, tag): (&str, &str)| match &what {
            Purge::Tag(purged) => **purged == *tag,
            what => what.is_about(key(name).borrowed()),
        };
        let reached: Vec<_> = (0..KEYS.len()).filter(|which| is_reached(KEYS[*which])).collect();
        let mut turns = Vec::new();
        for which in &reached {
            turns.push(self.truths[*which].turn.lock().await);
        }
        let next = |which: &usize| {
            let truth = &self.truths[*which];
            (*which, truth.version.fetch_add(1, Ordering::SeqCst) + 1)
        };
        let versions: Vec<_> = reached.iter().map(next).collect();
        let number = instance.link.instance;
        self.trace(&format!("{number}: {versions:?} by {what:?}"));
        let sets = matches!(what, Purge::Key(_)) && self.chance.below(3) == 0;
        self.counts.writes.fetch_add(1, Ordering::SeqCst);
        if sets {
            return self.set(&instance, (which, versions[0].1)).await;
        }
        let reach = if self.chance.below(3) == 0 { Reach::Soft } else { Reach::Hard };
        let purged = timeout(PATIENCE, instance.purge(what, reach)).await;
        self.trace(&format!("{number}: {versions:?} by {reach:?} is {purged:?}"));
        match purged.map(|purged| purged.told) {
            Ok(Told::Everybody(_)) => {
                let at = self.now();
                for (which, version) in versions {
                    self.truths[which].acknowledged.lock().push((version, at));
                }
            }
            Ok(Told::Nobody) => panic!("there are others"),
            Ok(Told::Later(_)) | Err(_) => {
                self.counts.untold.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    async fn set(&self, instance: &Instance, (which, version): (usize, u64)) {
        let (name, tag) = KEYS[which];
        let meta = tagged(minute(&self.together.clock), tag);
        let value = (meta, Head::default(), Bytes::from(version.to_string()));
        let key = key(name);
        let put = timeout(PATIENCE, instance.engine.put(key.borrowed(), value, ())).await;
        self.trace(&format!("{}: has set {version} of {name}: {put:?}", instance.link.instance));
        // It is kept if the others know of it, and it may not be kept although they do.
        if matches!(put, Ok(true)) && instance.is_heard() {
            let at = self.now();
            self.truths[which].acknowledged.lock().push((version, at));
        }
    }

    async fn trouble(self: Arc<Self>) {
        let (instance, _) = self.instance();
        let long = self.chance.below(if self.chance.below(4) == 0 { 40_000 } else { 3_000 });
        match self.chance.below(5) {
            0 if self.troubles.cuts => {
                instance.link.cut(true);
                pass(long).await;
                instance.link.cut(false);
            }
            1 if self.troubles.pauses && !instance.link.is_frozen() => {
                instance.link.freeze(true);
                pass(long).await;
                let at = self.now();
                let mut alive = self.alive.lock();
                let number = instance.link.instance;
                for (_, paused) in alive.iter_mut().filter(|(one, _)| one.link.instance == number) {
                    *paused = at;
                    instance.link.freeze(false);
                }
            }
            2 if self.troubles.kills => self.kill(&instance),
            3 if self.troubles.flushes => self.together.server.flush(),
            4 if self.troubles.evictions => self.together.server.evict_leases(),
            _ => {}
        }
    }

    /// It never goes on, and another one begins in its place.
    fn kill(&self, instance: &Instance) {
        instance.link.freeze(true);
        let mut alive = self.alive.lock();
        let number = INSTANCES + self.chance.one_of(1 << 31);
        let place = (&self.together.server, &self.together.clock);
        for dead in alive.iter_mut().filter(|(one, _)| Arc::ptr_eq(&one.link, &instance.link)) {
            *dead = (Instance::new(place, number, self.making, &[]), self.now());
        }
    }

    /// Whoever reads when another read of the same instance has ended is given nothing older.
    fn check_order(&self) {
        // What was never told to everybody may be undone: nobody was promised anything.
        if self.counts.untold.load(Ordering::SeqCst) > 0 {
            return;
        }
        for ((life, which), reads) in &*self.reads.lock() {
            for later in reads {
                let before = reads.iter().filter(|read| read.ended < later.began);
                let newest = before.map(|read| read.version).max().unwrap_or_default();
                assert!(
                    later.version >= newest,
                    "seed {}: instance {life} went back from version {newest} of {} to {later:?}, \
                     {:?}",
                    self.seed,
                    KEYS[*which].0,
                    self.troubles
                );
            }
        }
    }

    async fn run(self: &Arc<Self>) {
        let mut tasks = Vec::new();
        // Now and then as slow as a bus that is not heard is trusted.
        let step = if self.making.when_blind == WhenBlind::Available { 1_500 } else { 60 };
        for _ in 0..OPERATIONS {
            let history = self.clone();
            tasks.push(match self.chance.below(20) {
                0..=12 => tokio::spawn(history.read()),
                13..=17 => tokio::spawn(history.write()),
                _ => tokio::spawn(history.trouble()),
            });
            pass(self.chance.below(step)).await;
        }
        for task in tasks {
            // Those of instances that were killed never end.
            if let Ok(ended) = timeout(PATIENCE, task).await {
                ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            }
        }
        self.check_order();
        let refused = self.together.server.counts().refusals;
        self.counts.refusals.fetch_add(refused, Ordering::SeqCst);
    }
}

/// Runs one history.
pub(super) fn run(seed: u64) -> Counts {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        forebay_engine::ThreadDice::seed(seed);
        let history = History::new(seed).await;
        history.run().await;
        let Counts { reads, writes, untold, refusals, loads } = &history.counts;
        let [reads, writes, untold, refusals, loads] = [reads, writes, untold, refusals, loads]
            .map(|count| AtomicUsize::new(count.load(Ordering::SeqCst)));
        Counts { reads, writes, untold, refusals, loads }
    })
}

/// Runs every second history, from this one on: there are two cores.
fn run_half(first: u64) {
    if let Ok(seed) = std::env::var(SEED) {
        run(seed.parse().expect("a seed"));
        return;
    }
    let rounds = std::env::var("FOREBAY_SOAK_ROUNDS").ok();
    let rounds: u64 = rounds.map_or(1, |rounds| rounds.parse().expect("a number of rounds"));
    let mut sums = [0; 5];
    for seed in (first..=HISTORIES * rounds).step_by(2) {
        let Ok(counts) = std::panic::catch_unwind(|| run(seed)) else {
            panic!("the history of seed {seed} is not right: {SEED}={seed}");
        };
        let Counts { reads, writes, untold, refusals, loads } = counts;
        let counts = [reads, writes, untold, refusals, loads];
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count.into_inner();
        }
    }
    let [reads, writes, untold, refusals, loads] = sums;
    println!("{reads} reads, {writes} writes, {untold} untold, {refusals} refused, {loads} loads");
    assert!(reads > 90_000 && writes > 30_000 && untold > 200 && refusals > 100 && loads > 30_000);
}

#[test]
fn no_history_shows_anything_older_than_it_may() {
    run_half(1);
}

#[test]
fn nor_does_any_other() {
    run_half(2);
}
