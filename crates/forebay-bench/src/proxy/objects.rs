//! Resident memory of stored objects: 40 B of body and 250 B of head, by the real server.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::{Launch, Launched, memory};
use futures_util::future::try_join_all;

use super::load::allowed_cores;
use super::servers;
use crate::environment::{Options, forebay, mib};
use crate::http::Client;
use crate::report::{Bound, Table};

/// Objects that are stored; the quick number still is a hundred MiB.
const OBJECTS: u64 = 1_000_000;
const OBJECTS_QUICK: u64 = 150_000;

/// Body of an object.
const BODY: usize = 40;

/// Clients that request objects at the same time.
const CLIENTS: u64 = 32;

/// Objects that fill tables and buffers before the first measurement.
const BEFORE: u64 = 5_000;

/// Resident memory of one object.
const PER_OBJECT_MAX: f64 = 700.0;

/// Difference between accounted bytes and resident memory, relative to the latter.
const ACCOUNTED_MAX: f64 = 0.1;

/// Sizes of the cache whose churn is measured, in MiB.
const CHURNED_MIB: [u64; 2] = [256, 2_048];

/// Memory of a process beside 1.15 times the size of its cache.
const BESIDE: f64 = 32.0;

/// Kinds of objects of a churn: the name, and sizes of bodies that take turns.
const CHURNS: [(&str, &[usize]); 3] = [
    ("tiny", &[1, 40, 200]),
    ("mixed", &[40, 3_000, 100_000, 500, 1_000_000, 20_000]),
    ("large", &[1_000_000, 4_000_000]),
];

/// Bytes of bodies that a churn requests, relative to the size of the cache.
const TURNOVER: u64 = 4;

/// Requests of a churn with a duration between two looks at the clock.
const ROUND_TIMED: u64 = 2_000;

/// Most requests of a churn: tiny objects are slow to replace.
const REQUESTS_MAX: u64 = 3_000_000;

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut tables = vec![runtime.block_on(per_object(options))?];
    let sizes = options.pick(&CHURNED_MIB[..], &CHURNED_MIB[..1]);
    for size in sizes {
        tables.push(runtime.block_on(churns(options, *size))?);
    }
    Ok(tables)
}

/// Cache in front of the raw server.
struct Cache {
    _origin: Launched,
    server: Launched,
}

impl Cache {
    async fn start(memory_mib: u64) -> Result<Self> {
        let origin = servers::raw(allowed_cores()?.load).await?;
        let (url, memory) = (format!("http://{}", origin.address()), format!("{memory_mib}MiB"));
        let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let cache = Launch::binary(forebay()?).args(serve).args(["--memory", &memory]);
        let server = cache.args(["--origin", &url]).start().await.context("start the cache")?;
        Ok(Self { _origin: origin, server })
    }

    fn resident(&self) -> Result<f64> {
        Ok(memory(self.server.pid(), "VmRSS")? as f64)
    }

    async fn accounted(&self) -> Result<f64> {
        Ok(self.server.metric("forebay_tier_bytes{tier=\"memory\"}").await? as f64)
    }

    async fn entries(&self) -> Result<u64> {
        self.server.metric("forebay_tier_entries{tier=\"memory\"}").await
    }
}

/// Requests these objects once each.
async fn store(
    at: SocketAddr,
    numbers: std::ops::Range<u64>,
    size_of: impl Fn(u64) -> usize + Copy,
) -> Result<()> {
    let clients = (0..CLIENTS).map(|first| {
        let numbers = numbers.clone();
        async move {
            let mut client = Client::connect(at).await?;
            for number in numbers.filter(|number| number % CLIENTS == first) {
                let size = size_of(number);
                let path = format!("/items/{number:07}?size={size}&cc=max-age=3600");
                let (head, length) = client.get(&path).await?;
                ensure!(head.status() == 200 && length == size as u64, "{head:?} for {path}");
            }
            Ok(())
        }
    });
    try_join_all(clients).await?;
    Ok(())
}

async fn per_object(options: &Options) -> Result<Table> {
    let objects = options.pick(OBJECTS, OBJECTS_QUICK);
    let cache = Cache::start(2_048).await?;
    let at = cache.server.address();
    store(at, 0..BEFORE, |_| BODY).await?;
    let (resident, accounted) = (cache.resident()?, cache.accounted().await?);
    store(at, BEFORE..BEFORE + objects, |_| BODY).await?;
    let entries = cache.entries().await?;
    ensure!(entries == BEFORE + objects, "{entries} entries are stored");
    let grown = cache.resident()? - resident;
    let counted = cache.accounted().await? - accounted;
    let title = format!("{objects} objects with a body of {BODY} B and a head of 250 B");
    let mut table = Table::figures(title);
    let each = |bytes: f64| (bytes / objects as f64).round();
    table.figure("resident per object", each(grown), "B", Bound::AtMost(PER_OBJECT_MAX));
    table.figure("accounted per object", each(counted), "B", Bound::None);
    let difference = (counted - grown).abs() / grown;
    table.figure("difference, to resident", difference, "", Bound::AtMost(ACCOUNTED_MAX));
    Ok(table)
}

async fn churns(options: &Options, size_mib: u64) -> Result<Table> {
    let title = format!("churn of a cache of {size_mib} MiB: most resident memory, in MiB");
    let mut table = Table::figures(title);
    for (name, sizes) in CHURNS {
        let cache = Cache::start(size_mib).await?;
        let typical = sizes.iter().sum::<usize>() as u64 / sizes.len() as u64 + 600;
        let turnover = options.pick(TURNOVER, 2);
        let round = ((size_mib << 20) * turnover / typical).min(REQUESTS_MAX);
        let watch = crate::memory::process::Watch::start(cache.server.pid());
        let (begun, at) = (Instant::now(), cache.server.address());
        let size_of = |number| sizes[usize::try_from(number).unwrap_or(0) % sizes.len()];
        let mut requests = 0;
        while requests == 0 || options.minutes.is_some_and(|m| begun.elapsed().as_secs() < 60 * m) {
            let round = if options.minutes.is_some() { round.min(ROUND_TIMED) } else { round };
            store(at, requests..requests + round, size_of).await?;
            requests += round;
        }
        let seen = watch.stop().await?;
        let most = Bound::AtMost(1.15 * size_mib as f64 + BESIDE);
        let name = format!("{name}, {requests} objects");
        table.figure(name, mib(seen.most).round(), "MiB", most);
    }
    Ok(table)
}
