//! Responses that are passed through, and responses that are stored for the first time.

use anyhow::Result;
use tokio::runtime::Runtime;

use super::load::{COLUMNS, Load, Sample, allowed_cores, busy, cells, machine, ratio};
use super::servers::{Ground, NGINX, Subject, raw};
use crate::environment::Options;
use crate::report::{Bound, Table, Verdict};

/// Body of a response that is not stored.
const PASSED: usize = 100;

/// Body of a response that is stored.
const STORED: usize = 40;

/// Cold misses relative to nginx with its cache on tmpfs: 0.7 × 48 µs to 131 µs.
const MISS_MAX: f64 = 0.26;

/// Passes relative to nginx with kept connections.
const PASS_MAX: f64 = 1.25;

/// Folder in memory for the files of nginx.
const TMPFS: &str = "/dev/shm";

/// Responses that no cache may store, with connections to the origin that are kept.
pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let bound = ("pass of 100 B: forebay to nginx", PASS_MAX);
    let pass = |subject: &Subject, seconds, _| {
        let url = format!("http://{}/pass?size={PASSED}&cc=no-store", subject.address);
        Load::new(url, seconds)
    };
    let servers = |ground: &Ground, runtime: &Runtime| {
        let forebay = runtime.block_on(ground.forebay())?;
        Ok(vec![ground.nginx_pass()?, forebay, runtime.block_on(ground.bare_proxy())?])
    };
    measure(options, bound, servers, pass)
}

/// Responses that are stored for the first time: each request has a key of its own.
pub(crate) fn run_misses(options: &Options) -> Result<Vec<Table>> {
    let bound = ("cold miss of 40 B: forebay to nginx on tmpfs", MISS_MAX);
    let miss = |subject: &Subject, seconds, round| {
        let script = format!(
            "local number = 0
            request = function() number = number + 1
                return wrk.format('GET',
                    '/miss{round}/' .. number .. '?size={STORED}&cc=max-age=3600') end\n"
        );
        Load { script, ..Load::new(format!("http://{}/", subject.address), seconds) }
    };
    let servers = |ground: &Ground, runtime: &Runtime| {
        Ok(vec![ground.nginx(NGINX, "")?, runtime.block_on(ground.forebay())?])
    };
    measure(options, bound, servers, miss)
}

/// Compares the first server, nginx, with the second, forebay, and shows the others that `servers`
/// starts, and all caches that are installed.
fn measure(
    options: &Options,
    bound: (&str, f64),
    servers: impl Fn(&Ground, &Runtime) -> Result<Vec<Subject>>,
    load: impl Fn(&Subject, u32, u32) -> Load,
) -> Result<Vec<Table>> {
    let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 1));
    let cores = allowed_cores()?;
    let folder = tempfile::tempdir_in(TMPFS)?;
    let runtime = Runtime::new()?;
    let origin = runtime.block_on(raw(cores.load))?;
    let ground = Ground { folder: folder.path().to_owned(), origin: origin.address(), cores };
    let mut subjects = servers(&ground, &runtime)?;
    subjects.extend(ground.installed_peers()?);
    let mut measured: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (subject, samples) in subjects.iter().zip(&mut measured) {
            samples.push(load(subject, seconds, round).run(subject.pid, cores.load)?);
        }
    }
    let (name, most) = bound;
    let rows = subjects.iter().zip(&measured);
    let note = busy(rows.clone().map(|(subject, samples)| (subject.name, &**samples)));
    let title = format!("{name}; {}", machine(cores));
    let mut table = Table::new(title, &COLUMNS).note(format!(
        "medians over the rounds; x: to {}; the origin shares the core of the load generator; {note}",
        subjects[0].name
    ));
    for (subject, samples) in rows {
        table.row(cells(subject.name, samples, &measured[0]), "", Verdict::Shown);
    }
    let mut bounds = Table::figures("bound, as a ratio of CPU time per request");
    bounds.figure(name, ratio(&measured[1], &measured[0]), "", Bound::AtMost(most));
    Ok(vec![table, bounds])
}
