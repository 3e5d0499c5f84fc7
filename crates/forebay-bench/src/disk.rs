//! The disk tier beside plain files, after a restart, and through the binary: a large body that
//! many clients read while it is written, and the hits that are left after a kill.

mod film;
mod reopen;
mod speed;
mod warmth;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use forebay_core::KeyBuf;
use forebay_disk::{Disk, Limits};
use forebay_engine::{SystemClock, Tier as _};
use futures_util::StreamExt;

use crate::environment::{Options, forebay};
use crate::report::Table;

/// Size of the tier: nothing is evicted.
const SIZE: u64 = 2 << 30;

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let binary = forebay()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut tier = Table::figures("the disk tier");
    runtime.block_on(measure_tier(&mut tier, options.pick(1, 10)))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut served = Table::figures("the disk tier behind the HTTP front end");
    runtime.block_on(film::measure(options, &binary, &mut served))?;
    Ok(vec![tier, served])
}

/// `restart`: time until stored entries are served again, and hits after a kill.
pub(crate) fn run_restart(options: &Options) -> Result<Vec<Table>> {
    let binary = forebay()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut tier = Table::figures("the disk tier, opened again");
    let part = options.pick(1, 10);
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let path = |name| folder.path().join(name);
        // A gibibyte of 4 KiB.
        reopen::measure(&mut tier, &path("usual"), 262_144 / part, 4 << 10).await?;
        reopen::measure(&mut tier, &path("small"), 1_000_000 / part, 100).await?;
        reopen::measure(&mut tier, &path("large"), 1_024 / part, 1 << 20).await
    })?;
    let mut served = Table::figures("the server after a kill");
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(warmth::measure(options, &binary, &mut served))?;
    Ok(vec![tier, served])
}

/// Measures with a part of the usual entries.
async fn measure_tier(table: &mut Table, part: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name| folder.path().join(name);
    speed::burst(table, &path("many"), 50_000 / part, 4 << 10).await?;
    speed::burst(table, &path("few"), 1_000 / part, 1 << 20).await?;
    speed::measure(table, folder.path(), 50_000 / part, 4 << 10).await?;
    speed::measure(table, folder.path(), 1_000 / part, 1 << 20).await
}

fn open(path: &Path) -> Result<Disk> {
    Ok(Disk::open(path, Limits::of(SIZE), Arc::new(SystemClock))?)
}

fn key(number: usize) -> KeyBuf {
    let mut key = KeyBuf::new("site");
    key.part(&number.to_le_bytes());
    key
}

pub(crate) async fn put(disk: &Disk, number: usize, body: &Bytes) -> Result<()> {
    crate::tier::ground::put(disk, key(number).borrowed(), body.clone()).await
}

/// Reads a whole body and returns its length.
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
