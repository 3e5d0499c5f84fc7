//! Warm-up: fetches a list of URLs through the cache, ranked below the requests of clients.

pub(crate) mod before_ready;
mod cache;
mod command;
pub(crate) mod list;

use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use http::header::{CACHE_STATUS, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use tokio::time::sleep;

pub(crate) use command::run;
use list::WarmUrl;

/// Field with the urgency of a request (RFC 9218 section 4.1).
const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// Urgency of requests in the background: clients go first.
const BACKGROUND: HeaderValue = HeaderValue::from_static("u=7");

/// Value of `User-Agent`.
const AGENT: HeaderValue = HeaderValue::from_static("forebay-warm");

/// Maximum number of attempts for one URL while the cache or the origin has no place.
const ATTEMPTS_MAX: usize = 10;

/// Maximum wait before another attempt, whatever `Retry-After` says.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Result of one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// A stored response was fresh already.
    Hit,
    /// The response was fetched and stored.
    Stored,
    /// The response was fetched, but may not be stored.
    NotStored,
    /// There was no usable response, with the reason.
    Failed(String),
    /// The cache or the origin has no place; another attempt is possible after this time.
    Busy(Duration),
}

/// Numbers of URLs by result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WarmSummary {
    pub(crate) hits: usize,
    pub(crate) stored: usize,
    pub(crate) not_stored: usize,
    pub(crate) failed: usize,
    /// Failure that came first, with its URL.
    pub(crate) first_failure: Option<String>,
    /// Number of URLs at the beginning of the list that are done: the warm-up can go on behind them.
    pub(crate) done_in_order: usize,
}

impl WarmSummary {
    /// Number of URLs with a result.
    pub(crate) const fn done(&self) -> usize {
        self.hits + self.stored + self.not_stored + self.failed
    }

    fn add(&mut self, url: &WarmUrl, fetched: Fetched) {
        match fetched {
            Fetched::Hit => self.hits += 1,
            Fetched::Stored => self.stored += 1,
            Fetched::NotStored => self.not_stored += 1,
            Fetched::Failed(why) => self.fail(url, &why),
            Fetched::Busy(_) => self.fail(url, "the cache or the origin had no place for it"),
        }
    }

    fn fail(&mut self, url: &WarmUrl, why: &str) {
        self.failed += 1;
        if self.first_failure.is_none() {
            let host = url.authority.as_ref().map_or("", |authority| authority.as_str());
            self.first_failure = Some(format!("{host}{}: {why}", url.target));
        }
    }
}

/// Fetches all URLs, this many at once. `report` gets the summary after each.
pub(crate) async fn warm<F: Future<Output = Fetched>>(
    urls: &[WarmUrl],
    concurrency: usize,
    fetch: impl Fn(WarmUrl) -> F,
    mut report: impl FnMut(&WarmSummary),
) -> WarmSummary {
    let mut summary = WarmSummary::default();
    let mut is_done = vec![false; urls.len()];
    let fetch = &fetch;
    let fetches = urls.iter().cloned().enumerate().map(move |(index, url)| async move {
        let fetched = fetch_patiently(&url, fetch).await;
        (index, fetched)
    });
    let mut results = stream::iter(fetches).buffer_unordered(concurrency);
    while let Some((index, fetched)) = results.next().await {
        is_done[index] = true;
        summary.add(&urls[index], fetched);
        let behind = is_done[summary.done_in_order..].iter().take_while(|done| **done);
        summary.done_in_order += behind.count();
        report(&summary);
    }
    summary
}

/// Fetches one URL, and again after a wait while there is no place for it.
async fn fetch_patiently<F: Future<Output = Fetched>>(
    url: &WarmUrl,
    fetch: impl Fn(WarmUrl) -> F,
) -> Fetched {
    let mut fetched = fetch(url.clone()).await;
    for _ in 1..ATTEMPTS_MAX {
        let Fetched::Busy(wait) = fetched else { break };
        sleep(wait.min(RETRY_WAIT_MAX)).await;
        fetched = fetch(url.clone()).await;
    }
    fetched
}

/// Builds the request for a URL. `authority` is the host of a URL without one.
fn request<B>(url: &WarmUrl, authority: &str, uri: Uri, body: B) -> http::Result<Request<B>> {
    let host = url.authority.as_ref().map_or(authority, |authority| authority.as_str());
    Request::get(uri)
        .header(HOST, host)
        .header(USER_AGENT, AGENT)
        .header(PRIORITY, BACKGROUND)
        .body(body)
}

/// Interprets the head of a response of the cache.
fn result_of(status: StatusCode, headers: &HeaderMap) -> Fetched {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let cache = text(&CACHE_STATUS).unwrap_or_default();
    let is_busy =
        status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS;
    if is_busy && let Some(seconds) = text(&RETRY_AFTER).and_then(|after| after.parse().ok()) {
        return Fetched::Busy(Duration::from_secs(seconds));
    }
    if status.is_server_error() || status.is_client_error() {
        return Fetched::Failed(format!("status {status}; Cache-Status: {cache}"));
    }
    // The last member is that of the cache next to this client.
    let nearest = cache.rsplit(',').next().unwrap_or_default();
    let has = |parameter: &str| nearest.split(';').any(|one| one.trim() == parameter);
    match (has("hit"), has("stored")) {
        (true, _) => Fetched::Hit,
        (false, true) => Fetched::Stored,
        (false, false) => Fetched::NotStored,
    }
}

/// Rate of a warm-up in URLs per second.
fn rate(done: usize, begun: Instant) -> f64 {
    done as f64 / begun.elapsed().as_secs_f64().max(0.001)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn urls(count: usize) -> Vec<WarmUrl> {
        let url = |number| WarmUrl::parse(&format!("http://a/{number}")).unwrap();
        (0..count).map(url).collect()
    }

    #[test]
    fn the_result_is_read_from_status_and_cache_status() {
        for (status, fields, expected) in [
            (200, &[("cache-status", "forebay; hit; ttl=5")][..], Fetched::Hit),
            (200, &[("cache-status", "forebay; fwd=uri-miss; stored; ttl=5")], Fetched::Stored),
            (301, &[("cache-status", "cdn; hit, forebay; fwd=uri-miss")], Fetched::NotStored),
            (503, &[("retry-after", "2")], Fetched::Busy(Duration::from_secs(2))),
            (429, &[("retry-after", "1")], Fetched::Busy(Duration::from_secs(1))),
        ] {
            let headers = fields.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(result_of(status, &headers.collect()), expected);
        }
        let failed = result_of(StatusCode::NOT_FOUND, &HeaderMap::new());
        assert!(matches!(failed, Fetched::Failed(why) if why.contains("404")));
    }

    #[tokio::test(start_paused = true)]
    async fn urls_are_fetched_in_order_and_a_busy_origin_is_asked_again() {
        let (order, urls) = (Mutex::new(Vec::new()), urls(5));
        let fetch = |url: WarmUrl| {
            let path = url.target.to_string();
            let attempts = {
                let mut order = order.lock().unwrap();
                order.push(path.clone());
                order.iter().filter(|known| **known == path).count()
            };
            async move {
                match (path.as_str(), attempts) {
                    ("/1", 1..=3) | ("/4", _) => Fetched::Busy(Duration::from_secs(1)),
                    ("/2", _) => Fetched::Failed("no".to_owned()),
                    ("/0", _) => Fetched::Hit,
                    _ => Fetched::Stored,
                }
            }
        };
        let mut reached = Vec::new();
        let summary = warm(&urls, 2, fetch, |summary| reached.push(summary.done_in_order)).await;
        assert_eq!((summary.hits, summary.stored, summary.failed), (1, 2, 2));
        assert_eq!(summary.first_failure.as_deref(), Some("a/2: no"));
        assert_eq!((reached.len(), summary.done_in_order), (5, 5));
        let order = order.lock().unwrap();
        assert_eq!(order.iter().filter(|path| **path == "/1").count(), 4);
        assert_eq!(order.iter().filter(|path| **path == "/4").count(), ATTEMPTS_MAX);
    }
}
