//! Caches of one process that share a Redis, each with its own engine, like separate instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forebay::codec::{Codec, MessagePack};
use forebay::{Answer, Cache, Cluster, Error, Memory, Tier};
use forebay_engine::{Clock, SystemClock};
use forebay_redis::{EndpointSettings, Redis, Settings, SharingSettings};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::task::JoinSet;

/// Maximum time until an effect in another instance is visible.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Timeouts of Redis operations, long enough that a busy machine does not look like a failed Redis.
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

/// Builds caches of one name, and waits until their bus is connected.
async fn caches(count: usize, redis: &RedisServer) -> anyhow::Result<Vec<Cache<String>>> {
    let caches: Vec<_> = (0..count).map(|_| cache(redis)).collect::<anyhow::Result<_>>()?;
    for cache in &caches {
        wait(|| cache.bus_status().is_some_and(|bus| bus.connected)).await?;
    }
    Ok(caches)
}

fn cache(redis: &RedisServer) -> anyhow::Result<Cache<String>> {
    let nearest = EndpointSettings {
        read_timeout: REDIS_TIMEOUT,
        write_timeout: REDIS_TIMEOUT,
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

/// Waits until the next poll.
async fn next_poll() {
    let next = Instant::now() + Duration::from_millis(2);
    tokio::time::interval_at(next.into(), SETTLE_MAX).tick().await;
}

async fn wait(holds: impl Fn() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !holds() {
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "timeout");
        next_poll().await;
    }
    Ok(())
}

/// Waits until a key has no value.
async fn wait_gone(cache: &Cache<String>, key: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    while cache.get(key).await.is_some() {
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{key} is still there");
        next_poll().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_callers_of_four_instances_share_one_load() -> anyhow::Result<()> {
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
async fn an_invalidation_reaches_all_instances() -> anyhow::Result<()> {
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
async fn without_redis_each_instance_loads_and_reports_unpublished_invalidations()
-> anyhow::Result<()> {
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
    assert!(caches[0].get("key").await.is_none(), "the invalidation takes effect locally");
    assert_eq!(caches[0].bus_status().map(|bus| bus.unpublished), Some(1));
    wait(|| caches[0].bus_status().is_some_and(|bus| !bus.connected)).await
}

#[test]
fn a_cluster_without_a_shared_tier_is_rejected() -> anyhow::Result<()> {
    let settings = Settings::new(EndpointSettings::at("redis://127.0.0.1:1"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let redis = Arc::new(Redis::connect(settings, clock, Arc::new(()))?);
    let builder = Cache::<u64>::builder("numbers").memory(Memory::entries(10));
    let refused = builder.cluster(Cluster::new(redis.clone(), redis)).build();
    let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains("none of the `tiers` is shared"), "{said}");
    Ok(())
}
