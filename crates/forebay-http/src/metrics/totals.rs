//! Totals since the start of the process, for readers that compute rates themselves.

use forebay_core::Why;
use forebay_engine::Engine;

use super::latency::LatencySum;
use super::{LOADS, LoadLabels, LookupLabels, Metrics, SiteLabel};
use crate::record::CacheResult;

/// Results of loads that did not fail.
const SUCCESSFUL: [&str; 3] = ["stored", "unchanged", "pass"];

/// Results of lookups in a tier.
const LOOKUPS: [&str; 3] = ["hit", "stale", "miss"];

/// Totals of one site.
#[derive(Clone, Debug, Default)]
pub struct SiteTotals {
    /// Id of the site; `-` for requests that match no site.
    pub site: Box<str>,
    /// Responses that have ended, by cache result in the order of [`CacheResult::ALL`].
    pub responses: [u64; CacheResult::ALL.len()],
    /// Requests that were not fresh hits, by reason in the order of [`Why::ALL`].
    pub misses: [u64; Why::ALL.len()],
    /// Bytes of bodies that client connections took.
    pub body_bytes: u64,
    /// Time to the head of every response except those of tunnels.
    pub heads: LatencySum,
    /// Time to the head of responses from storage.
    pub hit_heads: LatencySum,
    /// Time to the head of responses that needed a fetch.
    pub miss_heads: LatencySum,
    /// Loads that ended.
    pub loads: u64,
    /// Loads that failed.
    pub loads_failed: u64,
    /// Time from the start of a load to the head of the response of the origin.
    pub load_seconds: LatencySum,
    /// Requests that wait now for the origin, a lower tier or another load.
    pub waiting: u64,
}

/// Totals of one tier.
#[derive(Clone, Debug, Default)]
pub struct TierTotals {
    /// Name of the tier.
    pub tier: &'static str,
    /// Lookups that found a usable entry.
    pub hits: u64,
    /// All lookups.
    pub lookups: u64,
    /// Bytes stored; 0 if the tier does not tell.
    pub bytes: u64,
    /// Entries stored; 0 if the tier does not tell.
    pub entries: u64,
    /// Entries evicted for lack of space.
    pub evictions: u64,
    /// Durations of reads; empty for memory.
    pub reads: LatencySum,
}

impl Metrics {
    /// Returns the totals of each site, including requests that match no site.
    #[must_use]
    pub fn site_totals(&self) -> Vec<SiteTotals> {
        self.responses.totals().map(|totals| self.with_loads(totals)).collect()
    }

    fn with_loads(&self, mut totals: SiteTotals) -> SiteTotals {
        let label = SiteLabel { site: totals.site.clone() };
        for result in LOADS {
            let labels = LoadLabels { site: totals.site.clone(), result };
            let count = self.loads.get(&labels).map_or(0, |counter| counter.get());
            totals.loads += count;
            if !SUCCESSFUL.contains(&result) {
                totals.loads_failed += count;
            }
        }
        if let Some(seconds) = self.load_seconds.get(&label) {
            totals.load_seconds = seconds.sum();
        }
        let waiting = self.in_flight.get(&label).map_or(0, |gauge| gauge.get());
        totals.waiting = u64::try_from(waiting).unwrap_or(0);
        totals
    }

    /// Returns the totals of memory and of each lower tier.
    #[must_use]
    pub fn tier_totals(&self, engine: &Engine) -> Vec<TierTotals> {
        self.refresh_memory(engine);
        let lower = engine.lower_tiers().map(|(tier, _)| tier);
        std::iter::once("memory").chain(lower).map(|tier| self.totals_of(tier)).collect()
    }

    fn totals_of(&self, tier: &'static str) -> TierTotals {
        let lookups = LOOKUPS.map(|result| {
            self.lookups.get(&LookupLabels { tier, result }).map_or(0, |counter| counter.get())
        });
        let evictions = super::EvictionLabels { tier, reason: "room" };
        let label = super::TierLabel { tier };
        let size = |gauge: Option<i64>| u64::try_from(gauge.unwrap_or(0)).unwrap_or(0);
        TierTotals {
            tier,
            hits: lookups[0],
            lookups: lookups.iter().sum(),
            bytes: size(self.tier_bytes.get(&label).map(|gauge| gauge.get())),
            entries: size(self.tier_entries.get(&label).map(|gauge| gauge.get())),
            evictions: self.evictions.get(&evictions).map_or(0, |counter| counter.get()),
            reads: self.lower.reads(tier),
        }
    }
}
