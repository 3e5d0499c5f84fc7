//! Typed caches that share a Redis: as in several processes, each with an engine of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forebay::codec::{Codec, MessagePack};
use forebay::{Answer, Cache, Cluster, Error, Memory, Tier};
use forebay_engine::{Clock, SystemClock};
use forebay_redis::{EndpointSettings, Redis, Settings, SharingSettings};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::task::JoinSet;

/// How long something may take that happens behind the scenes.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// A busy machine is not taken for a Redis that fails.
const PATIENT: Duration = Duration::from_secs(5);

/// As many caches of the same name, which hear each other.
async fn caches(count: usize, redis: &RedisServer) -> anyhow::Result<Vec<Cache<String>>> {
    let caches: Vec<_> = (0..count).map(|_| cache(redis)).collect::<anyhow::Result<_>>()?;
    for cache in &caches {
        wait(|| cache.bus_status().is_some_and(|bus| bus.connected)).await?;
    }
    Ok(caches)
}

fn cache(redis: &RedisServer) -> anyhow::Result<Cache<String>> {
    let nearest = EndpointSettings {
        read_timeout: PATIENT,
        write_timeout: PATIENT,
        ..EndpointSettings::at(redis.url())
    };
    let sharing = Some(SharingSettings::default());
    let settings = Settings { sharing, ..Settings::new(nearest) };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let redis = Arc::new(Redis::connect(settings, clock, Arc::new(()))?);
    let tier: Arc<dyn Tier> = redis.clone();
    let cache = Cache::builder("texts")
        .memory(Memory::entries(1_000))
        .ttl(Duration::from_secs(60))
        .tiers(Codec::new(MessagePack), [tier])
        .cluster(Cluster::new(redis.clone(), redis))
        .build()?;
    Ok(cache)
}

/// A moment later.
async fn look_again() {
    let next = Instant::now() + Duration::from_millis(2);
    tokio::time::interval_at(next.into(), SETTLE_MAX).tick().await;
}

async fn wait(is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so() {
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "it never came");
        look_again().await;
    }
    Ok(())
}

/// Until a value is not found any more.
async fn wait_gone(cache: &Cache<String>, key: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    while cache.get(key).await.is_some() {
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{key} is still there");
        look_again().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_callers_of_four_caches_are_one_load() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let caches = caches(4, &redis).await?;
    let loads = Arc::new(AtomicUsize::new(0));
    for round in 1..=10 {
        let mut callers = JoinSet::new();
        for cache in &caches {
            for _ in 0..250 {
                let (cache, loads) = (cache.clone(), loads.clone());
                callers.spawn(async move {
                    let load = || async move {
                        loads.fetch_add(1, Ordering::SeqCst);
                        let done = Instant::now() + Duration::from_millis(50);
                        tokio::time::interval_at(done.into(), SETTLE_MAX).tick().await;
                        Ok::<_, Error>("loaded".to_owned())
                    };
                    cache.get_or_load(format!("key:{round}"), load).await
                });
            }
        }
        while let Some(called) = callers.join_next().await {
            assert_eq!(*called??, "loaded");
        }
        assert_eq!(loads.load(Ordering::SeqCst), round, "one load a round");
    }
    Ok(())
}

#[tokio::test]
async fn what_one_removes_or_invalidates_is_gone_in_all() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let caches = caches(3, &redis).await?;
    let fill = async |key: &'static str| -> anyhow::Result<()> {
        for cache in &caches {
            let load = |_| async { Ok::<_, Error>(Answer::value("it".to_owned()).tags(["red"])) };
            cache.get_or_load_with(key, load).await?;
            assert!(cache.get(key).await.is_some());
        }
        Ok(())
    };
    let gone = async |key: &'static str| -> anyhow::Result<()> {
        for cache in &caches {
            wait_gone(cache, key).await?;
        }
        Ok(())
    };
    fill("a").await?;
    assert!(caches[0].remove("a").await);
    gone("a").await?;
    for key in ["b", "c"] {
        fill(key).await?;
    }
    caches[1].invalidate_tag("red").await;
    gone("b").await?;
    gone("c").await?;
    for key in ["b", "c"] {
        fill(key).await?;
    }
    caches[2].invalidate_all().await;
    gone("b").await?;
    gone("c").await
}

#[tokio::test]
async fn without_redis_each_loads_for_itself_and_says_what_waits() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let caches = caches(2, &redis).await?;
    redis.kill().await?;
    let loads = Arc::new(AtomicUsize::new(0));
    for cache in &caches {
        for _ in 0..3 {
            let loads = loads.clone();
            let load = || async move {
                loads.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Error>("loaded".to_owned())
            };
            assert_eq!(*cache.get_or_load("key", load).await?, "loaded");
        }
    }
    assert_eq!(loads.load(Ordering::SeqCst), 2);
    caches[0].invalidate_all().await;
    assert!(caches[0].get("key").await.is_none(), "it holds here at once");
    assert_eq!(caches[0].bus_status().map(|bus| bus.unpublished), Some(1));
    wait(|| caches[0].bus_status().is_some_and(|bus| !bus.connected)).await
}

#[test]
fn a_cluster_shares_one_of_its_tiers() -> anyhow::Result<()> {
    let settings = Settings::new(EndpointSettings::at("redis://127.0.0.1:1"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let redis = Arc::new(Redis::connect(settings, clock, Arc::new(()))?);
    let builder = Cache::<u64>::builder("numbers").memory(Memory::entries(10));
    let refused = builder.cluster(Cluster::new(redis.clone(), redis)).build();
    let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains("none of these is shared"), "{said}");
    Ok(())
}
