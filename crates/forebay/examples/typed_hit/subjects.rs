//! Who is measured.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Cache, Error, Memory};
use futures_util::FutureExt;

/// A kibibyte, as a row of a database may be.
type Row = [u8; 1 << 10];

const LIFETIME: Duration = Duration::from_secs(60);

/// Twice the keys, so that nothing has to leave.
const CAPACITY: usize = 20_000;

/// One way to get what is at hand.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    fill: Fill,
}

/// Fills a cache, and says how to ask it.
type Fill = fn(&[String]) -> Hit;

pub(crate) type Hit = Box<dyn FnMut(&str)>;

impl Subject {
    pub(crate) fn filled(&self, keys: &[String]) -> Hit {
        (self.fill)(keys)
    }
}

pub(crate) const ALL: [Subject; 7] = [
    Subject { name: "quick_cache-get", fill: quick_get },
    Subject { name: "quick_cache-get_or_insert_async", fill: quick_load },
    Subject { name: "moka-get", fill: moka_get },
    Subject { name: "moka-get_with_by_ref", fill: moka_load },
    Subject { name: "forebay-get", fill: forebay_get },
    Subject { name: "forebay-get_or_load", fill: forebay_load },
    Subject { name: "forebay-get_or_load-bytes", fill: forebay_bytes },
];

fn row() -> Arc<Row> {
    Arc::new([7; 1 << 10])
}

/// Takes what a future has at once: a hit never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a hit does not wait")
}

fn quick(keys: &[String]) -> quick_cache::sync::Cache<String, Arc<Row>> {
    let cache = quick_cache::sync::Cache::new(CAPACITY);
    keys.iter().for_each(|key| cache.insert(key.clone(), row()));
    cache
}

fn quick_get(keys: &[String]) -> Hit {
    let cache = quick(keys);
    Box::new(move |key| {
        black_box(cache.get(key).expect("it is there"));
    })
}

fn quick_load(keys: &[String]) -> Hit {
    let cache = quick(keys);
    Box::new(move |key| {
        black_box(now(cache.get_or_insert_async(key, async { Err(()) })).expect("it is there"));
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

fn moka(keys: &[String]) -> moka::future::Cache<String, Arc<Row>> {
    let builder = moka::future::Cache::builder().max_capacity(CAPACITY as u64);
    let cache = builder.time_to_live(LIFETIME).build();
    runtime().block_on(async {
        for key in keys {
            cache.insert(key.clone(), row()).await;
        }
        cache.run_pending_tasks().await;
    });
    cache
}

fn moka_get(keys: &[String]) -> Hit {
    let cache = moka(keys);
    Box::new(move |key| {
        black_box(now(cache.get(key)).expect("it is there"));
    })
}

fn moka_load(keys: &[String]) -> Hit {
    let cache = moka(keys);
    Box::new(move |key| {
        black_box(now(cache.get_with_by_ref(key, async { row() })));
    })
}

fn forebay(keys: &[String], memory: Memory) -> Cache<Row> {
    let cache: Cache<Row> = Cache::builder("users")
        .memory(memory)
        .ttl(LIFETIME)
        .stale_while_revalidate(LIFETIME)
        .stale_if_error(LIFETIME)
        .build()
        .expect("it can work");
    runtime().block_on(async {
        for key in keys {
            cache.set(key, row()).await;
        }
    });
    assert_eq!(cache.stats().entries, keys.len() as u64);
    cache
}

fn forebay_get(keys: &[String]) -> Hit {
    let cache = forebay(keys, Memory::entries(CAPACITY as u64));
    Box::new(move |key| {
        black_box(now(cache.get(key)).expect("it is there"));
    })
}

fn forebay_load(keys: &[String]) -> Hit {
    loading(forebay(keys, Memory::entries(CAPACITY as u64)))
}

fn forebay_bytes(keys: &[String]) -> Hit {
    loading(forebay(keys, Memory::bytes(64 << 20)))
}

fn loading(cache: Cache<Row>) -> Hit {
    let never = || async { Err::<Row, Error>(Error::Absent) };
    Box::new(move |key| {
        black_box(now(cache.get_or_load(key, never)).expect("it is there"));
    })
}
