//! Shared Redis tier: hits for other instances, and the cost of failures.

use std::time::{Duration, Instant};

use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use serde_json::Value;

use crate::world::{
    ANYWHERE, ConfigFile, END_MAX, admin_of, ask, forebay, fresh_origin, get, get_admin, is_hit,
    metric, nowhere, serving, to_admin,
};

/// Maximum wait for background work, such as connecting.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Number of failures that opens the circuit breaker.
const ENOUGH: usize = 12;

async fn serve(origin: &Origin, redis: &str) -> anyhow::Result<Launched> {
    forebay(["serve", "--origin", &origin.url(), "--redis", redis]).args(ANYWHERE).start().await
}

/// Cache that is connected to its Redis.
async fn serve_well(origin: &Origin, redis: &RedisServer) -> anyhow::Result<Launched> {
    let cache = serve(origin, &redis.url()).await?;
    wait_state(&cache, "ready").await?;
    Ok(cache)
}

async fn page(cache: &Launched, path: &str) -> anyhow::Result<Value> {
    let reply = get_admin(cache, path).await?;
    assert_eq!(reply.status, 200, "{path}");
    Ok(serde_json::from_slice(reply.body())?)
}

/// Polls until the overall state is `state`; each poll opens a connection, which is a pause.
async fn wait_state(cache: &Launched, state: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let health = page(cache, "/healthz").await?;
        if health["state"] == state {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "not {state}: {health}");
    }
}

/// Waits until a metric of the shared tier has reached a number.
async fn wait_metric(cache: &Launched, sample: Sample, least: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let Sample { name, label } = sample;
    while metric(cache, name, label).await? < least {
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "{name} {label} stays below {least}");
    }
    Ok(())
}

/// Name of a metric and a label that selects its samples.
#[derive(Clone, Copy)]
struct Sample {
    name: &'static str,
    label: &'static str,
}

const STORED: Sample = Sample { name: "forebay_tier_writes_total", label: "result=\"stored\"" };
const HITS: Sample =
    Sample { name: "forebay_lookups_total", label: "tier=\"redis\",result=\"hit\"" };
const OPENED: Sample = Sample { name: "forebay_tier_opened_total", label: "tier=\"redis\"" };

/// Number of operations in Redis so far; a memory hit causes none.
async fn asked(cache: &Launched) -> anyhow::Result<u64> {
    metric(cache, "forebay_tier_seconds_count", "tier=\"redis\"").await
}

#[tokio::test]
async fn an_entry_fetched_by_one_instance_is_a_hit_at_the_other() -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, fresh_origin().await?);
    let one = serve_well(&origin, &redis).await?;
    let other = serve_well(&origin, &redis).await?;
    assert!(!is_hit(&get(&one, "/a").await?));
    wait_metric(&one, STORED, 1).await?;
    let reply = get(&other, "/a").await?;
    let status = reply.field("cache-status").unwrap_or_default().to_owned();
    assert_eq!((reply.status, reply.text().as_ref()), (200, "hello"));
    assert!(status.starts_with("forebay; hit; ttl=") && status.ends_with("; detail=redis"));
    assert!(reply.field("age").is_some());
    assert_eq!(origin.requests(), 1);
    assert_eq!(metric(&other, HITS.name, HITS.label).await?, 1);
    assert_eq!(metric(&other, "forebay_loads_total", "").await?, 0);
    // The entry is in memory now, so Redis is not read again.
    let before = asked(&other).await?;
    let again = get(&other, "/a").await?;
    assert!(is_hit(&again) && !again.field("cache-status").unwrap_or_default().contains("redis"));
    assert_eq!(asked(&other).await?, before);
    assert_eq!(origin.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn after_a_restart_entries_are_hits_from_redis() -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, fresh_origin().await?);
    let mut first = serve_well(&origin, &redis).await?;
    for path in ["/a", "/b", "/c"] {
        get(&first, path).await?;
    }
    wait_metric(&first, STORED, 3).await?;
    first.signal(Signal::Term).await?;
    assert!(first.wait_exit(END_MAX).await?.success());
    let second = forebay(["serve"]).args(ANYWHERE).args(["--origin", &origin.url()]);
    let second = second.env("FOREBAY_REDIS", redis.url()).start().await?;
    wait_state(&second, "ready").await?;
    for path in ["/a", "/b", "/c"] {
        assert!(is_hit(&get(&second, path).await?), "{path}");
    }
    assert_eq!(origin.requests(), 3);
    Ok(())
}

#[tokio::test]
async fn a_purge_removes_entries_from_redis() -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, fresh_origin().await?);
    let one = serve_well(&origin, &redis).await?;
    for path in ["/a", "/b"] {
        get(&one, path).await?;
    }
    wait_metric(&one, STORED, 2).await?;
    let purge = to_admin(&one, "POST", "/purge")?.field("Content-Type", "application/json");
    let purge = purge.body(r#"{"url":"http://test.example/a","hard":true}"#);
    let purged: Value = serde_json::from_slice(ask(admin_of(&one)?, &purge).await?.body())?;
    assert_eq!((&purged["instances"], &purged["purged"]), (&1.into(), &1.into()), "{purged}");
    // The id is the position on the bus: milliseconds and a sequence number.
    assert!(purged["id"].as_str().is_some_and(|id| id.contains('-')), "{purged}");
    let other = serve_well(&origin, &redis).await?;
    assert!(!is_hit(&get(&other, "/a").await?));
    assert!(is_hit(&get(&other, "/b").await?), "what was not purged is there");
    Ok(())
}

/// Number of lookups in Redis so far, with and without a request for the lease.
async fn looked_up(cache: &Launched) -> anyhow::Result<u64> {
    let mut sum = 0;
    for label in ["tier=\"redis\",op=\"open\"", "tier=\"redis\",op=\"lease\""] {
        sum += metric(cache, "forebay_tier_seconds_count", label).await?;
    }
    Ok(sum)
}

/// A request that the origin has to answer.
async fn miss(cache: &Launched, path: &str) -> anyhow::Result<()> {
    let reply = get(cache, path).await?;
    assert_eq!((reply.status, is_hit(&reply)), (200, false), "{path}");
    Ok(())
}

/// While Redis does not answer, a miss reads it once at most, and not at all when the breaker is
/// open. No request fails, memory hits are not affected, and Redis is used again when it answers
/// again.
async fn endures(cache: &Launched, origin: &Origin) -> anyhow::Result<()> {
    let begun = looked_up(cache).await?;
    for number in 0..ENOUGH {
        miss(cache, &format!("/down/{number}")).await?;
    }
    wait_metric(cache, OPENED, 1).await?;
    let opened = looked_up(cache).await?;
    assert!((1..=ENOUGH as u64).contains(&(opened - begun)), "{begun} to {opened}");
    for number in 0..ENOUGH {
        miss(cache, &format!("/open/{number}")).await?;
    }
    assert_eq!(looked_up(cache).await?, opened, "a bypassed tier is not read");
    let fetched = origin.requests();
    assert!(is_hit(&get(cache, "/hot").await?));
    assert_eq!(origin.requests(), fetched);
    assert_eq!(page(cache, "/healthz").await?["state"], "degraded");
    assert_eq!(page(cache, "/healthz").await?["tiers"]["redis"]["state"], "bypassed");
    assert!(metric(cache, "forebay_tier_state", "tier=\"redis\"").await? > 0);
    let ready = page(cache, "/readyz").await?;
    assert_eq!((&ready["ready"], &ready["state"]), (&true.into(), &"degraded".into()));
    Ok(())
}

/// Reads resume after a successful probe. A write that comes too early is skipped; the next one is
/// not.
async fn is_used_again(cache: &Launched) -> anyhow::Result<()> {
    wait_state(cache, "ready").await?;
    let before = metric(cache, STORED.name, STORED.label).await?;
    let begun = Instant::now();
    for number in 0.. {
        miss(cache, &format!("/again/{number}")).await?;
        if metric(cache, STORED.name, STORED.label).await? > before {
            break;
        }
        anyhow::ensure!(begun.elapsed() < SETTLE_MAX, "nothing is stored after {number} fetches");
    }
    assert_eq!(metric(cache, "forebay_tier_state", "tier=\"redis\"").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_frozen_redis_costs_one_read_timeout_and_then_nothing() -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, fresh_origin().await?);
    let cache = serve_well(&origin, &redis).await?;
    miss(&cache, "/hot").await?;
    wait_metric(&cache, STORED, 1).await?;
    redis.freeze().await?;
    endures(&cache, &origin).await?;
    redis.thaw().await?;
    is_used_again(&cache).await
}

#[tokio::test]
async fn a_killed_redis_is_used_again_after_its_restart() -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, fresh_origin().await?);
    let cache = serve_well(&origin, &redis).await?;
    miss(&cache, "/hot").await?;
    wait_metric(&cache, STORED, 1).await?;
    let port = redis.kill().await?;
    endures(&cache, &origin).await?;
    let _back = RedisLaunch::new().port(port).start().await?;
    is_used_again(&cache).await
}

#[tokio::test]
async fn a_redis_that_is_unreachable_at_the_start_is_a_warning() -> anyhow::Result<()> {
    let (address, origin) = (nowhere()?, fresh_origin().await?);
    let cache = serve(&origin, &format!("redis://{address}")).await?;
    let said = cache.wait_stderr(&format!("Redis: server redis://{address}: ")).await?;
    assert!(said.contains("WARN"), "{said}");
    miss(&cache, "/hot").await?;
    endures(&cache, &origin).await?;
    let endpoint = &page(&cache, "/healthz").await?["tiers"]["redis"]["endpoints"][0];
    assert_eq!(endpoint["address"], format!("redis://{address}"));
    assert_eq!((&endpoint["answers"], &endpoint["used"]), (&false.into(), &false.into()));
    let _there = RedisLaunch::new().port(address.port()).start().await?;
    is_used_again(&cache).await
}

#[tokio::test]
async fn a_refused_login_is_logged_once_and_without_the_secret() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().config("requirepass right").start().await?;
    let origin = fresh_origin().await?;
    let text = format!("[redis]\nurl = \"{}\"\npassword_file = \"password\"", redis.url());
    let file = ConfigFile::serving(&origin.url(), &text, "")?;
    std::fs::write(file.folder.path().join("password"), "hidden\n")?;
    let cache = file.serve().await?;
    cache.wait_stderr(&format!("Redis: server {}: Redis denies access: ", redis.url())).await?;
    for number in 0..ENOUGH {
        assert_eq!(get(&cache, &format!("/{number}")).await?.status, 200);
    }
    let told = cache.stderr();
    assert_eq!(
        told.iter().filter(|line| line.contains("Redis denies access")).count(),
        1,
        "{told:#?}"
    );
    assert!(!told.iter().any(|line| line.contains("hidden")), "{told:#?}");
    let health = page(&cache, "/healthz").await?;
    assert_eq!(health["state"], "degraded");
    assert!(!health.to_string().contains("hidden"), "{health}");
    // With the right password the login succeeds.
    std::fs::write(file.folder.path().join("password"), "right\n")?;
    wait_state(&file.serve().await?, "ready").await
}

#[tokio::test]
async fn a_missing_database_is_logged_once() -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, fresh_origin().await?);
    let cache = serve(&origin, &format!("{}/99", redis.url())).await?;
    let said = cache.wait_stderr("DB index is out of range").await?;
    assert!(said.contains(&format!("Redis: server {}: ", redis.url())), "{said}");
    assert_eq!(get(&cache, "/").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn oversized_and_unstorable_responses_are_not_shared() -> anyhow::Result<()> {
    let redis = RedisLaunch::new().start().await?;
    let origin = Origin::start(|asked| match asked.path() {
        "/large" => Answer::ok(vec![b'x'; 9 << 10]).field("Cache-Control", "max-age=60"),
        "/private" => Answer::ok("mine").field("Cache-Control", "private"),
        _ => Answer::ok("small").field("Cache-Control", "max-age=60"),
    });
    let origin = origin.await?;
    let text =
        format!("[redis]\nurl = \"{}\"\nobject_max = \"8KiB\"\nnamespace = \"test\"", redis.url());
    let file = ConfigFile::serving(&origin.url(), &text, "")?;
    let cache = file.serve().await?;
    wait_state(&cache, "ready").await?;
    for path in ["/large", "/private", "/small"] {
        assert_eq!(get(&cache, path).await?.status, 200);
    }
    wait_metric(&cache, STORED, 1).await?;
    wait_metric(&cache, Sample { label: "result=\"too-large\"", ..STORED }, 1).await?;
    assert_eq!(metric(&cache, STORED.name, STORED.label).await?, 1);
    let names = redis.ask(&["KEYS", "*:d:*"]).await?.text();
    assert_eq!(names, "test:d:{shop|http|test.example|/small|}");
    Ok(())
}

#[tokio::test]
async fn a_change_of_the_redis_url_needs_a_restart() -> anyhow::Result<()> {
    let (redis, origin) = (RedisLaunch::new().start().await?, fresh_origin().await?);
    let text = |namespace: &str| {
        let top = format!("[redis]\nurl = \"{}\"\nnamespace = \"{namespace}\"", redis.url());
        serving(&origin.url(), &top, "")
    };
    let file = ConfigFile::of(&text("one"))?;
    let cache = file.serve().await?;
    file.rewrite(&text("other"))?;
    let reload = to_admin(&cache, "POST", "/reload")?.field("Content-Type", "application/json");
    let reply = ask(admin_of(&cache)?, &reload).await?;
    let taken: Value = serde_json::from_slice(reply.body())?;
    assert_eq!(taken["needs_restart"], serde_json::json!(["redis"]));
    Ok(())
}
