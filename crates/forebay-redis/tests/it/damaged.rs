//! Any data under a cache's names is an entry, or a miss with a counted reason.

use std::time::Duration;

use forebay_core::frame::{self, Frame};
use forebay_redis::envelope::{self, Retention};
use forebay_redis::{Counts, Settings};
use forebay_testkit::redis::RedisServer;

use crate::fixture::{
    Fixture, a_moment_ago, bytes, key, meta, name, now, number, server, settings,
};

const MINUTE: &str = "60000";

async fn plant(server: &RedisServer, value: &[u8]) {
    let name = name("/");
    let command: [&[u8]; 5] = [b"SET", name.as_bytes(), value, b"PX", MINUTE.as_bytes()];
    server.ask(&command).await.unwrap();
}

/// Plants a value, reads it, and returns the difference of the counters.
async fn read(fixture: &Fixture, server: &RedisServer, value: &[u8]) -> Counts {
    let before = fixture.tier.counts();
    plant(server, value).await;
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None, "{value:?}");
    let mut counts = fixture.tier.counts();
    assert_eq!(counts.misses, before.misses + 1);
    counts.foreign -= before.foreign;
    counts.other_version -= before.other_version;
    counts.unbelievable -= before.unbelievable;
    counts.damaged -= before.damaged;
    counts.other_key -= before.other_key;
    counts
}

/// Offsets in a value: of the purge token, and of what follows it.
const TOKEN_AT: usize = 51;
const HEADER_END: usize = 59;

/// Returns a valid value.
fn sealed(settings: &Settings, path: &str, body: &[u8]) -> Vec<u8> {
    let (key, meta, body) = (key(path), meta(Duration::from_secs(60)), [body.to_vec().into()]);
    let frame = Frame { key: key.borrowed(), meta: &meta, head: b"", body: &body };
    let frame = frame::encode(&frame, now()).unwrap();
    let retention = Retention { ttl: Duration::from_secs(60), from: Some(a_moment_ago()) };
    let info = envelope::Annotations::default();
    envelope::seal(&frame, &name("/"), retention, &info, &settings.sealing)
}

#[tokio::test]
async fn every_kind_of_wrong_value_is_a_miss_with_a_reason() {
    let server = server().await;
    let settings = settings(&server);
    let fixture = Fixture::new(settings.clone()).await;
    let sound = sealed(&settings, "/", b"body");
    plant(&server, &sound).await;
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"body"[..]));

    for foreign in [&b"x"[..], b"{\"json\": true}", &[0xff; 3_000], b"FBE\xf7\x01"] {
        assert_eq!(read(&fixture, &server, foreign).await.foreign, 1);
    }
    let mut other = sound.clone();
    other[4] += 1;
    assert_eq!(read(&fixture, &server, &other).await.other_version, 1);
    let elsewhere = sealed(&settings, "/elsewhere", b"body");
    assert_eq!(read(&fixture, &server, &elsewhere).await.other_key, 1);
    for length in [4, 5, 20, 51, 60, sound.len() - 1] {
        let counts = read(&fixture, &server, &sound[..length]).await;
        assert_eq!(counts.damaged + counts.unbelievable, 1, "{length}");
    }
    // The purge token is covered by no digest: another one makes the entry stale.
    for at in (5..TOKEN_AT).chain(HEADER_END..sound.len()) {
        let mut flipped = sound.clone();
        flipped[at] ^= 0x10;
        let counts = read(&fixture, &server, &flipped).await;
        assert_eq!(counts.damaged + counts.other_version, 1, "{at}");
    }
    // The next write replaces it.
    fixture.put(&key("/"), b"new").await.unwrap();
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"new"[..]));
    assert_eq!(fixture.tier.counts().hits, 2);
}

#[tokio::test]
async fn value_of_another_type_is_foreign_and_replaced() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    server.ask(&["LPUSH", &name("/"), "a", "b"]).await.unwrap();
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None);
    assert_eq!(fixture.tier.counts().foreign, 1);
    fixture.put(&key("/"), b"new").await.unwrap();
    assert_eq!(fixture.body(&key("/")).await.as_deref(), Some(&b"new"[..]));
}

#[tokio::test]
async fn too_large_value_is_read_up_to_the_limit() {
    let server = server().await;
    let mut settings = settings(&server);
    settings.sealing.object_max = 1_000;
    let fixture = Fixture::new(settings).await;
    number(&server, &["SETRANGE", &name("/"), "30000000", "x"]).await;
    assert_eq!(fixture.get(&key("/")).await.unwrap(), None);
    let counts = fixture.tier.counts();
    assert_eq!(counts.foreign, 1);
    assert!(counts.bytes_in < 1 << 20, "{}", counts.bytes_in);
}

/// Environment variable of the process that measures memory alone.
const ALONE: &str = "FOREBAY_TEST_ALONE";

#[test]
fn a_bomb_costs_no_more_memory_than_an_entry_may() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(bombed());
    }
    let test = "damaged::a_bomb_costs_no_more_memory_than_an_entry_may";
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", test]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn bombed() {
    let server = server().await;
    let settings = settings(&server);
    let fixture = Fixture::new(settings.clone()).await;
    fixture.put(&key("/other"), &vec![b'x'; 2_000]).await.unwrap();
    assert!(fixture.body(&key("/other")).await.is_some(), "everything is warm");

    let bomb = {
        let mut sound = sealed(&settings, "/", b"");
        let packed = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
        sound.truncate(HEADER_END);
        [sound, packed].concat()
    };
    let most = (bomb.len() - HEADER_END) as u64 * 256;
    assert!(most > 500_000, "{most}");
    for (claimed, how) in [(64 << 20, 1), (most, 1), (most, 2)] {
        let mut value = bomb.clone();
        value[5] = how;
        value[15..23].copy_from_slice(&claimed.to_le_bytes());
        let value = with_digest(value);
        plant(&server, &value).await;
        let before = forget_peak();
        assert_eq!(fixture.get(&key("/")).await.unwrap(), None);
        let grown = peak().saturating_sub(before);
        assert!(grown <= 2 << 20, "{grown} bytes for a claim of {claimed}");
    }
    let counts = fixture.tier.counts();
    assert_eq!((counts.unbelievable, counts.damaged), (1, 2));
    assert!(bytes(&server, &name("/")).await.len() < 10_000);
}

/// Returns the value with a valid header digest.
fn with_digest(mut value: Vec<u8>) -> Vec<u8> {
    let signed = [name("/").as_bytes(), &value[..43]].concat();
    let digest = twox_hash::XxHash3_64::oneshot(&signed);
    value[43..51].copy_from_slice(&digest.to_le_bytes());
    value
}

/// Resets the process's peak memory and returns it.
fn forget_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();

    peak()
}

fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let number = line.split_whitespace().nth(1).unwrap();
    number.parse::<u64>().unwrap() << 10
}
