//! A purge by prefix reaches what begins so, in this process and in those to come.

use forebay_core::{PREFIXES_MAX, Purge};
use forebay_engine::Tier;
use tempfile::TempDir;

use crate::desk::{Desk, MIB, bytes};

const SIZE: u64 = 64 * MIB;

fn prefix(of: &str) -> Purge {
    Purge::Prefix { site: "site".into(), prefix: of.into() }
}

async fn next(folder: &TempDir, before: Option<Desk>) -> Desk {
    if let Some(before) = before {
        before.disk.close().await;
    }
    let desk = Desk::over(folder.path(), SIZE);
    desk.disk.loaded().await;
    desk
}

async fn put(desk: &Desk, names: &[&str]) {
    for name in names {
        desk.put(name, &bytes(1, 100)).await.unwrap();
    }
}

/// Those that are there.
async fn left<'a>(desk: &Desk, names: &[&'a str]) -> Vec<&'a str> {
    let mut left = Vec::new();
    for name in names {
        if desk.get(name).await.is_some() {
            left.push(*name);
        }
    }
    left
}

#[tokio::test]
async fn what_begins_so_is_gone_for_good_and_nothing_else() {
    let all = ["/items/1", "/items/2", "/other", "/item"];
    let folder = tempfile::tempdir().unwrap();
    let desk = next(&folder, None).await;
    put(&desk, &all).await;
    let large = desk.written("/items/large", desk.meta(), &bytes(1, 3_000_000)).await.unwrap();
    desk.disk.purge(&prefix("/items/")).await.unwrap();
    large.commit().await.unwrap();
    assert_eq!(left(&desk, &all).await, ["/other", "/item"]);
    put(&desk, &["/items/2"]).await;
    let purged = Purge::Prefix { site: "elsewhere".into(), prefix: "/".into() };
    desk.disk.purge(&purged).await.unwrap();
    let mut desk = next(&folder, Some(desk)).await;
    for _ in 0..2 {
        let all = [&all[..], &["/items/large"]].concat();
        assert_eq!(left(&desk, &all).await, ["/items/2", "/other", "/item"]);
        desk = next(&folder, Some(desk)).await;
    }
    assert_eq!(desk.disk.counts().widened, 0);
}

/// The oldest becomes a purge of what is as old and of its site: too much goes, never too little.
#[tokio::test]
async fn more_prefixes_than_are_told_apart_widen_the_oldest() {
    let folder = tempfile::tempdir().unwrap();
    let desk = next(&folder, None).await;
    put(&desk, &["/old", "/0/a", "/3/a"]).await;
    desk.disk.purge(&prefix("/0/")).await.unwrap();
    put(&desk, &["/new", "/0/b", "/3/b"]).await;
    // Again and again the same one is one.
    for _ in 0..3 {
        for number in 1..PREFIXES_MAX {
            desk.disk.purge(&prefix(&format!("/{number}/"))).await.unwrap();
        }
    }
    let all = ["/old", "/new", "/0/a", "/0/b", "/3/a", "/3/b"];
    assert_eq!(left(&desk, &all).await, ["/old", "/new", "/0/b"]);
    let mut widened = desk.disk.widened();
    assert!(!widened.has_changed().unwrap());
    desk.disk.purge(&prefix("/one more/")).await.unwrap();
    assert!(widened.has_changed().unwrap());
    assert_eq!((*widened.borrow_and_update(), desk.disk.counts().widened), (1, 1));
    let expected = ["/new", "/0/b"];
    assert_eq!(left(&desk, &all).await, expected);
    let desk = next(&folder, Some(desk)).await;
    assert_eq!(left(&desk, &all).await, expected, "in the next process as well");
}

/// A prefix that is too long to be written down counts for its site.
#[tokio::test]
async fn a_prefix_without_bound_purges_its_site() {
    let folder = tempfile::tempdir().unwrap();
    let desk = next(&folder, None).await;
    put(&desk, &["/a"]).await;
    desk.disk.purge(&prefix(&"x".repeat(100_000))).await.unwrap();
    assert_eq!(left(&desk, &["/a"]).await, [""; 0]);
    let desk = next(&folder, Some(desk)).await;
    assert_eq!(left(&desk, &["/a"]).await, [""; 0]);
}

/// What is damaged of it is taken for a purge of the whole site, or makes what is older suspect.
#[tokio::test]
async fn a_damaged_record_of_a_prefix_lets_nothing_through() {
    let folder = tempfile::tempdir().unwrap();
    let desk = next(&folder, None).await;
    put(&desk, &["/items/1", "/other"]).await;
    desk.disk.purge(&prefix("/items/")).await.unwrap();
    desk.disk.close().await;
    let segment = folder.path().join("00000000.segment");
    let right = std::fs::read(&segment).unwrap();
    let at = right.windows(7).rposition(|bytes| bytes == b"/items/").expect("the prefix");
    for bit in 0..7 * 8 {
        let mut bytes = right.clone();
        bytes[at + bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&segment, bytes).unwrap();
        let desk = next(&folder, None).await;
        assert_eq!(left(&desk, &["/items/1", "/other"]).await, [""; 0], "bit {bit}");
        desk.disk.close().await;
    }
    std::fs::write(&segment, right).unwrap();
    let desk = next(&folder, None).await;
    assert_eq!(left(&desk, &["/items/1", "/other"]).await, ["/other"]);
}
