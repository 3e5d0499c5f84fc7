//! Counters of misses and errors, by reason.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Why;

/// Number of reasons.
const REASONS: usize = Why::ALL.len();

/// Numbers of misses and errors, by the reason why memory could not answer. An
/// [`Explanation`](crate::Explanation) uses the same words:
///
/// | reason | meaning |
/// |---|---|
/// | `uri-miss` | memory has no entry: never stored, removed by its key, or evicted |
/// | `stale` | the entry is stale |
/// | `purged` | the entry was removed by tag or by `invalidate_all` |
/// | `soft-purged` | the entry was [expired](crate::Cache::expire), alone or by tag |
/// | `suspect` | another process may have removed the entry while the bus was disconnected |
/// | `request-max-age` | the call required a [younger](crate::Options::never_older_than) entry |
/// | `request-revalidate` | the call [forced](crate::Options::force_refresh) a refresh |
///
/// ```
/// # use forebay::{Cache, Memory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cache: Cache<u32> = Cache::builder("n").memory(Memory::entries(9)).build()?;
/// cache.get_or_load("seven", || async { Ok::<u32, &str>(7) }).await?;
/// for (reason, calls) in cache.stats().reasons.iter() {
///     println!("{calls} misses: {reason}");
/// }
/// assert_eq!(cache.stats().reasons.get("uri-miss"), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Reasons([u64; REASONS]);

impl Reasons {
    /// Returns each reason whose number of misses and errors is above zero, with that number.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let all = Why::ALL.iter().zip(self.0);
        all.filter(|(_, calls)| *calls > 0).map(|(why, calls)| (why.code(), calls))
    }

    /// Returns the number of misses and errors with one reason; 0 for an unknown reason.
    #[must_use]
    pub fn get(&self, reason: &str) -> u64 {
        self.iter().find(|(code, _)| *code == reason).map_or(0, |(_, calls)| calls)
    }

    /// Returns the number of misses and errors with any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl fmt::Debug for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The live counters behind [`Reasons`].
#[derive(Debug, Default)]
pub(super) struct ReasonCounts([AtomicU64; REASONS]);

impl ReasonCounts {
    pub(super) fn count(&self, why: Why) {
        super::count(&self.0[why as usize]);
    }

    pub(super) fn read(&self) -> Reasons {
        Reasons(std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed)))
    }
}
