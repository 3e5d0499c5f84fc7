//! Live feed of responses that have ended, for `tail` and `top`.
//!
//! It has one ring per stripe of threads, and is written only while a client listens. A closed feed
//! costs a response the read of one flag.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::thread_number::thread_number;
use super::{AccessEntry, CacheResult, End, Record, RequestFields};

/// Number of rings. Threads above it share rings.
const RINGS: usize = 16;

/// Maximum number of responses in a ring.
const ENTRIES_MAX: usize = 4_096;

/// Maximum size of a ring in bytes: that of 4,096 responses with usual fields.
const BYTES_MAX: usize = 2 << 20;

/// Response of the feed.
#[derive(Clone, Debug)]
pub struct FeedEntry {
    /// Time of its end.
    pub at: SystemTime,
    site: Arc<str>,
    status: u16,
    cache: CacheResult,
    why: Option<&'static str>,
    end: End,
    bytes: u64,
    head: Duration,
    total: Duration,
    request: Box<RequestFields>,
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<FeedEntry>,
    bytes: usize,
}

/// Feed of the responses of a service.
#[derive(Default)]
pub struct Feed {
    is_open: AtomicBool,
    rings: [Mutex<Ring>; RINGS],
    /// Memory of a ring that was emptied, for the next one.
    emptied: Mutex<VecDeque<FeedEntry>>,
    dropped: AtomicU64,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl FeedEntry {
    /// Returns the response in the form of the access log.
    #[must_use]
    pub fn access(&self) -> AccessEntry<'_> {
        let Self { at: _, site, status, cache, why, end, bytes, head, total, request } = self;
        AccessEntry {
            site,
            status: *status,
            cache: *cache,
            why: *why,
            end: *end,
            bytes: *bytes,
            head: *head,
            total: *total,
            request,
        }
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.request.size()
    }
}

impl Feed {
    /// Returns true if a client listens.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    pub(crate) fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Adds a response. It is dropped and counted if its ring is full.
    pub(crate) fn push(
        &self,
        record: &Record,
        request: Box<RequestFields>,
        site: &Arc<str>,
        total: Duration,
        end: End,
    ) {
        let access = AccessEntry::of(record, &request, site, total, end);
        let entry = FeedEntry {
            at: SystemTime::now(),
            site: site.clone(),
            status: access.status,
            cache: access.cache,
            why: access.why,
            end,
            bytes: access.bytes,
            head: access.head,
            total,
            request,
        };
        let size = entry.size();
        let mut ring = self.rings[thread_number() % RINGS].lock();
        if ring.entries.len() >= ENTRIES_MAX || ring.bytes + size > BYTES_MAX {
            drop(ring);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        ring.bytes += size;
        ring.entries.push_back(entry);
    }

    /// Takes all responses out of the rings, and calls `each` with those of one ring after another.
    /// The rings keep their memory until [`clear`](Self::clear).
    pub fn drain(&self, mut each: impl FnMut(&FeedEntry)) {
        let mut emptied = self.emptied.lock();
        for ring in &self.rings {
            {
                let mut ring = ring.lock();
                if ring.entries.is_empty() {
                    continue;
                }
                std::mem::swap(&mut ring.entries, &mut emptied);
                ring.bytes = 0;
            }
            emptied.drain(..).for_each(|entry| each(&entry));
        }
    }

    /// Drops all responses and the memory of the rings.
    pub fn clear(&self) {
        *self.emptied.lock() = VecDeque::new();
        self.rings.iter().for_each(|ring| *ring.lock() = Ring::default());
    }

    /// Returns the number of responses that were dropped because their ring was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use forebay_semantics::PeerAddress;
    use http::{Method, StatusCode};

    use super::*;
    use crate::client::peer::{ConnectionInfo, Peer};
    use crate::record::{Labels, RequestId};

    #[test]
    fn a_full_ring_drops_and_counts() {
        let feed = Feed::default();
        let record = Record::new(Labels::REFUSED, &Method::GET, StatusCode::OK, Duration::ZERO);
        let peer = Peer::of_connection(&ConnectionInfo::cleartext(PeerAddress::Unix));
        let request = RequestFields::of(RequestId(1), &peer, None);
        let site = Arc::from("site");
        let push = || {
            feed.push(&record, request.clone(), &site, Duration::ZERO, End::Complete);
        };
        for _ in 0..ENTRIES_MAX + 3 {
            push();
        }
        assert_eq!(feed.dropped(), 3);
        let drained = || {
            let mut sites = Vec::new();
            feed.drain(|entry| sites.push(entry.access().site.to_owned()));
            sites
        };
        assert_eq!(drained(), vec!["site"; ENTRIES_MAX]);
        push();
        assert_eq!(drained(), ["site"], "a drained ring has space");
        push();
        feed.clear();
        assert!(drained().is_empty());
    }
}
