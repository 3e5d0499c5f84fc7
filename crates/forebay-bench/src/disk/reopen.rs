//! Time until stored entries are available again after a restart.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{open, put, read};
use crate::report::{Bound, Table};

/// In milliseconds.
const FIRST_MAX: f64 = 100.0;
const ALL_MAX: f64 = 2_000.0;

/// Number of concurrent writes.
const AT_ONCE: usize = 16;

pub(crate) async fn measure(
    table: &mut Table,
    path: &Path,
    count: usize,
    len: usize,
) -> Result<()> {
    let body = Bytes::from(vec![7; len]);
    let disk = open(path)?;
    let puts = stream::iter((0..count).map(|number| put(&disk, number, &body)));
    puts.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    disk.close().await;
    let began = Instant::now();
    let disk = open(path)?;
    // The newest is there first.
    while read(&disk, count - 1).await?.is_none() {
        tokio::task::yield_now().await;
    }
    let first = began.elapsed().as_secs_f64() * 1e3;
    disk.loaded().await;
    let all = began.elapsed().as_secs_f64() * 1e3;
    ensure!(disk.counts().entries == count as u64, "{:?}", disk.counts());
    let what = format!("reopened with {count} entries of {len} bytes: first hit");
    table.figure(what, first, "ms", Bound::AtMost(FIRST_MAX));
    table.figure("the same: all are warm", all, "ms", Bound::AtMost(ALL_MAX));
    disk.close().await;
    Ok(std::fs::remove_dir_all(path)?)
}
