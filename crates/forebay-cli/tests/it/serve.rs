//! Basic operation of a running cache.

use std::collections::BTreeSet;

use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};

use crate::world::{ConfigFile, fresh_origin, get, is_hit, serve, wait_requests};

#[tokio::test]
async fn the_second_request_is_a_hit() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let cache = serve(&origin).await?;
    let first = get(&cache, "/a").await?;
    assert_eq!((first.status, first.text().as_ref(), is_hit(&first)), (200, "hello", false));
    let second = get(&cache, "/a").await?;
    assert_eq!((second.status, second.text().as_ref(), is_hit(&second)), (200, "hello", true));
    assert!(second.field("age").is_some());
    assert_eq!(origin.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn all_threads_share_one_cache() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let file = ConfigFile::serving(&origin.url(), "threads = 2", "")?;
    let cache = file.serve().await?;
    // Connections are distributed round-robin, so each thread gets four of them.
    for number in 0..8 {
        let mut client = Client::connect(cache.address()).await?;
        let reply = client.ask(&Request::get("/shared")).await?;
        assert_eq!((reply.status, is_hit(&reply)), (200, number > 0), "connection {number}");
    }
    assert_eq!(origin.requests(), 1);
    wait_requests(&cache, "cache=\"hit\"", 7).await?;
    if cfg!(target_os = "linux") {
        assert_eq!(workers_of(cache.pid())?, ["forebay-0", "forebay-1"]);
    }
    Ok(())
}

/// Names of the threads that serve connections, from /proc.
fn workers_of(pid: u32) -> anyhow::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        names.insert(std::fs::read_to_string(thread?.path().join("comm"))?.trim().to_owned());
    }
    let is_worker = |name: &String| {
        name.strip_prefix("forebay-").is_some_and(|number| number.parse::<usize>().is_ok())
    };
    Ok(names.into_iter().filter(is_worker).collect())
}

/// In huge pages, an idle connection takes the whole length of its buffers.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn memory_is_resident_in_small_pages() -> anyhow::Result<()> {
    let cache = serve(&fresh_origin().await?).await?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", cache.pid()))?;
    let enabled = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    // A kernel without huge pages has no such line.
    assert!(enabled.is_none_or(|enabled| enabled.trim() == "0"), "{status}");
    Ok(())
}

#[tokio::test]
async fn the_memory_tier_has_the_configured_size() -> anyhow::Result<()> {
    let answer = Answer::ok(vec![b'x'; 32 << 10]).field("Cache-Control", "max-age=60");
    let origin = Origin::always(answer).await?;
    let small = ConfigFile::serving(&origin.url(), "[memory]\nsize = \"16KiB\"", "")?;
    let small = small.serve().await?;
    for fetches in 1..=2 {
        assert_eq!(get(&small, "/large").await?.body_length(), 32 << 10);
        assert_eq!(origin.requests(), fetches);
    }
    let cache = serve(&origin).await?;
    for _ in 0..2 {
        assert_eq!(get(&cache, "/large").await?.body_length(), 32 << 10);
    }
    assert_eq!(origin.requests(), 3);
    Ok(())
}
