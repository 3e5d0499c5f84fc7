//! Read-only connections.

use std::time::{Duration, Instant};

use forebay_engine::{Tier, TierError};
use forebay_redis::{Login, Settings};
use forebay_testkit::redis::{RedisLaunch, RedisServer, Reply};

use crate::fixture::{Fixture, PATIENT, key, name, patient, server, settings};

/// Reads until a read-only connection is in use.
async fn read_over_read_connection(fixture: &Fixture, read_connections: u64) {
    fixture.until(|tier| tier.endpoints()[0].is_up).await;
    let began = Instant::now();
    while fixture.tier.counts().read_connections < read_connections {
        fixture.body(&key("/there")).await.expect("it is there");
        assert!(began.elapsed() < PATIENT * 10, "no lane: {:?}", fixture.tier.counts());
    }
    // Gives the main connection another last command than a read.
    fixture.remove(&key("/elsewhere")).await.unwrap();
    fixture.body(&key("/there")).await.expect("it is there");
}

/// Returns the ids of connections whose last command was a read.
async fn readers(server: &RedisServer) -> Vec<String> {
    let Reply::Bytes(list) = server.ask(&["CLIENT", "LIST"]).await.unwrap() else {
        panic!("no list of clients");
    };
    let list = String::from_utf8(list).unwrap();
    let is_reader = |line: &&str| line.contains(" cmd=getrange ");
    let number = |line: &str| line.split(' ').next().unwrap().replace("id=", "");
    list.lines().filter(is_reader).map(number).collect()
}

#[tokio::test]
async fn a_lane_that_breaks_costs_nobody_an_answer() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    fixture.put(&key("/there"), b"body").await.unwrap();
    read_over_read_connection(&fixture, 1).await;
    let connected = fixture.tier.counts().connected;
    for broken in 1..=2 {
        let before = fixture.tier.counts();
        let readers = readers(&server).await;
        assert_eq!(readers.len(), 1);
        for number in readers {
            server.ask(&["CLIENT", "KILL", "ID", &number]).await.unwrap();
        }
        for _ in 0..200 {
            assert_eq!(fixture.body(&key("/there")).await.as_deref(), Some(&b"body"[..]));
        }
        let after = fixture.tier.counts();
        assert_eq!((after.broken, after.timed_out), (before.broken, before.timed_out));
        // After a pause the connection is opened again.
        read_over_read_connection(&fixture, broken + 1).await;
    }
    assert_eq!(fixture.tier.counts().connected, connected, "the other connection stays");
}

#[tokio::test]
async fn many_who_read_at_once_get_what_they_have_asked_for() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    fixture.put(&key("/there"), b"body").await.unwrap();
    let body = |number: usize| vec![b"abcdefg"[number % 7]; number * number];
    for number in 0..300 {
        fixture.put(&key(&format!("/{number}")), &body(number)).await.unwrap();
    }
    read_over_read_connection(&fixture, 1).await;
    let all = (0..600).map(|number| {
        let (key, fixture) = (key(&format!("/{number}")), &fixture);
        async move { fixture.body(&key).await }
    });
    let all = futures_util::future::join_all(all).await;
    for (number, found) in all.into_iter().enumerate() {
        assert_eq!(found, (number < 300).then(|| body(number).into()), "{number}");
    }
    let counts = fixture.tier.counts();
    assert_eq!((counts.read_connections, counts.timed_out, counts.broken), (1, 0, 0), "{counts:?}");
}

#[tokio::test]
async fn whoever_reads_over_a_lane_waits_as_long_as_they_have_patience() {
    let server = server().await;
    let filled = Fixture::new(settings(&server)).await;
    filled.put(&key("/there"), b"body").await.unwrap();
    let read_timeout = Duration::from_millis(80);
    let mut settings = settings(&server);
    settings.nearest.read_timeout = read_timeout;
    let fixture = Fixture::new(settings).await;
    let began = Instant::now();
    while fixture.tier.counts().read_connections == 0 {
        assert!(began.elapsed() < PATIENT * 10, "no lane");
        let _ = fixture.tier.open(key("/there").borrowed()).await;
    }
    fixture.until(|tier| tier.endpoints()[0].is_up).await;
    server.freeze().await.unwrap();
    let (asked, before) = (Instant::now(), fixture.tier.counts());
    let there = key("/there");
    let all = futures_util::future::join_all((0..100).map(|_| fixture.tier.open(there.borrowed())));
    let failed = all.await.into_iter().filter(|it| matches!(it, Err(TierError::TimedOut))).count();
    let (took, after) = (asked.elapsed(), fixture.tier.counts());
    server.thaw().await.unwrap();
    assert_eq!(failed, 100);
    assert_eq!(after.timed_out - before.timed_out, 100);
    assert!((read_timeout..read_timeout * 10).contains(&took), "{took:?}");
    // A late reply is discarded.
    fixture.until(|tier| tier.endpoints()[0].is_up).await;
    filled.put(&key("/there"), b"another").await.unwrap();
    assert_eq!(filled.body(&key("/there")).await.as_deref(), Some(&b"another"[..]));
}

#[tokio::test]
async fn of_a_large_value_of_another_program_next_to_nothing_is_kept() {
    let server = server().await;
    let fixture = Fixture::new(settings(&server)).await;
    fixture.put(&key("/there"), b"body").await.unwrap();
    fixture.put(&key("/taken"), b"body").await.unwrap();
    read_over_read_connection(&fixture, 1).await;
    let value = vec![b'x'; 4 << 20];
    server.ask(&[b"SET", name("/taken").as_bytes(), &value, b"KEEPTTL"]).await.unwrap();
    let before = fixture.tier.counts();
    assert_eq!(fixture.body(&key("/taken")).await, None);
    let after = fixture.tier.counts();
    assert_eq!(after.foreign - before.foreign, 1);
    assert!(after.bytes_in - before.bytes_in < 100, "{before:?} {after:?}");
    assert_eq!(fixture.body(&key("/there")).await.as_deref(), Some(&b"body"[..]));
}

#[tokio::test]
async fn a_lane_says_who_we_are_and_reads_in_the_same_database() {
    let user = "user cache on >secret ~forebay:* +@read +@write +@connection +@scripting +time";
    let launch = RedisLaunch::new().config(user).config("requirepass other");
    let server = launch.start().await.unwrap();
    let mut endpoint = patient(format!("redis://{}/3", server.address()));
    endpoint.login = Some(Login { user: Some("cache".into()), password: "secret".into() });
    let fixture = Fixture::new(Settings::new(endpoint)).await;
    fixture.put(&key("/there"), b"body").await.unwrap();
    read_over_read_connection(&fixture, 1).await;
    assert_eq!(fixture.body(&key("/there")).await.as_deref(), Some(&b"body"[..]));
    assert_eq!(fixture.tier.counts().denied, 0);
}

#[test]
fn every_runtime_has_a_lane_of_its_own_which_ends_with_it() {
    let keeper = tokio::runtime::Runtime::new().unwrap();
    let (server, fixture) = keeper.block_on(async {
        let server = server().await;
        let fixture = Fixture::new(settings(&server)).await;
        fixture.put(&key("/there"), b"body").await.unwrap();
        (server, fixture)
    });
    for read_connections in 1..=3 {
        let short = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        short.block_on(read_over_read_connection(&fixture, read_connections));
        drop(short);
    }
    let began = Instant::now();
    while keeper.block_on(readers(&server)).len() > 1 {
        assert!(began.elapsed() < PATIENT * 10, "read_connections of runtimes that are gone");
    }
    assert_eq!(fixture.tier.counts().broken, 0);
    keeper.block_on(async { read_over_read_connection(&fixture, 4).await });
}
