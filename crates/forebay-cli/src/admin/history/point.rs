//! Numbers of one step of the history: a second, or a minute.

use forebay_core::Why;
use forebay_http::CacheResult;
use forebay_http::metrics::{LatencyBucket, LatencySum, SiteTotals};

/// Names of the counts of a step. The first [`OUTCOMES`] are responses by cache result.
pub(super) const COUNTS: [&str; 22] = [
    "hit",
    "stale",
    "fallback",
    "collapsed",
    "revalidated",
    "miss",
    "pass",
    "bypass",
    "rule",
    "refused",
    "error",
    "body_bytes",
    "loads",
    "loads_failed",
    "why_not_stored",
    "why_vary",
    "why_expired",
    "why_request",
    "why_purged",
    "why_not_shareable",
    "why_bypass",
    "why_origin",
];

/// Number of counts of responses.
const OUTCOMES: usize = 11;

/// Place of `body_bytes`.
const BODY_BYTES: usize = 11;

/// Names of the latencies of a step: 50th and 99th percentiles.
pub(super) const LATENCIES: [&str; 6] =
    ["hit_p50", "hit_p99", "miss_p50", "miss_p99", "load_p50", "load_p99"];

/// Numbers of one step as they are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Counts in the order of [`COUNTS`]; not a number for a step that was not observed.
    pub(super) counts: [f32; COUNTS.len()],
    /// Latencies in the order of [`LATENCIES`].
    pub(super) latencies: [Option<LatencyBucket>; LATENCIES.len()],
}

impl Point {
    /// Step in which nothing was observed.
    pub(super) const GAP: Self =
        Self { counts: [f32::NAN; COUNTS.len()], latencies: [None; LATENCIES.len()] };
}

/// Sums of one step while it is observed.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    counts: [u64; COUNTS.len()],
    /// Time to the head of all responses.
    pub(super) heads: LatencySum,
    hit_heads: LatencySum,
    miss_heads: LatencySum,
    load_seconds: LatencySum,
}

impl Step {
    /// Returns what was added to the totals of a site between two samples.
    pub(super) fn between(before: &SiteTotals, now: &SiteTotals) -> Self {
        let mut counts = [0; COUNTS.len()];
        let mut add = |place: usize, now: u64, before: u64| {
            counts[place] += now.saturating_sub(before);
        };
        for (place, cache) in CacheResult::ALL.into_iter().enumerate() {
            add(place_of_result(cache), now.responses[place], before.responses[place]);
        }
        for (place, why) in Why::ALL.into_iter().enumerate() {
            add(place_of_reason(why), now.misses[place], before.misses[place]);
        }
        add(BODY_BYTES, now.body_bytes, before.body_bytes);
        add(BODY_BYTES + 1, now.loads, before.loads);
        add(BODY_BYTES + 2, now.loads_failed, before.loads_failed);
        Self {
            counts,
            heads: now.heads.since(&before.heads),
            hit_heads: now.hit_heads.since(&before.hit_heads),
            miss_heads: now.miss_heads.since(&before.miss_heads),
            load_seconds: now.load_seconds.since(&before.load_seconds),
        }
    }

    /// Adds another step.
    pub(super) fn merge(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.heads.merge(&other.heads);
        self.hit_heads.merge(&other.hit_heads);
        self.miss_heads.merge(&other.miss_heads);
        self.load_seconds.merge(&other.load_seconds);
    }

    /// Returns the number of responses.
    pub(super) fn responses(&self) -> u64 {
        self.counts[..OUTCOMES].iter().sum()
    }

    /// Returns the numbers that are kept.
    pub(super) fn point(&self) -> Point {
        let [hit, miss, load] = [&self.hit_heads, &self.miss_heads, &self.load_seconds]
            .map(|sum| [sum.percentile(50), sum.percentile(99)]);
        Point {
            counts: self.counts.map(|count| count as f32),
            latencies: [hit[0], hit[1], miss[0], miss[1], load[0], load[1]],
        }
    }
}

const fn place_of_result(cache: CacheResult) -> usize {
    match cache {
        CacheResult::Hit => 0,
        CacheResult::Stale => 1,
        CacheResult::Fallback => 2,
        CacheResult::Collapsed => 3,
        CacheResult::Revalidated => 4,
        CacheResult::Miss => 5,
        CacheResult::Pass => 6,
        CacheResult::Bypass | CacheResult::Tunnel => 7,
        CacheResult::Rule | CacheResult::Redirect => 8,
        CacheResult::Refused => 9,
        CacheResult::Error => 10,
    }
}

/// Groups the reasons by what an operator does about them.
const fn place_of_reason(why: Why) -> usize {
    BODY_BYTES
        + match why {
            Why::VaryMiss => 4,
            Why::Stale | Why::EarlyRefresh => 5,
            Why::RequestRevalidate
            | Why::RequestMaxAge
            | Why::RequestMinFresh
            | Why::ReloadLimited
            | Why::RequestNoStore => 6,
            Why::Purged | Why::SoftPurged | Why::Suspect => 7,
            Why::PassMarked | Why::NotShareable => 8,
            Why::Method | Why::Bypass | Why::Rule => 9,
            Why::LoadFailed | Why::SoftTimeout | Why::BackOff => 10,
            // Absent, in part, or with another instance.
            _ => 3,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_response_and_every_reason_is_counted_once() {
        let mut now = SiteTotals::default();
        for (place, responses) in now.responses.iter_mut().enumerate() {
            *responses = 1 << place;
        }
        for (place, misses) in now.misses.iter_mut().enumerate() {
            *misses = 1 << place;
        }
        let step = Step::between(&SiteTotals::default(), &now);
        assert_eq!(step.responses(), (1 << CacheResult::ALL.len()) - 1);
        let reasons = COUNTS.iter().position(|name| *name == "why_not_stored").unwrap();
        assert_eq!(step.counts[reasons..].iter().sum::<u64>(), (1 << Why::ALL.len()) - 1);
        let purged = COUNTS.iter().position(|name| *name == "why_purged").unwrap();
        let expected = [Why::Purged, Why::SoftPurged, Why::Suspect].map(|why| 1 << why as u64);
        assert_eq!(step.counts[purged], expected.iter().sum::<u64>());
        let bypass = COUNTS.iter().position(|name| *name == "bypass").unwrap();
        assert_eq!(
            step.counts[bypass],
            (1 << CacheResult::Bypass as u64) + (1 << CacheResult::Tunnel as u64)
        );
    }
}
