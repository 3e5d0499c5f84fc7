//! Policies that no library here offers, as small as a comparison of hit ratios allows.

use std::collections::{BTreeSet, HashMap};

use fastrand::Rng;
use indexmap::IndexSet;

use super::ratios::Ask;

/// Evicts a random entry.
pub(crate) fn random(capacity: usize) -> Ask {
    let (mut keys, mut random) = (IndexSet::new(), Rng::with_seed(1));
    Box::new(move |key| {
        let hit = keys.contains(key);
        if !hit && keys.len() >= capacity {
            keys.swap_remove_index(random.usize(..capacity));
        }
        hit || !keys.insert(key.to_owned())
    })
}

/// Evicts the entry that was requested least often since it was stored, of several the oldest.
pub(crate) fn least_frequent(capacity: usize) -> Ask {
    let (mut turn, mut uses, mut order) = (0, HashMap::new(), BTreeSet::new());
    Box::new(move |key| {
        turn += 1;
        let known: Option<(u64, u64)> = uses.get(key).copied();
        if let Some((count, since)) = known {
            order.remove(&(count, since, key.to_owned()));
        } else if uses.len() >= capacity
            && let Some((_, _, evicted)) = order.pop_first()
        {
            uses.remove(&evicted);
        }
        let (count, since) = known.map_or((1, turn), |(count, since)| (count + 1, since));
        uses.insert(key.to_owned(), (count, since));
        order.insert((count, since, key.to_owned()));
        known.is_some()
    })
}
