//! Combinations of method, status and cache result of one site.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::record::{CacheResult, MethodLabel};

/// Number of places: a power of two above [`NAMED_MAX`] and [`OTHERS`].
pub(super) const COMBINATIONS: usize = 256;

/// Maximum number of combinations with a status of their own. Statuses of further ones share the
/// label `other`, so that an origin cannot create any number of labels.
const NAMED_MAX: usize = 200;

/// Number of places from which on a combination has its own: those before are of combinations whose
/// status is `other`, one per cache result.
const OTHERS: usize = CacheResult::ALL.len();

/// Combinations that every site has from the start, so that an alert sees the first increase.
const FROM_START: [(CacheResult, u16); 10] = [
    (CacheResult::Hit, 200),
    (CacheResult::Stale, 200),
    (CacheResult::Revalidated, 200),
    (CacheResult::Miss, 200),
    (CacheResult::Collapsed, 200),
    (CacheResult::Pass, 200),
    (CacheResult::Fallback, 200),
    (CacheResult::Error, 502),
    (CacheResult::Error, 503),
    (CacheResult::Error, 504),
];

/// Table of combinations, each with a place that never changes. It is read without a lock.
#[derive(Debug)]
pub(super) struct Combinations {
    /// Combination of each place, or 0.
    packed: [AtomicU32; COMBINATIONS],
    used: AtomicUsize,
}

/// Combination of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Combination {
    pub(super) method: MethodLabel,
    /// Status code; `None` for `other`.
    pub(super) status: Option<u16>,
    pub(super) cache: CacheResult,
}

impl Default for Combinations {
    fn default() -> Self {
        let packed = [const { AtomicU32::new(0) }; COMBINATIONS];
        Self { packed, used: AtomicUsize::new(0) }
    }
}

impl Combinations {
    /// Creates the table with the combinations that every site has.
    pub(super) fn of_site() -> Self {
        let combinations = Self::default();
        for (cache, status) in FROM_START {
            combinations.find(MethodLabel::GET, status, cache);
        }
        combinations
    }

    /// Returns the place of a combination; a new one gets a free place.
    pub(super) fn find(&self, method: MethodLabel, status: u16, cache: CacheResult) -> usize {
        let wanted = pack(method, status, cache);
        let places = COMBINATIONS - OTHERS;
        // Multiplied by a large odd number, the upper bits depend on all labels.
        let first = (wanted.wrapping_mul(0x9E37_79B1) >> 16) as usize % places;
        for step in 0..places {
            let place = OTHERS + (first + step) % places;
            let found = self.packed[place].load(Ordering::Relaxed);
            if found == wanted {
                return place;
            }
            if found == 0 {
                match self.claim(place, wanted) {
                    Some(true) => return place,
                    Some(false) => {}
                    None => break,
                }
            }
        }
        cache as usize
    }

    /// Takes a free place. Returns `false` if another thread took it for another combination, and
    /// `None` if there are as many combinations as there may be.
    #[cold]
    fn claim(&self, place: usize, wanted: u32) -> Option<bool> {
        if self.used.fetch_add(1, Ordering::Relaxed) >= NAMED_MAX {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.packed[place].compare_exchange(0, wanted, success, failure) {
            Ok(_) => Some(true),
            Err(taken) => {
                self.used.fetch_sub(1, Ordering::Relaxed);
                Some(taken == wanted)
            }
        }
    }

    /// Returns the combinations with their places. Those whose status is `other` are always
    /// included.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, Combination)> {
        let others = CacheResult::ALL.into_iter().enumerate().map(|(place, cache)| {
            (place, Combination { method: MethodLabel::GET, status: None, cache })
        });
        let named =
            self.packed.iter().enumerate().skip(OTHERS).filter_map(|(place, packed)| {
                Some((place, unpack(packed.load(Ordering::Relaxed))?))
            });
        others.chain(named)
    }
}

/// Packs a combination into a number that is not 0.
fn pack(method: MethodLabel, status: u16, cache: CacheResult) -> u32 {
    let (method, cache) = (u32::from(method.number()), cache as u32);
    1 << 31 | u32::from(status) << 8 | cache << 4 | method
}

fn unpack(packed: u32) -> Option<Combination> {
    let [method_and_cache, ..] = packed.to_le_bytes();
    let method = MethodLabel::numbered(method_and_cache & 0xF);
    let status = u16::try_from(packed >> 8 & 0xFFFF).ok();
    let cache = CacheResult::ALL.get(usize::from(method_and_cache >> 4)).copied()?;
    (packed != 0).then_some(Combination { method, status, cache })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_combination_keeps_its_place_and_further_ones_share_one() {
        let combinations = Combinations::of_site();
        let hit = combinations.find(MethodLabel::GET, 200, CacheResult::Hit);
        let places: Vec<_> = (100..1_000_u16)
            .map(|status| combinations.find(MethodLabel::HEAD, status, CacheResult::Pass))
            .collect();
        let named: HashSet<_> = places.iter().filter(|place| **place >= OTHERS).collect();
        assert_eq!(named.len(), NAMED_MAX - FROM_START.len());
        let other = CacheResult::Pass as usize;
        assert!(places[named.len()..].iter().all(|place| *place == other));
        assert_eq!(combinations.find(MethodLabel::GET, 200, CacheResult::Hit), hit);
        for (status, place) in (100..).zip(&places[..named.len()]) {
            let (method, cache) = (MethodLabel::HEAD, CacheResult::Pass);
            assert_eq!(combinations.find(method, status, cache), *place, "{status}");
            let expected = Combination { method, status: Some(status), cache };
            assert!(combinations.all().any(|found| found == (*place, expected)), "{status}");
        }
        assert_eq!(combinations.all().count(), NAMED_MAX + OTHERS);
    }
}
