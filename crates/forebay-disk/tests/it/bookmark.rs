//! How far the bus was followed outlives the process, and so does what was missed.

use bytes::Bytes;
use forebay_disk::Limits;
use forebay_engine::Tier;
use forebay_engine::bus::{Bookmark, Chain};
use tempfile::TempDir;

use crate::desk::{Clocks, Desk, MIB, bytes, key};

const SIZE: u64 = 64 * MIB;

fn bookmark(text: &'static str) -> Bookmark {
    Bookmark::new(Bytes::from_static(text.as_bytes())).unwrap()
}

/// The next process.
async fn next(folder: &TempDir, before: Option<Desk>) -> Desk {
    if let Some(before) = before {
        before.disk.close().await;
    }
    let desk = Desk::over(folder.path(), SIZE);
    desk.disk.loaded().await;
    desk
}

async fn is_suspect(desk: &Desk, name: &str) -> bool {
    let stored = desk.disk.open(key(name).borrowed()).await.expect("a disk that reads");
    stored.expect("an entry").suspect
}

async fn put(desk: &Desk, name: &str) {
    desk.put(name, &bytes(1, 100)).await.unwrap();
}

#[tokio::test]
async fn a_bookmark_is_there_for_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let desk = next(&folder, None).await;
    assert_eq!(desk.disk.bookmark(), None);
    put(&desk, "a").await;
    for text in ["one", "two", "three"] {
        desk.disk.keep_bookmark(&bookmark(text), Chain::Whole).await.unwrap();
        assert_eq!(desk.disk.bookmark(), Some(bookmark(text)));
    }
    let desk = next(&folder, Some(desk)).await;
    assert_eq!(desk.disk.bookmark(), Some(bookmark("three")));
    assert!(!is_suspect(&desk, "a").await);
    assert_eq!(desk.disk.counts().foreign, 0);
}

#[tokio::test]
async fn what_is_older_than_what_was_missed_is_suspect_in_every_later_process() {
    let folder = tempfile::tempdir().unwrap();
    let desk = next(&folder, None).await;
    put(&desk, "old").await;
    // Begun before it, and committed behind it.
    let begun = desk.written("begun", desk.meta(), &bytes(1, 100)).await.unwrap();
    let large = desk.written("large", desk.meta(), &bytes(1, 3_000_000)).await.unwrap();
    desk.disk.keep_bookmark(&bookmark("one"), Chain::Broken).await.unwrap();
    begun.commit().await.unwrap();
    large.commit().await.unwrap();
    assert!(!is_suspect(&desk, "old").await, "of this process the engine knows more");
    let desk = next(&folder, Some(desk)).await;
    put(&desk, "new").await;
    desk.disk.keep_bookmark(&bookmark("two"), Chain::Whole).await.unwrap();
    for name in ["old", "begun", "large"] {
        assert!(is_suspect(&desk, name).await, "{name}");
    }
    let desk = next(&folder, Some(desk)).await;
    for (name, is) in [("old", true), ("begun", true), ("large", true), ("new", false)] {
        assert_eq!(is_suspect(&desk, name).await, is, "{name}");
    }
    // What takes its place is as good as any.
    put(&desk, "old").await;
    let desk = next(&folder, Some(desk)).await;
    assert!(!is_suspect(&desk, "old").await);
}

/// It left for its origin before something was missed, and came behind it.
#[tokio::test]
async fn what_departed_before_is_as_suspect_as_what_was_stored_before() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clocks::at(1_000_000, 2_000_000_000);
    let at = |clock| Desk::at(folder.path(), Limits::of(SIZE), clock);
    let desk = at(clock.clone());
    desk.disk.loaded().await;
    let departed = desk.meta();
    let pass = |millis| clock.monotonic.fetch_add(millis, std::sync::atomic::Ordering::SeqCst);
    pass(100);
    desk.disk.keep_bookmark(&bookmark("one"), Chain::Broken).await.unwrap();
    pass(100);
    desk.written("before", departed, &bytes(1, 9)).await.unwrap().commit().await.unwrap();
    put(&desk, "behind").await;
    desk.disk.close().await;
    let desk = at(clock);
    desk.disk.loaded().await;
    assert!(is_suspect(&desk, "before").await && !is_suspect(&desk, "behind").await);
}

/// Numbers of segments begin anew then: what is stored now is not of the time before.
#[tokio::test]
async fn where_all_segments_are_gone_nothing_is_suspect() {
    let folder = tempfile::tempdir().unwrap();
    let mut desk = next(&folder, None).await;
    for _ in 0..3 {
        put(&desk, "a").await;
        desk = next(&folder, Some(desk)).await;
    }
    desk.disk.keep_bookmark(&bookmark("one"), Chain::Broken).await.unwrap();
    desk.disk.close().await;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "segment") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let desk = next(&folder, None).await;
    assert_eq!(desk.disk.bookmark(), Some(bookmark("one")));
    put(&desk, "a").await;
    desk.disk.keep_bookmark(&bookmark("two"), Chain::Whole).await.unwrap();
    let desk = next(&folder, Some(desk)).await;
    assert!(!is_suspect(&desk, "a").await);
}
