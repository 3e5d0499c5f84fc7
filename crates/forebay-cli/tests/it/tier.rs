//! What a Redis that is slow, frozen, gone or full of lies comes to, by its counts: who is asked
//! how often, and who is answered. How long it takes is measured elsewhere.

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

/// A machine that does other things is given the time that it takes.
const SCALE: Scale = Scale {
    rounds: 1,
    keys: 600,
    traffic: Duration::from_secs(2),
    patience: "read_timeout = \"2s\"\nwrite_timeout = \"2s\"\n",
};

/// Whether every line came to its counts.
fn hold(rows: anyhow::Result<Vec<Row>>) -> anyhow::Result<()> {
    let rows = rows?;
    assert!(!rows.is_empty());
    for Row { case, measured, bound, counted, timed } in rows {
        assert!(counted, "{case}: {measured}, not {bound}; in time: {timed}");
    }
    Ok(())
}

/// Both ends of a thousand connections are in this process.
fn raise_open_files() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

#[tokio::test]
async fn while_it_is_frozen_hits_are_hits_and_misses_ask_it_only_until_it_is_left_alone()
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
async fn a_crowd_that_misses_in_a_slow_one_loads_once() -> anyhow::Result<()> {
    raise_open_files()?;
    hold(slow::misses(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn a_crowd_reads_once_in_a_slow_one() -> anyhow::Result<()> {
    hold(slow::hits(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn half_a_second_away_is_a_hit_where_that_is_allowed() -> anyhow::Result<()> {
    raise_open_files()?;
    hold(slow::far_hits(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn what_memory_lets_go_of_comes_back() -> anyhow::Result<()> {
    hold(values::evicted(Path::new(BINARY), SCALE).await)
}

#[tokio::test]
async fn what_others_put_there_is_a_miss_and_a_count() -> anyhow::Result<()> {
    hold(values::hostile(Path::new(BINARY), SCALE).await)
}
