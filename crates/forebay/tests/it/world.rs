//! A cache with a manual clock and counting loaders.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::testkit::{ManualClock, seed_random};
use forebay::{Builder, Cache, Error, Memory};
use forebay_testkit::gate::Gate;
use tokio::task::JoinHandle;

/// Maximum time that a test waits for an event. With paused time it ends as soon as no task can run.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Maximum number of times that a test yields to other tasks before it fails.
const YIELDS_MAX: usize = 1_000_000;

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A cache of strings with a lifetime of one minute and no jitter, its clock, and a load counter.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) cache: Cache<String>,
    pub(crate) clock: ManualClock,
    loads: Arc<AtomicUsize>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(choose: impl FnOnce(Builder<String>) -> Builder<String>) -> Self {
        Self::untimed(|builder| choose(builder.ttl(secs(60))))
    }

    /// Creates a cache without a lifetime.
    pub(crate) fn untimed(choose: impl FnOnce(Builder<String>) -> Builder<String>) -> Self {
        seed_random(1);
        let clock = ManualClock::new();
        let builder = Cache::builder("texts")
            .memory(Memory::entries(1_000))
            .jitter(false)
            .clock(clock.shared());
        let cache = choose(builder).build().expect("valid settings");
        Self { cache, clock, loads: Arc::default() }
    }

    pub(crate) fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }

    /// Counts a load, and returns its number, starting at 1.
    pub(crate) fn begin(&self) -> usize {
        self.loads.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Calls with a loader that returns the number of its load.
    pub(crate) async fn load(&self, key: &str) -> Result<Arc<String>, Error> {
        let world = self.clone();
        let load = || async move { Ok::<_, Error>(world.begin().to_string()) };
        within_timeout(self.cache.get_or_load(key, load)).await
    }

    /// Calls with a loader that waits at a gate and then returns the number of its load.
    pub(crate) fn load_behind(
        &self,
        key: &str,
        gate: &Gate,
    ) -> impl Future<Output = Result<Arc<String>, Error>> + Send + use<> {
        let (world, gate, key) = (self.clone(), gate.clone(), key.to_owned());
        async move {
            let cache = world.cache.clone();
            let load = || async move {
                let number = world.begin();
                gate.wait().await;
                Ok::<_, Error>(number.to_string())
            };
            cache.get_or_load(key, load).await
        }
    }

    /// Calls with a loader that fails.
    pub(crate) async fn fail(&self, key: &str) -> Result<Arc<String>, Error> {
        let world = self.clone();
        let load = || async move {
            world.begin();
            Err::<String, _>("no database")
        };
        within_timeout(self.cache.get_or_load(key, load)).await
    }

    pub(crate) async fn get(&self, key: &str) -> Option<String> {
        self.cache.get(key).await.map(|value| value.to_string())
    }

    pub(crate) async fn wait_until(&self, reached: impl Fn(&Self) -> bool) {
        for _ in 0..YIELDS_MAX {
            if reached(self) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the condition is not met");
    }

    pub(crate) async fn wait_until_idle(&self) {
        self.wait_until(|world| world.cache.stats().loading == 0).await;
    }
}

/// Fails the test if a future does not end.
pub(crate) async fn within_timeout<F: Future>(waiting: F) -> F::Output {
    tokio::time::timeout(WAIT_MAX, waiting).await.expect("it ends in time")
}

/// Waits until this many loads wait at a gate.
pub(crate) async fn wait_for_loads(gate: &Gate, count: usize) {
    within_timeout(gate.wait_waiters(count)).await;
}

/// Concurrent callers, each polled until its call waits or ends.
pub(crate) struct Crowd<T>(Vec<JoinHandle<T>>);

impl<T: Send + 'static> Crowd<T> {
    pub(crate) async fn of<F, A>(count: usize, call: F) -> Self
    where
        F: Fn(usize) -> A,
        A: Future<Output = T> + Send + 'static,
    {
        let polled = Gate::of(count);
        let callers = (0..count)
            .map(|number| tokio::spawn(report_first_poll(call(number), polled.clone())))
            .collect();
        within_timeout(polled.wait()).await;
        Self(callers)
    }

    pub(crate) async fn abort(self) {
        for caller in self.0 {
            caller.abort();
            assert!(caller.await.err().expect("the call still waits").is_cancelled());
        }
    }

    pub(crate) async fn results(self) -> Vec<T> {
        let mut results = Vec::with_capacity(self.0.len());
        for caller in self.0 {
            results.push(within_timeout(caller).await.expect("the caller does not panic"));
        }
        results
    }
}

async fn report_first_poll<A: Future>(call: A, polled: Gate) -> A::Output {
    let mut call = pin!(call);
    let mut is_first = true;
    poll_fn(|cx| {
        let result = call.as_mut().poll(cx);
        if std::mem::take(&mut is_first) {
            polled.arrive();
        }
        result
    })
    .await
}
