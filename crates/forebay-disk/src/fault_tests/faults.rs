//! Failure of each single file system call.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::Purge;
use forebay_engine::Tier;
use forebay_engine::bus::{Bookmark, Chain};
use parking_lot::{Mutex, MutexGuard};

use super::{body, get, open, put, remove};
use crate::counts::Condition;
use crate::files::io::{DirectoryFile, FileSystem, Mode, OpenFile, OsFileSystem};
use crate::open::Disk;

/// Larger than an inline body.
const LARGE: usize = (1 << 20) + 300_000;

/// More calls than any test makes.
pub(super) const NEVER: u64 = u64::MAX / 2;

/// File system with failing calls.
#[derive(Clone)]
pub(super) struct FaultyFileSystem(Arc<FaultPlan>);

pub(super) struct FaultPlan {
    /// Blocks every call while it is held.
    gate: Mutex<()>,
    /// Number of calls.
    calls: AtomicU64,
    /// First failing call, from 1.
    from: AtomicU64,
    /// Last failing call.
    to: AtomicU64,
    fault: Fault,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Error(ErrorKind),
    /// Reads or writes a part, then fails.
    PartialThenError(ErrorKind),
    /// Files cannot grow, and none can be created; existing bytes can be overwritten.
    DiskFull,
}

struct FaultyFile(FaultyFileSystem, Arc<dyn OpenFile>);

impl FaultyFileSystem {
    pub(super) fn new(fault: Fault) -> Self {
        let (calls, from, to) = (AtomicU64::new(0), AtomicU64::new(NEVER), AtomicU64::new(0));
        Self(Arc::new(FaultPlan { gate: Mutex::new(()), calls, from, to, fault }))
    }

    pub(super) fn gate(&self) -> MutexGuard<'_, ()> {
        self.0.gate.lock()
    }

    pub(super) fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// Makes the calls with these numbers fail, counted from now on.
    pub(super) fn fail_calls(&self, numbers: std::ops::RangeInclusive<u64>) {
        self.0.calls.store(0, Ordering::SeqCst);
        self.0.from.store(*numbers.start(), Ordering::SeqCst);
        self.0.to.store(*numbers.end(), Ordering::SeqCst);
    }

    /// True if a failing call was reached.
    pub(super) fn has_failed(&self) -> bool {
        self.0.calls.load(Ordering::SeqCst) >= self.0.from.load(Ordering::SeqCst)
    }

    pub(super) fn recover(&self) {
        self.0.to.store(0, Ordering::SeqCst);
    }

    /// True if the disk is full.
    fn is_full(&self) -> bool {
        let is_on = self.0.to.load(Ordering::SeqCst) > 0;
        is_on && matches!(self.0.fault, Fault::DiskFull)
    }

    /// Returns how many of `len` bytes this call may process.
    fn call(&self, len: usize) -> io::Result<usize> {
        drop(self.gate());
        let number = self.0.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let (from, to) = (self.0.from.load(Ordering::SeqCst), self.0.to.load(Ordering::SeqCst));
        let is_next = number == from + 1 && from == to;
        match self.0.fault {
            Fault::DiskFull => Ok(len),
            _ if (number < from || number > to) && !is_next => Ok(len),
            Fault::Error(_) if is_next => Ok(len),
            Fault::Error(kind) => Err(kind.into()),
            Fault::PartialThenError(kind) if is_next || len < 2 => Err(kind.into()),
            Fault::PartialThenError(_) => Ok(len / 2),
        }
    }
}

impl FileSystem for FaultyFileSystem {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.call(0)?;
        OsFileSystem.make_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryFile>> {
        self.call(0)?;
        OsFileSystem.list(path)
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn OpenFile>> {
        self.call(0)?;
        if mode == Mode::New && self.is_full() {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(Arc::new(FaultyFile(self.clone(), OsFileSystem.open(path, mode)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(0)?;
        OsFileSystem.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.call(0)?;
        OsFileSystem.unlink(path)
    }

    fn lock_file(&self, path: &Path) -> io::Result<Option<Arc<dyn OpenFile>>> {
        self.call(0)?;
        let file = OsFileSystem.lock_file(path)?;
        Ok(file.map(|file| Arc::new(FaultyFile(self.clone(), file)) as Arc<dyn OpenFile>))
    }
}

impl OpenFile for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.0.call(0)?;
        self.1.len()
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let len = self.0.call(buffer.len())?;
        self.1.read_at(&mut buffer[..len], at)
    }

    fn append_at(&self, buffer: &mut Vec<u8>, at: u64) -> io::Result<usize> {
        let len = self.0.call(buffer.capacity() - buffer.len())?;
        let mut more = vec![0; len];
        let len = self.1.read_at(&mut more, at)?;
        buffer.extend_from_slice(&more[..len]);
        Ok(len)
    }

    fn read_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let len = self.0.call(buffer.len())?;
        self.1.read_if_cached(&mut buffer[..len], at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let len = self.0.call(bytes.len())?;
        if self.0.is_full() && at + len as u64 > self.1.len()? {
            return Err(ErrorKind::StorageFull.into());
        }
        self.1.write_at(&bytes[..len], at)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.call(0)?;
        self.1.truncate(len)
    }

    fn unlock(&self) {
        self.1.unlock();
    }
}

/// Operations that were acknowledged.
#[derive(Default)]
struct Acknowledged {
    /// Names of removed entries.
    removed: Vec<String>,
    /// Names of entries stored before purges were missed.
    unverified: Vec<&'static str>,
}

/// Runs all kinds of operations and checks each result.
async fn exercise(disk: &Disk, acknowledged: &mut Acknowledged) {
    disk.loaded().await;
    for (name, len) in [("a", 5_000), ("b", 100_000), ("large", LARGE)] {
        let stored = put(disk, name, &body(name, len)).await;
        check(disk, name, len, stored.is_ok()).await;
    }
    for name in ["gone", "large gone"] {
        acknowledged.removed.retain(|removed| removed != name);
        let _ = put(disk, name, &body(name, LARGE)).await;
        if remove(disk, name).await.is_ok() {
            acknowledged.removed.push(name.to_owned());
        }
        assert!(get(disk, name).await.is_none(), "{name}");
    }
    acknowledged.removed.retain(|removed| removed != "tagged");
    let _ = put(disk, "tagged", &body("tagged", 100)).await;
    if disk.purge(&Purge::Tag("tagged".into())).await.is_ok() {
        acknowledged.removed.push("tagged".to_owned());
    }
    assert!(get(disk, "tagged").await.is_none(), "tagged");
    acknowledged.unverified.clear();
    if disk.keep_bookmark(&bookmark(), Chain::Broken).await.is_ok() {
        acknowledged.unverified = vec!["a", "b", "large"];
    }
    let _ = disk.keep_bookmark(&bookmark(), Chain::Whole).await;
    // Enough to evict the oldest segments.
    for number in 0..5 {
        let name = format!("filler {number}");
        let _ = put(disk, &name, &body(&name, LARGE)).await;
        get(disk, "a").await;
    }
}

/// Asserts that results are correct, and that a failure costs at most one lookup.
async fn check(disk: &Disk, name: &str, len: usize, stored: bool) {
    for _ in 0..2 {
        match get(disk, name).await {
            Some(found) => assert!(found == body(name, len), "{name}"),
            None => assert!(!stored || disk.counts().io_errors + disk.counts().damaged > 0),
        }
    }
}

/// Asserts that every existing entry is correct and no removed one exists.
async fn audit(disk: &Disk, acknowledged: &Acknowledged) {
    for (name, len) in [("a", 5_000), ("b", 100_000), ("large", LARGE)] {
        if let Some(found) = get(disk, name).await {
            assert!(found == body(name, len), "{name}");
        }
    }
    for name in &acknowledged.removed {
        assert!(get(disk, name).await.is_none(), "{name} is back");
    }
}

/// Asserts that a saved bookmark implies unverified older entries.
async fn audit_next(disk: &Disk, acknowledged: &Acknowledged) {
    audit(disk, acknowledged).await;
    for name in &acknowledged.unverified {
        let stored = disk.open(super::key(name).borrowed()).await.ok().flatten();
        assert!(disk.bookmark().is_some(), "it was kept");
        assert!(stored.is_none_or(|stored| stored.suspect), "{name} is trusted");
    }
}

fn bookmark() -> Bookmark {
    Bookmark::new(b"here".as_slice().into()).expect("short")
}

/// Fails one call, or all from one on, in a new and in a used directory. Returns false once there
/// are fewer calls.
async fn survives(fault: Fault, number: u64, all: bool) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let io = FaultyFileSystem::new(fault);
    let mut acknowledged = Acknowledged::default();
    let mut has_failed = false;
    for _ in 0..2 {
        io.fail_calls(number..=if all { NEVER } else { number });
        if let Ok(disk) = open(Arc::new(io.clone()), folder.path()) {
            exercise(&disk, &mut acknowledged).await;
            has_failed |= io.has_failed();
            io.recover();
            audit(&disk, &acknowledged).await;
            disk.close().await;
        } else {
            has_failed = true;
            io.recover();
        }
        let disk = open(Arc::new(OsFileSystem), folder.path()).expect("nothing is damaged");
        disk.loaded().await;
        audit_next(&disk, &acknowledged).await;
        // The directory works normally again.
        put(&disk, "new", &body("new", 9)).await.expect("a disk that writes");
        assert_eq!(get(&disk, "new").await, Some(body("new", 9)));
        remove(&disk, "new").await.expect("a disk that writes");
        assert!(disk.counts().bytes <= super::SIZE * 5 / 4);
        disk.close().await;
    }
    has_failed
}

async fn all_survive(fault: impl Fn(u64) -> Fault, all: bool) {
    let is_soak = std::env::var("FOREBAY_SOAK_ROUNDS").is_ok();
    let mut number = 1;
    while survives(fault(number), number, all).await {
        // All of the first calls, which differ most, and fewer of the rest; a soak test runs all.
        number += if is_soak || number < 40 { 1 } else { number / 20 };
    }
    assert!(number > 100, "only {number} calls");
}

#[tokio::test]
async fn failed_call_gives_no_wrong_result() {
    all_survive(|_| Fault::Error(ErrorKind::Other), false).await;
}

#[tokio::test]
async fn partial_call_gives_no_wrong_result() {
    all_survive(|_| Fault::PartialThenError(ErrorKind::Other), false).await;
}

#[tokio::test]
async fn persistent_failure_gives_no_wrong_result() {
    const KINDS: [ErrorKind; 2] = [ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem];
    all_survive(|number| Fault::Error(KINDS[usize::from(number % 2 == 0)]), true).await;
}

#[tokio::test]
async fn a_full_disk_is_read_from_and_asked_once_a_second() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, condition) in [
        (ErrorKind::StorageFull, Condition::Full),
        (ErrorKind::ReadOnlyFilesystem, Condition::ReadOnly),
        (ErrorKind::Other, Condition::Failing),
    ] {
        let io = FaultyFileSystem::new(Fault::Error(kind));
        let disk = open(Arc::new(io.clone()), folder.path()).unwrap();
        put(&disk, "a", &body("a", 100)).await.unwrap();
        assert_eq!(disk.condition(), Condition::Healthy);
        io.fail_calls(1..=NEVER);
        assert!(put(&disk, "b", &body("b", 100)).await.is_err());
        let calls = io.0.calls.load(Ordering::SeqCst);
        for _ in 0..100 {
            assert!(put(&disk, "b", &body("b", 100)).await.is_err());
        }
        assert_eq!(io.0.calls.load(Ordering::SeqCst), calls, "it is left alone");
        assert_eq!((disk.condition(), disk.counts().refused), (condition, 100));
        io.recover();
        assert_eq!(get(&disk, "a").await, Some(body("a", 100)));
        // A removal is always tried, and shows that the disk has recovered.
        remove(&disk, "b").await.unwrap();
        assert_eq!(disk.condition(), Condition::Healthy);
        put(&disk, "b", &body("b", 100)).await.unwrap();
        disk.close().await;
    }
}

#[tokio::test]
async fn missing_key_needs_no_file_system_call() {
    let folder = tempfile::tempdir().unwrap();
    let io = FaultyFileSystem::new(Fault::Error(ErrorKind::Other));
    let disk = open(Arc::new(io.clone()), folder.path()).unwrap();
    disk.loaded().await;
    put(&disk, "a", &body("a", 100)).await.unwrap();
    let calls = || io.0.calls.load(Ordering::SeqCst);
    let before = calls();
    for number in 0..1_000 {
        assert_eq!(get(&disk, &format!("other {number}")).await, None);
    }
    assert_eq!((calls(), disk.counts().misses), (before, 1_000));
    assert!(get(&disk, "a").await.is_some() && calls() > before);
    disk.close().await;
}

/// On a full disk the root is overwritten to count the purge.
#[tokio::test]
async fn tag_purge_on_a_full_disk_holds_in_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let io = FaultyFileSystem::new(Fault::DiskFull);
    let disk = open(Arc::new(io.clone()), folder.path()).unwrap();
    for name in ["a", "b"] {
        put(&disk, name, &body(name, 100)).await.unwrap();
    }
    io.fail_calls(1..=NEVER);
    assert!(put(&disk, "c", &body("c", 100)).await.is_err());
    disk.purge(&Purge::Tag("a".into())).await.expect("it is written down all the same");
    assert_eq!(disk.condition(), Condition::Full);
    assert_eq!((get(&disk, "a").await, get(&disk, "b").await), (None, Some(body("b", 100))));
    io.recover();
    remove(&disk, "nothing").await.unwrap();
    put(&disk, "after", &body("after", 100)).await.unwrap();
    disk.close().await;
    // Entries older than the purge are discarded; newer ones remain.
    for _ in 0..2 {
        let disk = open(Arc::new(OsFileSystem), folder.path()).unwrap();
        disk.loaded().await;
        assert_eq!((get(&disk, "a").await, get(&disk, "b").await), (None, None));
        assert_eq!(get(&disk, "after").await, Some(body("after", 100)));
        disk.close().await;
    }
}
