//! For tests of what uses a cache: a clock that moves only when it is told to, dice that fall the
//! same way each time, and a tier that fails when it is told to.
//!
//! What an outage of a database and of Redis does to a service, in no time at all:
//!
//! ```
//! use std::time::Duration;
//!
//! use forebay::codec::{Codec, Raw};
//! use forebay::testkit::{Fault, FaultyTier, ManualClock, seed_dice};
//! use forebay::{Cache, Memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! seed_dice(1);
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
//! // Ten minutes later neither the database nor Redis is there.
//! clock.advance(Duration::from_secs(600));
//! redis.fault(Fault::Fails);
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
pub use forebay_engine::Clock;
use forebay_engine::ThreadDice;
pub use tier::{Fault, FaultyTier};

/// Where a clock starts: not at zero, so that an entry may be older than its test.
const START: Duration = Duration::from_secs(1_000);

/// Where its date starts: 1 January 2026, 00:00:00 UTC.
const WALL_START_SECS: u64 = 1_767_225_600;

/// A clock that is moved by hand. Clones are the same clock.
///
/// Lifetimes go by it; timeouts of loads go by the clock of tokio, which tests can pause.
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

/// How far a clock was moved.
#[derive(Debug, Default)]
struct Moved {
    micros: AtomicU64,
    /// Seconds that the date is ahead of what has passed.
    wall_ahead: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at its start.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves it forward, in whole microseconds.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.0.micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Moves the date alone, backwards with a negative number of seconds, as an administrator or a
    /// time daemon does. Lifetimes do not go by the date.
    pub fn jump_wall(&self, seconds: i64) {
        self.0.wall_ahead.fetch_add(seconds, Ordering::SeqCst);
    }

    /// The clock as a builder takes it.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    fn passed(&self) -> Duration {
        Duration::from_micros(self.0.micros.load(Ordering::SeqCst))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0).plus(START + self.passed())
    }

    fn wall(&self) -> WallTime {
        let ahead = self.0.wall_ahead.load(Ordering::SeqCst);
        let passed = WALL_START_SECS + self.passed().as_secs();
        WallTime::from_secs(passed.saturating_add_signed(ahead))
    }

    fn exact(&self) -> Duration {
        START + self.passed()
    }
}

/// Lets the dice of this thread fall the same way from here on: those of early refresh and of
/// jitter. Of use where everything runs on one thread, as in a plain `#[tokio::test]`.
pub fn seed_dice(seed: u64) {
    ThreadDice::seed(seed);
}
