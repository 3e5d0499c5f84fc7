//! `start-up`: time from the start of a process to its first response, beside other caches.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use forebay_disk::{Disk, Limits};
use forebay_engine::SystemClock;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::disk::put;
use crate::environment::{Options, forebay};
use crate::http::Client;
use crate::proxy::load::allowed_cores;
use crate::proxy::servers::{self, FOREBAY, Ground, NGINX, PEERS, Subject, is_installed};
use crate::report::{Better, Bound, Comparison, Table, Unit};

/// Entries on disk, and their size.
const ENTRIES: usize = 1_000_000;
const ENTRIES_QUICK: usize = 100_000;
const ENTRY: usize = 100;
const DISK: u64 = 2 << 30;
const AT_ONCE: usize = 16;

/// Most that a start may take in seconds, whatever is on disk.
const START_MAX: f64 = 0.5;

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    // A build is not measured.
    forebay()?;
    let rounds = options.pick(9, 3);
    let entries = options.pick(ENTRIES, ENTRIES_QUICK);
    let (cores, folder) = (allowed_cores()?, tempfile::tempdir()?);
    tokio::runtime::Runtime::new()?.block_on(async {
        let origin = servers::raw(cores.load).await?;
        let ground = Ground { folder: folder.path().to_owned(), origin: origin.address(), cores };
        let disk = folder.path().join("disk");
        fill(&disk, entries).await?;
        let mut names = vec![FOREBAY, NGINX];
        let installed = PEERS.iter().filter(|(_, program)| is_installed(program));
        names.extend(installed.map(|(name, _)| *name));
        let mut row = Comparison::new("nothing stored", Unit::Seconds, Better::Lower);
        let mut described = Vec::new();
        for name in names {
            let mut samples = Vec::new();
            for round in 0..rounds {
                let folder = folder.path().join(format!("{name}-{round}"));
                std::fs::create_dir_all(&folder)?;
                let ground = Ground { folder, ..ground.clone() };
                let (took, subject) = once(&ground, name, "").await?;
                samples.push(took);
                if round == 0 && name != FOREBAY {
                    described.push(subject);
                }
            }
            row = if name == FOREBAY { row.ours(samples) } else { row.rival(name, samples) };
        }
        let tiers = format!("[disk]\npath = \"{}\"\nsize = \"2GiB\"\n", disk.display());
        let mut warm = Vec::new();
        for _ in 0..rounds {
            warm.push(once(&ground, FOREBAY, &tiers).await?.0);
        }
        let mut table = Table::comparisons("from the start of the process to its first response");
        let bound = Bound::AtMost(START_MAX);
        table.compare(row.bound(bound));
        let name = format!("{entries} entries on disk");
        let row = Comparison::new(name, Unit::Seconds, Better::Lower).ours(warm).bound(bound);
        table.compare(row);
        Ok(vec![table.with_rivals(servers::described(&described, |one| one))])
    })
}

/// Starts a server and sends one request. Returns the seconds, and the server.
async fn once(ground: &Ground, name: &'static str, tables: &str) -> Result<(f64, Subject)> {
    let begun = Instant::now();
    let subject = match name {
        NGINX => ground.nginx(name, "")?,
        FOREBAY => ground.forebay_with(tables).await?,
        peer => ground.peer(peer)?,
    };
    let mut client = Client::connect(subject.address).await?;
    client.get("/items/a?size=100&cc=max-age=3600").await.context(name)?;
    Ok((begun.elapsed().as_secs_f64(), subject))
}

async fn fill(path: &std::path::Path, entries: usize) -> Result<()> {
    let disk = Disk::open(path, Limits::of(DISK), Arc::new(SystemClock))?;
    let body = Bytes::from(vec![7; ENTRY]);
    let puts = stream::iter((0..entries).map(|number| put(&disk, number, &body)));
    puts.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    disk.close().await;
    Ok(())
}
