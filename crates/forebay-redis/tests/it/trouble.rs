//! What comes of servers that are slow, frozen, gone, or of another mind.

use std::time::Duration;

use forebay_engine::TierError;
use forebay_redis::{EndpointSettings, Settings};
use forebay_testkit::faults::{Direction, FaultProxy, Faults, Flow};
use forebay_testkit::redis::RedisLaunch;
use tokio::time::Instant;

use crate::world::{PATIENT, World, key, name, number, patient, server, settings, wait_number};

/// The times that a tier has by default.
fn quick(url: impl Into<String>) -> Settings {
    Settings::new(EndpointSettings::at(url))
}

async fn proxied(server: &forebay_testkit::redis::RedisServer) -> (FaultProxy, String) {
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let url = format!("redis://{}", proxy.address());
    (proxy, url)
}

#[tokio::test]
async fn a_server_that_is_not_there_is_waited_for_behind() {
    let port = server().await.kill().await.unwrap();
    let world = World::begun(Settings::new(patient(format!("redis://127.0.0.1:{port}"))));
    world.notices.wait("refused", 1).await;
    let began = Instant::now();
    assert!(matches!(world.get(&key("/")).await, Err(TierError::Failed(_))));
    assert!(world.put(&key("/"), b"x").await.is_err());
    assert!(world.remove(&key("/")).await.is_err());
    assert!(began.elapsed() < PATIENT, "nothing waits for it");
    assert_eq!(world.tier.counts().absent, 3);
    let _server = RedisLaunch::new().port(port).start().await.unwrap();
    world.until(|tier| tier.endpoints()[0].is_up).await;
    world.put(&key("/"), b"x").await.unwrap();
    assert!(world.body(&key("/")).await.is_some());
    let said = world.notices.all();
    assert_eq!(said.len(), 2, "each thing once: {said:?}");
}

#[tokio::test]
async fn a_server_that_is_killed_is_found_again_when_it_is_back() {
    let server = server().await;
    let world = World::new(settings(&server)).await;
    world.put(&key("/"), b"x").await.unwrap();
    let port = server.kill().await.unwrap();
    world.until(|tier| !tier.endpoints()[0].is_up).await;
    assert!(world.get(&key("/")).await.is_err());
    let server = RedisLaunch::new().port(port).start().await.unwrap();
    world.until(|tier| tier.endpoints()[0].is_up).await;
    assert_eq!(world.get(&key("/")).await.unwrap(), None, "it has come back empty");
    world.put(&key("/"), b"y").await.unwrap();
    assert_eq!(world.body(&key("/")).await.as_deref(), Some(&b"y"[..]));
    drop(server);
}

/// How often what depends on a machine with other things to do is tried.
const ROUNDS: usize = 6;

#[tokio::test]
async fn a_frozen_server_costs_its_time_once_and_is_back_at_once() {
    let server = server().await;
    let world = World::new(quick(server.url())).await;
    let (mut waited, mut back) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        world.put_until_stored(&key("/"), b"x").await;
        server.freeze().await.unwrap();
        let began = Instant::now();
        let frozen = world.get(&key("/")).await;
        waited.push(began.elapsed());
        assert!(matches!(frozen, Err(TierError::TimedOut | TierError::Failed(_))), "{frozen:?}");
        world.until(|tier| !tier.endpoints()[0].is_up).await;
        let began = Instant::now();
        for _ in 0..1_000 {
            assert!(matches!(world.get(&key("/")).await, Err(TierError::Failed(_))));
        }
        let each = began.elapsed() / 1_000;
        assert!(each < Duration::from_millis(1), "{each:?}");
        server.thaw().await.unwrap();
        back.push(world.until(|tier| tier.endpoints()[0].is_up).await);
    }
    let (waited, back) = (waited.iter().min().unwrap(), back.iter().min().unwrap());
    assert!(*waited <= Duration::from_millis(55), "{waited:?}");
    assert!(*back <= Duration::from_millis(250), "{back:?}");
    assert!(world.tier.counts().timed_out >= 1);
    assert!(world.tier.counts().connected <= 1 + ROUNDS as u64);
}

#[tokio::test]
async fn a_server_that_is_slower_than_it_may_be_is_not_used_until_it_is_fast_again() {
    let server = server().await;
    let (proxy, url) = proxied(&server).await;
    let world = World::new(quick(url)).await;
    proxy.set(Faults::delayed(Duration::from_millis(120)));
    world.until(|tier| !tier.endpoints()[0].is_up).await;
    let said = world.notices.all();
    assert!(said.iter().any(|notice| notice.contains("no answer in time")), "{said:?}");
    proxy.set(Faults::default());
    world.until(|tier| tier.endpoints()[0].is_up).await;
    assert_eq!(world.tier.counts().connected, 1, "the connection was as good as any");
}

#[tokio::test]
async fn broken_connections_are_made_again_and_not_by_a_herd() {
    let server = server().await;
    let (proxy, url) = proxied(&server).await;
    let world = World::new(Settings::new(patient(url))).await;
    proxy.reset_all();
    world.until(|tier| tier.counts().connected == 2 && tier.endpoints()[0].is_up).await;
    proxy.half_close_all(Direction::ToClient);
    world.until(|tier| tier.counts().connected == 3 && tier.endpoints()[0].is_up).await;

    let (before, began) = (proxy.accepted(), Instant::now());
    proxy.change(|faults| faults.refuses = true);
    proxy.reset_all();
    world.until(|_| proxy.accepted() >= before + 6).await;
    let elapsed = began.elapsed();
    assert!(elapsed >= Duration::from_millis(500), "6 attempts in {elapsed:?}");
    proxy.set(Faults::default());
    let back = world.until(|tier| tier.endpoints()[0].is_up).await;
    assert!(back < Duration::from_secs(2), "{back:?}");
}

#[tokio::test]
async fn with_the_tier_its_connections_go() {
    let server = server().await;
    let (proxy, url) = proxied(&server).await;
    let world = World::new(Settings::new(patient(url))).await;
    assert_eq!(proxy.open(), 1);
    let other = World::new(settings(&server)).await;
    drop(world);
    other.until(|_| proxy.open() == 0).await;
}

#[tokio::test]
async fn a_connection_into_nowhere_is_given_up() {
    let server = server().await;
    let (proxy, url) = proxied(&server).await;
    let world = World::new(quick(url)).await;
    proxy.set(Faults::flow(Flow::BlackHole));
    world.until(|tier| !tier.endpoints()[0].is_up).await;
    assert!(world.get(&key("/")).await.is_err());
    proxy.set(Faults::default());
    world.until(|tier| tier.endpoints()[0].is_up).await;
    assert!(world.tier.counts().connected >= 2);
}

#[tokio::test]
async fn the_fallback_is_used_while_the_nearest_does_not_answer() {
    let (near, far) = (server().await, server().await);
    let (proxy, far_url) = proxied(&far).await;
    proxy.set(Faults::delayed(Duration::from_millis(80)));
    let mut settings = quick(near.url());
    let read_timeout = Duration::from_millis(250);
    let write_timeout = PATIENT;
    let there = EndpointSettings { read_timeout, write_timeout, ..EndpointSettings::at(far_url) };
    settings.fallback.push(there);
    let world = World::new(settings).await;
    world.until(|tier| tier.endpoints()[1].is_up).await;
    world.put(&key("/"), b"near").await.unwrap();
    world.put(&key("/purged"), b"near").await.unwrap();
    assert_eq!(number(&far, &["DBSIZE"]).await, 0);

    near.freeze().await.unwrap();
    let over = world.until(|tier| tier.endpoints()[1].is_used).await;
    assert!(over < Duration::from_secs(1), "{over:?}");
    world.put(&key("/"), b"newer").await.unwrap();
    assert_eq!(world.body(&key("/")).await.as_deref(), Some(&b"newer"[..]));
    assert!(!world.remove(&key("/purged")).await.unwrap());
    assert_eq!(world.tier.endpoints()[0].owed, 2);

    near.thaw().await.unwrap();
    let back = world.until(|tier| tier.endpoints()[0].is_used).await;
    assert!(back < Duration::from_secs(1), "{back:?}");
    // What is older than what there was meanwhile, or was purged, is not read, ever.
    for path in ["/", "/purged"] {
        assert_eq!(world.get(&key(path)).await.unwrap(), None, "{path}");
    }
    world.until(|tier| tier.endpoints()[0].owed == 0).await;
    assert_eq!(number(&near, &["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn a_wrong_password_is_told_once_and_without_it() {
    let server = RedisLaunch::new().config("requirepass right").start().await.unwrap();
    let wrong = format!("redis://:wrong@{}", server.address());
    let world = World::begun(Settings::new(patient(wrong)));
    world.notices.wait("it refuses", 1).await;
    assert!(world.get(&key("/")).await.is_err());
    let said = world.notices.all();
    assert!(said.len() == 1 && !said[0].contains("wrong@"), "{said:?}");
    assert!(said[0].starts_with(&server.url()), "{said:?}");
    assert_eq!(world.tier.endpoints()[0].trouble.as_deref(), said[0].split_once(": ").map(|s| s.1));
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_told_once() {
    let server = server().await;
    let world = World::begun(Settings::new(patient(format!("{}/99", server.url()))));
    world.notices.wait("DB index is out of range", 1).await;
    assert!(world.get(&key("/")).await.is_err());
    assert_eq!(world.notices.all().len(), 1);
}

#[tokio::test]
async fn a_user_without_the_right_is_told_once() {
    let config = "user reader on >secret ~* +@read +ping +hello +client";
    let server = RedisLaunch::new().config(config).start().await.unwrap();
    let writer = World::new(settings(&server)).await;
    writer.put(&key("/"), b"x").await.unwrap();
    let url = format!("redis://reader:secret@{}", server.address());
    let world = World::new(Settings::new(patient(url))).await;
    for _ in 0..5 {
        world.put(&key("/"), b"y").await.unwrap();
        assert_eq!(world.body(&key("/")).await.as_deref(), Some(&b"x"[..]), "reading goes on");
    }
    let counts = world.tier.counts();
    assert_eq!((counts.stored, counts.denied + counts.writes_refused), (0, 5));
    assert!(world.tier.endpoints()[0].is_read_only);
    let said = world.notices.all();
    let told: Vec<_> = said.iter().filter(|notice| notice.contains("it refuses")).collect();
    assert_eq!(told.len(), 1, "{said:?}");
    assert!(!told[0].contains("secret"), "{told:?}");
}

#[tokio::test]
async fn a_replica_is_read_and_takes_no_writes_without_that_being_a_failure() {
    let master = server().await;
    let replica = RedisLaunch::new().replica_of(&master).start().await.unwrap();
    let writer = World::new(settings(&master)).await;
    writer.put(&key("/"), b"x").await.unwrap();
    wait_number(&replica, &["EXISTS", &name("/")], 1).await;
    let world = World::new(settings(&replica)).await;
    for _ in 0..3 {
        world.put(&key("/"), b"y").await.unwrap();
        assert_eq!(world.body(&key("/")).await.as_deref(), Some(&b"x"[..]));
    }
    assert!(world.remove(&key("/")).await.is_err(), "a removal that was not carried out");
    assert_eq!(world.get(&key("/")).await.unwrap(), None, "is at least not read");
    let state = &world.tier.endpoints()[0];
    assert!(state.is_up && state.is_read_only && state.owed == 1, "{state:?}");
    assert_eq!((world.tier.counts().stored, world.tier.counts().writes_refused >= 4), (0, true));
    // It becomes a master, and is noticed to.
    replica.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    world.until(|tier| tier.endpoints()[0].owed == 0).await;
    world.put_until_stored(&key("/"), b"y").await;
    assert!(!world.tier.endpoints()[0].is_read_only);
}

#[tokio::test]
async fn a_server_without_room_says_so_and_reading_goes_on() {
    let launch = RedisLaunch::new().config("maxmemory-policy noeviction");
    let server = launch.start().await.unwrap();
    let world = World::new(settings(&server)).await;
    world.put(&key("/"), b"old").await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "1kb"]).await.unwrap();
    world.put(&key("/"), b"new").await.unwrap();
    assert_eq!(world.tier.counts().writes_refused, 1);
    world.notices.wait("it takes no writes", 1).await;
    assert_eq!(world.body(&key("/")).await.as_deref(), Some(&b"old"[..]), "reading goes on");
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    world.put_until_stored(&key("/"), b"new").await;
    assert_eq!(world.body(&key("/")).await.as_deref(), Some(&b"new"[..]));
}
