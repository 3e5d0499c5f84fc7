//! Most frequent URLs, tags and clients of the last one to two minutes.
//!
//! Lists of loads are always counted; lists of requests while a client listens.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ahash::RandomState;
use forebay_http::{AccessEntry, LoadEntry};
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

/// Lists of requests.
const REQUEST_LISTS: [&str; 3] = ["requests", "bytes", "clients"];

/// Lists of loads.
const LOAD_LISTS: [&str; 4] = ["load_seconds", "misses", "not_storable", "tags"];

/// Names of all lists.
pub(crate) const LISTS: [&str; 7] =
    ["requests", "bytes", "load_seconds", "misses", "not_storable", "tags", "clients"];

/// Row of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopRow {
    /// Number of the list; seconds in `load_seconds`.
    pub(crate) count: f64,
    /// Largest part of `count` that may belong to other names.
    pub(crate) error: f64,
    /// URL, tag or client; in `misses` and `not_storable`, the reason and the URL.
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
    /// Time since the lists of loads began, in seconds, at most two minutes.
    pub(crate) seconds: f64,
    /// Time since the lists of requests began, in seconds, at most two minutes.
    pub(crate) request_seconds: f64,
    /// Number of responses.
    pub(crate) responses: u64,
    /// Number of responses and loads that were not counted, because they came too fast.
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
    requests: [SpaceSaving; REQUEST_LISTS.len()],
    loads: [SpaceSaving; LOAD_LISTS.len()],
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
    /// Time at which a client began to listen.
    listened: Option<Instant>,
    /// Seeds of the hashes of names.
    seeds: RandomState,
}

impl Period {
    fn new(begun: Instant) -> Self {
        let requests = std::array::from_fn(|_| SpaceSaving::new(COUNTERS));
        let loads = std::array::from_fn(|_| SpaceSaving::new(COUNTERS));
        Self { begun, responses: 0, requests, loads, origins: BTreeMap::new() }
    }

    /// Returns a list by its name.
    fn list(&self, name: &str) -> Option<&SpaceSaving> {
        let requests = REQUEST_LISTS.into_iter().zip(&self.requests);
        let mut lists = requests.chain(LOAD_LISTS.into_iter().zip(&self.loads));
        lists.find(|(known, _)| *known == name).map(|(_, list)| list)
    }
}

impl Top {
    pub(super) fn new(now: Instant) -> Self {
        let (current, previous) = (Period::new(now), Period::new(now));
        Self { current, previous, listened: None, seeds: RandomState::new() }
    }

    /// Begins a new period if the current one is over.
    pub(super) fn advance(&mut self, now: Instant) {
        if now.duration_since(self.current.begun) >= PERIOD {
            self.previous = std::mem::replace(&mut self.current, Period::new(now));
        }
    }

    /// Notes that a client listens from now on, or that none does.
    pub(super) fn set_listened(&mut self, is_listened: bool, now: Instant) {
        match (is_listened, self.listened) {
            (true, None) => self.listened = Some(now),
            (false, Some(_)) => {
                self.listened = None;
                for period in [&mut self.current, &mut self.previous] {
                    period.requests = std::array::from_fn(|_| SpaceSaving::new(COUNTERS));
                    period.responses = 0;
                }
            }
            _ => {}
        }
    }

    /// Counts a response.
    pub(super) fn add(&mut self, access: &AccessEntry<'_>, redaction: &Redaction) {
        let period = &mut self.current;
        period.responses += 1;
        let request = access.request;
        // The name is made only when it takes a counter.
        let target = redaction.target(request.target());
        let parts = shortened([request.host(), &target]);
        let url = || parts.concat().into_boxed_str();
        let hash = self.seeds.hash_one(parts);
        let [requests, bytes, clients] = &mut period.requests;
        requests.add(hash, 1, url);
        bytes.add(hash, access.bytes, url);
        if let Some(client) = redaction.address(request.client) {
            let hash = self.seeds.hash_one(client);
            clients.add(hash, 1, || client.to_string().into_boxed_str());
        }
    }

    /// Counts a load.
    pub(super) fn add_load(&mut self, load: &LoadEntry, redaction: &Redaction) {
        let (period, seeds) = (&mut self.current, &self.seeds);
        let target = redaction.target(&load.target);
        let url = [&*load.authority, &*target];
        let [load_seconds, misses, not_storable, tags] = &mut period.loads;
        let micros = u64::try_from(load.took.as_micros()).unwrap_or(u64::MAX);
        add_joined(load_seconds, seeds, url, micros);
        add_joined(misses, seeds, [load.why, " ", url[0], url[1]], 1);
        if let Some(reason) = load.unstorable {
            add_joined(not_storable, seeds, [reason, " ", url[0], url[1]], 1);
        }
        load.tags.iter().for_each(|tag| add_joined(tags, seeds, [&**tag], 1));
        if period.origins.len() < SITES_MAX || period.origins.contains_key(&load.site) {
            let loads = period.origins.entry(load.site.clone()).or_default();
            loads.count += 1;
            loads.sum += load.took;
            loads.longest = loads.longest.max(load.took);
        }
    }

    /// Returns the lists.
    pub(super) fn report(&self, rows_max: usize) -> TopReport {
        let (current, previous) = (&self.current, &self.previous);
        let seconds = previous.begun.elapsed().as_secs_f64();
        let listened = self.listened.map_or(0.0, |since| since.elapsed().as_secs_f64());
        let mut report = TopReport {
            seconds,
            request_seconds: listened.min(seconds),
            responses: current.responses + previous.responses,
            ..TopReport::default()
        };
        for name in LISTS {
            let lists = current.list(name).zip(previous.list(name));
            let rows = lists.map(|(one, other)| largest([one, other], rows_max));
            let unit = if name == "load_seconds" { 1e6 } else { 1.0 };
            let row = |counter: super::space_saving::Counter| TopRow {
                count: as_float(counter.count) / unit,
                error: as_float(counter.error) / unit,
                name: counter.name.into(),
            };
            let rows = rows.into_iter().flatten().map(row).collect();
            report.lists.insert(name.to_owned(), rows);
        }
        report.origins = self.origins();
        report
    }

    fn origins(&self) -> BTreeMap<String, OriginRow> {
        let mut sums: BTreeMap<&str, Loads> = BTreeMap::new();
        for (site, loads) in self.current.origins.iter().chain(&self.previous.origins) {
            let sum = sums.entry(site).or_default();
            sum.count += loads.count;
            sum.sum += loads.sum;
            sum.longest = sum.longest.max(loads.longest);
        }
        let row = |Loads { count, sum, longest }| OriginRow {
            loads: count,
            average_seconds: sum.as_secs_f64() / as_float(count.max(1)),
            longest_seconds: longest.as_secs_f64(),
        };
        sums.into_iter().map(|(site, loads)| (site.to_owned(), row(loads))).collect()
    }
}

/// Adds a weight to the name that consists of these parts. The name is made only when it takes a
/// counter.
fn add_joined<const N: usize>(
    list: &mut SpaceSaving,
    seeds: &RandomState,
    parts: [&str; N],
    weight: u64,
) {
    let parts = shortened(parts);
    list.add(seeds.hash_one(parts), weight, || parts.concat().into_boxed_str());
}

/// Shortens the parts of a name to [`NAME_MAX`] bytes together.
fn shortened<const N: usize>(parts: [&str; N]) -> [&str; N] {
    let mut left = NAME_MAX;
    parts.map(|part| {
        let part = &part[..part.floor_char_boundary(left)];
        left -= part.len();
        part
    })
}

/// Counts above 2^53 lose precision, which no list reaches.
fn as_float(count: u64) -> f64 {
    count as f64
}
