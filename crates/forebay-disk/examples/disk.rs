//! What the disk tier costs beside bare files, and how soon it is warm after a restart.
//!
//! `cargo run --release -p forebay-disk --example disk [-- DIRECTORY]`, with 3 GiB of room there.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use forebay_core::{KeyBuf, Lifetime, Meta};
use forebay_disk::{Disk, Limits};
use forebay_engine::{Clock, SystemClock, Tier};
use futures_util::StreamExt;

const SIZE: u64 = 2 << 30;
const SMALL: usize = 1_000_000;
const LARGE: usize = 1_024;
const MIB: usize = 1 << 20;
const READS: usize = 20_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let room = match std::env::args().nth(1) {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    println!("| what | took | beside bare files |");
    println!("|---|---|---|");
    reopening(&room.path().join("small"), SMALL, 100).await?;
    reopening(&room.path().join("large"), LARGE, MIB).await?;
    speed(room.path(), 4 << 10, 50_000).await?;
    speed(room.path(), MIB, 1_000).await
}

async fn reopening(path: &Path, count: usize, len: usize) -> Result<()> {
    let body = Bytes::from(vec![7; len]);
    let disk = open(path)?;
    for number in 0..count {
        put(&disk, number, &body).await?;
    }
    disk.close().await;
    let began = Instant::now();
    let disk = open(path)?;
    // The newest is there first.
    while read(&disk, count - 1).await?.is_none() {
        tokio::task::yield_now().await;
    }
    let first = began.elapsed();
    disk.loaded().await;
    let all = began.elapsed();
    ensure!(disk.counts().entries == count as u64, "{:?}", disk.counts());
    println!("| first hit of {count} entries of {len} bytes after opening | {first:.1?} | |");
    println!("| all of them can be hit | {all:.1?} | |");
    disk.close().await;
    Ok(std::fs::remove_dir_all(path)?)
}

async fn speed(room: &Path, len: usize, count: usize) -> Result<()> {
    let body =
        Bytes::from((0..len).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect::<Vec<_>>());
    let (path, bare) = (room.join("tier"), room.join("bare"));
    let began = Instant::now();
    let file = File::options().read(true).write(true).create_new(true).open(&bare)?;
    for number in 0..count {
        file.write_all_at(&body, (number * len) as u64)?;
    }
    let write_bare = began.elapsed();
    let disk = open(&path)?;
    let began = Instant::now();
    for number in 0..count {
        put(&disk, number, &body).await?;
    }
    report("write", (len, count), (began.elapsed(), write_bare));
    let reads = READS.min(READS * 65_536 / len);
    let mut buffer = vec![0; len];
    let began = Instant::now();
    for turn in 0..reads {
        file.read_exact_at(&mut buffer, (turn * 7_919 % count * len) as u64)?;
        black_box(&buffer);
    }
    let read_bare = began.elapsed();
    let began = Instant::now();
    for turn in 0..reads {
        ensure!(read(&disk, turn * 7_919 % count).await?.is_some(), "an entry is missing");
    }
    report("read", (len, reads), (began.elapsed(), read_bare));
    let began = Instant::now();
    for turn in 0..reads {
        ensure!(read(&disk, count + turn).await?.is_none(), "an entry too many");
    }
    let each = began.elapsed() / u32::try_from(reads)?;
    println!("| a miss | {each:.2?} | |");
    disk.close().await;
    std::fs::remove_file(bare)?;
    Ok(std::fs::remove_dir_all(path)?)
}

fn report(what: &str, (len, count): (usize, usize), (took, bare): (Duration, Duration)) {
    let ratio = took.as_secs_f64() / bare.as_secs_f64();
    let each = took / u32::try_from(count).unwrap_or(u32::MAX);
    println!("| {what} {len} bytes | {each:.2?} | {ratio:.2} times as long |");
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

async fn read(disk: &Disk, number: usize) -> Result<Option<usize>> {
    let key = key(number);
    let Some(stored) = disk.open(key.borrowed()).await? else { return Ok(None) };
    let mut len = 0;
    let mut body = stored.body;
    while let Some(piece) = body.next().await {
        len += black_box(piece?).len();
    }
    Ok(Some(len))
}
