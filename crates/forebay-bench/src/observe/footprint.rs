//! Resident memory of history, lists, rings and curve: 100 sites, two workers.
//!
//! Two servers get the same requests: one without records, one with all of them, `top` attached and
//! a `tail` that does not read. The difference is theirs. The lists have two periods of a minute:
//! the load comes once in each of them. The history is full only after 15 minutes, and so it is
//! counted with its bound, which is checked when the product is compiled.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use forebay_testkit::launch::{Launch, Launched, memory};

use super::Ground;
use super::viewers::Viewers;
use crate::environment::{Options, mib};
use crate::proxy::load::Load;
use crate::proxy::servers::raw;
use crate::report::{Bound, Table};

const SITES: usize = 100;

/// Memory of the cache: so many entries that a quarter of them fills the models of the curve.
const MEMORY: &str = "64MiB";

/// Bound of the history in MiB: `HISTORY_BYTES_MAX` of the product.
const HISTORY_MIB: f64 = 8.0;

/// Most that all may take, in MiB.
const MOST_MIB: f64 = 40.0;

/// Length of a period of the lists.
const PERIOD: Duration = Duration::from_secs(61);

/// Seconds of the load in each period.
const SECONDS: u32 = 30;
const SECONDS_QUICK: u32 = 8;

/// URLs, most of which are requested again: enough for four times the memory.
const KEYS: usize = 300_000;

/// Time after which the allocator has returned free memory.
const SETTLED: Duration = Duration::from_secs(3);

pub(super) async fn measure(options: &Options, ground: &Ground) -> Result<Table> {
    let seconds = options.pick(SECONDS, SECONDS_QUICK);
    let origin = raw(ground.cores.load).await?;
    let url = format!("http://{}", origin.address());
    let off = start(&ground.unrecorded, &url).await?;
    let on = start(&ground.program, &url).await?;
    let admin = on.admin().context("no admin listener")?;
    let mut viewers = Viewers::default();
    viewers.watch_top(admin).await?;
    viewers.stick(admin, "/tail", 1).await?;
    let idle = (memory(off.pid(), "VmRSS")?, memory(on.pid(), "VmRSS")?);
    let begun = Instant::now();
    load(&off, &on, seconds).await?;
    tokio::time::sleep(PERIOD.saturating_sub(begun.elapsed())).await;
    load(&off, &on, seconds).await?;
    tokio::time::sleep(SETTLED).await;
    viewers.check()?;
    let used = (memory(off.pid(), "VmRSS")?, memory(on.pid(), "VmRSS")?);
    let stored = "forebay_tier_bytes{tier=\"memory\"}";
    let stored = (off.metric(stored).await?, on.metric(stored).await?);
    let title =
        format!("resident memory of history, lists, rings, curve: {SITES} sites, 2 workers");
    let mut table = Table::figures(title).note(
        "The difference to the same server without records, after the same requests with top and \
         a stuck tail. The lists are filled in both of their periods; the history is counted with \
         its bound instead of an hour.",
    );
    let mut shown = |name: &str, bytes| table.figure(name, mib(bytes), "MiB", Bound::None);
    shown("idle, without records", idle.0);
    shown("idle, with them", idle.1);
    shown("after the load, without records", used.0);
    shown("after the load, with them", used.1);
    shown("entries in memory, without records", stored.0);
    shown("entries in memory, with them", stored.1);
    let requests = on.metric("forebay_requests_total").await?;
    table.figure("requests", requests as f64, "", Bound::AtLeast(1.0));
    let beside = |used, stored| mib(used) - mib(stored);
    let all = beside(used.1, stored.1) - beside(used.0, stored.0) + HISTORY_MIB;
    table.figure(
        "difference beside the entries, and a full history",
        all,
        "MiB",
        Bound::AtMost(MOST_MIB),
    );
    Ok(table)
}

async fn start(program: &Path, origin: &str) -> Result<Launched> {
    let site = |number| {
        format!(
            "[[site]]\nid = \"site{number}\"\nhosts = [\"s{number}.example\"]\n\
             origin = \"{origin}\"\n"
        )
    };
    let sites: String = (0..SITES).map(site).collect();
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 2\n\
         [memory]\nsize = \"{MEMORY}\"\n{sites}"
    );
    Launch::binary(program).args(["serve"]).config(&config)?.start().await
}

/// Requests of all sites, to both servers one after the other.
async fn load(off: &Launched, on: &Launched, seconds: u32) -> Result<()> {
    let script = format!(
        "init = function() math.randomseed(7) end
        request = function()
            local key = math.floor({KEYS} * math.random() ^ 2)
            local host = 's' .. key % {SITES} .. '.example'
            local path = '/items/' .. key .. '?size=500&cc=max-age=3600'
            return wrk.format('GET', path, {{ ['Host'] = host }})
        end\n"
    );
    for server in [off, on] {
        let mut load = Load::new(format!("http://{}/", server.address()), seconds);
        load.script = script.clone();
        let (pid, core) = (server.pid(), crate::proxy::load::allowed_cores()?.load);
        tokio::task::spawn_blocking(move || load.run(pid, core)).await??;
    }
    Ok(())
}
