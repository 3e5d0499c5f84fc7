//! Whom memory lets go: as good a choice as the store makes that it is built on, and untouched by
//! what is asked for once.

use forebay::codec::{Codec, Raw};
use forebay::testkit::FaultyTier;
use forebay::{Cache, Memory};

/// Keys by Zipf's law, of which a twentieth fits.
const KEYS: usize = 20_000;
const ENTRIES: usize = 1_000;
const WARM_UP: usize = 30_000;
const COUNTED: usize = 70_000;

/// A scan begins after so many questions, and has so many keys.
const SCAN_EVERY: usize = 10_000;
const SCAN: usize = 2_000;

/// Ranks, each time the same.
fn questions() -> impl Iterator<Item = usize> {
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

/// Hits in percent of what answers whether a key is there, which it is from then on.
fn percent(scan: usize, mut ask: impl FnMut(&str) -> bool) -> f64 {
    let mut hits = 0;
    for (number, rank) in questions().enumerate() {
        if number % SCAN_EVERY == 0 {
            (0..scan).for_each(|key| assert!(!ask(&format!("scan:{number}:{key}"))));
        }
        let hit = ask(&format!("user:{rank}"));
        hits += usize::from(hit && number >= WARM_UP);
    }
    hits as f64 * 100.0 / COUNTED as f64
}

fn ours(scan: usize) -> f64 {
    let memory = Memory::entries(ENTRIES as u64);
    let cache: Cache<()> = Cache::builder("rows").memory(memory).build().expect("it can work");
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
fn as_many_calls_are_hits_as_of_the_store_alone_with_scans_and_without() {
    for scan in [0, SCAN] {
        let (ours, stores) = (ours(scan), stores(scan));
        assert!(ours >= stores - 0.5, "{ours:.2} %, the store {stores:.2} %, scans of {scan}");
    }
}

/// What a value owns in the comparison with tiers, and what part of the questions is asked there.
const VALUE: usize = 1 << 10;
const SOME: usize = 40_000;

/// Calls in a hundred that memory answers, of so many bytes.
fn percent_of_bytes(bytes: u64, tier: Option<&FaultyTier>) -> f64 {
    let weigh = |_: &str, value: &Vec<u8>| value.len() + size_of::<Vec<u8>>();
    let builder = Cache::<Vec<u8>>::builder("rows").memory(Memory::bytes(bytes)).weigher(weigh);
    let builder = match tier {
        Some(tier) => builder.tiers(Codec::new(Raw), [tier.shared()]),
        None => builder,
    };
    let cache = builder.build().expect("it can work");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asking = async {
        for rank in questions().take(SOME) {
            let key = format!("u:{rank}");
            if cache.get(&key).await.is_none() {
                assert!(cache.set(&key, vec![1; VALUE]).await);
            }
        }
    };
    runtime.expect("a runtime").block_on(asking);
    cache.stats().hits as f64 * 100.0 / SOME as f64
}

#[test]
fn a_tier_takes_nothing_of_what_memory_holds() {
    let bytes = 4 << 20;
    let (alone, tier) = (percent_of_bytes(bytes, None), FaultyTier::new());
    let above = percent_of_bytes(bytes, Some(&tier));
    let half = percent_of_bytes(bytes / 2, None);
    assert!(above >= alone - 0.5, "{above:.2} % above a tier, {alone:.2} % without");
    assert!(half <= alone - 2.0, "{half:.2} % with half of the bytes: that would be seen");
    assert!(tier.len() > KEYS / 4, "{} in the tier", tier.len());
}
