//! CPU time of compressed responses beside nginx, and the latency of other hits meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use parking_lot::Mutex;

use super::cache;
use super::traffic::{Servers, Traffic, latency_ms};
use crate::environment::{Options, forebay, pinned};
use crate::http::Client;
use crate::proxy::load::{COLUMNS, Load, Sample, allowed_cores, busy, cells, machine, ratio};
use crate::proxy::servers::{Ground, NGINX, Subject};
use crate::report::{Bound, Table, Verdict};

/// Length of a page.
const BYTES: usize = 100_000;

/// CPU time of a hit on a form, relative to an unencoded one of its length, and to nginx.
const FORM_MAX: f64 = 1.05;
const NGINX_MAX: f64 = 0.10;

/// Cold pages per second, and hits per second.
const COLD: u32 = 200;

/// Requests for each cold page: one that stores it, and two hits, the second of which has it
/// compressed.
const REQUESTS: u64 = 3;

/// Pages whose requests alternate, so that each is stored when it is requested again.
const ALTERNATING: u64 = 40;

const HITS: u32 = 500;

/// 99th percentile of the latency of hits, relative to that without cold pages.
const P99_MAX: f64 = 1.5;

/// Maximum number of requests until a form is made.
const TRIES_MAX: u32 = 1_000;

const ENABLED: &str = "[site.compress]\nenabled = true\ncodings = [\"gzip\"]\n";
const GZIP: &str = "Accept-Encoding: gzip";

pub(super) fn run(options: &Options) -> Result<Vec<Table>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut tables = cpu(options, &runtime)?;
    tables.push(runtime.block_on(latency(options))?);
    Ok(tables)
}

fn cpu(options: &Options, runtime: &tokio::runtime::Runtime) -> Result<Vec<Table>> {
    let (rounds, seconds) = options.pick((options.rounds, options.seconds), (1, 1));
    let (cores, folder) = (allowed_cores()?, tempfile::tempdir()?);
    let program = forebay()?;
    let origin = pinned(cores.load, &program, &["origin", "--listen", "127.0.0.1:0"]);
    let origin = runtime.block_on(origin)?;
    let ground = Ground { folder: folder.path().to_owned(), origin: origin.address(), cores };
    let site = format!("origin = \"http://{}\"\n{ENABLED}", origin.address());
    let ours = runtime.block_on(ground.forebay_site("", &site))?;
    let gzip = "gzip on; gzip_types *; gzip_proxied any; gzip_comp_level 6;";
    let nginx = ground.nginx(NGINX, gzip)?;
    let form = runtime.block_on(form_length(&ours))?;
    runtime.block_on(ours.until_hit(form))?;
    runtime.block_on(nginx.until_hit(BYTES))?;
    let encoded =
        |subject: &Subject, field| Load { field, ..Load::new(subject.url(BYTES), seconds) };
    let loads = [
        ("nginx, gzip on", &nginx, encoded(&nginx, Some(GZIP))),
        ("forebay, gzip form", &ours, encoded(&ours, Some(GZIP))),
        ("forebay, unencoded of that length", &ours, Load::new(ours.url(form), seconds)),
    ];
    let mut measured: [Vec<Sample>; 3] = Default::default();
    for _ in 0..rounds {
        for ((_, subject, load), samples) in loads.iter().zip(&mut measured) {
            samples.push(load.run(subject.pid, cores.load)?);
        }
    }
    let rows = loads.iter().zip(&measured).map(|((name, ..), samples)| (*name, &**samples));
    let note = busy(rows.clone());
    let title = format!("hit on a page of {BYTES} B, {form} B in gzip; {}", machine(cores));
    let mut table = Table::new(title, &COLUMNS).note(note);
    for (name, samples) in rows {
        table.row(cells(name, samples, &measured[0]), "", Verdict::Shown);
    }
    let [nginx, form, plain] = &measured;
    let mut bounds = Table::figures("bounds, as ratios of CPU time per request");
    let bound = Bound::AtMost(FORM_MAX);
    bounds.figure("gzip form to unencoded of that length", ratio(form, plain), "", bound);
    let bound = Bound::AtMost(NGINX_MAX);
    bounds.figure("gzip form to nginx with gzip on", ratio(form, nginx), "", bound);
    Ok(vec![table, bounds])
}

/// Requests a page until its form is made; returns the length of the form.
async fn form_length(subject: &Subject) -> Result<usize> {
    let mut client = Client::connect(subject.address).await?;
    let field = || Some((ACCEPT_ENCODING, "gzip"));
    for _ in 0..TRIES_MAX {
        let (head, length) = client.get_with(&subject.target(BYTES), field()).await?;
        ensure!(head.status() == 200, "{head:?}");
        if head.headers().contains_key(CONTENT_ENCODING) {
            return Ok(usize::try_from(length)?);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    anyhow::bail!("no gzip form is made")
}

/// Latency of hits, without and with cold pages that are compressed.
async fn latency(options: &Options) -> Result<Table> {
    let span = Duration::from_secs(options.pick(10, 3));
    let listen = ["origin", "--listen", "127.0.0.1:0"];
    let origin = forebay_testkit::launch::Launch::binary(forebay()?).args(listen).start().await?;
    let site = format!("origin = \"http://{}\"\n{ENABLED}", origin.address());
    let cache = cache("", &site).await?;
    let to: Servers = Arc::new(Mutex::new(vec![cache.address()]));
    let hit = |_| "/items/hit?size=1000".to_owned();
    let quiet = Traffic::start(HITS, &to, hit).end_after(span).await?;
    let pages = |kind: &'static str| {
        move |number: u64| {
            let page = number / (ALTERNATING * REQUESTS) * ALTERNATING + number % ALTERNATING;
            format!("/items/{kind}{page}?size={BYTES}")
        }
    };
    let rate = COLD * REQUESTS as u32;
    let cold = Traffic::start(rate, &to, pages("unencoded"));
    let unencoded = Traffic::start(HITS, &to, hit).end_after(span).await?;
    cold.end().await?;
    let cold = Traffic::with_gzip(rate, &to, pages("encoded"));
    let busy = Traffic::start(HITS, &to, hit).end_after(span).await?;
    let pages = cold.end().await?.len() / REQUESTS as usize;
    let made = "forebay_compressions_total{site=\"bench\",result=\"made\"}";
    let made = cache.metric(made).await? as f64;
    let title = format!("{HITS} hits/s beside {COLD} cold pages/s of {BYTES} B");
    let mut table = Table::figures(title);
    table.figure("compressions", made, "", Bound::AtLeast(1.0));
    table.figure("cold pages", pages as f64, "", Bound::None);
    let [quiet, unencoded, busy] = [&quiet, &unencoded, &busy].map(|hits| latency_ms(hits, 0.99));
    table.figure("p99 of hits, without cold pages", quiet, "ms", Bound::None);
    table.figure("p99 of hits, with cold pages unencoded", unencoded, "ms", Bound::None);
    table.figure("p99 of hits, with them", busy, "ms", Bound::None);
    table.figure("ratio", busy / quiet, "", Bound::AtMost(P99_MAX));
    Ok(table)
}
