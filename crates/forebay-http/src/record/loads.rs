//! Feed of loads that have ended, for the lists of `top`.
//!
//! Loads are added whether or not `top` runs. Hits are not. A full feed drops loads, and counts them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Maximum number of loads that wait for the reader, which comes once a second.
const ENTRIES_MAX: usize = 8_192;

/// Maximum number of bytes of the texts of waiting loads.
const BYTES_MAX: usize = 2 << 20;

/// Load that has ended, as the feed keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadEntry {
    /// Id of the site.
    pub site: Box<str>,
    /// Authority of the request.
    pub authority: Box<str>,
    /// Target of the request.
    pub target: Box<str>,
    /// Code of the reason why memory did not answer.
    pub why: &'static str,
    /// Time to the head of the response, or to the failure.
    pub took: Duration,
    /// Code of the first reason against storing the response.
    pub unstorable: Option<&'static str>,
    /// Tags of the response, without those that no field names.
    pub tags: Vec<Box<str>>,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<LoadEntry>,
    bytes: usize,
}

/// Feed of the loads of a service.
#[derive(Default)]
pub struct LoadFeed {
    waiting: Mutex<Waiting>,
    dropped: AtomicU64,
}

impl fmt::Debug for LoadFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadFeed").finish_non_exhaustive()
    }
}

/// Load that has ended. Site, authority and target are copied unless the feed is full.
pub(crate) struct EndedLoad<'a> {
    pub(crate) site: &'a str,
    pub(crate) authority: &'a str,
    pub(crate) target: &'a str,
    pub(crate) why: &'static str,
    pub(crate) took: Duration,
    pub(crate) unstorable: Option<&'static str>,
    pub(crate) tags: Vec<Box<str>>,
}

impl EndedLoad<'_> {
    fn size(&self) -> usize {
        let tags = self.tags.iter().map(|tag| size_of::<Box<str>>() + tag.len());
        self.site.len() + self.authority.len() + self.target.len() + tags.sum::<usize>()
    }

    fn into_entry(self) -> LoadEntry {
        let Self { site, authority, target, why, took, unstorable, tags } = self;
        let [site, authority, target] = [site, authority, target].map(Into::into);
        LoadEntry { site, authority, target, why, took, unstorable, tags }
    }
}

impl LoadFeed {
    /// Adds a load. It is dropped and counted if the feed is full.
    pub(crate) fn push(&self, load: EndedLoad<'_>) {
        let size = load.size();
        let mut waiting = self.waiting.lock();
        if waiting.entries.len() >= ENTRIES_MAX || waiting.bytes + size > BYTES_MAX {
            drop(waiting);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += size;
        waiting.entries.push_back(load.into_entry());
    }

    /// Takes all loads out of the feed.
    pub fn drain(&self) -> impl Iterator<Item = LoadEntry> {
        let mut waiting = self.waiting.lock();
        // The next second will probably have as many.
        let next = VecDeque::with_capacity(waiting.entries.len());
        waiting.bytes = 0;
        std::mem::replace(&mut waiting.entries, next).into_iter()
    }

    /// Returns the number of loads that were dropped because the feed was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(target: &str) -> EndedLoad<'_> {
        EndedLoad {
            site: "shop",
            authority: "shop.example",
            target,
            why: "uri-miss",
            took: Duration::ZERO,
            unstorable: None,
            tags: vec!["red".into()],
        }
    }

    #[test]
    fn a_full_feed_drops_and_counts() {
        let feed = LoadFeed::default();
        for _ in 0..ENTRIES_MAX + 2 {
            feed.push(load("/a"));
        }
        assert_eq!((feed.dropped(), feed.drain().count()), (2, ENTRIES_MAX));
        let long = "/".repeat(BYTES_MAX);
        feed.push(load(&long));
        assert_eq!((feed.dropped(), feed.drain().count()), (3, 0), "its texts are too long");
        feed.push(load("/b"));
        assert_eq!(feed.drain().collect::<Vec<_>>(), [load("/b").into_entry()]);
    }
}
