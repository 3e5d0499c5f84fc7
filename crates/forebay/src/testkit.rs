//! Tools for tests of services that use a cache: a manual clock, seeded random numbers, and a tier
//! that fails on demand.
//!
//! An outage of a database and of Redis, simulated without waiting:
//!
//! ```
//! use std::time::Duration;
//!
//! use forebay::codec::{Codec, Raw};
//! use forebay::testkit::{Fault, FaultyTier, ManualClock, seed_random};
//! use forebay::{Cache, Memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! seed_random(1);
//! let (clock, redis) = (ManualClock::new(), FaultyTier::new());
//! let pages: Cache<Vec<u8>> = Cache::builder("pages")
//!     .memory(Memory::entries(100))
//!     .ttl(Duration::from_secs(60))
//!     .stale_if_error(Duration::from_secs(3_600))
//!     .tiers(Codec::new(Raw), [redis.shared()])
//!     .clock(clock.shared())
//!     .build()?;
//! pages.get_or_load("home", || async { Ok::<_, String>(b"welcome".to_vec()) }).await?;
//!
//! // Ten minutes later both the database and Redis fail.
//! clock.advance(Duration::from_secs(600));
//! redis.set_fault(Fault::Fails);
//! let page = pages.get_or_load("home", || async { Err::<Vec<u8>, _>("no database") }).await?;
//! assert_eq!(*page, b"welcome");
//!
//! let stats = pages.stats();
//! assert_eq!((stats.fallbacks, stats.load_failures), (1, 1));
//! assert!(stats.tier_failures > 0);
//! # Ok(())
//! # }
//! ```

mod tier;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

pub use forebay_core::{Timestamp, WallTime};
use forebay_engine::ThreadDice;
pub use forebay_engine::{BrokenRule, Clock, check_tier};
pub use tier::{Fault, FaultyTier};

/// Start of the monotonic clock. Not zero, so that entries can be older than the test.
const START: Duration = Duration::from_secs(1_000);

/// Start of the wall clock: 1 January 2026, 00:00:00 UTC, in seconds since 1970.
const WALL_START_SECS: u64 = 1_767_225_600;

/// Clock for tests that only [`advance`](Self::advance) moves. Clones share one time.
///
/// It controls lifetimes, ages and back-off. Timeouts use the clock of tokio, which tests can
/// pause.
///
/// ```
/// use std::time::Duration;
/// use forebay::testkit::ManualClock;
/// use forebay::{Cache, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let cache: Cache<u32> = Cache::builder("numbers")
///     .memory(Memory::entries(100))
///     .ttl(Duration::from_secs(60))
///     .jitter(false)
///     .clock(clock.shared())
///     .build()?;
///
/// cache.set("seven", 7).await;
/// clock.advance(Duration::from_millis(59_999));
/// assert!(cache.get("seven").await.is_some());
/// clock.advance(Duration::from_millis(1));
/// assert!(cache.get("seven").await.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Moved>);

/// Offsets of a clock.
#[derive(Debug, Default)]
struct Moved {
    micros: AtomicU64,
    /// Seconds by which the date is ahead of the elapsed time.
    wall_ahead: AtomicI64,
}

impl ManualClock {
    /// Creates a clock at 1 January 2026, 00:00:00 UTC.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward, with a resolution of one microsecond.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.0.micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Moves only the wall-clock date, backwards for a negative number of seconds, like an
    /// administrator or a time daemon. It does not change the lifetimes of stored values; a
    /// [`Schedule`](crate::Schedule) reads the date when a value is stored.
    pub fn jump_wall(&self, seconds: i64) {
        self.0.wall_ahead.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Returns the clock in the form that [`Builder::clock`](crate::Builder::clock) takes.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.micros.load(Ordering::SeqCst))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0).plus(START + self.elapsed())
    }

    fn wall(&self) -> WallTime {
        let ahead = self.0.wall_ahead.load(Ordering::SeqCst);
        let date = WALL_START_SECS + self.elapsed().as_secs();
        WallTime::from_secs(date.saturating_add_signed(ahead))
    }

    fn exact(&self) -> Duration {
        START + self.elapsed()
    }
}

/// Seeds the random numbers of this thread, which early refresh and jitter use. Effective for
/// runtimes with one thread, as in a plain `#[tokio::test]`.
pub fn seed_random(seed: u64) {
    ThreadDice::seed(seed);
}
