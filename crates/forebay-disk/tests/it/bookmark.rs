//! The bus position and missed purges survive the process.

use bytes::Bytes;
use forebay_disk::Limits;
use forebay_engine::Tier;
use forebay_engine::bus::{Bookmark, Chain};
use tempfile::TempDir;

use crate::fixture::{Clocks, Fixture, MIB, bytes, key};

const SIZE: u64 = 64 * MIB;

fn bookmark(text: &'static str) -> Bookmark {
    Bookmark::new(Bytes::from_static(text.as_bytes())).unwrap()
}

/// Closes the previous fixture and opens the next one.
async fn next(folder: &TempDir, before: Option<Fixture>) -> Fixture {
    if let Some(before) = before {
        before.disk.close().await;
    }
    let fixture = Fixture::open(folder.path(), SIZE);
    fixture.disk.loaded().await;
    fixture
}

async fn is_unverified(fixture: &Fixture, name: &str) -> bool {
    let stored = fixture.disk.open(key(name).borrowed()).await.expect("a disk that reads");
    stored.expect("an entry").suspect
}

async fn put(fixture: &Fixture, name: &str) {
    fixture.put(name, &bytes(1, 100)).await.unwrap();
}

#[tokio::test]
async fn a_bookmark_is_there_for_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = next(&folder, None).await;
    assert_eq!(fixture.disk.bookmark(), None);
    put(&fixture, "a").await;
    for text in ["one", "two", "three"] {
        fixture.disk.keep_bookmark(&bookmark(text), Chain::Whole).await.unwrap();
        assert_eq!(fixture.disk.bookmark(), Some(bookmark(text)));
    }
    let fixture = next(&folder, Some(fixture)).await;
    assert_eq!(fixture.disk.bookmark(), Some(bookmark("three")));
    assert!(!is_unverified(&fixture, "a").await);
    assert_eq!(fixture.disk.counts().foreign, 0);
}

#[tokio::test]
async fn entry_before_a_break_is_unverified_in_later_processes() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = next(&folder, None).await;
    put(&fixture, "old").await;
    // Begun before the break, and committed after it.
    let begun = fixture.write_uncommitted("begun", fixture.meta(), &bytes(1, 100)).await.unwrap();
    let large =
        fixture.write_uncommitted("large", fixture.meta(), &bytes(1, 3_000_000)).await.unwrap();
    fixture.disk.keep_bookmark(&bookmark("one"), Chain::Broken).await.unwrap();
    begun.commit().await.unwrap();
    large.commit().await.unwrap();
    assert!(!is_unverified(&fixture, "old").await, "of this process the engine knows more");
    let fixture = next(&folder, Some(fixture)).await;
    put(&fixture, "new").await;
    fixture.disk.keep_bookmark(&bookmark("two"), Chain::Whole).await.unwrap();
    for name in ["old", "begun", "large"] {
        assert!(is_unverified(&fixture, name).await, "{name}");
    }
    let fixture = next(&folder, Some(fixture)).await;
    for (name, is) in [("old", true), ("begun", true), ("large", true), ("new", false)] {
        assert_eq!(is_unverified(&fixture, name).await, is, "{name}");
    }
    // A new entry is verified.
    put(&fixture, "old").await;
    let fixture = next(&folder, Some(fixture)).await;
    assert!(!is_unverified(&fixture, "old").await);
}

/// The load started before purges were missed, and its entry was stored afterwards.
#[tokio::test]
async fn entry_whose_load_started_before_the_break_is_unverified() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clocks::at(1_000_000, 2_000_000_000);
    let at = |clock| Fixture::open_with(folder.path(), Limits::of(SIZE), clock);
    let fixture = at(clock.clone());
    fixture.disk.loaded().await;
    let earlier = fixture.meta();
    let pass = |millis| clock.monotonic.fetch_add(millis, std::sync::atomic::Ordering::SeqCst);
    pass(100);
    fixture.disk.keep_bookmark(&bookmark("one"), Chain::Broken).await.unwrap();
    pass(100);
    fixture
        .write_uncommitted("before", earlier, &bytes(1, 9))
        .await
        .unwrap()
        .commit()
        .await
        .unwrap();
    put(&fixture, "behind").await;
    fixture.disk.close().await;
    let fixture = at(clock);
    fixture.disk.loaded().await;
    assert!(is_unverified(&fixture, "before").await && !is_unverified(&fixture, "behind").await);
}

/// Segment numbers start again; new entries are not older than the break.
#[tokio::test]
async fn entries_are_verified_after_all_segments_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = next(&folder, None).await;
    for _ in 0..3 {
        put(&fixture, "a").await;
        fixture = next(&folder, Some(fixture)).await;
    }
    fixture.disk.keep_bookmark(&bookmark("one"), Chain::Broken).await.unwrap();
    fixture.disk.close().await;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "segment") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let fixture = next(&folder, None).await;
    assert_eq!(fixture.disk.bookmark(), Some(bookmark("one")));
    put(&fixture, "a").await;
    fixture.disk.keep_bookmark(&bookmark("two"), Chain::Whole).await.unwrap();
    let fixture = next(&folder, Some(fixture)).await;
    assert!(!is_unverified(&fixture, "a").await);
}
