//! Request coalescing in two instances, off, in each instance, and across both: a published load in
//! real time.
//!
//! Requests for one resource follow a fixed schedule (an open loop) and go to both instances in
//! turns; a time counts from the scheduled moment. All subjects get their requests in the same
//! moments, so that what the machine does falls on all of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::{Launch, Launched};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use parking_lot::Mutex;
use std::net::SocketAddr;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::environment::{Options, forebay, quantile};
use crate::http::Client;
use crate::proxy::load::allowed_cores;
use crate::proxy::servers::{self, Ground, Subject, TRAFFIC_SERVER, VARNISH, is_installed};
use crate::report::{Better, Bound, Comparison, Table, Unit};
use crate::rivals::Rival;

const RATE: u32 = 500;
const ORIGIN: Duration = Duration::from_millis(500);
const FRESH: u32 = 5;
const INSTANCES: usize = 2;

/// Time of the measurement: eleven lifetimes that count from the request, as RFC 9111 has it, or ten
/// that count from the response.
const SPAN: Duration = Duration::from_secs(55);

const SOURCE: &str = "Speedis";

/// Rows: name in tables, lines of the site, and true if the instances share a Redis.
const MODES: [(&str, &str, bool); 4] = [
    (OFF, "coalesce = false\nearly_refresh_beta = 0.0\n", false),
    (INSTANCE, "early_refresh_beta = 0.0\n", false),
    (CLUSTER, "early_refresh_beta = 0.0\n", true),
    (DEFAULT, "", true),
];
const OFF: &str = "forebay, coalescing off";
const INSTANCE: &str = "forebay, in each instance";
const CLUSTER: &str = "forebay, across instances";
const DEFAULT: &str = "forebay, across instances with early refresh (default)";

/// Two instances in front of an origin of their own.
struct Pair {
    name: &'static str,
    addresses: Vec<SocketAddr>,
    origin: Origin,
    pools: Vec<Mutex<Vec<Client>>>,
    /// Second of the measurement in which a request was due, and its time in seconds.
    times: Mutex<Vec<(f64, f64)>>,
    /// Ends the servers when dropped.
    _servers: Vec<Server>,
}

/// A process that the pair needs.
enum Server {
    Forebay { _process: Launched },
    Redis { _process: RedisServer },
}

/// Rivals, whose processes end with their subject.
type Rivals = Vec<Subject>;

pub(crate) fn run(_: &Options) -> Result<Vec<Table>> {
    let runtime = tokio::runtime::Runtime::new()?;
    Ok(vec![runtime.block_on(measure())?])
}

async fn measure() -> Result<Table> {
    let folder = tempfile::tempdir()?;
    let (mut pairs, mut rivals, mut described) = (Vec::new(), Rivals::new(), Vec::new());
    for (name, lines, is_shared) in MODES {
        pairs.push(Arc::new(ours(name, lines, is_shared).await?));
    }
    let optional = [("varnishd", VARNISH), ("traffic_server", TRAFFIC_SERVER)];
    let installed = optional.into_iter().filter(|(program, _)| is_installed(program));
    let names = [servers::NGINX, servers::NGINX_LOCK].into_iter();
    for name in names.chain(installed.map(|(_, name)| name)) {
        let (pair, subjects) = theirs(name, folder.path()).await?;
        pairs.push(Arc::new(pair));
        rivals.extend(subjects);
    }
    described
        .extend(servers::described(&rivals.iter().step_by(INSTANCES).collect::<Vec<_>>(), |one| {
            one
        }));
    described.push(Rival::missing(SOURCE, "the npm registry has no package of this name"));
    eprintln!("measuring: {} s, {} subjects at once", SPAN.as_secs(), pairs.len());
    let begun = Instant::now();
    let mut waiting = JoinSet::new();
    for number in 0.. {
        let due = begun + Duration::from_secs(1) * number / RATE;
        // The next cycle does not begin any more.
        if due >= begun + SPAN - ORIGIN / 2 {
            break;
        }
        sleep_until(due).await;
        for pair in &pairs {
            waiting.spawn(ask(pair.clone(), number as usize % INSTANCES, begun, due));
        }
        while let Some(asked) = waiting.try_join_next() {
            asked??;
        }
    }
    // The count ends here: requests of an expired cycle would still come.
    let requests: Vec<u64> = pairs.iter().map(|pair| pair.origin.requests()).collect();
    while let Some(asked) = waiting.join_next().await {
        asked??;
    }
    Ok(table(&pairs, &requests).with_rivals(described))
}

async fn ask(pair: Arc<Pair>, instance: usize, begun: Instant, due: Instant) -> Result<()> {
    let idle = pair.pools[instance].lock().pop();
    let mut client = match idle {
        Some(client) => client,
        None => Client::connect(pair.addresses[instance]).await?,
    };
    let (head, _) = client.get("/items/one").await.context(pair.name)?;
    ensure!(head.status() == 200, "{} answers {}", pair.name, head.status());
    let at = due.duration_since(begun).as_secs_f64();
    pair.times.lock().push((at, due.elapsed().as_secs_f64()));
    pair.pools[instance].lock().push(client);
    Ok(())
}

async fn origin() -> Result<Origin> {
    let answer = Answer::ok("x".repeat(1 << 10));
    let answer = answer.field("Cache-Control", format!("public, max-age={FRESH}")).delay(ORIGIN);
    Ok(Origin::always(answer).await?)
}

async fn ours(name: &'static str, lines: &str, is_shared: bool) -> Result<Pair> {
    let (origin, binary) = (origin().await?, forebay()?);
    let mut servers = Vec::new();
    let mut redis = String::new();
    if is_shared {
        let process = RedisLaunch::new().start().await?;
        redis = format!("[redis]\nurl = \"{}\"\n", process.url());
        servers.push(Server::Redis { _process: process });
    }
    let text = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n{redis}[[site]]\n\
         id = \"items\"\norigin = \"{}\"\n{lines}",
        origin.url()
    );
    let launch = Launch::binary(binary).args(["serve"]).config(&text)?;
    let mut addresses = Vec::new();
    for _ in 0..INSTANCES {
        let process = launch.clone().start().await?;
        addresses.push(process.address());
        if is_shared {
            wait_ready(&process).await?;
        }
        servers.push(Server::Forebay { _process: process });
    }
    Ok(Pair::new(name, addresses, origin, servers))
}

async fn wait_ready(process: &Launched) -> Result<()> {
    let begun = Instant::now();
    while process.get_admin("/readyz").await?.status != 200 {
        ensure!(begun.elapsed() < Duration::from_secs(20), "an instance does not become ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn theirs(name: &'static str, folder: &std::path::Path) -> Result<(Pair, Vec<Subject>)> {
    let (origin, cores) = (origin().await?, allowed_cores()?);
    let mut subjects = Vec::new();
    for instance in 0..INSTANCES {
        let folder = folder.join(format!("{name}-{instance}").replace([' ', ','], "-"));
        std::fs::create_dir_all(&folder)?;
        let ground = Ground { folder, origin: origin.address(), cores };
        subjects.push(match name {
            servers::NGINX => ground.nginx(name, "")?,
            servers::NGINX_LOCK => ground.nginx_lock()?,
            peer => ground.peer(peer)?,
        });
    }
    let addresses = subjects.iter().map(|subject| subject.address).collect();
    Ok((Pair::new(name, addresses, origin, Vec::new()), subjects))
}

impl Pair {
    fn new(
        name: &'static str,
        addresses: Vec<SocketAddr>,
        origin: Origin,
        servers: Vec<Server>,
    ) -> Self {
        let pools = (0..INSTANCES).map(|_| Mutex::default()).collect();
        Self { name, addresses, origin, pools, times: Mutex::default(), _servers: servers }
    }
}

/// Mean of the times in milliseconds of the requests of each half second.
fn by_half_second(times: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const STEPS: usize = 2 * SPAN.as_secs() as usize;
    let mut sums = vec![(0.0, 0.0); STEPS];
    for (at, time) in times {
        let (sum, count) = &mut sums[((at * 2.0) as usize).min(STEPS - 1)];
        (*sum, *count) = (*sum + time * 1e3, *count + 1.0);
    }
    let means = sums.into_iter().map(|(sum, count): (f64, f64)| sum / count.max(1.0));
    means.enumerate().map(|(step, mean)| (step as f64 / 2.0, mean)).collect()
}

fn table(pairs: &[Arc<Pair>], requests: &[u64]) -> Table {
    let title = format!(
        "{INSTANCES} instances, {RATE} requests a second for {} s, an origin that takes {ORIGIN:?}, \
         fresh for {FRESH} s",
        SPAN.as_secs()
    );
    let mut table = Table::comparisons(title)
        .note("each row of forebay is one mode; the rivals have the mode that their name says");
    let of = |name: &str| {
        let at = pairs.iter().position(|pair| pair.name == name);
        at.map(|at| {
            let times = pairs[at].times.lock();
            let times: Vec<f64> = times.iter().map(|(_, time)| *time).collect();
            (times, requests[at] as f64 / SPAN.as_secs_f64())
        })
    };
    let coalescing: &[&str] = &[servers::NGINX_LOCK, VARNISH, TRAFFIC_SERVER];
    let rows: [(&str, &[&str]); 4] = [
        (OFF, &[servers::NGINX]),
        (INSTANCE, coalescing),
        (CLUSTER, coalescing),
        (DEFAULT, coalescing),
    ];
    for (mode, rivals) in rows {
        let Some((times, rate)) = of(mode) else { continue };
        let short = mode.trim_start_matches("forebay, ");
        let mut origin = Comparison::new(
            format!("{short}: origin requests per second"),
            Unit::Count,
            Better::Lower,
        );
        origin = match mode {
            OFF => origin.published(SOURCE, 42.5),
            INSTANCE => origin.published(SOURCE, 0.35).bound(Bound::AtMost(0.40)),
            CLUSTER => origin.published(SOURCE, 0.175).bound(Bound::AtMost(0.20)),
            _ => origin,
        };
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
        let name = format!("{short}: mean latency");
        let mut latency = Comparison::new(name, Unit::Seconds, Better::Lower);
        if mode == INSTANCE {
            latency = latency.published(SOURCE, 0.020);
        }
        let mut late =
            Comparison::new(format!("{short}: p99 latency"), Unit::Seconds, Better::Lower);
        for (rival, (times, rate)) in rivals.iter().filter_map(|name| Some((*name, of(name)?))) {
            origin = origin.rival(rival, vec![rate]);
            latency = latency.rival(rival, vec![mean(&times)]);
            late = late.rival(rival, vec![quantile(&times, 0.99)]);
        }
        table.compare(origin.ours(vec![rate]));
        table.compare(latency.ours(vec![mean(&times)]));
        table.compare(late.ours(vec![quantile(&times, 0.99)]));
    }
    for pair in pairs {
        let name = format!("{}: mean latency in ms, by half second", pair.name);
        table.series(&name, by_half_second(&pair.times.lock()));
    }
    table
}
