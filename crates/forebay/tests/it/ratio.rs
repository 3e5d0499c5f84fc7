//! Hit ratio of memory compared with the store that it is built on, with and without scans of keys
//! that are requested once.

use forebay::codec::{Codec, Raw};
use forebay::testkit::FaultyTier;
use forebay::{Cache, Memory};

/// Number of keys, requested with Zipf's distribution; a 20th of them fits into memory.
const KEYS: usize = 20_000;
const ENTRIES: usize = 1_000;
const WARM_UP: usize = 30_000;
const COUNTED: usize = 70_000;

/// Number of requests between two scans.
const SCAN_EVERY: usize = 10_000;
/// Number of keys of a scan.
const SCAN: usize = 2_000;

/// Returns the ranks of the requested keys, the same in each run.
fn requests() -> impl Iterator<Item = usize> {
    let mut sum = 0.0;
    let below: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..WARM_UP + COUNTED).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let drawn = (state >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        below.partition_point(|edge| *edge < drawn).min(KEYS - 1)
    })
}

/// Returns the hit ratio in percent. `request` returns `true` for a hit, and stores a missing key.
fn percent(scan: usize, mut request: impl FnMut(&str) -> bool) -> f64 {
    let mut hits = 0;
    for (number, rank) in requests().enumerate() {
        if number % SCAN_EVERY == 0 {
            (0..scan).for_each(|key| assert!(!request(&format!("scan:{number}:{key}"))));
        }
        let hit = request(&format!("user:{rank}"));
        hits += usize::from(hit && number >= WARM_UP);
    }
    hits as f64 * 100.0 / COUNTED as f64
}

fn ours(scan: usize) -> f64 {
    let memory = Memory::entries(ENTRIES as u64);
    let cache: Cache<()> = Cache::builder("rows").memory(memory).build().expect("valid settings");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    percent(scan, |key| {
        runtime.block_on(async {
            let hit = cache.get(key).await.is_some();
            if !hit {
                assert!(cache.set(key, ()).await);
            }
            hit
        })
    })
}

fn stores(scan: usize) -> f64 {
    let options = quick_cache::OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(ENTRIES)
        .weight_capacity(ENTRIES as u64)
        .build()
        .expect("both capacities are given");
    let cache: quick_cache::sync::Cache<String, ()> = quick_cache::sync::Cache::with_options(
        options,
        quick_cache::UnitWeighter,
        Default::default(),
        Default::default(),
    );
    percent(scan, |key| {
        let hit = cache.get(key).is_some();
        if !hit {
            cache.insert(key.to_owned(), ());
        }
        hit
    })
}

#[test]
fn the_hit_ratio_equals_that_of_the_underlying_store_with_and_without_scans() {
    for scan in [0, SCAN] {
        let (ours, stores) = (ours(scan), stores(scan));
        assert!(ours >= stores - 0.5, "{ours:.2} %, the store {stores:.2} %, scans of {scan}");
    }
}

/// Size of a value in bytes in the comparison with tiers.
const VALUE: usize = 1 << 10;
/// Number of requests in the comparison with tiers.
const REQUESTS: usize = 40_000;

/// Returns the hit ratio in percent of a memory of this size.
fn percent_of_bytes(bytes: u64, tier: Option<&FaultyTier>) -> f64 {
    let weigh = |_: &str, value: &Vec<u8>| value.len() + size_of::<Vec<u8>>();
    let builder = Cache::<Vec<u8>>::builder("rows").memory(Memory::bytes(bytes)).weigher(weigh);
    let builder = match tier {
        Some(tier) => builder.tiers(Codec::new(Raw), [tier.shared()]),
        None => builder,
    };
    let cache = builder.build().expect("valid settings");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asking = async {
        for rank in requests().take(REQUESTS) {
            let key = format!("u:{rank}");
            if cache.get(&key).await.is_none() {
                assert!(cache.set(&key, vec![1; VALUE]).await);
            }
        }
    };
    runtime.expect("a runtime").block_on(asking);
    cache.stats().hits as f64 * 100.0 / REQUESTS as f64
}

#[test]
fn a_tier_does_not_reduce_the_hit_ratio_of_memory() {
    let bytes = 4 << 20;
    let (alone, tier) = (percent_of_bytes(bytes, None), FaultyTier::new());
    let above = percent_of_bytes(bytes, Some(&tier));
    let half = percent_of_bytes(bytes / 2, None);
    assert!(above >= alone - 0.5, "{above:.2} % above a tier, {alone:.2} % without");
    assert!(half <= alone - 2.0, "{half:.2} % with half of the bytes must be measurably less");
    assert!(tier.len() > KEYS / 4, "{} in the tier", tier.len());
}
