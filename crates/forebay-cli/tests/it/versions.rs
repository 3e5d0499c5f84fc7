//! This version beside another one, during a rolling upgrade: both share a Redis and its bus.
//!
//! `cargo xtask versions` builds the other one. It is ignored here, because it needs that binary.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use forebay_testkit::client::{Request, crowd};
use forebay_testkit::launch::{Launch, Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::RedisLaunch;

use crate::cluster::{PATIENT, wait_ready, wait_until};
use crate::world::{BINARY, END_MAX, admin_of, ask, get, is_hit, metric, serving, to_admin};

/// Variable with the path of the other binary.
const OTHER: &str = "FOREBAY_OTHER_BINARY";

/// Number of pages that each version stores for the other one.
const PAGES: usize = 20;

/// Number of clients of each instance that request one cold page at once.
const CROWD: usize = 50;

/// Starts a binary with this Redis.
async fn start(binary: &str, origin: &Origin, redis: &str) -> anyhow::Result<Launched> {
    let top = format!("[redis]\nurl = \"{redis}\"\n{PATIENT}");
    Launch::binary(binary).args(["serve"]).config(&serving(&origin.url(), &top, ""))?.start().await
}

/// Purges by tag at an instance, and returns the number of instances that it names.
async fn purge(cache: &Launched, tag: &str) -> anyhow::Result<u64> {
    let request = to_admin(cache, "POST", "/purge")?.field("Content-Type", "application/json");
    let request = request.body(format!(r#"{{"tag":"{tag}","hard":true}}"#));
    let reply = ask(admin_of(cache)?, &request).await?;
    ensure!(reply.status == 200, "{} {}", reply.status, reply.text());
    let told: serde_json::Value = serde_json::from_slice(reply.body())?;
    told["instances"].as_u64().with_context(|| told.to_string())
}

/// Sum of the values that this version has rejected, and its hits in Redis.
async fn read(cache: &Launched) -> anyhow::Result<[u64; 3]> {
    let hits = metric(cache, "forebay_lookups_total", "tier=\"redis\",result=\"hit\"").await?;
    let other = metric(cache, "forebay_tier_rejected_total", "other-version").await?;
    let rejected = metric(cache, "forebay_tier_rejected_total", "").await?;
    Ok([hits, other, rejected - other])
}

#[tokio::test]
#[ignore = "cargo xtask versions builds the other binary and runs it"]
async fn another_version_shares_redis_and_the_bus() -> anyhow::Result<()> {
    let other = std::env::var(OTHER).with_context(|| format!("{OTHER} is not set"))?;
    let redis = RedisLaunch::new().start().await?;
    let answer = Answer::ok("hello").field("Cache-Control", "max-age=600");
    let origin = Origin::always(answer.field("Cache-Tag", "all")).await?;
    let before = start(&other, &origin, &redis.url()).await?;
    let now = start(BINARY, &origin, &redis.url()).await?;
    for cache in [&before, &now] {
        wait_ready(cache, 2).await?;
    }
    // Each reads what the other one has stored, or counts a miss.
    for (writer, reader, name) in [(&before, &now, "before"), (&now, &before, "now")] {
        for page in 0..PAGES {
            let reply = get(writer, &format!("/{name}/{page}")).await?;
            ensure!((reply.status, reply.text().as_ref()) == (200, "hello"), "{reply:?}");
        }
        let begun = Instant::now();
        while metric(writer, "forebay_tier_writes_total", "stored").await? < PAGES as u64 {
            wait_until(begun, "the writer does not write").await?;
        }
        for page in 0..PAGES {
            let reply = get(reader, &format!("/{name}/{page}")).await?;
            ensure!((reply.status, reply.text().as_ref()) == (200, "hello"), "{reply:?}");
        }
    }
    let [hits, other_version, otherwise] = read(&now).await?;
    println!("{PAGES} values of the other version: {hits} read, {other_version} counted as misses");
    assert_eq!((hits + other_version, otherwise), (PAGES as u64, 0));
    // A purge at one of them reaches the other one.
    for (purged, observed) in [(&before, &now), (&now, &before)] {
        for page in ["/before/0", "/before/1"] {
            // The first response is a load if this version does not read values of the other one.
            get(observed, page).await?;
            ensure!(is_hit(&get(observed, page).await?), "not stored: {page}");
        }
        assert_eq!(purge(purged, "all").await?, 2, "instances of the purge");
        let begun = Instant::now();
        while is_hit(&get(observed, "/before/1").await?) {
            wait_until(begun, "a purged entry is served").await?;
        }
    }
    // One fetch for both, or one for each if their leases differ.
    let crowds =
        [&before, &now].map(|cache| crowd(CROWD, cache.address(), |_| Request::get("/cold")));
    let replies = futures_util::future::try_join_all(crowds).await?;
    let replies: Vec<_> = replies.into_iter().flatten().collect();
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    let fetches = origin.requests_to("/cold");
    println!("{fetches} fetches for {} clients", replies.len());
    assert!((1..=2).contains(&fetches), "{fetches}");
    for mut cache in [before, now] {
        cache.signal(Signal::Term).await?;
        assert!(cache.wait_exit(END_MAX).await?.success());
        let failed = cache
            .stderr()
            .into_iter()
            .find(|line| line.contains("ERROR") || line.contains("panicked"));
        assert_eq!(failed, None);
    }
    Ok(())
}
