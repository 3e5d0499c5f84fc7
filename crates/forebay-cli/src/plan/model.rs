//! Models of the memory tier, fed with the requests of a log.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use forebay_engine::{Limits, MemoryModel};

use crate::log_line::LogLine;

/// Number of the smallest hashes from which the number of different URLs is estimated. The error is
/// about 1 / √4,096.
const SMALLEST: usize = 4_096;

/// Length of the period of which the peak is taken, in seconds.
const MINUTE: u64 = 60;

/// Request of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Hash of host and target.
    key: u64,
    body: u64,
    /// Time since 1970.
    at: Option<Duration>,
    /// False for requests that no cache answers.
    is_cacheable: bool,
}

impl Request {
    pub(super) fn of(line: &LogLine) -> Self {
        let is_read = matches!(line.method.as_str(), "GET" | "HEAD");
        let is_passed = matches!(line.cache.as_deref(), Some("pass" | "bypass" | "tunnel"));
        let has_body = line.status.is_none_or(|status| status == 200);
        // Its keys are fixed, so that both passes have the same hashes.
        let mut hasher = DefaultHasher::new();
        (line.host.as_deref(), &line.target).hash(&mut hasher);
        Self {
            key: hasher.finish(),
            body: if has_body { line.bytes } else { 0 },
            at: line.at,
            is_cacheable: is_read && !is_passed,
        }
    }
}

/// Number of requests, and an estimate of the number of their URLs.
#[derive(Debug, Default)]
pub(super) struct Keys {
    smallest: BTreeSet<u64>,
    requests: u64,
    first: Option<Duration>,
    last: Option<Duration>,
}

impl Keys {
    pub(super) fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.first = self.first.into_iter().chain(request.at).min();
        self.last = self.last.into_iter().chain(request.at).max();
        if !request.is_cacheable {
            return;
        }
        if self.smallest.len() < SMALLEST {
            self.smallest.insert(request.key);
        } else if self.smallest.last().is_some_and(|largest| request.key < *largest)
            && self.smallest.insert(request.key)
        {
            self.smallest.pop_last();
        }
    }

    pub(super) const fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the number of different URLs, exactly if there are few.
    pub(super) fn distinct(&self) -> u64 {
        match self.smallest.last() {
            Some(largest) if self.smallest.len() == SMALLEST => {
                let share = *largest as f64 / u64::MAX as f64;
                whole(SMALLEST as f64 / share)
            }
            _ => self.smallest.len() as u64,
        }
    }

    /// Returns the time from the first request to the last.
    pub(super) fn span(&self) -> Duration {
        let both = self.first.zip(self.last);
        both.map_or(Duration::ZERO, |(first, last)| last.saturating_sub(first))
    }
}

/// Model of one size and lifetime.
#[derive(Debug)]
pub(super) struct Model {
    memory: MemoryModel,
    size: u64,
    lifetime: Option<Duration>,
    /// Share of the URLs that are modelled.
    share: f64,
    /// Requests that a cache may answer.
    cacheable: u64,
    /// Those of modelled URLs, and their hits.
    modelled: u64,
    hits: u64,
    now: Duration,
    /// Bytes of the misses among modelled requests, and of requests that no cache answers.
    missed_bytes: u64,
    other_bytes: u64,
    minute: Minute,
    peak: f64,
}

/// Requests to the origin in the current minute.
#[derive(Clone, Copy, Debug, Default)]
struct Minute {
    number: u64,
    missed: u64,
    other: u64,
}

impl Model {
    /// Creates a model of memory of `size` bytes for a share of all URLs.
    pub(super) fn new(size: u64, lifetime: Option<Duration>, share: f64) -> Self {
        let limits = Limits::of(size);
        // The other part is for bodies in flight.
        let entries = limits.memory - limits.in_flight_max;
        Self {
            memory: MemoryModel::new(whole(entries as f64 * share)),
            size,
            lifetime,
            share,
            cacheable: 0,
            modelled: 0,
            hits: 0,
            now: Duration::ZERO,
            missed_bytes: 0,
            other_bytes: 0,
            minute: Minute::default(),
            peak: 0.0,
        }
    }

    pub(super) fn request(&mut self, request: &Request) {
        // Lines are in the order in which responses ended, so that times may go back a little.
        self.now = self.now.max(request.at.unwrap_or_default());
        let number = self.now.as_secs() / MINUTE;
        if number != self.minute.number {
            self.peak = self.peak_per_second();
            self.minute = Minute { number, ..Minute::default() };
        }
        if !request.is_cacheable {
            self.other_bytes += request.body;
            self.minute.other += 1;
            return;
        }
        self.cacheable += 1;
        if request.key as f64 > self.share * u64::MAX as f64 {
            return;
        }
        self.modelled += 1;
        if self.memory.request(request.key, request.body, self.now, self.lifetime) {
            self.hits += 1;
        } else {
            self.missed_bytes += request.body;
            self.minute.missed += 1;
        }
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) const fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// Returns the share of all requests that are hits. A few URLs have many requests, so that the
    /// modelled URLs have more or fewer requests than their share: the difference counts as hits,
    /// which is what requests for such URLs are (SHARDS-adj).
    pub(super) fn hit_ratio(&self, requests: u64) -> f64 {
        let expected = self.cacheable as f64 * self.share;
        let hits = self.hits as f64 + expected - self.modelled as f64;
        let hits = hits.clamp(0.0, expected) / self.share;
        hits / requests.max(1) as f64
    }

    /// Returns the number of requests to the origin per second in the minute with most of them.
    pub(super) fn peak_per_second(&self) -> f64 {
        let Minute { missed, other, .. } = self.minute;
        let current = (missed as f64 / self.share + other as f64) / MINUTE as f64;
        self.peak.max(current)
    }

    /// Returns the number of bytes from the origin.
    pub(super) fn origin_bytes(&self) -> f64 {
        self.missed_bytes as f64 / self.share + self.other_bytes as f64
    }
}

/// Returns the whole part of a number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a cast saturates, and estimates have no use of fractions"
)]
pub(super) fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests for 100,000 URLs of 2 to 30 KiB, with a Zipf distribution.
    fn requests(exponent: f64, count: usize, seed: u64) -> Vec<Request> {
        const URLS: usize = 100_000;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sum = 0.0;
        let weights: Vec<f64> = (1..=URLS)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        let request = |number: usize| {
            let drawn = random.f64() * sum;
            let rank = weights.partition_point(|weight| *weight < drawn);
            let target = format!("/{rank}");
            let line = LogLine {
                method: "GET".to_owned(),
                host: None,
                target,
                at: Some(Duration::from_millis(number as u64)),
                status: Some(200),
                bytes: 2_048 + (rank as u64).wrapping_mul(2_654_435_761) % 28_672,
                cache: None,
            };
            Request::of(&line)
        };
        (0..count).map(request).collect()
    }

    fn ratio(requests: &[Request], size: u64, lifetime: Option<Duration>, share: f64) -> f64 {
        let mut model = Model::new(size, lifetime, share);
        requests.iter().for_each(|request| model.request(request));
        model.hit_ratio(requests.len() as u64)
    }

    #[test]
    fn a_share_of_the_urls_tells_the_hit_ratio_of_all() {
        for (exponent, seed) in [(0.8, 1), (1.1, 2)] {
            let requests = requests(exponent, 400_000, seed);
            for (size, lifetime) in [
                (64 << 20, None),
                (256 << 20, None),
                (1 << 30, None),
                (256 << 20, Some(Duration::from_secs(60))),
            ] {
                let all = ratio(&requests, size, lifetime, 1.0);
                let share = ratio(&requests, size, lifetime, 0.25);
                let difference = (all - share).abs();
                assert!(difference <= 0.015, "{exponent} {size} {lifetime:?}: {all} and {share}");
            }
        }
    }

    #[test]
    fn the_number_of_urls_is_estimated() {
        let mut keys = Keys::default();
        for number in 0..1_000_u64 {
            let target = format!("/{}", number % 100);
            let line = LogLine {
                method: "GET".to_owned(),
                host: None,
                target,
                at: Some(Duration::from_secs(number)),
                status: Some(200),
                bytes: 1,
                cache: None,
            };
            keys.add(&Request::of(&line));
        }
        assert_eq!((keys.requests(), keys.distinct()), (1_000, 100), "few are counted");
        assert_eq!(keys.span(), Duration::from_secs(999));
        let mut many = Keys::default();
        requests(0.5, 200_000, 7).iter().for_each(|request| many.add(request));
        let exact: BTreeSet<u64> = requests(0.5, 200_000, 7).iter().map(|it| it.key).collect();
        let error = many.distinct() as f64 / exact.len() as f64 - 1.0;
        assert!(error.abs() < 0.06, "{error}");
    }

    #[test]
    fn requests_that_no_cache_answers_reach_the_origin() {
        let line = |method: &str, cache: Option<&str>, second: u64| LogLine {
            method: method.to_owned(),
            host: None,
            target: "/a".to_owned(),
            at: Some(Duration::from_secs(second)),
            status: Some(200),
            bytes: 10,
            cache: cache.map(str::to_owned),
        };
        let mut model = Model::new(1 << 20, Some(Duration::from_secs(30)), 1.0);
        for line in [
            line("GET", None, 0),
            line("GET", Some("hit"), 29),
            line("GET", None, 30),
            line("POST", None, 61),
            line("GET", Some("pass"), 62),
            line("GET", None, 63),
        ] {
            model.request(&Request::of(&line));
        }
        assert_eq!((model.hits, model.origin_bytes()), (1, 50.0));
        assert!((model.hit_ratio(6) - 1.0 / 6.0).abs() < 1e-9);
        assert!((model.peak_per_second() - 3.0 / 60.0).abs() < 1e-9);
    }
}
