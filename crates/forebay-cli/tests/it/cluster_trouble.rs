//! Several instances with a misconfigured or failing Redis: the fault is reported in the log and
//! in health, each instance fetches for itself, and every client gets a response. Also refreshes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::{RedisLaunch, RedisServer};

use crate::cluster::{
    Caches, all_get, counting, crowds, fresh, health, purge, start_one, wait_health, wait_until,
};
use crate::world::{get, is_hit, metric, written};

/// Redis key of the lease for `/PATH`.
fn leases(path: &str) -> String {
    format!("forebay:l:{{shop|http|test.example|{path}|}}")
}

/// First server of the shared tier in `GET /healthz`.
async fn endpoint(cache: &Launched) -> anyhow::Result<serde_json::Value> {
    Ok(health(cache).await?["tiers"]["redis"]["endpoints"][0].clone())
}

/// Asserts that every instance fetched at most once, and every client got a response.
fn once_each(replies: &[Reply], requests: u64, caches: u64) {
    assert!(replies.iter().all(|reply| (reply.status, &*reply.text()) == (200, "hello")));
    assert!((1..=caches).contains(&requests), "{requests} fetches by {caches} caches");
}

/// Number of log lines that contain `part`.
fn said(cache: &Launched, part: &str) -> usize {
    cache.stderr().iter().filter(|line| line.contains(part)).count()
}

#[tokio::test]
async fn a_redis_without_writes_is_reported_and_each_instance_fetches_once() -> anyhow::Result<()> {
    let master = RedisLaunch::new().start().await?;
    let redis = RedisLaunch::new().replica_of(&master).start().await?;
    let origin = counting(Duration::from_millis(100)).await?;
    let caches =
        [start_one(&origin, &redis.url(), "").await?, start_one(&origin, &redis.url(), "").await?];
    let caches = Caches(caches.into());
    for cache in caches.all() {
        wait_health(cache, |it| it["tiers"]["redis"]["endpoints"][0]["used"] == true).await?;
    }
    let replies = crowds(&caches, 25, "/a").await?;
    once_each(&replies, origin.requests(), 2);
    for cache in caches.all() {
        let unshared = "leases are suspended, so each instance loads for itself: Redis refuses \
                        writes";
        cache.wait_stderr(unshared).await?;
        let endpoint = endpoint(cache).await?;
        assert_eq!(endpoint["read_only"], true, "{endpoint}");
        assert!(
            endpoint["loads_unshared"]
                .as_str()
                .is_some_and(|why| why.contains("Redis refuses writes"))
        );
        let unheard = &endpoint["purges_unheard"];
        assert!(
            unheard.as_str().is_some_and(|why| why.contains("Redis refuses writes")),
            "{endpoint}"
        );
        let health = health(cache).await?;
        assert_eq!(
            (&health["state"], &health["cluster"]["bus"]),
            (&"degraded".into(), &"lost".into())
        );
        assert_eq!(said(cache, unshared), 1, "{:#?}", cache.stderr());
    }
    let (code, told) = purge(caches.at(0), &["--tag", "red"]).await?;
    assert!(code == Some(1) && told.contains("could not be sent to"), "{told}");
    Ok(())
}

#[tokio::test]
async fn foreign_values_in_the_keys_of_leases_and_the_bus_are_reported() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let origin = counting(Duration::from_millis(100)).await?;
    let caches = Caches::start(2, &origin, &redis.url()).await?;
    redis.ask(&["SET", &leases("/a"), "garbage"]).await?;
    once_each(&crowds(&caches, 25, "/a").await?, origin.requests(), 2);
    for cache in caches.all() {
        let part = "leases are suspended, so each instance loads for itself: data of another \
                    program is stored in Redis under a name of forebay";
        cache.wait_stderr(part).await?;
        let endpoint = endpoint(cache).await?;
        assert_eq!(
            endpoint["loads_unshared"],
            "data of another program is stored in Redis under a name of forebay: remove it, or set \
             another `namespace`"
        );
        assert_eq!(health(cache).await?["state"], "degraded");
    }
    redis.ask(&["SET", "forebay:{bus}", "garbage"]).await?;
    for cache in caches.all() {
        let part = "purges of other instances are not received: data of another program";
        cache.wait_stderr(part).await?;
        wait_health(cache, |health| {
            let endpoint = &health["tiers"]["redis"]["endpoints"][0];
            health["cluster"]["bus"] == "lost" && endpoint["purges_unheard"].is_string()
        })
        .await?;
    }
    let (code, told) = purge(caches.at(0), &["--site", "shop", "--hard"]).await?;
    assert!(code == Some(1) && told.contains("could not be sent to"), "{told}");
    redis.ask(&["DEL", "forebay:{bus}", &leases("/a")]).await?;
    for cache in caches.all() {
        wait_health(cache, |health| health["cluster"]["bus"] == "heard").await?;
    }
    // One more fetch restores the lease key.
    let before = origin.requests();
    let begun = Instant::now();
    while health(caches.at(0)).await?["state"] != "ready" {
        let path = format!("/again/{:?}", begun.elapsed());
        get(caches.at(0), &path).await?;
        wait_until(begun, "it is not well again").await?;
    }
    assert!(origin.requests() > before);
    Ok(())
}

/// Fills a Redis with a memory limit until it has evicted the key `name`.
async fn drive_out(redis: &RedisServer, name: &str) -> anyhow::Result<()> {
    let junk = "x".repeat(10_000);
    let exists = async || anyhow::Ok(redis.ask(&["EXISTS", name]).await?.text() == "1");
    anyhow::ensure!(exists().await?, "{name} is not there");
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]).await?;
    redis.ask(&["CONFIG", "SET", "maxmemory", "3mb"]).await?;
    for number in 0..100_000 {
        redis.ask(&["SET", &format!("junk:{number}"), &junk]).await?;
        if !exists().await? {
            redis.ask(&["CONFIG", "SET", "maxmemory", "0"]).await?;
            return Ok(());
        }
    }
    anyhow::bail!("{name} is never dropped");
}

#[tokio::test]
async fn a_redis_that_evicts_leases_is_reported_and_every_client_is_answered() -> anyhow::Result<()>
{
    let redis = RedisLaunch::new().start().await?;
    let gate = Gate::new();
    let held = gate.clone();
    let origin = Origin::start(move |_| fresh("hello").wait(&held)).await?;
    let caches = Caches::start(2, &origin, &redis.url()).await?;
    let mut client = Client::connect(caches.at(0).address()).await?;
    client.send(&Request::get("/a")).await?;
    origin.wait_requests(1).await?;
    drive_out(&redis, &leases("/a")).await?;
    caches
        .at(0)
        .wait_stderr(
            "leases are suspended, so each instance loads for itself: Redis evicted leases",
        )
        .await?;
    let endpoint = endpoint(caches.at(0)).await?;
    let why = endpoint["loads_unshared"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("allkeys-lru"), "{endpoint}");
    assert_eq!(health(caches.at(0)).await?["state"], "degraded");
    gate.open();
    assert_eq!(client.reply().await?.text(), "hello");
    once_each(&crowds(&caches, 25, "/b").await?, origin.requests_to("/b"), 2);
    Ok(())
}

#[tokio::test]
async fn each_purge_is_acknowledged_with_the_number_of_live_instances() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let origin = counting(Duration::ZERO).await?;
    let caches = Caches::start(3, &origin, &redis.url()).await?;
    let rows: [&[&str]; 8] = [
        &["--tag", "red"],
        &["--tag", "red", "--hard"],
        &["--prefix", "test.example/items"],
        &["--prefix", "/items", "--hard"],
        &["--site", "shop"],
        &["--site", "shop", "--hard"],
        &["--all"],
        &["--all", "--hard"],
    ];
    for args in rows {
        let (code, told) = purge(caches.at(1), args).await?;
        assert_eq!(code, Some(0), "{args:?}: {told}");
        assert!(told.ends_with(": done (instances: 3)"), "{args:?}: {told}");
        let id = told.trim_start_matches("purge ").split(':').next().unwrap_or_default();
        assert_eq!(id.split('-').count(), 2, "its place on the bus: {told}");
    }
    redis.kill().await?;
    for args in rows {
        let (code, told) = purge(caches.at(1), args).await?;
        assert!(
            code == Some(1) && told.contains("could not be sent to the other instances"),
            "{told}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_key_that_another_program_deletes_in_redis_is_gone_everywhere() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let origin = counting(Duration::ZERO).await?;
    let more = "tracking = true\n[disk]\npath = \"kept\"";
    let caches = Caches::start_with(2, &origin, &redis.url(), more, "").await?;
    let name = "forebay:d:{shop|http|test.example|/a|}";
    for command in [&["DEL", name][..], &["SET", name, "garbage"]] {
        all_get(&caches, "/a").await?;
        let fetched = origin.requests_to("/a");
        for cache in caches.all() {
            // The tracking message about the other instance's copy has arrived by then.
            let begun = Instant::now();
            while !is_hit(&get(cache, "/a").await?) || !is_hit(&get(cache, "/a").await?) {
                wait_until(begun, "it is never a hit").await?;
            }
            written(cache).await?;
        }
        assert_eq!(origin.requests_to("/a"), fetched);
        let heard = async |cache| {
            metric(cache, "forebay_invalidations_received_total", "kind=\"key\"").await
        };
        let mut before = Vec::new();
        for cache in caches.all() {
            before.push(heard(cache).await?);
        }
        redis.ask(command).await?;
        for (cache, before) in caches.all().zip(before) {
            let begun = Instant::now();
            while heard(cache).await? <= before {
                wait_until(begun, "it does not hear of it").await?;
            }
        }
        all_get(&caches, "/a").await?;
        assert_eq!(origin.requests_to("/a"), fetched + 1, "it was fetched anew, once for all");
    }
    for cache in caches.all() {
        assert_eq!(health(cache).await?["state"], "ready");
        assert!(endpoint(cache).await?["writes_unheard"].is_null());
    }
    Ok(())
}

/// Origin that answers the first request with `first` and holds the others at the gate.
async fn then_held(first: Answer, gate: &Gate) -> anyhow::Result<Origin> {
    let (asked, held) = (AtomicU64::new(0), gate.clone());
    let answer = move |_: &_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => first.clone(),
        _ => fresh("new").wait(&held),
    };
    Ok(Origin::start(answer).await?)
}

/// Requests a page at all instances until `count` of them wait for the refresh of another.
async fn until_all_want_it(caches: &Caches, origin: &Origin, count: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let waiting = async || caches.sum("forebay_lease_total", "result=\"elsewhere\"").await;
    // Requests for the first response may have waited as well.
    let before = waiting().await?;
    while waiting().await? < before + count {
        for reply in all_get(caches, "/a").await? {
            assert_eq!(&*reply.text(), "old", "nobody waits for it");
        }
        wait_until(begun, "they do not want it").await?;
    }
    assert_eq!(origin.requests(), 2, "one of them refreshes it");
    Ok(())
}

async fn is_new_everywhere(caches: &Caches, origin: &Origin) -> anyhow::Result<()> {
    for cache in caches.all() {
        written(cache).await?;
        let begun = Instant::now();
        while get(cache, "/a").await?.text() != "new" {
            wait_until(begun, "it does not hear of it").await?;
        }
        assert!(is_hit(&get(cache, "/a").await?));
    }
    assert_eq!(origin.requests(), 2);
    assert_eq!(caches.sum("forebay_loads_total", "").await?, 2);
    Ok(())
}

#[tokio::test]
async fn one_of_four_caches_refreshes_what_all_have_stale() -> anyhow::Result<()> {
    let (redis, gate) = (RedisLaunch::new().start().await?, Gate::new());
    let cached = "max-age=1, stale-while-revalidate=600";
    let first = Answer::ok("old").field("Cache-Control", cached);
    let origin = then_held(first, &gate).await?;
    let caches = Caches::start(4, &origin, &redis.url()).await?;
    all_get(&caches, "/a").await?;
    assert_eq!(origin.requests(), 1);
    until_all_want_it(&caches, &origin, 3).await?;
    gate.open();
    is_new_everywhere(&caches, &origin).await
}

#[tokio::test]
async fn one_of_four_caches_refreshes_early() -> anyhow::Result<()> {
    let (redis, gate) = (RedisLaunch::new().start().await?, Gate::new());
    let slow = Answer::ok("old").field("Cache-Control", "max-age=20").delay(Duration::from_secs(1));
    let origin = then_held(slow, &gate).await?;
    let caches =
        Caches::start_with(4, &origin, &redis.url(), "", "early_refresh_beta = 10").await?;
    all_get(&caches, "/a").await?;
    assert_eq!(origin.requests(), 1);
    // Each instance decides randomly when to refresh; all do so within the lifetime.
    until_all_want_it(&caches, &origin, 3).await?;
    assert!(is_hit(&get(caches.at(0), "/a").await?), "it is fresh all the while");
    gate.open();
    is_new_everywhere(&caches, &origin).await
}
