//! Floods of HTTP/2 frames: memory of the server, and latency of the hits of other clients.

use std::io::{Error, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::http2::{
    CONTINUATION, DATA, HEADERS, PING, RST_STREAM, SETTINGS, START, frame, head,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::servers::start_forebay;
use crate::environment::{Options, median, mib};
use crate::memory::process::Watch;
use crate::proxy::load::{Cores, Load};
use crate::report::{Bound, Table};

/// Frames of a flood: the server must have ended it before.
const FRAMES: usize = 2_000;

/// Pause between two floods; each begins with a new connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum wait for the end of a connection.
const CLOSED_MAX: Duration = Duration::from_secs(10);

/// Memory that the floods may take, in MiB.
const MEMORY_MAX: f64 = 16.0;

/// Pause of each client after a hit, as a function of wrk's script: the server is not busy, so that
/// a hit waits for the work that floods cause, and not for other hits.
const UNHURRIED: &str = "function delay() return 2 end\n";

/// 99th percentile of the latency of hits during floods, relative to that without.
const P99_MAX: f64 = 2.0;

pub(super) async fn measure(options: &Options, cores: Cores, folder: &Path) -> Result<Table> {
    let (_origin, server) = start_forebay(cores, folder).await?;
    let cache = server.launched()?;
    let (pid, address) = (cache.pid(), cache.address());
    let path = "items/a?size=1024&cc=max-age%3D3600";
    let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 2));
    let mut load = Load::new(format!("http://{address}/{path}"), seconds);
    load.script = UNHURRIED.to_owned();
    load.run(pid, cores.load)?;
    let (mut quiet, mut flooded, mut most) = (Vec::new(), Vec::new(), 0.0_f64);
    let mut floods = 0;
    for _ in 0..rounds {
        quiet.push(load.run(pid, cores.load)?.p99_us);
        let before = forebay_testkit::launch::memory(pid, "VmRSS")?;
        let (watch, stop) = (Watch::start(pid), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let flood = std::thread::spawn(move || flood(address, cores.load, &stopped));
        let sample = load.run(pid, cores.load);
        stop.store(true, Ordering::Relaxed);
        floods += flood.join().ok().context("the floods panicked")??;
        flooded.push(sample?.p99_us);
        most = most.max(mib(watch.stop().await?.most.saturating_sub(before)));
    }
    let title = format!("floods of HTTP/2 frames, {floods} connections, beside 32 that are hits");
    let mut table = Table::figures(title);
    table.figure("more resident memory", most, "MiB", Bound::AtMost(MEMORY_MAX));
    table.figure("p99 of hits, without floods", median(&quiet), "us", Bound::None);
    table.figure("p99 of hits, with floods", median(&flooded), "us", Bound::None);
    let ratio = median(&flooded) / median(&quiet);
    table.figure("ratio", ratio, "", Bound::AtMost(P99_MAX));
    Ok(table)
}

/// Sends floods of each kind in turn, from this core. Returns their number.
fn flood(address: SocketAddr, core: usize, stop: &AtomicBool) -> Result<usize> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores)?;
    let open = frame(HEADERS, 4, 1, &head("/x", &[]));
    let continued = frame(HEADERS, 1, 1, &head("/x", &[]));
    let resets = (0..u32::try_from(FRAMES / 2)?).flat_map(|number| {
        let stream = number * 2 + 1;
        let request = frame(HEADERS, 5, stream, &head(&format!("/cold/{number}"), &[]));
        [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    });
    let kinds = [
        ("resets", resets.collect()),
        ("CONTINUATION", [continued, frame(CONTINUATION, 0, 1, &[]).repeat(FRAMES)].concat()),
        ("PING", frame(PING, 0, 0, &[0; 8]).repeat(FRAMES)),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[]).repeat(FRAMES)),
        ("empty DATA", [open, frame(DATA, 0, 1, &[]).repeat(FRAMES)].concat()),
    ];
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        for (name, frames) in &kinds {
            send(address, frames).with_context(|| format!("flood of {name}"))?;
            sent += 1;
            std::thread::sleep(PAUSE);
        }
    }
    Ok(sent)
}

/// Sends a flood, which the server must end.
fn send(address: SocketAddr, frames: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(CLOSED_MAX))?;
    stream.set_write_timeout(Some(CLOSED_MAX))?;
    let mut writing = stream.try_clone()?;
    let bytes = [START, frames].concat();
    // The connection may be closed before all bytes are sent.
    let writer = std::thread::spawn(move || drop(writing.write_all(&bytes)));
    let ended = std::io::copy(&mut stream, &mut std::io::sink());
    let is_late = |error: &Error| matches!(error.kind(), ErrorKind::WouldBlock);
    ensure!(!ended.is_err_and(|error| is_late(&error)), "the connection stays open");
    writer.join().ok().context("the writer panicked")
}
