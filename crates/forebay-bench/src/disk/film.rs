//! One body of a gibibyte, and a crowd that asks for it at any moment while it comes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::{Launch, Launched};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::origin::{BLOCK, Film, Origin, block};
use crate::environment::{Options, mib};
use crate::memory::process::Watch;
use crate::report::{Bound, Table};

/// Number of clients that read the body.
const FOLLOWERS: u32 = 100;

/// Rate at which each client reads, in bytes per second, and its amount. The first client reads the
/// whole body, as
/// fast as it comes. All of them together must leave the machine time for one more.
const PACE: u64 = 4 << 20;
const READ_EACH: u64 = 256 << 20;

/// Interval of requests for a small entry in memory, whose latency shows the load of
/// the machine.
const BESIDE_EVERY: Duration = Duration::from_millis(250);

const MEMORY: &str = "64MiB";
const GROWTH_MAX_MIB: f64 = 64.0;
const FIRST_BYTE_MAX_MS: f64 = 20.0;

const FILM: Film = Film { size: 1 << 30, takes: Duration::from_secs(40) };
const FILM_QUICK: Film = Film { size: 128 << 20, takes: Duration::from_secs(8) };

/// The longest head of an answer.
const HEAD_MAX: usize = 8 << 10;

/// A cache with a disk tier, in front of an origin.
pub(crate) async fn cache(
    binary: &Path,
    origin: &Origin,
    folder: &Path,
    size: &str,
    memory: &str,
) -> Result<Launched> {
    let folder = folder.to_str().context("a plain name")?;
    let url = format!("http://{}", origin.address);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--origin", &url];
    let tiers = ["--memory", memory, "--disk", folder, "--disk-size", size];
    Launch::binary(binary).args(serve).args(tiers).start().await.context("start the cache")
}

pub(crate) async fn measure(options: &Options, binary: &Path, table: &mut Table) -> Result<()> {
    let film = options.pick(FILM, FILM_QUICK);
    let folder = tempfile::tempdir()?;
    let origin = Origin::start(film).await?;
    let cache = cache(binary, &origin, folder.path(), "6GiB", MEMORY).await?;
    let address = cache.address();
    // What any request costs is not what is measured.
    Follower::ask(address, "/item/1").await?;
    let watch = Watch::start(cache.pid());
    let before = watch.stop().await?.last;
    let watch = Watch::start(cache.pid());
    let beside = tokio::spawn(ask_beside(address, film.takes));
    let mut followers = JoinSet::new();
    for number in 0..FOLLOWERS {
        // At random, and the same in every run; the first comes at once and leads.
        let share = number.wrapping_mul(2_654_435_761) >> 16;
        let after = film.takes * share / (1 << 16);
        followers.spawn(async move {
            sleep(after).await;
            let mut follower = Follower::ask(address, "/film").await?;
            match number {
                0 => follower.read(film.size, u64::MAX).await?,
                _ => follower.read(film.size.min(READ_EACH), PACE).await?,
            }
            anyhow::Ok(follower.first_byte)
        });
    }
    let mut waits = Vec::new();
    while let Some(first_byte) = followers.join_next().await {
        waits.push(first_byte??);
    }
    let seen = watch.stop().await?;
    let size = film.size >> 20;
    let crowd = format!("a body of {size} MiB, {FOLLOWERS} followers at random");
    table.figure(format!("{crowd}: fetches"), origin.films() as f64, "", Bound::AtMost(1.0));
    let growth = mib(seen.most.saturating_sub(before));
    table.figure(
        "the same: growth of resident memory",
        growth,
        "MiB",
        Bound::AtMost(GROWTH_MAX_MIB),
    );
    table.figure("the same: resident memory at its most", mib(seen.peak), "MiB", Bound::None);
    let [median, nineteen, slowest] = spread(waits);
    table.figure("the same: first byte, median", median, "ms", Bound::None);
    table.figure("the same: first byte, 19 of 20 within", nineteen, "ms", Bound::None);
    table.figure("the same: first byte, slowest", slowest, "ms", Bound::AtMost(FIRST_BYTE_MAX_MS));
    let [median, nineteen, slowest] = spread(beside.await??);
    table.figure("a hit from memory meanwhile, median", median, "ms", Bound::None);
    table.figure("a hit from memory meanwhile, 19 of 20 within", nineteen, "ms", Bound::None);
    table.figure("a hit from memory meanwhile, slowest", slowest, "ms", Bound::None);
    Ok(())
}

async fn ask_beside(address: SocketAddr, span: Duration) -> Result<Vec<Duration>> {
    let (began, mut waits) = (Instant::now(), Vec::new());
    while began.elapsed() < span {
        sleep(BESIDE_EVERY).await;
        waits.push(Follower::ask(address, "/item/1").await?.first_byte);
    }
    Ok(waits)
}

/// The middle one, what 19 of 20 do not exceed, and the longest, in milliseconds.
fn spread(mut waits: Vec<Duration>) -> [f64; 3] {
    waits.sort();
    let at = |index: usize| waits.get(index).map_or(0.0, |wait| wait.as_secs_f64() * 1e3);
    [waits.len() / 2, waits.len() * 19 / 20, waits.len().saturating_sub(1)].map(at)
}

/// One client that reads at its own pace.
struct Follower {
    stream: TcpStream,
    /// Bytes received with the head.
    begun: Vec<u8>,
    first_byte: Duration,
}

impl Follower {
    async fn ask(address: SocketAddr, path: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n");
        let asked = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let mut begun = Vec::with_capacity(BLOCK);
        let body = loop {
            ensure!(stream.read_buf(&mut begun).await? > 0, "the answer breaks off");
            let end = begun.windows(4).position(|four| four == b"\r\n\r\n");
            match end.map(|end| end + 4) {
                Some(body) if begun.len() > body => break body,
                _ => ensure!(begun.len() < HEAD_MAX, "a head without an end"),
            }
        };
        let first_byte = asked.elapsed();
        ensure!(begun.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&begun));
        let begun = begun.split_off(body);
        Ok(Self { stream, begun, first_byte })
    }

    /// Reads so much of it, and compares every byte.
    async fn read(&mut self, size: u64, pace: u64) -> Result<()> {
        let began = Instant::now();
        let mut came = std::mem::take(&mut self.begun);
        let mut wanted = block(0);
        for number in 0..size / BLOCK as u64 {
            while came.len() < BLOCK {
                ensure!(self.stream.read_buf(&mut came).await? > 0, "ended at block {number}");
            }
            wanted[..8].copy_from_slice(&number.to_le_bytes());
            ensure!(came[..BLOCK] == wanted[..], "block {number} is another");
            came.drain(..BLOCK);
            let due = Duration::from_secs_f64(((number + 1) * BLOCK as u64) as f64 / pace as f64);
            sleep_until(began + due).await;
        }
        Ok(())
    }
}
