//! Why calls were no hits, in numbers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Why;

/// How many reasons there are.
const REASONS: usize = Why::ALL.len();

/// How many calls were no hits, by the reason. Reasons are words, the ones that an
/// [`Explanation`](crate::Explanation) uses, too:
///
/// | reason | what happened |
/// |---|---|
/// | `uri-miss` | nothing was stored under this key: never, no more, or not in memory |
/// | `stale` | what was stored was past its time |
/// | `purged` | it was removed by its tag, or together with everything |
/// | `soft-purged` | it was [expired](crate::Cache::expire) |
/// | `suspect` | another process may have removed it while none was heard |
/// | `request-max-age` | the call wanted it [younger](crate::Options::never_older_than) |
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
    /// Each reason that there was, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let all = Why::ALL.iter().zip(self.0);
        all.filter(|(_, calls)| *calls > 0).map(|(why, calls)| (why.code(), calls))
    }

    /// How often there was one of them.
    #[must_use]
    pub fn get(&self, reason: &str) -> u64 {
        self.iter().find(|(code, _)| *code == reason).map_or(0, |(_, calls)| calls)
    }

    /// How many there were of all of them.
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

/// The same, while it is counted.
#[derive(Debug, Default)]
pub(super) struct ReasonCounts([AtomicU64; REASONS]);

impl ReasonCounts {
    pub(super) fn count(&self, why: Why) {
        super::count(&self.0[why as usize]);
    }

    pub(super) fn read(&self) -> Reasons {
        Reasons(std::array::from_fn(|place| self.0[place].load(Ordering::Relaxed)))
    }
}
