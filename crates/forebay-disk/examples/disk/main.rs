//! What the disk tier costs beside bare files, and how soon it is warm after a restart.
//!
//! `cargo xtask bench-disk` runs this; alone it is
//! `cargo run --release -p forebay-disk --example disk [-- [--quick] [DIRECTORY]]`, with 4 GiB of
//! room there. The exit code is 1 if a bound is missed.
#![expect(clippy::print_stdout, reason = "a command-line program")]

mod reopen;
mod speed;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use forebay_core::{KeyBuf, Lifetime, Meta};
use forebay_disk::{Disk, Limits};
use forebay_engine::{Clock, SystemClock, Tier};
use futures_util::StreamExt;

/// All that is measured fits into it.
const SIZE: u64 = 2 << 30;

/// The exit code: 0 as long as all that is told holds.
#[derive(Default)]
struct Verdict {
    is_missed: bool,
}

impl Verdict {
    /// Prints a figure, and whether it is within its bound.
    fn tell(&mut self, what: &str, figure: f64, unit: &str, most: Option<f64>) {
        let is_missed = most.is_some_and(|most| figure > most);
        self.is_missed |= is_missed;
        let bound = most.map_or_else(String::new, |most| format!("at most {most} {unit}"));
        let missed = if is_missed { "  MISSED" } else { "" };
        println!("{what:<60}{:>14}  {bound}{missed}", format!("{figure:.2} {unit}"));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let (flags, places): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument == "--quick");
    let room = match places.first() {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    let share = if flags.is_empty() { 1 } else { 10 };
    let mut verdict = Verdict::default();
    println!("{:<60}{:>14}  bound", "", "figure");
    reopen::measure(&mut verdict, &room.path().join("small"), 1_000_000 / share, 100).await?;
    reopen::measure(&mut verdict, &room.path().join("large"), 1_024 / share, 1 << 20).await?;
    speed::burst(&mut verdict, &room.path().join("many"), 50_000 / share, 4 << 10).await?;
    speed::burst(&mut verdict, &room.path().join("few"), 1_000 / share, 1 << 20).await?;
    speed::measure(&mut verdict, room.path(), 50_000 / share, 4 << 10).await?;
    speed::measure(&mut verdict, room.path(), 1_000 / share, 1 << 20).await?;
    Ok(if verdict.is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn open(path: &Path) -> Result<Disk> {
    Ok(Disk::open(path, Limits::of(SIZE), Arc::new(SystemClock))?)
}

fn key(number: usize) -> KeyBuf {
    let mut key = KeyBuf::new("site");
    key.part(&number.to_le_bytes());
    key
}

async fn put(disk: &Disk, number: usize, body: &Bytes) -> Result<()> {
    let meta = Meta::new(SystemClock.now(), Lifetime::fresh(Duration::from_secs(600)));
    let key = key(number);
    let mut writer = disk.begin(key.borrowed(), &meta, &Bytes::new()).await?;
    writer.write(body.clone()).await?;
    Ok(writer.commit().await?)
}

/// How long the body is, once all of it has been read.
async fn read(disk: &Disk, number: usize) -> Result<Option<usize>> {
    let key = key(number);
    let Some(stored) = disk.open(key.borrowed()).await? else { return Ok(None) };
    let mut len = 0;
    let mut body = stored.body;
    while let Some(piece) = body.next().await {
        len += std::hint::black_box(piece?).len();
    }
    Ok(Some(len))
}
