//! A writing process is killed repeatedly. Acknowledged entries exist afterwards, acknowledged
//! removals hold, and no body is wrong.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use forebay_core::Purge;
use forebay_disk::Limits;
use forebay_engine::{SystemClock, Tier};

use crate::fixture::{Fixture, MIB, bytes};

const DIRECTORY: &str = "FOREBAY_DISK_KILLED";
const ROUND: &str = "FOREBAY_DISK_ROUND";
const SIZE: &str = "FOREBAY_DISK_SIZE";

/// Number of rounds, and maximum number of reported lines per round; a soak test sets a variable
/// for more and longer rounds.
const ROUNDS: u64 = 60;
const LINES: u64 = 250;
const LINES_SOAK: u64 = 1_500;

const TASKS: u64 = 8;
const KEYS_EACH: u64 = 40;

/// Operations on one key that the killed process had reported.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    /// Version that was acknowledged as stored; `None` after a removal.
    stored: Option<u64>,
    /// Operation that was begun: a version, or a removal.
    begun: Option<Option<u64>>,
}

fn fixture(path: &Path, size: u64) -> Fixture {
    Fixture::open_with(path, Limits::of(size), Arc::new(SystemClock))
}

fn name(key: u64) -> String {
    format!("key {key}")
}

/// Some bodies are in separate files.
fn len(version: u64) -> usize {
    match version % 16 {
        0 => (1 << 20) + 300_000,
        1 => 300_000,
        _ => 200 + usize::try_from(version % 7_000).unwrap(),
    }
}

fn report(line: &str) {
    // One write, so that a line is reported completely or not at all.
    let mut out = std::io::stdout().lock();
    out.write_all(format!("@{line}\n").as_bytes()).and_then(|()| out.flush()).expect("a reader");
}

/// Writes until it is killed. Not a test by itself: the tests below run it in a separate process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_process() {
    let Ok(path) = std::env::var(DIRECTORY) else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (round, size) = (number(ROUND), number(SIZE));
    let fixture = Arc::new(fixture(Path::new(&path), size));
    let tasks = (0..TASKS).map(|task| {
        let fixture = fixture.clone();
        tokio::spawn(async move {
            for step in 0..u64::MAX {
                let version = (round << 32) + (step * TASKS + task);
                let key = task * KEYS_EACH + (step * 7 + round) % KEYS_EACH;
                churn(&fixture, task, key, version).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

async fn churn(fixture: &Fixture, task: u64, key: u64, version: u64) {
    let tag = format!("of task {task}");
    if version % 61 == 60 {
        report(&format!("purge {task}"));
        fixture.disk.purge(&Purge::Tag(tag.into())).await.expect("a disk that writes");
        report(&format!("purged {task}"));
    } else if version % 5 == 4 {
        report(&format!("begin {key} -"));
        fixture.remove(&name(key)).await;
        report(&format!("end {key} -"));
    } else {
        report(&format!("begin {key} {version}"));
        let body = bytes(version ^ key, len(version));
        if fixture.put_tagged(&name(key), &tag, &body).await.is_ok() {
            report(&format!("end {key} {version}"));
        }
    }
}

fn receive(reported: &mut HashMap<u64, Reported>, line: &str) {
    // The test harness may have written the beginning of the line.
    let Some((_, line)) = line.split_once('@') else { return };
    let mut words = line.split(' ');
    let (what, key) = (words.next().unwrap(), words.next().unwrap().parse::<u64>().unwrap());
    let version = words.next().and_then(|version| version.parse().ok());
    match what {
        "begin" => reported.entry(key).or_default().begun = Some(version),
        "end" => *reported.entry(key).or_default() = Reported { stored: version, begun: None },
        // A task runs one operation at a time, so its keys do not change meanwhile.
        _ => {
            let keys = key * KEYS_EACH..(key + 1) * KEYS_EACH;
            for (_, reported) in reported.iter_mut().filter(|(key, _)| keys.contains(key)) {
                match what {
                    "purge" => reported.begun = Some(None),
                    _ => *reported = Reported::default(),
                }
            }
        }
    }
}

/// Runs a writing process, and kills it after this many lines.
fn kill_after(lines: usize, reported: &mut HashMap<u64, Reported>, arguments: [(&str, String); 3]) {
    let mut writer_process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::writer_process", "--nocapture", "--test-threads=1"])
        .envs(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(writer_process.stdout.take().unwrap());
    let mut line = String::new();
    let mut received = 0;
    loop {
        line.clear();
        if out.read_line(&mut line).unwrap() == 0 {
            break;
        }
        if let Some(whole) = line.strip_suffix('\n') {
            receive(reported, whole);
        }
        received += 1;
        if received == lines {
            // Lines that it has written by now are still read.
            writer_process.kill().unwrap();
        }
    }
    assert!(received >= lines, "it ended by itself");
    writer_process.wait().unwrap();
}

/// Checks every key. Returns how many acknowledged entries exist, and how many should.
async fn check(fixture: &Fixture, reported: &mut HashMap<u64, Reported>) -> (usize, usize) {
    let (mut warm, mut all) = (0, 0);
    for (key, reported) in reported {
        let found = fixture.get(&name(*key)).await;
        let is = |version: u64| found.as_ref() == Some(&bytes(version ^ key, len(version)));
        let stored = reported.stored.filter(|version| is(*version));
        let begun = reported.begun.flatten().filter(|version| is(*version));
        assert!(
            found.is_none() || stored.or(begun).is_some(),
            "key {key}, reported {reported:?}: {:?} bytes of something else",
            found.map(|found| found.len())
        );
        if reported.begun.is_none() && reported.stored.is_some() {
            all += 1;
            warm += usize::from(stored.is_some());
            if stored.is_none() {
                eprintln!(
                    "key {key}, reported {reported:?}, is not there: {:?}",
                    fixture.disk.counts()
                );
            }
        }
        *reported = Reported { stored: stored.or(begun), begun: None };
    }
    (warm, all)
}

async fn rounds(rounds: u64, size: u64) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let most = if is_soak() { LINES_SOAK } else { LINES };
    let mut reported = HashMap::new();
    let (mut warm, mut all) = (0, 0);
    for round in 0..rounds {
        let lines = 1 + usize::try_from(round * 7_919 % most).unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let arguments = [(DIRECTORY, path), (ROUND, round.to_string()), (SIZE, size.to_string())];
        kill_after(lines, &mut reported, arguments);
        let fixture = fixture(folder.path(), size);
        fixture.disk.loaded().await;
        let checked = check(&fixture, &mut reported).await;
        (warm, all) = (warm + checked.0, all + checked.1);
        let counts = fixture.disk.counts();
        assert_eq!(counts.discarded_segments, 0, "round {round}: {counts:?}");
        fixture.disk.close().await;
    }
    (warm, all)
}

fn is_soak() -> bool {
    std::env::var("FOREBAY_SOAK_ROUNDS").is_ok()
}

fn rounds_wanted() -> u64 {
    let wanted = std::env::var("FOREBAY_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    wanted.unwrap_or(ROUNDS)
}

#[tokio::test]
async fn no_wrong_lost_or_returned_entry_after_a_kill() {
    let (warm, all) = rounds(rounds_wanted(), 1_024 * MIB).await;
    assert!(all > 0);
    assert_eq!(warm, all, "what was acknowledged is there, and nothing had to make room");
}

#[tokio::test]
async fn no_wrong_result_after_a_kill_during_eviction() {
    let (warm, all) = rounds(rounds_wanted().div_ceil(4), 16 * MIB).await;
    assert!(warm > 0 && all > 0, "{warm} of {all}");
}
