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

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ground::{Row, Scale};

use crate::environment::{Options, forebay};
use crate::report::{Table, Verdict};

const FULL: Scale =
    Scale { rounds: 5, keys: 10_000, traffic: Duration::from_secs(6), patience: WRITES };
/// Preparation may take long; reads keep their default timeout.
const WRITES: &str = "write_timeout = \"2s\"\n";
const QUICK: Scale = Scale { rounds: 1, keys: 2_000, traffic: Duration::from_secs(3), ..FULL };

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let binary = forebay()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let failures = runtime.block_on(failures(&binary, options.pick(FULL, QUICK)))?;
    Ok(vec![failures, hits::run(options)?])
}

async fn failures(binary: &Path, scale: Scale) -> Result<Table> {
    let mut table = Table::new("a Redis that fails", &["case", "measured"]);
    let mut add = |rows: Vec<Row>| {
        for row in rows {
            let bound = if row.counted { row.bound } else { format!("{} (counts)", row.bound) };
            let verdict = Verdict::of(row.counted && row.timed);
            table.row(vec![row.case, row.measured], bound, verdict);
        }
    };
    add(outage::frozen(binary, scale).await?);
    add(slow::misses(binary, scale).await?);
    add(slow::hits(binary, scale).await?);
    add(slow::far_hits(binary, scale).await?);
    let (restarted, mut without_memory) = outage::restarted(binary, scale).await?;
    // `restarted` gives the reason why this row has no bound.
    (without_memory.counted, without_memory.timed) = (true, true);
    add(vec![restarted, without_memory]);
    add(outage::fallback(binary, scale).await?);
    add(values::evicted(binary, scale).await?);
    add(values::hostile(binary, scale).await?);
    Ok(table)
}
