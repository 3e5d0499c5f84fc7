//! Several servers of one origin: one that is killed, one that is slow, and all that fail.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use forebay_testkit::client::{Client, Request};
use forebay_testkit::launch::{Launch, Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::cache;
use super::traffic::{Servers, Traffic, count_other};
use crate::environment::{Options, forebay};
use crate::report::{Bound, Table};

/// Cold requests per second while a server is killed.
const RATE: u32 = 500;

/// `failures` of `eject`, and the time of the first ejection and of the slow start.
const FAILURES: u64 = 5;
const EJECTED: Duration = Duration::from_secs(10);

/// Time after which the killed server listens again: within the first ejection.
const DOWN: Duration = Duration::from_secs(5);

/// Least share of the requests that it gets afterwards.
const SHARE_MIN: f64 = 0.25;

/// Time in which that share is measured.
const MEASURED: Duration = Duration::from_secs(3);

/// Largest share of a server that takes a hundred times as long as the two others.
const SLOW_SHARE_MAX: f64 = 0.05;

/// Requests of clients per second while all servers fail, and their time in seconds: twice the
/// window of the budget, which begins with the retries of a whole window.
const FAILING_RATE: u32 = 200;
const FAILING_SECONDS: u64 = 20;

/// Retries of all requests, and those that are possible in each second.
const RETRIED: f64 = 1.11;
const RETRIES_PER_SECOND: f64 = 3.0;

/// POST requests to servers that close connections at random, by this many clients.
const POSTS: u64 = 10_000;
const POST_CLIENTS: u64 = 8;

/// Kills one of three servers without a warning.
pub(super) async fn failing(options: &Options) -> Result<Table> {
    let span = Duration::from_secs(options.pick(10, 3));
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(server("127.0.0.1:0".parse()?).await?);
    }
    let urls: Vec<String> =
        servers.iter().map(|server| format!("\"http://{}\"", server.address())).collect();
    let cache = cache("", &format!("[site.origin]\nurls = [{}]", urls.join(", "))).await?;
    let to: Servers = Arc::new(Mutex::new(vec![cache.address()]));
    let traffic = Traffic::start(RATE, &to, |number| format!("/items/{number}?size=100"));
    tokio::time::sleep(span).await;
    let killed = servers.pop().context("three servers were started")?;
    let address = killed.address();
    let before = requests(&cache, &address, "").await? - requests(&cache, &address, "ok").await?;
    killed.signal(Signal::Kill).await?;
    let killed_at = Instant::now();
    tokio::time::sleep(DOWN).await;
    let failed = requests(&cache, &address, "").await? - requests(&cache, &address, "ok").await?;
    let ejections = "forebay_endpoint_ejections_total{site=\"bench\"}";
    let ejections = cache.metric(ejections).await?;
    drop(killed);
    let _again = server(address).await?;
    tokio::time::sleep((EJECTED * 2).saturating_sub(killed_at.elapsed())).await;
    let all = "forebay_origin_requests_total{site=\"bench\"}";
    let (own_before, all_before) =
        (requests(&cache, &address, "").await?, cache.metric(all).await?);
    let replies = traffic.end_after(MEASURED).await?;
    let (own, total) = (requests(&cache, &address, "").await?, cache.metric(all).await?);
    let share = (own - own_before) as f64 / (total - all_before).max(1) as f64;
    let title = format!("one of three servers is killed under {RATE} cold requests/s");
    let mut table = Table::figures(title);
    table.count("failed requests of clients", count_other(&replies, 200), 0.0);
    let most = (FAILURES + ejections) as f64;
    table.count("failed requests to the killed server", (failed - before) as f64, most);
    let name = format!("its share {:?} after the kill", EJECTED * 2);
    table.figure(name, share, "", Bound::AtLeast(SHARE_MIN));
    table.figure("requests of clients", replies.len() as f64, "", Bound::None);
    Ok(table)
}

/// Starts a server on an address.
async fn server(address: SocketAddr) -> Result<Launched> {
    let listen = address.to_string();
    Launch::binary(forebay()?).args(["origin", "--listen", &listen]).start().await
}

/// Requests to a server with a result; all of them without one.
async fn requests(cache: &Launched, server: &SocketAddr, result: &str) -> Result<u64> {
    let result = if result.is_empty() { String::new() } else { format!(",result=\"{result}\"") };
    let labels = format!("site=\"bench\",endpoint=\"{server}\"{result}");
    cache.metric(&format!("forebay_origin_requests_total{{{labels}}}")).await
}

/// A server of 500 ms beside two of 5 ms.
pub(super) async fn uneven(options: &Options) -> Result<Table> {
    let span = Duration::from_secs(options.pick(10, 3));
    let answer = |millis| {
        let answer = Answer::ok("x").field("Cache-Control", "no-store");
        Origin::always(answer.delay(Duration::from_millis(millis)))
    };
    let origins = [answer(500).await?, answer(5).await?, answer(5).await?];
    let cache = balanced(&origins, "").await?;
    let to: Servers = Arc::new(Mutex::new(vec![cache.address()]));
    let replies = Traffic::start(RATE, &to, |number| format!("/{number}")).end_after(span).await?;
    let counts = origins.each_ref().map(|origin| origin.requests() as f64);
    let mut table = Table::figures(format!("servers of 500, 5 and 5 ms, {RATE} requests/s"));
    let share = counts[0] / counts.iter().sum::<f64>();
    table.figure("share of the slow server", share, "", Bound::AtMost(SLOW_SHARE_MAX));
    table.count("failed requests of clients", count_other(&replies, 200), 0.0);
    Ok(table)
}

async fn balanced(origins: &[Origin], more: &str) -> Result<Launched> {
    let urls: Vec<String> = origins.iter().map(|origin| format!("\"{}\"", origin.url())).collect();
    let site = format!(
        "[site.origin]\nurls = [{}]\n{more}\n[site.breaker]\nenabled = false",
        urls.join(", ")
    );
    cache("", &site).await
}

/// Servers that close all connections, or one in ten.
pub(super) async fn retries(options: &Options) -> Result<Table> {
    let posts = options.pick(POSTS, POSTS / 10);
    let mut table = Table::figures("retries");
    let closing = || Origin::always(Answer::close());
    let origins = [closing().await?, closing().await?];
    let cache = balanced(&origins, "").await?;
    let to: Servers = Arc::new(Mutex::new(vec![cache.address()]));
    let traffic = Traffic::start(FAILING_RATE, &to, |number| format!("/{number}"));
    let sent = traffic.end_after(Duration::from_secs(FAILING_SECONDS)).await?.len() as f64;
    let attempts: f64 = origins.iter().map(|origin| origin.requests() as f64).sum();
    let most = RETRIED * sent + RETRIES_PER_SECOND * FAILING_SECONDS as f64;
    let name = format!("requests to two servers that close every connection, for {sent:.0} GETs");
    table.count(name, attempts, most);
    let twice = posts_received_twice(posts).await?;
    table.count(format!("of {posts} POSTs, received twice"), twice as f64, 0.0);
    Ok(table)
}

async fn posts_received_twice(posts: u64) -> Result<usize> {
    let received = Arc::<Mutex<HashMap<String, u32>>>::default();
    let origin = || {
        let received = received.clone();
        let random = Mutex::new(fastrand::Rng::with_seed(1));
        Origin::start(move |asked| {
            *received.lock().entry(asked.path().to_owned()).or_default() += 1;
            match random.lock().u8(0..10) {
                0 => Answer::close(),
                1 => Answer::ok("x").field("Connection", "close"),
                _ => Answer::ok("x"),
            }
        })
    };
    let origins = [origin().await?, origin().await?];
    let cache = balanced(&origins, "").await?;
    let (address, next) = (cache.address(), Arc::<AtomicU64>::default());
    let mut clients = JoinSet::new();
    for _ in 0..POST_CLIENTS {
        let next = next.clone();
        clients.spawn(async move {
            let mut client = Client::connect(address).await?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= posts {
                    return anyhow::Ok(());
                }
                client.ask(&Request::new("POST", &format!("/{number}")).body("data")).await?;
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    let received = received.lock();
    anyhow::ensure!(received.len() as u64 * 10 > posts * 8, "only {} arrived", received.len());
    Ok(received.values().filter(|count| **count > 1).count())
}
