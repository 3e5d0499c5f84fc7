//! A purge by prefix reaches matching entries, in this process and in later ones.

use forebay_core::{PREFIXES_MAX, Purge};
use forebay_engine::Tier;
use tempfile::TempDir;

use crate::fixture::{Fixture, MIB, bytes};

const SIZE: u64 = 64 * MIB;

fn prefix(of: &str) -> Purge {
    Purge::Prefix { site: "site".into(), prefix: of.into() }
}

async fn next(folder: &TempDir, before: Option<Fixture>) -> Fixture {
    if let Some(before) = before {
        before.disk.close().await;
    }
    let fixture = Fixture::open(folder.path(), SIZE);
    fixture.disk.loaded().await;
    fixture
}

async fn put(fixture: &Fixture, names: &[&str]) {
    for name in names {
        fixture.put(name, &bytes(1, 100)).await.unwrap();
    }
}

/// Returns the names of existing entries.
async fn left<'a>(fixture: &Fixture, names: &[&'a str]) -> Vec<&'a str> {
    let mut left = Vec::new();
    for name in names {
        if fixture.get(name).await.is_some() {
            left.push(*name);
        }
    }
    left
}

#[tokio::test]
async fn what_begins_so_is_gone_for_good_and_nothing_else() {
    let all = ["/items/1", "/items/2", "/other", "/item"];
    let folder = tempfile::tempdir().unwrap();
    let fixture = next(&folder, None).await;
    put(&fixture, &all).await;
    let large = fixture
        .write_uncommitted("/items/large", fixture.meta(), &bytes(1, 3_000_000))
        .await
        .unwrap();
    fixture.disk.purge(&prefix("/items/")).await.unwrap();
    large.commit().await.unwrap();
    assert_eq!(left(&fixture, &all).await, ["/other", "/item"]);
    put(&fixture, &["/items/2"]).await;
    let purged = Purge::Prefix { site: "elsewhere".into(), prefix: "/".into() };
    fixture.disk.purge(&purged).await.unwrap();
    let mut fixture = next(&folder, Some(fixture)).await;
    for _ in 0..2 {
        let all = [&all[..], &["/items/large"]].concat();
        assert_eq!(left(&fixture, &all).await, ["/items/2", "/other", "/item"]);
        fixture = next(&folder, Some(fixture)).await;
    }
    assert_eq!(fixture.disk.counts().widened, 0);
}

/// The oldest prefix purge is widened to older entries of its whole site.
#[tokio::test]
async fn more_prefixes_than_are_told_apart_widen_the_oldest() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = next(&folder, None).await;
    put(&fixture, &["/old", "/0/a", "/3/a"]).await;
    fixture.disk.purge(&prefix("/0/")).await.unwrap();
    put(&fixture, &["/new", "/0/b", "/3/b"]).await;
    // Repeated purges of one prefix count once.
    for _ in 0..3 {
        for number in 1..PREFIXES_MAX {
            fixture.disk.purge(&prefix(&format!("/{number}/"))).await.unwrap();
        }
    }
    let all = ["/old", "/new", "/0/a", "/0/b", "/3/a", "/3/b"];
    assert_eq!(left(&fixture, &all).await, ["/old", "/new", "/0/b"]);
    let mut widened = fixture.disk.widened();
    assert!(!widened.has_changed().unwrap());
    fixture.disk.purge(&prefix("/one more/")).await.unwrap();
    assert!(widened.has_changed().unwrap());
    assert_eq!((*widened.borrow_and_update(), fixture.disk.counts().widened), (1, 1));
    let expected = ["/new", "/0/b"];
    assert_eq!(left(&fixture, &all).await, expected);
    let fixture = next(&folder, Some(fixture)).await;
    assert_eq!(left(&fixture, &all).await, expected, "in the next process as well");
}

/// A prefix that is too long to be stored purges its site.
#[tokio::test]
async fn a_prefix_without_bound_purges_its_site() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = next(&folder, None).await;
    put(&fixture, &["/a"]).await;
    fixture.disk.purge(&prefix(&"x".repeat(100_000))).await.unwrap();
    assert_eq!(left(&fixture, &["/a"]).await, [""; 0]);
    let fixture = next(&folder, Some(fixture)).await;
    assert_eq!(left(&fixture, &["/a"]).await, [""; 0]);
}

/// A damaged prefix record counts as a purge of the whole site, or older entries are discarded.
#[tokio::test]
async fn a_damaged_record_of_a_prefix_lets_nothing_through() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = next(&folder, None).await;
    put(&fixture, &["/items/1", "/other"]).await;
    fixture.disk.purge(&prefix("/items/")).await.unwrap();
    fixture.disk.close().await;
    let segment = folder.path().join("00000000.segment");
    let right = std::fs::read(&segment).unwrap();
    let at = right.windows(7).rposition(|bytes| bytes == b"/items/").expect("the prefix");
    for bit in 0..7 * 8 {
        let mut bytes = right.clone();
        bytes[at + bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&segment, bytes).unwrap();
        let fixture = next(&folder, None).await;
        assert_eq!(left(&fixture, &["/items/1", "/other"]).await, [""; 0], "bit {bit}");
        fixture.disk.close().await;
    }
    std::fs::write(&segment, right).unwrap();
    let fixture = next(&folder, None).await;
    assert_eq!(left(&fixture, &["/items/1", "/other"]).await, ["/other"]);
}
