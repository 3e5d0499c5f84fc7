//! Reading and writing, beside bare files in the same moments.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use forebay_disk::Disk;
use futures_util::{StreamExt, TryStreamExt, stream};
use twox_hash::XxHash3_128;

use super::{open, put, read};
use crate::environment::median;
use crate::report::{Bound, Table};

/// Bare files and the tier take turns, so that whatever else the machine does falls on both.
const TURNS: usize = 10;

/// Number of concurrent writes.
const AT_ONCE: usize = 16;

/// Bytes read in one round.
const READ_EACH: usize = 64 << 20;

/// Times as long as a bare read of the page cache, for each of the two sizes.
const READ_MAX: [f64; 2] = [3.0, 1.3];

/// Half of the speed of a bare sequential write.
const WRITE_MAX: f64 = 2.0;

/// Writes many entries at once: every accepted one must be readable.
pub(crate) async fn burst(table: &mut Table, path: &Path, count: usize, len: usize) -> Result<()> {
    let (disk, body) = (open(path)?, Bytes::from(vec![9; len]));
    let puts = stream::iter((0..count).map(async |number| put(&disk, number, &body).await.is_ok()));
    let stored: Vec<bool> = puts.buffered(count).collect().await;
    let mut missing = 0;
    for (number, _) in stored.iter().enumerate().filter(|(_, stored)| **stored) {
        missing += usize::from(read(&disk, number).await? != Some(len));
    }
    let refused = stored.iter().filter(|stored| !**stored).count();
    let counts = disk.counts();
    let uncounted = (refused as u64).abs_diff(counts.refused + counts.failed);
    let what = format!("a burst of {count} x {len} bytes: stored, and then missing");
    table.count(what, missing as f64, 0.0);
    table.count("the same: refused, and not counted", uncounted as f64, 0.0);
    table.figure("the same: refused", refused as f64, "", Bound::None);
    disk.close().await;
    Ok(std::fs::remove_dir_all(path)?)
}

pub(crate) async fn measure(
    table: &mut Table,
    folder: &Path,
    count: usize,
    len: usize,
) -> Result<()> {
    let body: Vec<u8> = (0..len).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let (path, bare) = (folder.join("tier"), folder.join("bare"));
    let file = File::options().read(true).write(true).create_new(true).open(&bare)?;
    let beside = Beside { disk: open(&path)?, file, body: body.into(), count };
    let is_large = usize::from(len > 64 << 10);
    let writes = beside.compare(Beside::write_bare, async |this, turn| this.write(turn).await);
    table.figure(
        format!("write {len} bytes, times as long"),
        writes.await?,
        "x",
        Bound::AtMost(WRITE_MAX),
    );
    let reads = beside.compare(Beside::read_bare, async |this, turn| this.read(turn).await);
    let most = Bound::AtMost(READ_MAX[is_large]);
    table.figure(format!("read {len} bytes, times as long"), reads.await?, "x", most);
    let least = beside.compare(Beside::read_bare, async |this, turn| this.read_verified(turn));
    table.figure("the same: a bare read and the digest", least.await?, "x", Bound::None);
    let began = Instant::now();
    for number in count..2 * count {
        ensure!(read(&beside.disk, number).await?.is_none(), "an entry too many");
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / count as f64;
    table.figure("a lookup of a missing entry", each, "us", Bound::None);
    beside.disk.close().await;
    std::fs::remove_file(bare)?;
    Ok(std::fs::remove_dir_all(path)?)
}

struct Beside {
    disk: Disk,
    file: File,
    body: Bytes,
    count: usize,
}

impl Beside {
    /// Returns the ratio of the tier's duration to that of bare files: the median of all rounds.
    async fn compare(
        &self,
        bare: impl Fn(&Self, usize) -> Result<()>,
        tier: impl AsyncFn(&Self, usize) -> Result<()>,
    ) -> Result<f64> {
        let mut ratios = Vec::new();
        for turn in 0..TURNS {
            let began = Instant::now();
            bare(self, turn)?;
            let alone = began.elapsed().max(Duration::from_nanos(1));
            let began = Instant::now();
            tier(self, turn).await?;
            ratios.push(began.elapsed().as_secs_f64() / alone.as_secs_f64());
        }
        Ok(median(&ratios))
    }

    fn written_in(&self, turn: usize) -> std::ops::Range<usize> {
        self.count * turn / TURNS..self.count * (turn + 1) / TURNS
    }

    fn write_bare(&self, turn: usize) -> Result<()> {
        for number in self.written_in(turn) {
            self.file.write_all_at(&self.body, (number * self.body.len()) as u64)?;
        }
        Ok(())
    }

    async fn write(&self, turn: usize) -> Result<()> {
        let puts = self.written_in(turn).map(|number| put(&self.disk, number, &self.body));
        stream::iter(puts).buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    /// All over, and the same for both.
    fn read_in(&self, turn: usize) -> impl Iterator<Item = usize> {
        let (count, each) = (self.count, READ_EACH / self.body.len());
        (turn * each..(turn + 1) * each).map(move |step| step * 7_919 % count)
    }

    fn read_bare(&self, turn: usize) -> Result<()> {
        let mut buffer = vec![0; self.body.len()];
        for number in self.read_in(turn) {
            self.file.read_exact_at(&mut buffer, (number * self.body.len()) as u64)?;
            black_box(&buffer);
        }
        Ok(())
    }

    /// Lower bound: the time to compute the tier's digest over every byte.
    fn read_verified(&self, turn: usize) -> Result<()> {
        let mut buffer = vec![0; self.body.len()];
        for number in self.read_in(turn) {
            self.file.read_exact_at(&mut buffer, (number * self.body.len()) as u64)?;
            black_box(XxHash3_128::oneshot(&buffer));
        }
        Ok(())
    }

    async fn read(&self, turn: usize) -> Result<()> {
        for number in self.read_in(turn) {
            ensure!(
                read(&self.disk, number).await? == Some(self.body.len()),
                "{number} is missing"
            );
        }
        Ok(())
    }
}
