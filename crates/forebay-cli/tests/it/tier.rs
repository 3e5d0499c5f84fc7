//! Slow, frozen or unreachable Redis, and foreign values in it, asserted by counters: tier reads,
//! loads and responses. Exact timings are measured elsewhere.

#[path = "../../../forebay-bench/src/tier/ground.rs"]
mod ground;
#[path = "../../../forebay-bench/src/tier/outage.rs"]
mod outage;
#[path = "../../../forebay-bench/src/tier/slow.rs"]
mod slow;
#[path = "../../../forebay-bench/src/tier/values.rs"]
mod values;

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::world::BINARY;
use ground::{Row, Scale};

/// Durations that suit a busy machine.
const SCALE: Scale = Scale {
    rounds: 1,
    keys: 600,
    traffic: Duration::from_secs(2),
    patience: "read_timeout = \"2s\"\nwrite_timeout = \"2s\"\n",
    far_timeout: "5s",
};

/// Asserts that every row has its expected counts.
fn hold(rows: anyhow::Result<Vec<Row>>) -> anyhow::Result<()> {
    let rows = rows?;
    assert!(!rows.is_empty());
    for Row { case, measured, bound, counted, timed } in rows {
        assert!(counted, "{case}: {measured}, not {bound}; in time: {timed}");
    }
    Ok(())
}

/// Raises the limit on open files: both ends of a thousand connections are in this process.
fn raise_open_files() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

#[tokio::test]
async fn with_a_frozen_redis_hits_are_served_and_misses_read_it_until_it_is_bypassed()
-> anyhow::Result<()> {
    hold(outage::frozen(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn a_restart_under_load_costs_no_errors_and_few_loads() -> anyhow::Result<()> {
    let (with_memory, _) = outage::restarted(Path::new(BINARY), SCALE).await?;
    hold(Ok(vec![with_memory]))
}

#[tokio::test]
async fn the_fallback_serves_what_it_has() -> anyhow::Result<()> {
    hold(outage::fallback(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn a_crowd_of_misses_with_a_slow_redis_causes_one_load() -> anyhow::Result<()> {
    raise_open_files()?;
    hold(slow::misses(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn a_crowd_causes_one_read_of_a_slow_redis() -> anyhow::Result<()> {
    hold(slow::hits(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn a_redis_half_a_second_away_gives_hits_if_the_timeout_allows() -> anyhow::Result<()> {
    raise_open_files()?;
    hold(slow::far_hits(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn entries_evicted_from_memory_are_hits_in_redis() -> anyhow::Result<()> {
    hold(values::evicted(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn a_foreign_value_is_a_counted_miss() -> anyhow::Result<()> {
    hold(values::hostile(Path::new(BINARY), SCALE).await)
}
