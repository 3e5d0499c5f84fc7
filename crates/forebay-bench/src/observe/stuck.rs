//! Latency of hits while nothing takes what the server writes about them: metrics, a tail, the access
//! log and spans.

use std::fs::OpenOptions;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{copy, sink};
use tokio::runtime::Runtime;

use super::{open, start};
use crate::environment::{Options, median};
use crate::proxy::load::{Cores, Load};
use crate::proxy::servers;
use crate::report::{Bound, Table};

const TARGET: &str = "/items/a?size=1024&cc=max-age=3600";

/// Tail that selects all responses.
const ALL_LINES: &str = "/tail?format=json";

/// Readings of the metrics that one connection requests at once; their answers do not fit into the
/// buffers of a socket.
const SCRAPES: usize = 64;

/// 99th percentile of the latency, as a multiple of that with readers that read.
const P99_MAX: f64 = 1.05;

pub(super) fn run(options: &Options, cores: Cores, runtime: &Runtime) -> Result<Table> {
    let (rounds, seconds) = options.pick((3 * options.rounds, options.seconds), (3, 1));
    let folder = tempfile::tempdir()?;
    let origin = runtime.block_on(servers::raw(cores.load))?;
    let [taking, hanging] = [Answer::ok(""), Answer::hang()];
    let taking = runtime.block_on(Origin::always(taking))?;
    let hanging = runtime.block_on(Origin::always(hanging))?;
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().context("start mkfifo")?;
    ensure!(made.success(), "mkfifo failed");
    // Without a reader, the server would wait for one before it starts.
    let _reader = OpenOptions::new().read(true).write(true).open(&pipe)?;
    let config = |log: &str, collector: &Origin| {
        format!(
            "threads = 1\naccess_log = \"json\"\n[access]\nfile = \"{log}\"\n\
             [trace]\nendpoint = \"{}\"\nsample = 0.01\n\
             [[site]]\nid = \"bench\"\norigin = \"http://{}\"\n",
            collector.url(),
            origin.address()
        )
    };
    let file = folder.path().join("access.log");
    let configs = [
        ("free", config(&file.to_string_lossy(), &taking)),
        ("stuck", config(&pipe.to_string_lossy(), &hanging)),
    ];
    let mut servers = Vec::new();
    for (name, config) in &configs {
        let started = start(folder.path(), name, config, Some(cores.server));
        servers.push(runtime.block_on(started)?);
    }
    let [free, stuck] = &servers[..] else { unreachable!("two servers were started") };
    let mut read = runtime.block_on(open(free, ALL_LINES, 1))?;
    runtime.spawn(async move { copy(&mut read, &mut sink()).await });
    let _unread = runtime.block_on(open(stuck, ALL_LINES, 1))?;
    let _scrape = runtime.block_on(open(stuck, "/metrics", SCRAPES))?;
    let p99 = |server: &Launched| {
        let url = format!("http://{}{TARGET}", server.address());
        Load::new(url, seconds).run(server.pid(), cores.load).map(|sample| sample.p99_us)
    };
    let (mut spans, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..=rounds {
        let [one, other] = [p99(free)?, p99(stuck)?];
        // The first round fills the cache, and the buffers.
        if round > 0 {
            spans[0].push(one);
            spans[1].push(other);
            ratios.push(other / one);
        }
    }
    let dropped = runtime.block_on(stuck.metric("forebay_log_dropped_total"))?;
    ensure!(dropped > 0, "the log is not stuck");
    let mut table = Table::figures("99th percentile of hits, in microseconds").note(
        "Each server writes a JSON log, traces 1 %, and has a tail of all lines. Of the second one, \
         nothing is read: a pipe is the log, and the collector does not answer.",
    );
    table.figure("readers that read", median(&spans[0]), "us", Bound::None);
    table.figure("readers that do not read", median(&spans[1]), "us", Bound::None);
    table.figure("ratio, median of the rounds", median(&ratios), "", Bound::AtMost(P99_MAX));
    table.figure("lines of the log that were dropped", dropped as f64, "", Bound::None);
    Ok(table)
}
