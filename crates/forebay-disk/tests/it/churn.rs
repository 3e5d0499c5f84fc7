//! Twice the size, again and again: files and memory stay within their limits.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, MIB, bytes, directory_size};

/// Duration of a soak test; the regular test runs a few rounds.
const MINUTES: &str = "FOREBAY_SOAK_MINUTES";

/// Size of the directory, and of one segment.
const SIZE: u64 = 64 * MIB;
const SEGMENT: u64 = 4 * MIB;

/// Operations between two checks of the files.
const STEPS: u64 = 40;

/// Number of rounds over all keys in the regular test.
const ROUNDS: u64 = 3;

/// Memory that the allocator may keep.
const GROWTH_MAX: u64 = 8 * MIB;

/// Number of keys, twice the size in total; a third of the bytes is in separate files.
const KEYS: u64 = 1_000;

fn len(key: u64) -> usize {
    match key % 25 {
        0 => 1_200_000,
        1..5 => 350_000,
        _ => 4_000 + usize::try_from(key % 1_000).unwrap() * 50,
    }
}

/// Returns the resident memory, if the system reports it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

async fn step(fixture: &Fixture, number: u64) {
    let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % KEYS;
    let name = key.to_string();
    match number % 10 {
        0 => {
            fixture.remove(&name).await;
        }
        1..4 => {
            if let Some(found) = fixture.get(&name).await {
                assert!(found == bytes(key, len(key)), "key {key}");
            }
        }
        _ => fixture.put(&name, &bytes(key, len(key))).await.expect("room is made"),
    }
}

fn assert_within(fixture: &Fixture, folder: &Path) {
    let (told, real) = (fixture.disk.counts().bytes, directory_size(folder));
    assert!(told <= SIZE + SEGMENT && real <= SIZE + SEGMENT, "told {told}, real {real}");
}

#[tokio::test]
async fn twice_the_size_stays_within_it_and_within_memory() {
    let minutes = std::env::var(MINUTES).ok().and_then(|minutes| minutes.parse::<u64>().ok());
    let span = minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::open(folder.path(), SIZE);
    let began = Instant::now();
    let (mut number, mut early, mut most) = (0, None, 0);
    let is_over = |number: u64| match span {
        Some(span) => began.elapsed() >= span,
        None => number >= ROUNDS * KEYS,
    };
    while !is_over(number) {
        for _ in 0..STEPS {
            step(&fixture, number).await;
            number += 1;
        }
        assert_within(&fixture, folder.path());
        // Other tests share this process, unless it is a soak test.
        let Some(span) = span else { continue };
        let now = resident().unwrap_or(0);
        if began.elapsed() < span / 4 {
            early = early.max(Some(now));
        } else {
            most = most.max(now);
            let early = early.unwrap_or(now);
            assert!(most <= early + GROWTH_MAX, "{early} bytes at first, {most} at last");
        }
    }
    let counts = fixture.disk.counts();
    assert!(counts.evicted > 10 && counts.hits > 50 && counts.reinserted > 0, "{counts:?}");
    assert_eq!((counts.damaged, counts.failed, counts.io_errors), (0, 0, 0), "{counts:?}");
    let (early, most) = (early.unwrap_or(0) >> 20, most >> 20);
    println!("{number} steps, at first {early} MiB resident, later at most {most} MiB: {counts:?}");
}
