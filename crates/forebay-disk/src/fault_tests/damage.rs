//! Damaged files: a miss and a counter, and all other entries remain.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{body, get, open, put, remove};
use crate::files::io::OsFileSystem;
use crate::open::Disk;

/// Names of entries, and lengths of their bodies.
const ENTRIES: [(&str, usize); 4] =
    [("one", 300), ("two", 0), ("three", 900), ("large", (1 << 20) + 1)];

async fn opened(path: &Path) -> Disk {
    let disk = open(Arc::new(OsFileSystem), path).expect("a directory");
    disk.loaded().await;
    disk
}

/// Creates a directory with entries in two segments and one removed entry. With `torn` the last
/// segment has no footer.
async fn filled(torn: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let disk = opened(folder.path()).await;
    put(&disk, "gone", &body("gone", 100)).await.unwrap();
    put(&disk, "one", &body("one", 300)).await.unwrap();
    put(&disk, "two", &body("two", 0)).await.unwrap();
    disk.close().await;
    let disk = opened(folder.path()).await;
    put(&disk, "three", &body("three", 900)).await.unwrap();
    remove(&disk, "gone").await.unwrap();
    put(&disk, "large", &body("large", (1 << 20) + 1)).await.unwrap();
    if torn {
        let copy = tempfile::tempdir().unwrap();
        for path in files(folder.path()) {
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
        disk.close().await;
        return copy;
    }
    disk.close().await;
    folder
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(path).unwrap().map(|file| file.unwrap().path()).collect();
    all.sort();
    all
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "segment");
    files(path).into_iter().filter(is_segment).collect()
}

/// Opens the directory and reads all entries. Returns how many exist, and whether damage was
/// counted.
async fn survivors(path: &Path) -> (usize, bool) {
    let disk = opened(path).await;
    let mut there = 0;
    for (name, len) in ENTRIES {
        if let Some(found) = get(&disk, name).await {
            assert!(found == body(name, len), "{name}");
            there += 1;
        }
    }
    assert!(get(&disk, "gone").await.is_none(), "what was removed is back");
    let counts = disk.counts();
    let noticed = counts.damaged + counts.holes + counts.discarded_segments > 0;
    put(&disk, "new", &body("new", 5)).await.unwrap();
    disk.close().await;
    let disk = opened(path).await;
    assert_eq!(get(&disk, "new").await, Some(body("new", 5)));
    assert!(get(&disk, "gone").await.is_none(), "what was removed is back");
    disk.close().await;
    (there, noticed)
}

/// Copies a directory, changes one file, and returns the survivors.
async fn changed(from: &Path, file: usize, change: impl FnOnce(&mut Vec<u8>)) -> (usize, bool) {
    let copy = tempfile::tempdir().unwrap();
    for path in files(from) {
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = &files(copy.path())[file];
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
    survivors(copy.path()).await
}

#[tokio::test]
async fn flipped_bit_costs_one_entry_or_the_segments_of_a_removal() {
    for torn in [false, true] {
        let folder = filled(torn).await;
        let mut lost_many = 0;
        for (file, path) in files(folder.path()).iter().enumerate() {
            let len = fs::metadata(path).unwrap().len();
            // A third of the bytes of small files, fewer of large ones.
            let step = if len > 10_000 { 97_001 } else { 3 };
            for byte in (0..len).step_by(step) {
                let flip = |bytes: &mut Vec<u8>| {
                    let at = usize::try_from(byte).unwrap();
                    bytes[at] ^= 1 << (byte % 8);
                };
                let (there, noticed) = changed(folder.path(), file, flip).await;
                let least = if torn { 1 } else { ENTRIES.len() - 1 };
                assert!(there >= least, "{}: byte {byte}: {there} left", path.display());
                assert!(there == ENTRIES.len() || noticed, "{}: byte {byte}", path.display());
                lost_many += usize::from(there < ENTRIES.len() - 1);
            }
        }
        // Damage to the removal itself, which is in no footer, costs all older entries.
        assert!(lost_many <= if torn { 80 } else { 0 }, "{lost_many}");
    }
}

#[tokio::test]
async fn truncated_file_gives_no_wrong_result() {
    for torn in [false, true] {
        let folder = filled(torn).await;
        for (file, path) in files(folder.path()).iter().enumerate() {
            let len = fs::metadata(path).unwrap().len();
            let step = if len > 10_000 { 150_021 } else { 7 };
            for keep in (0..len).step_by(step) {
                let cut = |bytes: &mut Vec<u8>| bytes.truncate(usize::try_from(keep).unwrap());
                changed(folder.path(), file, cut).await;
            }
        }
    }
}

#[tokio::test]
async fn missing_or_swapped_file_gives_no_wrong_result() {
    let folder = filled(false).await;
    for (file, path) in files(folder.path()).iter().enumerate() {
        let copy = tempfile::tempdir().unwrap();
        for path in files(folder.path()) {
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
        fs::remove_file(&files(copy.path())[file]).unwrap();
        survivors(copy.path()).await;
        for other in files(folder.path()) {
            let other = fs::read(other).unwrap();
            changed(folder.path(), file, |bytes| *bytes = other).await;
        }
        let noise = body("noise", 5_000).to_vec();
        assert!(changed(folder.path(), file, |bytes| *bytes = noise).await.0 < 5, "{path:?}");
    }
}

#[tokio::test]
async fn segments_that_changed_places_are_misses() {
    let folder = filled(false).await;
    let [first, second] = &segments(folder.path())[..] else { panic!("two segments") };
    let (one, other) = (fs::read(first).unwrap(), fs::read(second).unwrap());
    fs::write(first, other).unwrap();
    fs::write(second, one).unwrap();
    assert_eq!(survivors(folder.path()).await, (0, true));
}

#[tokio::test]
async fn one_damaged_record_in_a_torn_segment_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let disk = opened(folder.path()).await;
    let names: Vec<String> = (0..50).map(|number| format!("entry {number}")).collect();
    for name in &names {
        put(&disk, name, &body(name, 777)).await.unwrap();
    }
    // State that a killed process would leave.
    let [segment] = &segments(folder.path())[..] else { panic!("one segment") };
    let mut bytes = fs::read(segment).unwrap();
    disk.close().await;
    let record = (bytes.len() - 40) / names.len();
    bytes[40 + 20 * record + 5] ^= 4;
    fs::write(segment, bytes).unwrap();
    // Opened twice: the second time there is a footer.
    for _ in 0..2 {
        let disk = opened(folder.path()).await;
        let mut there = 0;
        for name in &names {
            there += usize::from(get(&disk, name).await.is_some());
        }
        assert_eq!((there, disk.counts().discarded_segments), (names.len() - 1, 0));
        disk.close().await;
    }
}

/// A body cannot contain a valid record, since clients do not know the seed of the directory.
#[tokio::test]
async fn body_with_records_of_another_directory_adds_no_entry() {
    let other = tempfile::tempdir().unwrap();
    let disk = opened(other.path()).await;
    put(&disk, "forged", &body("forged", 100)).await.unwrap();
    disk.close().await;
    let forgery = fs::read(&segments(other.path())[0]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let disk = opened(folder.path()).await;
    // At every distance from a multiple of 8.
    let forgeries: Vec<u8> =
        (0..8).flat_map(|shift| [vec![0; shift], forgery.clone()].concat()).collect();
    put(&disk, "carrier", &forgeries.into()).await.unwrap();
    let mut bytes = fs::read(&segments(folder.path())[0]).unwrap();
    disk.close().await;
    // Damages the carrier's own header, so that the next record is searched within the body.
    bytes[45] ^= 1;
    fs::write(&segments(folder.path())[0], bytes).unwrap();
    let disk = opened(folder.path()).await;
    assert!(get(&disk, "forged").await.is_none());
    assert_eq!(disk.counts().entries, 0);
    disk.close().await;
}
