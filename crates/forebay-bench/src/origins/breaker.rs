//! Circuit breaker: an origin that hangs, and one that is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use parking_lot::Mutex;

use super::traffic::{Connections, Servers, Traffic, count_other, fill, latency_ms};
use super::{POLL, STATE_MAX, cache, reached};
use crate::environment::Options;
use crate::report::{Bound, Table};

/// Number of URLs, and requests per second.
const URLS: u64 = 1_000;
const RATE: u32 = 500;

/// Defaults of the circuit breaker.
const SLOW_CALL: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(10);
const REQUESTS_MIN: f64 = 10.0;

/// `open_for`, the only option that is not the default.
const OPEN_FOR: Duration = Duration::from_secs(3);

/// Time beyond that of hits on a healthy origin, in milliseconds.
const LATE_MAX_MS: f64 = 10.0;

/// 99th percentile of stale responses in milliseconds.
const STALE_MAX_MS: f64 = 5.0;

/// Error of the time between two trials: each is seen when it arrives at the origin, and the first
/// one may have connected before.
const ARRIVAL_ERROR: Duration = Duration::from_millis(5);

/// Time of a trial beyond `open_for`.
const TRIAL_MAX: Duration = Duration::from_secs(1);

/// Lifetime of responses that are stale when the origin hangs.
const LIFETIME: Duration = Duration::from_secs(1);

const STATE: &str = "forebay_origin_state{site=\"bench\"}";
const CLOSED: u64 = 0;
const HALF_OPEN: u64 = 1;
const OPEN: u64 = 2;

/// Origin that can be made to hang, and the times of its requests.
struct Hanging {
    origin: Origin,
    hangs: Arc<AtomicBool>,
    arrivals: Arc<Mutex<Vec<Instant>>>,
}

impl Hanging {
    async fn start() -> Result<Self> {
        let (hangs, arrivals) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Instant>>>::default());
        let (is_hung, times) = (hangs.clone(), arrivals.clone());
        let origin = Origin::start(move |asked| {
            times.lock().push(Instant::now());
            if is_hung.load(Ordering::Relaxed) {
                return Answer::hang();
            }
            let control = match asked.path().starts_with("/stale/") {
                true => format!("max-age={}, stale-if-error=600", LIFETIME.as_secs()),
                false => "max-age=600".to_owned(),
            };
            Answer::ok("x".repeat(100)).field("Cache-Control", control)
        });
        Ok(Self { origin: origin.await?, hangs, arrivals })
    }

    /// Times between the requests since this time.
    fn gaps_since(&self, since: Instant) -> Vec<Duration> {
        let arrivals = self.arrivals.lock();
        let later: Vec<Instant> = arrivals.iter().copied().filter(|at| *at > since).collect();
        later.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

pub(super) async fn hung(options: &Options) -> Result<Table> {
    let span = Duration::from_secs(options.pick(10, 3));
    let hanging = Hanging::start().await?;
    let site = format!(
        "origin = \"{}\"\n[site.breaker]\nopen_for = \"{}s\"",
        hanging.origin.url(),
        OPEN_FOR.as_secs()
    );
    let cache = cache("", &site).await?;
    let to: Servers = Arc::new(Mutex::new(vec![cache.address()]));
    let paths = (0..URLS).flat_map(|number| [format!("/hit/{number}"), format!("/stale/{number}")]);
    fill(cache.address(), paths).await?;
    let path = |kind: &'static str| move |number: u64| format!("/{kind}/{}", number % URLS);
    let healthy = Traffic::start(RATE, &to, path("hit")).end_after(span.max(LIFETIME * 2)).await?;
    let healthy_ms = latency_ms(&healthy, 0.999);

    hanging.hangs.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    let traffic = Traffic::start(RATE, &to, path("cold"));
    let opened = reached(&cache, STATE, OPEN).await?;
    let replies = traffic.end_after(span).await?;
    let later: Vec<_> = replies.iter().filter(|reply| reply.at > opened).collect();
    // The clients of the requests that hung close their connections.
    tokio::time::sleep(LIFETIME).await;
    let stale = Traffic::start(RATE, &to, path("stale")).end_after(span).await?;
    let shortest = trials(&hanging, &cache, &to, opened).await?;
    let recovery = recovery(&hanging, &cache).await?;

    let title =
        format!("an origin that hangs: {URLS} URLs, {RATE} requests/s, open_for {OPEN_FOR:?}");
    let mut table = Table::figures(title);
    let seconds = |span: Duration| span.as_secs_f64();
    let bound = Bound::AtMost(seconds(SLOW_CALL + WINDOW));
    table.figure("time until the breaker opens", seconds(opened - begun), "s", bound);
    table.figure("p99.9 of hits, healthy origin", healthy_ms, "ms", Bound::None);
    let p999 = latency_ms(later.iter().copied(), 0.999);
    table.figure("p99.9 while open", p999, "ms", Bound::AtMost(healthy_ms + LATE_MAX_MS));
    table.count("responses while open that are not 503", count_other(later, 503), 0.0);
    table.figure(
        "p99 of stale responses",
        latency_ms(&stale, 0.99),
        "ms",
        Bound::AtMost(STALE_MAX_MS),
    );
    table.count("stale requests that fail", count_other(&stale, 200), 0.0);
    let bound = Bound::AtLeast(seconds(OPEN_FOR - ARRIVAL_ERROR));
    table.figure("shortest time between two trials", seconds(shortest), "s", bound);
    let bound = Bound::AtMost(seconds(OPEN_FOR + TRIAL_MAX));
    table.figure("time until it is used again", seconds(recovery), "s", bound);
    Ok(table)
}

/// Waits for three trials while clients send requests. Returns the shortest time between two.
async fn trials(
    hanging: &Hanging,
    cache: &Launched,
    to: &Servers,
    opened: Instant,
) -> Result<Duration> {
    let traffic = Traffic::start(RATE, to, |number| format!("/other/{number}"));
    let begun = Instant::now();
    while hanging.gaps_since(opened).len() < 2 {
        ensure!(begun.elapsed() < STATE_MAX, "no third trial");
        tokio::time::sleep(POLL).await;
    }
    // A trial that hangs at the recovery would be another `slow_call`.
    reached(cache, STATE, HALF_OPEN).await?;
    reached(cache, STATE, OPEN).await?;
    traffic.end().await?;
    Ok(hanging.gaps_since(opened).into_iter().min().unwrap_or_default())
}

/// Heals the origin while no trial runs. Returns the time until it answers a client.
async fn recovery(hanging: &Hanging, cache: &Launched) -> Result<Duration> {
    ensure!(cache.metric(STATE).await? == OPEN, "a trial runs");
    hanging.hangs.store(false, Ordering::Relaxed);
    let (begun, connections) = (Instant::now(), Connections::default());
    for number in 0.. {
        let path = format!("/again/{number}");
        if connections.get(cache.address(), &path, None).await.status == 200 {
            break;
        }
        ensure!(begun.elapsed() < STATE_MAX, "the origin is not used again");
        tokio::time::sleep(POLL).await;
    }
    let took = begun.elapsed();
    ensure!(cache.metric(STATE).await? == CLOSED, "the breaker is not closed");
    Ok(took)
}

/// Answers after 3 s with `slow_call = "1s"`.
pub(super) async fn slow() -> Result<Table> {
    let answer = Answer::ok("x").field("Cache-Control", "no-store");
    let origin = Origin::always(answer.delay(Duration::from_secs(3))).await?;
    let site = format!("origin = \"{}\"\n[site.breaker]\nslow_call = \"1s\"", origin.url());
    let cache = cache("", &site).await?;
    let to: Servers = Arc::new(Mutex::new(vec![cache.address()]));
    let traffic = Traffic::start(10, &to, |number| format!("/{number}"));
    reached(&cache, STATE, OPEN).await?;
    let sent = origin.requests() as f64;
    traffic.end().await?;
    let mut table = Table::figures("responses after 3 s, slow_call 1 s, 10 requests/s");
    table.count("requests to the origin until the breaker opens", sent, 2.0 * REQUESTS_MIN);
    Ok(table)
}
