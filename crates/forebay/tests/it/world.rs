//! A cache over a clock that is moved by hand, and loaders that count.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::testkit::{ManualClock, seed_dice};
use forebay::{Builder, Cache, Error, Memory};
use forebay_testkit::gate::Gate;
use tokio::task::JoinHandle;

/// How long a test waits for what must come. With paused time it is over as soon as nothing moves.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// How often a test lets everybody else run before it takes it that nothing will come.
const TURNS_MAX: usize = 1_000_000;

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A cache of texts with a lifetime of a minute, without jitter; its clock and its loads.
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

    /// The same without a lifetime.
    pub(crate) fn untimed(choose: impl FnOnce(Builder<String>) -> Builder<String>) -> Self {
        seed_dice(1);
        let clock = ManualClock::new();
        let builder = Cache::builder("texts")
            .memory(Memory::entries(1_000))
            .jitter(false)
            .clock(clock.shared());
        let cache = choose(builder).build().expect("it can work");
        Self { cache, clock, loads: Arc::default() }
    }

    pub(crate) fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }

    /// Counts a load, and says which one it is, from 1.
    pub(crate) fn begin(&self) -> usize {
        self.loads.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Loads the number of the load.
    pub(crate) async fn load(&self, key: &str) -> Result<Arc<String>, Error> {
        let world = self.clone();
        let load = || async move { Ok::<_, Error>(world.begin().to_string()) };
        within_patience(self.cache.get_or_load(key, load)).await
    }

    /// The same, behind a gate.
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

    /// A load that fails.
    pub(crate) async fn fail(&self, key: &str) -> Result<Arc<String>, Error> {
        let world = self.clone();
        let load = || async move {
            world.begin();
            Err::<String, _>("no database")
        };
        within_patience(self.cache.get_or_load(key, load)).await
    }

    pub(crate) async fn get(&self, key: &str) -> Option<String> {
        self.cache.get(key).await.map(|value| value.to_string())
    }

    pub(crate) async fn until(&self, reached: impl Fn(&Self) -> bool) {
        for _ in 0..TURNS_MAX {
            if reached(self) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("it does not come");
    }

    pub(crate) async fn until_nothing_is_loading(&self) {
        self.until(|world| world.cache.stats().loading == 0).await;
    }
}

/// A test that would wait for ever fails instead.
pub(crate) async fn within_patience<F: Future>(waiting: F) -> F::Output {
    tokio::time::timeout(PATIENCE, waiting).await.expect("it does not take for ever")
}

/// Waits until so many loads stand at a gate.
pub(crate) async fn reached(gate: &Gate, count: usize) {
    within_patience(gate.wait_waiters(count)).await;
}

/// Callers that have all asked: each has gone as far as it could without waiting.
pub(crate) struct Crowd<T>(Vec<JoinHandle<T>>);

impl<T: Send + 'static> Crowd<T> {
    pub(crate) async fn of<F, A>(count: usize, ask: F) -> Self
    where
        F: Fn(usize) -> A,
        A: Future<Output = T> + Send + 'static,
    {
        let asked = Gate::of(count);
        let callers =
            (0..count).map(|number| tokio::spawn(arriving(ask(number), asked.clone()))).collect();
        within_patience(asked.wait()).await;
        Self(callers)
    }

    pub(crate) async fn leave(self) {
        for caller in self.0 {
            caller.abort();
            assert!(caller.await.err().expect("it was still waiting").is_cancelled());
        }
    }

    pub(crate) async fn told(self) -> Vec<T> {
        let mut told = Vec::with_capacity(self.0.len());
        for caller in self.0 {
            told.push(within_patience(caller).await.expect("a caller does not panic"));
        }
        told
    }
}

async fn arriving<A: Future>(ask: A, asked: Gate) -> A::Output {
    let mut ask = pin!(ask);
    let mut arrives = true;
    poll_fn(|cx| {
        let polled = ask.as_mut().poll(cx);
        if std::mem::take(&mut arrives) {
            asked.arrive();
        }
        polled
    })
    .await
}
