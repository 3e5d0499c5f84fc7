//! Cost of a Redis that is slow, frozen, gone or damaged; and of a hit in it, beside the bare client.
//!
//! Each case has `redis-server` processes of its own. Clients, origin, Redis and caches share the
//! machine, and the times include all of them: compared times are taken in turns, and the median
//! of several rounds counts.

pub(crate) mod ground;
mod hits;
pub(crate) mod outage;
pub(crate) mod slow;
pub(crate) mod values;

use std::time::Duration;

use anyhow::Result;
use ground::{Row, Scale};

use crate::environment::{Options, forebay};
use crate::failing;
use crate::report::{Table, Verdict};

const FULL: Scale = Scale {
    rounds: 5,
    keys: 10_000,
    traffic: Duration::from_secs(6),
    patience: WRITES,
    far_timeout: "1s",
};

/// Preparation may take long; reads keep their default timeout.
const WRITES: &str = "write_timeout = \"2s\"\n";
const QUICK: Scale = Scale { rounds: 1, keys: 2_000, traffic: Duration::from_secs(3), ..FULL };

/// A hit in Redis beside the bare client, entries that left memory, and values of other programs.
pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let binary = forebay()?;
    let scale = options.pick(FULL, QUICK);
    let mut table = cases("entries and values");
    tokio::runtime::Runtime::new()?.block_on(async {
        add(&mut table, values::evicted(&binary, scale).await?);
        add(&mut table, values::hostile(&binary, scale).await?);
        anyhow::Ok(())
    })?;
    Ok(vec![table, hits::run(options)?])
}

/// A slow Redis, below libraries and below the server.
pub(crate) fn run_slow(options: &Options) -> Result<Vec<Table>> {
    let binary = forebay()?;
    let scale = options.pick(FULL, QUICK);
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut table = cases("a slow Redis below the server");
        add(&mut table, slow::misses(&binary, scale).await?);
        add(&mut table, slow::hits(&binary, scale).await?);
        add(&mut table, slow::far_hits(&binary, scale).await?);
        Ok(vec![failing::slow().await?, table])
    })
}

/// A Redis that is gone, below libraries and below the server.
pub(crate) fn run_dead(options: &Options) -> Result<Vec<Table>> {
    let binary = forebay()?;
    let scale = options.pick(FULL, QUICK);
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut table = cases("a Redis that is gone below the server");
        add(&mut table, outage::frozen(&binary, scale).await?);
        let (restarted, without_memory) = outage::restarted(&binary, scale).await?;
        add(&mut table, vec![restarted]);
        // `restarted` gives the reason why this row has no bound.
        table.row(vec![without_memory.case, without_memory.measured], "", Verdict::Shown);
        add(&mut table, outage::fallback(&binary, scale).await?);
        Ok(vec![failing::dead().await?, table])
    })
}

fn cases(title: &str) -> Table {
    Table::new(title, &["case", "measured"])
}

fn add(table: &mut Table, rows: Vec<Row>) {
    for row in rows {
        let bound = if row.counted { row.bound } else { format!("{} (counts)", row.bound) };
        let verdict = Verdict::of(row.counted && row.timed);
        table.row(vec![row.case, row.measured], bound, verdict);
    }
}
