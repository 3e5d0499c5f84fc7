//! Hit ratio before a kill, and in the first minute after it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use fastrand::Rng;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::Origin;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::film::{cache, origin};
use crate::environment::Options;
use crate::http::Client;
use crate::report::{Bound, Table};

/// Number of things that are requested, most of them seldom.
const ITEMS: f64 = 200_000.0;

/// Less than what is asked for often.
const MEMORY: &str = "16MiB";

const CLIENTS: u64 = 8;

/// Requests of each client per second.
const RATE: u32 = 250;

const WINDOW: Duration = Duration::from_secs(60);
const WINDOW_QUICK: Duration = Duration::from_secs(10);

/// Minimum share of hits after the restart.
const LEFT_MIN_PERCENT: f64 = 95.0;

pub(crate) async fn measure(options: &Options, binary: &Path, table: &mut Table) -> Result<()> {
    let window = options.pick(WINDOW, WINDOW_QUICK);
    let folder = tempfile::tempdir()?;
    let origin = origin(Bytes::new(), Duration::ZERO).await?;
    let start = || cache(binary, &origin, folder.path(), "1GiB", MEMORY);
    let mut running = start().await?;
    // A cold one first, so that what is compared is not the warming up.
    crowd(&running, &origin, window / 2, 1).await?;
    let before = crowd(&running, &origin, window, 2).await?;
    running.signal(Signal::Kill).await?;
    running.wait_exit(Duration::from_secs(5)).await?;
    let running = start().await?;
    let after = crowd(&running, &origin, window, 3).await?;
    let seconds = window.as_secs();
    table.figure("hits before a kill, of all requests", before, "%", Bound::None);
    table.figure(format!("hits in the first {seconds} s after it"), after, "%", Bound::None);
    let left = after / before * 100.0;
    table.figure("the same, of what they were", left, "%", Bound::AtLeast(LEFT_MIN_PERCENT));
    Ok(())
}

/// Lets all clients send requests for a while. Returns their share of hits in percent.
async fn crowd(cache: &Launched, origin: &Origin, span: Duration, seed: u64) -> Result<f64> {
    let (address, before) = (cache.address(), origin.requests());
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(ask_for(address, span, Rng::with_seed(seed * CLIENTS + client)));
    }
    let mut asked = 0;
    while let Some(client) = clients.join_next().await {
        asked += client??;
    }
    Ok((1.0 - (origin.requests() - before) as f64 / f64::from(asked)) * 100.0)
}

async fn ask_for(address: SocketAddr, span: Duration, mut random: Rng) -> Result<u32> {
    let mut client = Client::connect(address).await?;
    let (began, mut asked) = (Instant::now(), 0);
    while began.elapsed() < span {
        // Half of all requests are for a thousandth of the things, and so on down: Zipf's law.
        let item = ITEMS.powf(random.f64()) as u64;
        let (head, _) = client.get(&format!("/item/{item}")).await?;
        ensure!(head.status() == 200, "item {item} was answered {}", head.status());
        asked += 1;
        sleep_until(began + Duration::from_secs(1) / RATE * asked).await;
    }
    Ok(asked)
}
