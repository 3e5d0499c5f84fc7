//! Entries are stored across processes and within the size, and removed entries do not return.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::Purge;
use forebay_disk::{Condition, Disk, Limits, OpenError};
use forebay_engine::{SystemClock, Tier, TierError, WriteMode};
use futures_util::FutureExt;

use crate::fixture::{Clocks, Fixture, MIB, bytes, collect, directory_size, key};

const SIZE: u64 = 64 * MIB;

/// Lengths around every limit: empty, one piece, inline, separate, and a complete piece.
const LENGTHS: [usize; 9] =
    [0, 1, 4_096, 65_536, 1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) + 7, 5_000_000];

#[tokio::test]
async fn stored_entry_is_found_now_and_in_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::open(folder.path(), SIZE);
    for len in LENGTHS {
        fixture.put(&len.to_string(), &bytes(len as u64, len)).await.unwrap();
        assert_eq!(fixture.get(&len.to_string()).await.unwrap(), bytes(len as u64, len));
    }
    assert_eq!(fixture.get("other").await, None);
    fixture.disk.close().await;
    assert!(fixture.disk.open(key("1").borrowed()).await.is_err(), "it is closed");
    let fixture = Fixture::open(folder.path(), SIZE);
    fixture.disk.loaded().await;
    for len in LENGTHS {
        assert_eq!(fixture.get(&len.to_string()).await.unwrap(), bytes(len as u64, len), "{len}");
    }
    let counts = fixture.disk.counts();
    assert_eq!((counts.entries, counts.damaged, counts.holes), (LENGTHS.len() as u64, 0, 0));
    // Excludes the root file.
    assert_eq!(counts.bytes + 96, directory_size(folder.path()));
}

#[tokio::test]
async fn newest_entry_counts_and_removals_hold() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let fixture = Fixture::open(folder.path(), SIZE);
        fixture.disk.loaded().await;
        for (name, len) in [("small", 100), ("large", 3_000_000)] {
            let old = bytes(7 + round, len);
            fixture.put(name, &bytes(6, len)).await.unwrap();
            fixture.put(name, &old).await.unwrap();
            assert_eq!(fixture.get(name).await.unwrap(), old);
            fixture.put(&format!("removed {name}"), &old).await.unwrap();
            assert!(fixture.remove(&format!("removed {name}")).await);
            assert!(!fixture.remove(&format!("removed {name}")).await);
            assert_eq!(fixture.get(&format!("removed {name}")).await, None);
        }
        fixture.disk.close().await;
        // Removed while earlier segments are being loaded.
        let fixture = Fixture::open(folder.path(), SIZE);
        if round == 2 {
            fixture.remove("small").await;
        }
        fixture.disk.loaded().await;
        let small = (round != 2).then(|| bytes(7 + round, 100));
        assert_eq!(fixture.get("small").await, small);
        assert_eq!(fixture.get("large").await.unwrap(), bytes(7 + round, 3_000_000));
        for name in ["removed small", "removed large"] {
            assert_eq!(fixture.get(name).await, None, "{name} in round {round}");
        }
        let bodies = fs::read_dir(folder.path()).unwrap().filter(|file| {
            let name = file.as_ref().unwrap().file_name().into_string().unwrap();
            name.ends_with(".body") || name.ends_with(".part")
        });
        assert_eq!(bodies.count(), 1, "no file is left behind");
        assert_eq!(fixture.disk.counts().discarded_segments, 0);
        fixture.disk.close().await;
    }
}

#[tokio::test]
async fn a_range_is_read_alone() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::open(folder.path(), SIZE);
    let body = bytes(1, 3_000_000);
    fixture.put("large", &body).await.unwrap();
    let part = async |name, range: std::ops::Range<u64>| {
        let stored = fixture.disk.open(key(name).borrowed()).await.unwrap().unwrap();
        collect(stored.parts.unwrap().part(range)).await.unwrap()
    };
    for range in [0..1, 262_143..262_145, 999_999..2_999_999, 2_900_000..9_000_000, 5..5] {
        let index = |at: u64| usize::try_from(at).unwrap();
        let wanted = index(range.start)..index(range.end).min(body.len());
        assert_eq!(part("large", range.clone()).await, body.slice(wanted), "{range:?}");
    }
    // Damages a piece outside of the range.
    let name = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let path = name.into_iter().find(|path| path.extension().unwrap() == "body").unwrap();
    let mut file = fs::read(&path).unwrap();
    file[300_000] ^= 1;
    fs::write(&path, file).unwrap();
    assert_eq!(part("large", 600_000..700_000).await, body.slice(600_000..700_000));
    assert_eq!(fixture.get("large").await, None, "it breaks off");
    assert_eq!(fixture.disk.counts().damaged, 1);
    assert!(fixture.disk.open(key("large").borrowed()).await.unwrap().is_none());
}

#[tokio::test]
async fn size_limit_holds_and_hit_entries_stay() {
    let folder = tempfile::tempdir().unwrap();
    let size = 16 * MIB;
    let fixture = Fixture::open(folder.path(), size);
    fixture.put("hot", &bytes(1, 10_000)).await.unwrap();
    fixture.put("hot and large", &bytes(2, 1_500_000)).await.unwrap();
    for number in 0..120_u64 {
        let len = if number % 3 == 0 { 1_200_000 } else { 300_000 };
        fixture.put(&format!("cold {number}"), &bytes(number, len)).await.unwrap();
        assert_eq!(fixture.get("hot").await.unwrap(), bytes(1, 10_000), "{number}");
        assert_eq!(fixture.get("hot and large").await.unwrap(), bytes(2, 1_500_000), "{number}");
        let (used, real) = (fixture.disk.counts().bytes, directory_size(folder.path()));
        assert!(used <= size + 4 * MIB && real <= size + 4 * MIB, "{used} {real}");
    }
    let counts = fixture.disk.counts();
    assert!(counts.evicted > 10 && counts.reinserted > 5, "{counts:?}");
    assert_eq!((counts.failed, counts.damaged, counts.refused), (0, 0, 0));
    assert_eq!(fixture.get("cold 0").await, None);
    assert_eq!(fixture.get("cold 119").await.unwrap(), bytes(119, 300_000));
    fixture.disk.close().await;
    let fixture = Fixture::open(folder.path(), size);
    fixture.disk.loaded().await;
    assert_eq!(fixture.get("hot").await.unwrap(), bytes(1, 10_000));
    assert_eq!(fixture.get("hot and large").await.unwrap(), bytes(2, 1_500_000));
}

#[tokio::test]
async fn too_large_entry_is_no_failure_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::open(folder.path(), 16 * MIB);
    let refused = fixture.put("a", &bytes(1, 5 << 20)).await;
    assert!(matches!(refused, Err(TierError::TooLarge)));
    // After the removal of the partial body.
    assert!(!fixture.remove("a").await);
    assert_eq!((fixture.get("a").await, fixture.disk.counts().failed), (None, 0));
    assert_eq!(fixture.disk.condition(), Condition::Healthy);
    assert!(directory_size(folder.path()) < 1_000);
}

#[tokio::test]
async fn dropped_write_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::open(folder.path(), SIZE);
    let (meta, head) = (fixture.meta(), Bytes::from("head of a"));
    for len in [100, 3_000_000] {
        let mut writer =
            fixture.disk.begin(key("a").borrowed(), &meta, &head, WriteMode::Loaded).await.unwrap();
        writer.write(bytes(1, len)).await.unwrap();
        drop(writer);
        let mut writer =
            fixture.disk.begin(key("a").borrowed(), &meta, &head, WriteMode::Loaded).await.unwrap();
        writer.write(bytes(1, len)).await.unwrap();
        // Polled once, so that the entry may or may not be written when the future is dropped.
        let _ = writer.commit().now_or_never();
        fixture.remove("b").await;
        let visible = fixture.get("a").await.is_some();
        fixture.disk.loaded().await;
        assert_eq!(fixture.get("a").await.is_some(), visible, "it does not appear later");
        fixture.remove("a").await;
    }
    fixture.disk.close().await;
    let fixture = Fixture::open(folder.path(), SIZE);
    fixture.disk.loaded().await;
    assert_eq!((fixture.get("a").await, fixture.disk.counts().entries), (None, 0));
    assert!(directory_size(folder.path()) < 10_000);
}

#[tokio::test]
async fn age_goes_on_across_processes_and_never_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = |monotonic, wall| {
        Fixture::open_with(folder.path(), Limits::of(SIZE), Clocks::at(monotonic, wall))
    };
    let fixture = at(5_000, 10_000);
    fixture.put("a", &bytes(1, 10)).await.unwrap();
    assert_eq!(fixture.age("a").await, Duration::ZERO);
    fixture.disk.close().await;
    // After a reboot the monotonic clock starts again.
    let fixture = at(10, 10_060);
    fixture.disk.loaded().await;
    assert_eq!(fixture.age("a").await, Duration::from_secs(61));
    fixture.put("b", &bytes(1, 10)).await.unwrap();
    fixture.disk.close().await;
    // The wall clock has gone back, but not before the first entry was stored.
    let fixture = at(20, 10_030);
    fixture.disk.loaded().await;
    for name in ["a", "b"] {
        assert!(fixture.age(name).await > Duration::from_secs(1_000_000), "{name}");
    }
    fixture.disk.close().await;
}

#[tokio::test]
async fn a_directory_is_open_once_and_errors_are_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made").join("on the way");
    let open = |path: &Path, size| Disk::open(path, Limits::of(size), Arc::new(SystemClock));
    let first = open(&path, SIZE).unwrap();
    let second = open(&path, SIZE).err().unwrap();
    assert!(matches!(second, OpenError::InUse { .. }));
    assert_eq!(
        second.to_string(),
        format!(
            "{}: the directory of the disk tier is in use by another process, or by another tier \
             of this one; stop it, or use another directory",
            path.display()
        )
    );
    first.close().await;
    let third = open(&path, SIZE).unwrap();
    assert!(matches!(open(&path, MIB), Err(OpenError::TooSmall { .. })));
    drop(third);
    let file = folder.path().join("file");
    fs::write(&file, "no directory").unwrap();
    assert!(matches!(open(&file, SIZE), Err(OpenError::Unusable { .. })));
    assert_eq!(fs::read(&file).unwrap(), b"no directory");
}

/// Purges that reach all entries of these tests.
fn purges_of_many() -> [Purge; 4] {
    let prefix = Purge::Prefix { site: "site".into(), prefix: String::new().into() };
    [Purge::Tag("red".into()), Purge::Site("site".into()), prefix, Purge::All]
}

#[tokio::test]
async fn a_purge_by_tag_site_or_of_all_outlives_the_process_and_its_segment() {
    for what in purges_of_many() {
        let folder = tempfile::tempdir().unwrap();
        let open = async || {
            let fixture = Fixture::open(folder.path(), 16 * MIB);
            fixture.disk.loaded().await;
            fixture
        };
        let fixture = open().await;
        for name in ["read", "hit before", "replaced"] {
            fixture.put(name, &bytes(1, 2_000)).await.unwrap();
            assert!(fixture.get(name).await.is_some());
        }
        fixture.disk.purge(&Purge::Tag("blue".into())).await.unwrap();
        assert!(fixture.get("read").await.is_some());
        fixture.disk.purge(&what).await.unwrap();
        assert_eq!(fixture.get("read").await, None);
        fixture.put("replaced", &bytes(2, 2_000)).await.unwrap();
        fixture.disk.close().await;
        let fixture = open().await;
        for name in ["read", "hit before"] {
            assert_eq!(fixture.get(name).await, None, "{what:?}");
        }
        assert_eq!(fixture.get("replaced").await.unwrap(), bytes(2, 2_000));
        fixture.disk.close().await;
    }
}

#[tokio::test]
async fn a_soft_purge_makes_entries_stale_and_outlives_the_process() {
    for (at, what) in purges_of_many().into_iter().chain([purge_of_key("read")]).enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let open = async || {
            let fixture = Fixture::open(folder.path(), 16 * MIB);
            fixture.disk.loaded().await;
            fixture
        };
        let mut fixture = open().await;
        for name in ["read", "replaced", "removed"] {
            fixture.put(name, &bytes(1, 2_000)).await.unwrap();
        }
        fixture.disk.soft_purge(&what).await.unwrap();
        fixture.put("replaced", &bytes(2, 2_000)).await.unwrap();
        fixture.disk.purge(&purge_of_key("removed")).await.unwrap();
        for _ in 0..2 {
            assert_eq!(fixture.is_softened("read").await, Some(true), "{at}");
            assert_eq!(fixture.get("read").await.unwrap(), bytes(1, 2_000));
            assert_eq!(fixture.is_softened("replaced").await, Some(false), "{at}");
            assert_eq!(fixture.is_softened("removed").await, None, "{at}");
            fixture.disk.close().await;
            fixture = open().await;
        }
        fixture.disk.purge(&what).await.unwrap();
        assert_eq!(fixture.get("read").await, None, "{at}");
        fixture.disk.close().await;
    }
}

/// A hit entry is written again when its segment is evicted, unless a soft purge of its key reaches
/// it.
#[tokio::test]
async fn a_softened_entry_does_not_outlive_the_record_of_its_purge() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::open(folder.path(), 16 * MIB);
    for name in ["softened", "stays"] {
        fixture.put(name, &bytes(1, 2_000)).await.unwrap();
        assert!(fixture.get(name).await.is_some());
    }
    assert!(fixture.disk.soften(key("softened").borrowed()).await.unwrap());
    assert!(!fixture.disk.soften(key("missing").borrowed()).await.unwrap());
    for number in 0..40 {
        fixture.put(&format!("filler {number}"), &bytes(number, 900_000)).await.unwrap();
        assert_eq!(fixture.is_softened("stays").await, Some(false));
        assert_ne!(fixture.is_softened("softened").await, Some(false));
    }
    assert!(fixture.disk.counts().evicted > 4 && fixture.disk.counts().reinserted > 0);
    assert_eq!(fixture.is_softened("softened").await, None);
    fixture.disk.close().await;
}

fn purge_of_key(name: &str) -> Purge {
    Purge::Key(key(name).borrowed().to_key())
}

/// The write was permitted before the purge, so its entry is older than the purge.
#[tokio::test]
async fn write_begun_before_a_purge_is_reached() {
    for what in purges_of_many() {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Fixture::open(folder.path(), SIZE);
        for len in [100, 3_000_000] {
            let early =
                fixture.write_uncommitted("early", fixture.meta(), &bytes(1, len)).await.unwrap();
            fixture.disk.purge(&what).await.unwrap();
            early.commit().await.unwrap();
            assert_eq!(fixture.get("early").await, None, "{what:?}");
            let again =
                fixture.write_uncommitted("early", fixture.meta(), &bytes(1, len)).await.unwrap();
            fixture.disk.purge(&Purge::Tag("blue".into())).await.unwrap();
            again.commit().await.unwrap();
            assert_eq!(fixture.get("early").await.unwrap(), bytes(1, len), "{what:?}");
            let last =
                fixture.write_uncommitted("early", fixture.meta(), &bytes(2, len)).await.unwrap();
            fixture.disk.purge(&what).await.unwrap();
            last.commit().await.unwrap();
        }
        fixture.disk.close().await;
        let fixture = Fixture::open(folder.path(), SIZE);
        fixture.disk.loaded().await;
        assert_eq!(fixture.get("early").await, None, "{what:?}");
        fixture.disk.close().await;
    }
}

/// A hit entry is written again when its segment is evicted, unless a purge reaches it, since it
/// would outlive the record of the purge.
#[tokio::test]
async fn a_purged_entry_does_not_outlive_the_record_of_the_purge() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::open(folder.path(), 16 * MIB);
    for name in ["purged", "stays"] {
        fixture.put(name, &bytes(1, 2_000)).await.unwrap();
        assert!(fixture.get(name).await.is_some());
    }
    fixture.disk.purge(&Purge::All).await.unwrap();
    fixture.put("stays", &bytes(2, 2_000)).await.unwrap();
    for number in 0..40 {
        fixture.put(&format!("filler {number}"), &bytes(number, 900_000)).await.unwrap();
        assert!(fixture.get("stays").await.is_some());
    }
    assert!(fixture.disk.counts().evicted > 4 && fixture.disk.counts().reinserted > 0);
    fixture.disk.close().await;
    let fixture = Fixture::open(folder.path(), 16 * MIB);
    fixture.disk.loaded().await;
    assert_eq!(fixture.get("purged").await, None);
    assert_eq!(fixture.get("stays").await.unwrap(), bytes(2, 2_000));
    assert_eq!((fixture.disk.counts().discarded_segments, fixture.disk.counts().damaged), (0, 0));
    fixture.disk.close().await;
}

/// The process ends between writing the purge record and the root. The purge was not acknowledged,
/// so earlier entries may exist; later ones must.
#[tokio::test]
async fn interrupted_purge_reaches_no_later_entry() {
    for what in purges_of_many() {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Fixture::open(folder.path(), SIZE);
        fixture.put("before", &bytes(1, 100)).await.unwrap();
        let root = folder.path().join("forebay.disk");
        let uncounted = fs::read(&root).unwrap();
        fixture.disk.purge(&what).await.unwrap();
        fixture.disk.close().await;
        fs::write(&root, uncounted).unwrap();
        let fixture = Fixture::open(folder.path(), SIZE);
        fixture.put("while loading", &bytes(2, 100)).await.unwrap();
        fixture.disk.loaded().await;
        fixture.put("later", &bytes(3, 100)).await.unwrap();
        fixture.disk.close().await;
        for _ in 0..2 {
            let fixture = Fixture::open(folder.path(), SIZE);
            fixture.disk.loaded().await;
            assert_eq!(fixture.get("while loading").await, Some(bytes(2, 100)), "{what:?}");
            assert_eq!(fixture.get("later").await, Some(bytes(3, 100)), "{what:?}");
            assert_eq!(
                (fixture.disk.counts().discarded_segments, fixture.disk.counts().holes),
                (0, 0)
            );
            fixture.disk.close().await;
        }
    }
}

#[tokio::test]
async fn files_of_others_are_left_alone_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["README", "0000000g.segment", "1.body", "00000000.segment.bak"] {
        fs::write(folder.path().join(name), "mine").unwrap();
    }
    let fixture = Fixture::open(folder.path(), SIZE);
    fixture.put("a", &bytes(1, 10)).await.unwrap();
    fixture.disk.loaded().await;
    assert_eq!(fixture.disk.counts().foreign, 4);
    fixture.disk.close().await;
    assert_eq!(fs::read(folder.path().join("1.body")).unwrap(), b"mine");
}
