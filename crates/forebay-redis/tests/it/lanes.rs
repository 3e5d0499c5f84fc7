//! Connections that are only read over.

use std::time::{Duration, Instant};

use forebay_engine::{Tier, TierError};
use forebay_redis::{Login, Settings};
use forebay_testkit::redis::{RedisLaunch, RedisServer, Reply};

use crate::world::{PATIENT, World, key, name, patient, server, settings};

/// Reads until it is done over a connection for readings.
async fn read_in_lane(world: &World, lanes: u64) {
    world.until(|tier| tier.endpoints()[0].is_up).await;
    let began = Instant::now();
    while world.tier.counts().lanes < lanes {
        world.body(&key("/there")).await.expect("it is there");
        assert!(began.elapsed() < PATIENT * 10, "no lane: {:?}", world.tier.counts());
    }
    // The other connection has done something else since.
    world.remove(&key("/elsewhere")).await.unwrap();
    world.body(&key("/there")).await.expect("it is there");
}

/// Which connections have read something last, by their numbers.
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
    let world = World::new(settings(&server)).await;
    world.put(&key("/there"), b"body").await.unwrap();
    read_in_lane(&world, 1).await;
    let connected = world.tier.counts().connected;
    for broken in 1..=2 {
        let before = world.tier.counts();
        let readers = readers(&server).await;
        assert_eq!(readers.len(), 1);
        for number in readers {
            server.ask(&["CLIENT", "KILL", "ID", &number]).await.unwrap();
        }
        for _ in 0..200 {
            assert_eq!(world.body(&key("/there")).await.as_deref(), Some(&b"body"[..]));
        }
        let after = world.tier.counts();
        assert_eq!((after.broken, after.timed_out), (before.broken, before.timed_out));
        // Another one is opened after a while.
        read_in_lane(&world, broken + 1).await;
    }
    assert_eq!(world.tier.counts().connected, connected, "the other connection stays");
}

#[tokio::test]
async fn many_who_read_at_once_get_what_they_have_asked_for() {
    let server = server().await;
    let world = World::new(settings(&server)).await;
    world.put(&key("/there"), b"body").await.unwrap();
    let body = |number: usize| vec![b"abcdefg"[number % 7]; number * number];
    for number in 0..300 {
        world.put(&key(&format!("/{number}")), &body(number)).await.unwrap();
    }
    read_in_lane(&world, 1).await;
    let all = (0..600).map(|number| {
        let (key, world) = (key(&format!("/{number}")), &world);
        async move { world.body(&key).await }
    });
    let all = futures_util::future::join_all(all).await;
    for (number, found) in all.into_iter().enumerate() {
        assert_eq!(found, (number < 300).then(|| body(number).into()), "{number}");
    }
    let counts = world.tier.counts();
    assert_eq!((counts.lanes, counts.timed_out, counts.broken), (1, 0, 0), "{counts:?}");
}

#[tokio::test]
async fn whoever_reads_over_a_lane_waits_as_long_as_they_have_patience() {
    let server = server().await;
    let filled = World::new(settings(&server)).await;
    filled.put(&key("/there"), b"body").await.unwrap();
    let read_timeout = Duration::from_millis(80);
    let mut settings = settings(&server);
    settings.nearest.read_timeout = read_timeout;
    let world = World::new(settings).await;
    let began = Instant::now();
    while world.tier.counts().lanes == 0 {
        assert!(began.elapsed() < PATIENT * 10, "no lane");
        let _ = world.tier.open(key("/there").borrowed()).await;
    }
    world.until(|tier| tier.endpoints()[0].is_up).await;
    server.freeze().await.unwrap();
    let (asked, before) = (Instant::now(), world.tier.counts());
    let there = key("/there");
    let all = futures_util::future::join_all((0..100).map(|_| world.tier.open(there.borrowed())));
    let failed = all.await.into_iter().filter(|it| matches!(it, Err(TierError::TimedOut))).count();
    let (took, after) = (asked.elapsed(), world.tier.counts());
    server.thaw().await.unwrap();
    assert_eq!(failed, 100);
    assert_eq!(after.timed_out - before.timed_out, 100);
    assert!((read_timeout..read_timeout * 10).contains(&took), "{took:?}");
    // What comes late is nobody's answer.
    world.until(|tier| tier.endpoints()[0].is_up).await;
    filled.put(&key("/there"), b"another").await.unwrap();
    assert_eq!(filled.body(&key("/there")).await.as_deref(), Some(&b"another"[..]));
}

#[tokio::test]
async fn of_a_large_value_of_another_program_next_to_nothing_is_kept() {
    let server = server().await;
    let world = World::new(settings(&server)).await;
    world.put(&key("/there"), b"body").await.unwrap();
    world.put(&key("/taken"), b"body").await.unwrap();
    read_in_lane(&world, 1).await;
    let value = vec![b'x'; 4 << 20];
    server.ask(&[b"SET", name("/taken").as_bytes(), &value, b"KEEPTTL"]).await.unwrap();
    let before = world.tier.counts();
    assert_eq!(world.body(&key("/taken")).await, None);
    let after = world.tier.counts();
    assert_eq!(after.foreign - before.foreign, 1);
    assert!(after.bytes_in - before.bytes_in < 100, "{before:?} {after:?}");
    assert_eq!(world.body(&key("/there")).await.as_deref(), Some(&b"body"[..]));
}

#[tokio::test]
async fn a_lane_says_who_we_are_and_reads_in_the_same_database() {
    let user = "user cache on >secret ~forebay:* +@read +@write +@connection +@scripting +time";
    let launch = RedisLaunch::new().config(user).config("requirepass other");
    let server = launch.start().await.unwrap();
    let mut endpoint = patient(format!("redis://{}/3", server.address()));
    endpoint.login = Some(Login { user: Some("cache".into()), password: "secret".into() });
    let world = World::new(Settings::new(endpoint)).await;
    world.put(&key("/there"), b"body").await.unwrap();
    read_in_lane(&world, 1).await;
    assert_eq!(world.body(&key("/there")).await.as_deref(), Some(&b"body"[..]));
    assert_eq!(world.tier.counts().denied, 0);
}

#[test]
fn every_runtime_has_a_lane_of_its_own_which_ends_with_it() {
    let keeper = tokio::runtime::Runtime::new().unwrap();
    let (server, world) = keeper.block_on(async {
        let server = server().await;
        let world = World::new(settings(&server)).await;
        world.put(&key("/there"), b"body").await.unwrap();
        (server, world)
    });
    for lanes in 1..=3 {
        let short = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        short.block_on(read_in_lane(&world, lanes));
        drop(short);
    }
    let began = Instant::now();
    while keeper.block_on(readers(&server)).len() > 1 {
        assert!(began.elapsed() < PATIENT * 10, "lanes of runtimes that are gone");
    }
    assert_eq!(world.tier.counts().broken, 0);
    keeper.block_on(async { read_in_lane(&world, 4).await });
}
