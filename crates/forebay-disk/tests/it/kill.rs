//! A process that writes is killed, again and again: what it was told to be stored is there, what
//! it was told to be removed is not, and nothing is wrong.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use forebay_core::Purge;
use forebay_disk::Limits;
use forebay_engine::{SystemClock, Tier};

use crate::desk::{Desk, MIB, bytes};

const DIRECTORY: &str = "FOREBAY_DISK_KILLED";
const ROUND: &str = "FOREBAY_DISK_ROUND";
const SIZE: &str = "FOREBAY_DISK_SIZE";

/// How many rounds the tests run, and how much is said in each at most; a soak sets a variable for
/// more of them, and longer ones.
const ROUNDS: u64 = 240;
const LINES: u64 = 250;
const LINES_SOAK: u64 = 1_500;

const TASKS: u64 = 8;
const KEYS_EACH: u64 = 40;

/// What the process that was killed had said of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The version that it was told to be stored; nothing after a removal.
    stands: Option<u64>,
    /// What it had begun: a version, or a removal.
    begun: Option<Option<u64>>,
}

fn desk(path: &Path, size: u64) -> Desk {
    Desk::at(path, Limits::of(size), Arc::new(SystemClock))
}

fn name(key: u64) -> String {
    format!("key {key}")
}

/// Some bodies have files of their own.
fn len(version: u64) -> usize {
    match version % 16 {
        0 => (1 << 20) + 300_000,
        1 => 300_000,
        _ => 200 + usize::try_from(version % 7_000).unwrap(),
    }
}

fn say(line: &str) {
    // One write, so that a line is there or is not.
    let mut out = std::io::stdout().lock();
    out.write_all(format!("@{line}\n").as_bytes()).and_then(|()| out.flush()).expect("a reader");
}

/// Writes until it is killed. Only a part of the tests below, which run it in a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let Ok(path) = std::env::var(DIRECTORY) else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (round, size) = (number(ROUND), number(SIZE));
    let desk = Arc::new(desk(Path::new(&path), size));
    let tasks = (0..TASKS).map(|task| {
        let desk = desk.clone();
        tokio::spawn(async move {
            for step in 0..u64::MAX {
                let version = (round << 32) + (step * TASKS + task);
                let key = task * KEYS_EACH + (step * 7 + round) % KEYS_EACH;
                churn(&desk, (task, key), version).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

async fn churn(desk: &Desk, (task, key): (u64, u64), version: u64) {
    let tag = format!("of task {task}");
    if version % 61 == 60 {
        say(&format!("purge {task}"));
        desk.disk.purge(&Purge::Tag(tag.into())).await.expect("a disk that writes");
        say(&format!("purged {task}"));
    } else if version % 5 == 4 {
        say(&format!("begin {key} -"));
        desk.remove(&name(key)).await;
        say(&format!("end {key} -"));
    } else {
        say(&format!("begin {key} {version}"));
        let body = bytes(version ^ key, len(version));
        if desk.put_tagged((&name(key), &tag), &body).await.is_ok() {
            say(&format!("end {key} {version}"));
        }
    }
}

fn hear(told: &mut HashMap<u64, Told>, line: &str) {
    // The harness may have begun the line.
    let Some((_, line)) = line.split_once('@') else { return };
    let mut words = line.split(' ');
    let (what, key) = (words.next().unwrap(), words.next().unwrap().parse::<u64>().unwrap());
    let version = words.next().and_then(|version| version.parse().ok());
    match what {
        "begin" => told.entry(key).or_default().begun = Some(version),
        "end" => *told.entry(key).or_default() = Told { stands: version, begun: None },
        // A task does one thing at a time: nothing else happens to its keys meanwhile.
        _ => {
            let keys = key * KEYS_EACH..(key + 1) * KEYS_EACH;
            for (_, told) in told.iter_mut().filter(|(key, _)| keys.contains(key)) {
                match what {
                    "purge" => told.begun = Some(None),
                    _ => *told = Told::default(),
                }
            }
        }
    }
}

/// Lets a process write until it has said so many lines, and kills it.
fn kill_after(lines: usize, told: &mut HashMap<u64, Told>, arguments: [(&str, String); 3]) {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::victim", "--nocapture", "--test-threads=1"])
        .envs(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(victim.stdout.take().unwrap());
    let mut line = String::new();
    let mut heard = 0;
    loop {
        line.clear();
        if out.read_line(&mut line).unwrap() == 0 {
            break;
        }
        if let Some(whole) = line.strip_suffix('\n') {
            hear(told, whole);
        }
        heard += 1;
        if heard == lines {
            // What it has said by now is still read.
            victim.kill().unwrap();
        }
    }
    assert!(heard >= lines, "it ended by itself");
    victim.wait().unwrap();
}

/// Checks every key. Returns how many that should stand there do, and how many should.
async fn check(desk: &Desk, told: &mut HashMap<u64, Told>) -> (usize, usize) {
    let (mut warm, mut all) = (0, 0);
    for (key, told) in told {
        let found = desk.get(&name(*key)).await;
        let is = |version: u64| found.as_ref() == Some(&bytes(version ^ key, len(version)));
        let stands = told.stands.filter(|version| is(*version));
        let begun = told.begun.flatten().filter(|version| is(*version));
        assert!(
            found.is_none() || stands.or(begun).is_some(),
            "key {key}, told {told:?}: {:?} bytes of something else",
            found.map(|found| found.len())
        );
        if told.begun.is_none() && told.stands.is_some() {
            all += 1;
            warm += usize::from(stands.is_some());
            if stands.is_none() {
                eprintln!("key {key}, told {told:?}, is not there: {:?}", desk.disk.counts());
            }
        }
        *told = Told { stands: stands.or(begun), begun: None };
    }
    (warm, all)
}

async fn rounds(rounds: u64, size: u64) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let most = if is_soak() { LINES_SOAK } else { LINES };
    let mut told = HashMap::new();
    let (mut warm, mut all) = (0, 0);
    for round in 0..rounds {
        let lines = 1 + usize::try_from(round * 7_919 % most).unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let arguments = [(DIRECTORY, path), (ROUND, round.to_string()), (SIZE, size.to_string())];
        kill_after(lines, &mut told, arguments);
        let desk = desk(folder.path(), size);
        desk.disk.loaded().await;
        let checked = check(&desk, &mut told).await;
        (warm, all) = (warm + checked.0, all + checked.1);
        let counts = desk.disk.counts();
        assert_eq!(counts.suspect, 0, "round {round}: {counts:?}");
        desk.disk.close().await;
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
async fn nothing_is_wrong_or_lost_or_back_after_a_kill() {
    let (warm, all) = rounds(rounds_wanted(), 1_024 * MIB).await;
    assert!(all > 0);
    assert_eq!(warm, all, "what was acknowledged is there, and nothing had to make room");
}

#[tokio::test]
async fn nothing_is_wrong_after_a_kill_while_room_is_made() {
    let (warm, all) = rounds(rounds_wanted().div_ceil(4), 16 * MIB).await;
    assert!(warm > 0 && all > 0, "{warm} of {all}");
}
