//! `memory-per-entry`: heap of a stored entry beyond its key and its value.

use std::sync::Arc;

use anyhow::Result;
use forebay::{Cache, Memory};

use super::subjects::{LIFETIME, Row, runtime};
use crate::environment::Options;
use crate::report::{Better, Comparison, Table, Unit};
use crate::rivals::Rival;

const ENTRIES: usize = 1_000_000;
const ENTRIES_QUICK: usize = 100_000;
const SIZE: usize = 1 << 10;

/// Room for more entries than are stored.
const ROOM: usize = 2;

/// Creates a cache with this many entries.
type Filled = fn(usize) -> Box<dyn std::any::Any>;

/// Libraries, and their caches filled with this many entries.
const LIBRARIES: [(&str, Filled); 4] =
    [("forebay", forebay), ("quick_cache", quick), ("moka", moka), ("foyer", foyer)];

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let entries = options.pick(ENTRIES, ENTRIES_QUICK);
    let own: usize = (0..entries).map(|number| key(number).len() + SIZE).sum();
    let name = format!("{entries} entries of 1 KiB, room for {}", ROOM * entries);
    let mut row =
        Comparison::new("heap beyond key and value, per entry", Unit::Bytes, Better::Lower);
    for (library, fill) in LIBRARIES {
        eprintln!("measuring: {library}");
        let mut cache = None;
        let taken = allocation_counter::measure(|| cache = Some(fill(entries)));
        drop(cache);
        let beyond = (taken.bytes_current as f64 - own as f64) / entries as f64;
        row = if library == "forebay" {
            row.ours(vec![beyond])
        } else {
            row.rival(library, vec![beyond])
        };
    }
    let mut table = Table::comparisons(name).note(
        "bytes that the caches requested from the allocator and kept; forebay keeps lifetimes, stale \
         windows, tags and the state of early refresh for each entry; quick_cache and foyer keep no \
         lifetimes",
    );
    table.compare(row);
    let rivals = LIBRARIES.iter().skip(1).map(|(name, _)| Rival {
        name: (*name).to_owned(),
        version: "as in Cargo.lock of the benchmarks".to_owned(),
        settings: format!("capacity of {} entries", ROOM * entries),
        why: "a bound by the number of entries, which its documentation shows first",
        documentation: "https://docs.rs",
        missing: None,
    });
    Ok(vec![table.with_rivals(rivals)])
}

fn key(number: usize) -> String {
    format!("user:{number:07}")
}

fn row() -> Row {
    vec![7; SIZE]
}

fn forebay(entries: usize) -> Box<dyn std::any::Any> {
    let builder = Cache::<Row>::builder("users").memory(Memory::entries((ROOM * entries) as u64));
    let cache = builder.ttl(LIFETIME).build().expect("it can work");
    let runtime = runtime();
    runtime.block_on(async {
        for number in 0..entries {
            cache.set(key(number), row()).await;
        }
    });
    Box::new((cache, runtime))
}

fn quick(entries: usize) -> Box<dyn std::any::Any> {
    let cache = quick_cache::sync::Cache::new(ROOM * entries);
    (0..entries).for_each(|number| cache.insert(key(number), Arc::new(row())));
    Box::new(cache)
}

fn moka(entries: usize) -> Box<dyn std::any::Any> {
    let builder = moka::sync::Cache::builder().max_capacity((ROOM * entries) as u64);
    let cache = builder.time_to_live(LIFETIME).build();
    (0..entries).for_each(|number| cache.insert(key(number), Arc::new(row())));
    cache.run_pending_tasks();
    Box::new(cache)
}

fn foyer(entries: usize) -> Box<dyn std::any::Any> {
    let cache = foyer_memory::CacheBuilder::new(ROOM * entries).build();
    (0..entries).for_each(|number| drop(cache.insert(key(number), Arc::new(row()))));
    let cache: foyer_memory::Cache<String, Arc<Row>> = cache;
    Box::new(cache)
}
