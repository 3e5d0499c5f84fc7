//! Sample of the purged keys that are read again after the purge.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::judge::Dice as _;
use forebay_core::{Key, KeyRef, Timestamp};

use crate::entry::Entry;
use crate::runtime::clock::ThreadDice;
use crate::runtime::sync::Mutex;
use crate::runtime::sync::atomic::AtomicI64;
use crate::runtime::sync::atomic::Ordering::Relaxed;

/// Times after a purge at which its key is read again.
const CHECKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Maximum number of keys that wait for a check. A further one replaces one of them at random.
const SAMPLES_MAX: usize = 256;

/// Minimum time between two samples of entries that lookups found purged, in milliseconds. So many
/// fit until their last check, and the hits of a frequent stale entry neither wait nor allocate.
const FOUND_GAP: i64 = 60_000 / SAMPLES_MAX as i64;

/// Purged keys that are read again.
#[derive(Default)]
pub(crate) struct SelfCheck {
    samples: Mutex<Vec<Sample>>,
    /// Time from which on a lookup may add a sample, in milliseconds.
    found_from: AtomicI64,
}

/// Purged key.
pub(crate) struct Sample {
    pub(crate) key: Key,
    /// Entries of memory that the purge affected. Their addresses are not used again meanwhile.
    entries: Vec<Weak<Entry>>,
    /// Time of the purge, if this instance purged exactly this key.
    pub(crate) own: Option<Timestamp>,
    begun: Timestamp,
    /// Number of checks that were made.
    checks: usize,
}

impl Sample {
    fn is_due(&self, now: Timestamp) -> bool {
        CHECKS.get(self.checks).is_some_and(|after| now.since(self.begun) >= *after)
    }

    /// Returns true if the purge affected exactly this entry.
    pub(crate) fn has(&self, entry: &Arc<Entry>) -> bool {
        self.entries.iter().any(|purged| std::ptr::eq(purged.as_ptr(), Arc::as_ptr(entry)))
    }
}

impl SelfCheck {
    /// Adds a key that is going to be purged, with its entries in memory. `is_own` is true if this
    /// instance purges exactly this key.
    pub(crate) fn add_purge(
        &self,
        key: KeyRef<'_>,
        entries: &[(Key, Arc<Entry>)],
        is_own: bool,
        now: Timestamp,
    ) {
        let entries = entries.iter().map(|(_, entry)| Arc::downgrade(entry)).collect();
        let own = is_own.then_some(now);
        self.add(Sample { key: key.to_key(), entries, own, begun: now, checks: 0 });
    }

    /// Adds an entry that a lookup has found purged, at most one in [`FOUND_GAP`].
    pub(crate) fn add_found(&self, key: KeyRef<'_>, entry: &Arc<Entry>, now: Timestamp) {
        let from = self.found_from.load(Relaxed);
        let next = now.as_millis().saturating_add(FOUND_GAP);
        // Another thread that is ahead adds its own.
        let is_first = now.as_millis() >= from
            && self.found_from.compare_exchange(from, next, Relaxed, Relaxed).is_ok();
        if is_first {
            self.add_sample_of(key, entry, now);
        }
    }

    #[cold]
    fn add_sample_of(&self, key: KeyRef<'_>, entry: &Arc<Entry>, now: Timestamp) {
        let entries = vec![Arc::downgrade(entry)];
        self.add(Sample { key: key.to_key(), entries, own: None, begun: now, checks: 0 });
    }

    fn add(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        if samples.len() < SAMPLES_MAX {
            samples.push(sample);
            return;
        }
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and SAMPLES_MAX")]
        let place = (ThreadDice.unit() * SAMPLES_MAX as f64) as usize;
        samples[place.min(SAMPLES_MAX - 1)] = sample;
    }

    /// Takes the samples out that are checked now.
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<Sample> {
        self.samples.lock().extract_if(.., |sample| sample.is_due(now)).collect()
    }

    /// Puts a checked sample back, if a later check follows.
    pub(crate) fn put_back(&self, mut sample: Sample) {
        sample.checks += 1;
        if sample.checks < CHECKS.len() {
            self.add(sample);
        }
    }
}
