//! The tests below run each schedule of a scenario that a scheduler can think of, many thousands
//! of them, instead of the one that a machine happens to take.
//!
//! Each test is run under two schedulers: one that takes any task at each step, and one (PCT) that
//! gives tasks priorities and changes them at few, well-spread moments, which finds what needs a
//! task to stand still for long. A wake-up that is lost shows as a deadlock. Each test also names
//! what must have happened in some of the schedules, or it would prove nothing.
//!
//! `FOREBAY_SOAK_ROUNDS` multiplies the schedules, `SHUTTLE_RANDOM_SEED` repeats a run.

mod bodies;
mod flights;
mod memory;
mod story;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyBuf, Lifetime, Meta, Timestamp};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

use crate::Limits;
use crate::entry::body::Body;
use crate::entry::in_flight::InFlight;
use crate::entry::{Entry, Head};
use crate::runtime::clock::SystemClock;
use crate::runtime::sync::schedule;

/// Schedules per test and scheduler.
const SCHEDULES: usize = 2_000;

/// Far more than what is stored here.
const LIMITS: Limits = Limits { object_max: 1 << 10, ..Limits::of(1 << 20) };

/// Number of tasks that PCT delays at chosen moments. A fault that needs no more delayed tasks is
/// found with a known probability.
const DEPTH: usize = 3;

/// Debug builds of the engine's futures are larger than what a scheduled task has by itself.
const STACK_BYTES: usize = 256 << 10;

/// Counts of named events in all schedules together. A count is not a point at which the scheduler
/// may switch.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<&'static str, usize>>>);

impl Seen {
    fn note(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }
}

/// Memory of this many bytes for bodies in flight.
fn in_flight(bytes_max: u64) -> Arc<InFlight> {
    InFlight::new(bytes_max, Arc::new(SystemClock))
}

/// Runs `scenario` under many schedules of both kinds, in each of which each of `expected` must
/// have been seen in the end.
fn explore(expected: &[&'static str], scenario: impl Fn(&Seen) + Send + Sync + 'static) {
    let rounds = std::env::var("FOREBAY_SOAK_ROUNDS").ok();
    let rounds: usize = rounds.map_or(1, |rounds| rounds.parse().expect("a number of rounds"));
    let schedules = SCHEDULES * rounds;
    let scenario = Arc::new(scenario);
    run(RandomScheduler::new(schedules), schedules, expected, scenario.clone());
    run(PctScheduler::new(DEPTH, schedules), schedules, expected, scenario);
}

fn run(
    scheduler: impl Scheduler + 'static,
    schedules: usize,
    expected: &[&'static str],
    scenario: Arc<impl Fn(&Seen) + Send + Sync + 'static>,
) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    // Orderings are all taken for the strongest one: it is interleavings that are explored here.
    config.silence_warnings = true;
    let seen = Seen::default();
    let ran = Runner::new(scheduler, config).run({
        let seen = seen.clone();
        move || schedule(|| scenario(&seen))
    });
    assert_eq!(ran, schedules);
    let seen = seen.0.lock().unwrap();
    for what in expected {
        assert!(seen.contains_key(what), "{what}: never seen in {schedules} schedules, {seen:?}");
    }
}

fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> shuttle::thread::JoinHandle<T> {
    shuttle::thread::spawn(|| shuttle::future::block_on(task))
}

fn join<T>(tasks: impl IntoIterator<Item = shuttle::thread::JoinHandle<T>>) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().collect();
    tasks.into_iter().map(|task| task.join().expect("no task panics")).collect()
}

/// Polls once, as a task does that then waits, or goes away.
async fn at_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await;
    match polled {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn key() -> Key {
    KeyBuf::new("test").part(b"a").borrowed().to_key()
}

fn fresh() -> Meta {
    Meta::new(Timestamp::default(), Lifetime::fresh(Duration::from_secs(60)))
}

/// An entry whose body is one number.
fn numbered(number: u64, meta: Meta) -> Arc<Entry> {
    let body = Body::whole(Bytes::copy_from_slice(&number.to_le_bytes()));
    Arc::new(Entry::new(meta, Head::default(), body))
}

fn number_in(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn number_of(entry: &Entry) -> u64 {
    number_in(&entry.body.bytes().expect("a whole body"))
}
