//! Most frequent names of a stream, with a fixed number of counters (SpaceSaving: Metwally, Agrawal,
//! El Abbadi 2005), behind a filter (Filtered Space-Saving: Homem, Carvalho 2010). The counts are
//! upper bounds; the error of each is known.
//!
//! The filter counts names without a counter by their hash. A name takes a counter only when its part
//! of the filter reaches the smallest count, so that the many rare names do not displace frequent
//! ones.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of cells of the filter.
const CELLS: usize = 1 << 16;

/// Counter of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) name: Box<str>,
    pub(super) count: u64,
    /// Part of the count that may belong to other names.
    pub(super) error: u64,
}

/// Counters of the most frequent names.
#[derive(Debug)]
pub(super) struct SpaceSaving {
    counters_max: usize,
    /// Slot of each name, by the hash of the name: two names in one slot are as rare as two equal
    /// numbers of 64 random bits.
    by_hash: HashMap<u64, usize, BuildHasherDefault<Unhashed>>,
    /// Counts of names without a counter, by hash. Empty until all counters are in use.
    filter: Vec<u64>,
    slots: Vec<Slot>,
    /// Slots as a heap, the smallest count first.
    heap: Vec<usize>,
}

/// Hasher of numbers that are hashes already.
#[derive(Default)]
struct Unhashed(u64);

impl Hasher for Unhashed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct Slot {
    counter: Counter,
    hash: u64,
    /// Place in the heap.
    place: usize,
}

impl SpaceSaving {
    /// Creates the counters; they take memory when names come.
    pub(super) fn new(counters_max: usize) -> Self {
        Self {
            counters_max: counters_max.max(1),
            by_hash: HashMap::default(),
            filter: Vec::new(),
            slots: Vec::new(),
            heap: Vec::new(),
        }
    }

    /// Adds a weight to the name with this hash. All names of a list are hashed alike. If all counters
    /// are in use, the name takes the smallest one when its cell of the filter reaches its count.
    pub(super) fn add(&mut self, hash: u64, weight: u64, name: impl FnOnce() -> Box<str>) {
        if weight == 0 {
            return;
        }
        if let Some(slot) = self.by_hash.get(&hash) {
            let slot = &mut self.slots[*slot];
            slot.counter.count += weight;
            let place = slot.place;
            return self.sink(place);
        }
        if self.slots.len() < self.counters_max {
            let place = self.heap.len();
            let counter = Counter { name: name(), count: weight, error: 0 };
            self.by_hash.insert(hash, self.slots.len());
            self.heap.push(self.slots.len());
            self.slots.push(Slot { counter, hash, place });
            return self.rise(place);
        }
        if self.filter.is_empty() {
            self.filter = vec![0; CELLS];
        }
        let cell = cell(hash);
        let before = self.filter[cell];
        let slot = self.heap[0];
        let smallest = self.slots[slot].counter.count;
        if before + weight < smallest {
            self.filter[cell] = before + weight;
            return;
        }
        let counter = Counter { name: name(), count: before + weight, error: before };
        let left = std::mem::replace(&mut self.slots[slot].counter, counter);
        let left_hash = std::mem::replace(&mut self.slots[slot].hash, hash);
        self.by_hash.remove(&left_hash);
        let cell = self::cell(left_hash);
        self.filter[cell] = self.filter[cell].max(left.count);
        self.by_hash.insert(hash, slot);
        self.sink(0);
    }

    /// Returns all counters.
    pub(super) fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.slots.iter().map(|slot| &slot.counter)
    }

    fn count_at(&self, place: usize) -> Option<u64> {
        self.heap.get(place).map(|slot| self.slots[*slot].counter.count)
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            let slot = self.heap[place];
            self.slots[slot].place = place;
        }
    }

    /// Moves a counter that has grown away from the top.
    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let counted = children.into_iter().filter_map(|it| Some((self.count_at(it)?, it)));
            match counted.min() {
                Some((count, child)) if Some(count) < self.count_at(place) => {
                    self.swap(place, child);
                    place = child;
                }
                _ => return,
            }
        }
    }

    /// Moves a new counter towards the top.
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.count_at(parent) <= self.count_at(place) {
                return;
            }
            self.swap(place, parent);
            place = parent;
        }
    }
}

/// Returns the cell of the filter for the hash of a name.
fn cell(hash: u64) -> usize {
    usize::try_from(hash % CELLS as u64).unwrap_or_default()
}

/// Returns the counters of two periods, added by name, the largest first.
pub(super) fn largest(periods: [&SpaceSaving; 2], rows_max: usize) -> Vec<Counter> {
    let mut sums: HashMap<&str, Counter> = HashMap::new();
    for counter in periods.into_iter().flat_map(SpaceSaving::counters) {
        match sums.get_mut(&*counter.name) {
            Some(sum) => {
                sum.count += counter.count;
                sum.error += counter.error;
            }
            None => {
                sums.insert(&counter.name, counter.clone());
            }
        }
    }
    let mut all: Vec<Counter> = sums.into_values().collect();
    all.sort_unstable_by(|one, other| {
        other.count.cmp(&one.count).then_with(|| one.name.cmp(&other.name))
    });
    all.truncate(rows_max);
    all
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, DefaultHasher};

    use super::*;

    /// Number of counters of the lists.
    const COUNTERS: usize = 4_096;

    fn add(counters: &mut SpaceSaving, name: &str, weight: u64) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        counters.add(hash, weight, || name.into());
    }

    #[test]
    fn few_names_are_counted_exactly() {
        let mut counters = SpaceSaving::new(4);
        for (name, weight) in [("a", 3), ("b", 1), ("a", 2), ("c", 9), ("d", 0)] {
            add(&mut counters, name, weight);
        }
        let empty = SpaceSaving::new(4);
        let rows = largest([&counters, &empty], 2);
        let counter = |name: &str, count| Counter { name: name.into(), count, error: 0 };
        assert_eq!(rows, [counter("c", 9), counter("a", 5)]);
        let twice = largest([&counters, &counters], 1);
        assert_eq!(twice, [counter("c", 18)]);
    }

    #[test]
    fn a_new_name_takes_the_smallest_counter_when_the_filter_reaches_it() {
        let mut counters = SpaceSaving::new(2);
        for (name, weight) in [("a", 5), ("b", 2), ("c", 1)] {
            add(&mut counters, name, weight);
        }
        let rows = largest([&counters, &SpaceSaving::new(1)], 9);
        let names: Vec<_> = rows.iter().map(|row| (&*row.name, row.count, row.error)).collect();
        assert_eq!(names, [("a", 5, 0), ("b", 2, 0)]);
        add(&mut counters, "c", 1);
        let rows = largest([&counters, &SpaceSaving::new(1)], 9);
        let names: Vec<_> = rows.iter().map(|row| (&*row.name, row.count, row.error)).collect();
        assert_eq!(names, [("a", 5, 0), ("c", 2, 1)]);
    }

    /// Of 500,000 requests with Zipf popularity over 250,000 names, the 100 most frequent are found,
    /// with counts within one percent.
    #[test]
    fn the_most_frequent_names_of_a_zipf_stream_are_found() {
        let (names, requests) = (250_000_usize, 500_000);
        for exponent in [0.8, 1.0, 1.2] {
            let mut sum = 0.0;
            let cumulated: Vec<f64> = (1..=names)
                .map(|rank| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                })
                .collect();
            let mut rng = fastrand::Rng::with_seed(7);
            let mut exact = vec![0_u64; names];
            let mut counters = SpaceSaving::new(COUNTERS);
            for _ in 0..requests {
                let rank = cumulated.partition_point(|at| *at < rng.f64() * sum).min(names - 1);
                exact[rank] += 1;
                add(&mut counters, &format!("/{rank}"), 1);
            }
            let mut ranks: Vec<usize> = (0..names).collect();
            ranks.sort_unstable_by_key(|rank| std::cmp::Reverse(exact[*rank]));
            let rows = largest([&counters, &SpaceSaving::new(1)], 100);
            let least = exact[ranks[99]];
            let is_right = |row: &&Counter| {
                let rank: usize = row.name[1..].parse().expect("a rank");
                exact[rank] >= least
                    && row.count.abs_diff(exact[rank]) * 100 <= exact[rank].max(100)
            };
            let right = rows.iter().filter(is_right).count();
            assert!(right >= 98, "{right} of 100 at exponent {exponent}");
        }
    }
}
