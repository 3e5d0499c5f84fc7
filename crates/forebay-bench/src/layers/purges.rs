//! Purges by URL, tag and prefix, which one of two servers is sent and the other one carries out.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::origin::{Answer, Origin};
use forebay_testkit::redis::RedisLaunch;

use crate::cluster::fleet::Fleet;
use crate::environment::{forebay, quantile};
use crate::report::{Better, Bound, Comparison, Table, Unit};

/// Entries that a purge by tag or prefix removes.
const MEMBERS: usize = 1_000;
/// Maximum time until the other server has loaded a purged entry again.
const VISIBLE_MAX: Duration = Duration::from_secs(10);

/// Name of a row, and the purge.
const PURGES: [(&str, &str); 3] = [
    ("purge of a URL", r#"{"url":"http://bench/items/0","hard":true}"#),
    ("purge of a tag of 1,000 members", r#"{"tag":"all","hard":true}"#),
    ("purge of a prefix with 1,000 members", r#"{"prefix":"/items/","hard":true}"#),
];

pub(super) async fn measure(rounds: usize) -> Result<Table> {
    let answer = Answer::ok("x".repeat(1 << 10)).field("Surrogate-Key", "all");
    let origin = Origin::always(answer.field("Cache-Control", "max-age=3600")).await?;
    let redis = RedisLaunch::new().start().await?;
    let fleet = Fleet::start(2, &origin, &redis.url(), &forebay()?).await?;
    let mut table = Table::comparisons(
        "servers: a purge that one is sent, until the other one loads an entry again",
    );
    for (name, purge) in PURGES {
        eprintln!("measuring: {name}");
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push(visible(&fleet, &origin, purge).await?);
        }
        let row =
            |what: &str| Comparison::new(format!("{name}: {what}"), Unit::Seconds, Better::Lower);
        table.compare(row("p50").ours(vec![quantile(&times, 0.5)]));
        let late = row("p99").ours(vec![quantile(&times, 0.99)]);
        table.compare(late.bound_for(Bound::AtMost(0.020), 4));
    }
    Ok(table.note("rivals: see the table above; nginx and HAProxy have no purge by tag or prefix"))
}

/// Seconds from the request for a purge until the other server loads an entry again.
async fn visible(fleet: &Fleet, origin: &Origin, purge: &str) -> Result<f64> {
    let [here, there] = &fleet.0[..] else { anyhow::bail!("there are two servers") };
    let mut other = Client::connect(there.address()).await?;
    for number in 0..MEMBERS {
        other.ask(&page(&format!("/items/{number}"))).await?;
    }
    let loads = origin.requests();
    other.ask(&page("/items/0")).await?;
    ensure!(origin.requests() == loads, "the entry is not stored");
    let admin = here.admin().ok_or_else(|| anyhow::anyhow!("no admin listener"))?;
    let host = admin.to_string();
    let mut admin = Client::connect(admin).await?;
    let request = Request::new("POST", "/purge").without_host().field("Host", host);
    let request = request.field("Content-Type", "application/json");
    let begun = Instant::now();
    let reply = admin.ask(&request.body(purge.as_bytes().to_vec())).await?;
    ensure!(reply.status == 200, "the purge is answered {}: {}", reply.status, reply.text());
    while origin.requests() == loads {
        ensure!(begun.elapsed() < VISIBLE_MAX, "the purge is not visible");
        other.ask(&page("/items/0")).await?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn page(target: &str) -> Request {
    Request::get(target).without_host().field("Host", "bench")
}
