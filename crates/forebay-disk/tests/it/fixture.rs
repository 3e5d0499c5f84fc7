//! Test fixture: a directory, a disk tier, and a manual clock.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{KeyBuf, Lifetime, Meta, TagSet, Timestamp, WallTime};
use forebay_disk::{Disk, Limits};
use forebay_engine::{Clock, Tier, TierError, WriteMode, Writer};
use futures_util::StreamExt;

pub(crate) const MIB: u64 = 1 << 20;

/// Independent monotonic and wall clocks.
pub(crate) struct Clocks {
    pub(crate) monotonic: AtomicI64,
    pub(crate) wall: AtomicU64,
}

impl Clocks {
    pub(crate) fn at(monotonic: i64, wall: u64) -> Arc<Self> {
        Arc::new(Self { monotonic: AtomicI64::new(monotonic), wall: AtomicU64::new(wall) })
    }
}

impl Clock for Clocks {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.monotonic.load(Ordering::SeqCst))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_secs(self.wall.load(Ordering::SeqCst))
    }

    fn exact(&self) -> Duration {
        Duration::ZERO
    }
}

/// A disk tier with helper functions.
pub(crate) struct Fixture {
    pub(crate) disk: Arc<Disk>,
    clock: Arc<dyn Clock>,
}

impl Fixture {
    pub(crate) fn open(path: &Path, size: u64) -> Self {
        Self::open_with(path, Limits::of(size), Clocks::at(1_000_000, 2_000_000_000))
    }

    pub(crate) fn open_with(path: &Path, limits: Limits, clock: Arc<dyn Clock>) -> Self {
        let disk = Arc::new(Disk::open(path, limits, clock.clone()).expect("a directory"));
        Self { disk, clock }
    }

    pub(crate) fn meta(&self) -> Meta {
        let mut meta = Meta::new(self.clock.now(), Lifetime::fresh(Duration::from_secs(600)));
        meta.set_tags(TagSet::new(["red"]));
        meta
    }

    pub(crate) async fn put(&self, name: &str, body: &Bytes) -> Result<(), TierError> {
        self.write_uncommitted(name, self.meta(), body).await?.commit().await
    }

    pub(crate) async fn put_tagged(
        &self,
        name: &str,
        tag: &str,
        body: &Bytes,
    ) -> Result<(), TierError> {
        let mut meta = self.meta();
        meta.set_tags(TagSet::new(["red", tag]));
        self.write_uncommitted(name, meta, body).await?.commit().await
    }

    /// Writes all pieces without committing.
    pub(crate) async fn write_uncommitted(
        &self,
        name: &str,
        meta: Meta,
        body: &Bytes,
    ) -> Result<Box<dyn Writer>, TierError> {
        let (key, head) = (key(name), Bytes::from(format!("head of {name}")));
        let mut writer = self.disk.begin(key.borrowed(), &meta, &head, WriteMode::Loaded).await?;
        for start in (0..body.len()).step_by(100_000) {
            writer.write(body.slice(start..body.len().min(start + 100_000))).await?;
        }
        Ok(writer)
    }

    pub(crate) async fn get(&self, name: &str) -> Option<Bytes> {
        let stored = self.disk.open(key(name).borrowed()).await.expect("a disk that reads")?;
        assert_eq!(stored.head, format!("head of {name}"));
        assert!(stored.meta.tags().iter().any(|tag| tag == "red"));
        collect(stored.body).await.ok()
    }

    /// Returns true if the entry is stale after a soft purge, and `None` if there is none.
    pub(crate) async fn is_softened(&self, name: &str) -> Option<bool> {
        let stored = self.disk.open(key(name).borrowed()).await.expect("a disk that reads");
        stored.map(|stored| stored.softened)
    }

    pub(crate) async fn age(&self, name: &str) -> Duration {
        let stored = self.disk.open(key(name).borrowed()).await.expect("a disk that reads");
        stored.expect("an entry").meta.age(self.clock.now())
    }

    pub(crate) async fn remove(&self, name: &str) -> bool {
        self.disk.remove(key(name).borrowed()).await.expect("a disk that writes")
    }
}

/// Returns the total bytes of all files.
pub(crate) fn directory_size(path: &Path) -> u64 {
    let files =
        std::fs::read_dir(path).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    files.sum()
}

pub(crate) async fn collect(
    mut body: forebay_engine::PieceStream,
) -> Result<Bytes, forebay_engine::BrokenBody> {
    let mut all = Vec::new();
    while let Some(piece) = body.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all.into())
}

pub(crate) fn key(name: &str) -> KeyBuf {
    let mut key = KeyBuf::new("site");
    key.part(name.as_bytes());
    key
}

/// Length of the pieces that a body repeats: no divisor of the size of a block or a segment.
const PERIOD: usize = 4_093;

/// Returns bytes that differ for each number.
pub(crate) fn bytes(number: u64, len: usize) -> Bytes {
    let mut block = Vec::with_capacity(PERIOD + 8);
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while block.len() < len.min(PERIOD) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block.truncate(PERIOD);
    let mut all = block.repeat(len.div_ceil(PERIOD));
    all.truncate(len);
    all.into()
}
