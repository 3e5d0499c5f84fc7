//! Several instances that share a Redis: cluster leases and purges.
//!
//! Assertions are on counters where possible. Times are asserted where the documentation promises
//! them, with a named allowance for a busy machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_testkit::client::{Client, Reply, Request, crowd};
use forebay_testkit::faults::{FaultProxy, Faults, Flow};
use forebay_testkit::gate::Gate;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin, Received};
use forebay_testkit::redis::RedisLaunch;
use futures_util::future::{join_all, try_join_all};
use serde_json::Value;

use crate::world::{
    ConfigFile, admin_of, ask, forebay, get, get_admin, is_hit, metric, serving, written,
};

/// Maximum wait for background work, such as connecting.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(20);

/// Allowance for a busy machine.
pub(crate) const NOISE: Duration = Duration::from_secs(3);

/// Duration of a lease without heartbeats, plus the time to take the next one.
const LEASE: Duration = Duration::from_millis(1_550);

/// Timeouts so long that a busy machine does not look like a failing Redis.
pub(crate) const PATIENT: &str = "read_timeout = \"5s\"\nwrite_timeout = \"5s\"";

/// Instances with one Redis, and their configuration files, which are deleted with them.
pub(crate) struct Caches(pub(crate) Vec<(Launched, ConfigFile)>);

impl Caches {
    /// Starts `count` instances and waits until each is connected to all others.
    pub(crate) async fn start(count: usize, origin: &Origin, redis: &str) -> anyhow::Result<Self> {
        Self::start_with(count, origin, redis, "", "").await
    }

    /// Starts instances with additional lines in `[redis]` and in `[[site]]`.
    pub(crate) async fn start_with(
        count: usize,
        origin: &Origin,
        redis: &str,
        more: &str,
        site: &str,
    ) -> anyhow::Result<Self> {
        let one = async |_| {
            let top = format!("[redis]\nurl = \"{redis}\"\n{PATIENT}\n{more}");
            let file = ConfigFile::of(&serving(&origin.url(), &top, site))?;
            anyhow::Ok((file.serve().await?, file))
        };
        let caches = Self(try_join_all((0..count).map(one)).await?);
        for cache in caches.all() {
            wait_ready(cache, count).await?;
        }
        Ok(caches)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Launched> {
        self.0.iter().map(|(cache, _)| cache)
    }

    pub(crate) fn at(&self, number: usize) -> &Launched {
        &self.0[number].0
    }

    pub(crate) async fn sum(&self, name: &str, label: &str) -> anyhow::Result<u64> {
        let each = try_join_all(self.all().map(|cache| metric(cache, name, label))).await?;
        Ok(each.into_iter().sum())
    }
}

pub(crate) async fn start_one(
    origin: &Origin,
    redis: &str,
    more: &str,
) -> anyhow::Result<(Launched, ConfigFile)> {
    let top = format!("[redis]\nurl = \"{redis}\"\n{PATIENT}\n{more}");
    let file = ConfigFile::of(&serving(&origin.url(), &top, ""))?;
    Ok((file.serve().await?, file))
}

pub(crate) async fn health(cache: &Launched) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(get_admin(cache, "/healthz").await?.body())?)
}

/// Waits until the instance is ready and knows of `instances` instances.
pub(crate) async fn wait_ready(cache: &Launched, instances: usize) -> anyhow::Result<()> {
    let is_ready = |health: &Value| {
        health["state"] == "ready"
            && health["cluster"]["bus"] == "heard"
            && health["cluster"]["instances"].as_u64() >= Some(instances as u64)
    };
    wait_health(cache, is_ready).await
}

pub(crate) async fn wait_health(
    cache: &Launched,
    is: impl Fn(&Value) -> bool,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let health = health(cache).await?;
        if is(&health) {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{health}");
    }
}

/// Fails after [`SETTLE_MAX`]. The caller polls; each poll opens a connection, which is a pause.
pub(crate) async fn wait_until(begun: Instant, what: &str) -> anyhow::Result<()> {
    anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{what}");
    tokio::task::yield_now().await;
    Ok(())
}

/// Runs `forebay purge` at one instance; returns its exit code and its one line of output.
pub(crate) async fn purge(
    cache: &Launched,
    args: &[&str],
) -> anyhow::Result<(Option<i32>, String)> {
    let admin = format!("http://{}", admin_of(cache)?);
    let done = forebay(["purge", "--admin", &admin]).args(args.iter().copied()).finish().await?;
    let lines: Vec<String> = done.stdout.into_iter().chain(done.stderr).collect();
    Ok((done.status.code(), lines.concat()))
}

/// Sends one crowd of requests to each instance at once, all for one target.
pub(crate) async fn crowds(
    caches: &Caches,
    callers: usize,
    target: &str,
) -> anyhow::Result<Vec<Reply>> {
    let request = Request::get(target);
    let crowds = caches.all().map(|cache| crowd(callers, cache.address(), |_| request.clone()));
    Ok(try_join_all(crowds).await?.into_iter().flatten().collect())
}

pub(crate) async fn all_get(caches: &Caches, target: &str) -> anyhow::Result<Vec<Reply>> {
    try_join_all(caches.all().map(|cache| get(cache, target))).await
}

pub(crate) fn fresh(body: impl Into<String>) -> Answer {
    Answer::ok(body.into()).field("Cache-Control", "max-age=600")
}

/// Origin that counts requests per path; the count is the response body.
pub(crate) async fn counting(delay: Duration) -> anyhow::Result<Origin> {
    Ok(Origin::start(move |_| fresh("hello").delay(delay)).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_requests_at_eight_instances_cause_one_fetch() -> anyhow::Result<()> {
    const ROUNDS: u64 = 3;
    let redis = RedisLaunch::new().start().await?;
    let origin = counting(Duration::from_millis(50)).await?;
    let caches = Caches::start(8, &origin, &redis.url()).await?;
    for round in 1..=ROUNDS {
        let replies = crowds(&caches, 250, &format!("/page/{round}")).await?;
        assert_eq!(replies.len(), 2_000);
        assert!(replies.iter().all(|reply| (reply.status, &*reply.text()) == (200, "hello")));
        assert_eq!(origin.requests(), round, "one fetch a round");
    }
    let granted = caches.sum("forebay_lease_total", "result=\"granted\"").await?;
    assert_eq!(granted, ROUNDS);
    assert_eq!(caches.sum("forebay_loads_total", "").await?, ROUNDS);
    // Waiters are woken; none polls for the lease again.
    let asked = caches.sum("forebay_lease_total", "result=\"elsewhere\"").await?;
    assert!(asked <= 7 * ROUNDS, "{asked}");
    assert_eq!(caches.sum("forebay_lease_total", "result=\"overdue\"").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_request_that_waited_for_another_instance_reports_it() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |_| fresh("hello").wait(&held)).await?;
    let caches = Caches::start(2, &origin, &redis.url()).await?;
    let mut first = Client::connect(caches.at(0).address()).await?;
    first.send(&Request::get("/a")).await?;
    origin.wait_requests(1).await?;
    let mut second = Client::connect(caches.at(1).address()).await?;
    second.send(&Request::get("/a")).await?;
    let begun = Instant::now();
    while metric(caches.at(1), "forebay_lease_total", "result=\"elsewhere\"").await? == 0 {
        wait_until(begun, "it does not wait").await?;
    }
    gate.open();
    let (led, waited) = (first.reply().await?, second.reply().await?);
    let status = |reply: &Reply| reply.field("cache-status").unwrap_or_default().to_owned();
    assert_eq!(status(&led), "forebay; fwd=uri-miss; fwd-status=200; stored; ttl=600");
    let said = status(&waited);
    assert!(said.starts_with("forebay; fwd=uri-miss; collapsed; ttl="), "{said}");
    assert!(said.ends_with("; detail=elsewhere"), "{said}");
    assert_eq!(origin.requests(), 1);
    let avoided = metric(caches.at(1), "forebay_loads_avoided_total", "how=\"lease\"").await?;
    assert_eq!(avoided, 1);
    Ok(())
}

#[tokio::test]
async fn when_the_fetching_instance_is_killed_another_one_fetches() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let requests = AtomicU64::new(0);
    // The first request is never answered.
    let origin = Origin::start(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::hang(),
        _ => fresh("second"),
    })
    .await?;
    let caches = Caches::start(3, &origin, &redis.url()).await?;
    let mut doomed = Client::connect(caches.at(0).address()).await?;
    doomed.send(&Request::get("/a")).await?;
    origin.wait_requests(1).await?;
    let waiting = [1, 2].map(|number| crowd(25, caches.at(number).address(), |_| page()));
    let waiting = tokio::spawn(try_join_all(waiting));
    let begun = Instant::now();
    while caches.sum("forebay_lease_total", "result=\"elsewhere\"").await? < 2 {
        wait_until(begun, "they do not wait").await?;
    }
    caches.at(0).signal(Signal::Kill).await?;
    let killed = Instant::now();
    origin.wait_requests(2).await?;
    let took = killed.elapsed();
    assert!(took <= LEASE + NOISE, "the next fetch began after {took:?}");
    for reply in waiting.await??.into_iter().flatten() {
        assert_eq!((reply.status, &*reply.text()), (200, "second"));
    }
    assert_eq!(origin.requests(), 2);
    Ok(())
}

fn page() -> Request {
    Request::get("/a")
}

#[tokio::test]
async fn a_fetch_from_before_a_pause_is_not_stored() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let (requests, gate) = (AtomicU64::new(0), Gate::new());
    let held = gate.clone();
    let origin = Origin::start(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => fresh("old").wait(&held),
        _ => fresh("new"),
    })
    .await?;
    let caches = Caches::start(2, &origin, &redis.url()).await?;
    let mut first = Client::connect(caches.at(0).address()).await?;
    first.send(&page()).await?;
    origin.wait_requests(1).await?;
    caches.at(0).signal(Signal::Stop).await?;
    // The second instance waits until the lease has expired, then fetches.
    assert_eq!(get(caches.at(1), "/a").await?.text(), "new");
    gate.open();
    caches.at(0).signal(Signal::Cont).await?;
    assert_eq!(first.reply().await?.text(), "old", "who had waited is answered");
    let begun = Instant::now();
    while metric(caches.at(0), "forebay_flights", "").await? > 0 {
        wait_until(begun, "the flight does not end").await?;
    }
    // Neither Redis nor the memory of the paused instance has stored the old response.
    let third = start_one(&origin, &redis.url(), "").await?;
    wait_ready(&third.0, 2).await?;
    for cache in [&third.0, caches.at(0), caches.at(1)] {
        assert_eq!(get(cache, "/a").await?.text(), "new");
    }
    assert_eq!(origin.requests(), 2);
    Ok(())
}

#[tokio::test]
async fn unshareable_responses_delay_each_instance_only_once() -> anyhow::Result<()> {
    const DELAY: Duration = Duration::from_millis(1_500);
    let redis = RedisLaunch::new().start().await?;
    let origin = Origin::start(|asked| {
        let answer = match asked.path() {
            "/private" => Answer::ok("mine").field("Cache-Control", "private"),
            "/failing" => Answer::status(503).field("Cache-Control", "no-store"),
            _ => fresh("varied").field("Vary", "Accept-Language"),
        };
        answer.delay(DELAY)
    })
    .await?;
    let caches = Caches::start(4, &origin, &redis.url()).await?;
    // What may not be shared is remembered. A failure is not: each crowd tries it with one instance
    // first.
    for (path, status, rounds) in [("/private", 200, [2, 1]), ("/failing", 503, [4, 4])] {
        for delays in rounds {
            let begun = Instant::now();
            let replies = all_get(&caches, path).await?;
            let took = begun.elapsed();
            assert!(replies.iter().all(|reply| reply.status == status), "{path}");
            assert!(took < (delays + 1) * DELAY, "{path} took {took:?}");
        }
        assert!(origin.requests_to(path) >= 7, "each has its own answer");
    }
    // Each instance is asked for a different variant.
    let languages = ["de", "en", "fr", "it"];
    let ask = |(cache, language): (&Launched, &str)| {
        let (address, request) = (cache.address(), Request::get("/varied"));
        let request = request.field("Accept-Language", language);
        async move { Client::connect(address).await?.ask(&request).await }
    };
    let begun = Instant::now();
    let replies = try_join_all(caches.all().zip(languages).map(ask)).await?;
    let took = begun.elapsed();
    assert!(replies.iter().all(|reply| reply.text() == "varied"));
    assert!(took < 3 * DELAY, "{took:?}");
    assert_eq!(origin.requests_to("/varied"), 4);
    Ok(())
}

#[tokio::test]
async fn a_purge_by_tag_reaches_every_instance() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let origin = Origin::start(|asked| {
        let tag = asked.path().trim_start_matches('/').to_owned();
        fresh("hello").field("Cache-Tag", tag)
    })
    .await?;
    let caches = Caches::start(4, &origin, &redis.url()).await?;
    for path in ["/red", "/blue"] {
        all_get(&caches, path).await?;
        assert!(all_get(&caches, path).await?.iter().all(is_hit));
    }
    assert_eq!(origin.requests(), 2);
    let (code, said) = purge(caches.at(0), &["--tag", "red", "--hard"]).await?;
    assert!(code == Some(0) && said.ends_with(": done (instances: 4)"), "{said}");
    let begun = Instant::now();
    while caches.sum("forebay_invalidations_received_total", "kind=\"tag\"").await? < 3 {
        wait_until(begun, "not all of them have heard it").await?;
    }
    all_get(&caches, "/red").await?;
    assert_eq!(origin.requests_to("/red"), 2, "fetched once more, for all");
    assert!(all_get(&caches, "/blue").await?.iter().all(is_hit));
    assert_eq!(origin.requests_to("/blue"), 1);
    Ok(())
}

/// After a soft purge of a URL, each instance serves the stale response while one refresh runs:
/// from its memory, and from Redis if it does not have the variant or has started since.
#[tokio::test]
async fn a_soft_purge_of_a_url_stays_soft_in_redis_with_its_variants() -> anyhow::Result<()> {
    let gate = Gate::new();
    let refresh = gate.clone();
    let origin = Origin::start(move |received: &Received| {
        let language = received.fields.first("accept-language").unwrap_or("none").to_owned();
        let tag = format!("\"{language}\"");
        let answer = if received.is_conditional() {
            Answer::status(304).wait(&refresh)
        } else {
            Answer::ok(language)
        };
        answer
            .field("Cache-Control", "max-age=60, stale-while-revalidate=60")
            .field("ETag", tag)
            .field("Vary", "Accept-Language")
    })
    .await?;
    let redis = RedisLaunch::new().start().await?;
    let caches = Caches::start(2, &origin, &redis.url()).await?;
    let ask_in = async |cache: &Launched, language: &str| {
        ask(cache.address(), &Request::get("/p").field("Accept-Language", language)).await
    };
    for language in ["de", "fr"] {
        ask_in(caches.at(0), language).await?;
        written(caches.at(0)).await?;
    }
    let received = "forebay_invalidations_received_total";
    let (code, said) = purge(caches.at(0), &["--url", "http://test.example/p"]).await?;
    assert_eq!(code, Some(0), "{said}");
    let begun = Instant::now();
    while metric(caches.at(1), received, "kind=\"key\"").await? < 2 {
        wait_until(begun, "the purge is received").await?;
    }
    let late = start_one(&origin, &redis.url(), "").await?;
    wait_ready(&late.0, 3).await?;
    for (cache, language) in [(caches.at(0), "de"), (caches.at(1), "fr"), (&late.0, "de")] {
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let stale = ask_in(cache, language).await?;
            let status = stale.field("cache-status").unwrap_or_default().to_owned();
            assert_eq!(stale.text(), language, "{status}");
            assert!(status.contains("; hit; ttl=0") || status.contains("; hit; ttl=-"), "{status}");
            statuses.push(status);
        }
        // The first one may name the tier.
        assert!(statuses[1..].iter().all(|one| one.contains("soft-purged")), "{statuses:?}");
    }
    let conditional = || origin.received().iter().filter(|one| one.is_conditional()).count();
    origin.wait_requests(4).await?;
    assert_eq!((origin.requests(), conditional()), (4, 2), "one refresh for each variant");
    gate.open();
    for (language, cache) in [("de", caches.at(0)), ("fr", caches.at(1)), ("de", &late.0)] {
        let begun = Instant::now();
        loop {
            let fresh = ask_in(cache, language).await?;
            let status = fresh.field("cache-status").unwrap_or_default().to_owned();
            assert_eq!(fresh.text(), language, "{status}");
            if is_hit(&fresh) && !status.contains("soft-purged") {
                break;
            }
            wait_until(begun, &status).await?;
        }
    }
    assert_eq!(conditional(), 2);
    Ok(())
}

#[tokio::test]
async fn a_purge_by_prefix_reaches_every_instance() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let origin = counting(Duration::ZERO).await?;
    let caches = Caches::start(2, &origin, &redis.url()).await?;
    for path in ["/items/1", "/other"] {
        all_get(&caches, path).await?;
    }
    assert_eq!(origin.requests(), 2);
    let (code, said) = purge(caches.at(0), &["--prefix", "test.example/items", "--hard"]).await?;
    assert!(code == Some(0) && said.contains("instances: 2"), "{said}");
    let begun = Instant::now();
    while metric(caches.at(1), "forebay_invalidations_received_total", "kind=\"prefix\"").await? < 1
    {
        wait_until(begun, "it was not heard").await?;
    }
    assert!(!is_hit(&get(caches.at(1), "/items/1").await?));
    assert!(all_get(&caches, "/other").await?.iter().all(is_hit));
    assert_eq!((origin.requests_to("/items/1"), origin.requests_to("/other")), (2, 1));
    // An instance that starts later does not find the entry either.
    purge(caches.at(0), &["--prefix", "/items/", "--hard"]).await?;
    let later = start_one(&origin, &redis.url(), "").await?;
    wait_ready(&later.0, 2).await?;
    assert!(!is_hit(&get(&later.0, "/items/1").await?));
    assert!(is_hit(&get(&later.0, "/other").await?));
    Ok(())
}

/// Origin with one page, whose version is a counter that the test increments.
async fn versions() -> anyhow::Result<(Origin, Arc<AtomicU64>)> {
    let version = Arc::new(AtomicU64::new(0));
    let shown = version.clone();
    let answer = move |_: &_| fresh(shown.load(Ordering::SeqCst).to_string());
    Ok((Origin::start(answer).await?, version))
}

/// Purges the page through the admin listener, without a process.
async fn purge_page(cache: &Launched) -> anyhow::Result<()> {
    let request = crate::world::to_admin(cache, "POST", "/purge")?;
    let body = r#"{"url":"http://test.example/a","hard":true}"#;
    let request = request.field("Content-Type", "application/json").body(body);
    let reply = ask(admin_of(cache)?, &request).await?;
    anyhow::ensure!(reply.status == 200, "{}: {}", reply.status, reply.text());
    Ok(())
}

#[tokio::test]
async fn a_purge_at_one_instance_is_visible_at_the_other() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let (origin, version) = versions().await?;
    let caches = Caches::start(2, &origin, &redis.url()).await?;
    for written in 1..=50 {
        all_get(&caches, "/a").await?;
        version.store(written, Ordering::SeqCst);
        purge_page(caches.at(0)).await?;
        let begun = Instant::now();
        while get(caches.at(1), "/a").await?.text() != written.to_string() {
            wait_until(begun, "it is never read").await?;
        }
        let took = begun.elapsed();
        assert!(took <= NOISE, "{took:?}");
    }
    Ok(())
}

/// Maximum age of purged entries at a strict instance without a bus: the time that silence is
/// trusted, plus one confirmation that was under way.
const STRICT_BOUND: Duration = Duration::from_millis(1_300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_instance_without_a_bus_serves_nothing_purged_before_the_bound()
-> anyhow::Result<()> {
    const WRITES: u64 = 100;
    let redis = RedisLaunch::new().start().await?;
    let proxy = FaultProxy::start(redis.address()).await?;
    let (origin, version) = versions().await?;
    let writer = start_one(&origin, &redis.url(), "").await?;
    let through = format!("redis://{}", proxy.address());
    let file = format!(
        "[redis]\nurl = \"{through}\"\nread_timeout = \"100ms\"\nwhen_blind = \"strict\"\n"
    );
    let file = ConfigFile::of(&serving(&origin.url(), &file, ""))?;
    let reader = file.serve().await?;
    wait_ready(&reader, 2).await?;
    let mut acknowledged: Vec<(Instant, u64)> = vec![(Instant::now(), 0)];
    let mut reads: Vec<(Instant, u64)> = Vec::new();
    let mut dice = 7_u64;
    for written in 1..=WRITES {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match (dice >> 33) % 5 {
            0 => proxy.set(Faults::flow(Flow::Frozen)),
            1 => proxy.set(Faults::flow(Flow::BlackHole)),
            2 => proxy.reset_all(),
            3 => proxy.set(Faults { refuses: true, ..Faults::default() }),
            _ => proxy.set(Faults::default()),
        }
        version.store(written, Ordering::SeqCst);
        purge_page(&writer.0).await?;
        acknowledged.push((Instant::now(), written));
        for _ in 0..6 {
            let asked = Instant::now();
            let reply = get(&reader, "/a").await?;
            assert_eq!(reply.status, 200, "a cut link is nobody's error");
            reads.push((asked, reply.text().parse()?));
            // The next read, up to 40 ms later.
            let next = asked + Duration::from_millis((dice >> 40) % 40);
            tokio::time::interval_at(next.into(), SETTLE_MAX).tick().await;
        }
    }
    let stale = |(asked, read): &&(Instant, u64)| {
        let known = acknowledged.iter().rev().find(|(at, _)| *at + STRICT_BOUND <= *asked);
        known.is_some_and(|(_, least)| read < least)
    };
    let late: Vec<_> = reads.iter().filter(stale).collect();
    assert!(late.is_empty(), "{} of {} reads were too old", late.len(), reads.len());
    assert!(metric(&reader, "forebay_bus_events_total", "result=\"lost\"").await? > 0);
    // After the fault, entries are confirmed again.
    proxy.set(Faults::default());
    wait_ready(&reader, 2).await?;
    assert_eq!(get(&reader, "/a").await?.text(), WRITES.to_string());
    Ok(())
}

#[tokio::test]
async fn an_available_instance_without_a_bus_serves_on_with_the_detail_suspect()
-> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let proxy = FaultProxy::start(redis.address()).await?;
    let origin = counting(Duration::ZERO).await?;
    let (cache, _file) = start_one(&origin, &format!("redis://{}", proxy.address()), "").await?;
    wait_ready(&cache, 1).await?;
    get(&cache, "/a").await?;
    let sure = get(&cache, "/a").await?;
    assert!(is_hit(&sure) && !sure.field("cache-status").unwrap_or_default().contains("detail"));
    proxy.set(Faults::flow(Flow::Frozen));
    wait_health(&cache, |health| health["cluster"]["bus"] == "lost").await?;
    let said = get(&cache, "/a").await?;
    let said = said.field("cache-status").unwrap_or_default().to_owned();
    assert!(said.starts_with("forebay; hit; ") && said.ends_with("; detail=suspect"), "{said}");
    assert_eq!(health(&cache).await?["state"], "degraded");
    assert_eq!(metric(&cache, "forebay_bus_state", "").await?, 2);
    assert_eq!(origin.requests(), 1);
    proxy.set(Faults::default());
    wait_ready(&cache, 1).await?;
    let said = get(&cache, "/a").await?;
    let said = said.field("cache-status").unwrap_or_default().to_owned();
    // After the reconnect, entries are revalidated if purges may have been missed.
    assert!(said.starts_with("forebay; hit; "), "{said}");
    Ok(())
}

#[tokio::test]
async fn without_redis_each_instance_fetches_once_and_later_they_share_again() -> anyhow::Result<()>
{
    let redis = RedisLaunch::new().start().await?;
    let origin = counting(Duration::from_millis(100)).await?;
    let caches = Caches::start(3, &origin, &redis.url()).await?;
    let port = redis.kill().await?;
    let replies = crowds(&caches, 25, "/a").await?;
    assert!(replies.iter().all(|reply| reply.status == 200));
    assert!(origin.requests() <= 3, "{}", origin.requests());
    let (code, said) = purge(caches.at(0), &["--all", "--hard"]).await?;
    assert!(code == Some(1) && said.contains("could not be sent to"), "{said}");
    let kept = get(caches.at(0), "/a").await?;
    assert!(!is_hit(&kept), "it holds here");
    let _redis = RedisLaunch::new().port(port).start().await?;
    for cache in caches.all() {
        wait_ready(cache, 3).await?;
    }
    // The purge that could not be published before has been published by now.
    let begun = Instant::now();
    while metric(caches.at(1), "forebay_invalidations_received_total", "kind=\"all\"").await? < 1 {
        wait_until(begun, "it was never told").await?;
    }
    let before = origin.requests();
    let replies = crowds(&caches, 25, "/b").await?;
    assert!(replies.iter().all(|reply| reply.status == 200));
    assert_eq!(origin.requests() - before, 1, "one for all again");
    Ok(())
}

#[tokio::test]
async fn with_coalesce_cluster_off_each_instance_fetches() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let gate = Gate::of(2);
    let together = gate.clone();
    let origin = Origin::start(move |_| fresh("hello").arrive(&together).wait(&together)).await?;
    let top = format!("[redis]\nurl = \"{}\"\n{PATIENT}", redis.url());
    let file = ConfigFile::of(&serving(&origin.url(), &top, "coalesce_cluster = false"))?;
    let caches = try_join_all([file.serve(), file.serve()]).await?;
    for cache in &caches {
        wait_ready(cache, 2).await?;
    }
    // Each fetch waits until the other one has begun.
    let replies = join_all(caches.iter().map(|cache| get(cache, "/a"))).await;
    for reply in replies {
        assert_eq!(reply?.text(), "hello");
    }
    assert_eq!(origin.requests(), 2);
    Ok(())
}
