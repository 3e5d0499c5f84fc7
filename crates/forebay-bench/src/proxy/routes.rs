//! `http`: three routes of a published measurement at 40 connections, beside other caches: stored,
//! not stored, and stored with further tiers.

use anyhow::{Context as _, Result};
use forebay_testkit::redis::{RedisLaunch, RedisServer};

use super::load::{Load, Sample, allowed_cores, busy};
use super::servers::{self, FOREBAY, Ground, NGINX, NGINX_KEPT, Subject};
use crate::environment::Options;
use crate::report::{Better, Comparison, Table, Unit};

const CONNECTIONS: usize = 40;

const SOURCE: &str = "layercache with Express";

/// A path, its name, and the published requests per second.
struct Route {
    name: &'static str,
    /// Query of the target.
    query: &'static str,
    published: Option<f64>,
    /// True if only forebay with further tiers takes part, beside other caches without.
    is_tiered: bool,
}

const ROUTES: [Route; 5] = [
    Route {
        name: "stored, 1 KiB",
        query: "size=1024&cc=max-age=3600",
        published: Some(16_705.0),
        is_tiered: false,
    },
    Route {
        name: "stored, 1 MiB",
        query: "size=1048576&cc=max-age=3600",
        published: None,
        is_tiered: false,
    },
    Route {
        name: "not stored, 1 KiB",
        query: "size=1024&cc=no-store",
        published: Some(161.0),
        is_tiered: false,
    },
    Route {
        name: "stored, with disk and Redis, 1 KiB",
        query: "size=1024&cc=max-age=3600",
        published: Some(17_184.0),
        is_tiered: true,
    },
    Route {
        name: "stored, with disk and Redis, 1 MiB",
        query: "size=1048576&cc=max-age=3600",
        published: None,
        is_tiered: true,
    },
];

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 1));
    let (cores, folder) = (allowed_cores()?, tempfile::tempdir()?);
    let runtime = tokio::runtime::Runtime::new()?;
    let origin = runtime.block_on(servers::raw(cores.load))?;
    let ground = Ground { folder: folder.path().to_owned(), origin: origin.address(), cores };
    let (subjects, tiered, _redis) = runtime.block_on(start(&ground))?;
    let mut table = Table::comparisons(format!(
        "{CONNECTIONS} connections, one core for each server; {rounds} rounds of {seconds} s in turns"
    ));
    let mut busiest = Vec::new();
    for route in ROUTES {
        eprintln!("measuring: {}", route.name);
        let mut all: Vec<(&str, Vec<Sample>)> = Vec::new();
        for _ in 0..rounds {
            for subject in &subjects {
                let is_ours = subject.name == FOREBAY;
                let subject = if is_ours && route.is_tiered { &tiered } else { subject };
                let url = format!("http://{}/routes/a?{}", subject.address, route.query);
                let load = Load { connections: CONNECTIONS, ..Load::new(url, seconds) };
                let sample = load.run(subject.pid, cores.load).context(subject.name)?;
                match all.iter_mut().find(|(name, _)| *name == subject.name) {
                    Some((_, samples)) => samples.push(sample),
                    None => all.push((subject.name, vec![sample])),
                }
            }
        }
        rows(&mut table, &route, &all);
        busiest.push(format!(
            "{}: {}",
            route.name,
            busy(all.iter().map(|(name, of)| (*name, &**of)))
        ));
    }
    let note = format!("the load generator has one core as well; {}", busiest.join("; "));
    Ok(vec![table.note(note).with_rivals(servers::described(&subjects, |one| one))])
}

async fn start(ground: &Ground) -> Result<(Vec<Subject>, Subject, RedisServer)> {
    let kept = "open_file_cache max=100 inactive=1h; open_file_cache_valid 1h;";
    let mut subjects =
        vec![ground.forebay().await?, ground.nginx(NGINX, "")?, ground.nginx(NGINX_KEPT, kept)?];
    subjects.extend(ground.installed_peers()?);
    let redis = RedisLaunch::new().start().await?;
    let disk = ground.folder.join("disk");
    let tiers = format!(
        "[disk]\npath = \"{}\"\nsize = \"1GiB\"\n[redis]\nurl = \"{}\"\n",
        disk.display(),
        redis.url()
    );
    let folder = ground.folder.join("tiered");
    std::fs::create_dir_all(&folder)?;
    let ground = Ground { folder, ..ground.clone() };
    Ok((subjects, ground.forebay_with(&tiers).await?, redis))
}

fn rows(table: &mut Table, route: &Route, all: &[(&str, Vec<Sample>)]) {
    let of = |row: Comparison, figure: fn(&Sample) -> f64| {
        all.iter().fold(row, |row, (name, samples)| {
            let samples: Vec<f64> = samples.iter().map(figure).collect();
            match *name {
                FOREBAY => row.ours(samples),
                name => row.rival(name, samples),
            }
        })
    };
    let name = |what: &str| format!("{}: {what}", route.name);
    let mut rate = Comparison::new(name("requests per second"), Unit::PerSecond, Better::Higher);
    if let Some(published) = route.published {
        rate = rate.published(SOURCE, published);
    }
    table.compare(of(rate, |sample| sample.rate));
    let cpu = Comparison::new(name("CPU time per request"), Unit::Seconds, Better::Lower);
    table.compare(of(cpu, |sample| sample.cpu_us() / 1e6));
    let p99 = Comparison::new(name("p99"), Unit::Seconds, Better::Lower);
    table.compare(of(p99, |sample| sample.p99_us / 1e6));
}
