//! Lookups while earlier segments are loaded: no older version replaces a removed entry.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Lifetime, Meta, Purge, TagSet};
use forebay_engine::{Clock, SystemClock, Tier, WriteMode};
use parking_lot::{Mutex, MutexGuard};

use super::{body, get, key, open};
use crate::files::io::{DirectoryFile, FileSystem, Mode, OpenFile, OsFileSystem};
use crate::open::Disk;

/// File system that delays opening the first segment while the gate is held.
#[derive(Clone, Default)]
struct GatedFileSystem(Arc<Mutex<()>>);

impl GatedFileSystem {
    fn hold(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }
}

impl FileSystem for GatedFileSystem {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        OsFileSystem.make_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryFile>> {
        OsFileSystem.list(path)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn OpenFile>> {
        if path.ends_with("00000000.segment") {
            drop(self.hold());
        }
        OsFileSystem.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsFileSystem.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        OsFileSystem.unlink(path)
    }

    fn lock_file(&self, path: &Path) -> io::Result<Option<Arc<dyn OpenFile>>> {
        OsFileSystem.lock_file(path)
    }
}

async fn put_tagged(disk: &Disk, tag: &str) {
    let mut meta = Meta::new(SystemClock.now(), Lifetime::fresh(Duration::from_secs(60)));
    meta.set_tags(TagSet::new([tag]));
    let head = Bytes::from_static(b"a");
    let mut writer =
        disk.begin(key("a").borrowed(), &meta, &head, WriteMode::Loaded).await.unwrap();
    writer.write(body(tag, 300)).await.unwrap();
    writer.commit().await.unwrap();
}

/// Creates a directory of two segments, with an older and a newer version of one entry.
async fn two_versions() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for tag in ["old", "new"] {
        let disk = open(Arc::new(OsFileSystem), folder.path()).unwrap();
        disk.loaded().await;
        put_tagged(&disk, tag).await;
        disk.close().await;
    }
    folder
}

/// Asserts a miss before and after the older segment is loaded.
#[expect(clippy::await_holding_lock, reason = "no task waits for it, the loading thread does")]
async fn assert_gone(folder: &Path) {
    let io = GatedFileSystem::default();
    let gate = io.hold();
    let disk = open(Arc::new(io.clone()), folder).unwrap();
    while disk.counts().entries == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(&disk, "a").await, None);
    assert_eq!(disk.counts().entries, 0);
    drop(gate);
    disk.loaded().await;
    assert_eq!((get(&disk, "a").await, disk.counts().entries), (None, 0));
    put_tagged(&disk, "newest").await;
    assert_eq!(get(&disk, "a").await, Some(body("newest", 300)));
    assert_eq!(disk.counts().entries, 1);
    disk.close().await;
}

#[tokio::test]
async fn a_version_before_a_purged_one_does_not_come_back_while_it_is_loaded() {
    let folder = two_versions().await;
    let disk = open(Arc::new(OsFileSystem), folder.path()).unwrap();
    disk.loaded().await;
    disk.purge(&Purge::Tag("new".into())).await.unwrap();
    disk.close().await;
    assert_gone(folder.path()).await;
}

#[tokio::test]
async fn a_version_before_a_damaged_one_does_not_come_back_while_it_is_loaded() {
    let folder = two_versions().await;
    let newer = folder.path().join("00000001.segment");
    let mut bytes = fs::read(&newer).unwrap();
    bytes[200] ^= 1;
    fs::write(&newer, bytes).unwrap();
    assert_gone(folder.path()).await;
}
