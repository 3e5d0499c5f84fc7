//! Most frequent URLs and clients of the last one to two minutes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_http::{AccessEntry, CacheResult};
use serde::{Deserialize, Serialize};

use super::space_saving::{SpaceSaving, largest};
use crate::log::access::Redaction;

/// Number of counters of a list. Fewer miss names: with 1,024, half of the 100 most frequent are wrong
/// at a Zipf exponent of 0.8.
const COUNTERS: usize = 4_096;

/// Length of a period. A report covers the current and the previous one.
const PERIOD: Duration = Duration::from_secs(60);

/// Maximum length of a name in bytes.
const NAME_MAX: usize = 120;

/// Maximum number of sites with a row of their own.
const SITES_MAX: usize = 100;

/// Names of the lists.
pub(crate) const LISTS: [&str; 6] =
    ["requests", "bytes", "load_seconds", "misses", "not_storable", "clients"];

/// Row of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopRow {
    /// Number of the list; seconds in `load_seconds`.
    pub(crate) count: f64,
    /// Largest part of `count` that may belong to other names.
    pub(crate) error: f64,
    /// URL or client; in `misses` and `not_storable`, the reason and the URL.
    pub(crate) name: String,
}

/// Loads of one site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OriginRow {
    /// Number of responses that the origin was asked for.
    pub(crate) loads: u64,
    /// Average time to the head in seconds.
    pub(crate) average_seconds: f64,
    /// Longest time to the head in seconds.
    pub(crate) longest_seconds: f64,
}

/// Lists of the last one to two minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopReport {
    /// Time since the lists began, in seconds, at most two minutes.
    pub(crate) seconds: f64,
    /// Number of responses.
    pub(crate) responses: u64,
    /// Number of responses that were not counted, because they came too fast.
    pub(crate) dropped: u64,
    /// Rows by list, the largest first.
    pub(crate) lists: BTreeMap<String, Vec<TopRow>>,
    /// Loads by site.
    pub(crate) origins: BTreeMap<String, OriginRow>,
}

/// Counters of one period.
struct Period {
    begun: Instant,
    responses: u64,
    lists: [SpaceSaving; LISTS.len()],
    origins: BTreeMap<Box<str>, Loads>,
}

#[derive(Clone, Copy, Default)]
struct Loads {
    count: u64,
    sum: Duration,
    longest: Duration,
}

/// Counters of the current and the previous period.
pub(super) struct Top {
    current: Period,
    previous: Period,
}

impl Period {
    fn new(begun: Instant) -> Self {
        let lists = std::array::from_fn(|_| SpaceSaving::new(COUNTERS));
        Self { begun, responses: 0, lists, origins: BTreeMap::new() }
    }
}

impl Top {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { current: Period::new(now), previous: Period::new(now) }
    }

    /// Counts a response.
    pub(super) fn add(&mut self, access: &AccessEntry<'_>, redaction: &Redaction, now: Instant) {
        if now.duration_since(self.current.begun) >= PERIOD {
            self.previous = std::mem::replace(&mut self.current, Period::new(now));
        }
        let period = &mut self.current;
        period.responses += 1;
        let request = access.request;
        let url = cut(format!("{}{}", request.host, redaction.target(&request.target)));
        let [requests, bytes, load_seconds, misses, not_storable, clients] = &mut period.lists;
        requests.add(&url, 1);
        bytes.add(&url, access.bytes);
        if let Some(client) = redaction.address(request.client) {
            clients.add(&client.to_string(), 1);
        }
        if let Some(why) = access.why {
            misses.add(&cut(format!("{why} {url}")), 1);
        }
        let outcome = &request.outcome;
        let is_load = outcome.origin_status.is_some() && !outcome.is_shared;
        if is_load {
            load_seconds.add(&url, u64::try_from(access.head.as_micros()).unwrap_or(u64::MAX));
            if period.origins.len() < SITES_MAX || period.origins.contains_key(access.site) {
                let loads = period.origins.entry(access.site.into()).or_default();
                loads.count += 1;
                loads.sum += access.head;
                loads.longest = loads.longest.max(access.head);
            }
        }
        if access.cache == CacheResult::Pass
            && let Some(detail) = &outcome.detail
        {
            not_storable.add(&cut(format!("{detail} {url}")), 1);
        }
    }

    /// Returns the lists.
    pub(super) fn report(&self, rows_max: usize) -> TopReport {
        let (current, previous) = (&self.current, &self.previous);
        let mut report = TopReport {
            seconds: previous.begun.elapsed().as_secs_f64(),
            responses: current.responses + previous.responses,
            ..TopReport::default()
        };
        for (place, name) in LISTS.into_iter().enumerate() {
            let rows = largest([&current.lists[place], &previous.lists[place]], rows_max);
            let unit = if name == "load_seconds" { 1e6 } else { 1.0 };
            let row = |counter: super::space_saving::Counter| TopRow {
                count: as_float(counter.count) / unit,
                error: as_float(counter.error) / unit,
                name: counter.name.into(),
            };
            report.lists.insert(name.to_owned(), rows.into_iter().map(row).collect());
        }
        let mut sums: BTreeMap<&str, Loads> = BTreeMap::new();
        for (site, loads) in current.origins.iter().chain(&previous.origins) {
            let sum = sums.entry(site).or_default();
            sum.count += loads.count;
            sum.sum += loads.sum;
            sum.longest = sum.longest.max(loads.longest);
        }
        for (site, Loads { count, sum, longest }) in sums {
            let average_seconds = sum.as_secs_f64() / as_float(count.max(1));
            let longest_seconds = longest.as_secs_f64();
            let row = OriginRow { loads: count, average_seconds, longest_seconds };
            report.origins.insert(site.to_owned(), row);
        }
        report
    }
}

fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(NAME_MAX));
    name
}

/// Counts above 2^53 lose precision, which no list reaches.
fn as_float(count: u64) -> f64 {
    count as f64
}
