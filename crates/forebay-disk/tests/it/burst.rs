//! Bursts beyond the write bandwidth: each entry is stored, or counted as not stored.

use std::sync::Arc;

use forebay_disk::Disk;
use tokio::task::JoinSet;

use crate::fixture::{Fixture, MIB, bytes};

async fn burst(count: u64, len: usize) -> (Arc<Disk>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Arc::new(Fixture::open(folder.path(), 2_048 * MIB));
    let mut puts = JoinSet::new();
    for number in 0..count {
        let fixture = fixture.clone();
        puts.spawn(async move {
            let body = bytes(number, len);
            (number, fixture.put(&number.to_string(), &body).await.is_ok())
        });
    }
    let mut refused = 0;
    let mut stored = Vec::new();
    while let Some(put) = puts.join_next().await {
        match put.unwrap() {
            (number, true) => stored.push(number),
            (_, false) => refused += 1,
        }
    }
    let counts = fixture.disk.counts();
    assert_eq!(counts.stored, stored.len() as u64);
    assert_eq!(counts.refused + counts.failed, refused, "{counts:?}");
    assert!(!stored.is_empty());
    for number in stored {
        assert_eq!(fixture.get(&number.to_string()).await.unwrap(), bytes(number, len), "{number}");
    }
    fixture.disk.close().await;
    (fixture.disk.clone(), refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_fifty_thousand_small_entries() {
    let (disk, refused) = burst(50_000, 4 << 10).await;
    assert_eq!(disk.counts().stored + refused, 50_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_a_thousand_entries_of_a_mebibyte() {
    // The second size needs a separate body file.
    for (count, len) in [(1_000, 1 << 20), (100, (1 << 20) + 1)] {
        let (disk, refused) = burst(count, len).await;
        assert_eq!(disk.counts().stored + refused, count);
    }
}
