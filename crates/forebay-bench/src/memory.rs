//! Resident memory of a cache of 64 MiB, under four loads one after another: a churn of objects
//! from 1 byte to 4 MiB, clients that do not read stored bodies, clients that do not read bodies
//! that are being loaded, and idle connections.

mod load;
pub(crate) mod process;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use forebay_testkit::launch::{Launch, Launched};
use load::{Answers, Origin};
use process::{Seen, Watch};

use crate::environment::{Options, forebay, mib};
use crate::report::{Table, Verdict};

/// The configured size, in MiB.
const MEMORY_MIB: u64 = 64;
/// Memory of the process beside the configured size and a tenth of it for fragmentation.
const BESIDE: u64 = 64 << 20;
/// Memory of one idle connection.
const PER_CONNECTION: u64 = 20 << 10;
/// Duration of the churn; the quick one still fills the memory hundreds of times.
const CHURN: Duration = Duration::from_secs(180);
const CHURN_QUICK: Duration = Duration::from_secs(15);
/// Clients that do not read.
const STALLED: usize = 60;
const STALLED_QUICK: usize = 20;

const COLUMNS: [&str; 10] =
    ["load", "most", "at end", "peak", "limit", "answers", "GiB", "refused", "broken", "slowest"];

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let binary = forebay()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(vec![runtime.block_on(measure(options, &binary))?])
}

async fn measure(options: &Options, binary: &Path) -> Result<Table> {
    let (_origin, cache) = start(binary).await?;
    let at = Origin { cache: cache.address() };
    let title = format!("resident memory of a cache of {MEMORY_MIB} MiB, in MiB");
    let mut table = Table::new(title, &COLUMNS);
    let watch = || Watch::start(cache.pid());
    let churn = watch();
    let answers = load::churn(at, options.pick(CHURN, CHURN_QUICK)).await?;
    add(&mut table, "churn, 1 B to 4 MiB", churn.stop().await?, &answers, 0);
    let hits = watch();
    let answers = load::hold_hits(at, options.pick(STALLED, STALLED_QUICK)).await?;
    add(&mut table, "stalled clients, hits", hits.stop().await?, &answers, 0);
    let misses = watch();
    let answers = load::hold_misses(at, STALLED).await?;
    add(&mut table, "stalled clients, misses", misses.stop().await?, &answers, 0);
    let idle = watch();
    let (answers, connections) = load::idle(at).await?;
    add(&mut table, "idle connections", idle.stop().await?, &answers, connections);
    Ok(table)
}

fn add(table: &mut Table, load: &str, seen: Seen, answers: &Answers, idle: usize) {
    let memory = MEMORY_MIB << 20;
    let limit = memory + memory / 10 + BESIDE + idle as u64 * PER_CONNECTION;
    let mut cells = vec![load.to_owned()];
    let sizes = [seen.most, seen.last, seen.peak, limit];
    cells.extend(sizes.map(|bytes| format!("{:.1}", mib(bytes))));
    cells.extend([
        answers.whole.to_string(),
        format!("{:.1}", mib(answers.bytes) / 1024.0),
        answers.refused.to_string(),
        answers.broken.to_string(),
        format!("{} ms", answers.slowest.as_millis()),
    ]);
    let holds = seen.most <= limit && answers.whole > 0;
    table.row(cells, "most ≤ limit", Verdict::of(holds));
}

/// The sample origin, and a cache in front of it.
async fn start(binary: &Path) -> Result<(Launched, Launched)> {
    let origin = Launch::binary(binary).args(["origin", "--listen", "127.0.0.1:0"]);
    let origin = origin.start().await.context("start the origin")?;
    let (url, memory) = (format!("http://{}", origin.address()), format!("{MEMORY_MIB}MiB"));
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let cache = Launch::binary(binary).args(serve).args(["--memory", &memory]);
    let cache = cache.args(["--origin", &url]).start().await.context("start the cache")?;
    Ok((origin, cache))
}
