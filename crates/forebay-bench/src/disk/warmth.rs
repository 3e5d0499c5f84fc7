//! Hit ratio before a kill, and in the first minute after it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay_testkit::launch::{Launched, Signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::film::cache;
use super::origin::{BLOCK, Film, Origin};
use crate::environment::Options;
use crate::report::{Bound, Table};

/// The requests go to so many things, most of them to few.
const ITEMS: f64 = 200_000.0;

/// Less than what is asked for often.
const MEMORY: &str = "16MiB";

const CLIENTS: u64 = 8;

/// Requests per second of each client.
const RATE: u32 = 250;

const WINDOW: Duration = Duration::from_secs(60);
const WINDOW_QUICK: Duration = Duration::from_secs(10);

/// Minimum share of hits after the restart.
const LEFT_MIN_PERCENT: f64 = 95.0;

pub(crate) async fn measure(options: &Options, binary: &Path, table: &mut Table) -> Result<()> {
    let window = options.pick(WINDOW, WINDOW_QUICK);
    let folder = tempfile::tempdir()?;
    let origin = Origin::start(Film { size: 0, takes: Duration::ZERO }).await?;
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

/// Lets everybody ask for a while. Returns how many of their requests were hits, in percent.
async fn crowd(cache: &Launched, origin: &Origin, span: Duration, seed: u64) -> Result<f64> {
    let (address, before) = (cache.address(), origin.smalls());
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(ask_for(address, span, seed * CLIENTS + client));
    }
    let mut asked = 0;
    while let Some(client) = clients.join_next().await {
        asked += client??;
    }
    Ok((1.0 - (origin.smalls() - before) as f64 / asked as f64) * 100.0)
}

async fn ask_for(address: SocketAddr, span: Duration, seed: u64) -> Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    let (mut dice, mut came) = (Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), Vec::new());
    let began = Instant::now();
    let mut asked = 0;
    while began.elapsed() < span {
        let request = format!("GET /item/{} HTTP/1.1\r\nHost: bench\r\n\r\n", dice.item());
        stream.write_all(request.as_bytes()).await?;
        read_answer(&mut stream, &mut came).await?;
        asked += 1;
        sleep_until(began + Duration::from_secs(1) / RATE * asked).await;
    }
    Ok(asked.into())
}

async fn read_answer(stream: &mut TcpStream, came: &mut Vec<u8>) -> Result<()> {
    came.clear();
    let (mut whole, mut checked) = (usize::MAX, false);
    while came.len() < whole {
        ensure!(stream.read_buf(came).await? > 0, "the answer breaks off");
        if let (false, Some(end)) = (checked, came.windows(4).position(|c| c == b"\r\n\r\n")) {
            let head = String::from_utf8_lossy(&came[..end]).to_lowercase();
            ensure!(head.starts_with("http/1.1 200"), "{head}");
            let length = head.split("content-length: ").nth(1).context("no length")?;
            let length: usize = length.lines().next().unwrap_or_default().trim().parse()?;
            ensure!(length < BLOCK, "{length} bytes are too many");
            (whole, checked) = (end + 4 + length, true);
        }
    }
    Ok(())
}

/// Random numbers that are equal in every run.
struct Dice(u64);

impl Dice {
    /// Half of all throws are for a thousandth of the things, and so on down: Zipf's law.
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers are wanted")]
    fn item(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let unit = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        ITEMS.powf(unit) as u64
    }
}
