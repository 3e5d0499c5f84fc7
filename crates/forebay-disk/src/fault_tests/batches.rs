//! Group commit, and calls that fail within a batch.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::faults::{Fault, FaultyFileSystem, NEVER};
use super::{body, get, open, put, remove};
use crate::files::io::OsFileSystem;
use crate::open::Disk;

/// Number of entries per batch, some of them too large to be copied.
const TOGETHER: usize = 30;

fn name(number: usize) -> String {
    format!("entry {number}")
}

fn len(number: usize) -> usize {
    if number % 10 == 9 { 100_000 } else { 100 + number * 50 }
}

/// Returns which entries were stored. The first is being written while the others are queued.
async fn put_together(disk: &Disk, io: &FaultyFileSystem) -> Vec<bool> {
    let puts = (0..TOGETHER).map(async |number| {
        let name = name(number);
        put(disk, &name, &body(&name, len(number))).await.is_ok()
    });
    let gate = io.gate();
    let mut puts = join_all(puts).boxed_local();
    assert!((&mut puts).now_or_never().is_none(), "the file system is held up");
    drop(gate);
    puts.await
}

/// Asserts that stored entries exist, removed ones do not, and all bodies are correct.
async fn audit(disk: &Disk, stored: &[bool]) {
    for (number, stored) in stored.iter().enumerate() {
        let name = name(number);
        let found = get(disk, &name).await;
        assert!(found.is_none() || number % 3 > 0, "{name} was removed");
        assert!(found.is_some() || number % 3 == 0 || !stored, "{name} was stored");
        assert!(found.is_none_or(|found| found == body(&name, len(number))), "{name}");
    }
}

fn copy(from: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for path in fs::read_dir(from).unwrap().map(|file| file.unwrap().path()) {
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// Fails one call, or all from one on until recovery. Returns false once there are fewer calls.
async fn survives(fault: Fault, number: u64, all: bool) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let io = FaultyFileSystem::new(fault);
    let disk = open(Arc::new(io.clone()), folder.path()).unwrap();
    disk.loaded().await;
    put(&disk, &name(0), &body(&name(0), 9)).await.unwrap();
    io.fail_calls(number..=if all { NEVER } else { number });
    let stored = put_together(&disk, &io).await;
    let has_failed = io.has_failed();
    io.recover();
    for number in (0..TOGETHER).step_by(3) {
        remove(&disk, &name(number)).await.expect("a disk that writes");
    }
    audit(&disk, &stored).await;
    let counts = disk.counts();
    let stored_count = stored.iter().filter(|stored| **stored).count() as u64;
    assert_eq!((counts.stored, counts.failed), (1 + stored_count, TOGETHER as u64 - stored_count));
    // State that a killed process would leave.
    let killed = copy(folder.path());
    disk.close().await;
    for path in [folder.path(), killed.path()] {
        let disk = open(Arc::new(OsFileSystem), path).unwrap();
        disk.loaded().await;
        audit(&disk, &stored).await;
        assert_eq!((disk.counts().discarded_segments, disk.counts().damaged), (0, 0));
        disk.close().await;
    }
    has_failed
}

#[tokio::test]
async fn failed_batch_keeps_old_entries_and_publishes_none() {
    let kind = ErrorKind::Other;
    for (fault, all) in [
        (Fault::Error(kind), false),
        (Fault::Error(kind), true),
        (Fault::PartialThenError(kind), false),
        (Fault::PartialThenError(kind), true),
    ] {
        let mut number = 1;
        while survives(fault, number, all).await {
            number += 1;
        }
        assert!(number > 3, "{fault:?}: {number} calls");
    }
}

#[tokio::test]
async fn waiting_entries_are_written_together() {
    let folder = tempfile::tempdir().unwrap();
    let io = FaultyFileSystem::new(Fault::Error(ErrorKind::Other));
    let disk = open(Arc::new(io.clone()), folder.path()).unwrap();
    disk.loaded().await;
    put(&disk, "first", &body("first", 9)).await.unwrap();
    let before = io.calls();
    assert_eq!(put_together(&disk, &io).await, [true; TOGETHER]);
    // The first entry, then one call per entry that is not copied: three calls on Linux, one
    // elsewhere.
    assert!(io.calls() - before <= 12, "{} calls", io.calls() - before);
    disk.close().await;
}
