//! Resident memory of idle TLS connections.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::memory;

use super::servers::start_forebay;
use crate::proxy::load::Cores;
use crate::report::{Bound, Table};

/// Connections with one request each, which then are idle.
const CONNECTIONS: u64 = 1_000;

/// Time after which each connection sends its second request, in milliseconds.
const IDLE_MS: u64 = 15_000;

/// Maximum time for all connections to be idle: handshakes take half a second of CPU time.
const OPENED_MAX: Duration = Duration::from_secs(10);

/// Time after which the allocator has returned the memory of the handshakes.
const SETTLED: Duration = Duration::from_secs(2);

/// Protocol, its arguments of h2load, and the most memory of a connection in KiB.
const PROTOCOLS: [(&str, &str, f64); 2] =
    [("HTTP/1.1", "--h1", 32.0), ("HTTP/2", "--npn-list=h2", 48.0)];

pub(super) async fn measure(cores: Cores, folder: &Path) -> Result<Table> {
    let mut table =
        Table::figures(format!("resident memory of one of {CONNECTIONS} idle TLS connections"));
    for (protocol, argument, most) in PROTOCOLS {
        let (_origin, server) = start_forebay(cores, folder).await?;
        server.warm(1_024)?;
        let cache = server.launched()?;
        let before = memory(cache.pid(), "VmRSS")?;
        let (url, script) = (server.url(1_024), folder.join("script"));
        std::fs::write(&script, format!("0\t{url}\n{IDLE_MS}\t{url}\n"))?;
        let mut command = Command::new("taskset");
        command.args(["-c", &cores.load.to_string(), "h2load", "-t1", "-n2", argument]);
        command.arg(format!("-c{CONNECTIONS}"));
        command.arg(format!("--timing-script-file={}", script.display()));
        let mut load = command.stdout(Stdio::null()).spawn().context("start h2load")?;
        let opened = opened(cache).await;
        tokio::time::sleep(SETTLED).await;
        let grown = memory(cache.pid(), "VmRSS")?.saturating_sub(before);
        let is_open = load.try_wait()?.is_none();
        load.kill()?;
        load.wait()?;
        opened?;
        ensure!(is_open, "h2load ended early");
        let each = (grown / CONNECTIONS) as f64 / 1024.0;
        table.figure(protocol, each, "KiB", Bound::AtMost(most));
    }
    Ok(table)
}

/// Waits until all connections have their first response.
async fn opened(cache: &forebay_testkit::launch::Launched) -> Result<()> {
    let begun = Instant::now();
    let answered = "forebay_requests_total{site=\"bench\"}";
    while cache.metric(answered).await? < CONNECTIONS {
        ensure!(begun.elapsed() < OPENED_MAX, "fewer than {CONNECTIONS} connections were answered");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
