//! Exact counts: counters, histograms and log lines beside what clients and the origin counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::{Launch, Launched, Signal};
use serde_json::Value;

use super::Ground;
use super::requests::{self, AtOrigin, Labels, REFUSED, SITES, Tally, difference};
use super::samples::Samples;
use crate::environment::Options;
use crate::report::{Bound, Table};

const REQUESTS: u64 = 1_000_000;
const REQUESTS_QUICK: u64 = 100_000;

/// Most time until the last response is counted, and the process has ended.
const SETTLED_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// Cache results that must occur, so that the comparison is not empty.
const OCCUR: [&str; 7] = ["hit", "stale", "collapsed", "miss", "pass", "bypass", REFUSED];

pub(super) async fn measure(options: &Options, ground: &Ground) -> Result<Table> {
    let number = options.pick(REQUESTS, REQUESTS_QUICK);
    let counts = Arc::<AtOrigin>::default();
    let origin = requests::origin(counts.clone()).await?;
    let log = ground.folder.join("counts.log");
    let mut server = start(&ground.program, &origin.url(), &log).await?;
    let mut clients = requests::warm(server.address()).await?;
    clients.merge(requests::send(server.address(), number).await?);
    origin.wait_idle().await?;
    let loads = counts.loads.load(Ordering::Relaxed);
    let samples = settled(&server, clients.total(), loads).await?;
    server.signal(Signal::Term).await?;
    server.wait_exit(SETTLED_MAX).await?;
    let logged = logged(&log)?;
    let mut table = Table::figures(format!("counts of {} requests of every kind", clients.total()));
    let is_rare = |cache: &&str| clients.count(|labels| labels.cache == **cache) == 0;
    let missing: Vec<&str> = OCCUR.iter().copied().filter(is_rare).collect();
    table.count(format!("kinds that did not occur {missing:?}"), missing.len() as f64, 0.0);
    for cache in OCCUR {
        let count = clients.count(|labels| labels.cache == cache);
        table.figure(format!("responses of kind {cache}"), count as f64, "", Bound::None);
    }
    compare(&mut table, &clients, &samples, &logged);
    let by = samples.sum("forebay_loads_total").abs_diff(loads);
    table.count("loads_total beside the loads of the origin", by as f64, 0.0);
    Ok(table)
}

async fn start(program: &Path, origin: &str, log: &Path) -> Result<Launched> {
    let sites = SITES.map(|(site, host)| {
        format!("[[site]]\nid = \"{site}\"\nhosts = [\"{host}\"]\norigin = \"{origin}\"\n")
    });
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 2\naccess_log = \"json\"\n\
         [access]\nfile = \"{}\"\nrotate_size = \"0B\"\n{}",
        log.display(),
        sites.concat()
    );
    Launch::binary(program).args(["serve"]).config(&config)?.start().await
}

/// Waits until all responses are counted, and all loads: the origin may have answered one whose
/// response forebay has not read yet.
async fn settled(server: &Launched, total: u64, loads: u64) -> Result<Samples> {
    let begun = Instant::now();
    loop {
        let samples = Samples::of(server).await?;
        let is_late = begun.elapsed() > SETTLED_MAX;
        let has_all = samples.sum("forebay_requests_total") >= total
            && samples.sum("forebay_loads_total") >= loads;
        if has_all || is_late {
            return Ok(samples);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Compares the sources with each other. The bound of each difference is 0.
fn compare(table: &mut Table, clients: &Tally, samples: &Samples, logged: &Logged) {
    let mut differs = |name: &str, by: u64| table.count(name, by as f64, 0.0);
    let counted = counted(samples);
    let requests = counted.total();
    let by = difference(&clients.responses, &counted.responses);
    differs("requests_total beside the responses of clients, by labels", by);
    // Of a cut response, sockets took bytes that the client did not read.
    let whole = |tally: &Tally| {
        let is_whole = |key: &(String, String)| key != &(SITES[1].0.to_owned(), "hit".to_owned());
        let bytes = tally.bytes.iter().filter(|(key, bytes)| is_whole(key) && **bytes > 0);
        bytes.map(|(key, bytes)| (key.clone(), *bytes)).collect::<BTreeMap<_, _>>()
    };
    let by = difference(&whole(clients), &whole(&counted));
    differs("body_bytes_total beside the bytes of clients, by site and cache result", by);
    let cuts = clients.count(|labels| labels.site == SITES[1].0 && labels.cache == "hit");
    let left = clients.count(|labels| labels.site == SITES[2].0);
    let gone = samples.named("forebay_responses_truncated_total");
    let gone: u64 = gone.filter(|(labels, _)| labels["end"] == "client-gone").map(|it| it.1).sum();
    differs(
        "responses_truncated_total{end=\"client-gone\"} beside clients that left",
        gone.abs_diff(cuts + left),
    );
    let misses = samples.sum("forebay_misses_total");
    let refused = counted.count(|labels| labels.cache == REFUSED);
    let by = requests.abs_diff(misses + logged.plain_hits + refused);
    differs("misses_total, plain hits and refused requests beside all", by);
    for histogram in ["request_seconds", "response_seconds"] {
        let count = samples.sum(&format!("forebay_{histogram}_count"));
        differs(&format!("{histogram}_count beside all"), count.abs_diff(requests));
    }
    let by = difference(&logged.tally.responses, &counted.responses);
    differs("log lines beside requests_total, by labels", by);
    let bytes = |tally: &Tally| tally.bytes.values().sum::<u64>();
    differs(
        "bytes of log lines beside body_bytes_total",
        bytes(&logged.tally).abs_diff(bytes(&counted)),
    );
    differs("log lines that were dropped", samples.sum("forebay_log_dropped_total"));
}

/// Returns the counters of the server.
fn counted(samples: &Samples) -> Tally {
    let mut tally = Tally::default();
    for (labels, count) in samples.named("forebay_requests_total") {
        let text = |name: &str| labels.get(name).copied().unwrap_or_default().to_owned();
        let status = text("status").parse().unwrap_or(0);
        let (site, method, cache) = (text("site"), text("method"), text("cache"));
        if count > 0 {
            tally.responses.insert(Labels { site, method, status, cache }, count);
        }
    }
    for (labels, count) in samples.named("forebay_body_bytes_total") {
        tally.bytes.insert((labels["site"].to_owned(), labels["cache"].to_owned()), count);
    }
    tally
}

/// Contents of the access log.
#[derive(Default)]
struct Logged {
    tally: Tally,
    /// Hits without a reason why they are not plain.
    plain_hits: u64,
}

fn logged(file: &Path) -> Result<Logged> {
    let mut logged = Logged::default();
    let text = std::io::BufReader::new(std::fs::File::open(file)?);
    for line in std::io::BufRead::lines(text) {
        let line: Value = serde_json::from_str(&line?).context("a line is no JSON")?;
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let status = line["status"].as_u64().context("a line without status")?;
        let labels = Labels {
            site: text("site"),
            method: text("method"),
            status: u16::try_from(status)?,
            cache: text("cache"),
        };
        ensure!(!labels.site.is_empty(), "a line without a site");
        logged.plain_hits += u64::from(labels.cache == "hit" && line["why"].is_null());
        logged.tally.add(labels, line["bytes"].as_u64().context("a line without bytes")?);
    }
    Ok(logged)
}
