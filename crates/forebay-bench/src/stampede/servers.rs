//! Stampedes on HTTP caches: forebay, nginx, Varnish and HAProxy in front of one counting origin.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::client::{Request, Timings, crowd};
use forebay_testkit::origin::{Answer, Origin};

use crate::environment::Options;
use crate::http::Client;
use crate::proxy::load::allowed_cores;
use crate::proxy::servers::{self, Ground, Subject};
use crate::report::{Better, Bound, Comparison, Table, Unit};

const CLIENTS: usize = 500;
const DELAY: Duration = Duration::from_millis(500);
/// Lifetime of a response is one second.
const EXPIRY: Duration = Duration::from_millis(1_600);

/// Origin requests of a cold crowd, and of one after the expiry; and their waits.
struct Outcome {
    cold: f64,
    cold_p99: f64,
    expired: f64,
    expired_p99: f64,
}

pub(super) async fn measure(options: &Options) -> Result<Table> {
    let title = format!("HTTP caches: {CLIENTS} clients at once, an origin that takes {DELAY:?}");
    let answer = Answer::ok("x".repeat(1 << 10)).field("Cache-Control", "max-age=1").delay(DELAY);
    let origin = Origin::always(answer).await?;
    let folder = tempfile::tempdir()?;
    let cores = allowed_cores()?;
    let ground = Ground { folder: folder.path().to_owned(), origin: origin.address(), cores };
    let mut all: Vec<(Subject, Vec<Outcome>)> = Vec::new();
    for subject in ground.caches().await? {
        let mut outcomes = Vec::new();
        for round in 0..options.pick(3, 1) {
            outcomes.push(play(&subject, &origin, round).await.context(subject.name)?);
        }
        all.push((subject, outcomes));
    }
    let mut table = Table::comparisons(title).with_rivals(servers::described(&all, |one| &one.0));
    let row = |name: &str, unit, bound, figure: fn(&Outcome) -> f64| {
        let row = Comparison::new(name, unit, Better::Lower).bound(bound);
        all.iter().fold(row, |row, (subject, outcomes)| {
            let samples = outcomes.iter().map(figure).collect();
            match subject.name == servers::FOREBAY {
                true => row.ours(samples),
                false => row.rival(subject.name, samples),
            }
        })
    };
    let one = Bound::AtMost(1.0);
    let shared = Bound::AtMost(0.6);
    table.compare(row("cold: origin requests", Unit::Count, one, |one| one.cold));
    table.compare(row("cold: p99", Unit::Seconds, shared, |one| one.cold_p99));
    table.compare(row("expired: origin requests", Unit::Count, one, |one| one.expired));
    table.compare(row("expired: p99", Unit::Seconds, shared, |one| one.expired_p99));
    Ok(table)
}

async fn play(subject: &Subject, origin: &Origin, round: usize) -> Result<Outcome> {
    // A cache may learn at its first response how to reach the origin.
    Client::connect(subject.address).await?.get(&format!("/warm/{round}")).await?;
    let (cold, cold_p99) = burst(subject, origin, &format!("/cold/{round}")).await?;
    let path = format!("/expired/{round}");
    Client::connect(subject.address).await?.get(&path).await?;
    tokio::time::sleep(EXPIRY).await;
    let (expired, expired_p99) = burst(subject, origin, &path).await?;
    Ok(Outcome { cold, cold_p99, expired, expired_p99 })
}

async fn burst(subject: &Subject, origin: &Origin, path: &str) -> Result<(f64, f64)> {
    let before = origin.requests();
    let replies = crowd(CLIENTS, subject.address, |_| Request::get(path)).await?;
    // A stale response may cause an update behind it.
    origin.wait_idle().await?;
    let failed = replies.iter().filter(|reply| reply.status != 200).count();
    ensure!(failed == 0, "{failed} of {CLIENTS} clients got another status than 200");
    let p99 = Timings::of_ends(&replies).p99().as_secs_f64();
    Ok(((origin.requests() - before) as f64, p99))
}
