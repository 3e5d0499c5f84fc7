//! Metrics of responses, fed from their records.
//!
//! Each site has one stripe of relaxed counters per worker thread, summed when they are read. So a
//! hit takes no lock and shares no cache line with the hits of other threads.

mod collect;
mod combinations;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
use std::time::Duration;

use forebay_core::Why;
use parking_lot::Mutex;

use super::latency::{Latency, LatencySum, Observed};
use super::totals::SiteTotals;
use crate::record::thread_number::thread_number;
use crate::record::{CacheResult, End, Record, SiteSlot};
pub(super) use collect::ResponseCollector;
use combinations::{COMBINATIONS, Combinations};

/// Maximum number of sites with labels of their own. Further ones share the label `other`.
const SITES_MAX: usize = 100;

/// Number of slots: sites, [`SiteSlot::NONE`] and [`SiteSlot::OTHER`].
const SLOTS: usize = SITES_MAX + 2;

/// Maximum number of stripes. Threads above it share stripes.
const STRIPES_MAX: usize = 16;

/// Labels of the slots that belong to no single site.
const SHARED: [&str; 2] = ["-", "other"];

/// Cache results of responses to requests that match no site; a challenge counts as a rule.
const OF_NO_SITE: [CacheResult; 2] = [CacheResult::Refused, CacheResult::Rule];

/// Counters of all sites.
#[derive(Debug)]
pub(super) struct ResponseMetrics {
    slots: [OnceLock<Box<SiteCounters>>; SLOTS],
    ids: Mutex<HashMap<Box<str>, SiteSlot>>,
    /// Id of the slots without counters.
    no_site: Arc<str>,
    /// Lookups in memory that found a usable entry, by stripe.
    found: Box<[Found]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Found(AtomicU64);

/// Counters of one site.
#[derive(Debug)]
struct SiteCounters {
    id: Arc<str>,
    /// False for the counters of requests that match no site.
    is_site: bool,
    combinations: Combinations,
    stripes: Box<[Stripe]>,
}

/// Counters of one site and one worker thread.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    /// Responses by combination of method, status and cache result.
    requests: [AtomicU64; COMBINATIONS],
    /// Time to the head, by cache result.
    heads: [Latency; CacheResult::ALL.len()],
    /// Time to the last byte.
    totals: Latency,
    /// Bytes of bodies, by cache result.
    bytes: [AtomicU64; CacheResult::ALL.len()],
    /// Truncated responses, by end.
    truncated: [AtomicU64; End::TRUNCATED.len()],
    /// Requests that were not fresh hits, by reason.
    misses: [AtomicU64; Why::ALL.len()],
}

impl Default for Stripe {
    fn default() -> Self {
        Self {
            requests: [const { AtomicU64::new(0) }; COMBINATIONS],
            heads: std::array::from_fn(|_| Latency::default()),
            totals: Latency::default(),
            bytes: [const { AtomicU64::new(0) }; CacheResult::ALL.len()],
            truncated: [const { AtomicU64::new(0) }; End::TRUNCATED.len()],
            misses: [const { AtomicU64::new(0) }; Why::ALL.len()],
        }
    }
}

impl Default for ResponseMetrics {
    fn default() -> Self {
        let metrics = Self {
            slots: [const { OnceLock::new() }; SLOTS],
            ids: Mutex::default(),
            no_site: SHARED[0].into(),
            found: (0..stripes()).map(|_| Found::default()).collect(),
        };
        metrics.open(SiteSlot::NONE, SHARED[0]);
        metrics
    }
}

impl ResponseMetrics {
    /// Returns the slot of a site. The first call creates its counters at zero.
    pub(super) fn slot(&self, id: &str) -> SiteSlot {
        let mut ids = self.ids.lock();
        if let Some(slot) = ids.get(id) {
            return *slot;
        }
        let next = u16::try_from(ids.len() + SHARED.len()).ok().map(SiteSlot);
        let slot = match next.filter(|slot| usize::from(slot.0) < SLOTS) {
            Some(slot) => {
                ids.insert(id.into(), slot);
                slot
            }
            None => SiteSlot::OTHER,
        };
        let is_shared = slot == SiteSlot::OTHER;
        self.open(slot, if is_shared { SHARED[1] } else { id });
        slot
    }

    fn open(&self, slot: SiteSlot, id: &str) {
        self.slots[usize::from(slot.0)].get_or_init(|| {
            let is_site = slot != SiteSlot::NONE;
            let combinations =
                if is_site { Combinations::of_site() } else { Combinations::default() };
            let stripes = self.found.iter().map(|_| Stripe::default()).collect();
            Box::new(SiteCounters { id: id.into(), is_site, combinations, stripes })
        });
    }

    /// Returns the id of the site of a slot.
    pub(super) fn id(&self, slot: SiteSlot) -> &Arc<str> {
        let counters = self.slots.get(usize::from(slot.0)).and_then(OnceLock::get);
        counters.map_or(&self.no_site, |counters| &counters.id)
    }

    /// Counts a response that ended `total` after its request.
    pub(super) fn count(&self, record: &Record, total: Duration, end: End) {
        let counters = self.slots.get(usize::from(record.labels.site.0)).and_then(OnceLock::get);
        let Some(counters) = counters else { return };
        let stripe = &counters.stripes[thread_number() % counters.stripes.len()];
        let cache = record.labels.cache;
        let combination = counters.combinations.find(record.method, record.status, cache);
        stripe.requests[combination].fetch_add(1, Ordering::Relaxed);
        let total = Observed::from(total);
        stripe.heads[cache as usize].observe(record.head.map_or(total, Observed::from));
        stripe.totals.observe(total);
        stripe.bytes[cache as usize].fetch_add(record.bytes, Ordering::Relaxed);
        if let Some(why) = record.labels.why {
            stripe.misses[why as usize].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(place) = End::TRUNCATED.iter().position(|truncated| *truncated == end) {
            stripe.truncated[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a lookup in memory that found a usable entry.
    pub(super) fn count_found(&self) {
        self.found[thread_number() % self.found.len()].0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of lookups in memory that found a usable entry.
    pub(super) fn found(&self) -> u64 {
        self.found.iter().map(|found| found.0.load(Ordering::Relaxed)).sum()
    }

    /// Returns what the responses of each site add up to, the shared sites first.
    pub(super) fn totals(&self) -> impl Iterator<Item = SiteTotals> {
        self.sites().map(SiteCounters::totals)
    }

    /// Returns the counters of all sites with traffic or a configuration, the shared ones first.
    fn sites(&self) -> impl Iterator<Item = &SiteCounters> {
        self.slots.iter().filter_map(OnceLock::get).map(|counters| &**counters)
    }
}

impl SiteCounters {
    /// Returns the cache results that are exported from the start.
    fn caches(&self) -> &'static [CacheResult] {
        if self.is_site { &CacheResult::ALL } else { &OF_NO_SITE }
    }

    fn totals(&self) -> SiteTotals {
        let heads = CacheResult::ALL.map(|cache| self.latency(|s| &s.heads[cache as usize]));
        let responses = heads.each_ref().map(LatencySum::count);
        let mut totals =
            SiteTotals { site: (&*self.id).into(), responses, ..SiteTotals::default() };
        for (cache, head) in CacheResult::ALL.into_iter().zip(&heads) {
            match cache {
                CacheResult::Hit | CacheResult::Stale => totals.hit_heads.merge(head),
                CacheResult::Miss
                | CacheResult::Revalidated
                | CacheResult::Collapsed
                | CacheResult::Pass => totals.miss_heads.merge(head),
                _ => {}
            }
            if cache != CacheResult::Tunnel {
                totals.heads.merge(head);
            }
            totals.body_bytes += self.sum(|stripe| &stripe.bytes[cache as usize]);
        }
        totals.misses = Why::ALL.map(|why| self.sum(|stripe| &stripe.misses[why as usize]));
        totals
    }

    fn latency(&self, of: impl Fn(&Stripe) -> &Latency) -> LatencySum {
        let mut sum = LatencySum::default();
        self.stripes.iter().for_each(|stripe| sum.add(of(stripe)));
        sum
    }

    fn sum(&self, of: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.stripes.iter().map(|stripe| of(stripe).load(Ordering::Relaxed)).sum()
    }
}

/// Returns the number of stripes.
pub(super) fn stripes() -> usize {
    available_parallelism().map_or(1, usize::from).min(STRIPES_MAX)
}
