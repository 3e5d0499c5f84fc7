//! CPU time of a hit with an access log, traces and live views, beside the default settings.
//!
//! All servers run one binary on one core, and take turns.

use anyhow::{Result, ensure};
use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin};
use tokio::io::{copy, sink};
use tokio::runtime::Runtime;

use super::{open, start};
use crate::environment::Options;
use crate::proxy::load::{COLUMNS, Cores, Load, Sample, busy, cells, machine, ratio};
use crate::proxy::servers;
use crate::report::{Bound, Table, Verdict};

/// Target of the hits.
const TARGET: &str = "/items/a?size=1024&cc=max-age=3600";

/// Tail that selects no response.
const NO_LINE: &str = "/tail?where=status%3D999";

/// CPU time of a hit with top, a tail and traces, as a multiple of that without them.
const VIEWS_MAX: f64 = 1.05;

/// CPU time of a hit with a JSON log, likewise.
const LOG_MAX: f64 = 1.06;

/// Settings of a server.
struct Setting {
    name: &'static str,
    server: Launched,
    /// True if a client asks for the lists of `top` before each round.
    has_viewer: bool,
    most: Bound,
    samples: Vec<Sample>,
}

pub(super) fn run(options: &Options, cores: Cores, runtime: &Runtime) -> Result<Vec<Table>> {
    let (rounds, seconds) = options.pick((3 * options.rounds, options.seconds), (3, 1));
    let folder = tempfile::tempdir()?;
    let origin = runtime.block_on(servers::raw(cores.load))?;
    let collector = runtime.block_on(Origin::always(Answer::ok("")))?;
    let site = format!("[[site]]\nid = \"bench\"\norigin = \"http://{}\"\n", origin.address());
    let log = folder.path().join("access.log");
    let log = format!("access_log = \"json\"\n[access]\nfile = \"{}\"\n", log.display());
    let trace = format!("[trace]\nendpoint = \"{}\"\nsample = 0.01\n", collector.url());
    let views = (true, Bound::AtMost(VIEWS_MAX));
    let settings = [
        ("default settings", "", (false, Bound::None)),
        ("JSON log to a file", &*log, (false, Bound::AtMost(LOG_MAX))),
        ("1 % traced", &*trace, (false, Bound::None)),
        ("1 % traced, top, a tail that selects nothing", &*trace, views),
    ];
    let mut subjects = Vec::new();
    for (number, (name, tables, (has_viewer, most))) in settings.into_iter().enumerate() {
        let config = format!("threads = 1\n{tables}{site}");
        let file = number.to_string();
        let started = start(folder.path(), &file, &config, Some(cores.server));
        let server = runtime.block_on(started)?;
        if has_viewer {
            let mut tail = runtime.block_on(open(&server, NO_LINE, 1))?;
            runtime.spawn(async move { copy(&mut tail, &mut sink()).await });
        }
        subjects.push(Setting { name, server, has_viewer, most, samples: Vec::new() });
    }
    for round in 0..=rounds {
        for subject in &mut subjects {
            if subject.has_viewer {
                let top = runtime.block_on(subject.server.get_admin("/top"))?;
                ensure!(top.status == 200, "top: {}", top.status);
            }
            let url = format!("http://{}{TARGET}", subject.server.address());
            let sample = Load::new(url, seconds).run(subject.server.pid(), cores.load)?;
            // The first round fills the cache.
            if round > 0 {
                subject.samples.push(sample);
            }
        }
    }
    Ok(tables(&subjects, cores))
}

fn tables(subjects: &[Setting], cores: Cores) -> Vec<Table> {
    let baseline = &subjects[0].samples;
    let rows = subjects.iter().map(|subject| (subject.name, &*subject.samples));
    let note = format!("medians over the rounds; x: to the default settings; {}", busy(rows));
    let title = format!("hit of 1 KiB by settings; {}", machine(cores));
    let mut table = Table::new(title, &COLUMNS).note(note);
    let mut bounds = Table::figures("CPU time of a hit, as a multiple of that with default settings")
        .note(
            "Metrics and history are on in all of them. Their instructions are a part of `connection` \
             in docs/instructions.md.",
        );
    for subject in subjects {
        table.row(cells(subject.name, &subject.samples, baseline), "", Verdict::Shown);
        bounds.figure(subject.name, ratio(&subject.samples, baseline), "", subject.most);
    }
    vec![table, bounds]
}
