//! One body of a gibibyte, and a crowd that asks for it at any moment while it comes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use forebay_testkit::client::Timings;
use forebay_testkit::launch::{Launch, Launched};
use forebay_testkit::origin::{Answer, Origin};
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::environment::{Options, mib};
use crate::http::{Client, piece};
use crate::memory::process::Watch;
use crate::report::{Bound, Table};

/// Number of clients.
const FOLLOWERS: u32 = 100;

/// Bytes per second that each client reads, and its amount. The first client reads the whole body, as
/// fast as it comes. All of them together must leave the machine time for one more.
const PACE: u64 = 4 << 20;
const READ_EACH: usize = 256 << 20;

/// Interval of requests for a small entry in memory, whose latency shows the load of the machine.
const BESIDE_EVERY: Duration = Duration::from_millis(250);

const MEMORY: &str = "64MiB";
const GROWTH_MAX_MIB: f64 = 64.0;
const FIRST_BYTE_MAX_MS: f64 = 20.0;

/// Size and duration of the large body.
const FILM: (usize, Duration) = (1 << 30, Duration::from_secs(40));
const FILM_QUICK: (usize, Duration) = (128 << 20, Duration::from_secs(8));

/// Size of the pieces that the origin sends at an even pace.
const PIECE: usize = 256 << 10;

/// Small bodies have at least this many bytes, and at most so many more.
const SMALL_MIN: usize = 1 << 10;
const SMALL_MORE: usize = 8 << 10;

/// An origin that sends `film` over `span`, and a small body on any other path.
pub(crate) async fn origin(film: Bytes, span: Duration) -> Result<Origin> {
    let pieces = (film.len() / PIECE).max(1);
    let pause = span / u32::try_from(pieces)?;
    let origin = Origin::start(move |asked| {
        let answer = match asked.path().strip_prefix("/item/").and_then(|it| it.parse().ok()) {
            None => Answer::ok(film.clone()).drip(pieces, pause),
            Some(number) => {
                let more = 2_654_435_761_usize.wrapping_mul(number) % SMALL_MORE;
                Answer::ok(vec![b'x'; SMALL_MIN + more])
            }
        };
        answer.field("Cache-Control", "max-age=3600")
    });
    Ok(origin.await?)
}

/// A cache with a disk tier, in front of an origin.
pub(crate) async fn cache(
    binary: &Path,
    origin: &Origin,
    folder: &Path,
    size: &str,
    memory: &str,
) -> Result<Launched> {
    let folder = folder.to_str().context("a plain name")?;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let tiers = ["--memory", memory, "--disk", folder, "--disk-size", size];
    let launch = Launch::binary(binary).args(serve).args(tiers).args(["--origin", &origin.url()]);
    launch.start().await.context("start the cache")
}

pub(crate) async fn measure(options: &Options, binary: &Path, table: &mut Table) -> Result<()> {
    let (size, span) = options.pick(FILM, FILM_QUICK);
    let numbers = (0..size / 8).flat_map(|number| number.to_le_bytes());
    let film: Bytes = numbers.collect::<Vec<u8>>().into();
    let folder = tempfile::tempdir()?;
    let origin = origin(film.clone(), span).await?;
    let cache = cache(binary, &origin, folder.path(), "6GiB", MEMORY).await?;
    let address = cache.address();
    // What any request costs is not what is measured.
    first_byte(address, "/item/1").await?;
    let before = Watch::start(cache.pid()).stop().await?.last;
    let watch = Watch::start(cache.pid());
    let beside = tokio::spawn(ask_beside(address, span));
    let mut followers = JoinSet::new();
    for number in 0..FOLLOWERS {
        // At random, and the same in every run; the first comes at once and leads.
        let after = span * (number.wrapping_mul(2_654_435_761) >> 16) / (1 << 16);
        let film = film.clone();
        followers.spawn(async move {
            sleep(after).await;
            let (first_byte, follower) = first_byte(address, "/film").await?;
            match number {
                0 => follower.read(&film, u64::MAX).await?,
                _ => follower.read(&film[..film.len().min(READ_EACH)], PACE).await?,
            }
            anyhow::Ok(first_byte)
        });
    }
    let mut waits = Vec::new();
    while let Some(first_byte) = followers.join_next().await {
        waits.push(first_byte??);
    }
    let seen = watch.stop().await?;
    let crowd = format!("a body of {} MiB, {FOLLOWERS} followers at random", size >> 20);
    table.count(format!("{crowd}: fetches"), origin.requests_to("/film") as f64, 1.0);
    let growth = mib(seen.most.saturating_sub(before));
    let most = Bound::AtMost(GROWTH_MAX_MIB);
    table.figure("the same: growth of resident memory", growth, "MiB", most);
    table.figure("the same: resident memory at its most", mib(seen.peak), "MiB", Bound::None);
    for (name, waits, most) in [
        ("the same: first byte", waits, Bound::AtMost(FIRST_BYTE_MAX_MS)),
        ("a hit from memory meanwhile", beside.await??, Bound::None),
    ] {
        let waits = Timings::new(waits);
        let ms = |percent| waits.percentile(percent).as_secs_f64() * 1e3;
        table.figure(format!("{name}, median"), ms(50), "ms", Bound::None);
        table.figure(format!("{name}, 19 of 20 within"), ms(95), "ms", Bound::None);
        table.figure(format!("{name}, slowest"), ms(100), "ms", most);
    }
    Ok(())
}

async fn ask_beside(address: SocketAddr, span: Duration) -> Result<Vec<Duration>> {
    let (began, mut waits) = (Instant::now(), Vec::new());
    while began.elapsed() < span {
        sleep(BESIDE_EVERY).await;
        waits.push(first_byte(address, "/item/1").await?.0);
    }
    Ok(waits)
}

/// One client that reads at its own pace, and the bytes that it has read.
struct Follower {
    body: Incoming,
    begun: Bytes,
    /// Keeps the connection open.
    _client: Client,
}

/// Requests a path on a new connection; returns the time to the first byte of the body.
async fn first_byte(address: SocketAddr, path: &str) -> Result<(Duration, Follower)> {
    let mut client = Client::connect(address).await?;
    let asked = Instant::now();
    let response = client.ask(path).await?;
    ensure!(response.status() == 200, "{path} was answered {}", response.status());
    let mut body = response.into_body();
    let begun = piece(&mut body).await?;
    Ok((asked.elapsed(), Follower { body, begun, _client: client }))
}

impl Follower {
    /// Reads a part of the body at a pace in bytes per second, and compares every byte.
    async fn read(mut self, wanted: &[u8], pace: u64) -> Result<()> {
        let (began, mut read) = (Instant::now(), 0);
        while read < wanted.len() {
            let expected = &wanted[read..];
            let length = self.begun.len().min(expected.len());
            ensure!(self.begun[..length] == expected[..length], "other bytes behind {read}");
            read += length;
            sleep_until(began + Duration::from_secs_f64(read as f64 / pace as f64)).await;
            if read < wanted.len() {
                self.begun = piece(&mut self.body).await?;
            }
        }
        Ok(())
    }
}
