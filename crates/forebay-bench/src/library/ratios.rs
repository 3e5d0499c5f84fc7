//! Hit ratios: by policy with equal numbers of entries, and by library
//! with as many bytes of heap.
//!
//! 100,000 keys, asked for by Zipf's law; with scans, there come so many keys in between that
//! that are never requested again. Scans are not counted: they miss everywhere. Both begin with an empty
//! cache, and are warmed up alike.
//!
//! Libraries charge an entry with different things. So each is given the bound with which it
//! really takes as much of the heap as the others, all included: found by trial, the rest of the
//! heap held against it.

use std::sync::Arc;

use forebay::{Cache, Memory};
use foyer_memory::{CacheBuilder, EvictionConfig, LfuConfig, LruConfig, S3FifoConfig, SieveConfig};
use tokio::runtime::Runtime;

use super::policies::{least_frequent, random};
use super::subjects::{Row, runtime, weighed};
use super::zipf::zipf;
use crate::environment::Options;
use crate::report::{Table, Verdict};

const KEYS: usize = 100_000;

/// Numbers of lookups that fill a cache, and that are counted afterwards.
const WARM_UP: usize = 300_000;
const COUNTED: usize = 700_000;
const COUNTED_QUICK: usize = 100_000;

/// A scan begins after so many questions, and has so many keys.
const SCAN_EVERY: usize = 50_000;
const SCAN: usize = 20_000;

const ENTRIES: [u64; 2] = [1_000, 10_000];
const HEAP: [u64; 2] = [4 << 20, 16 << 20];

const SIZE: usize = 1 << 10;

/// Number of corrections of a bound. The second one is within a percent.
const TRIALS: usize = 3;

/// Maximum lead of the best other policy, in percentage points.
const BEHIND_MAX: f64 = 1.0;

pub(crate) fn run(options: &Options) -> Vec<Table> {
    let counted = options.pick(COUNTED, COUNTED_QUICK);
    let of_entries = |make: Make, entries| Room { bound: entries, make }.ratios(counted);
    let title = "hits in percent: policies, with room for as many entries";
    let (policies, behind) = table(title, POLICIES, &ENTRIES, of_entries);
    let of_heap = |make: Make, heap| Room::of_heap(make, heap).ratios(counted);
    let title =
        format!("hits in percent: libraries, with as many bytes of heap, values of {SIZE} bytes");
    let (libraries, behind_heap) = table(&title, LIBRARIES, &HEAP, of_heap);
    let mut bounds = Table::figures("forebay behind the best, in points");
    bounds.count("with as many entries", behind, BEHIND_MAX);
    bounds.count("with as many bytes of heap", behind_heap, BEHIND_MAX);
    vec![policies, libraries, bounds]
}

/// A row per subject, and how far the first one is behind the best, at worst.
fn table(
    title: &str,
    subjects: &[(&str, Make)],
    rooms: &[u64],
    ratios: impl Fn(Make, u64) -> ([f64; 2], u64),
) -> (Table, f64) {
    let names: Vec<String> = rooms.iter().map(u64::to_string).collect();
    let heads = names.iter().flat_map(|room| [room.as_str(), "with scans"]);
    let columns: Vec<&str> = [""].into_iter().chain(heads).chain(["limits"]).collect();
    let mut table = Table::new(title, &columns);
    let mut all: Vec<Vec<f64>> = Vec::new();
    for (name, make) in subjects {
        let found: Vec<_> = rooms.iter().map(|room| ratios(*make, *room)).collect();
        let row: Vec<f64> = found.iter().flat_map(|(ratios, _)| *ratios).collect();
        let limits: Vec<String> = found.iter().map(|(_, limit)| limit.to_string()).collect();
        let mut cells = vec![(*name).to_owned()];
        cells.extend(row.iter().map(|ratio| format!("{ratio:.2}")));
        cells.push(limits.join(" "));
        table.row(cells, "", Verdict::Shown);
        all.push(row);
    }
    let behind = |column: usize| {
        let best = all.iter().map(|row| row[column]).fold(0.0, f64::max);
        best - all[0][column]
    };
    (table, (0..2 * rooms.len()).map(behind).fold(0.0, f64::max))
}

/// Returns true if a key is stored, and stores it.
pub(crate) type Ask = Box<dyn FnMut(&str) -> bool>;

/// From a bound.
type Make = fn(u64) -> Ask;

struct Room {
    bound: u64,
    make: Make,
}

impl Room {
    /// With the bound with which a cache takes so many bytes of heap.
    fn of_heap(make: Make, heap: u64) -> Self {
        let mut bound = heap;
        for _ in 0..TRIALS {
            let mut ask = None;
            let taken = allocation_counter::measure(|| {
                let ask = ask.insert(make(bound));
                questions(1, WARM_UP).for_each(|rank| {
                    ask(&format!("user:{rank}"));
                });
            });
            let taken = taken.bytes_current.max(1) as f64;
            bound = (bound as f64 * heap as f64 / taken) as u64;
        }
        Self { bound, make }
    }

    /// In percent, without scans and with them; and the bound.
    fn ratios(self, counted: usize) -> ([f64; 2], u64) {
        let plain = self.ratio(counted, None);
        let scans = self.ratio(counted, Some(SCAN));
        ([plain, scans], self.bound)
    }

    fn ratio(&self, counted: usize, scan: Option<usize>) -> f64 {
        let (mut ask, mut hits, mut scanned) = ((self.make)(self.bound), 0, 0);
        for (number, rank) in questions(7, WARM_UP + counted).enumerate() {
            if number % SCAN_EVERY == 0 {
                for _ in 0..scan.unwrap_or(0) {
                    ask(&format!("scan:{scanned}"));
                    scanned += 1;
                }
            }
            let hit = ask(&format!("user:{rank}"));
            hits += usize::from(hit && number >= WARM_UP);
        }
        hits as f64 * 100.0 / counted as f64
    }
}

fn questions(seed: u64, count: usize) -> impl Iterator<Item = usize> {
    zipf(KEYS, seed).take(count)
}

const POLICIES: &[(&str, Make)] = &[
    ("forebay (S3-FIFO, CLOCK)", |entries| {
        forebay(Cache::builder("bench").memory(Memory::entries(entries)), 1)
    }),
    ("quick_cache", |entries| {
        let options = quick_cache::OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(entries as usize)
            .weight_capacity(entries)
            .build()
            .expect("both capacities are given");
        quick_ask(quick_cache::sync::Cache::with_options(
            options,
            quick_cache::UnitWeighter,
            Default::default(),
            Default::default(),
        ))
    }),
    ("moka", |entries| moka_ask(moka::sync::Cache::builder().max_capacity(entries).build())),
    ("LRU (foyer)", |entries| foyer(entries, LruConfig { high_priority_pool_ratio: 0.0 }, 1)),
    ("LFU", |entries| least_frequent(entries as usize)),
    ("W-TinyLFU (foyer)", |entries| foyer(entries, LfuConfig::default(), 1)),
    ("random", |entries| random(entries as usize)),
    ("S3-FIFO (foyer)", |entries| foyer(entries, S3FifoConfig::default(), 1)),
    ("SIEVE (foyer)", |entries| foyer(entries, SieveConfig, 1)),
];

const LIBRARIES: &[(&str, Make)] = &[
    ("forebay", |bytes| forebay(weighed(bytes), SIZE)),
    ("quick_cache", |bytes| quick(bytes)),
    ("moka", |bytes| moka(bytes)),
    ("foyer LRU", |bytes| foyer_bytes(bytes, LruConfig::default())),
    ("foyer W-TinyLFU", |bytes| foyer_bytes(bytes, LfuConfig::default())),
    ("foyer S3-FIFO", |bytes| foyer_bytes(bytes, S3FifoConfig::default())),
    ("foyer SIEVE", |bytes| foyer_bytes(bytes, SieveConfig)),
];

fn row(size: usize) -> Arc<Row> {
    Arc::new(vec![7; size])
}

fn weight(key: &str, row: &Row) -> usize {
    key.len() + row.len() + size_of::<Row>()
}

fn forebay(builder: forebay::Builder<Row>, size: usize) -> Ask {
    let cache = (builder.build().expect("it can work"), runtime());
    let get = |(cache, runtime): &(Cache<Row>, Runtime), key: &str| {
        runtime.block_on(cache.get(key)).is_some()
    };
    asking(cache, get, move |(cache, runtime), key| {
        runtime.block_on(cache.set(key, row(size)));
    })
}

#[derive(Clone)]
struct Weigher;

impl quick_cache::Weighter<String, Arc<Row>> for Weigher {
    fn weight(&self, key: &String, row: &Arc<Row>) -> u64 {
        weight(key, row) as u64
    }
}

fn quick(bytes: u64) -> Ask {
    let items = bytes as usize / SIZE;
    quick_ask(quick_cache::sync::Cache::with_weighter(items, bytes, Weigher))
}

fn quick_ask<W>(cache: quick_cache::sync::Cache<String, Arc<Row>, W>) -> Ask
where
    W: quick_cache::Weighter<String, Arc<Row>> + Clone + 'static,
{
    asking(cache, |cache, key| cache.get(key).is_some(), |cache, key| cache.insert(key, row(SIZE)))
}

fn moka(bytes: u64) -> Ask {
    let weigh = |key: &String, row: &Arc<Row>| weight(key, row) as u32;
    moka_ask(moka::sync::Cache::builder().max_capacity(bytes).weigher(weigh).build())
}

fn moka_ask(cache: moka::sync::Cache<String, Arc<Row>>) -> Ask {
    let get = |cache: &moka::sync::Cache<_, _>, key: &str| cache.get(key).is_some();
    asking(cache, get, |cache, key| {
        cache.insert(key, row(SIZE));
        // Without this, it evicts some time later and holds more than its capacity until then.
        cache.run_pending_tasks();
    })
}

fn foyer(entries: u64, policy: impl Into<EvictionConfig>, size: usize) -> Ask {
    let builder = CacheBuilder::new(entries as usize).with_shards(1);
    foyer_ask(builder.with_eviction_config(policy).build(), size)
}

fn foyer_bytes(bytes: u64, policy: impl Into<EvictionConfig>) -> Ask {
    let builder = CacheBuilder::new(bytes as usize).with_eviction_config(policy);
    let weigh = |key: &String, row: &Arc<Row>| weight(key, row);
    foyer_ask(builder.with_weighter(weigh).build(), SIZE)
}

fn foyer_ask(cache: foyer_memory::Cache<String, Arc<Row>>, size: usize) -> Ask {
    let get = |cache: &foyer_memory::Cache<_, _>, key: &str| cache.get(key).is_some();
    asking(cache, get, move |cache, key| drop(cache.insert(key, row(size))))
}

/// Looks for a key in a cache, and stores it if it is missing.
fn asking<C: 'static>(
    cache: C,
    get: impl Fn(&C, &str) -> bool + 'static,
    insert: impl Fn(&C, String) + 'static,
) -> Ask {
    Box::new(move |key| {
        let hit = get(&cache, key);
        if !hit {
            insert(&cache, key.to_owned());
        }
        hit
    })
}
