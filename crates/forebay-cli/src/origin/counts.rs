//! Counters behind `/stats`.

use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of items with their own counter; a crawler could otherwise fill the memory.
const ITEMS_COUNTED_MAX: usize = 1000;
/// Maximum length of such an item's name in bytes.
const ITEM_NAME_MAX: usize = 256;

/// Counters since the start of an origin.
#[derive(Debug, Default)]
pub(super) struct Counts {
    total: AtomicU64,
    in_flight: AtomicU64,
    max_in_flight: AtomicU64,
    conditional: AtomicU64,
    not_modified: AtomicU64,
    bytes: AtomicU64,
    items: Mutex<Items>,
}

#[derive(Debug, Default)]
struct Items {
    counts: BTreeMap<String, u64>,
    others: u64,
}

/// JSON body of `/stats`.
#[derive(Debug, Serialize)]
struct Stats<'a> {
    /// Requests for items, of any status.
    total: u64,
    /// Requests for items that are being answered now, and the maximum of that number.
    in_flight: u64,
    max_in_flight: u64,
    /// Requests with `If-None-Match` or `If-Modified-Since`, and responses with 304.
    conditional: u64,
    not_modified: u64,
    /// Bytes of bodies that were handed to connections.
    bytes: u64,
    /// Requests per item, and requests for items beyond the limit.
    items: &'a BTreeMap<String, u64>,
    other_items: u64,
}

impl Counts {
    /// Counts the arrival of a request for an item.
    pub(super) fn begin(self: &Arc<Self>, item: &str) -> CountedRequest {
        let serial = self.total.fetch_add(1, Relaxed) + 1;
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.max_in_flight.fetch_max(now, Relaxed);
        self.items.lock().count(item);
        CountedRequest { counts: Arc::clone(self), serial }
    }

    /// All counters as JSON.
    pub(super) fn json(&self) -> String {
        let items = self.items.lock();
        let stats = Stats {
            total: self.total.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            max_in_flight: self.max_in_flight.load(Relaxed),
            conditional: self.conditional.load(Relaxed),
            not_modified: self.not_modified.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            items: &items.counts,
            other_items: items.others,
        };
        let text = serde_json::to_string_pretty(&stats);
        text.expect("numbers under names are always JSON") + "\n"
    }
}

impl Items {
    fn count(&mut self, item: &str) {
        if let Some(count) = self.counts.get_mut(item) {
            *count += 1;
        } else if self.counts.len() < ITEMS_COUNTED_MAX && item.len() <= ITEM_NAME_MAX {
            self.counts.insert(item.to_owned(), 1);
        } else {
            self.others += 1;
        }
    }
}

/// One request for an item. It counts as in flight until this is dropped, at the end of the
/// response body or of the connection.
#[derive(Debug)]
pub(super) struct CountedRequest {
    counts: Arc<Counts>,
    /// Sequence number over all items, from 1.
    pub(super) serial: u64,
}

impl CountedRequest {
    /// Counts a conditional request.
    pub(super) fn conditional(&self) {
        self.counts.conditional.fetch_add(1, Relaxed);
    }

    /// Counts a response with 304.
    pub(super) fn not_modified(&self) {
        self.counts.not_modified.fetch_add(1, Relaxed);
    }

    /// Counts bytes of a body.
    pub(super) fn sent(&self, bytes: usize) {
        self.counts.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.counts.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_their_own_counters_up_to_the_limit() {
        let counts = Arc::new(Counts::default());
        for n in 0..ITEMS_COUNTED_MAX + 5 {
            counts.begin(&format!("item-{n}"));
        }
        counts.begin("item-0");
        counts.begin(&"x".repeat(ITEM_NAME_MAX + 1));
        let stats: serde_json::Value = serde_json::from_str(&counts.json()).unwrap();
        assert_eq!(stats["total"], ITEMS_COUNTED_MAX + 7);
        assert_eq!(stats["items"].as_object().unwrap().len(), ITEMS_COUNTED_MAX);
        assert_eq!((&stats["items"]["item-0"], &stats["other_items"]), (&2.into(), &6.into()));
        assert_eq!((&stats["in_flight"], &stats["max_in_flight"]), (&0.into(), &1.into()));
    }
}
