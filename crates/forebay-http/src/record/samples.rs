//! Samples of requests for a model of the memory tier: all requests of a share of the keys.
//!
//! The share is chosen by the hash of the key, so that a key has all its requests in the samples or
//! none.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{KeyRef, Timestamp};
use forebay_engine::Entry;
use parking_lot::Mutex;

use super::decisions::hash;
use super::thread_number::thread_number;

/// Number of rings. Threads above it share rings.
const RINGS: usize = 16;

/// Maximum number of samples in a ring; they are taken once a second.
const SAMPLES_MAX: usize = 8_192;

/// Share of the keys at the start, and the largest one: one in this many.
const SHARE_MAX: u64 = 4;

/// Request of a sampled key, which may be answered from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySample {
    /// Hash of the key.
    pub key: u64,
    /// Length of the body in bytes, if it is known.
    pub body: Option<u64>,
    /// Remaining freshness lifetime of the response.
    pub lifetime: Duration,
}

/// Samples that wait for their reader.
pub struct KeySamples {
    /// Hashes up to this one are sampled.
    threshold: AtomicU64,
    rings: [Mutex<Vec<KeySample>>; RINGS],
}

impl Default for KeySamples {
    fn default() -> Self {
        let threshold = AtomicU64::new(u64::MAX / SHARE_MAX);
        Self { threshold, rings: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl fmt::Debug for KeySamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySamples").field("share", &self.share()).finish_non_exhaustive()
    }
}

impl KeySamples {
    /// Returns the share of the keys that are sampled, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.threshold.load(Ordering::Relaxed) as f64 / u64::MAX as f64
    }

    /// Samples half of the keys from now on.
    pub fn halve(&self) {
        self.threshold.store(self.threshold.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
    }

    /// Adds a request for a key that this entry answered.
    #[inline]
    pub(crate) fn add(&self, key: KeyRef<'_>, entry: &Entry, now: Timestamp) {
        let key = hash(key);
        if key <= self.threshold.load(Ordering::Relaxed) {
            self.push(key, entry, now);
        }
    }

    /// Adds a sample, unless the ring is full.
    #[cold]
    fn push(&self, key: u64, entry: &Entry, now: Timestamp) {
        let (body, lifetime) = (entry.body.length(), entry.meta.fresh_left(now));
        let mut ring = self.rings[thread_number() % RINGS].lock();
        if ring.len() < SAMPLES_MAX {
            ring.push(KeySample { key, body, lifetime });
        }
    }

    /// Takes the samples since the last call.
    #[must_use]
    pub fn drain(&self) -> Vec<KeySample> {
        self.rings.iter().flat_map(|ring| std::mem::take(&mut *ring.lock())).collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::{KeyBuf, Lifetime, Meta};
    use forebay_engine::{Body, Head};

    use super::*;

    #[test]
    fn a_share_of_the_keys_is_sampled_with_all_their_requests() {
        let samples = KeySamples::default();
        let now = Timestamp::from_millis(1_000);
        let meta = Meta::new(now, Lifetime::fresh(Duration::from_secs(60)));
        let entry = Entry::new(meta, Head::default(), Body::whole("hello".into()));
        let add = || {
            for number in 0..4_000_u64 {
                let key = KeyBuf::new("site").part(&number.to_le_bytes()).clone();
                samples.add(key.borrowed(), &entry, now);
            }
            samples.drain()
        };
        let first = add();
        assert!((900..1_100).contains(&first.len()), "{}", first.len());
        assert_eq!((first[0].body, first[0].lifetime), (Some(5), Duration::from_secs(60)));
        assert_eq!(add(), first);
        samples.halve();
        let half = add();
        assert!((400..600).contains(&half.len()) && half.iter().all(|one| first.contains(one)));
    }
}
