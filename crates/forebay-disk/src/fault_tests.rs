//! Failures of the file system: no wrong result, and no panic.

mod batches;
mod damage;
mod faults;
mod loading;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{KeyBuf, Lifetime, Meta, TagSet};
use forebay_engine::{SystemClock, Tier, TierError, WriteMode};
use futures_util::StreamExt;

use crate::error::OpenError;
use crate::files::io::FileSystem;
use crate::limits::Limits;
use crate::open::Disk;

/// Below the public minimum, so that eviction happens soon.
const SIZE: u64 = 6 << 20;

fn open(io: Arc<dyn FileSystem>, path: &Path) -> Result<Disk, OpenError> {
    Disk::open_over(io, path, Limits::of(SIZE), Arc::new(SystemClock))
}

fn key(name: &str) -> KeyBuf {
    let mut key = KeyBuf::new("site");
    key.part(name.as_bytes());
    key
}

/// A body that contains its name throughout.
fn body(name: &str, len: usize) -> Bytes {
    let mut all = name.repeat(len / name.len() + 1).into_bytes();
    all.truncate(len);
    all.into()
}

async fn put(disk: &Disk, name: &str, body: &Bytes) -> Result<(), TierError> {
    let mut meta = Meta::new(disk.shared.clock.now(), Lifetime::fresh(Duration::from_secs(60)));
    meta.set_tags(TagSet::new([name]));
    let head = Bytes::from(name.to_owned());
    let mut writer = disk.begin(key(name).borrowed(), &meta, &head, WriteMode::Loaded).await?;
    writer.write(body.clone()).await?;
    writer.commit().await
}

/// Returns the body, if it can be read; asserts that a delivered body is correct.
async fn get(disk: &Disk, name: &str) -> Option<Bytes> {
    let stored = disk.open(key(name).borrowed()).await.ok()??;
    assert_eq!(stored.head, name);
    let mut all = Vec::new();
    let mut pieces = stored.body;
    while let Some(piece) = pieces.next().await {
        all.extend_from_slice(&piece.ok()?);
    }
    Some(all.into())
}

async fn remove(disk: &Disk, name: &str) -> Result<bool, TierError> {
    disk.remove(key(name).borrowed()).await
}
