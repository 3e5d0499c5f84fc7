//! Observability of the server: its cost, its counts, and its bounds.
//!
//! | file | contents |
//! |---|---|
//! | `costs.rs` | CPU time of a hit with an access log, traces and live views |
//! | `counts.rs` | counts of the server beside those of its clients and of its origin |
//! | `stuck.rs` | latency beside readers that do not read |
//! | `size.rs` | memory of metrics, history and lists with 100 sites |
//!
//! The top 100 of `top`, the memory model of `plan` and the forecasts of `explain` are tests:
//! `live::space_saving`, `plan::model`, `explain::histories`.

mod costs;
mod counts;
mod size;
mod stuck;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::{Launch, Launched};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::environment::{Options, forebay, pinned};
use crate::proxy::load::allowed_cores;
use crate::report::Table;

/// Number of times a metric is read before a wait fails, and the pause between two readings.
const READINGS_MAX: usize = 600;
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    // A build is not measured.
    forebay()?;
    let cores = allowed_cores()?;
    let runtime = Runtime::new()?;
    let mut tables = costs::run(options, cores, &runtime)?;
    tables.push(stuck::run(options, cores, &runtime)?);
    tables.push(runtime.block_on(counts::run(options))?);
    tables.push(runtime.block_on(size::run(options))?);
    Ok(tables)
}

/// Starts forebay with this configuration, on one core or on all.
async fn start(folder: &Path, name: &str, config: &str, core: Option<usize>) -> Result<Launched> {
    let file = folder.join(format!("{name}.toml"));
    let ports = "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n";
    std::fs::write(&file, format!("{ports}{config}"))?;
    let (program, file) = (forebay()?, file.to_string_lossy().into_owned());
    let serve = ["serve", "--config", &file];
    match core {
        Some(core) => pinned(core, &program, &serve).await,
        None => Launch::binary(program).args(serve).start().await,
    }
}

/// Sends a request to the admin listener, and leaves its answer unread.
async fn open(server: &Launched, path: &str, times: usize) -> Result<TcpStream> {
    let admin: SocketAddr = server.admin().context("no admin listener")?;
    let mut stream = TcpStream::connect(admin).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\n\r\n").repeat(times);
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Waits until a metric has this value.
async fn wait_metric(server: &Launched, selector: &str, expected: u64) -> Result<()> {
    let mut value = 0;
    for _ in 0..READINGS_MAX {
        value = server.metric(selector).await?;
        if value == expected {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    ensure!(value == expected, "{selector} is {value} instead of {expected}");
    Ok(())
}
