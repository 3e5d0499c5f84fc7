//! Hits, beside servers that do less and caches that do the same.

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;

use super::load::{COLUMNS, Cores, Load, Sample, allowed_cores, busy, cells, machine, ratio};
use super::servers::{
    self, BARE, FOREBAY, Ground, HAPROXY, NGINX, NGINX_KEPT, RAW, Subject, is_installed,
};
use crate::environment::{Options, median};
use crate::http::Client;
use crate::report::{Bound, Table, Verdict};

/// Requests in one write of the load generator.
const PIPELINED: usize = 16;

/// Connections that are open without a request.
const IDLE: usize = 10_000;
const IDLE_QUICK: usize = 2_000;

/// Number of connections that are opened at the same time.
const OPENED_AT_ONCE: usize = 100;

/// Connections of the load generator beside the idle ones, and in the comparison.
const ACTIVE_MANY: usize = 256;
const ACTIVE_FEW: usize = 64;

/// Measured rounds of several subjects, in their order.
struct Rounds<'a>(Vec<(&'a str, Vec<Sample>)>);

impl Rounds<'_> {
    fn of(&self, name: &str) -> &[Sample] {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map_or(&[], |(_, samples)| samples)
    }

    /// Ratio of the CPU times of two subjects; NaN if one of them is not installed.
    fn ratio(&self, name: &str, baseline: &str) -> f64 {
        ratio(self.of(name), self.of(baseline))
    }

    fn table(&self, title: String, baseline: &str) -> Table {
        let rows = self.0.iter().map(|(name, samples)| (*name, &**samples));
        let note = format!("medians over the rounds; x: to {baseline}; {}", busy(rows));
        let mut table = Table::new(title, &COLUMNS).note(note);
        for (name, samples) in &self.0 {
            table.row(cells(name, samples, self.of(baseline)), "", Verdict::Shown);
        }
        table
    }
}

struct Bench {
    cores: Cores,
    rounds: u32,
    seconds: u32,
    subjects: Vec<Subject>,
}

impl Bench {
    /// Measures the loads in turn.
    fn measure<'a>(&self, loads: Vec<(&'a str, &Subject, Load)>) -> Result<Rounds<'a>> {
        let mut rounds: Vec<_> = loads.iter().map(|(name, ..)| (*name, Vec::new())).collect();
        for _ in 0..self.rounds {
            for ((_, subject, load), (_, samples)) in loads.iter().zip(&mut rounds) {
                samples.push(load.run(subject.pid, self.cores.load)?);
            }
        }
        Ok(Rounds(rounds))
    }

    fn load(&self, subject: &Subject, bytes: usize) -> Load {
        Load::new(subject.url(bytes), self.seconds)
    }

    fn subject(&self, name: &str) -> Result<&Subject> {
        self.subjects.iter().find(|one| one.name == name).context("it was started")
    }

    fn plain(&self, bytes: usize) -> Result<Rounds<'_>> {
        let load = |one| (Subject::name(one), one, self.load(one, bytes));
        self.measure(self.subjects.iter().map(load).collect())
    }

    /// Requests in pipelines, to forebay and nginx.
    fn pipelined(&self) -> Result<Rounds<'_>> {
        let load = |subject: &Subject| {
            let script = format!(
                "init = function() local r = {{}}
                    for i = 1, {PIPELINED} do r[i] = wrk.format('GET', '{}') end
                    requests = table.concat(r) end
                request = function() return requests end\n",
                subject.target(1024)
            );
            Load { script, ..self.load(subject, 1024) }
        };
        let names = [NGINX_KEPT, NGINX, FOREBAY, RAW];
        let subjects = names.map(|name| self.subject(name));
        let mut loads = Vec::new();
        for subject in subjects {
            let subject = subject?;
            loads.push((subject.name, subject, load(subject)));
        }
        self.measure(loads)
    }

    /// A hit of 1 KiB and the 304 to a client that has it.
    fn not_modified(&self) -> Result<Rounds<'static>> {
        let forebay = self.subject(FOREBAY)?;
        let hit = self.load(forebay, 1024);
        let field = Some("if-none-match: \"33a64df551425fcc55e4d42a148795d9f25f89d4\"");
        let not_modified = Load { field, ..hit.clone() };
        self.measure(vec![(HIT, forebay, hit), (NOT_MODIFIED, forebay, not_modified)])
    }

    /// CPU time per request with many connections beside idle ones, relative to few connections
    /// alone. Rounds are not interleaved with those of other subjects: opening the idle connections
    /// takes seconds.
    async fn idle(&self, subject: &Subject, idle: usize) -> Result<f64> {
        let hit = |connections| Load { connections, ..self.load(subject, 1024) };
        let cpu = |connections| -> Result<f64> {
            let load = hit(connections);
            let runs = (0..self.rounds).map(|_| load.run(subject.pid, self.cores.load));
            let samples = runs.collect::<Result<Vec<_>>>()?;
            Ok(median(&samples.iter().map(Sample::cpu_us).collect::<Vec<_>>()))
        };
        let before = cpu(ACTIVE_FEW)?;
        let mut clients = Vec::new();
        while clients.len() < idle {
            let opening = (0..OPENED_AT_ONCE).map(|_| async {
                let mut client = Client::connect(subject.address).await?;
                client.get(&subject.target(1024)).await?;
                anyhow::Ok(client)
            });
            clients.extend(try_join_all(opening).await?);
        }
        let many = cpu(ACTIVE_MANY)?;
        drop(clients);
        // Other load of the machine may have changed meanwhile.
        let after = cpu(ACTIVE_FEW)?;
        Ok(2.0 * many / (before + after))
    }
}

const HIT: &str = "hit of 1 KiB";
const NOT_MODIFIED: &str = "304";

impl Subject {
    fn name(&self) -> &'static str {
        self.name
    }
}

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 1));
    let cores = allowed_cores()?;
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let origin = runtime.block_on(servers::raw(cores.load))?;
    let ground = Ground { folder: folder.path().to_owned(), origin: origin.address(), cores };
    let subjects = runtime.block_on(start(&ground))?;
    let bench = Bench { cores, rounds, seconds, subjects };
    let mut tables = Vec::new();
    let mut bounds = Table::figures("hit: bounds, as ratios of CPU time per request");
    for (size, bytes) in [("1 KiB", 1024), ("1 MiB", 1024 * 1024)] {
        for subject in &bench.subjects {
            runtime.block_on(subject.until_hit(bytes))?;
        }
        let rounds = bench.plain(bytes)?;
        for subject in &bench.subjects {
            runtime.block_on(subject.until_hit(bytes)).context("after the measurement")?;
        }
        tables.push(rounds.table(format!("hit of {size}; {}", machine(cores)), BARE));
        if bytes == 1024 {
            bound_small(&mut bounds, &rounds);
        } else {
            let to_bare = rounds.ratio(FOREBAY, BARE);
            bounds.figure("1 MiB: forebay to bare hyper", to_bare, "", Bound::AtMost(1.0));
        }
    }
    let pipelined = bench.pipelined()?;
    let title = format!("pipelined by {PIPELINED}, 1 KiB");
    tables.push(pipelined.table(title.clone(), NGINX_KEPT));
    let to_forebay = pipelined.ratio(NGINX_KEPT, FOREBAY);
    bounds.figure(format!("{title}: {NGINX_KEPT} to forebay"), to_forebay, "", Bound::AtLeast(3.0));
    let answers = bench.not_modified()?;
    let to_hit = answers.ratio(NOT_MODIFIED, HIT);
    bounds.figure("304 to a hit of 1 KiB", to_hit, "", Bound::AtMost(1.0));
    let idle = options.pick(IDLE, IDLE_QUICK);
    // Bare hyper and raw epoll show what many connections cost a server without a cache.
    for (name, bound) in [(FOREBAY, Bound::AtMost(1.1)), (BARE, Bound::None), (RAW, Bound::None)] {
        let ratio = runtime.block_on(bench.idle(bench.subject(name)?, idle))?;
        let text =
            format!("{ACTIVE_MANY} connections beside {idle} idle ones, to {ACTIVE_FEW} alone");
        bounds.figure(format!("{name}: {text}"), ratio, "", bound);
    }
    tables.push(bounds);
    Ok(tables)
}

fn bound_small(bounds: &mut Table, rounds: &Rounds<'_>) {
    let mut figure = |name: &str, one, other, bound| {
        bounds.figure(format!("1 KiB: {name}"), rounds.ratio(one, other), "", bound);
    };
    figure("forebay to bare hyper", FOREBAY, BARE, Bound::AtMost(0.95));
    figure("forebay to raw epoll", FOREBAY, RAW, Bound::AtMost(1.15));
    figure("nginx to forebay", NGINX, FOREBAY, Bound::AtLeast(2.0));
    figure("nginx, files kept open, to forebay", NGINX_KEPT, FOREBAY, Bound::AtLeast(2.0));
    if is_installed("haproxy") {
        figure("HAProxy to forebay", HAPROXY, FOREBAY, Bound::AtLeast(1.0));
    }
}

async fn start(ground: &Ground) -> Result<Vec<Subject>> {
    let mut subjects = servers::bare(ground.cores).await?;
    subjects.push(Subject::new(RAW, servers::raw(ground.cores.server).await?, None));
    subjects.push(ground.forebay().await?);
    subjects.push(ground.nginx(NGINX, "")?);
    let kept = "open_file_cache max=100 inactive=1h; open_file_cache_valid 1h;";
    subjects.push(ground.nginx(NGINX_KEPT, kept)?);
    subjects.extend(ground.installed_peers()?);
    Ok(subjects)
}
